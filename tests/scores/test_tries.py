"""pass@k and best-of-n in exams: against all draws of k tries, and that training stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.runs.store import read_episodes, read_metrics
from gem_ma.scores.stats import best_of_k
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.train import run_training
from tests.broken_runs import trained

SMALL = ("train.steps=2", "train.episodes=8", "evaluate.episodes=6", "run.baselines=false")


def slow(starts: list[list[Fraction]], k: int, best: Callable) -> Fraction:
    """The mean over starts of `best` of every draw of k tries."""
    means = [
        Fraction(sum(map(best, drawn)), len(drawn))
        for start in starts
        if (drawn := list(combinations(start, k)))
    ]
    return Fraction(sum(means), len(means))


def test_best_of_k_is_the_mean_over_all_draws():
    starts = [[Fraction(n) for n in row] for row in ([0, 3, 1], [-2, 5, 5, 1], [7, 7, 7])]
    for k in (1, 2, 3):
        assert best_of_k([[float(x) for x in row] for row in starts], k) == pytest.approx(
            float(slow(starts, k, max))
        )
    with pytest.raises(ValueError, match="k = 4 with 3 tries"):
        best_of_k([[1.0, 2.0, 3.0]], 4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("guess_number_table", ()),
        ("kuhn_league", ("train.seats=swap",)),
        ("mixture", ("train.episodes=16", "evaluate.scenarios={}", "train.overlap=true")),
    ],
    ids=["one", "league", "mixture"],
)
def test_an_exam_of_several_tries_scores_what_a_slow_loop_scores(monkeypatch, name, words):
    exams = []
    plain = LocalPlayers.play

    async def play(self, plans, *, learning=False, temperature=None):
        episodes = await plain(self, plans, learning=learning, temperature=temperature)
        if not learning and temperature is None:
            exams.append(episodes)
        return episodes

    monkeypatch.setattr(LocalPlayers, "play", play)
    settings = config.load(name, [*SMALL, *words, "evaluate.tries=4"]).config
    after = run_training(settings)["after"]
    found = 0
    for key, row in after.items():
        world = key.removeprefix("sampled").strip()
        if not key.startswith("sampled") or "best_of" not in row:
            continue
        found += 1
        # the last of the exam of all starts; those against anchors are shorter
        last = [e for e in max(reversed(exams), key=len) if e.world == world]
        assert len({e.id for e in last}) == len(last) == 24
        starts: dict = {}
        for episode in last:
            who = tuple(map(str, episode.cast.values()))
            starts.setdefault((*episode.id[:2], who), []).append(episode)
        assert all(len(start) == 4 for start in starts.values())
        for agent, curve in row["best_of"].items():
            paid = [[Fraction(e.returns()[agent]) for e in s] for s in starts.values()]
            for k, value in curve.items():
                assert value == pytest.approx(float(slow(paid, int(k), max)))
        assert list(curve) == ["1", "2", "4"]
    assert found == (2 if name == "mixture" else 1)
    assert not any("best_of" in row for key, row in after.items() if key.startswith("greedy"))


@pytest.mark.long
def test_pass_at_k_is_that_of_all_draws_and_plays_of_training_stay_the_same(tmp_path: Path):
    for tries in (1, 4):
        settings = config.load("guess_number_table", [*SMALL, f"evaluate.tries={tries}"]).config
        trained(tmp_path / str(tries), settings)
    one, four = (list(read_episodes(tmp_path / name)) for name in ("1", "4"))
    assert one == four
    [exam] = [r for r in read_metrics(tmp_path / "4") if r["kind"] == "evaluation"][-1:]
    curve = exam["sampled"]["pass_at"]
    assert curve["1"] == pytest.approx(exam["sampled"]["success"])
    assert curve["1"] <= curve["2"] <= curve["4"]
    [plain] = [r for r in read_metrics(tmp_path / "1") if r["kind"] == "evaluation"][-1:]
    assert "pass_at" not in plain["sampled"] and plain["greedy"] == exam["greedy"]
