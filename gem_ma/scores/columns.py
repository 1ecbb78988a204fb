"""What a summary counts beside its scores, one column each: tokens, illegal choices, costs ...

`COLUMNS` declares a column once: its key, its name, what it is, how it is counted and how it is
printed. `summary.json`, the terminal, pages, studies and docs/reference/summary.md read it there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.spelling import decimal
from gem_ma.kernel.types import Malformed, Reply, Turn, Usage
from gem_ma.scores.unheard import Voices

Counts = Mapping[str, int]
# whose counts, and what to add to them: an agent, a policy, or "" for the run
Counted = Iterator[tuple[str, Counts]]

GOES_ON = 2  # further acts of who wanted to end
# of the end, as other benchmarks' users write it
_MARK = re.compile(r"(?<!#)#{3,}+[ \t]{0,8}[A-Z][A-Z _-]{1,30}#{3,}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `count` gives what an episode adds, `value` what the sums come to; without
    `count` somebody else writes the key. `text` of a value is "" where there is nothing to print.

    `shown`: a row of the terminal and a fact of a page; there in the table of scores; on a page
    alone; in summary.json alone. `optional`: the key is left out where nothing was counted.
    """

    key: str
    name: str  # before that of the agent or policy, where it has a value for each
    tells: str
    count: Callable[[Episode], Counted] | None = None
    value: Callable[[Counter[str]], Any] = dict
    text: Callable[[Any], str] = str
    of: Literal["run", "agent", "policy"] = "run"
    shown: Literal["row", "table", "page", "json"] = "row"
    optional: bool = False
    total: Callable[[Collection[Any]], str] | None = None  # printed below several values

    def lines(self, value: Any) -> list[tuple[str, str]]:
        """(whose, text) of a value of this column."""
        if self.of == "run":
            return [("", self.text(value))]
        named = [(who, self.text(of)) for who, of in value.items()]
        if self.total is not None and len(named) > 1:
            named.append(("", self.total(value.values())))
        return [(who, text) for who, text in named if text]

    def cell(self, summary: Mapping[str, Any]) -> str:
        """What stands in a table; an older summary may lack the key."""
        value = summary.get(self.key)
        return "n/a" if value is None else self.text(value)


def table_columns(summaries: Iterable[Mapping[str, Any]]) -> list[Column]:
    """The columns of a table of these summaries: those that any of them has."""
    known = {key for summary in summaries for key in summary}
    return [column for column in COLUMNS if column.shown == "table" and column.key in known]


def column_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) rows for printing; a key that an older version did not write is skipped."""
    return [
        (f"{column.name} {who}".rstrip(), text)
        for column in COLUMNS
        if column.shown in ("row", "table") and column.key in summary
        for who, text in column.lines(summary[column.key])
    ]


class Columns:
    """The sums of all columns over the episodes that were taken in."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, Counter[str]]] = {column.key: {} for column in COLUMNS}
        self._voices = Voices()

    def add(self, episode: Episode) -> None:
        """Takes in the next episode."""
        self._voices.add(episode)
        for column in COLUMNS:
            for who, counts in column.count(episode) if column.count is not None else ():
                sums = self._sums[column.key].setdefault(who, Counter())
                for name, number in counts.items():
                    sums[name] += number

    def values(self, agents: Iterable[str]) -> dict[str, Any]:
        """Key -> value, as in summary.json; `agents` in the order that their values have."""
        order = {agent: place for place, agent in enumerate(agents)}
        values: dict[str, Any] = {}
        for column in COLUMNS:
            if column.count is None:
                continue
            sums = self._sums[column.key]
            if column.of == "run":
                values[column.key] = column.value(sums.get("", Counter()))
                continue
            named = sorted(sums, key=lambda who: (order.get(who, len(order)), who))
            if named or not column.optional:
                values[column.key] = {who: column.value(sums[who]) for who in named}
        unheard = self._voices.unheard()
        return {**values, **({"unheard": unheard} if unheard else {})}


# -- counting --------------------------------------------------------------------------------------


def _plays(count: Callable[[Episode], Counts]) -> Callable[[Episode], Counted]:
    """Counts of each scored play, which is a `play` itself."""

    def counted(episode: Episode) -> Counted:
        if episode.end.scored:
            yield "", {"plays": 1, **count(episode)}

    return counted


def _turns(count: Callable[[Turn], Counts]) -> Callable[[Episode], Counted]:
    """Counts of each turn of scored plays, for its agent; every agent of the cast has some."""

    def counted(episode: Episode) -> Counted:
        yield from ((episode.whose(agent), {}) for agent in episode.cast)
        for turn in episode.turns if episode.end.scored else ():
            yield episode.whose(turn.agent), count(turn)

    return counted


def _replies(count: Callable[[Reply], Counts]) -> Callable[[Episode], Counted]:
    """Counts of each reply, for its policy; those of failed plays too."""

    def counted(episode: Episode) -> Counted:
        for turn in episode.turns:
            for reply in turn.replies:
                if counts := count(reply):
                    yield reply.policy, counts

    return counted


def _retried(episode: Episode) -> Counted:
    # once per episode, however many of its requests were repeated
    if any(reply.attempts for turn in episode.turns for reply in turn.replies):
        yield "", {"plays": 1}


def _tokens(turn: Turn) -> Counts:
    counts = Counter[str]()
    for reply in turn.replies:
        # ids where the engine gives them; a server's own count otherwise
        counts["sampled"] += len(reply.token_ids) or reply.usage.completion_tokens or 0
        counts["prompt"] += len(reply.prompt_ids) or reply.usage.prompt_tokens or 0
    return counts


def _illegal(turn: Turn) -> Counts:
    # of closed choices; the others name no legal strings
    return {} if turn.legal is None else {"all": 1, "part": turn.action.parsed is None}


def _malformed(turn: Turn) -> Counts:
    calls = turn.action.tool_calls
    return {"all": len(calls), "part": sum(isinstance(call, Malformed) for call in calls)}


def _tool_calls(episode: Episode) -> Counted:
    if episode.end.scored:
        yield from ((episode.whose(agent), {"plays": 1}) for agent in episode.cast)
        for turn in episode.turns:
            yield episode.whose(turn.agent), {"calls": len(turn.action.tool_calls)}


def _cut(turn: Turn) -> Counts:
    cut = turn.action.cut + sum(reply.cut for reply in turn.replies)
    return {"sayings": cut > 0, "of": 1, "bytes": cut}


def _marked(episode: Episode) -> Counted:
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
            yield episode.whose(agent), {"plays": 1}


def _share(part: str, whole: str) -> Callable[[Counter[str]], float | None]:
    return lambda sums: sums[part] / sums[whole] if sums[whole] else None


def _each(*names: str) -> Callable[[Counter[str]], dict[str, int]]:
    return lambda sums: {name: sums[name] for name in names}


def _by_count(sums: Counter[str]) -> dict[str, int]:
    return dict(sorted(sums.items(), key=lambda pair: (-pair[1], pair[0])))


# -- costs -----------------------------------------------------------------------------------------

Pricing = Callable[[Usage], float | None]  # USD of one reply


def costs(episodes: Iterable[Episode], prices: Mapping[str, Pricing]) -> dict[str, dict[str, Any]]:
    """The column `costs`, of which the prices, by policy, are known to a run's config alone.

    The replies of all recorded episodes are counted, failed ones too; a reply out of a cache costs
    what it cost when it was sampled. Attempts without a reply are counted but not priced: no server
    says what they cost. Agents without a model call are left out.
    """
    replies: dict[str, list[Reply]] = {}
    for episode in episodes:
        for turn in episode.turns:
            # a bot costs nothing and has no row
            if turn.replies:
                replies.setdefault(turn.agent, []).extend(turn.replies)
    return {agent: _cost(calls, prices) for agent, calls in sorted(replies.items())}


def _cost(replies: list[Reply], prices: Mapping[str, Pricing]) -> dict[str, Any]:
    usages = [reply.usage for reply in replies]
    paid = [
        prices[reply.policy](reply.usage) if reply.policy in prices else None for reply in replies
    ]
    return {
        "requests": len(replies),
        "retries": sum(len(reply.attempts) for reply in replies),
        "prompt": _sum([usage.prompt_tokens for usage in usages]),
        "cached": sum(usage.cached_tokens or 0 for usage in usages),
        "completion": _sum([usage.completion_tokens for usage in usages]),
        # a sum over the known ones alone would look like a cost
        "usd": None if None in paid else math.fsum(one for one in paid if one is not None),
    }


def _sum(counts: list[int | None]) -> int | None:
    # one reply without a count makes the whole unknown: a partial sum would look exact
    return None if None in counts else sum(count for count in counts if count is not None)


def _all_costs(of: Collection[Mapping[str, Any]]) -> str:
    paid = [cost["usd"] for cost in of]
    return _usd(None if None in paid else math.fsum(paid))


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
    # a bot samples none
    return f"{tokens['sampled']} sampled, {tokens['prompt']} read" if tokens["sampled"] else ""


def _cost_text(cost: Mapping[str, Any]) -> str:
    return f"{_usd(cost['usd'])} for {cost['requests']} requests, {cost['retries']} tried again"


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


# -- the columns, in the order in which they are printed -------------------------------------------

COLUMNS = (
    Column(
        "retried",
        "retried",
        "Episodes in which a request to a model was repeated. Printed beside the counts.",
        _retried,
        lambda sums: sums["plays"],
        shown="json",
    ),
    Column(
        "turns",
        "turns per episode",
        "Turns of all agents, mean over the ok episodes.",
        _plays(lambda episode: {"turns": len(episode.turns)}),
        _share("turns", "plays"),
        decimal,
        shown="table",
    ),
    Column(
        "steps",
        "steps per episode",
        "Decision points, mean over the ok episodes; simultaneous turns share one.",
        _plays(lambda episode: {"steps": 1 + max((t.step for t in episode.turns), default=-1)}),
        _share("steps", "plays"),
        shown="json",
    ),
    Column(
        "model_calls",
        "model calls",
        "Replies of models in the ok episodes.",
        _plays(lambda episode: {"calls": sum(len(turn.replies) for turn in episode.turns)}),
        lambda sums: sums["calls"],
        shown="json",
    ),
    Column(
        "truncated",
        "truncated",
        "Share of the ok episodes that a limit cut.",
        _plays(lambda episode: {"cut": episode.end.bootstraps}),
        _share("cut", "plays"),
        shown="json",
    ),
    Column(
        "illegal",
        "illegal",
        "Share of an agent's closed choices in which it named no legal string.",
        _turns(_illegal),
        _share("part", "all"),
        _percent,
        of="agent",
    ),
    Column(
        "malformed",
        "malformed calls",
        "Share of an agent's tool calls that could not be read.",
        _turns(_malformed),
        _share("part", "all"),
        _fault,
        of="agent",
    ),
    Column(
        "tool_calls",
        "tool calls",
        "An agent's tool calls, mean over the ok episodes in which it sat.",
        _tool_calls,
        _share("calls", "plays"),
        lambda calls: decimal(calls) if calls else "",
        of="agent",
        shown="page",
    ),
    Column(
        "cut",
        "cut sayings",
        "Turns of an agent in which `run.max_said` cut its text, of how many, and bytes cut.",
        _turns(_cut),
        _each("sayings", "of", "bytes"),
        _cut_text,
        of="agent",
    ),
    Column(
        "empty",
        "empty replies",
        "Replies of a policy in which nothing is said, failed episodes included.",
        _replies(lambda reply: {"replies": 1, "empty": reply.silent}),
        lambda sums: {**_each("replies", "empty")(sums), "share": _share("empty", "replies")(sums)},
        _empty_text,
        of="policy",
    ),
    Column(
        "served",
        "served",
        "What servers called the models that answered a policy, with their replies.",
        _replies(lambda reply: {reply.model: 1} if reply.model else {}),
        _by_count,
        _models,
        of="policy",
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
        _marked,
        lambda sums: sums["plays"],
        lambda plays: (
            f"{plays} plays went on after a mark such as ###STOP### beside a text, which was cut;"
            " to end there: agents.NAME.marks=anywhere"
        ),
        of="agent",
        optional=True,
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
        _turns(_tokens),
        _each("sampled", "prompt"),
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
