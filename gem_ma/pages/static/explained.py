"""Why a play came out so, as pages and `gem-ma show` tell it: what the scenario says lost it, and
what `gem-ma explain` found by forks and keeps in explained.jsonl.

That file may be anybody's: a line is read strictly, and a damaged one is told and passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ScenarioError, StoreError
from gem_ma.pages.static.notes import EXPLAINED, read_rows
from gem_ma.scores.groups import Id, interval_text
from gem_ma.scores.judge import Faults, fault_of
from gem_ma.scores.rows import line_digest

GIVEN = {"state": "as it lay", "view": "as the agent could know"}
MOST_AGENTS = 8  # columns of a table
MANY_HEADS = ["for itself", "for whom most", ""]  # of a message that more agents felt
MOST_ROWS = 400  # as many as a page has turns
MOST_TEXT = 300  # letters of a sentence


class Estimate(msgspec.Struct):
    """A mean with its 95 % interval; None where nothing could be measured."""

    mean: float | None
    low: float | None
    high: float | None

    @property
    def is_known(self) -> bool:
        """Whether there is a finite number, with its bounds."""
        numbers = (self.mean, self.low, self.high)
        return all(number is not None and math.isfinite(number) for number in numbers)

    @property
    def is_sure(self) -> bool:
        """Whether its interval does not hold 0."""
        return self.is_known and not (self.low or 0.0) <= 0 <= (self.high or 0.0)

    @property
    def text(self) -> str:
        """The number as a person reads it; that nothing tells it from 0 is said, not shown by a
        colour alone."""
        if not self.is_known:
            return "no value"
        if self.low == self.high == 0:
            return "0, no difference seen"
        words = interval_text({"mean": self.mean, "low": self.low, "high": self.high})
        return words + ("" if self.is_sure else ", may be 0")


class Turned(Estimate):
    """The value of a turn."""

    step: int
    agent: str


class Said(msgspec.Struct):
    """What a message changed for each agent."""

    step: int
    agent: str
    values: dict[str, Estimate]


class Tried(msgspec.Struct):
    step: int
    won: int
    plays: int


class Act(msgspec.Struct):
    step: int
    agent: str
    text: str


class Decisive(msgspec.Struct):
    """From which turn on another behaviour still wins, the turns that were tried, the last one
    first, and what was done from there on in a fork that was won."""

    agent: str
    step: int | None
    tried: list[Tried]
    fork: list[Act] = []


class _Found(msgspec.Struct):
    episode: Id
    given: Literal["state", "view"]
    against: str | None = None
    instead: str | None = None
    acts: str | None = None  # as `acts_of` has them; an older line has none


class Turns(_Found, tag_field="what", tag="turns", kw_only=True):
    values: list[Turned]
    decisive: Decisive | None = None


class Messages(_Found, tag_field="what", tag="messages", kw_only=True):
    values: list[Said]


class Agents(_Found, tag_field="what", tag="agents", kw_only=True):
    """`whose` return is shared out: an agent's or a team's, else the mean of all."""

    values: dict[str, Estimate]
    whose: str | None = None


Found = Turns | Messages | Agents


class Reason(NamedTuple):
    """A sentence on a lost play: `head` leads to the step, and `mark` stands at its card, with the
    acts of a `fork` (step, agent, text) that shows it."""

    step: int | None
    agent: str
    head: str
    rest: str
    mark: str
    fork: Sequence[tuple[str, str, str]] = ()

    @property
    def sentence(self) -> str:
        return self.head + self.rest


def acts_of(episode: Episode) -> str:
    """What tells a play from another attempt at it: a digest of its acts."""
    acts = [(turn.step, turn.agent, turn.action) for turn in episode.turns]
    return line_digest(json.dumps(acts, default=asdict).encode())


def of_play(episode: Episode, rows: Iterable[Found]) -> list[Found]:
    """Those that were found of this very play, and of no attempt that it came after."""
    acts = acts_of(episode) if rows else None
    return [row for row in rows if row.acts in (None, acts)]


def read_explained(folder: Path, warn: Callable[[str], None]) -> dict[Id, list[Found]]:
    """What was found of the plays of a run folder, by their ids; `warn` is told of damage."""
    found: dict[Id, list[Found]] = {}
    for row in read_rows(folder / EXPLAINED, _of_row, warn):
        found.setdefault(row.episode, []).append(row)
    return found


def _of_row(row: Any) -> Found:
    try:
        made: Found = msgspec.convert(row, Found)
    except (msgspec.ValidationError, OverflowError) as error:
        raise StoreError(f"it is nothing that gem-ma explain found ({error})") from None
    return made


# -- sentences -------------------------------------------------------------------------------------


def reasons(episode: Episode, faults: Faults | None, rows: Iterable[Found]) -> list[Reason]:
    """Why a lost play was lost: by the rules, and by the turn that decided. What the rules cannot
    say any more is told."""
    found = []
    try:
        fault = fault_of(episode, faults)
        if fault is not None:
            at = "" if fault.step is None else f" at step {fault.step}"
            why = f": {_cut(fault.why)}"
            found.append(Reason(fault.step, fault.agent, f"lost{at}", why, f"lost here{why}"))
    except ScenarioError as error:
        words = str(error).splitlines()[0]
        found.append(Reason(None, "", "lost", f"; why is not told: {_cut(words)}", ""))
    rows = of_play(episode, rows)
    decided = [row for row in rows if isinstance(row, Turns) and row.decisive and row.against]
    for row in decided[-1:]:
        assert row.decisive is not None
        head, rest = decided_at(row.decisive, str(row.against))
        fork = [(str(a.step), _cut(a.agent), _cut(a.text)) for a in row.decisive.fork[:MOST_ROWS]]
        found.append(
            Reason(row.decisive.step, row.decisive.agent, head, rest, f"decided here{rest}", fork)
        )
    return found


def decided_at(decisive: Decisive, better: str) -> tuple[str, str]:
    """The decisive turn in a sentence: where it is, and what shows it."""
    agent = _cut(decisive.agent)
    better = _cut(better)
    if decisive.step is None or not decisive.tried:
        return f"from no turn of {agent} on does {better} still win", ""
    last = decisive.tried[-1]
    rest = (
        f": with {better} in place of {agent} from there on {last.won} of {last.plays} are still"
        " won"
    )
    if len(decisive.tried) > 1:
        after = decisive.tried[-2]
        rest += f", from step {after.step} on {after.won} of {after.plays}"
    return f"decided at step {decisive.step}", rest


# -- for the page ----------------------------------------------------------------------------------


def why_of(episode: Episode, is_lost: bool, faults: Faults | None, rows: Sequence[Found]) -> Any:
    """What the page's scripts take of it, as plain JSON: `why` (reasons), `values` (conditions with
    a bar for each act) and `tables` (messages, agents); a key only where there is something."""
    why = reasons(episode, faults, rows) if is_lost else []
    conditions: dict[str, dict[tuple[int, str], Turned]] = {}
    said: dict[str, dict[tuple[int, str], Said]] = {}
    tables: dict[str, Any] = {}
    for row in of_play(episode, rows):
        # asked again, the last answer counts
        if isinstance(row, Turns):
            known = conditions.setdefault(_condition(row), {})
            known |= {(value.step, value.agent): value for value in row.values[:MOST_ROWS]}
        elif isinstance(row, Messages):
            caption = f"messages, {_condition(row)}; 95 % intervals"
            heard = said.setdefault(caption, {})
            heard |= {(one.step, one.agent): one for one in row.values}
            tables[caption] = _said(sorted(heard.values(), key=lambda one: one.step))
        else:
            whose = f", of the return of {_cut(row.whose)}" if row.whose else ""
            tables[f"agents, {_condition(row)}{whose}; 95 % intervals"] = _shares(row)
    made = {
        "why": [reason._asdict() for reason in why],
        "values": [{"name": name, "turns": _bars(known)} for name, known in conditions.items()],
        "tables": [{"caption": caption, **table} for caption, table in tables.items()],
    }
    return {key: value for key, value in made.items() if value}


def _condition(row: Found) -> str:
    other = f"{_cut(row.against)} instead" if row.against else f"against {_cut(row.instead or '')}"
    return GIVEN[row.given] + (f", {other}" if row.against or row.instead else "")


def _bars(known: Mapping[tuple[int, str], Turned]) -> list[dict[str, Any]]:
    """`low mean high` lie in -1..1, of the widest interval of all."""
    whole = [value for value in known.values() if value.is_known]
    numbers = [abs(number) for one in whole for number in (one.low, one.mean, one.high) if number]
    widest = max(numbers, default=1.0)

    def place(value: Turned) -> list[float]:
        places = (value.low or 0.0, value.mean or 0.0, value.high or 0.0)
        return [round(number / widest, 4) for number in places]

    return [
        {
            "step": value.step,
            "agent": _cut(value.agent),
            "text": value.text,
            "sure": value.is_sure,
            "bar": place(value) if value.is_known else None,
        }
        for value in known.values()
    ]


def _said(messages: Sequence[Said]) -> dict[str, Any]:
    agents = list(dict.fromkeys(agent for one in messages for agent in one.values))
    is_many = len(agents) > MOST_AGENTS
    rows = []
    for one in messages[:MOST_ROWS]:
        told = {agent: value.text for agent, value in one.values.items()}
        felt = [told.get(agent, "") for agent in agents]
        if is_many:  # the first ones need not be those who felt it
            most = whom_most(one.agent, {agent: value.mean for agent, value in one.values.items()})
            felt = [told.get(one.agent, ""), _cut(most), told.get(most, "")]
        rows.append([str(one.step), _cut(one.agent), *felt])
    heads = MANY_HEADS if is_many else [f"for {_cut(agent)}" for agent in agents]
    return {"columns": ["step", "agent", *heads], "rows": rows}


def whom_most(speaker: str, means: Mapping[str, float | None]) -> str:
    """For whom of the others a message did most; "" where there are none."""
    others = [agent for agent in means if agent != speaker]
    return max(others, key=lambda agent: abs(means[agent] or 0.0), default="")


def _shares(row: Agents) -> dict[str, Any]:
    shares = list(row.values.items())[:MOST_ROWS]
    return {"columns": ["agent", "share"], "rows": [[_cut(name), one.text] for name, one in shares]}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."
