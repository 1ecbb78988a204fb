"""The table engine and its learner: exact probabilities, seeded draws, gradients against finite
differences, files that survive."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import numpy as np
import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.config.playing import AgentSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.credit import turns
from gem_ma.credit.table import TurnTable
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.small.table import Table, decode, encode, softmax, view_key
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling
from gem_ma.registry import make
from gem_ma.training.learner import Demonstration
from gem_ma.training.learner.table_learner import TableLearner
from tests import plays
from tests.plays import learn, played_all

LEGAL = ("check", "bet")
VIEW = (Message("Your card is K."),)


def ask(seed: int = 0, legal=LEGAL, sampling=Sampling(), view=VIEW, agent="a") -> Request:  # noqa: B008
    return Request(agent, view, legal=legal, seed=seed, sampling=sampling, policy="main")


def engine_with(logits: list[float]) -> Table:
    engine = Table(policy="main")
    engine.publish({view_key("a", VIEW, LEGAL): np.array(logits)}, 1)
    return engine


def draws(engine: Table, count: int, **options) -> Counter[str]:
    return Counter(asyncio.run(engine.sample(ask(seed, **options))).text for seed in range(count))


def hands(engine: Table, count: int, first: int = 0):
    return plays.hands(Policy("main", engine), count=count, first=first)


@pytest.mark.longest
def test_an_unknown_view_is_uniform():
    reply = asyncio.run(Table(policy="main").sample(ask(3)))
    assert reply.text in LEGAL
    assert reply.logprobs == (pytest.approx(np.log(0.5)),)
    assert (reply.policy, reply.version, reply.finish) == ("main", 0, "stop")
    assert LEGAL[reply.token_ids[0]] == reply.text
    assert draws(Table(policy="main"), 2000)["bet"] == pytest.approx(1000, abs=120)


@pytest.mark.longest
def test_the_same_seed_draws_the_same_choice_and_frequencies_are_the_probabilities():
    engine = engine_with([0.0, np.log(4.0)])
    assert engine.probabilities(ask()).tolist() == pytest.approx([0.2, 0.8])
    assert asyncio.run(engine.sample(ask(7))) == asyncio.run(engine.sample(ask(7)))
    assert draws(engine, 4000)["bet"] == pytest.approx(3200, abs=110)
    drawn = asyncio.run(engine.sample(ask(7)))
    assert drawn.logprobs[0] == pytest.approx(np.log([0.2, 0.8][drawn.token_ids[0]]))


def test_temperature_zero_takes_the_most_probable_and_the_first_of_equals():
    assert draws(engine_with([0.0, 0.1]), 50, sampling=Sampling(temperature=0)) == {"bet": 50}
    assert draws(Table(policy="main"), 50, sampling=Sampling(temperature=0)) == {"check": 50}
    assert asyncio.run(
        engine_with([0.0, 0.1]).sample(ask(sampling=Sampling(temperature=0)))
    ).logprobs == (0.0,)


def test_temperature_top_k_and_top_p_shape_the_probabilities():
    logits = np.log([0.5, 0.3, 0.2])
    assert softmax(logits, Sampling(temperature=0.5)).tolist() == pytest.approx(
        [25 / 38, 9 / 38, 4 / 38]
    )
    assert softmax(logits, Sampling(top_k=2)).tolist() == pytest.approx([0.625, 0.375, 0])
    assert softmax(logits, Sampling(top_p=0.5)).tolist() == [1, 0, 0]
    assert softmax(logits, Sampling(top_p=0.6)).tolist() == pytest.approx([0.625, 0.375, 0])
    assert softmax(np.array([1000.0, 0.0])).tolist() == [1, 0]


def test_an_open_question_is_refused_with_what_to_do():
    for legal in (None, ()):
        with pytest.raises(EngineError, match=r"needs a closed choice.*agent 'a'"):
            asyncio.run(Table(policy="main").sample(ask(legal=legal)))


def test_a_view_key_tells_own_lines_others_lines_and_legal_strings_apart():
    said = (Message("hello", "a"), Message("hello", "b"))
    assert view_key("a", said, LEGAL) != view_key("b", said, LEGAL)
    assert view_key("a", (Message("x"),), LEGAL) != view_key("a", (Message("x"),), ("bet", "check"))
    # two seats, one row
    assert view_key("a", (Message("x"), Message("hi", "a")), LEGAL) == view_key(
        "b", (Message("x"), Message("hi", "b")), LEGAL
    )
    assert 0 <= view_key("a", said, LEGAL) < 2**63


def test_a_table_survives_its_file_bit_for_bit(tmp_path):
    logits = {5: np.array([0.1, 1 / 3]), 2: np.array([-1e300, 7.0, 0.0])}
    back = decode(encode(logits), "here")
    assert {key: row.tolist() for key, row in back.items()} == {
        key: row.tolist() for key, row in logits.items()
    }
    (tmp_path / "t.json").write_bytes(encode({view_key("a", VIEW, LEGAL): np.array([0.0, 2.0])}))
    engine = open_engine("main", f"table/{tmp_path / 't.json'}")
    assert engine.probabilities(ask())[1] == pytest.approx(1 / (1 + np.exp(-2)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"logits": {"x": [1]}}',
        b'{"logits": {"1": []}}',
        b'{"logits": {"1": [1e999]}}',
        b"\xff",
    ],
)
def test_a_damaged_table_file_is_a_data_error_that_names_it(tmp_path, data):
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"t\.json"):
        open_engine("main", f"table/{path}")
    with pytest.raises(DataError, match="absent"):
        open_engine("main", f"table/{tmp_path / 'absent'}")


def test_an_unknown_option_or_optimizer_is_a_config_error():
    with pytest.raises(ConfigError, match="layers"):
        open_engine("main", "table/softmax", layers=2)
    with pytest.raises(ConfigError, match="sgd or adam"):
        open_engine("main", "table/softmax", optimizer="adamw")


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(top_p=0.9), Sampling(top_k=5)]
)
def test_only_the_full_distribution_can_be_learned(sampling):
    with pytest.raises(ConfigError, match="top_p 1 and top_k 0"):
        TableLearner(Table(policy="main"), sampling)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("aggregation", ["turn_sum", "token_mean", "turn_mean", "episode_sum"])
def test_one_step_follows_the_gradient_of_the_objective(temperature, aggregation):
    engine = Table(policy="main")
    learner = TableLearner(engine, Sampling(temperature=temperature))
    table = turns(hands(engine, 40), "main")
    keys = [turn.replies[0].prompt_ids[0] for turn in table.turns]
    choices = [turn.replies[0].token_ids[0] for turn in table.turns]
    rng = np.random.default_rng(0)
    advantages = rng.normal(size=len(table))
    start = {key: rng.normal(size=2) * 0.1 for key in set(keys)}
    learner.weights = {key: row.copy() for key, row in start.items()}
    how = LossSettings(minibatches=1, entropy=0.3, aggregation=aggregation, grad_clip=1e9)
    # the bonus is a mean over tokens under every aggregation, as that of a language model
    seats = set(zip(table.episode.tolist(), table.agent.tolist(), strict=True))
    parts = len(seats) if aggregation == "episode_sum" else len(keys)

    def objective(logits):
        total = 0.0
        for key, choice, advantage in zip(keys, choices, advantages, strict=True):
            old, new = (
                softmax(start[key], Sampling(temperature=temperature)),
                softmax(logits[key], Sampling(temperature=temperature)),
            )
            total += new[choice] / old[choice] * advantage / parts
            total -= 0.3 * float(new @ np.log(new)) / len(keys)
        return total

    learner.update(table, advantages, lr=1.0, settings=how, rng=random.Random(0))
    for key, row in start.items():
        for index in range(2):
            moved = {k: r.copy() for k, r in start.items()}
            moved[key][index] += 1e-6
            slope = (objective(moved) - objective(start)) / 1e-6
            assert learner.weights[key][index] - row[index] == pytest.approx(slope, abs=1e-5)


@pytest.mark.long
def test_a_choice_that_has_moved_too_far_is_clipped():
    engine = engine_with([0.0, 0.0])
    learner = TableLearner(engine)
    table = _one_turn(engine)
    key = table.turns[0].replies[0].prompt_ids[0]
    for epochs, most in ((1, None), (500, 0.05)):
        learner.weights = {key: np.zeros(2)}
        stats = learn(learner, table, np.array([1.0]), lr=0.1, epochs=epochs, minibatches=1)
        chance = softmax(learner.weights[key]).max()
        assert chance > 0.5
        if most is not None:
            assert chance < 0.5 * 1.2 + most  # the ratio passes 1.2 once, then the gradient is 0
            assert stats["clip_fraction"] == 1.0


def test_target_kl_ends_the_update_and_says_so():
    engine = engine_with([0.0, 0.0])
    learner = TableLearner(engine)
    how = LossSettings(epochs=50, minibatches=1, target_kl=1e-4)
    stats = learner.update(
        _one_turn(engine), np.array([1.0]), lr=0.2, settings=how, rng=random.Random(0)
    )
    assert stats["stopped"] == 1.0
    assert stats["optimizer_steps"] < 50


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_bonus_opens_a_policy_whose_plays_were_all_paid_alike(optimizer):
    engine = Table(policy="main", optimizer=optimizer)
    learner = TableLearner(engine)
    table = turns(hands(engine, 8), "main")
    learner.weights = {turn.replies[0].prompt_ids[0]: np.array([3.0, -3.0]) for turn in table.turns}
    how = LossSettings(entropy=0.1)
    told = learner.update(table, np.zeros(len(table)), lr=0.1, settings=how, rng=random.Random(0))
    assert told["optimizer_steps"] == 4 and told["grad_norm"] > 0
    assert all(0 < first < 3 and -3 < second < 0 for first, second in learner.weights.values())


def _one_turn(engine: Table) -> TurnTable:
    return turns(hands(engine, 1), "main").take([0])


def test_the_gradient_norm_is_limited():
    engine = Table(policy="main")
    learner = TableLearner(engine)
    table = turns(hands(engine, 8), "main")
    learn(learner, table, np.full(len(table), 1e6), minibatches=1, grad_clip=0.5)
    assert np.sqrt(sum(float((row**2).sum()) for row in learner.weights.values())) == pytest.approx(
        0.5
    )


def test_advantages_that_do_not_fit_or_are_not_finite_are_refused_with_the_episode():
    engine = Table(policy="main")
    table = turns(hands(engine, 2), "main")
    learner = TableLearner(engine)
    with pytest.raises(ValueError, match="one advantage per turn"):
        learn(learner, table, np.zeros(1))
    bad = np.zeros(len(table))
    bad[0] = np.nan
    with pytest.raises(ValueError, match=r"not finite.*train/0"):
        learn(learner, table, bad)
    assert learn(learner, table.take([]), np.zeros(0))["turns"] == 0


def test_cloning_reproduces_the_shares_of_the_demonstrations():
    engine = Table(policy="main")
    learner = TableLearner(engine)
    shown = [
        Demonstration(ask(), text) for text in ["bet"] * 30 + ["I will check"] * 10 + ["nonsense"]
    ]
    stats = learner.clone(shown, WarmStartSettings(cast={"a": AgentSettings()}))
    learner.publish()
    assert engine.probabilities(ask()).tolist() == pytest.approx([10.5 / 41, 30.5 / 41])
    assert (stats["demonstrations"], stats["unreadable"]) == (40, 1)


def test_nothing_reaches_the_engine_before_it_is_published():
    engine = Table(policy="main")
    learner = TableLearner(engine)
    table = turns(hands(engine, 8), "main")
    before = engine.fingerprint()
    learn(learner, table, table.ret)
    assert engine.fingerprint() == before != learner.fingerprint()
    assert learner.publish()["parity_gap"] < 1e-5
    assert engine.fingerprint() == learner.fingerprint()
    assert (engine.version, learner.version) == (1, 1)
    assert asyncio.run(engine.sample(ask())).version == 1


def test_a_publication_that_arrives_wrong_is_refused():
    class Broken(Table):
        def publish(self, logits, version):
            super().publish(
                {key: row + np.array([0.0, 1e-3]) for key, row in logits.items()}, version
            )

    engine = Broken(policy="main")
    learner = TableLearner(engine)
    learner.weights = {1: np.zeros(2)}
    with pytest.raises(EngineError, match="differ by"):
        learner.publish()
    assert learner.version == 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_learner_that_is_stored_and_loaded_goes_on_bit_for_bit(optimizer):
    def taught(learner, episodes):
        table = turns(episodes, "main")
        learn(learner, table, table.ret, lr=0.3, seed=1, entropy=0.01)
        learner.publish()

    first = TableLearner(Table(policy="main", optimizer=optimizer))
    taught(first, hands(first.engine, 16))
    second = TableLearner(Table(policy="main", optimizer=optimizer))
    second.load(first.state())
    assert second.engine.fingerprint() == first.engine.fingerprint()
    for learner in (first, second):
        taught(learner, hands(learner.engine, 16, first=100))
    assert first.state() == second.state()


def test_the_average_weighs_versions_by_their_number_and_by_own_reach():
    engine = Table(policy="main")
    learner = TableLearner(engine)
    root, after_bet = 1, 2
    learner.paths = {root: (), after_bet: ((root, 1),)}
    for bet, then in ((0.5, 0.1), (0.9, 0.8)):
        learner.weights = {root: np.log([1 - bet, bet]), after_bet: np.log([1 - then, then])}
        learner.publish()
    average = learner.average()
    assert softmax(average.logits[root])[1] == pytest.approx((1 * 0.5 + 2 * 0.9) / 3)
    assert softmax(average.logits[after_bet])[1] == pytest.approx(
        (0.5 * 0.1 + 2 * 0.9 * 0.8) / (0.5 + 2 * 0.9)
    )


@pytest.mark.longest
def test_player_1_learns_to_beat_a_frozen_uniform_player_0():
    """Exact values, so no sampling noise: from -.125 to near the best response, 5/12."""
    from gem_ma.credit.estimators import rebn
    from gem_ma.scores.exploitability import engine_strategy, exploitability, uniform_strategy

    engine = Table(policy="main", optimizer="adam")
    learner = TableLearner(engine)
    kuhn = make("kuhn_poker")
    seats = {"player_0": Seat("random_legal"), "player_1": Seat(policy="main")}

    policies = {"main": Policy("main", engine)}

    def value():
        players = {"player_0": uniform_strategy, "player_1": engine_strategy(engine)}
        return exploitability(kuhn, players)

    assert value().values["player_1"] == pytest.approx(-0.125)
    assert value().best_responses["player_1"] == pytest.approx(5 / 12)
    for step in range(60):
        plans = [Plan(kuhn, seats, seed=1000 * step + index) for index in range(64)]
        table = turns(played_all(plans, policies, deterministic=True), "main")
        learn(learner, table, rebn(table), lr=0.1, seed=step, minibatches=1)
        learner.publish()
    assert value().values["player_1"] > 0.35
