"""What a summary, a list and a filter need of a play, as one row: its id, how it ended and came
out, what it was paid, what its turns add to the columns. Made while the play is in memory.

A row holds plain values and is written as JSON (`gem_ma.runs.store.index`), so that whoever comes
later reads no play for them. A row of a line that nobody has read yet has its id and its end alone.
A summary of `gem_ma.scores.metrics` as rows of text knows no play; one of an older version is
printed too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeVar

import msgspec

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.columns import Tally, Used, column_rows, tally_of, usages_of
from gem_ma.scores.groups import (
    ONE_PLAY,
    RETURN,
    Id,
    Labels,
    Measures,
    Success,
    group_rows,
    interval_text,
    is_sampled,
    labels_if_any,
    labels_of,
    returns_of,
    same_play,
    values_of,
)
from gem_ma.scores.together import (
    MOST_RETURNS,
    Group,
    Groups,
    alike,
    groups_of,
    shown,
    together,
    won,
)

Grouping = Callable[[Episode], Groups]
ENDS = {end.value: end for end in End}
UNSCORED = frozenset(end.value for end in End if not end.scored)
SUCCESS_ASKED = 1
MEASURES_ASKED = 2
LABELS_ASKED = 4
GROUPS_ASKED = 8
_NONE = msgspec.Raw(b"null")


def line_digest(line: bytes) -> str:
    """What tells a line of the record from another one."""
    return sha256(line).hexdigest()[:16]


class Head(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a row, for whoever wants to know which plays there are. `size` and `digest`
    are those of its line in the record; `end` is "" where the line holds no play."""

    size: int
    digest: str
    end: Literal[
        "",
        "terminated",
        "truncated",
        "max_steps",
        "max_turns",
        "max_tokens",
        "timeout",
        "context",
        "interrupted",
        "failed",
    ]
    task: str  # with its world
    seed: int
    repeat: int

    @property
    def id(self) -> Id:
        return self.task, self.seed, self.repeat

    @property
    def is_scored(self) -> bool:
        return self.end not in UNSCORED

    def is_of(self, line: bytes) -> bool:
        """Whether it is the row of this line."""
        return self.size == len(line) and self.digest == line_digest(line)


class Brief(Head, array_like=True, gc=False):
    """What a list shows: also how the play came out and what each agent was paid."""

    success: bool | None = None
    returns: dict[str, float] | None = None


class PlayRow(Brief, array_like=True, gc=False):
    """All of it. `asked`: which hooks of the judge have answered; `copy`: whether the play is the
    first one of its world again, None where nobody has compared them."""

    asked: int = 0
    world: str = ""
    scenario: str = ""
    error: str | None = None
    copy: bool | None = None
    measures: dict[str, float] = msgspec.field(default_factory=dict)
    labels: dict[str, list[str]] = msgspec.field(default_factory=dict)
    tally: msgspec.Raw = _NONE  # a `Tally`
    usages: msgspec.Raw = _NONE  # agent -> its replies' counts
    groups: dict[str, Group] = msgspec.field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether its play was read, and not its line alone."""
        return self.returns is not None

    def whose(self, name: str) -> str:
        """An agent, a group or a measure, with its world."""
        return f"{self.world} {name}" if self.world else name

    def all_groups(self) -> dict[str, Group]:
        """Its groups, and those of agents that are called alike where there are many."""
        return self.groups | alike(self.returns or {})

    def together(self) -> dict[str, float]:
        """Welfare and equality, but for those that the scenario measures itself."""
        built_in = together(self.returns or {})
        return {name: value for name, value in built_in.items() if name not in self.measures}

    def won(self) -> dict[str, float]:
        """Team -> its share of the first place."""
        return won(self.groups)


Kind = TypeVar("Kind", bound=Head)
_ENCODER = msgspec.json.Encoder()
_TALLIES = msgspec.json.Decoder(Tally)
_USAGES = msgspec.json.Decoder(dict[str, list[Used]] | None)


def tally_in(row: PlayRow) -> Tally:
    """What the play adds to the columns."""
    return _TALLIES.decode(row.tally)


def usages_in(row: PlayRow) -> dict[str, list[Used]]:
    """Agent -> what each of its replies used."""
    return _USAGES.decode(row.usages) or {}


class Rows:
    """Makes the rows of plays, in the order of their file.

    `strict`: what a hook raises, and returns that are not finite, are raised; otherwise the row
    says that it was not asked, and whoever sums up asks again. `compares`: each play with the first
    one of its world.
    """

    def __init__(
        self,
        success: Success | None = None,
        measures: Measures | None = None,
        labels: Labels | None = None,
        *,
        groups: Grouping | None = None,
        strict: bool = False,
        compares: bool = True,
    ) -> None:
        self.success = success
        self.measures = measures
        self.labels = labels
        self.groups = groups
        self.strict = strict
        self.compares = compares
        # world -> its first play; None where that tells no more
        self.first: dict[str, Episode | None] = {}

    def of(self, episode: Episode) -> PlayRow:
        """The row of an episode, less its place in a file. Raises ScenarioError, and whatever the
        hooks raise, where it is strict."""
        row = PlayRow(0, "", episode.end.value, *episode.id)
        row.world = episode.world
        row.scenario = episode.scenario
        row.error = episode.error
        row.copy = self.is_copy(episode)
        self._judge(row, episode)
        row.tally = msgspec.Raw(_ENCODER.encode(tally_of(episode)))
        if usages := usages_of(episode):
            row.usages = msgspec.Raw(_ENCODER.encode(usages))
        return row

    def suffices(self, row: PlayRow) -> bool:
        """Whether the row has what this judge would say."""
        return row.is_whole and not self._wanted(row.end) & ~row.asked

    def _wanted(self, end: str) -> int:
        hooks = (
            (self.success, SUCCESS_ASKED),
            (self.measures, MEASURES_ASKED),
            (self.groups, GROUPS_ASKED),
        )
        wanted = sum(bit for hook, bit in hooks if hook is not None and end not in UNSCORED)
        has_labels = self.labels is not None and end != End.INTERRUPTED.value
        return wanted + LABELS_ASKED * has_labels

    def _judge(self, row: PlayRow, episode: Episode) -> None:
        try:
            row.returns = returns_of(episode)
            if self.success is not None and row.is_scored:
                won = self.success(episode)
                row.success = None if won is None else bool(won)
                row.asked |= SUCCESS_ASKED
            if self.measures is not None and row.is_scored:
                row.measures = values_of(episode, self.measures)
                row.asked |= MEASURES_ASKED
            if self.labels is not None and episode.end is not End.INTERRUPTED:
                # a record that broke off may lack what the scenario reads
                ask = labels_of if row.is_scored else labels_if_any
                row.labels = {name: list(of) for name, of in ask(episode, self.labels).items()}
                row.asked |= LABELS_ASKED
            row.groups = dict((self.groups or groups_of)(episode))
            row.asked |= GROUPS_ASKED * (self.groups is not None)
        except Exception:
            if self.strict:
                raise

    def is_copy(self, episode: Episode) -> bool | None:
        """Whether the play is the first one of its world again; False of the first one where a
        policy has a seat, None where another was no copy."""
        if not self.compares:
            return None
        if episode.world not in self.first:
            is_sampled_here = is_sampled(episode)
            self.first[episode.world] = None if is_sampled_here else episode
            return not is_sampled_here
        first = self.first[episode.world]
        if first is None:
            return None
        if same_play(first, episode):
            return True
        self.first[episode.world] = None  # one is enough, and all of them would cost as much
        return False


def complete(
    rows: list[PlayRow], made: Rows, read: Callable[[Container[Id]], Iterable[Episode]]
) -> bool:
    """Puts whole rows in place of those that lack what this judge would say, and tells whether
    there were any; `read` gives the plays of some ids."""
    last = {row.id: number for number, row in enumerate(rows) if row.end}
    lacking = {id_: number for id_, number in last.items() if not made.suffices(rows[number])}
    # of some plays nobody can tell whether they are like the first
    made.compares = len(lacking) == len(rows)
    for episode in read(lacking) if lacking else ():
        old = rows[lacking[episode.id]]
        row = made.of(episode)
        row.size = old.size
        row.digest = old.digest
        rows[lacking[episode.id]] = row
    return bool(lacking)


def last_attempts(rows: Iterable[Kind]) -> list[Kind]:
    """The rows that count: of each id the last one, in their order; none of a damaged line."""
    listed = [row for row in rows if row.end]
    last = {row.id: number for number, row in enumerate(listed)}
    if len(last) == len(listed):
        return listed
    return [listed[number] for number in sorted(last.values())]


TextRow = tuple[str, str]


def table(summary: Mapping[str, Any]) -> list[TextRow]:
    """(what, value) rows of a summary for printing, the counts first."""
    return [
        *_score_rows(summary),
        *world_rows(summary),
        *baseline_rows(summary),
        *_pass_rows(summary),
        *group_rows(summary),
        *_return_rows(summary),
        # of all episodes, failed ones too, so that they sum to the count in the first row
        ("ends", ", ".join(f"{end} {n}" for end, n in summary["ends"].items()) or "none"),
        *column_rows(summary),
        *(("error", f"{count} x {text}") for text, count in summary["errors"].items()),
    ]


def _score_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """Counts and success. A mean over survivors never stands without the number of the lost."""
    retried = f" ({summary['retried']} with retried calls)" if summary["retried"] else ""
    counts = f"{summary['ok']} ok / {summary['failed']} failed / {summary['excluded']} excluded"
    yield "episodes", counts + retried
    success = summary["success"]
    score = summary["score"]
    # a scenario without a notion of success has its returns
    if success is None:
        return
    yield "success", interval_text(success) + _unjudged(success, summary["ok"])
    if summary["failed"] or summary["excluded"]:
        yield "success, failed = 0", _number(score["failed_as_zero"])
    if summary["excluded"]:
        bounds = f"{_number(score['lowest'])} / {_number(score['highest'])}"
        yield "success, excluded lost / won", bounds


def world_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """Counts and success of each world of a run of several."""
    for world, part in summary.get("worlds", {}).items():
        lost = f", {part['failed']} failed" * (part["failed"] > 0)
        lost += f", {part['excluded']} excluded" * (part["excluded"] > 0)
        played = f"{part['ok']} ok{lost}"
        # a world without a notion of success has its returns, further down
        if (success := part["success"]) is None:
            yield f"world {world}", played
        else:
            text = interval_text(success) + _unjudged(success, part["ok"])
            yield f"success {world}", f"{text}  ({played})"


def _unjudged(success: Mapping[str, Any], ok: int) -> str:
    """Of how many plays a success is, where that is not of all; copies of one are all judged."""
    judged = ok if success["method"] == ONE_PLAY else success["n"]
    return f" of {judged} judged, {ok - judged} cannot be" if judged < ok else ""


def baseline_rows(summary: Mapping[str, Any]) -> list[TextRow]:
    """A row for each baseline that was played beside a run; none where the summary has no
    `baselines`."""
    return [
        (f"baseline {name}", _baseline(baseline))
        for name, baseline in summary.get("baselines", {}).items()
    ]


def _baseline(baseline: Mapping[str, Any]) -> str:
    success = baseline["success"]
    ok = baseline["ok"]
    scores = {"": success}
    if success is None:
        returns = list(baseline["returns"].items())
        scores = {f"return {agent} ": interval for agent, interval in returns[:MOST_RETURNS]}
    text = ", ".join(what + interval_text(interval) for what, interval in scores.items())
    # a baseline always says of how many plays: they are fewer than those of the run
    text += f" of {ok}" if success is None else _unjudged(success, ok) or f" of {ok}"
    if baseline["failed"]:
        text += f", {baseline['failed']} failed"
    if baseline["tasks"] < baseline["of"]:
        text += f" ({baseline['tasks']} of {baseline['of']} tasks)"
    return text


def _pass_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    """pass^k. With k = 1 alone it only repeats the success, so it is printed only with the reason
    why more is missing."""
    intervals = _pass_intervals(summary)
    refused = _refused(summary)
    if len(intervals) > 1 or (intervals and refused):
        texts = (f"{k}: {interval_text(interval)}" for k, interval in enumerate(intervals, 1))
        yield "pass^k", "  ".join(texts) + refused


def _pass_intervals(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blank = {"low": None, "high": None}  # a summary of an older version has no intervals
    return list(
        summary.get("pass_hat_k_intervals")
        or [{"mean": value, **blank} for value in summary["pass_hat_k"]]
    )


def _refused(summary: Mapping[str, Any]) -> str:
    """Which k cannot be computed, where tasks differ in how often they were tried."""
    # an older summary says nothing of tries
    least, most = summary.get("tries") or (0, 0)
    return f"  (no k above {least}: not every task has more scored tries)" if most > least else ""


def _return_rows(summary: Mapping[str, Any]) -> Iterator[TextRow]:
    returns = summary["returns"]
    rows = column_rows(summary, ("score",))
    of_groups = [row for row in rows if row[0].startswith(RETURN)]
    yield from of_groups
    agents = shown([*returns], [what for what, _ in of_groups])
    for agent in (name for name in agents if name in returns):
        interval = returns[agent]
        yield f"return {agent}", interval_text(interval)
        # beside the mean, never instead of it
        if summary["failed"]:
            yield f"return {agent}, failed = 0", _number(interval["failed_as_zero"])
    if left := len(returns.keys() - set(agents)):
        yield "return of an agent", f"that of {left} is in summary.json"
    yield from (row for row in rows if row not in of_groups)


def _number(value: float | None) -> str:
    return decimal(value)
