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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import in_quotes

# far above any config that a person has written, and small enough to be read in an instant
MAX_BYTES = 256 * 1024
MAX_DEPTH = 50
MAX_DIGITS = 100
Keys = tuple[str | int, ...]
# the C parser is ten times as fast; some builds of PyYAML lack it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
COMMAND_LINE = "command line"  # the file of what was typed there
MOST_FAULTS = 40  # faults of one config that are printed
# each pattern reads a text in one way only, so that none of them tries a long row of digits twice
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
            else f".{in_quotes(part) if part.isprintable() and part else ascii(part)}"
        )
        for part in path
    ]
    return "".join(parts).lstrip(".") if parts else ""


def parted(override: str) -> tuple[tuple[str, ...], str | None]:
    """The names in the key of an override, and its value; None where it has none. A name in double
    quotes may hold dots and equals signs, and a quote where it is written twice.

    >>> parted('agents."Ann B.".policy=main'), parted("run.seed")
    ((('agents', 'Ann B.', 'policy'), 'main'), (('run', 'seed'), None))
    """
    names = [""]
    is_open = False
    for place, letter in enumerate(override := override.lstrip()):
        if letter == '"':
            # the second of two in a quoted name stands for itself
            names[-1] += '"' * (not is_open and override[place - 1 : place] == '"')
            is_open = not is_open
        elif is_open or letter not in ".=":
            names[-1] += letter
        elif letter == ".":
            names.append("")
        else:
            names[-1] = names[-1].rstrip()
            return tuple(names), override[place + 1 :]
    return tuple(names), None


def refuse(faults: Iterable[Fault], first: str = "") -> None:
    """Raises one ConfigError with a line for each of the first faults, those of the file `first`
    before others; does nothing where there is none."""
    # cells of a study share most of their text, and so its faults
    different = list(dict.fromkeys(faults))
    files = list(dict.fromkeys([first, *(fault.place.file for fault in different)]))
    different.sort(
        key=lambda fault: (files.index(fault.place.file), fault.place.line, fault.place.column)
    )
    # two faults at different columns may read the same
    lines = list(dict.fromkeys(map(str, different)))
    if len(lines) > MOST_FAULTS:
        lines = [*lines[:MOST_FAULTS], f"and {len(lines) - MOST_FAULTS} more faults"]
    if lines:
        raise ConfigError("\n".join(lines))


@dataclass(slots=True)
class Document:
    """Plain values (dict, list, str, int, float, bool, None), the place of every key path, and
    the faults met on the way."""

    value: Any
    places: dict[Keys, Place]
    faults: list[Fault] = field(default_factory=list)
    cell: set[Keys] = field(default_factory=set)  # what the cell of a study has set
    copied: set[Keys] = field(default_factory=set)  # seats that go on in copies of them

    def place(self, path: Keys) -> Place:
        """Where this path was written, or the nearest thing above it."""
        # a default has no line; the section above it has one
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

    def part(self, path: Keys) -> Document:
        """What stands at a path, with its places."""
        inside = {at[len(path) :]: p for at, p in self.places.items() if at[: len(path)] == path}
        return Document(self.get(*path), {(): self.place(path), **inside})

    def put(self, path: Keys, part: Document) -> None:
        """Replaces the whole value at a path, making mappings on the way; a way through a list
        or a scalar is a fault."""
        target = self.value
        for depth, key in enumerate(path[:-1], start=1):
            if target.get(key) is None:
                target[key] = {}
                self.places[path[:depth]] = part.places[()]
            target = target[key]
            if not isinstance(target, dict):
                self.faults.append(
                    Fault(part.places[()], path[:depth], "holds no keys here; replace it whole")
                )
                return
        # lines of what was replaced would be told for keys that are gone
        for old in _paths(target.get(path[-1]), path):
            self.places.pop(old, None)
        target[path[-1]] = part.value
        self.places |= {path + inner: place for inner, place in part.places.items()}
        self.faults += [Fault(fault.place, path + fault.path, fault.text) for fault in part.faults]


def _paths(value: Any, path: Keys) -> Iterator[Keys]:
    """The path of a value, and those of all that it holds."""
    yield path
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        yield from _paths(inner, (*path, key))


def section(document: Document, *path: str | int) -> dict[str, Any]:
    """The mapping at a path; {} where there is none, or something else that the schema has
    refused."""
    value = document.get(*path)
    return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class _Open:
    """A collection that the parser is inside of."""

    value: Any
    path: Keys
    key: str = ""  # that waits for its value, while `keyed`
    keyed: bool = False
    lines: dict[str, int] = field(default_factory=dict)  # key -> where it stands first
    skip: bool = False  # the waiting key is a fault: its value is read and dropped


def read(text: str, file: str) -> Document:
    """Reads one YAML document. What makes it unreadable raises ConfigError at once; other faults
    are kept in `.faults`."""
    document = Document(None, {(): Place(file)})
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        refuse([Fault(Place(file), (), f"{size} bytes; a config has at most {MAX_BYTES}")])
    # both pass through Python and YAML, and no file could hold what comes out
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        refuse(
            [
                Fault(
                    Place(file),
                    (),
                    "not plain text: it holds a NUL or a broken character; save it as UTF-8",
                )
            ]
        )
    try:
        builder = _Builder(document, file)
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        refuse([*document.faults, _unreadable(error, text, file)])
    return document


def _unreadable(error: yaml.YAMLError, text: str, file: str) -> Fault:
    """What the parser says, at its line; a mark behind the end means the last line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    last = text.rstrip().count("\n") + 1
    words = (getattr(error, name, None) for name in ("problem", "reason", "context"))
    what = next(filter(None, words), "not YAML")
    place = Place(file, min(mark.line + 1, last) if mark else 0)
    row = text.split("\n")[mark.line : mark.line + 1] if mark else []
    # a parser calls it a character that cannot start any token
    if row and "\t" in row[0][: len(row[0]) - len(row[0].lstrip())]:
        what = "a tab at the beginning of the line; YAML is indented by spaces"
    return Fault(place, (), f"not readable as YAML: {what}")


class _Builder:
    """Makes a document out of parser events, one after the other."""

    def __init__(self, document: Document, file: str) -> None:
        self.document = document
        self.file = file
        self.place = Place(file)  # of the event that is read
        self.open: list[_Open] = []  # the collections around it, outermost first
        self.documents = 0

    def take(self, event: Any) -> None:
        """One event. Raises ConfigError for what makes the whole text unreadable."""
        self.place = Place(self.file, event.start_mark.line + 1, event.start_mark.column)
        # `---` alone opens the first one, which is fine
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop("a second document; a config is one")
        # nested aliases can grow a text of a kilobyte to gigabytes ("billion laughs")
        elif isinstance(event, yaml.AliasEvent):
            self._stop("aliases (*name) are refused; write it out, or use extends:")
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
        elif isinstance(event, yaml.NodeEvent):
            tag = getattr(event, "tag", None)
            if tag is not None:
                self._stop(f"the tag {tag} is refused; values have no tags")
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            else:
                self._collection(event)

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        # "\\ud800" is valid YAML and no text: it could not be written to any file
        if not text.isascii() and text != text.encode("utf-8", "replace").decode():
            self._stop("an escape names half a character; write the character itself")
        if self._waits_for_key():
            self._key(text, plain=not event.style)
            return
        try:
            # the style is None, or "" from the C parser, where the text is not quoted
            self._put(text if event.style else scalar(text))
        except ValueError as error:
            path = self._put(None)
            self.document.faults.append(Fault(self.place, path, str(error)))

    def _collection(self, event: Any) -> None:
        if self._waits_for_key():
            self._stop("a key must be plain text")
        # readers of the value recurse: this keeps them far from Python's own limit
        if len(self.open) >= MAX_DEPTH:
            top = self.open[-1].path[:1]
            deep = Fault(self.place, top, f"nested deeper than {MAX_DEPTH}")
            refuse([*self.document.faults, deep])
        value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self.open.append(_Open(value, self._put(value)))

    def _waits_for_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].value, dict) and not self.open[-1].keyed

    def _put(self, value: Any) -> Keys:
        """Hands a value to the open collection, or makes it the document; gives its path."""
        if not self.open:
            self.document.value = value
            self.document.places[()] = self.place
            return ()
        top = self.open[-1]
        if isinstance(top.value, list):
            path: Keys = (*top.path, len(top.value))
            top.value.append(value)
            # `setdefault`: the first of two duplicate keys has its place already, and the second,
            # whose value is dropped, may not move it
            self.document.places.setdefault(path, self.place)
            return path
        key = top.key
        top.keyed = False
        if not top.skip:
            top.value[key] = value
        top.skip = False
        return (*top.path, key)

    def _key(self, key: str, *, plain: bool) -> None:
        """Remembers a key until its value comes; a fault where it may not stand there."""
        top = self.open[-1]
        faults = self.document.faults
        top.key = key
        top.keyed = True
        # merged values have no line of their own to be named in a message
        if key == "<<" and plain:
            what = "merge keys (<<) are refused; write it out, or use extends:"
            faults.append(Fault(self.place, top.path, what))
            top.skip = True
        elif key in top.lines:
            what = f"duplicate key {key!r} (first at line {top.lines[key]})"
            faults.append(Fault(self.place, top.path, what))
            top.skip = True
        else:
            top.lines[key] = self.place.line
            self.document.places.setdefault((*top.path, key), self.place)

    def _stop(self, text: str) -> None:
        """Raises ConfigError with this and all faults before it."""
        path: Keys = ()
        if self.open:
            top = self.open[-1]
            path = (*top.path, top.key) if top.keyed else top.path
        refuse([*self.document.faults, Fault(self.place, path, text)])


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `scalar` would take for something else, such as a commit called
    12e4567."""

    # two sections may hold the same Python list; `read` would refuse the alias that stands for it
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
    # YAML 1.1 reads 010 as 8, YAML 1.2 as 10, and a commit or a date is often meant
    if _LEADING_ZERO.fullmatch(text):
        raise ValueError(
            f"the number {text[:MAX_DIGITS]} has a leading zero; drop it, or quote it if it is text"
        )
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    # Python needs quadratic time to read a long number, and refuses those above 4,300 digits
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
