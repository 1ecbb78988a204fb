"""How messages write names and numbers: the nearest known name, a name in a key that is typed, and
three decimals."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.6  # `rnu` and `run` have .67; two names of other things mostly less than .5
SHORTEST = 3  # letters that may be the beginning, the middle or the end of a name
LONGEST = 200  # letters that are compared, which takes the square of their number


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that may have been meant, the nearest first; none where none is alike.

    >>> near("dilema", ["dilemma", "retail"]), near("kuhn", ["kuhn_poker", "retail"])
    (['dilemma'], ['kuhn_poker'])
    >>> near("always_defect", ["user_reflection", "random_legal"])
    []
    """
    word = word[:LONGEST]
    scores: dict[str, float] = {}
    for name in dict.fromkeys(known):
        pair = SequenceMatcher(None, name[:LONGEST].lower(), word.lower())
        if min(len(word), len(name)) >= SHORTEST and (word in name or name in word):
            scores[name] = 1 + pair.quick_ratio()
        elif pair.quick_ratio() >= ALIKE and pair.ratio() >= ALIKE:
            scores[name] = pair.ratio()
    return sorted(scores, key=lambda name: (scores[name], name), reverse=True)[:most]


def nearest(word: str, known: Iterable[str], *, listed: bool = True) -> str:
    """` (did you mean 'x'?)`, or what is known where nothing is near."""
    names = sorted(set(known))
    if close := near(word, names):
        alike = [SequenceMatcher(None, name, word).ratio() for name in close]
        close = [name for name, ratio in zip(close, alike, strict=True) if ratio > alike[0] - 0.05]
        return f" (did you mean {' or '.join(map(repr, close))}?)"
    # names of a file may hold anything, and land on a terminal
    shown = [name if name.isprintable() and name else ascii(name) for name in names]
    return f" (known: {', '.join(shown)})" if names and listed else ""


def in_quotes(name: str) -> str:
    """A name as it may stand in the key of an override, whatever is in it.

    >>> in_quotes("ann"), in_quotes("Ann B."), in_quotes('A "B" C')
    ('ann', '"Ann B."', '"A ""B"" C"')
    """
    if not {".", "=", '"'} & set(name):
        return name
    return '"' + name.replace('"', '""') + '"'


# Numbers as tables, pages and lines print them.


# three decimals tell something of numbers between
LEAST = 0.01
MOST = 1e9


def decimal(value: float | None, *beside: float | None, plus: bool = False) -> str:
    """A number with three decimals; where it and all that stand `beside` it are too small or too
    large for that, with three significant digits. "n/a" for None.

    >>> decimal(0.5), decimal(0.0), decimal(-2), decimal(0.25, plus=True)
    ('0.500', '0.000', '-2.000', '+0.250')
    >>> decimal(1.234e-6), decimal(0.00125), decimal(0.00125, 0.5), decimal(2e300)
    ('1.23e-06', '0.00125', '0.001', '2e+300')
    """
    if value is None:
        return "n/a"
    largest = max(abs(number) for number in (value, *beside) if number is not None)
    form = "f" if largest == 0 or LEAST <= largest < MOST else "g"
    return f"{value:+.3{form}}" if plus else f"{value:.3{form}}"
