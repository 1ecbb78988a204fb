"""The referential game and its demonstrators: rules, secrecy, convention."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from gem_ma.scenarios.referential import MEANINGS, NOISE, UTTERANCES, Referential

from gem_ma import Game, Plan, Seat, make
from gem_ma.kernel.errors import ConfigError
from tests.plays import played_all


def game_of(meaning: str) -> Game:
    class Fixed(Referential):
        def deal(self, rng, task):
            return {"speaker": meaning}

    return Game(Fixed(), seed=0)


def scored(meaning: str, words: str, guess: str) -> Game:
    game = game_of(meaning)
    game.send({"speaker": words})
    game.send({"listener": guess})
    return game


def test_each_attribute_pays_half_to_both():
    for guess, value in (
        ("red circle", 1.0),
        ("red star", 0.5),
        ("blue circle", 0.5),
        ("blue star", 0.0),
        ("no idea", 0.0),
    ):
        game = scored("red circle", UTTERANCES[0], guess)
        assert game.over
        paid = {
            agent: sum(e.value for e in game.ledger if e.agent == agent)
            for agent in ("speaker", "listener")
        }
        assert paid == {"speaker": value, "listener": value}


def test_there_are_sixteen_meanings_and_utterances_and_all_are_dealt():
    assert len(set(MEANINGS)) == len(set(UTTERANCES)) == 16
    dealt = Counter(Referential().deal(random.Random(seed), None)["speaker"] for seed in range(800))
    assert set(dealt) == set(MEANINGS)


def test_the_meaning_cannot_be_said():
    views = set()
    for words in (
        "red circle",
        "it is the red circle",
        f"{UTTERANCES[0]} red circle {UTTERANCES[1]}",
        "",
        "\ud800",
        "x" * 100_000,
    ):
        game = game_of("red circle")
        game.send({"speaker": words})
        views.add(tuple(message.text for message in game.view("listener")))
    assert views == {(f"You hear {NOISE}. Name the thing.",)}


def test_the_listener_hears_the_two_words_and_not_the_meaning():
    game = game_of("blue star")
    assert game.pending.keys() == {"speaker"}
    game.send({"speaker": f"I say {UTTERANCES[5]}"})
    assert [message.text for message in game.view("listener")] == [
        f"You hear {UTTERANCES[5]}. Name the thing."
    ]
    assert "blue" not in game.view("listener")[0].text


def episodes(count: int, **seats: Seat):
    scenario = make("referential")
    cast = {"speaker": Seat("noisy_speaker"), "listener": Seat("noisy_listener"), **seats}

    played = played_all([Plan(scenario, cast, seed=seed) for seed in range(count)])
    assert not [e.error for e in played if e.error]
    return scenario, played


def test_demonstrators_without_noise_always_understand_each_other():
    scenario, played = episodes(
        64,
        speaker=Seat("noisy_speaker", options={"noise": 0.0}),
        listener=Seat("noisy_listener", options={"noise": 0.0}),
    )
    assert all(scenario.success(episode) for episode in played)
    assert {e.returns()["speaker"] for e in played} == {1.0}


def test_demonstrators_with_noise_succeed_as_often_as_arithmetic_says():
    """Each word is right with .5 + .5/4, so an attribute arrives with .625^2 + 3 (.375/3)^2 =
    .4375, both with .1914."""
    scenario, played = episodes(500)
    assert sum(bool(scenario.success(e)) for e in played) / 500 == pytest.approx(
        0.4375**2, abs=0.035
    )


def test_chance_is_one_in_sixteen():
    scenario, played = episodes(600, speaker=Seat("random_legal"), listener=Seat("random_legal"))
    assert sum(bool(scenario.success(e)) for e in played) / 600 == pytest.approx(1 / 16, abs=0.02)


def test_a_noise_that_is_no_probability_is_refused():
    with pytest.raises(ConfigError, match="noise"):
        episodes(1, speaker=Seat("noisy_speaker", options={"noise": 1.5}))


def test_the_kuhn_demonstrator_looks_at_its_card():
    kuhn = make("kuhn_poker")

    seats = dict.fromkeys(kuhn.agents, Seat("noisy_kuhn"))

    bold: dict[str, list[bool]] = {"J": [], "Q": [], "K": []}
    for episode in played_all([Plan(kuhn, seats, seed=seed) for seed in range(400)]):
        for turn in episode.turns:
            card = episode.transcript(turn.agent)[0].text.rstrip(".")[-1]
            bold[card].append(turn.action.parsed in ("bet", "call"))
    assert [sum(bold[card]) / len(bold[card]) for card in "JQK"] == pytest.approx(
        [0.15, 0.5, 0.85], abs=0.05
    )


def test_fewer_things_have_fewer_words_and_a_higher_chance() -> None:
    small = Referential(colours=2, shapes=1)
    assert small.meanings == ("red circle", "green circle")
    assert small.utterances == ("bako hupe", "dilu hupe")
    assert small.baselines == {"chance (success)": 0.5}
    dealt = {small.deal(random.Random(seed), None)["speaker"] for seed in range(20)}
    assert dealt == set(small.meanings)
    for wrong in (0, 5, 1.5, "2"):
        with pytest.raises(ConfigError, match=r"scenario\.shapes: a whole number from 1 to 4"):
            Referential(shapes=wrong)  # type: ignore[arg-type]
