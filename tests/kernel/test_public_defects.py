"""Defects that public trainers of language-model agents have had, as tests by what must hold. Here
or, where the part has a file, there:

oat's return batch normalisation: constant float32 batches give exact zeros
    test_constant_float32_batches_give_exact_zeros
tinker's return batch normalisation: one turn gives 0; statistics are taken after selection
    test_one_turn_gives_zero_where_a_group_is_compared
    test_statistics_are_those_of_the_turns_that_are_left
GEM's collection of turns: short and long episodes come back in equal shares
    test_a_scenario_of_two_lengths_comes_back_in_equal_shares
GEM's success metric: success is what the scenario says, not the last reward
    test_success_is_declared_by_the_scenario_and_not_read_off_the_last_reward
verl's GRPO, Dr. MAS's episode part: a group of one gives 0, never R
    test_one_turn_gives_zero_where_a_group_is_compared
SPIRAL's baselines: any order of completion, any number of agents, one baseline
    test_role_baselines_are_the_same_whatever_ends_first_and_however_many_play
UnstableBaselines: spread 0 gives 0; b moves after it is subtracted
    test_one_turn_gives_zero_where_a_group_is_compared
    test_the_baseline_that_is_subtracted_is_the_one_before_the_episode
MARSHAL's statistics: every turn counts as often as it is there
    test_frequent_values_count_as_often_as_they_are_there
tinker's two-player groups: each side of a zero-sum game has a baseline of its own
    test_each_side_of_a_zero_sum_game_has_its_own_baseline
CoMLRL's slice of tokens: trained tokens are the sampled ones, the end of turn included
    test_trained_tokens_are_the_sampled_ones_to_the_last
    test_learner.py: test_the_sampled_end_of_turn_is_trained
CoMLRL's replacement of a NaN loss: the update fails with the episode's id
    test_learner.py: test_a_number_that_is_not_finite_is_refused_with_its_episode
PettingLLMs's best branch for all: a branch is drawn; a branch that failed is not branch 0
    test_forking.py: test_a_drawn_branch_is_forked_next
    test_a_failed_branch_is_counted_and_no_other_takes_its_place
PettingLLMs's discount by turn index: a final reward is paid once and whole
    test_a_final_reward_is_paid_whole_whatever_the_turn
prime-rl's lost baselines: a resumed run is the uninterrupted one
    test_baselines_survive_a_resume
    tests/faults/test_killed_training.py
rLLM, TRL: one scalar per rollout: two turns of one episode get two advantages
    test_two_turns_of_one_episode_get_their_own_advantages
verifiers' dropped temperature 0: temperature 0 is sent, recorded; an unknown option refused
    test_temperature_zero_is_sent_and_recorded
    test_an_unknown_sampling_option_is_refused_by_name
a truncation that counts as an end: a cut play goes on with the critic's value
    test_critic.py: test_a_cut_play_goes_on_with_the_critics_value_of_the_last_view
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario, config
from gem_ma.config.settings import Config
from gem_ma.credit import turns
from gem_ma.credit.estimators import ESTIMATORS, estimate, rae, rebn
from gem_ma.credit.table import TurnTable
from gem_ma.driver.many import play_many
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.runs.plans import open_policies
from gem_ma.runs.store import RunFolder, read_episodes, read_metrics
from gem_ma.runs.store.lines import read_resolved
from gem_ma.training.entry import run_training, train
from gem_ma.training.learner.rows import rows
from gem_ma.training.loop.measures import measures
from tests.fault_server import FaultServer, says

SILENT = [name for name, one in ESTIMATORS.items() if one.silent]
# within a group of several
COMPARING = [name for name, one in ESTIMATORS.items() if one.centred or name in ("gigpo", "magrpo")]


def played(rewards: dict[str, list[float]], seed: int = 0, group: str = "g") -> Episode:
    """Agents take their turns in rounds; turn k of an agent is paid rewards[agent][k]."""
    steps = [
        (agent, k)
        for k in range(max(map(len, rewards.values())))
        for agent in rewards
        if k < len(rewards[agent])
    ]
    made = tuple(
        Turn(step, agent, (), None, (), Action(f"{seed}"), (Reply(policy="main"),))
        for step, (agent, _) in enumerate(steps)
    )
    paid = tuple(Entry(step, agent, rewards[agent][k]) for step, (agent, k) in enumerate(steps))
    return Episode(
        "game",
        1,
        seed,
        "train/0",
        0,
        group,
        {agent: Seat(policy="main") for agent in rewards},
        made,
        (),
        (),
        {},
        paid,
        End.TERMINATED,
    )


def table_of(*episodes: Episode) -> TurnTable:
    return turns(episodes, "main")


def in_float32(table: TurnTable) -> TurnTable:
    """As a trainer hands it on that keeps its returns as a float32 tensor."""
    columns = {
        name: getattr(table, name).astype(np.float32)
        for name in ("reward", "ret", "total", "value")
    }
    return replace(table, **columns)


# -- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.1, 0.9, 0.729, -0.1, 1 / 3, 0.6561])
@pytest.mark.parametrize("count", [37, 64, 96, 256])
def test_constant_float32_batches_give_exact_zeros(value: float, count: int) -> None:
    """sqrt(E[x^2] - E[x]^2) of these in float32 is negative for many, and one gave an advantage
    of -59.6."""
    table = in_float32(table_of(*(played({"a": [value]}, seed) for seed in range(count))))
    assert table.ret.dtype == np.float32
    for name in SILENT:
        if name != "magrpo":  # reads the ledger, below
            assert estimate(name, table)[0].tolist() == [0.0] * count, name
    assert estimate("rebn", table, "global")[0].tolist() == [0.0] * count
    assert rebn(np.full(count, value, np.float32)).tolist() == [0.0] * count


def test_siblings_that_are_all_paid_alike_teach_nothing() -> None:
    for value in (0.1, 0.9, 0.729, -0.1, 1 / 3):
        assert (
            estimate("magrpo", table_of(*(played({"a": [value]}, seed) for seed in range(37))))[
                0
            ].tolist()
            == [0.0] * 37
        )


@pytest.mark.parametrize("value", [1.0, 0.1, -7.3])
def test_one_turn_gives_zero_where_a_group_is_compared(value: float) -> None:
    """Not R (mean 0, std 1 of a single one), not NaN (the sample deviation of one)."""
    for name in COMPARING:
        assert estimate(name, table_of(played({"a": [value]})))[0].tolist() == [0.0], name
        alone = table_of(*(played({"a": [value + seed]}, seed, f"g{seed}") for seed in range(3)))
        if "group" in ESTIMATORS[name].key:
            assert estimate(name, alone)[0].tolist() == [0.0] * 3, name
    assert estimate("grpo", table_of(played({"a": [value]})), ddof=1)[0].tolist() == [0.0]


def test_statistics_are_those_of_the_turns_that_are_left() -> None:
    """Selection first: what was left out neither centres nor scales."""
    table = table_of(
        *(played({"a": [float(seed)]}, seed) for seed in range(6)), played({"a": [1000.0]}, 99)
    )
    chosen = table.take(range(6))
    assert rebn(chosen).sum() == pytest.approx(0, abs=1e-12)
    assert (rebn(chosen) ** 2).mean() == pytest.approx(1)
    assert rebn(table)[:6] != pytest.approx(rebn(chosen))


def test_a_failed_episode_is_left_out_before_the_statistics_are_taken(tmp_path: Path) -> None:
    fine = [played({"a": [float(seed)]}, seed) for seed in range(4)]
    failed = replace(played({"a": [1000.0]}, 9), end=End.FAILED, error="RuntimeError: broke")
    assert rebn(table_of(*fine, failed)).tolist() == rebn(table_of(*fine)).tolist()


def test_frequent_values_count_as_often_as_they_are_there() -> None:
    """Mean and deviation over the set {1, 2, 3} would leave a sum of +1."""
    values = [1.0, 1, 1, 2, 2, 3, 3, 3, 3]
    table = table_of(*(played({"a": [value]}, seed) for seed, value in enumerate(values)))
    for name in COMPARING:
        if ESTIMATORS[name].centred:
            advantages = estimate(name, table)[0]
            assert abs(math.fsum(advantages)) < 1e-9, name
            # the mean is 19/9, not 2
            assert advantages[3] == advantages[4] < 0 < advantages[5] == advantages[8], name


def test_each_side_of_a_zero_sum_game_has_its_own_baseline() -> None:
    """a wins mostly. The mean over both sides is 0 whatever they do: no baseline at all."""
    table = table_of(
        *(played({"a": [pay], "b": [-pay]}, seed) for seed, pay in enumerate((1.0, 1.0, 1.0, -1.0)))
    )
    mine = table.agent == "a"
    for name in COMPARING:
        if "agent" in ESTIMATORS[name].key:
            advantages = estimate(name, table)[0]
            assert math.fsum(advantages[mine]) == pytest.approx(0, abs=1e-9), name
            # the usual win says less than the rare loss
            assert abs(advantages[mine][0]) < abs(advantages[mine][3]), name
    pooled = rebn(table, "global")
    assert abs(pooled[mine][0]) == abs(pooled[mine][3])


def test_two_turns_of_one_episode_get_their_own_advantages() -> None:
    """One scalar per rollout cannot tell the turn that lost from the one that won."""
    table = table_of(
        played({"a": [1.0, 0.0, 0.0]}, 0),
        played({"a": [0.0, 0.0, 1.0]}, 1),
        played({"a": [0.0, -1.0, 0.0]}, 2),
    )
    # one value per episode by their definition
    whole = {"grpo", "dr_grpo", "rloo", "rae", "agent_norm"}
    for name in ESTIMATORS:
        advantages = estimate(name, table)[0].reshape(3, 3)
        assert any(len(set(np.round(row, 9))) > 1 for row in advantages) is (name not in whole), (
            name
        )


# -- baselines of roles --------------------------------------------------------------------------


class Three(Scenario):
    """Three agents draw lots, one after the other."""

    agents = ("a", "b", "c")

    def play(self, rng: random.Random, task: Any) -> Iterator[Any]:
        for agent in self.agents:
            yield Ask({agent: f"lot {rng.randrange(3)}"}, legal=("up", "down"))
            yield Reward({other: rng.choice([0.0, 1.0, -1.0]) for other in self.agents})


def test_role_baselines_are_the_same_whatever_ends_first_and_however_many_play() -> None:
    class Slow(Table):
        async def sample(self, request: Any) -> Reply:
            await asyncio.sleep(random.Random(request.seed ^ self.salt).random() / 500)
            return await super().sample(request)

    async def play(salt: int) -> list[Episode]:
        engine = Slow(policy="main")
        engine.salt = salt
        plans = [
            Plan(Three(), dict.fromkeys(Three.agents, Seat(policy="main")), seed=seed)
            for seed in range(24)
        ]
        return [
            episode
            async for episode in play_many(plans, {"main": Policy("main", engine)}, concurrency=8)
        ]

    found, orders = [], []
    for salt in range(3):
        episodes = asyncio.run(play(salt))
        table = turns(episodes, "main")
        advantages, state = rae(table)
        assert len(state) == 3
        orders.append([episode.seed for episode in episodes])
        found.append(
            (
                sorted(
                    zip(
                        [e.seed for e in table.episodes],
                        table.agent.tolist(),
                        advantages.tolist(),
                        strict=True,
                    )
                ),
                state,
            )
        )
    assert len(set(map(tuple, orders))) > 1  # they did end in another order
    assert found[0] == found[1] == found[2]


def test_the_baseline_that_is_subtracted_is_the_one_before_the_episode() -> None:
    """After the move, A would be decay * (R - b)."""
    table = table_of(*(played({"a": [pay]}, seed) for seed, pay in enumerate((1.0, 1.0, -1.0))))
    advantages, state = rae(table)
    assert advantages == pytest.approx([1.0, 0.95, -1.0975])
    assert state == {"game/a": pytest.approx(0.042625)}


def test_a_faded_baseline_pays_the_last_turn_in_full() -> None:
    table = turns([played({"a": [0.0, 0.0, 2.0]})], "main", gamma=0.5)
    assert rae(table)[0].tolist() == [2.0, 2.0, 2.0]
    assert estimate("rae", table, gamma=0.5, faded=True)[0].tolist() == [0.5, 1.0, 2.0]
    assert estimate("rae", table, gamma=1.0, faded=True)[0].tolist() == [2.0, 2.0, 2.0]


def test_baselines_survive_a_resume(tmp_path: Path) -> None:
    small = (
        "train.steps=4",
        "train.episodes=8",
        "train.save_every=1",
        "evaluate.episodes=8",
        "train.warm_start={}",
        "train.estimator.name=rae",
    )
    settings = config.load("referential_table", small).config

    def trained(name: str, **options: Any) -> Path:
        with RunFolder.open(
            tmp_path / name, config_text="", resolved=settings.model_dump(mode="json")
        ) as folder:
            run_training(settings, folder, **options)
        return tmp_path / name

    def stop(step: int, metrics: dict[str, Any]) -> None:
        if step in (1, 2, 3) and step not in stopped:
            stopped.append(step)
            raise KeyboardInterrupt

    stopped: list[int] = []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            trained("broken", on_step=stop)
    whole, broken = trained("whole"), trained("broken")
    for file in (
        "episodes.jsonl",
        "metrics.jsonl",
        "checkpoints/step-000004/trainer.json",
        "checkpoints/step-000004/speaker.table.json",
    ):
        assert (whole / file).read_bytes() == (broken / file).read_bytes()


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
    with RunFolder.open(
        tmp_path / "run", config_text="", resolved=settings.model_dump(mode="json")
    ) as folder:
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
    async def play() -> list[Episode]:
        plans = [Plan(Puzzle(), {"a": Seat("first_legal")}, seed=seed) for seed in range(20)]
        return [episode async for episode in play_many(plans)]

    episodes = asyncio.run(play())
    solved = sum(episode.ledger[-1].value < 1 for episode in episodes)
    assert 0 < solved < 20
    assert measures(episodes, Puzzle())["success"] == solved / 20

    class Undeclared(Puzzle):
        """The same rules, and no word on what success is."""

        success = Scenario.success

    assert measures(episodes, Undeclared())["success"] is None  # none is invented


def test_a_final_reward_is_paid_whole_whatever_the_turn() -> None:
    for length in (1, 4, 12):
        late = played({"a": [0.0] * (length - 1) + [1.0]})
        assert turns([late], "main", gamma=0.9).reward.tolist()[-1] == 1.0
        assert turns([late], "main", gamma=0.9, rule="terminal_to_last").reward.tolist() == [
            0.0
        ] * (length - 1) + [1.0]
        assert turns([late], "main", gamma=0.9).total.tolist() == [1.0] * length


def test_a_failed_branch_is_counted_and_no_other_takes_its_place() -> None:
    branches = [
        replace(played({"a": [pay]}, seed, "start@2")) for seed, pay in enumerate((5.0, 1.0, 0.0))
    ]
    branches[0] = replace(branches[0], end=End.FAILED, error="RuntimeError: broke")
    table = table_of(*branches)
    assert table.excluded == {"failed": 1}
    assert {episode.seed for episode in table.episodes} == {1, 2}
    assert estimate("rloo", table)[0].tolist() == [1.0, -1.0]


# -- tokens and sampling -------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5])
def test_trained_tokens_are_the_sampled_ones_to_the_last(length: int) -> None:
    """The last sampled id is the end of turn: a slice that is one short never teaches when to
    stop."""
    sampled = tuple(range(10, 10 + length))
    first = Reply("", (), (1, 2), sampled, tuple([-0.5] * length), finish="stop", policy="main")
    second = replace(first, prompt_ids=(1, 2, *sampled, 3))
    episode = replace(
        played({"a": [0.0, 1.0]}),
        turns=(
            Turn(0, "a", (), None, (), Action(), (first,)),
            Turn(1, "a", (), None, (), Action(), (second,)),
        ),
    )
    made = rows(turns([episode], "main"), [1.0, 1.0], "main")
    (row,) = made.rows
    assert row.ids[row.mask].tolist() == [*sampled, *sampled]
    assert row.mask[-1] and made.tokens == 2 * length


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


@pytest.mark.parametrize(
    "option", ["temprature: 0", "tempereture: 0.0", "sampling_args: {temperature: 0}", "min_p: 0.1"]
)
def test_an_unknown_sampling_option_is_refused_by_name(tmp_path: Path, option: str) -> None:
    file = tmp_path / "talk.yaml"
    file.write_text(TALK.format(url="http://127.0.0.1:9/v1", sampling=option))
    with pytest.raises(
        ConfigError, match=rf"policies.talker.{option.partition(':')[0]}: unknown key"
    ):
        config.load(file)
