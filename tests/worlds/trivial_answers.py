"""What reasoning_gym's graders pay to answers that solve nothing.

    .venv-reasoning_gym/bin/python tests/worlds/trivial_answers.py [--items 12] [TASK ...]

Writes the table of docs/worlds.md: the mean over the first questions of the split `test`. Of tasks
that are named it prints theirs.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from benchmarks.worlds import write
from gem_ma import Game, make
from gem_ma.registry import task_of

CONSTANTS = ("0", "1", "2", "True", "False", "yes", "No", "A", "NaN", "inf", "[]", "x", "1/2")
Answers = Callable[[int], str]


def answers(items: Sequence[Any]) -> dict[str, Answers]:
    """Name of a trivial answer -> what it says to each question."""
    words = [str(item["question"]).split() or [""] for item in items]
    chooser = random.Random(0)
    drawn = [chooser.choice(of) for of in words]
    other = [str(items[at - 1]["answer"] or "") for at in range(len(items))]
    trivial: dict[str, Answers] = {
        f"`{text}`": lambda at, text=text: text  # type: ignore[misc]
        for text in CONSTANTS
    }
    return {
        **trivial,
        "last word": lambda at: words[at][-1],
        "a random word": lambda at: drawn[at],
        "another answer": lambda at: other[at],
    }


def tasks() -> list[str]:
    names = import_module("reasoning_gym.factory").DATASETS
    return sorted(set(names) - {"composite"})


def scores(name: str, number: int) -> dict[str, float]:
    """The mean score of each trivial answer, `gold` among them."""
    adapter = import_module("gem_ma.worlds.graders")
    scenario = make(f"reasoning_gym:{name}")
    items = [adapter.item_of(scenario._set("test"), at) for at in range(number)]  # type: ignore[attr-defined]
    paid: dict[str, float] = {}
    for what, says in {"gold": lambda at: str(items[at]["answer"]), **answers(items)}.items():
        total = 0.0
        for at in range(number):
            game = Game(scenario, task_of(scenario, f"test/{at}"), seed=0)
            # in a box, so that a text with one in it is read as it stands
            said = says(at)
            game.send({"agent_0": said if re.search(r"\\boxed", said) else f"\\boxed{{{said}}}"})
            total += sum(entry.value for entry in game.ledger)
        paid[what] = total / number
    return paid


def table(names: Iterable[str], number: int) -> Iterable[str]:
    yield "| task | right answer | best constant | last word | random word | another's answer |"
    yield "|---|---:|---|---:|---:|---:|"
    for name in names:
        paid = scores(name, number)
        constant = max((what for what in paid if what.startswith("`")), key=lambda w: paid[w])
        cells = [f"{constant} {paid[constant]:.2f}" if paid[constant] >= 0.005 else ".00"]
        cells += [f"{paid[what]:.2f}" for what in ("last word", "a random word", "another answer")]
        yield f"| {name} | {paid['gold']:.2f} | {' | '.join(cells)} |".replace(" 0.", " .")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--items", type=int, default=12)
    given = parser.parse_args()
    lines = list(table(given.tasks or tasks(), given.items))
    if given.tasks:
        print("\n".join(lines))
    else:
        write(r"\| task \| right answer .*?\n(?=\n|\Z)", "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
