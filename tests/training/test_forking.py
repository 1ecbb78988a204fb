"""Group sampling from the middle of an episode: what branches share, what they are trained on,
and that a killed run ends as an unbroken one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from gem_ma import Action, Ask, Plan, Reward, Scenario, Seat, Tell, config, credit
from gem_ma.config.settings import Config
from gem_ma.config.training import ForkSettings
from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.scenario import Call, replay
from gem_ma.registry import make, task_of
from gem_ma.runs.store import read_episodes
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.collector import cost, grow
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.train import run_training, train
from tests.broken_runs import broken_and_whole, opened, steps_of, trained, truth


class Market(Scenario):
    """Five rounds: a price is drawn and looked up, the buyer bids, the seller answers."""

    agents = ("buyer", "seller")

    def play(self, rng, task):
        for _ in range(5):
            price = rng.randrange(4)
            listed = yield Call(lambda value: value * 10, price)
            said = yield Ask({"buyer": f"listed at {listed}"}, legal=("low", "middle", "high"))
            heard = yield Ask({"seller": f"bid {said['buyer'].parsed}"}, legal=("yes", "no"))
            yield Tell({"buyer": f"the seller says {heard['seller'].parsed}"})
            yield Reward(
                {"buyer": ("low", "middle", "high").index(said["buyer"].parsed) - price}, why="deal"
            )


class Moody:
    """Says yes the more readily the more often it was asked; its state is its own."""

    def __init__(self, agent, sample, rng, task=None):
        self.rng, self.asked = rng, 0

    async def act(self, asked):
        self.asked += 1
        text = "yes" if self.rng.random() < self.asked / 6 else "no"
        return Action(text, (), text)


SEATS = {"buyer": Seat(policy="main"), "seller": Seat("test_forking:Moody")}
BEHAVIOURS = {"seller": Moody}


def policies() -> dict[str, Policy]:
    return {"main": Policy("main", Table(policy="main"))}


def settings_of(**fork) -> Config:
    values = {
        "scenario": {"id": "x"},
        "agents": {"buyer": {"policy": "main"}, "seller": {"behaviour": f"{__name__}:Moody"}},
    }
    values |= {"policies": {"main": {"model": "table/softmax"}}}
    values |= {
        "train": {
            "policies": ["main"],
            "steps": 2,
            "episodes": 4,
            "estimator": {"name": "grpo"},
            "fork": fork,
        }
    }
    return Config.model_validate(values)


def grown(**fork) -> tuple[list[Episode], list[Episode], dict]:
    """(trunks, branches, metrics) of one step."""
    settings = settings_of(**fork)

    async def work():
        opened = policies()
        plans = training_plans(Worlds.of(settings, Market()), settings.train, 0)
        trunks = await LocalPlayers(settings, opened).play(plans)
        found = await grow(
            settings, settings.train, 0, plans, trunks, LocalPlayers(settings, opened)
        )
        return trunks, list(found.episodes), dict(found.metrics)

    return asyncio.run(work())


def acts(episode: Episode, until: int) -> list[tuple]:
    return [
        (turn.step, turn.agent, turn.observed, turn.action, turn.replies)
        for turn in episode.turns
        if turn.step < until
    ]


def test_branches_share_the_recorded_prefix_and_differ_afterwards():
    trunks, branches, metrics = grown(width=6, at=4)
    assert metrics == {"points": 4, "branches": 24, "failed": 0}
    for trunk in trunks:
        mine = [branch for branch in branches if branch.seed == trunk.seed]
        assert len(mine) == 6 and len({branch.group for branch in mine}) == 1
        assert {step for branch in mine for step, _ in branch.forks} == {4}
        assert len({branch.forks for branch in mine}) == 6
        assert all(acts(branch, 4) == acts(trunk, 4) for branch in mine)
        assert all(branch.calls[:3] == trunk.calls[:3] for branch in mine)
        first = {branch.turns[4].observed for branch in mine}
        assert len(first) == 1  # one state, several actions
        assert (
            len(
                {
                    tuple(t.action.text for t in branch.turns if t.agent == "seller")
                    for branch in mine
                }
            )
            > 1
        )
        # chance after the fork is drawn anew
        assert len({tuple(call.value for call in branch.calls) for branch in mine}) > 1
    assert len({episode.id for episode in [*trunks, *branches]}) == 4 + 24
    assert len({branch.group for branch in branches}) == 4


def test_no_sampled_token_is_trained_twice_and_none_is_left_out():
    trunks, branches, _ = grown(width=3, at="every", depth=3)
    table = credit.turns([*trunks, *branches], "main")
    rows = Counter(
        (episode.id, turn.step) for episode, turn in zip(table.episodes, table.turns, strict=True)
    )
    assert set(rows.values()) == {1}
    own = {
        (e.id, t.step)
        for e in [*trunks, *branches]
        for t in e.turns
        if t.agent == "buyer" and t.step >= max((s for s, _ in e.forks), default=0)
    }
    assert set(rows) == own
    for branch in branches:
        at = max(step for step, _ in branch.forks)
        assert min(step for id_, step in rows if id_ == branch.id) == at


def test_the_record_of_a_branch_is_replayed_exactly():
    _, branches, _ = grown(width=2, at="random", depth=3)
    assert {len(branch.forks) for branch in branches} == {1, 2, 3}
    for branch in branches:
        game = replay(Market(), None, branch.seed, branch.turns, branch.calls, branch.forks)
        assert (tuple(game.turns), tuple(game.ledger), tuple(game.forks), game.over) == (
            branch.turns,
            branch.ledger,
            branch.forks,
            True,
        )


def test_behaviours_go_on_from_the_state_that_they_had():
    async def work():
        trunk = await play(Plan(Market(), SEATS, seed=5), policies(), BEHAVIOURS)
        states = []

        class Watched(Moody):
            async def act(self, asked):
                said = await super().act(asked)
                states.append((asked.step, self.asked, len(asked.transcript)))
                return said

        branch = await play(
            Plan(Market(), SEATS, seed=5, repeat=9, branch=Branch(trunk, 7, "s", 0)),
            policies(),
            {"seller": Watched},
        )
        return trunk, branch, states

    trunk, branch, states = asyncio.run(work())
    assert branch.end is End.TERMINATED, branch.error
    assert acts(branch, 7) == acts(trunk, 7)
    assert states == [(1, 1, 1), (3, 2, 3), (5, 3, 5), (7, 4, 7), (9, 5, 9)]


def test_a_behaviour_that_does_not_repeat_itself_fails_its_branch_in_words():
    count = 0

    class Whimsical(Moody):
        async def act(self, asked):
            nonlocal count
            count += 1
            return Action("yes" if count % 2 else "no", (), None)

    class Greedy(Moody):
        def __init__(self, agent, sample, rng, task=None):
            self.sample = sample

        async def act(self, asked):
            nonlocal count
            count += 1
            for _ in range(1 + (count > 5)):
                reply = await self.sample(asked.transcript, legal=asked.legal)
            return reply.text

    async def forked(factory, policy=None):
        seats = {**SEATS, "seller": Seat("x", policy=policy)}
        trunk = await play(Plan(Market(), seats, seed=5), policies(), {"seller": factory})
        assert trunk.end is End.TERMINATED, trunk.error
        return await play(
            Plan(Market(), seats, seed=5, repeat=9, branch=Branch(trunk, 6, "s", 0)),
            policies(),
            {"seller": factory},
        )

    branch = asyncio.run(forked(Whimsical))
    assert branch.end is End.FAILED
    assert "agent 'seller', step 1: its behaviour does not repeat what it did" in (
        branch.error or ""
    )
    count = 0
    branch = asyncio.run(forked(Greedy, "main"))
    assert branch.end is End.FAILED
    assert "asks its model more often than on record" in (branch.error or "")


def test_a_decision_point_that_is_not_on_record_cannot_be_forked():
    async def work():
        trunk = await play(Plan(Market(), SEATS, seed=5), policies(), BEHAVIOURS)
        return await play(
            Plan(Market(), SEATS, seed=5, repeat=9, branch=Branch(trunk, 10, "s", 0)),
            policies(),
            BEHAVIOURS,
        )

    branch = asyncio.run(work())
    assert branch.end is End.FAILED and "no decision point 10" in (branch.error or "")


def test_points_are_decision_points_of_learners():
    for at, steps in ((0, {0}), (1, {2}), (5, {6}), (9, set()), ("random", {0, 2, 4, 6, 8})):
        _, branches, metrics = grown(width=2, at=at)
        found = {step for branch in branches for step, _ in branch.forks}
        assert found <= steps and (found or not steps)
        assert metrics["branches"] == 2 * metrics["points"] == len(branches)
    _, branches, metrics = grown(width=2, at="every")
    assert metrics["points"] == 4 * 5
    assert {branch.forks[-1][0] for branch in branches} == {0, 2, 4, 6, 8}


@pytest.mark.long
def test_only_decision_points_of_policies_that_learn_at_this_step_are_forked():
    values = settings_of(width=2, at="every").model_dump()
    values["agents"]["seller"] = {"policy": "other"}
    values["policies"]["other"] = {"model": "table/softmax"}
    values["train"] |= {"policies": ["main", "other"], "alternate": {"main": 1, "other": 2}}
    settings = Config.model_validate(values)

    async def points(step: int) -> set[int]:
        opened = {name: Policy(name, Table(policy=name)) for name in ("main", "other")}
        plans = training_plans(Worlds.of(settings, Market()), settings.train, step)
        trunks = await LocalPlayers(settings, opened).play(plans)
        branches = (
            await grow(
                settings, settings.train, step, plans, trunks, LocalPlayers(settings, opened)
            )
        ).episodes
        return {branch.forks[-1][0] for branch in branches}

    buyer, seller = {0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}
    assert [asyncio.run(points(step)) for step in range(4)] == [buyer, seller, seller, buyer]


def test_a_drawn_branch_is_forked_next():
    _, branches, _ = grown(width=4, at="every", depth=2)
    assert all(len(branch.forks) == 2 for branch in branches if branch.forks[-1][0] == 2)


def test_what_forks_cost_is_said_and_capped():
    settings = settings_of(width=3, at="every", depth=4).train
    assert (
        cost(settings)
        == "train.fork: every step plays 4 plays and up to 48 branches (4 x 3 of each play), 104"
        " in all"
    )
    assert cost(settings.model_copy(update={"fork": None})) is None
    for wrong in (
        {"width": 1},
        {"width": 65},
        {"width": 2, "depth": 33},
        {"width": 2, "at": -1},
        {"width": 2, "at": "some"},
    ):
        with pytest.raises(ValueError):
            ForkSettings.model_validate(wrong)


GUESS = (
    "train.steps=6",
    "train.episodes=8",
    "train.save_every=2",
    "evaluate.episodes=8",
    "train.fork={width: 3, at: random, depth: 2}",
)


def small(*overrides: str) -> Config:
    return config.load("guess_number_table", [*GUESS, *overrides]).config


@pytest.mark.long
@pytest.mark.parametrize("name", ["grpo", "gigpo", "at_grpo", "c3", "magrpo", "rebn"])
def test_estimators_learn_from_groups_of_branches(tmp_path, name):
    settings = small(f"train.estimator.name={name}", "train.steps=2")
    summary = trained(tmp_path / "run", settings)
    assert summary["changed"] == ["player"]
    lines = steps_of(tmp_path / "run")
    # scores are of trunks alone
    assert all(line["episodes"] == 8 and line["forks"]["branches"] > 8 for line in lines)
    assert len(list(read_episodes(tmp_path / "run"))) == sum(
        8 + line["forks"]["branches"] for line in lines
    )


def test_branches_that_are_paid_differently_move_the_weights_and_a_lone_trunk_does_not():
    trunks, branches, _ = grown(width=4, at=0)
    table = credit.turns([*trunks, *branches], "main")
    from gem_ma.credit.estimators import estimate

    advantages, _ = estimate("grpo", table)
    lone = [n for n, episode in enumerate(table.episodes) if not episode.forks]
    assert not advantages[lone].any() and advantages.any()
    for group in set(table.group.tolist()) - set(table.group[lone].tolist()):
        first = {
            table.episode[n]: advantages[n] for n in range(len(table)) if table.group[n] == group
        }
        assert sum(first.values()) == pytest.approx(0, abs=1e-6)


@pytest.mark.longest
@pytest.mark.parametrize("at", [1, 3])
def test_a_forked_run_that_is_killed_ends_as_an_unbroken_one(tmp_path, at):
    broken_and_whole(tmp_path, small(), at)
    trained(tmp_path / "serial", small("run.concurrency=3"))
    assert truth(tmp_path / "serial") == truth(tmp_path / "whole")


@pytest.mark.long
def test_a_forked_training_tells_its_cost_before_it_plays(tmp_path):
    settings, notes = small(), []
    with opened(tmp_path / "run", settings) as folder:
        asyncio.run(
            train(
                settings,
                make("guess_number"),
                {"player": Policy("player", Table(policy="player"))},
                folder,
                on_note=notes.append,
            )
        )
    assert (
        notes[0]
        == "train.fork: every step plays 8 plays and up to 48 branches (2 x 3 of each play), 336"
        " in all"
    )


def test_a_group_key_needs_groups_or_forks():
    with pytest.raises(ConfigError, match=r"set train.group_size or train.fork"):
        run_training(small("train.estimator.name=grpo", "train.fork=null"))


@pytest.mark.long
def test_a_step_of_which_nothing_can_be_replayed_ends_with_the_cause():
    class Odd(Market):
        plays = 0

        def play(self, rng, task):
            Odd.plays += 1
            said = yield Ask({"buyer": f"play {Odd.plays}"}, legal=("low", "high"))
            yield Ask({"seller": "?"}, legal=("yes", "no"))
            yield Ask({"buyer": "again"}, legal=("low", "high"))
            yield Reward({"buyer": float(said["buyer"].parsed == "low")})

    settings = settings_of(width=2, at=2)
    with pytest.raises(
        EngineError, match=r"all 8 branches failed.*the replay differs from the record"
    ):
        asyncio.run(train(settings, Odd(), policies(), None))


@pytest.mark.long
def test_a_branch_of_a_language_model_continues_the_very_ids_of_its_prefix(tmp_path):
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.base import open_engine
    from gem_ma.engines.local.tiny import make_model
    from gem_ma.kernel.types import Sampling
    from gem_ma.training.learner.rows import rows

    make_model(tmp_path / "model", "guess_number", size="nano")
    scenario, seats = make("guess_number"), {"player": Seat(policy="main")}
    # an untrained byte-level model: its replies, encoded again, are other ids
    limits = Sampling(max_tokens=8)

    async def work():
        opened = {
            "main": Policy(
                "main", open_engine("main", f"transformers/{tmp_path / 'model'}"), limits
            )
        }
        trunk = await play(Plan(scenario, seats, seed=1), opened)
        return trunk, [
            await play(
                Plan(scenario, seats, seed=1, repeat=n, branch=Branch(trunk, 2, f"s{n}", 0)), opened
            )
            for n in (1, 2)
        ]

    trunk, branches = asyncio.run(work())
    assert len(trunk.turns) == 4
    for branch in branches:
        assert branch.end is End.TERMINATED, branch.error
        assert branch.turns[2].replies[0].prompt_ids == trunk.turns[2].replies[0].prompt_ids
        table = credit.turns([trunk, branch], "main")
        made = rows(table, [0.0] * len(table), "main")
        assert made.restarts == 0 and len(made.rows) == 2
        assert made.tokens == sum(
            len(t.replies[0].token_ids) for t in (*trunk.turns, *branch.turns[2:])
        )
    assert task_of(scenario, trunk.task) is None and json.dumps(trunk.id)
