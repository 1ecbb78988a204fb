"""What somebody wants of a choice, as a small program: what must hold, what would be nice in order
of weight, and a rule for ties.

Knows nothing of shops: a candidate has options (name -> value) and a price. The same program
decides what the right answer of a task is, and proves that it is the only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that can be had."""

    key: str
    options: Mapping[str, str]
    price: float


@dataclass(frozen=True, slots=True)
class Program:
    """`required` must hold; each of `prefers` in its turn leaves those that have it, if there
    are any; `tie` decides among the rest: the one that keeps most of what one has now, the
    cheapest, the dearest, or any of them."""

    required: Mapping[str, str] = field(default_factory=dict)
    prefers: tuple[tuple[str, str], ...] = ()
    tie: str = "keep"

    def best(self, now: Mapping[str, str], candidates: Iterable[Candidate]) -> tuple[str, ...]:
        """The keys of the best candidates, in the order given: () where none has what is required,
        several where the rule leaves a tie.

        >>> gilt = Candidate("a", {"size": "A4", "edge": "gilt"}, 3.0)
        >>> plain = Candidate("b", {"size": "A4", "edge": "plain"}, 2.0)
        >>> Program({"size": "A4"}, tie="cheapest").best({}, [gilt, plain])
        ('b',)
        >>> Program({"size": "A4"}, (("edge", "gilt"),)).best({}, [gilt, plain])
        ('a',)
        """
        left = [
            candidate
            for candidate in candidates
            if all(candidate.options.get(name) == value for name, value in self.required.items())
        ]
        for name, value in self.prefers:
            # A wish that nobody meets leaves everybody, so a later one may still decide.
            left = [candidate for candidate in left if candidate.options.get(name) == value] or left
        if not left or self.tie == "any":
            return tuple(candidate.key for candidate in left)
        scores = [self._score(now, candidate) for candidate in left]
        return tuple(
            candidate.key
            for candidate, score in zip(left, scores, strict=True)
            if score == max(scores)
        )

    def _score(self, now: Mapping[str, str], candidate: Candidate) -> float:
        # As few options changed as can be.
        if self.tie == "keep":
            return sum(now.get(name) == value for name, value in candidate.options.items())
        return candidate.price if self.tie == "dearest" else -candidate.price
