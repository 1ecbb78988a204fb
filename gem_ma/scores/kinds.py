"""What kind of number a score is, and which way is better. Both are declared by the scenario;
nothing is read off the values.

`success`, pass^k and the shares of labels are rates by what they are. A return or a measure is a
plain mean, unless the scenario names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

SUCCESS = "success"
RETURN = "return "  # how the score of an agent's return begins


@dataclass(frozen=True, slots=True)
class Kinds:
    """Patterns of score names (`*` stands for any text): `Scenario.rates`, `more_is_better`,
    `less_is_better`.

    >>> kinds = Kinds(rates=("part *",), less=("violations *",))
    >>> kinds.is_rate("part facts"), kinds.is_rate("return a")
    (True, False)
    >>> kinds.better("violations AUTH"), kinds.better("turns")
    ('less', '')
    """

    rates: Sequence[str] = ()
    more: Sequence[str] = ()
    less: Sequence[str] = ()

    def is_rate(self, score: str) -> bool:
        """Whether every value of this score lies between 0 and 1 by what it is."""
        return score == SUCCESS or _named(score, self.rates)

    def better(self, score: str) -> str:
        """`more`, `less`, or "" where nothing is declared. More success and more return are always
        better."""
        if score == SUCCESS or score.startswith(RETURN) or _named(score, self.more):
            return "more"
        return "less" if _named(score, self.less) else ""


def _named(score: str, patterns: Sequence[str]) -> bool:
    # fnmatchcase: plain fnmatch ignores case on some systems, and names would differ by machine
    return any(fnmatchcase(score, pattern) for pattern in patterns)
