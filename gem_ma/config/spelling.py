"""The nearest known name to one that is not known, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def nearest(word: str, known: Iterable[str], *, listed: bool = True) -> str:
    """` (did you mean 'x'?)`, or what is known where nothing is near."""
    names = sorted(set(known))
    # .5 takes `dilema` for `dilemma` and `kuhn` for `kuhn_poker`, and little else
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        alike = [SequenceMatcher(None, name, word).ratio() for name in near]
        near = [name for name, ratio in zip(near, alike, strict=True) if ratio > alike[0] - 0.05]
        return f" (did you mean {' or '.join(map(repr, near))}?)"
    # names of a file may hold anything, and land on a terminal
    shown = [name if name.isprintable() and name else ascii(name) for name in names]
    return f" (known: {', '.join(shown)})" if names and listed else ""
