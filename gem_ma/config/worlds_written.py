"""The short forms of `scenarios:`: a list, an id in place of a block, a number in place of a name.
Written out as name -> block, so that all that follows knows one form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from gem_ma.config.document import Document, Keys, Place, section
from gem_ma.config.seating import is_partial, is_pattern, key_of

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
    # a whole `scenario`, or another id for all, is no setting of each
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
