"""The pieces of streamed tool calls -> the calls that they add up to. Raises `Fault`, reads no
reply.

OpenAI counts calls by `index` and names each once. Other servers put all of them at index 0, give
no index or no id, repeat the name or the id in every piece, or make a new id for each piece. So
whether a piece begins another call is told by all that it holds: a call has one name, and its
arguments are one JSON object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.endpoint.envelope import part
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.kernel.parsing.text import joined_halves


@dataclass(slots=True)
class Piece:
    """One piece of a call; what it does not hold is "" or None."""

    index: int | None
    id: str
    name: str
    arguments: str

    @classmethod
    def of(cls, delta: Any) -> Piece:
        """Raises Fault for anything that is not a piece."""
        index = delta.get("index") if isinstance(delta, dict) else delta
        if not isinstance(delta, dict) or not (index is None or type(index) is int):
            raise Fault("bad_reply", f"a piece of a call is {ascii(delta)[:100]}", status=200)
        function = part(delta, "function") or {}
        written = delta.get("id")
        name = _text(function.get("name"))
        arguments = _text(function.get("arguments"))
        return cls(index, written if isinstance(written, str) else "", name, arguments)


class Call:
    """A call as far as it has come. `place` orders the calls of a reply."""

    def __init__(self, piece: Piece, place: int) -> None:
        self.place = place
        self.index = piece.index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        # how far its arguments were read: pieces, open braces, inside a text, behind a backslash
        self._read = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.add(piece)

    def add(self, piece: Piece) -> None:
        """Takes a piece of this call."""
        self.id = self.id or piece.id
        # a name may come once more, or longer, or in pieces
        self.name = piece.name if piece.name.startswith(self.name) else self.name + piece.name
        if piece.arguments:
            self.arguments.append(piece.arguments)

    def is_continued_by(self, piece: Piece) -> bool:
        """Whether a piece that may be of this call is not the first one of another."""
        if not piece.name:
            # a new id at the same index is a bad habit; without an index it begins a call
            return bool(piece.arguments or not piece.id or piece.index is not None)
        if not self.name or (piece.id and piece.id == self.id):
            return True
        begins = piece.arguments.lstrip().startswith(("{", "null"))
        if piece.name == self.name:
            if piece.id and self.id:
                return bool(self.arguments and piece.arguments) and not begins
            return not (begins and self._is_whole())
        return not (begins or self.arguments or (piece.id and self.id))

    def _is_whole(self) -> bool:
        """Whether the arguments so far are closed. Reads each piece once."""
        new = "".join(self.arguments[self._read :])
        self._read = len(self.arguments)
        for char in new:
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = char == "\\"
                self._quoted = char != '"'
            elif char == '"':
                self._quoted = True
            else:
                self._depth += {"{": 1, "}": -1}.get(char, 0)
        return bool(self.arguments) and self._depth <= 0 and not self._quoted


class Calls:
    """The calls of one message."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._last: Call | None = None  # to which a piece was added
        self._latest: dict[int | None, Call] = {}  # the last of an index
        self._known: dict[tuple[int | None, str], Call] = {}  # by index and id, and by id

    def add(self, delta: Any) -> None:
        """Takes the next piece. Raises Fault for what is none."""
        piece = Piece.of(delta)
        call = self._of(piece)
        if call is None or not call.is_continued_by(piece):
            place = self._calls[-1].place if self._calls else 0
            call = Call(piece, place if piece.index is None else piece.index)
            self._calls.append(call)
        else:
            call.add(piece)
        self._last = self._latest[call.index] = call
        if piece.id:
            self._known[None, piece.id] = self._known[call.index, piece.id] = call

    def _of(self, piece: Piece) -> Call | None:
        """The call to which a piece belongs, unless it begins another."""
        if piece.id and (named := self._known.get((piece.index, piece.id))):
            return named
        if piece.index is None:
            return self._last
        # the first piece may have come without the index of the others
        bare = self._last is not None and self._last.index is None and not piece.name
        return self._latest.get(piece.index) or (self._last if bare else None)

    def written(self) -> list[dict[str, Any]]:
        """The calls as a reply has them that comes in one piece."""
        return [
            {
                "id": call.id or None,
                "type": "function",
                "function": {"name": call.name, "arguments": joined_halves(call.arguments)},
            }
            for call in sorted(self._calls, key=lambda call: call.place)
        ]


def _text(value: Any) -> str:
    # arguments that come as they are, and not as text, are written as text
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
