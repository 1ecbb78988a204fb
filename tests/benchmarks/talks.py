"""Precision and recall of every finding over the labelled talks: `python tests/benchmarks/talks.py
[--wrong]` (which are wrong).

One row a finding of the monitor or fault of the ledger: precision and recall with their 95 %
Wilson intervals over all labelled talks, precision over the third that was kept apart (and
looked at twice) while the readers were tuned, and the sure ones with the breaches that a program
has put into clean talks.
"""

from __future__ import annotations

import argparse

from gem_ma.evaluation.stats import wilson
from tests.talks.measure import by_injection, found, parts, scores
from tests.talks.script import talks


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
    for talk in talks() if wrong else ():
        got = found(talk)
        if got != talk.marks:
            print(
                f"{talk.name}: not right {sorted(got - talk.marks)}, not found"
                f" {sorted(talk.marks - got)}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true")
    main(parser.parse_args().wrong)
