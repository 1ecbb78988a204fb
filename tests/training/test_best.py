"""The weights of the best exam are kept (`train.checkpoints.best`): they are those of its step, a
killed run keeps the same, and a score that exams lack is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import make
from gem_ma.runs.store import read_metrics
from gem_ma.scores.exploitability import engine_strategy, exploitability
from gem_ma.training.loop.attendants import Best
from gem_ma.training.loop.measures import measures_of
from gem_ma.training.loop.step import Step
from gem_ma.training.train import run_training
from tests import broken_runs
from tests.broken_runs import break_off
from tests.plays import played_all

SMALL = (
    "train.steps=6",
    "train.episodes=8",
    "train.save_every=2",
    "train.lr=0.5",
    "evaluate.episodes=8",
    "evaluate.every=1",
    "run.baselines=false",
)


def small(*words: str, name: str = "kuhn_table") -> Config:
    return config.load(name, [*SMALL, *words]).config


def trained(path: Path, *words: str, **options) -> dict:
    return broken_runs.trained(path, small(*words, **options))


def weights(path: Path) -> dict[str, bytes]:
    """A model is a file or a folder."""
    files = [path] if path.is_file() else [f for f in sorted(path.rglob("*")) if f.is_file()]
    assert files
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.long
@pytest.mark.parametrize(
    ("measure", "words"), [("nash_conv", ("train.overlap=2",)), ("sampled.return.player_0", ())]
)
def test_the_best_exam_is_kept_with_the_weights_of_its_step(tmp_path, measure, words):
    best = f"train.checkpoints.best={measure}"
    summary = trained(tmp_path / "whole", best, *words)

    def score(row):
        for word in measure.split("."):
            row = row[word]
        return row

    exams = [row for row in read_metrics(tmp_path / "whole") if row["kind"] == "evaluation"]
    pick = min if measure == "nash_conv" else max
    wanted = pick(exams, key=score)  # of equals the first
    kept = summary["best"]
    assert (kept["step"], kept["score"]) == (wanted["step"], score(wanted))
    # a run that ends at that step has these weights as its last
    if wanted["step"]:
        trained(tmp_path / "short", f"train.steps={wanted['step']}", *words)
        assert weights(tmp_path / "whole/models/main.best") == weights(
            tmp_path / "short/models/main"
        )
    break_off(tmp_path / "broken", small(best, *words), 5)
    assert trained(tmp_path / "broken", best, *words)["best"] == kept
    for part in ("models", "checkpoints/step-000006"):
        assert weights(tmp_path / "broken" / part) == weights(tmp_path / "whole" / part)
    assert json.loads((tmp_path / "broken/summary.json").read_text())["best"] == kept


@pytest.mark.long
def test_of_several_policies_and_worlds_each_is_kept(tmp_path):
    words = ("train.checkpoints.best=sampled numbers.success", "evaluate.scenarios={}")
    summary = trained(tmp_path / "run", "train.episodes=16", *words, name="mixture")
    assert all((tmp_path / "run" / path).exists() for path in summary["best"]["models"].values())


@pytest.mark.long
def test_a_refusal_names_scores_that_exams_have():
    """No play of a game of cards succeeds: that score is there, and is not a number."""
    name = "train.checkpoints.best=sampled.success"
    with pytest.raises(ConfigError, match=r"such as sampled\.return\.player_0, ") as refused:
        run_training(small(name))
    assert "success" not in str(refused.value).partition("such as")[2]
    names = str(refused.value).partition("such as ")[2].split(", ")
    for known in (names[0], names[-1]):
        run_training(small(f"train.checkpoints.best={known}"))


def test_a_score_that_exams_lack_is_refused_before_anything_is_learned():
    settings = small("train.checkpoints.best=sampled.elo")
    with pytest.raises(
        ConfigError, match=r"no score 'sampled.elo'; such as .*nash_conv"
    ) as refused:
        run_training(settings, on_step=lambda *_: pytest.fail("it learned"))
    assert "\n" not in str(refused.value)


def test_of_a_score_of_the_average_the_average_is_kept(tmp_path):
    words = ("train.checkpoints.best=nash_conv_averaged", "train.steps=3", "run.concurrency=8")
    kept = trained(tmp_path, *words)["best"]
    table = Table(str(tmp_path / kept["models"]["main"]), policy="main")
    found = exploitability(make("kuhn_poker"), engine_strategy(table))
    assert found.nash_conv == pytest.approx(kept["score"], abs=1e-12)


@pytest.mark.parametrize("measure", ["nash_conv", "score"])
def test_a_score_that_is_no_number_is_no_best(measure):
    best, nothing = Best(measure, dict, None), float("nan")
    for number, score in enumerate([nothing, 2.0, nothing, 2.0, nothing]):
        best.examined(Step(number, scores={measure: score}))
    assert best.exam == {"step": 1.0, "score": 2.0}


def test_an_agent_may_have_a_dot_in_its_name_and_an_exam_may_lack_a_measure():
    best = Best("sampled.return.x.4", dict, None)
    best.examined(Step(0, scores={"sampled": {"return": {"x.4": 2.0}}}))
    assert best.exam == {"step": 0.0, "score": 2.0}
    best = Best("sampled.scores.a/b", lambda: {"main": Table(policy="main")}, None)
    assert best.summary()["best"]["models"] == {}
    found = [{"a/b": 1.0}, {}, {"a/b": None}, {"a/b": 3.0}]
    for number, scores in enumerate(found):
        best.examined(Step(number, scores={"sampled": {"ok": 2, "scores": scores}}))
    assert best.exam == {"step": 3.0, "score": 3.0}


def test_an_exam_whose_plays_all_failed_is_no_best():
    scenario = make("kuhn_poker")
    cast = dict.fromkeys(scenario.agents, Seat("random_legal"))
    plans = [Plan(scenario, cast, seed=seed) for seed in range(6)]
    exams = [measures_of(played_all(plans[:count]), scenario) for count in (0, 2, 0, 6, 0)]
    best = Best("sampled.return.player_0", dict, None)
    for number, exam in enumerate(exams):
        best.examined(Step(number, scores={"sampled": exam}))
    returns = [exam["return"]["player_0"] for exam in exams]
    assert returns[::2] == [None] * 3
    wanted = max((1, 3), key=lambda number: returns[number])
    assert best.exam == {"step": wanted, "score": returns[wanted]}
