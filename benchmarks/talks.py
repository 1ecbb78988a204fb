"""Precision and recall of every finding over the labelled talks: `python benchmarks/talks.py
[--part fresh] [--wrong]` (which are wrong).

One row a finding of the monitor or fault of the ledger: precision and recall with their 95 %
Wilson intervals over all labelled talks, precision over the third that was kept apart (and
looked at twice) while the readers were tuned, and the sure ones with the breaches that a program
has put into clean talks. `--part fresh` and `--part later` are the held-out talks: precision and
recall, all and the sure ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from gem_ma.scores.intervals import wilson
from tests.talks.measure import by_injection, found, parts, scores
from tests.talks.script import Labelled, talks


def share(hits: int, of: int) -> str:
    """A share with its interval."""
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} [{low:.2f}, {high:.2f}] {hits}/{of}"


def main(wrong: bool) -> None:
    both, held, sure, put = (
        scores(talks()),
        scores(parts()[1]),
        scores(talks(), sure=True),
        by_injection(),
    )
    print(
        "| finding | precision | recall | precision, third kept apart | sure, with breaches put"
        " in |"
    )
    print("|---|---|---|---|---|")
    for name, score in both.items():
        in_held, right, all_sure = held[name], sure[name].right, sure[name].right + sure[name].wrong
        if name in put:
            right, all_sure = right + put[name].right, all_sure + put[name].right + put[name].wrong
        row = [
            share(score.right, score.right + score.wrong),
            share(score.right, score.right + score.missed),
        ]
        row.append(
            f"{in_held.right}/{in_held.right + in_held.wrong}"
            if in_held.right + in_held.wrong
            else "-"
        )
        print(f"| `{name}` | {' | '.join(row)} | {share(right, all_sure)} |")
    show_wrong(talks() if wrong else ())


def main_held_out(part: str, wrong: bool) -> None:
    """The same of a held-out part, without what is only for the others."""
    every, sure = scores(talks(part)), scores(talks(part), sure=True)
    print("| finding | precision | recall | sure |\n|---|---|---|---|")
    for name, score in every.items():
        if score.right + score.wrong + score.missed:
            row = [
                share(score.right, score.right + score.wrong),
                share(score.right, score.right + score.missed),
            ]
            print(
                f"| `{name}` | {' | '.join(row)} |"
                f" {share(sure[name].right, sure[name].right + sure[name].wrong)} |"
            )
    show_wrong(talks(part) if wrong else ())


def show_wrong(which: Iterable[Labelled]) -> None:
    """What is not right and not found, talk by talk."""
    for talk in which:
        got = found(talk)
        if got != talk.marks:
            print(
                f"{talk.name}: not right {sorted(got - talk.marks)}, not found"
                f" {sorted(talk.marks - got)}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--part", choices=["fresh", "later"], help="a held-out part")
    asked = parser.parse_args()
    main_held_out(asked.part, asked.wrong) if asked.part else main(asked.wrong)
