"""Legal strings in a line of the record: a long list stands there once, and later ones say in
what they differ.

A go board offers 361 moves, then 360; a list of 10,000 strings at each of a hundred turns would
take megabytes. So a turn keeps `legal: []` and `legal_of: [turn, dropped, added]`: the list of
that turn, without the strings at the places `dropped`, and then with each `[place, string]` of
`added` put in. Works on the plain values of `gem_ma.record.codec`, both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# strings that are worth a reference; shorter lists stay where a reader looks for them
LEAST = 32
Turns = Sequence[dict[str, Any]]
Legal = Sequence[str]
Added = list[tuple[int, str]]
Change = tuple[int, list[int], Added]


class Choices:
    """The long lists of a play so far, of which the next turn may say how it differs."""

    def __init__(self) -> None:
        # the last one of each agent and of all: two players mostly share one board
        self._lists: dict[str, tuple[int, Legal]] = {}

    def change(self, number: int, agent: str, legal: Legal) -> Change | None:
        """(turn, dropped, added) of the list of turn `number`; None where it is to be written."""
        if len(legal) < LEAST:
            return None
        found = None
        for key in (agent, ""):
            if key in self._lists and (change := _change(self._lists[key][1], legal)) is not None:
                found = (self._lists[key][0], *change)
                break
        self._lists[agent] = self._lists[""] = (number, legal)
        return found


def thin(turns: Turns) -> None:
    """Takes out of these turns the legal strings that an earlier one has, in place."""
    known = Choices()
    for number, turn in enumerate(turns):
        change = known.change(number, turn["agent"], turn.get("legal") or ())
        if change is not None:
            turn["legal"] = []
            turn["legal_of"] = list(change)


def _change(old: Legal, new: Legal) -> tuple[list[int], Added] | None:
    """(places that are dropped, strings that are added) from one list to the other; None where
    that says more than half of the list, or the order changed."""
    # a play that writes its tuple once hands out the same one
    if old is new or old == new:
        return [], []
    remain = set(new)
    before = set(old)
    dropped = [place for place, choice in enumerate(old) if choice not in remain]
    added = [(place, choice) for place, choice in enumerate(new) if choice not in before]
    if 2 * (len(dropped) + len(added)) > len(new):
        return None
    return (dropped, added) if _changed(old, dropped, added) == list(new) else None


def _changed(old: Legal, dropped: Sequence[int], added: Sequence[tuple[int, str]]) -> list[str]:
    gone = set(dropped)
    places = dict(added)
    rest = (choice for place, choice in enumerate(old) if place not in gone)
    # by rising places in the new list; a string in the middle of a long list moves no other
    length = len(old) - len(gone) + len(places)
    return [places[place] if place in places else next(rest) for place in range(length)]


def whole(turns: Any) -> Any:
    """The turns with every list in full again. Raises ValueError naming the place where a
    reference leads nowhere; other damage stays as it is."""
    if not isinstance(turns, list):
        return turns
    result: list[Any] = []
    lists: list[Any] = []
    for number, turn in enumerate(turns):
        if isinstance(turn, dict) and "legal_of" in turn:
            turn = dict(turn)
            turn["legal"] = full(lists, turn.pop("legal_of"), f"[{number}].legal_of")
        result.append(turn)
        lists.append(turn.get("legal") if isinstance(turn, dict) else None)
    return result


def full(lists: Sequence[Any], reference: Any, where: str) -> Legal:
    """The list that a reference says, from those of the turns before. Raises ValueError."""
    try:
        number, dropped, added = reference
        old = lists[number]
        sound = isinstance(old, (list, tuple)) and number >= 0
        if sound and not dropped and not added:
            return old  # the very one: turns that were offered the same share it, as in the play
        if sound and set(dropped) <= set(range(len(old))):
            return type(old)(_changed(old, dropped, added))
    except (TypeError, ValueError, KeyError, IndexError, StopIteration):
        pass
    raise ValueError(f"{where}: leads to no legal strings of an earlier turn")
