"""Guess a number: rules, hints, baselines, and players that hear the hints or do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from gem_ma.scenarios.guess_number import HIGHER, LOWER, UNREADABLE, GuessNumber

from gem_ma import Game, Plan, Seat, config, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.train import run_training
from tests.plays import played_all

CONFIGS = Path(__file__).parents[2] / "configs"


def number_of(seed: int, **options: int) -> int:
    """The number of a seed, found by asking for all of them."""
    for guess in range(1, GuessNumber(**options).numbers + 1):
        game = Game(GuessNumber(**options), seed=seed)
        game.send({"player": str(guess)})
        if any(entry.why == "win" for entry in game.ledger):
            return guess
    raise AssertionError("no number wins")


def paid(game: Game) -> list[tuple[str, float]]:
    return [(entry.why, entry.value) for entry in game.ledger]


def test_every_guess_costs_the_right_one_wins_and_hints_point_to_it():
    number = number_of(3)
    game = Game(GuessNumber(), seed=3)
    other = 10 if number < 10 else 1
    game.send({"player": str(other)})
    assert game.view("player")[-1].text == f"{LOWER if other > number else HIGHER} {other}."
    game.send({"player": str(number)})
    assert game.over and paid(game) == [("turn", -0.1), ("turn", -0.1), ("win", 1.0)]


def test_what_names_no_number_costs_more_and_uses_up_its_turn():
    game = Game(GuessNumber(turns=2), seed=0)
    for text in ("eleven", "3 or 4"):
        game.send({"player": text})
    assert game.over and [why for why, _ in paid(game)] == ["turn", "format"] * 2
    assert game.view("player")[2].text.startswith(UNREADABLE)


def test_all_numbers_are_drawn_and_a_play_ends_after_its_turns():
    assert {number_of(seed, numbers=5) for seed in range(60)} == set(range(1, 6))
    game = Game(GuessNumber(turns=3), seed=1)
    wrong = 1 if number_of(1) != 1 else 2
    for _ in range(3):
        game.send({"player": str(wrong)})
    assert game.over


@pytest.mark.parametrize("options", [{"numbers": 1}, {"turns": 0}])
def test_a_game_without_a_choice_or_a_turn_is_refused(options):
    with pytest.raises(ConfigError, match="at least 2 numbers and 1 turn"):
        GuessNumber(**options)


def success(
    behaviour: str, count: int = 3000, seat: dict[str, float] | None = None, **options: int
) -> tuple[float, float]:
    """(success, turns) of a behaviour."""
    scenario = make("guess_number", **options)

    plans = [
        Plan(scenario, {"player": Seat(behaviour, options=seat or {})}, seed=seed)
        for seed in range(count)
    ]

    episodes = played_all(plans)
    assert not [episode.error for episode in episodes if episode.error]
    return (
        sum(bool(scenario.success(e)) for e in episodes) / count,
        sum(len(e.turns) for e in episodes) / count,
    )


@pytest.mark.longest
def test_players_find_the_number_as_often_as_the_baselines_say():
    assert success("number_guesser")[0] == pytest.approx(1 - 0.9**4, abs=0.03)
    assert success("number_guesser_without_repeats")[0] == pytest.approx(0.4, abs=0.03)
    found, turns = success("number_halver")
    assert found == 1.0 and turns == pytest.approx(2.9, abs=0.05)
    said = make("guess_number").baselines
    assert [round(value, 3) for value in said.values()] == [0.344, 0.4, 1.0]


@pytest.mark.long
def test_halving_finds_what_halving_can_find_in_a_larger_game():
    found, _ = success("number_halver", 800, numbers=50, turns=4)
    assert found == pytest.approx(15 / 50, abs=0.03)
    assert make("guess_number", numbers=50, turns=4).baselines[
        "halves what is left (success)"
    ] == pytest.approx(0.3)


def test_noise_makes_the_halver_a_guesser_and_is_a_probability():
    assert 0.6 < success("number_halver", 200, {"noise": 0.4})[0] < 0.95
    with pytest.raises(ConfigError, match="noise is a probability"):
        success("number_halver", 1, {"noise": 2.0})


def test_a_word_level_model_of_the_scenario_says_every_number_in_one_or_two_ids(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(tmp_path / "model", "guess_number")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for number in range(1, 11):
        ids = words(str(number))["input_ids"]
        assert words.decode(ids) == str(number) and len(ids) == len(str(number))
    seen = f"{HIGHER} 7. {LOWER} 9."
    assert words.unk_token_id not in words(seen)["input_ids"]


@pytest.mark.longest
def test_a_table_learns_to_use_the_hints():
    """One seed of a minute's recipe, cut short: no player that is deaf to the hints is better
    than .40."""
    summary = run_training(
        config.load(
            CONFIGS / "guess_number_table.yaml",
            [
                "train.steps=40",
                "train.episodes=128",
                "evaluate.episodes=512",
                # quicker, and on some seeds not as far
                "train.loss.minibatches=4",
                "train.loss.entropy=0.0",
            ],
        ).config
    )
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    assert before == pytest.approx(0.344, abs=0.07) and after >= 0.5


@pytest.mark.longest
def test_the_recipe_of_the_tiny_model_starts_and_learns_what_it_names(tmp_path):
    """The bars over five seeds are in `make test-learning`."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    make_model(tmp_path / "model", "guess_number")
    short = [
        "train.steps=2",
        "train.episodes=32",
        "evaluate.episodes=64",
        "train.warm_start.player.steps=40",
        "train.warm_start.player.episodes=128",
    ]
    summary = run_training(
        config.load(
            CONFIGS / "guess_number.yaml",
            [f"policies.player.model=transformers/{tmp_path / 'model'}", *short],
        ).config
    )
    assert summary["changed"] == ["player"] and summary["after"]["sampled"]["failed"] == 0
    assert summary["before"]["sampled"]["invalid"]["player"] < 0.5  # cloned: it names numbers
