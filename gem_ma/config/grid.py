"""The axes of a study -> one document per cell. A cell replaces the whole value at each axis;
nothing is merged.

Knows documents and places, so that a fault inside a cell's value is told with the line where
that value stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from gem_ma.config.document import Document, Keys, Place, dotted, parted
from gem_ma.config.schema import validate
from gem_ma.config.seats import fits, give_own_seat, placed_keys
from gem_ma.config.settings import (
    Config,
    FocalSettings,
    MixSettings,
    StudySections,
    TournamentSettings,
)
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest

SECTIONS = tuple(StudySections.model_fields)
# each is a run folder, checked before the first is played; more is a slip of the hand
MAX_CELLS = 500
Names = tuple[str, ...]  # of a cell, one per axis
# the one axis of a grid that is a whole section: its cells set several seats together
SEATS: Keys = ("agents",)
# so do those of these designs, whose axes are names instead of paths
MIX: Keys = ("mix",)
FOCAL: Keys = ("focal",)
BACKGROUND: Keys = ("background",)
PLAYER: Keys = ("player",)
OPPONENT: Keys = ("opponent",)
SHARED_OUT = (MIX, FOCAL, BACKGROUND, PLAYER, OPPONENT)
OF_SEATS = (SEATS, *SHARED_OUT)
DESIGNS = ("grid", "cross_play", "mix", "focal", "tournament")
# side -> the agents that it takes; who is alike has one return
Sides = Mapping[str, Sequence[str]]
Agents = Callable[[Document], Sequence[str]]  # those of a document's scenario, its faults noted


@dataclass(frozen=True, slots=True)
class Grid:
    """Axis -> name -> value. `reference` is the cell that all others are compared with."""

    sections: StudySections
    values: dict[Keys, dict[str, Document]]
    reference: Names
    sides: Mapping[Names, Sides] = field(default_factory=dict)  # by cell; {} of other designs

    def axes(self) -> dict[str, Names]:
        """Dotted path -> names, in the order written."""
        return {dotted(axis): tuple(values) for axis, values in self.values.items()}

    def cells(self) -> Iterator[Names]:
        """Every combination of names; the last axis changes first. Nobody plays a tournament
        against itself."""
        cells = itertools.product(*self.values.values())
        return (names for names in cells if PLAYER not in self.values or names[0] != names[1])

    def filled(self, document: Document, names: Names) -> Document:
        """A copy of the document with this cell's value at every axis."""
        # deep, since filling in the short forms of one cell changes its values in place
        copy = Document(deepcopy(document.value), dict(document.places), list(document.faults))
        copy.copied |= document.copied
        for (axis, values), name in zip(self.values.items(), names, strict=True):
            for path, value in _replaced(axis, values[name]):
                # as an override: `scenarios.0.size`, or `scenario.size` of all of several
                for keys in list(placed_keys(copy, path)):
                    give_own_seat(copy, keys)
                    copy.put(keys, Document(deepcopy(value.value), dict(value.places)))
                    copy.cell.add(keys)
        if self.sections.study.repeats is not None:
            place: dict[Keys, Place] = {(): copy.place(("run",))}
            copy.put(("run", "episodes_per_task"), Document(self.sections.study.repeats, place))
        return copy


def _replaced(axis: Keys, value: Document) -> list[tuple[Keys, Document]]:
    """What a cell replaces: the value at the axis; on an axis of seats the seats that it names."""
    if axis not in OF_SEATS or not isinstance(value.value, dict):
        return [(axis, value)]
    seats = []
    for agent, seat in value.value.items():
        places = {path[1:]: place for path, place in value.places.items() if path[:1] == (agent,)}
        # a document always knows the place of its root
        places.setdefault((), value.place(()))
        seats.append(((*SEATS, agent), Document(seat, places)))
    return seats


def take_grid(document: Document, agents: Agents) -> Grid | None:
    """Takes the sections of a study out of a document; None where it has none. Raises
    ConfigError where they are wrong."""
    if not any(section in document.value for section in SECTIONS):
        return None
    if not isinstance(document.value, dict) or not document.value.keys() & {"study", *DESIGNS}:
        return None  # a lone `report:` is an unknown key, and told so
    parts = Document(
        {key: document.value.pop(key) for key in SECTIONS if key in document.value},
        {path: place for path, place in document.places.items() if not path or path[0] in SECTIONS},
    )
    document.places = {
        path: place
        for path, place in document.places.items()
        if not path or path[0] not in SECTIONS
    }
    sections = validate(parts, StudySections)
    if sections is None:
        document.faults += parts.faults
        document.refuse()
        # unreachable while every refusal of the schema makes a fault
        raise ConfigError(f"{document.place(())}: the study is not valid")
    values, sides = _axes(parts, sections, document, agents)
    for axis in values:
        _check_axis(parts, axis, values, document)
    # counted before any is made: a slip of the hand may ask for millions
    cells = 1
    for named in values.values():
        cells *= len(named)
    if cells > MAX_CELLS:
        parts.fault(("grid",), f"{cells} cells; a study has at most {MAX_CELLS}")
    reference = _reference(parts, sections, values)
    document.faults += parts.faults
    if parts.faults:
        # at once: cells of a wrong grid would repeat the faults, each in its own words
        document.refuse()
    return Grid(sections, values, reference, sides)


def _axes(
    parts: Document, sections: StudySections, document: Document, agents: Agents
) -> tuple[dict[Keys, dict[str, Document]], Mapping[Names, Sides]]:
    """The values of each axis, and who takes which seats in each cell."""
    named = [name for name in DESIGNS if getattr(sections, name)]
    if len(named) > 1:
        parts.fault(
            (named[-1],),
            f"a study has a {named[0]} or a {named[-1]}, not both; an axis of a grid may be a seat"
            " (agents.X)",
        )
    design = sections.study.design or (named[-1] if named else "grid")
    if design in ("mix", "focal", "tournament"):
        settings = getattr(sections, design)
        if settings is None:
            parts.fault(("study", "design"), f"no section `{design}:`")
            return {}, {}
        seats = _alike(parts, design, settings, document, agents)
        if not seats:
            return {}, {}
        if isinstance(settings, MixSettings):
            return _mixed(parts, seats)
        return _in_two(parts, settings, seats)
    if design == "cross_play":
        if sections.cross_play is None:
            parts.fault(("study", "design"), "no section `cross_play:`")
            return {}, {}
        above: Keys = ("cross_play", "population")
        axes: dict[Keys, dict[str, Document]] = {
            ("agents", agent): _values(parts, (*above, agent))
            for agent in sections.cross_play.population
        }
    else:
        above = ("grid",)
        axes = {_path(axis): _values(parts, ("grid", axis)) for axis in sections.grid}
    if not axes:
        parts.fault(above, "names no axis; the study would be a single run")
    return axes, {}


def _path(axis: str) -> Keys:
    """The keys of a dotted path; a name with a dot stands in quotes, as in an override."""
    return parted(axis)[0] if '"' in axis else tuple(axis.split("."))


def _alike(
    parts: Document,
    design: str,
    settings: MixSettings | FocalSettings | TournamentSettings,
    document: Document,
    agents: Agents,
) -> list[str]:
    """The agents whose seats are shared out, in the scenario's order; [] after adding a fault."""
    if document.get("scenarios"):
        parts.fault((design,), "shares out the seats of one scenario; this config has several")
        return []
    everybody = agents(document)
    if not everybody:  # the scenario is at fault, and told so
        return []
    for place, name in enumerate(settings.seats):
        if not any(fits(agent, name) for agent in everybody):
            where: Keys = (design, "seats", place)
            parts.fault(where, f"no agent has this name{nearest(name, everybody)}")
            return []
    seats = [agent for agent in everybody if any(fits(agent, name) for name in settings.seats)]
    if len(seats) < 2:
        parts.fault((design,), f"wants two seats or more to share out; there is {len(seats)}")
        return []
    for side in _values(parts, ("mix", "players")) if design == "mix" else SIDES[design]:
        if side in everybody:  # both would have the score `return X`
            parts.fault((design,), f"an agent is called {side!r}, too; take another name")
            return []
    return seats


SIDES = {"focal": ("focal", "background"), "tournament": ("player", "opponent")}


def _mixed(
    parts: Document, seats: Sequence[str]
) -> tuple[dict[Keys, dict[str, Document]], Mapping[Names, Sides]]:
    """One axis of N + 1 cells: the first player takes the first k seats, the other the rest."""
    players = _values(parts, ("mix", "players"))
    if len(players) != 2:
        parts.fault(("mix", "players"), f"wants two players; got {len(players)}")
        return {}, {}
    (first, one), (second, other) = players.items()
    cells: dict[str, Document] = {}
    sides: dict[Names, Sides] = {}
    for count in range(len(seats) + 1):
        name = f"{count} {first} + {len(seats) - count} {second}"
        cells[name] = _seated({agent: one if n < count else other for n, agent in enumerate(seats)})
        sides[name,] = {first: seats[:count], second: seats[count:]}
    return {MIX: cells}, sides


def _in_two(
    parts: Document, settings: FocalSettings | TournamentSettings, seats: Sequence[str]
) -> tuple[dict[Keys, dict[str, Document]], Mapping[Names, Sides]]:
    """Two axes: who takes the first seats, and who all others."""
    if isinstance(settings, TournamentSettings):
        count, sides = len(seats) // 2, SIDES["tournament"]
        named = dict.fromkeys(sides, _values(parts, ("tournament", "players")))
        if len(named[sides[0]]) < 2:
            parts.fault(("tournament", "players"), "wants two players or more; there is one")
            return {}, {}
    else:
        count, sides = settings.visitors, SIDES["focal"]
        named = {side: _values(parts, ("focal", side)) for side in sides}
    if count >= len(seats):
        parts.fault(
            ("focal", "visitors"), f"leaves no seat of {len(seats)} to the background; got {count}"
        )
        return {}, {}
    shared = dict(zip(sides, (seats[:count], seats[count:]), strict=True))
    axes: dict[Keys, dict[str, Document]] = {
        (side,): {
            name: _seated(dict.fromkeys(shared[side], value)) for name, value in values.items()
        }
        for side, values in named.items()
    }
    names = itertools.product(*axes.values())
    return axes, dict.fromkeys(names, shared)


def _seated(seats: Mapping[str, Document]) -> Document:
    """A value of an axis of seats: each agent with its seat, and where that is written."""
    places = {
        (agent, *path): place
        for agent, seat in seats.items()
        for path, place in seat.places.items()
    }
    first = next(iter(seats.values()))
    return Document(
        {agent: seat.value for agent, seat in seats.items()}, {(): first.place(()), **places}
    )


def _values(parts: Document, path: Keys) -> dict[str, Document]:
    """Name -> value of one axis. A list stands for its items, each named after itself."""
    cells = parts.get(*path)
    if not cells:
        parts.fault(path, "names no cell")
        return {}
    named: dict[str, Document] = {}
    for key in range(len(cells)) if isinstance(cells, list) else cells:
        value = cells[key]
        where = (*path, key)
        if isinstance(cells, list) and isinstance(value, (dict, list)):
            parts.fault(where, "a cell of several keys wants a name: {name: {...}}")
            continue
        name = str(key) if isinstance(cells, dict) else _yaml_word(value)
        if name in named:
            parts.fault(where, f"the cell {name!r} stands there twice")
        named[name] = parts.part(where)
    return named


def _yaml_word(value: object) -> str:
    """A scalar as YAML writes it, so that the name of a cell can be typed again."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_axis(
    parts: Document, axis: Keys, values: dict[Keys, dict[str, Document]], document: Document
) -> None:
    written: Keys = ("grid", dotted(axis))
    if parts.get("cross_play") is not None:
        written = ("cross_play", "population", axis[-1])
    elif axis in SHARED_OUT:
        design = {MIX: "mix", PLAYER: "tournament", OPPONENT: "tournament"}.get(axis)
        written = (design, "players") if design else ("focal", axis[-1])
    sections = [name for name in Config.model_fields if name != "train"]
    if axis in SHARED_OUT:
        pass  # its seats are the scenario's own agents
    elif axis[0] not in sections:
        parts.fault(
            written,
            "an axis is a dotted path into a section of the"
            f" config{nearest(str(axis[0]), sections)}",
        )
    elif axis == SEATS and not all(
        isinstance(value.value, dict) and value.value for value in values[axis].values()
    ):
        parts.fault(
            written, "a cell of the axis `agents` names seats: {name: {agent: behaviour, ...}}"
        )
    elif (len(axis) < 2 and axis != SEATS) or not all(axis):
        parts.fault(
            written,
            "an axis is a dotted path such as agents.X, policies.X or scenario.option,"
            " or `agents` for several seats together",
        )
    # one of the two would undo the other, whichever comes last
    if any(other != axis and axis[: len(other)] == other for other in values):
        parts.fault(
            written, "another axis replaces the section that holds this one; leave one of them out"
        )
    for path in dict.fromkeys(
        path for value in values[axis].values() for path, _ in _replaced(axis, value)
    ):
        place = document.place(path)
        # what is typed is meant to hold, and the axis would replace it without a word
        if path in document.places and not place.line:  # line 0: it was typed
            what = "this in every cell" if path == axis else dotted(path)
            parts.fault(
                written, f"the axis sets {what}, and so does the {place.file}; leave one out"
            )


def _reference(
    parts: Document, sections: StudySections, values: dict[Keys, dict[str, Document]]
) -> Names:
    axes: dict[str, list[str]] = {dotted(axis): list(named) for axis, named in values.items()}
    short: dict[str, list[str]] = {}
    for axis in axes:
        # the last part is enough where only one axis ends so
        short.setdefault(parted(axis)[0][-1], []).append(axis)
    chosen: dict[str, str] = {}
    for key, value in sections.study.reference.items():
        name = _yaml_word(value)
        where: Keys = ("study", "reference", key)
        meant = key if key in axes else None
        if meant is None and len(short.get(key, ())) == 1:
            meant = short[key][0]
        if meant is None:
            parts.fault(where, f"no axis has this name{nearest(key, axes)}")
        elif name not in axes[meant]:
            parts.fault(where, f"no cell of {meant} is called {name!r}{nearest(name, axes[meant])}")
        else:
            chosen[meant] = name
    if PLAYER in values:
        player = chosen.setdefault("player", next(iter(values[PLAYER])))
        chosen.setdefault("opponent", next(name for name in values[OPPONENT] if name != player))
        if chosen["opponent"] == player:
            parts.fault(("study", "reference"), f"{player!r} does not play against itself")
    return tuple(chosen.get(axis, names[0] if names else "") for axis, names in axes.items())
