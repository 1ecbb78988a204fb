"""Dynamic sampling (`train.refill`): starts that teach nothing are played anew, bounded and
counted; a killed run ends as an unbroken one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import read_episodes
from gem_ma.training.schedule.checks import checked
from gem_ma.training.train import run_training
from tests.broken_runs import broken_and_whole, steps_of, trained

SMALL = (
    "train.estimator.name=grpo",
    "train.group_size=4",
    "train.refill=2",
    "train.episodes=16",
    "train.steps=6",
    "train.save_every=2",
    "train.on_collapse=off",
    "evaluate.every=null",
    "evaluate.episodes=8",
    "run.baselines=false",
)


def small(name: str, *overrides: str) -> Config:
    return config.load(name, [*SMALL, *overrides]).config


def idle(starts: list[list]) -> list[int]:
    """The places of the starts whose plays paid all alike, in exact fractions."""
    paid = [
        {sum(Fraction(entry.value) for entry in episode.ledger) for episode in start}
        for start in starts
    ]
    return [place for place, sums in enumerate(paid) if len(sums) == 1]


@pytest.mark.long
def test_idle_starts_are_played_anew_as_a_slow_loop_over_the_record_says(tmp_path):
    trained(tmp_path / "run", small("hanoi_table"))
    episodes = list(read_episodes(tmp_path / "run"))
    assert len({episode.id for episode in episodes}) == len(episodes)
    at = 0

    def next_starts(count: int) -> list[list]:
        nonlocal at
        found = [episodes[at + 4 * n : at + 4 * n + 4] for n in range(count)]
        at += 4 * count
        assert all(len({episode.group for episode in start}) == 1 for start in found)
        return found

    learned = 0
    for line in steps_of(tmp_path / "run"):
        starts = next_starts(4)
        counts = {"starts": 4, "idle": len(idle(starts)), "plays": 0}
        for _ in range(2):
            places = idle(starts)
            for place, start in zip(places, next_starts(len(places)), strict=True):
                starts[place] = start
                counts["plays"] += 4
        assert line["refill"] == {**counts, "left": len(idle(starts))}
        # a step learns from as many plays as it has without
        turns = sum(len(episode.turns) for start in starts for episode in start)
        assert line["policies"]["player"]["turns"] == turns
        learned += counts["plays"]
    assert at == len(episodes) and learned > 0


MIXED = (
    "train.episodes=24",
    "train.group_size=2",
    "train.overlap=2",
    "scenarios.numbers.tasks=3",
    "evaluate.scenarios={}",
)
LEAGUE = ("train.group_size=2", "train.overlap=true", "train.pool.every=2")
FORKS = ("train.fork={width: 2, at: random}", "train.group_size=2")
LORA = (
    "train.warm_start={}",
    "train.steps=4",
    "train.episodes=8",
    "train.group_size=2",
    "train.overlap=true",
)


@pytest.mark.longest
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mixture", MIXED),
        ("kuhn_league", LEAGUE),
        ("guess_number_table", FORKS),
        ("kuhn_tiny", LORA),
    ],
    ids=["mixture", "league", "forks", "lora"],
)
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, name, words, request):
    if name == "kuhn_tiny":
        model = request.getfixturevalue("thin_model")
        words = (*words, f"policies.main={{model: transformers/{model}, lora: {{rank: 2}}}}")
    settings = small(name, *words)
    broken_and_whole(tmp_path, settings)
    assert sum(line["refill"]["plays"] for line in steps_of(tmp_path / "whole")) > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("train.estimator.name=rebn",), "train.refill: .* rebn .* other starts"),
        (("train.estimator.name=reinforce",), "train.refill: .* reinforce"),
        (("train.estimator.key=[task, agent]",), "train.refill: .* grpo"),
        (("train.group_size=1", "train.fork={width: 2}"), "train.refill: every start is played"),
    ],
)
def test_what_has_no_idle_starts_is_refused_in_one_line(words, line):
    settings = small("hanoi_table", *words)
    with pytest.raises(ConfigError, match=line) as refused:
        checked(settings, settings.policies)
    assert "\n" not in str(refused.value)


@pytest.mark.longest
def test_with_refill_the_same_number_of_updates_learns_more():
    words = (
        "train.estimator.name=dr_grpo",
        "train.group_size=2",
        "train.credit.gamma=1",
        "train.lr=0.1",
        "evaluate.episodes=256",
    )

    def score(*more: str) -> float:
        summary = run_training(small("hanoi_table", *words, *more))
        return summary["after"]["sampled"]["success"]

    for seed in range(3):
        plain, filled = (score(f"run.seed={seed}", f"train.refill={n}") for n in (0, 4))
        assert filled > plain + 0.1, seed
