"""The averaged policy of a small game: it earns what drawing one member per episode earns, on
average and against anybody."""

from __future__ import annotations

import json
import random

import pytest

from gem_ma import Ask, Reward, Scenario, config
from gem_ma.registry import make
from gem_ma.runs.store import RunFolder, read_metrics
from gem_ma.scores.exploitability import (
    TokenStrategy,
    decisions,
    engine_strategy,
    exploitability,
)
from gem_ma.training.selfplay.averaging import Mixture, as_table
from gem_ma.training.train import run_training
from tests.broken_runs import Killed


def drawn(seed, whole=True):
    """Probabilities of every information set from a generator of its own; without `whole`, a
    part of the mass stays unreadable."""

    def strategy(agent, view, legal):
        rng = random.Random(f"{seed}/{agent}/{[m.text for m in view]}")
        chances = [rng.random() ** 3 for _ in legal]
        total = sum(chances) + (0 if whole else rng.random())
        return [chance / total for chance in chances]

    return strategy


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seat", ["player_0", "player_1"])
def test_a_mixture_earns_the_mean_of_its_members_against_anybody(seat, whole):
    kuhn, weights = make("kuhn_poker"), (1.0, 2.0, 5.0)
    other = "player_1" if seat == "player_0" else "player_0"
    mixture = Mixture(decisions(kuhn))
    for number, weight in enumerate(weights):
        mixture.add(drawn(number, whole), weight)
    for rival in (drawn("a", whole), drawn("b")):
        alone = [
            exploitability(kuhn, {seat: drawn(number, whole), other: rival}).values[seat]
            for number in range(3)
        ]
        expected = sum(weight * value for weight, value in zip(weights, alone, strict=True)) / sum(
            weights
        )
        assert exploitability(kuhn, {seat: mixture.strategy(), other: rival}).values[
            seat
        ] == pytest.approx(expected, abs=1e-6)
    best = exploitability(kuhn, {seat: mixture.strategy(), other: drawn("a")}).best_responses[other]
    assert (
        best
        < sum(
            w
            * exploitability(kuhn, {seat: drawn(n, whole), other: drawn("a")}).best_responses[other]
            for n, w in enumerate(weights)
        )
        / 8
    )


def test_the_plain_mean_of_probabilities_is_another_strategy():
    """Player 0 bets always or checks and calls always. Only the second meets a bet after a
    check: the mixture calls it."""
    bets = lambda agent, view, legal: [0.0, 1.0] if legal == ("check", "bet") else [1.0, 0.0]  # noqa: E731
    calls = lambda agent, view, legal: [1.0, 0.0] if legal == ("check", "bet") else [0.0, 1.0]  # noqa: E731
    listed = decisions(make("kuhn_poker"))
    mixture = Mixture(listed)
    mixture.add(bets)
    mixture.add(calls)
    for one, chances in zip(listed, mixture.chances(), strict=True):
        if one.agent == "player_0" and one.legal == ("fold", "call"):
            # after an unreadable answer nobody comes: uniform
            assert chances == ([0.0, 1.0] if one.view[2].text == "check" else [0.5, 0.5])
        if one.agent == "player_0" and one.legal == ("check", "bet"):
            assert chances == [0.5, 0.5]


class Twice(Scenario):
    """One agent chooses at once with another, then again after an answer that may be unreadable."""

    agents = ("a", "b")

    def play(self, rng, task):
        said = yield Ask(dict.fromkeys(self.agents, "first"), legal=("left", "right"))
        again = yield Ask({"a": f"b said {said['b'].parsed}"}, legal=("up", "down", "stay"))
        yield Reward({"a": float(again["a"].parsed == "up")})


def test_decisions_name_the_own_one_before_and_unreadable_answers_too():
    listed = decisions(Twice())
    assert [(one.agent, one.before) for one in listed[:2]] == [("a", None), ("b", None)]
    later = [one for one in listed if one.before is not None]
    # 3 own answers x 3 of the other
    assert len(later) == 9 and {one.legal for one in later} == {("up", "down", "stay")}
    assert sorted(one.before[1] for one in later) == [0] * 3 + [1] * 3 + [2] * 3
    assert all(listed[one.before[0]].agent == "a" for one in later)


def test_what_a_checkpoint_holds_brings_the_mixture_back_bit_for_bit():
    listed = decisions(make("kuhn_poker"))
    one, two = Mixture(listed), Mixture(listed)
    one.add(drawn(1), 0.1)
    two.load(json.loads(json.dumps(one.state())))
    one.add(drawn(2), 0.7)
    two.add(drawn(2), 0.7)
    assert one.state() == two.state() and one.chances() == two.chances()


def test_a_mixture_is_a_table_that_plays_the_same():
    kuhn = make("kuhn_poker")
    mixture = Mixture(decisions(kuhn))
    mixture.add(drawn(1), 1)
    mixture.add(drawn(2), 2)
    table = exploitability(kuhn, engine_strategy(as_table(mixture, "main")))
    assert table.nash_conv == pytest.approx(exploitability(kuhn, mixture.strategy()).nash_conv)


# -- of language models in training --------------------------------------------------------------

SMALL = (
    "train.steps=4",
    "train.episodes=16",
    "evaluate.episodes=8",
    "train.save_every=1",
    "train.lr=0.003",
)
WARM = (
    "train.warm_start={main: {cast: {player_0: {behaviour: noisy_kuhn}, player_1: {behaviour:"
    " noisy_kuhn}}, episodes: 32, steps: 12, batch: 16}}"
)


def self_play(model, path, **options):
    loaded = config.load(
        "kuhn_table",
        [f"policies.main={{model: transformers/{model}, max_tokens: 4}}", WARM, *SMALL],
    )
    with RunFolder.open(path, config_text="", resolved=loaded.resolved()) as folder:
        return run_training(loaded.config, folder, **options)


@pytest.mark.longest
def test_self_play_of_a_language_model_is_scored_with_its_average_and_resumes_with_it(
    tmp_path, thin_model
):
    def kill(step, metrics):
        if step == 3:
            raise Killed

    summary = self_play(thin_model, tmp_path / "whole")
    after = summary["after"]
    assert after["exploitability"] == pytest.approx(after["nash_conv"] / 2)
    assert after["exploitability_averaged"] == pytest.approx(after["nash_conv_averaged"] / 2)
    assert after["nash_conv_averaged"] != after["nash_conv"]
    # the clone is the only member
    assert summary["before"]["nash_conv_averaged"] == pytest.approx(summary["before"]["nash_conv"])
    with pytest.raises(Killed):
        self_play(thin_model, tmp_path / "broken", on_step=kill)
    self_play(thin_model, tmp_path / "broken")
    assert list(read_metrics(tmp_path / "broken")) == list(read_metrics(tmp_path / "whole"))
    mean = summary["averaged"]["main"]
    assert mean["engine"] == "table"  # any run can seat it
    again = config.load(
        "kuhn_table",
        [f"policies.main.model=table/{tmp_path / 'whole' / mean['path']}", "train.policies=[]"],
    ).config
    assert 0 < run_training(again)["before"]["nash_conv"] < 2


@pytest.mark.long
def test_many_information_sets_are_scored_as_one_by_one(thin_model):
    pytest.importorskip("torch")
    from gem_ma.engines.local.transformers import Transformers
    from gem_ma.training.learner.torch_learner import TorchLearner

    strategy = TokenStrategy(TorchLearner(Transformers(str(thin_model), policy="main")))
    asked = [(one.agent, one.view, one.legal) for one in decisions(make("kuhn_poker"))]
    for together, one in zip(strategy.many(asked), asked, strict=True):
        assert together == pytest.approx(strategy(*one), rel=1e-4)


@pytest.mark.longest
def test_the_shipped_recipe_of_a_tiny_model_starts_card_aware_and_is_scored_exactly(thin_model):
    """A few updates of one seed; `make test-learning` asks five seeds for the whole of it."""
    short = (
        "train.warm_start.main.steps=150",
        "train.warm_start.main.episodes=512",
        "train.steps=3",
        "train.episodes=64",
        "evaluate.episodes=64",
    )
    summary = run_training(
        config.load(
            "kuhn_tiny.yaml", [f"policies.main.model=transformers/{thin_model}", *short]
        ).config
    )
    before, after = summary["before"], summary["after"]
    assert before["private_effect main"] > 0.1  # some decision moves by more with the card alone
    # better than anybody who does not look at the card
    assert before["exploitability"] < 0.3 < 1 / 3
    assert (
        after["exploitability_averaged"] < 0.3
        and after["exploitability_averaged"] != after["exploitability"]
    )
