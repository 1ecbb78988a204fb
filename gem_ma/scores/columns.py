"""What a summary counts beside its scores, one column each: tokens, illegal choices, costs ...

`COLUMNS` declares a column once: its key, its name, what it is, how it is counted and how it is
printed. `summary.json`, the terminal, pages, studies and docs/reference/summary.md read it there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.spelling import decimal
from gem_ma.kernel.types import Malformed, Turn, Usage
from gem_ma.scores.groups import interval_text, is_zero
from gem_ma.scores.unheard import Heard, Voices, heard_in

MOST_LINES = 8  # of one column; of more agents, those with one text share a line
FEW_LINES = 2  # all the same in more than these are told once
GOES_ON = 2  # further acts of who wanted to end
# of the end, as other benchmarks' users write it
_MARK = re.compile(r"(?<!#)#{3,}+[ \t]{0,8}[A-Z][A-Z _-]{1,30}#{3,}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `value`: what the sums of the run, an agent (`AgentCounts`) or a policy (`Heard`)
    come to, None where that is nothing; without it somebody else writes the key. `text` of a value
    is "" where there is nothing to print.

    `shown`: a row of the terminal and a fact of a page; there in the table of scores; among the
    scores of both; on a page alone; in summary.json alone. `optional`: the key is left out where
    nothing was counted; `if_any`: whose value it is, is left out where this sum is 0.
    """

    key: str
    name: str  # before that of the agent or policy, where it has a value for each
    tells: str
    value: Callable[[Any], Any] | None = None
    text: Callable[[Any], str] = str
    of: Literal["run", "agent", "policy", "group", "team", "world"] = "run"
    shown: Literal["row", "table", "score", "page", "json"] = "row"
    optional: bool = False
    if_any: str = ""
    total: Callable[[Collection[Any]], str] | None = None  # printed below several values

    def lines(self, value: Any) -> list[tuple[str, str]]:
        """(whose, text) of a value of this column."""
        if self.of == "run":
            return [("", self.text(value))]
        named = [(who, self.text(of)) for who, of in value.items()]
        are_same = len(named) > FEW_LINES and len({text for _, text in named}) == 1
        if len(named) > MOST_LINES or are_same:
            named = _alike(named)
        if self.total is not None and len(value) > 1:
            named.append(("", self.total(value.values())))
        return [(who, text) for who, text in named if text]

    def cell(self, summary: Mapping[str, Any]) -> str:
        """What stands in a table; an older summary may lack the key."""
        value = summary.get(self.key)
        return "n/a" if value is None else self.text(value)


def _alike(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A line for all that have one text; of many such lines the first."""
    whose: dict[str, list[str]] = {}
    for who, text in named:
        whose.setdefault(text, []).append(who)
    lines = [
        (f"{who[0]} and {len(who) - 1} more" if len(who) > 1 else who[0], text)
        for text, who in list(whose.items())[:MOST_LINES]
    ]
    left = sum(map(len, list(whose.values())[MOST_LINES:]))
    return [*lines, ("of others", f"{left} more are in summary.json")] if left else lines


def table_columns(summaries: Iterable[Mapping[str, Any]]) -> list[Column]:
    """The columns of a table of these summaries: those that any of them has."""
    known = {key for summary in summaries for key in summary}
    return [column for column in COLUMNS if column.shown == "table" and column.key in known]


def column_rows(
    summary: Mapping[str, Any], shown: Collection[str] = ("row", "table")
) -> list[tuple[str, str]]:
    """(what, value) rows for printing; a key that an older version did not write is skipped."""
    return [
        (f"{column.name} {who}".strip(), text)
        for column in COLUMNS
        if column.shown in shown and column.key in summary
        for who, text in column.lines(summary[column.key])
    ]


class AgentCounts(msgspec.Struct, array_like=True, gc=False):
    """Counts of the turns of one agent; those of scored plays, but for `marked`."""

    plays: int = 0
    turns: int = 0
    closed: int = 0  # choices among legal strings
    illegal: int = 0
    calls: int = 0
    malformed: int = 0
    sayings: int = 0  # that were cut
    bytes: int = 0
    sampled: int = 0
    prompt: int = 0
    marked: int = 0


class Tally(msgspec.Struct, array_like=True, gc=False):
    """What a play, or several, add to the columns; `agents` in the order of the cast."""

    plays: int = 0  # scored ones
    turns: int = 0
    steps: int = 0
    calls: int = 0  # of models
    cut: int = 0
    retried: int = 0  # plays, scored or not
    agents: list[AgentCounts] = msgspec.field(default_factory=list)
    policies: dict[str, Heard] = msgspec.field(default_factory=dict)


def tally_of(episode: Episode) -> Tally:
    """What an episode adds to the columns."""
    is_scored = episode.end.scored
    agents = {agent: AgentCounts(int(is_scored)) for agent in episode.cast}
    tally = Tally(int(is_scored), agents=list(agents.values()), policies=heard_in(episode))
    modelled = False
    for turn in episode.turns:
        if turn.replies:
            modelled = True
            tally.retried |= any(reply.attempts for reply in turn.replies)
        counts = agents.get(turn.agent)
        if is_scored and counts is not None:
            _count(counts, turn)
            tally.calls += len(turn.replies)
    if is_scored:
        tally.turns = len(episode.turns)
        tally.steps = 1 + max((turn.step for turn in episode.turns), default=-1)
        tally.cut = int(episode.end.bootstraps)
    for agent in _marked(episode) if modelled else ():
        if agent in agents:
            agents[agent].marked = 1
    return tally


def _count(counts: AgentCounts, turn: Turn) -> None:
    action = turn.action
    counts.turns += 1
    if turn.legal is not None:  # the others name no legal strings
        counts.closed += 1
        counts.illegal += turn.illegal
    if action.tool_calls:
        counts.calls += len(action.tool_calls)
        counts.malformed += sum(isinstance(call, Malformed) for call in action.tool_calls)
    cut = action.cut
    for reply in turn.replies:
        cut += reply.cut
        counts.sampled += reply.sampled or 0
        counts.prompt += len(reply.prompt_ids) or reply.usage.prompt_tokens or 0
    counts.sayings += cut > 0
    counts.bytes += cut


class Columns:
    """The sums of all columns over the plays that were taken in."""

    def __init__(self) -> None:
        self._run = Tally()
        self._agents: dict[str, AgentCounts] = {}
        self._policies: dict[str, Heard] = {}
        self._voices = Voices()

    def add(
        self, tally: Tally, agents: Iterable[str], end: End, error: str = "", times: int = 1
    ) -> None:
        """Takes in so many plays alike, with the names of their agents."""
        self._voices.add(tally.policies, end, error, times)
        for name in ("plays", "turns", "steps", "calls", "cut", "retried"):
            setattr(self._run, name, getattr(self._run, name) + times * getattr(tally, name))
        for agent, counts in zip(agents, tally.agents, strict=True):
            sums = self._agents.setdefault(agent, AgentCounts())
            for name in AgentCounts.__struct_fields__:
                if more := getattr(counts, name):
                    setattr(sums, name, getattr(sums, name) + times * more)
        for policy, heard in tally.policies.items():
            self._policies.setdefault(policy, Heard()).add(heard, times)

    def values(self, agents: Iterable[str]) -> dict[str, Any]:
        """Key -> value, as in summary.json; `agents` in the order that their values have."""
        order = {agent: place for place, agent in enumerate(agents)}
        values: dict[str, Any] = {}
        for column in COLUMNS:
            if column.value is None:
                continue
            if column.of == "run":
                values[column.key] = column.value(self._run)
                continue
            sums: Mapping[str, Any] = self._agents if column.of == "agent" else self._policies
            there = [who for who in sums if not column.if_any or getattr(sums[who], column.if_any)]
            named = sorted(there, key=lambda who: (order.get(who, len(order)), who))
            if named or not column.optional:
                values[column.key] = {who: column.value(sums[who]) for who in named}
        unheard = self._voices.unheard()
        return {**values, **({"unheard": unheard} if unheard else {})}


# -- counting --------------------------------------------------------------------------------------


def _marked(episode: Episode) -> Iterator[str]:
    """The agents whose model wrote a mark such as ###STOP### beside a text, which was cut, and that
    acted several times after it."""
    turns: dict[str, list[Turn]] = {}
    for turn in episode.turns:
        if turn.replies:
            turns.setdefault(turn.agent, []).append(turn)
    for agent, acts in turns.items():
        if any(
            turn.action.text.strip()
            and not _MARK.search(turn.action.text)
            and _MARK.search(turn.replies[-1].text)
            for turn in acts[:-GOES_ON]
        ):
            yield agent


def _share(part: str, whole: str) -> Callable[[Any], float | None]:
    def share(sums: Any) -> float | None:
        total = getattr(sums, whole)
        return getattr(sums, part) / total if total else None

    return share


def _by_count(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


# -- costs -----------------------------------------------------------------------------------------

Pricing = Callable[[Usage], float | None]  # USD of one reply


class Used(msgspec.Struct, array_like=True, gc=False):
    """What one reply of a policy used; None where its server did not say."""

    policy: str
    prompt: int | None
    completion: int | None
    cached: int | None
    retries: int


def usages_of(episode: Episode) -> dict[str, list[Used]]:
    """Agent -> what its replies used; a bot has none."""
    usages: dict[str, list[Used]] = {}
    for turn in episode.turns:
        for reply in turn.replies:
            said = reply.usage
            counts = (said.prompt_tokens, said.completion_tokens, said.cached_tokens)
            used = Used(reply.policy, *counts, len(reply.attempts))
            usages.setdefault(turn.agent, []).append(used)
    return usages


def costs(
    plays: Iterable[Mapping[str, Sequence[Used]]], prices: Mapping[str, Pricing]
) -> dict[str, dict[str, Any]]:
    """The column `costs` of plays, each as `usages_of` gives it; the prices, by policy, are known
    to a run's config alone.

    The replies of all recorded episodes are counted, failed ones too; a reply out of a cache costs
    what it cost when it was sampled. Attempts without a reply are counted but not priced: no server
    says what they cost. Agents without a model call are left out.
    """
    replies: dict[str, list[Used]] = {}
    for usages in plays:
        for agent, used in usages.items():
            replies.setdefault(agent, []).extend(used)
    return {agent: _cost(used, prices) for agent, used in sorted(replies.items())}


def _cost(replies: list[Used], prices: Mapping[str, Pricing]) -> dict[str, Any]:
    paid = [
        prices[used.policy](Usage(used.prompt, used.completion, used.cached))
        if used.policy in prices
        else None
        for used in replies
    ]
    return {
        "requests": len(replies),
        "retries": sum(used.retries for used in replies),
        "prompt": _sum([used.prompt for used in replies]),
        "cached": sum(used.cached or 0 for used in replies),
        "completion": _sum([used.completion for used in replies]),
        # a sum over the known ones alone would look like a cost
        "usd": None if None in paid else math.fsum(one for one in paid if one is not None),
    }


def _sum(counts: list[int | None]) -> int | None:
    # one reply without a count makes the whole unknown: a partial sum would look exact
    return None if None in counts else sum(count for count in counts if count is not None)


def _all_costs(of: Collection[Mapping[str, Any]]) -> str:
    paid = [cost["usd"] for cost in of]
    unpriced = [cost for cost in of if cost["usd"] is None]
    if any(None in (cost["prompt"], cost["completion"]) for cost in unpriced):
        return "n/a (not all tokens were counted)"
    return _usd(None if unpriced else math.fsum(paid))


# -- printing --------------------------------------------------------------------------------------


def _percent(share: float | None) -> str:
    # None: nothing of which it could be a share
    return "" if share is None else f"{100 * share:.1f} %"


def _fault(share: float | None) -> str:
    return _percent(share or None)


def _cut_text(cut: Mapping[str, Any]) -> str:
    if not cut["sayings"]:
        return ""
    return f"{cut['sayings']} of {cut['of']}, {cut['bytes']} bytes (run.max_said)"


def _empty_text(empty: Mapping[str, Any]) -> str:
    share = _fault(empty["share"])
    return share and f"{share} ({empty['empty']} of {empty['replies']})"


def _models(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _tokens_text(tokens: Mapping[str, int]) -> str:
    if not tokens["sampled"]:  # a bot
        return ""
    # whoever samples has read something: 0 is what no server counted
    read = f", {tokens['prompt']} read" if tokens["prompt"] else ""
    return f"{tokens['sampled']} sampled{read}"


def _cost_text(cost: Mapping[str, Any]) -> str:
    paid = _all_costs([cost])
    return f"{paid} for {cost['requests']} requests, {cost['retries']} tried again"


def _usd(value: float | None) -> str:
    """
    >>> _usd(1.234), _usd(0.000123), _usd(0.0), _usd(None)
    ('$1.23', '$0.00012', '$0', 'n/a (no price)')
    """
    if value is None:
        return "n/a (no price)"
    # a reply may cost a ten-thousandth of a dollar, and $0.00 would read as free
    if value >= 0.1:
        return f"${value:.2f}"
    return f"${value:.2g}" if value >= 0.0001 or not value else f"${value:.6f}"


def _group_text(group: Mapping[str, Any]) -> str:
    text = f"{interval_text(group)} a head"
    # one of several policies may hold now two seats, now three
    text += f" of {decimal(group['agents']).removesuffix('.000')}" * (group["agents"] != 1)
    spread = group["spread"]
    return text if not spread or is_zero(spread) else f"{text}, spread {interval_text(spread)}"


def _together_text(estimate: Mapping[str, Any]) -> str:
    of = f" of {estimate['n']}" if estimate["n"] < estimate["of"] else ""
    return interval_text(estimate) + of


# -- the columns, in the order in which they are printed -------------------------------------------

COLUMNS = (
    Column(
        "groups",
        "return",
        "Return of the agents of a team, a role, a policy or a behaviour: the mean of a play; its"
        " `spread` is the standard deviation among them in a play, `agents` their number. What an"
        " agent or another group has already is left out.",
        text=_group_text,
        of="group",
        shown="score",
    ),
    Column(
        "won",
        "won",
        "Share of the ok episodes in which the mean return of a team is the best of all teams'; k"
        " teams with the best one have 1/k each.",
        text=interval_text,
        of="team",
        shown="score",
    ),
    Column(
        "together",
        "",
        "`welfare`, the sum of all returns; `equality`, 1 - Gini of the returns, over the episodes"
        " in which none is below 0 and one above. Absent where the rules fix them (`zero_sum`,"
        " `cooperative`).",
        text=_together_text,
        of="world",
        shown="score",
    ),
    Column(
        "retried",
        "retried",
        "Episodes in which a request to a model was repeated. Printed beside the counts.",
        lambda run: run.retried,
        shown="json",
    ),
    Column(
        "turns",
        "turns per episode",
        "Turns of all agents, mean over the ok episodes.",
        _share("turns", "plays"),
        decimal,
        shown="table",
    ),
    Column(
        "steps",
        "steps per episode",
        "Decision points, mean over the ok episodes; simultaneous turns share one.",
        _share("steps", "plays"),
        shown="json",
    ),
    Column(
        "model_calls",
        "model calls",
        "Replies of models in the ok episodes.",
        lambda run: run.calls,
        shown="json",
    ),
    Column(
        "truncated",
        "truncated",
        "Share of the ok episodes that a limit cut.",
        _share("cut", "plays"),
        shown="json",
    ),
    Column(
        "illegal",
        "illegal",
        "Share of an agent's closed choices in which it named no legal string and called no tool.",
        _share("illegal", "closed"),
        _percent,
        of="agent",
    ),
    Column(
        "malformed",
        "malformed calls",
        "Share of an agent's tool calls that could not be read.",
        _share("malformed", "calls"),
        _fault,
        of="agent",
    ),
    Column(
        "tool_calls",
        "tool calls",
        "An agent's tool calls, mean over the ok episodes in which it sat.",
        _share("calls", "plays"),
        lambda calls: decimal(calls) if calls else "",
        of="agent",
        if_any="plays",
        shown="page",
    ),
    Column(
        "cut",
        "cut sayings",
        "Turns of an agent in which `run.max_said` cut its text, of how many, and bytes cut.",
        lambda agent: {"sayings": agent.sayings, "of": agent.turns, "bytes": agent.bytes},
        _cut_text,
        of="agent",
    ),
    Column(
        "empty",
        "empty replies",
        "Replies of a policy in which nothing is said, failed episodes included.",
        lambda policy: {
            "replies": policy.replies,
            "empty": policy.empty,
            "share": _share("empty", "replies")(policy),
        },
        _empty_text,
        of="policy",
        if_any="replies",
    ),
    Column(
        "served",
        "served",
        "What servers called the models that answered a policy, with their replies.",
        lambda policy: _by_count(policy.models),
        _models,
        of="policy",
        if_any="models",
        shown="page",
    ),
    Column(
        "unheard",
        "unheard",
        "Why a policy never spoke; absent where each did.",
        # why alone; what to do was said when it was played
        text=lambda line: line.partition("' ")[2].partition("; ")[0],
        of="policy",
    ),
    Column(
        "marked",
        "marks",
        "Plays that an agent went on with after a mark of the end; absent where there are none.",
        lambda agent: agent.marked,
        lambda plays: (
            f"{plays} plays went on after a mark such as ###STOP### beside a text, which was cut;"
            " to end there: agents.NAME.marks=anywhere"
        ),
        of="agent",
        optional=True,
        if_any="marked",
    ),
    Column(
        "other_models",
        "other models",
        "Models that answered a policy and are called otherwise than asked; absent without any.",
        text=lambda counts: (
            f"{_models(counts)} replies of a model that is called otherwise than asked"
        ),
        of="policy",
    ),
    Column(
        "tokens",
        "tokens",
        "Tokens that an agent sampled, and that its models read, in the ok episodes.",
        lambda agent: {"sampled": agent.sampled, "prompt": agent.prompt},
        _tokens_text,
        of="agent",
    ),
    Column(
        "costs",
        "cost",
        "What an agent's model calls cost, all episodes; `usd` is null where a price or a count is"
        " not known. Absent where no policy has a price or is bought.",
        text=_cost_text,
        of="agent",
        total=_all_costs,
    ),
)
