"""A generator that draws from a set draws the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DRAWS = """
import random, string
from types import SimpleNamespace
from gem_ma.worlds.ordered import MANY, in_order, words_in_order
held = in_order(SimpleNamespace(letters=set(string.ascii_letters), few=frozenset("xyz"), n=3))
rng = random.Random(0)
kinds = held.letters, held.letters - {"a"}, held.letters & set("edcba"), held.few | {"a"}
print([rng.sample(list(kind), 3) for kind in kinds], held.n)
words = list({f"word {number}" for number in range(MANY)})
game = words_in_order(SimpleNamespace(words=words, cards=["b", "a"], n=3))
print(rng.sample(game.words, 3), game.cards)
"""


def test_draws_are_the_same_under_every_salt_of_hashes() -> None:
    root = str(Path(__file__).resolve().parents[2])
    said = {
        subprocess.run(
            [sys.executable, "-c", DRAWS],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2", "3")
    }
    assert len(said) == 1 and said != {""}
