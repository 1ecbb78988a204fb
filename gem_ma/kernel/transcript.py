"""What an agent has seen and said until now, as its behaviour gets it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import eq
from typing import overload

from gem_ma.kernel.types import Message


class Transcript(Sequence[Message]):
    """The first messages of a list that only grows: what was said until now, without a copy of
    it at each turn."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        # the length of this moment: what is appended later is not part of it
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(place, slice):
            return tuple(self._messages[slice(*place.indices(self._length))])
        # through the range, so that negative places and those beyond count in what is visible
        return self._messages[range(self._length)[place]]

    def __iter__(self) -> Iterator[Message]:
        # by length, not by copy: a behaviour may iterate while the play appends
        return islice(self._messages, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transcript, tuple, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
