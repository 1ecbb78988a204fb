"""Defects that public trainers of language-model agents have had, as tests by what must hold. Here
those that no room has by itself; the others, and where their tests are:

oat's and tinker's return batch normalisation, verl's GRPO of one, MARSHAL's statistics,
SPIRAL's and tinker's baselines, UnstableBaselines' moved baseline, rLLM's and TRL's one scalar
    tests/credit: every estimator beside a slow one in exact fractions
CoMLRL's slice of tokens and its replacement of a NaN loss
    tests/training/test_rows.py, tests/training/test_learner.py
PettingLLMs's best branch for all and its discount by turn index
    tests/training/test_forking.py, tests/credit/test_credit.py
prime-rl's lost baselines: a resumed run is the uninterrupted one
    tests/training/test_train.py, tests/faults/test_killed_training.py
a truncation that counts as an end: a cut play goes on with the critic's value
    tests/training/test_critic.py
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gem_ma import Ask, Reward, Scenario, config
from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.types import Reply
from gem_ma.runs.plans import open_policies
from gem_ma.runs.store import RunFolder, read_episodes, read_metrics
from gem_ma.runs.store.lines import read_resolved
from gem_ma.training.loop.measures import measures
from gem_ma.training.train import train
from tests.broken_runs import opened
from tests.fault_server import FaultServer, says
from tests.plays import played_all

# -- collection and scores -----------------------------------------------------------------------


class TwoLengths(Scenario):
    """Half of the plays have one turn, half have nine: a collector that stops when enough turns
    are there sees mostly short ones."""

    agents = ("a",)

    def tasks(self, split: str) -> tuple[int, ...]:
        return (1, 9)

    def play(self, rng: random.Random, task: Any) -> Iterator[Any]:
        for turn in range(task):
            yield Ask({"a": f"turn {turn}"}, legal=("on", "still on"))
        yield Reward({"a": float(task == 9)})


@pytest.mark.long
@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_a_scenario_of_two_lengths_comes_back_in_equal_shares(
    tmp_path: Path, concurrency: int
) -> None:
    class Slow(Table):
        async def sample(self, request: Any) -> Reply:
            await asyncio.sleep(0.0005)
            return await super().sample(request)

    values = {
        "scenario": {"id": "x"},
        "agents": {"a": {"policy": "main"}},
        "policies": {"main": {"model": "table/softmax"}},
    }
    values |= {
        "train": {"policies": ["main"], "steps": 3, "episodes": 10},
        "evaluate": {"episodes": 2},
        "run": {"concurrency": concurrency},
    }
    settings = Config.model_validate(values)
    with opened(tmp_path / "run", settings) as folder:
        asyncio.run(
            train(settings, TwoLengths(), {"main": Policy("main", Slow(policy="main"))}, folder)
        )
    episodes = list(read_episodes(tmp_path / "run"))
    for step in range(3):
        assert (
            sorted(len(episode.turns) for episode in episodes[10 * step : 10 * step + 10])
            == [1] * 5 + [9] * 5
        )
    lines = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert [line["return"]["a"] for line in lines] == [0.5] * 3
    assert [line["policies"]["main"]["turns"] for line in lines] == [50] * 3


class Puzzle(Scenario):
    """Nine cells at 1/9 each, so that the last reward of a solved play is 1/9; a failed one
    consoles with a last reward of 1."""

    agents = ("a",)

    def play(self, rng: random.Random, task: Any) -> Iterator[Any]:
        solved = rng.random() < 0.5
        for cell in range(9):
            yield Ask({"a": f"cell {cell}"}, legal=("fill",))
            yield Reward({"a": 1 / 9 if solved else 0.0})
        if not solved:
            yield Reward({"a": 1.0})

    def success(self, episode: Episode) -> bool | None:
        return sum(entry.value > 0 for entry in episode.ledger) == 9


def test_success_is_declared_by_the_scenario_and_not_read_off_the_last_reward() -> None:
    plans = [Plan(Puzzle(), {"a": Seat("first_legal")}, seed=seed) for seed in range(20)]

    episodes = played_all(plans)
    solved = sum(episode.ledger[-1].value < 1 for episode in episodes)
    assert 0 < solved < 20
    assert measures(episodes, Puzzle())["success"] == solved / 20

    class Undeclared(Puzzle):
        """The same rules, and no word on what success is."""

        success = Scenario.success

    assert measures(episodes, Undeclared())["success"] is None  # none is invented


# -- tokens and sampling -------------------------------------------------------------------------


TALK = """
scenario: {{id: dilemma, rounds: 1}}
agents:
  player_0: {{policy: talker}}
  player_1: {{behaviour: random_legal}}
policies:
  talker: {{model: openai/m, base_url: "{url}", api_key: EMPTY, {sampling}}}
run: {{baselines: false}}
"""


def test_temperature_zero_is_sent_and_recorded(tmp_path: Path) -> None:
    from gem_ma.runs.plans import scenario_of

    with FaultServer(lambda asked: says("cooperate")) as server:
        file = tmp_path / "talk.yaml"
        file.write_text(TALK.format(url=server.url, sampling="temperature: 0, top_p: 0.5"))
        loaded = config.load(file)
        policies = open_policies(loaded.config)
        plan = Plan(
            scenario_of(loaded.config),
            {"player_0": Seat("direct", "talker"), "player_1": Seat("random_legal")},
            seed=1,
        )

        async def play() -> list[Episode]:
            return [episode async for episode in play_many([plan], policies)]

        (episode,) = asyncio.run(play())
        sent = server.asked[0].body
    assert episode.end is End.TERMINATED, episode.error
    assert (sent["temperature"], sent["top_p"]) == (0, 0.5)
    with RunFolder.open(tmp_path / "run", config_text=loaded.text, resolved=loaded.resolved()):
        pass
    talker = read_resolved(tmp_path / "run")["policies"]["talker"]
    assert (talker["temperature"], talker["top_p"], talker["top_k"], talker["max_tokens"]) == (
        0,
        0.5,
        None,  # nobody named it, so it was not sent
        256,
    )
