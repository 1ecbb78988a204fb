"""Learning curves of run folders, with intervals, whether the end beats the start by more than both
of them, and what the model says to the same text before and after.

    python benchmarks/model_curves.py runs/curves/*

The score of a play is its success; where the scenario knows none, the return, in the mean over its
agents. With it stands a 95 % interval: Wilson's of a share, Student's of a mean return. `curve` are
the plays of each fifth of the steps. `first` are those of the first step, before any update, `last`
those of the last one. Exams are those before and after; of returns an exam keeps the mean alone.
Below each run stand the texts that were met most often in both steps, with the share of every
answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from gem_ma.kernel.episode import Episode
from gem_ma.runs.store import read_episodes, read_metrics
from gem_ma.scores.stats import skewed_t, wilson

PARTS = 5
TEXTS = 5  # that are shown of a run
ANSWERS = 4  # that are shown of a text
HEADER = (
    "run",
    "steps",
    "curve",
    "first",
    "last",
    "beats",
    "exam sampled, before",
    "after",
    "greedy, before",
    "after",
)


class Score(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def share(right: float, count: int) -> Score:
    """The score of so many plays that were judged."""
    return Score(right / count, *wilson(right, count))


def mean(returns: Sequence[float]) -> Score:
    """The score of plays that are only paid."""
    return Score(sum(returns) / len(returns), *skewed_t(returns))


def cut(items: Sequence[Any]) -> list[Sequence[Any]]:
    """Fifths, those that hold something."""
    ends = [part * len(items) // PARTS for part in range(PARTS + 1)]
    return [items[low:high] for low, high in pairwise(ends) if low < high]


def judged(steps: Sequence[dict[str, Any]]) -> Score:
    """The score of all plays of these steps, of which the record says how many succeeded."""
    return share(sum(s["success"] * s["ok"] for s in steps), sum(s["ok"] for s in steps))


def by_version(folder: Path) -> dict[int, list[Episode]]:
    """The plays of a training by the weights that played them: how often they had been published,
    which is once a step."""
    plays: dict[int, list[Episode]] = {}
    for episode in read_episodes(folder):
        versions = [r.version for turn in episode.turns for r in turn.replies if r.policy]
        if versions and versions[0] is not None:
            plays.setdefault(versions[0], []).append(episode)
    return dict(sorted(plays.items()))


def scores(folder: Path, steps: Sequence[dict[str, Any]]) -> list[Score]:
    """Of each fifth of the steps, then of the first and of the last step."""
    if steps[0]["success"] is not None:
        return [judged(part) for part in [*cut(steps), steps[:1], steps[-1:]]]
    paid = [
        [sum(returns.values()) / len(returns) for returns in map(Episode.returns, plays)]
        for plays in by_version(folder).values()
    ]
    return [mean([*chain(*part)]) for part in [*cut(paid), paid[:1], paid[-1:]]]


def examined(exam: dict[str, Any]) -> str:
    """The score of an exam."""
    if exam["success"] is not None:
        return str(share(exam["success"] * exam["ok"], exam["ok"]))
    return f"{sum(exam['return'].values()) / len(exam['return']):.2f}"


def row(folder: Path) -> str:
    lines = list(read_metrics(folder))
    exams = [line for line in lines if line["kind"] == "evaluation"]
    steps = [line for line in lines if line["kind"] == "train"]
    *parts, first, last = scores(folder, steps)
    cells = [folder.name, str(len(steps)), ", ".join(map(str, parts)), str(first), str(last)]
    cells.append("yes" if last.low > first.high else "no")
    for kind in ("sampled", "greedy"):
        cells += [examined(exams[0][kind]), examined(exams[-1][kind]) if len(exams) > 1 else "-"]
    return f"| {' | '.join(cells)} |"


def answers(folder: Path) -> Iterator[str]:
    """A line for each of the texts that were met most often before the first update and in the
    last step: what was answered, and how often."""
    plays = list(by_version(folder).values())
    if len(plays) < 2:
        return
    first, last = met(plays[0]), met(plays[-1])
    both = sorted(first.keys() & last.keys(), key=lambda asked: -first[asked].total())
    for agent, text in both[:TEXTS]:
        before, after = (shares(said[agent, text]) for said in (first, last))
        yield f"  {agent}, {text!r}: {before} -> {after}"


def met(plays: Sequence[Episode]) -> dict[tuple[str, str], Counter[str]]:
    """How often each answer was given, by agent and newest text."""
    said: dict[tuple[str, str], Counter[str]] = {}
    for turn in (turn for episode in plays for turn in episode.turns if turn.observed):
        asked = turn.agent, turn.observed[-1].text
        said.setdefault(asked, Counter())[turn.action.text] += 1
    return said


def shares(said: Counter[str]) -> str:
    """The most frequent answers with their shares."""
    return ", ".join(
        f"{text} {count / said.total():.2f}" for text, count in said.most_common(ANSWERS)
    )


def main() -> None:
    folders = sorted(map(Path, sys.argv[1:]))
    print(f"| {' | '.join(HEADER)} |")
    print("|" + " --- |" * len(HEADER))
    for folder in folders:
        print(row(folder))
    for folder in folders:
        print(f"\n{folder.name}, the same texts in the first step and in the last one:")
        for line in answers(folder):
            print(line)


if __name__ == "__main__":
    main()
