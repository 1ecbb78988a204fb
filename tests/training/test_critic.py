"""Critics: what they read, what they learn, and that a resumed one goes on exactly."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_ma import Ask, Leave, Scenario, config, credit
from gem_ma.config.learning import CriticSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.kernel.episode import End, Episode, Limits, Seat
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Sampling
from gem_ma.runs.store import read_metrics
from gem_ma.training.learner.critic import TableCritic
from gem_ma.training.loop.updates import check_critics, still_here
from gem_ma.training.train import run_training
from tests import plays
from tests.broken_runs import steps_of, trained
from tests.plays import played_all

SETTINGS = CriticSettings()


def hands(engine: Any, count: int = 32, limits: Limits | None = None) -> list[Episode]:
    """Hands of Kuhn that one policy plays with itself."""
    asked = engine if hasattr(engine, "sample") else Batched(engine)
    policy = Policy("main", asked, Sampling(max_tokens=4))
    played = plays.hands(policy, count=count, limits=limits or Limits())
    assert all(episode.end.scored for episode in played)
    return played


def table_engine() -> Any:
    return open_engine("main", "table/softmax")


@pytest.mark.long
def test_a_table_critic_learns_the_mean_return_of_a_view() -> None:
    table = credit.turns(hands(table_engine(), 200), "main")
    critic = TableCritic()
    assert critic.values(table).tolist() == [0.0] * len(table)
    for _ in range(40):
        critic.fit(table, table.ret, SETTINGS, random.Random(0))
    keys, values = table.column("state_key"), critic.values(table)
    for key in set(keys.tolist()):
        assert values[keys == key] == pytest.approx(table.ret[keys == key].mean(), abs=1e-3)


def test_a_view_that_was_never_met_is_worth_the_mean() -> None:
    table = credit.turns(hands(table_engine(), 60), "main")
    first = table.k == 0
    critic = TableCritic()
    critic.fit(table.take(first), table.ret[first], SETTINGS, random.Random(0))
    assert set(critic.values(table)[~first].tolist()) == {critic.mean}


def test_a_cut_play_goes_on_with_the_critics_value_of_the_last_view() -> None:
    whole, cut = hands(table_engine(), 60), hands(table_engine(), 60, Limits(max_steps=1))
    assert {episode.end for episode in cut} == {End.MAX_STEPS}
    critic = TableCritic()
    table = credit.turns(whole, "main")
    critic.fit(table, table.ret + 3.0, SETTINGS, random.Random(0))
    tails = critic.tails(cut, "main")
    assert tails.keys() == {
        (index, agent) for index in range(60) for agent in ("player_0", "player_1")
    }
    seen = dict(zip(table.column("state_key").tolist(), critic.values(table).tolist(), strict=True))
    assert any(value in seen.values() and value != critic.mean for value in tails.values())
    returns = credit.turns(cut, "main", tails=tails).ret
    assert returns.tolist() == [tails[index, "player_0"] for index in range(60)]


@pytest.fixture
def torch_critic(thin_model: Path) -> Any:
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.training.learner.torch_critic import TorchCritic

    engine: Any = open_engine("main", f"transformers/{thin_model}")
    return TorchCritic(engine.engine)


def test_a_model_critic_reads_the_prompt_and_not_the_answer(torch_critic: Any) -> None:
    table = credit.turns(hands(torch_critic.engine), "main")
    torch_critic.fit(table, table.ret, SETTINGS, random.Random(0))
    keys, values = table.column("state_key"), torch_critic.values(table)
    for key in set(keys.tolist()):  # the same view, whatever was answered
        assert np.ptp(values[keys == key]) < 1e-5
    assert len({round(float(values[keys == key][0]), 4) for key in set(keys.tolist())}) > 3


@pytest.mark.long
def test_what_many_plays_begin_with_is_read_once_and_changes_no_number(
    torch_critic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gem_ma.training.learner import torch_critic as module

    table = credit.turns(hands(torch_critic.engine), "main")
    read: list[int] = []
    forward = type(torch_critic)._forward
    counted = lambda critic, batch: read.append(len(batch)) or forward(critic, batch)  # noqa: E731
    monkeypatch.setattr(type(torch_critic), "_forward", counted)

    def learned() -> Any:
        critic = type(torch_critic)(torch_critic.engine)
        for seed in range(2):
            critic.fit(table, table.ret, SETTINGS, random.Random(seed))
        read.clear()
        return critic.values(table)

    merged = learned()
    few = sum(read)
    monkeypatch.setattr(module, "_merged", list)
    assert learned() == pytest.approx(merged, abs=1e-5)
    assert np.ptp(merged) > 1e-3
    assert few < sum(read) / 2


@pytest.mark.long
@given(st.lists(st.lists(st.integers(-1, 2), min_size=1, max_size=5), max_size=12))
def test_of_merged_sequences_none_begins_another_and_each_read_sees_what_it_saw(
    drawn: list[list[int]],
) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.training.learner.torch_critic import _merged

    made = [(np.array(ids), [(len(ids) - 1, turn)]) for turn, ids in enumerate(drawn)]
    merged = _merged(made)
    seen = {turn: ids[: at + 1].tolist() for ids, places in merged for at, turn in places}
    assert seen == dict(enumerate(drawn))
    whole = [ids.tolist() for ids, _ in merged]
    assert not any(one == other[: len(one)] for one in whole for other in whole if one is not other)
    assert all(len(places) == 1 for _, places in made)  # what is given stays as it was


@pytest.mark.longest
def test_a_model_critic_fits_what_depends_on_the_view_and_leaves_the_policy_alone(
    torch_critic: Any,
) -> None:
    table = credit.turns(hands(torch_critic.engine, 64), "main")
    before = torch_critic.engine.fingerprint()
    views = [str(e.transcript(str(a))) for e, a in zip(table.episodes, table.agent, strict=True)]
    targets = np.array(
        [
            next(float("JQK".index(card)) - 1 for card in "JQK" if f"card is {card}" in view)
            for view in views
        ]
    )
    assert torch_critic.values(table).tolist() == [0.0] * len(table)
    quality = [
        torch_critic.fit(table, targets, replace_settings(lr=1e-2, epochs=4), random.Random(step))
        for step in range(8)
    ]
    assert quality[-1]["explained"] > 0.9 > quality[0]["explained"]
    assert torch_critic.engine.fingerprint() == before


def replace_settings(**changed: Any) -> CriticSettings:
    return SETTINGS.model_copy(update=changed)


@pytest.mark.long
def test_a_resumed_critic_is_the_same_bit_for_bit(torch_critic: Any, thin_model: Path) -> None:
    table = credit.turns(hands(torch_critic.engine), "main")
    torch_critic.fit(table, table.ret, SETTINGS, random.Random(0))
    twin = type(torch_critic)(torch_critic.engine)
    twin.load(torch_critic.state())
    for critic in (torch_critic, twin):
        critic.fit(table, table.ret, SETTINGS, random.Random(1))
    assert torch_critic.values(table).tolist() == twin.values(table).tolist()
    for critic in (TableCritic(), twin):
        with pytest.raises(DataError, match="critic cannot be read"):
            critic.load({"critic.json": b"{"})


def small(*overrides: str) -> Any:
    base = (
        "train.steps=6",
        "train.episodes=16",
        "train.save_every=2",
        "evaluate.episodes=8",
        "train.estimator.name=gae",
    )
    return config.load("kuhn_table", [*base, *overrides]).config


@pytest.mark.long
def test_training_with_a_critic_learns_logs_and_resumes_as_one(tmp_path: Path) -> None:
    def run(path: Path, stop: int | None = None) -> dict[str, Any]:
        def on_step(step: int, metrics: dict[str, Any]) -> None:
            if step == stop:
                raise KeyboardInterrupt

        settings = small("train.estimator.options={lam: 0.9}")
        return trained(path, settings, on_step=on_step)

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", stop=5)
    again = run(tmp_path / "cut")
    assert whole["weights"] == again["weights"] and whole["changed"]
    lines = steps_of(tmp_path / "whole")
    assert all(
        {"value_loss", "explained"} <= set(policy)
        for line in lines
        for policy in line["policies"].values()
    )
    assert list(read_metrics(tmp_path / "whole")) == list(read_metrics(tmp_path / "cut"))


def test_values_take_the_place_of_the_column(tmp_path: Path) -> None:
    from gem_ma.training.learner.critic import valued

    table = credit.turns(hands(table_engine(), 10), "main")
    critic = TableCritic()
    critic.fit(table, table.ret, SETTINGS, random.Random(0))
    assert valued(table, critic).value.tolist() == critic.values(table).tolist()
    assert replace(valued(table, critic), value=table.value).value.tolist() == [0.0] * len(table)


class Leaver(Scenario):
    """Agent a leaves after its first turn; b goes on."""

    agents = ("a", "b")

    def play(self, rng, task):
        yield Ask({"a": "a?", "b": "b?"}, legal=("x", "y"))
        yield Leave("a")
        for _ in range(9):
            yield Ask({"b": "b?"}, legal=("x", "y"))


def test_for_an_agent_that_has_left_nothing_follows_where_the_driver_cuts() -> None:
    seats = {agent: Seat("random_legal") for agent in Leaver.agents}
    plans = [
        Plan(Leaver(), seats, "train/0", 1, repeat, limits=Limits(max_steps=3))
        for repeat in range(2)
    ]

    episodes = played_all(plans)
    assert all(episode.end.bootstraps for episode in episodes)
    tails = {(index, agent): 1.0 for index in range(2) for agent in Leaver.agents}
    assert still_here(lambda _: Leaver(), episodes, tails) == {(0, "b"): 1.0, (1, "b"): 1.0}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("train.estimator.name=gae", "train.critic.epochs=8"),
            r"^train\.critic\.epochs: .* step;",
        ),
        (("train.critic.step=0.5",), r"^train\.critic\.step: .* \(gae has\)"),
        (
            ("train.estimator.name=gae", "train.per_policy.main.critic={lr: 0.1}"),
            r"^train\.critic\.lr: does nothing",
        ),
    ],
)
def test_a_key_that_no_critic_reads_is_refused(overrides: tuple[str, ...], message: str) -> None:
    settings = config.load("kuhn_table", ["train.steps=1", "train.episodes=8", *overrides]).config
    with pytest.raises(ConfigError, match=message):
        run_training(settings, on_step=lambda *_: pytest.fail("it learned"))


@pytest.mark.parametrize("where", ["critic", "per_policy.main.critic"])
def test_a_key_for_all_may_be_another_critics_and_a_key_for_one_is_its_own(where: str) -> None:
    words = ["train.estimator.name=gae", f"train.{where}.lr=0.1"]
    settings = config.load("kuhn_table", words).config.train
    critics: dict[str, Any] = {"main": TableCritic(), "other": SimpleNamespace(reads=("lr",))}
    with nullcontext() if where == "critic" else pytest.raises(ConfigError, match=r"read step;"):
        check_critics(settings, critics)


def test_a_critic_of_a_table_takes_its_step() -> None:
    words = ["train.estimator.name=gae", "train.critic.step=0.5", "train.steps=1"]
    small = ["train.episodes=8", "evaluate.episodes=4", "run.baselines=false"]
    assert run_training(config.load("kuhn_table", words + small).config)["steps"] == 1
