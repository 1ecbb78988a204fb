"""Tables of JSON records with a private layer of changes: read-only below, copy-on-write above.

Knows nothing of shops: a base is `{table: {key: record}}`, shared by any number of overlays, and
an overlay holds the text of the records it has changed. Reset drops that layer. The text of a
record is the truth; what a caller handed in is never kept by reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 200  # of a stored record; deeper than any real one, shallow enough for every reader
Slot = tuple[str, str]  # (table, key)
Tables = Mapping[str, Mapping[str, dict[str, Any]]]


def literal(value: Any) -> str:
    """The text that tau-bench hashes: objects as sorted tuples of pairs, lists as tuples,
    everything else by `repr`.

    >>> literal({"b": [1, 2.5], "a": {}})
    "(('a', ()), ('b', (1, 2.5)))"
    """
    return str(_frozen(value))


def _frozen(value: Any) -> Any:
    parts = []
    if isinstance(value, Mapping):
        # Sorted by key only; a key that is not text raises here as it does in the benchmark.
        for key in sorted(value):
            parts.append((key, _frozen(value[key])))
    elif isinstance(value, (list, tuple)):
        for item in value:
            parts.append(_frozen(item))
    # Sets have no order, so their elements are sorted once they are frozen.
    elif isinstance(value, (set, frozenset)):
        for item in value:
            parts.append(_frozen(item))
        parts.sort()
    else:
        return value
    return tuple(parts)


def tau1_hash(value: Any) -> str:
    """SHA-256 of `literal(value)`, in hex."""
    return hashlib.sha256(literal(value).encode()).hexdigest()


class Base:
    """Read-only tables with the texts that all overlays share. Texts are made when first needed."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._derived: dict[str, Any] = {}
        self._texts: dict[Slot, str] = {}
        self._literals: dict[Slot, str] = {}
        self._image = b""
        self._places: dict[Slot, tuple[int, int]] = {}
        self._digest = ""

    def text(self, slot: Slot) -> str:
        """The record as JSON text. Raises KeyError where there is none."""
        text = self._texts.get(slot)
        if text is None:
            # Made when asked for: an episode reads a few records out of thousands.
            text = self._texts[slot] = json.dumps(self.tables[slot[0]][slot[1]])
        return text

    def derived(self, name: str, function: Callable[[Tables], Any]) -> Any:
        """What `function` makes of the tables, made once: an index of fields that no tool ever
        writes."""
        if name not in self._derived:
            self._derived[name] = function(self.tables)
        return self._derived[name]

    def literal(self, slot: Slot) -> str:
        """The record as hash text."""
        text = self._literals.get(slot)
        if text is None:
            text = self._literals[slot] = literal(self.tables[slot[0]][slot[1]])
        return text

    def digest(self, changed: Mapping[Slot, str]) -> str:
        """Hash of all tables, with these records' hash texts in place of the base's own."""
        places = self._layout()
        # An untouched database has the base's own hash.
        if not changed:
            return self._digest
        view, sha, place = memoryview(self._image), hashlib.sha256(), 0
        # By place in the text. Only the changed records are written anew; the image is a few
        # megabytes.
        for (start, end), text in sorted((places[slot], text) for slot, text in changed.items()):
            sha.update(view[place:start])
            sha.update(text.encode())
            place = end
        sha.update(view[place:])
        return sha.hexdigest()

    def _layout(self) -> dict[Slot, tuple[int, int]]:
        # `_digest` is set last, and says that the layout stands.
        if self._digest:
            return self._places
        image, places = bytearray(b"("), {}
        for number, name in enumerate(sorted(self.tables)):
            table = self.tables[name]
            image += f"{', ' if number else ''}({name!r}, (".encode()
            for place, key in enumerate(sorted(table)):
                image += f"{', ' if place else ''}({key!r}, ".encode()
                start = len(image)
                image += literal(table[key]).encode()
                places[(name, key)] = (start, len(image))
                image += b")"
            # A tuple of one has a comma in Python's text, so the hash has it too.
            image += b",))" if len(table) == 1 else b"))"
        image += b",)" if len(self.tables) == 1 else b")"
        self._image, self._places = bytes(image), places
        self._digest = hashlib.sha256(self._image).hexdigest()
        return places


class Overlay:
    """One episode's view of a base."""

    __slots__ = ("_literals", "_records", "_texts", "base", "notes")

    def __init__(self, base: Base) -> None:
        self.base = base
        # what a write meant and its record cannot say; no part of any digest
        self.notes: dict[Slot, tuple[tuple[Any, ...], ...]] = {}
        self._texts: dict[Slot, str] = {}
        self._records: dict[Slot, dict[str, Any]] = {}
        self._literals: dict[Slot, str] = {}

    def has(self, table: str, key: Any) -> bool:
        """Whether the table has this key. Raises TypeError for a key that cannot be hashed, as a
        dict does."""
        # Raises for what cannot be hashed; the store turns that into the tool's error text.
        return key in self.base.tables[table]

    def text(self, table: str, key: str) -> str:
        """The record as JSON text."""
        # "" is never a record's text.
        return self._texts.get((table, key)) or self.base.text((table, key))

    def record(self, table: str, key: str) -> Mapping[str, Any]:
        """The record, for reading only."""
        slot = (table, key)
        if slot not in self._texts:
            return self.base.tables[table][key]
        # Parsed once per change; readers share it and must not write.
        if slot not in self._records:
            self._records[slot] = json.loads(self._texts[slot])
        return self._records[slot]

    def draft(self, table: str, key: str) -> dict[str, Any]:
        """A copy of the record, to be changed and committed."""
        return json.loads(self.text(table, key))

    def commit(self, drafts: Mapping[Slot, Any]) -> str:
        """Stores all drafts or none; gives the JSON text of the first. Raises what `json.dumps`
        raises, and RecursionError."""
        texts = {slot: json.dumps(draft) for slot, draft in drafts.items()}
        for slot, text in texts.items():
            # Counting brackets is cheap, and only a text with many is measured in depth.
            if text.count("[") + text.count("{") > MAX_DEPTH and _depth(drafts[slot]) > MAX_DEPTH:
                raise RecursionError(
                    "maximum recursion depth exceeded while encoding a JSON object"
                )
        for slot in texts:
            # What was parsed or frozen is of the text before.
            self._records.pop(slot, None)
            self._literals.pop(slot, None)
        self._texts.update(texts)
        return next(iter(texts.values()))

    def reset(self) -> None:
        """Back to the base."""
        self._texts, self._records, self._literals, self.notes = {}, {}, {}, {}

    def copy(self) -> Overlay:
        """A second overlay with the same changes; later ones are not shared."""
        twin = type(self)(self.base)
        twin._texts, twin._records, twin._literals = (
            dict(self._texts),
            dict(self._records),
            dict(self._literals),
        )
        twin.notes = dict(self.notes)
        return twin

    def touched(self) -> list[Slot]:
        """The records that were written, in order of their first writing."""
        return list(self._texts)

    def literal(self, slot: Slot) -> str:
        """The record as hash text."""
        if slot not in self._texts:
            return self.base.literal(slot)
        if slot not in self._literals:
            self._literals[slot] = literal(json.loads(self._texts[slot]))
        return self._literals[slot]

    def digest(self) -> str:
        """tau-bench's hash of the whole database."""
        return self.base.digest({slot: self.literal(slot) for slot in self._texts})

    def equals(self, other: Overlay) -> bool:
        """Whether both would have the same digest; only touched records are looked at. Both must
        stand on one base."""
        slots = {**self._texts, **other._texts}
        return all(self.literal(slot) == other.literal(slot) for slot in slots)


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        item, level = stack.pop()
        if isinstance(item, (dict, list, tuple)):
            deepest = max(deepest, level)
            stack += [
                (child, level + 1) for child in (item.values() if isinstance(item, dict) else item)
            ]
    return deepest
