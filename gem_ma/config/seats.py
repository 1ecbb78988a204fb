"""Which worlds a config plays and who sits where in each: short forms written out, and the seat of
each agent.

`scenarios:` may be a list, an id in place of a block, a number in place of a name; written out it
is name -> block, so that all that follows knows one form. `agents:` names agents, or patterns of
them, so that one policy sits in every scenario whatever its agents are called. A name goes before
patterns; of patterns the one with the most letters, so that the order in which they are written
means nothing. Two of as many letters with different seats are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from gem_ma.config.document import Document, Keys, Place, section

T = TypeVar("T")


def is_pattern(name: str) -> bool:
    """Whether a key of `agents:` stands for several agents."""
    return "*" in name or "?" in name


def is_partial(seat: Any) -> bool:
    """Whether the values of a seat say something of it, and not who plays there."""
    return isinstance(seat, dict) and not seat.keys() & {"behaviour", "policy", "model"}


def fits(agent: str, name: str) -> bool:
    """Whether a key of `agents:`, a name or a pattern, means this agent."""
    return agent == name or (is_pattern(name) and fnmatchcase(agent, name))


def key_of(agent: str, names: Iterable[str]) -> str | None:
    """The key that an agent is seated by; None where none fits.

    >>> key_of("player_0", ["*", "player_*", "player_1"])
    'player_*'
    """
    return next(iter(keys_of(agent, names)), None)


def keys_of(agent: str, names: Iterable[str]) -> list[str]:
    """All keys that fit an agent, the one that seats it first."""
    fitting = [name for name in names if fits(agent, name)]
    # ties by name: the digest of a config does not know in which order its keys stand
    return sorted(fitting, key=lambda name: (name != agent, -letters(name), name))


def letters(name: str) -> int:
    """How closely a pattern says whom it means."""
    return len(name.replace("*", ""))


def seats_of(agents: Sequence[str], *sections: Mapping[str, T]) -> dict[str, T]:
    """Agent -> its seat, from the first section that has one for it. An agent that none has is
    left out, and refused by the check of the config."""
    if len(sections) == 1 and not any(map(is_pattern, sections[0])):
        # in the order written, which is the order in which players change seats
        return {name: seat for name, seat in sections[0].items() if name in agents}
    seats = {}
    for agent in agents:
        for keys in sections:
            if (key := key_of(agent, keys)) is not None:
                seats[agent] = keys[key]
                break
    return seats


# of files, of names in the record and of dotted keys: so no dot, slash or space
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
SECTIONS: tuple[Keys, ...] = (("scenarios",), ("evaluate", "scenarios"))


def spell_worlds(document: Document) -> None:
    """Writes every list of scenarios as a mapping and every id as a block, and adds a fault for a
    name that is taken or that nobody could type."""
    for path in SECTIONS:
        value = document.get(*path)
        if value is None and path[-1] in section(document, *path[:-1]):
            document.get(*path[:-1]).pop(path[-1])  # typed to take it away
        if isinstance(value, list):
            _name_items(document, path, value)
        blocks = document.get(*path)
        for name, block in list(blocks.items()) if isinstance(blocks, dict) else ():
            where = (*path, name)
            if block is None or isinstance(block, str):
                place = document.place(where)
                written = {"id": name if block is None else block}
                document.put(where, Document(written, {(): place, ("id",): place}))
            # `kuhn_poker: {weight: 2}` is called what it is
            elif isinstance(block, dict) and "id" not in block:
                block["id"] = name
            if not _NAME.fullmatch(str(name)) and not any(
                fault.path == where for fault in document.faults
            ):
                document.fault(
                    where,
                    "the name of a scenario has letters, digits, _ and - only; write NAME: {id:"
                    f" {block.get('id') if isinstance(block, dict) else name}}}",
                )


def worlds(document: Document) -> dict[Keys, dict[str, Any]]:
    """The block of every scenario that the config names, by its place: those of exams too."""
    blocks: dict[Keys, dict[str, Any]] = {}
    if isinstance(document.get("scenario"), dict):
        blocks["scenario",] = document.get("scenario")
    for path in SECTIONS:
        for name, block in section(document, *path).items():
            if isinstance(block, dict):
                blocks[*path, name] = block
    return blocks


def seats(document: Document) -> Iterator[tuple[Keys, Any]]:
    """The place and the value of every seat: those of `agents:`, and those of one scenario of
    several."""
    for path in (("agents",), *((*world, "agents") for world in worlds(document) if world[1:])):
        for agent, value in section(document, *path).items():
            yield (*path, agent), value


def give_own_seat(document: Document, keys: Keys) -> None:
    """Where one key of an agent is set that a pattern seats: what its own seat leaves open becomes
    a copy of the pattern's."""
    # `agents` stands alone, or behind the name of a scenario
    depths = (1, *(len(path) + 2 for path in SECTIONS if keys[: len(path)] == path))
    depth = next((depth for depth in depths if keys[depth - 1 : depth] == ("agents",)), None)
    if depth is None or len(keys) < depth + 2:
        return
    name = str(keys[depth])
    section_of = keys[:depth]
    path: Keys = (*section_of, name)
    seat = document.get(*path)
    if is_pattern(name) or not (seat is None or is_partial(seat)):
        return
    for above in (section_of, ("agents",)):
        key = key_of(name, section(document, *above).keys() - {name})
        if key is not None and isinstance(document.get(*above, key), dict):
            part = document.part((*above, key))
            mine = document.part(path)
            values = {**deepcopy(part.value), **(seat or {})}
            document.put(
                path, Document(values, {**part.places, **mine.places} if seat else part.places)
            )
            document.copied.add((*above, key))
            return


def placed_keys(document: Document, keys: Keys) -> Iterator[Keys]:
    """The keys that an override means: `scenarios.0.size` is the first one's, and `scenario.size`,
    where there are several, that of each."""
    several = section(document, "scenarios")
    # a whole `scenario`, or another id for all, is not a setting of each
    is_setting = keys[0] == "scenario" and len(keys) > 1 and keys[1] != "id"
    if is_setting and several and document.get("scenario") is None:
        yield from (("scenarios", name, *keys[1:]) for name in several)
        return
    for path in SECTIONS:
        names = list(section(document, *path))
        (number, *rest) = keys[len(path) :] or ("",)
        is_place = str(number).isdecimal() and int(number) < len(names)
        if keys[: len(path)] == path and is_place:
            yield (*path, names[int(number)], *rest)
            return
    yield keys


def _name_items(document: Document, path: Keys, items: list[Any]) -> None:
    """A list of blocks as a mapping, each named by its `name`, else after its id."""
    named: dict[str, Any] = {}
    places: dict[Keys, Place] = {(): document.place(path)}
    for index, item in enumerate(items):
        where = (*path, index)
        block = {"id": item} if isinstance(item, str) else item
        if not isinstance(block, dict):
            document.fault(where, "wants a scenario: an id, or a block such as {id: kuhn_poker}")
            continue
        # ids of adapters and files hold what no name may
        short = re.sub(r"[^A-Za-z0-9_]+", "-", str(block.get("id", f"scenario_{index}"))).strip("-")
        name = block.pop("name", short)
        if name in named:
            document.fault(
                where, f"two scenarios are called {name!r}; give each a name of its own (name: ...)"
            )
            continue
        named[str(name)] = block
        for inner, place in document.places.items():
            if inner[: len(where)] == where:
                places[str(name), *inner[len(where) :]] = place
    document.put(path, Document(named, places))


def entries_in(value: Any, key: str) -> dict[str, Mapping[str, Any]]:
    """The mappings in a section; nothing of another shape, since the file may be a stranger's."""
    section = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(section, Mapping):
        return {}
    return {str(name): entry for name, entry in section.items() if isinstance(entry, Mapping)}


def seats_in(resolved: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The seats of a run: which scenario of several has it for itself ("" for all), agent, seat."""
    blocks = {"": resolved, **entries_in(resolved, "scenarios")}
    for world, block in blocks.items():
        for agent, seat in entries_in(block, "agents").items():
            yield world, agent, seat
