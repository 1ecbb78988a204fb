"""Plackett-Luce by openskill, for the plays that tests/scores/test_tournaments.py reads: `make
rankings` writes tests/scores/openskill.json."""

from __future__ import annotations

import json
import random
from pathlib import Path

from openskill.models import PlackettLuce


def main() -> None:
    rng = random.Random(5)
    model = PlackettLuce()
    skills = {name: model.rating(name=name) for name in "abcdefgh"}
    plays = []
    for _ in range(40):
        # as far as openskill and we mean the same: sides of one size
        size = rng.choice([1, 2, 2])
        count = rng.choice([2, 2, 3, 4])
        drawn = rng.sample([*skills], size * count)
        sides = [drawn[n * size : (n + 1) * size] for n in range(count)]
        scores = [rng.randrange(3) for _ in sides]
        rated = model.rate([[skills[one] for one in side] for side in sides], scores=scores)
        for side, after in zip(sides, rated, strict=True):
            skills |= dict(zip(side, after, strict=True))
        plays.append([["".join(side), score] for side, score in zip(sides, scores, strict=True)])
    found = {name: [skill.mu, skill.sigma] for name, skill in skills.items()}
    out = Path(__file__).parent.parent / "scores" / "openskill.json"
    out.write_text(json.dumps({"plays": plays, "skills": found}) + "\n")


if __name__ == "__main__":
    main()
