"""YAML text -> plain values, and the line of every key path; and back. Knows YAML's traps and
nothing about what the keys mean.

One pass over parser events: no recursion, no objects built by tags, no sharing. It departs from
PyYAML's `safe_load` on purpose:
  1. plain scalars follow the YAML 1.2 core schema: `no`, `on`, `12:30` and dates are text, `1e-5`
     is a float;
  2. keys are text as written (`on:` is "on", `1:` is "1");
  3. duplicate keys, numbers with leading zeros and non-finite numbers are faults;
  4. aliases, merge keys, tags and several documents are refused; so are depth above 50 and more
     than 256 KiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from gem_ma.errors import ConfigError

MAX_BYTES, MAX_DEPTH, MAX_DIGITS = 256 * 1024, 50, 100
Keys = tuple[str | int, ...]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SHOWN = 40  # faults of one config that are printed
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_OTHER_BASE = re.compile(r"0x[0-9a-fA-F_]+|0o[0-7_]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONSTANTS = {
    **dict.fromkeys(("null", "Null", "NULL", "~"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Place(NamedTuple):
    """Where a key was written; line 0 = no line, as on the command line."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Fault(NamedTuple):
    """One thing that is wrong: `file:line: key.path: what`."""

    place: Place
    path: Keys
    text: str

    def __str__(self) -> str:
        key = dotted(self.path)
        return f"{self.place}: {key}: {self.text}" if key else f"{self.place}: {self.text}"


def dotted(path: Keys) -> str:
    """A key path as it is typed in an override; indices in brackets, odd characters escaped."""
    parts = [
        (
            f"[{part}]"
            if isinstance(part, int)
            else f".{part if part.isprintable() and part else ascii(part)}"
        )
        for part in path
    ]
    return "".join(parts).lstrip(".") if parts else ""


def refuse(faults: Iterable[Fault], first: str = "") -> None:
    """Raises one ConfigError with a line for each of the first faults, those of the file `first`
    before others; does nothing where there is none."""
    found = list(dict.fromkeys(faults))
    files = {
        file: number
        for number, file in enumerate(
            dict.fromkeys([first, *(fault.place.file for fault in found)])
        )
    }
    found.sort(key=lambda fault: (files[fault.place.file], fault.place.line, fault.place.column))
    lines = list(dict.fromkeys(map(str, found)))
    if lines:
        raise ConfigError(
            "\n".join(
                [*lines[:SHOWN], *[f"and {len(lines) - SHOWN} more faults"] * (len(lines) > SHOWN)]
            )
        )


@dataclass(slots=True)
class Document:
    """Plain values (dict, list, str, int, float, bool, None), the place of every key path, and
    the faults met on the way."""

    value: Any
    places: dict[Keys, Place]
    faults: list[Fault] = field(default_factory=list)

    def place(self, path: Keys) -> Place:
        """Where this path was written, or the nearest thing above it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places[path]

    def fault(self, path: Keys, text: str) -> None:
        self.faults.append(Fault(self.place(path), path, text))

    def refuse(self) -> None:
        """Raises one ConfigError where there are faults."""
        refuse(self.faults, self.places[()].file)

    def get(self, *path: str | int) -> Any:
        """The value at a path, None where there is none."""
        value: Any = self.value
        for part in path:
            inside = (
                part in value
                if isinstance(value, dict)
                else isinstance(value, list) and isinstance(part, int) and part < len(value)
            )
            if not inside:
                return None
            value = value[part]
        return value

    def put(self, path: Keys, given: Document) -> None:
        """Replaces the whole value at a path, making mappings on the way; a way through a list
        or a scalar is a fault."""
        target = self.value
        for depth, part in enumerate(path[:-1], start=1):
            if target.get(part) is None:
                target[part] = {}
                self.places[path[:depth]] = given.places[()]
            target = target[part]
            if not isinstance(target, dict):
                self.faults.append(
                    Fault(given.places[()], path[:depth], "holds no keys here; replace it whole")
                )
                return
        target[path[-1]] = given.value
        for old in [old for old in self.places if old[: len(path)] == path]:
            del self.places[old]
        self.places |= {path + inner: place for inner, place in given.places.items()}
        self.faults += [Fault(fault.place, path + fault.path, fault.text) for fault in given.faults]


@dataclass(slots=True)
class _Open:
    """A collection that the parser is inside of; `key` is the key that waits for its value."""

    value: Any
    path: Keys
    key: str | None = None
    keys: dict[str, int] = field(default_factory=dict)  # key -> line
    skip: bool = False  # the waiting key is a fault: its value is read and dropped


def read(text: str, file: str) -> Document:
    """Reads one YAML document. What makes it unreadable raises ConfigError at once; other faults
    are kept in `.faults`."""
    document = Document(None, {(): Place(file)})
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        refuse([Fault(Place(file), (), f"{size} bytes; a config has at most {MAX_BYTES}")])
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        refuse([Fault(Place(file), (), "not plain text: it holds a NUL or a broken character")])
    try:
        _build(document, yaml.parse(text, Loader=_LOADER), file)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = (
            getattr(error, "problem", None)
            or getattr(error, "reason", None)
            or getattr(error, "context", None)
            or "not YAML"
        )
        refuse(
            [
                *document.faults,
                Fault(
                    Place(file, min(mark.line + 1, text.rstrip().count("\n") + 1) if mark else 0),
                    (),
                    f"not readable as YAML: {what}",
                ),
            ]
        )
    return document


def _build(document: Document, events: Iterable[Any], file: str) -> None:
    stack: list[_Open] = []
    documents, place = 0, Place(file)

    def stop(text: str) -> None:
        path = (
            (*stack[-1].path, *([stack[-1].key] if stack[-1].key is not None else []))
            if stack
            else ()
        )
        refuse([*document.faults, Fault(place, path, text)])

    def put(value: Any) -> Keys:
        """Hands a value to the open collection, or makes it the document; gives its path."""
        if not stack:
            document.value = value
            document.places[()] = place
            return ()
        top = stack[-1]
        if isinstance(top.value, list):
            path: Keys = (*top.path, len(top.value))
            top.value.append(value)
            # what a duplicate key holds comes second and is dropped
            document.places.setdefault(path, place)
            return path
        key, top.key = top.key, None
        if top.skip:
            top.skip = False
            return (*top.path, str(key))
        top.value[key] = value
        return (*top.path, str(key))

    for event in events:
        place = Place(file, event.start_mark.line + 1, event.start_mark.column)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                stop("a second document; a config is one")
        elif isinstance(event, yaml.AliasEvent):
            stop("aliases (*name) are refused; write it out, or use extends:")
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            if event.tag is not None:  # type: ignore[attr-defined]
                stop(f"the tag {event.tag} is refused; values have no tags")  # type: ignore[attr-defined]
            waits_for_key = (
                bool(stack) and isinstance(stack[-1].value, dict) and stack[-1].key is None
            )
            if isinstance(event, yaml.ScalarEvent):
                if (
                    not event.value.isascii()
                    and event.value != event.value.encode("utf-8", "replace").decode()
                ):
                    stop("an escape names half a character")
                if waits_for_key:
                    _open_key(document, stack[-1], event, place)
                    continue
                plain = not event.style  # None, or "" from the C parser
                try:
                    put(scalar(event.value) if plain else event.value)
                except ValueError as error:
                    path = put(None)
                    document.faults.append(Fault(place, path, str(error)))
                continue
            if waits_for_key:
                stop("a key must be plain text")
            if len(stack) >= MAX_DEPTH:
                refuse(
                    [
                        *document.faults,
                        Fault(place, stack[-1].path[:1], f"nested deeper than {MAX_DEPTH}"),
                    ]
                )
            value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            stack.append(_Open(value, put(value)))


def _open_key(document: Document, top: _Open, event: Any, place: Place) -> None:
    key = top.key = event.value
    path = (*top.path, key)
    if key == "<<" and not event.style:
        document.faults.append(
            Fault(place, top.path, "merge keys (<<) are refused; write it out, or use extends:")
        )
        top.skip = True
    elif key in top.keys:
        document.faults.append(
            Fault(place, top.path, f"duplicate key {key!r} (first at line {top.keys[key]})")
        )
        top.skip = True
    else:
        top.keys[key] = place.line
        document.places.setdefault(path, place)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `scalar` would take for something else, such as a commit called
    12e4567."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> Any:
    try:
        plain = scalar(text) == text
    except ValueError:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def write(value: Any) -> str:
    """Plain values as YAML that `read` reads back to equal ones.

    >>> write({"model": "table/softmax", "revision": "12e4567"})
    'model: table/softmax\\nrevision: "12e4567"\\n'
    """
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def scalar(text: str) -> Any:
    """A plain scalar by the core schema, with `_` allowed between digits. Raises ValueError for a
    number that would surprise.

    >>> [scalar(word) for word in ("no", "true", "1e-5", "2_000", "12:30", "~")]
    ['no', True, 1e-05, 2000, '12:30', None]
    """
    if text == "" or text in _CONSTANTS:
        return _CONSTANTS.get(text)
    if _LEADING_ZERO.fullmatch(text):
        raise ValueError(
            f"the number {text[:MAX_DIGITS]} has a leading zero; drop it, or quote it if it is text"
        )
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if (_INTEGER.fullmatch(text) or _OTHER_BASE.fullmatch(text)) and len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters; quote it if it is text")
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _OTHER_BASE.fullmatch(text):
        return int(text.replace("_", ""), 0)
    if _FLOAT.fullmatch(text):
        number = float(text.replace("_", ""))
        if not math.isfinite(number):
            raise ValueError(f"{text[:MAX_DIGITS]} is not a finite number")
        return number
    return text
