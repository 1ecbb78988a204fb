"""What a summary, a list and a filter need of a play, as one row: its id, how it ended and came
out, what it was paid, what its turns add to the columns. Made while the play is in memory.

A row holds plain values and is written as JSON (`gem_ma.runs.store.index`), so that whoever comes
later reads no play for them. A row of a line that nobody has read yet has its id and its end alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec

from gem_ma.kernel.episode import End, Episode
from gem_ma.scores.columns import Tally, Used, tally_of, usages_of
from gem_ma.scores.groups import (
    Id,
    Labels,
    Measures,
    is_sampled,
    labels_if_any,
    labels_of,
    returns_of,
    same_play,
    values_of,
)
from gem_ma.scores.together import Group, Groups, alike, groups_of, together, won

Success = Callable[[Episode], bool | None]
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
