"""Twenty questions: the fewest turns exactly, lies that are decidable, taboo, and who is paid what."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from functools import cache
from math import log2

import pytest
from gem_ma.scenarios.parties.animals import (
    ANIMALS,
    ATTRIBUTES,
    PLACES,
    best,
    is_true,
    least,
    members,
    narrowed,
    says_one_of,
)
from gem_ma.scenarios.parties.twenty_questions import TwentyQuestions, is_false

from gem_ma import Game, Plan, Seat, Tell, check_scenario, make
from gem_ma.kernel.errors import ConformanceError
from tests.plays import played_all, recorded

STRONG = "twenty_questions_strong"


def of(names):
    return sum(PLACES[name] for name in names)


def test_the_table_tells_all_animals_apart():
    assert all(
        len(digits) == len(ATTRIBUTES) and set(digits) <= {"0", "1"} for digits in ANIMALS.values()
    )
    assert len(set(ANIMALS.values())) == len(ANIMALS) == 32
    assert is_true("duck", "can fly") and not is_true("horse", "can fly")


@cache
def by_hand(names):
    """The fewest turns in the mean, in exact fractions, over all questions and all guesses."""
    if len(names) == 1:
        return Fraction(1)
    count = len(names)
    after = [(name,) for name in names]
    turns = [1 + Fraction(count - 1, count) * by_hand(names - set(one)) for one in after]
    for place in range(len(ATTRIBUTES)):
        yes = frozenset(name for name in names if ANIMALS[name][place] == "1")
        if 0 < len(yes) < count:
            parts = (yes, names - yes)
            turns.append(1 + sum(len(part) * by_hand(part) for part in parts) / Fraction(count))
    return min(turns)


def test_the_fewest_turns_are_what_enumeration_gives():
    rng = random.Random(11)
    for size in (1, 2, 3, 4, 5, 6, 6):
        names = frozenset(rng.sample(list(ANIMALS), size))
        assert best(of(names))[0] == pytest.approx(float(by_hand(names)), abs=1e-12)
        assert best(of(names))[0] >= least(size) - 1e-12


@pytest.mark.parametrize("count", [2, 5, 16, 32])
def test_the_strong_one_needs_the_fewest_turns_exactly(count):
    """Each animal once, so the mean is no sample."""
    scenario = make("twenty_questions", animals=count, turns=40)
    deals = {}
    for seed in itertools.count():
        deals.setdefault(scenario.deal(random.Random(seed), None)["answerer"][0], seed)
        if len(deals) == count:
            break
    cast = dict.fromkeys(scenario.agents, Seat(STRONG))
    episodes = played_all([Plan(scenario, cast, seed=seed) for seed in deals.values()])
    turns = [scenario.measures(episode)["turns"] for episode in episodes]
    assert sum(turns) / count == pytest.approx(best(of(scenario.animals))[0], abs=1e-12)
    assert all(map(scenario.success, episodes))
    if count in (16, 32):
        # as few as any table allows
        assert sum(turns) / count == least(count) == log2(count) + 0.5


@pytest.mark.longest
@pytest.mark.parametrize("talk, choices", [("none", 16), ("signals", 16 + 11)])
def test_ten_thousand_plays_at_random_come_out_as_computed(talk, choices):
    scenario = make("twenty_questions", talk=talk)
    draws = random.Random(3)
    found = 0
    for seed in range(10_000):
        game = Game(scenario, None, seed)
        while game.pending:
            game.send({agent: draws.choice(asked.legal) for agent, asked in game.pending.items()})
        found += game.ledger[-1].why == "found"
    chance = 1 - (1 - 1 / choices) ** 20
    assert abs(found / 10_000 - chance) < 3 * (chance * (1 - chance) / 10_000) ** 0.5


def opened(animal, *acts, **options):
    """A play in which this is the animal, after these acts of whoever is asked."""
    scenario = make("twenty_questions", **options)
    seed = next(
        n
        for n in itertools.count()
        if scenario.deal(random.Random(n), None)["answerer"][0] == animal
    )
    game = Game(scenario, None, seed)
    for act in acts:
        game.send(dict.fromkeys(game.pending, act))
    return scenario, game


def episode_of(scenario, game):
    return recorded(
        {agent: Seat() for agent in scenario.agents},
        tuple(game.turns),
        tuple(game.ledger),
        seed=game.seed,
    )


def paid(game):
    totals = {}
    for entry in game.ledger:
        totals[entry.agent] = totals.get(entry.agent, 0.0) + entry.value
    return totals


def test_answers_are_heard_and_a_wrong_guess_is_told_to_all():
    _, game = opened("lion", "has fur", "yes", "wolf", guessers=2, talk="signals")
    for agent in ("guesser_0", "guesser_1"):
        texts = [message.text for message in game.view(agent)]
        assert any(text.endswith(": has fur: yes.") for text in texts)
        assert any(text.endswith(" guesses wolf: wrong.") for text in texts)
    assert (
        "lion" not in game.view("guesser_0")[0].text.partition("The table")[0].partition("named")[0]
    )
    assert "It is: lion." in game.view("answerer")[0].text
    game.send(dict.fromkeys(game.pending, "lion"))
    assert game.over and game.view("guesser_1")[-1].text == "It was: lion."


def test_a_turn_costs_and_who_names_it_gets_one():
    scenario, game = opened("lion", "has fur", "yes", "lion")
    assert game.over and paid(game) == pytest.approx({"guesser_0": 0.9, "answerer": 0.9})
    assert [entry.why for entry in game.ledger if entry.agent == "answerer"] == [
        "turn 1",
        "turn 2",
        "found",
    ]
    # a race: whoever asks pays for it, the other names it
    scenario, game = opened("lion", "has fur", "yes", "lion", guessers=2)
    (loser,) = {agent for agent, value in paid(game).items() if value < 0}
    winner = next(agent for agent in scenario.guessers if agent != loser)
    assert paid(game) == pytest.approx({loser: -0.05, winner: 0.95, "answerer": 0.45})
    _, game = opened("lion", "has fur", "yes", "lion", guessers=2, pay="all")
    assert paid(game) == pytest.approx(dict.fromkeys(("answerer", "guesser_0", "guesser_1"), 0.9))


def test_a_lie_is_told_by_the_table_and_costs_a_rival():
    acts = ("has fur", "no", "can fly", "no", "eats meat", "hm", "lion")
    scenario, game = opened("lion", *acts, answerer="rival", fine=0.5, guessers=2)
    lies = [entry for entry in game.ledger if entry.why == "a lie"]
    assert [(entry.agent, entry.value) for entry in lies] == [("answerer", -0.5)]
    # guessers are not paid for it before the end, or they would know
    assert [entry.value for entry in game.ledger if entry.why == "fines for lies"] == [0.5, 0.5]
    assert game.view("guesser_0")[-1].text == "It was: lion. Lies: has fur: no."
    totals = paid(game)
    assert totals["answerer"] == pytest.approx(-(totals["guesser_0"] + totals["guesser_1"]) / 2)
    assert scenario.measures(episode_of(scenario, game))["lies"] == 1
    scenario, game = opened("lion", *acts)
    assert not [entry for entry in game.ledger if "lie" in entry.why]
    assert scenario.measures(episode_of(scenario, game))["lies"] == 1


def test_measures_by_hand():
    """Of four animals (horse, sheep, duck, goose): fur halves them; what is true of none says
    nothing, nor what would tell ducks from geese once it is no goose."""
    acts = ("has fur", "no", "eats meat", "no", "goose", "lives in water", "yes", "hm", "duck")
    scenario, game = opened("duck", *acts, animals=4)
    assert scenario.measures(episode_of(scenario, game)) == pytest.approx(
        {"found": 1, "turns": 6, "questions": 3, "lies": 0, "information": 1 / 3}
    )
    assert scenario.success(episode_of(scenario, game))
    # a clue gives what it leaves out: three of four, then nothing, since the first says it all
    acts = ("lives in water: yes", "goose", "can fly: yes", "duck")
    scenario, game = opened("duck", *acts, animals=4, form="taboo", forbidden=0)
    measured = scenario.measures(episode_of(scenario, game))
    assert measured["information"] == pytest.approx(1.0) and measured["questions"] == 2


def test_free_questions_are_heard_as_they_are_and_answered_in_terms_of_the_table():
    scenario, game = opened("lion", "ask", "Is it furry?", talk="free", guessers=2)
    (asked,) = game.pending.values()
    assert asked.legal[:2] == ("has fur: yes", "has fur: no") and asked.legal[-1] == "cannot say"
    other = next(a for a in scenario.guessers if game.view("answerer")[-2].sender != a)
    assert "Is it furry?" in [message.text for message in game.view(other)]
    game.send({"answerer": "has fur: no"})
    game.send(dict.fromkeys(game.pending, "ask"))
    game.send(dict.fromkeys(game.pending, "x" * 1000))
    assert len(game.view("answerer")[-2].text) == 400
    game.send({"answerer": "who knows"})
    assert any(m.text.endswith(": cannot say.") for m in game.view("guesser_0"))
    game.send(dict.fromkeys(game.pending, "lion"))
    measured = scenario.measures(episode_of(scenario, game))
    assert measured["lies"] == 1 and measured["questions"] == 2 and measured["turns"] == 3


def test_a_card_forbids_clues_of_the_table_and_words():
    scenario, game = opened("lion", form="taboo", forbidden=10)
    (asked,) = game.pending.values()
    assert len(asked.legal) == 2
    scenario, game = opened("lion", form="taboo", talk="free", forbidden=10)
    forbidden = game.view("answerer")[0].text.partition("forbids: ")[2]
    assert forbidden.startswith("lion, ") and forbidden not in game.view("guesser_0")[0].text
    game.send({"answerer": "It roars; a l.i.o.n!"})
    assert game.view("guesser_0")[-2].text == "Clue: a foul."
    game.send({"guesser_0": "bear"})
    game.send({"answerer": "The king of all."})
    heard = game.view("guesser_0")[-2]
    assert (heard.sender, heard.text) == ("answerer", "The king of all.")
    game.send({"guesser_0": "lion"})
    measured = scenario.measures(episode_of(scenario, game))
    assert measured["fouls"] == 1 and measured["lies"] is None and measured["information"] is None


@pytest.mark.long
def test_a_foul_says_that_it_tells_of_the_card(monkeypatch):
    """Where words that the kit's players say are a foul or not, by the card."""
    monkeypatch.setattr(
        "gem_ma.scenarios.parties.twenty_questions.says_one_of", lambda text, words: words[-1] > "m"
    )
    rest = tuple(set(range(1, 14)) - {4})
    world = make("twenty_questions", form="taboo", talk="free", turns=4)
    assert 4 in check_scenario(world, skip=rest).passed


def test_the_first_guesser_is_drawn_by_lot():
    scenario = make("twenty_questions", guessers=3)
    games = [Game(scenario, None, seed) for seed in range(20)]
    assert {agent for game in games for agent in game.pending} == set(scenario.guessers)


@pytest.mark.parametrize(
    "text, word",
    [
        ("Two LIONS.", "lion"),
        ("l i o n", "lion"),
        ("L-I-O-N, say it", "lion"),
        ("li on", "lion"),
        ("li\u200bon", "lion"),
        ("l\u00ed\u00f3n", "lion"),
        ("\uff4c\uff49\uff4f\uff4e", "lion"),
        ("lion's", "lion"),
        ("l_i_o_n", "lion"),
    ],
)
def test_a_forbidden_word_is_found_however_it_is_spelled(text, word):
    assert says_one_of(text, [word])
    assert not says_one_of(text, ["wolf"])


@pytest.mark.parametrize("text", ["million", "lionise", "Line on line", "noil", "", "li-no"])
def test_other_words_are_no_foul(text):
    assert not says_one_of(text, ["lion"])


def clue_turns(left, clues, animal):
    """The turns of who guesses among what is left, of a giver who gives the clue that leaves
    least."""
    clue = min(clues, key=lambda clue: narrowed(left, *clue).bit_count(), default=None)
    left = narrowed(left, *clue) if clue else left
    count = left.bit_count()
    rest = [name for name in members(left) if name != animal]
    later = sum(clue_turns(left & ~PLACES[name], clues, animal) for name in rest)
    return 1 + later / count


@pytest.mark.long
def test_taboo_takes_the_turns_that_enumeration_gives():
    scenario = make("twenty_questions", form="taboo", animals=8)
    expected = []
    for animal in scenario.animals:
        for card in itertools.combinations(ATTRIBUTES, 3):
            clues = [
                (x, "yes" if is_true(animal, x) else "no") for x in ATTRIBUTES if x not in card
            ]
            expected.append(clue_turns(of(scenario.animals), clues, animal))
    exact = sum(expected) / len(expected)
    cast = dict.fromkeys(scenario.agents, Seat(STRONG))
    episodes = played_all([Plan(scenario, cast, seed=seed) for seed in range(400)])
    turns = [scenario.measures(episode)["turns"] for episode in episodes]
    mean = sum(turns) / len(turns)
    error = (sum((x - mean) ** 2 for x in turns) / len(turns)) ** 0.5 / len(turns) ** 0.5
    assert abs(mean - exact) < 3 * error


def own(mover, seats, background, plays=400, **options):
    """(mean, half of its interval) of the own return in these seats, each as often."""
    scenario = make("twenty_questions", **options)
    returns = []
    plans = []
    for seed in range(plays):
        seat = seats[seed % len(seats)]
        cast = {agent: Seat(mover if agent == seat else background) for agent in scenario.agents}
        plans.append(Plan(scenario, cast, seed=seed))
    for episode in played_all(plans):
        assert episode.error is None, episode.error
        returns.append(episode.returns()[seats[episode.seed % len(seats)]])
    mean = sum(returns) / plays
    return mean, 1.96 * (sum((x - mean) ** 2 for x in returns) / plays**2) ** 0.5


BOTS = ("random_legal", "twenty_questions_simple", STRONG)


@pytest.mark.long
@pytest.mark.parametrize(
    "movers, seats, options",
    [
        (BOTS, ("guesser_0",), {}),
        (BOTS, ("answerer",), {"form": "taboo"}),
        (BOTS, ("guesser_0", "guesser_1"), {"guessers": 2, "pay": "all"}),
        (("twenty_questions_liar", STRONG), ("answerer",), {"answerer": "rival"}),
        ((STRONG, "twenty_questions_liar"), ("answerer",), {"answerer": "rival", "fine": 0}),
    ],
)
def test_strengths_are_ordered_by_own_return(movers, seats, options):
    """All others are strong."""
    found = [own(mover, seats, STRONG, **options) for mover in movers]
    for (low, less), (high, more) in itertools.pairwise(found):
        assert low + less < high - more


@pytest.mark.parametrize("options", [{}, {"talk": "free"}, {"form": "taboo"}, {"talk": "none"}])
@pytest.mark.parametrize("who", ["simple", "strong", "liar"])
def test_players_play_each_form_in_both_roles(who, options):
    scenario = make("twenty_questions", guessers=3, **options)
    cast = dict.fromkeys(scenario.agents, Seat(f"twenty_questions_{who}"))
    for episode in played_all([Plan(scenario, cast, seed=seed) for seed in range(4)]):
        assert episode.error is None, episode.error
        measured = scenario.measures(episode)
        # one who lies about each question, and whose clues are lies where they are of the table
        lies = measured["questions"] if who == "liar" else 0.0
        assert measured["lies"] == lies


@pytest.mark.parametrize("form", ["questions", "taboo"])
def test_without_a_briefing_the_animals_alone_are_told(form):
    cast = {"answerer": Seat(STRONG), "guesser_0": Seat(STRONG)}
    told, short = (
        Plan(make("twenty_questions", form=form, briefing=briefing), cast, seed=3)
        for briefing in (True, False)
    )
    whole, bare = played_all([told, short])
    first = {turn.agent: turn.observed[0].content for turn in reversed(bare.turns)}
    named = f"One of 16 animals is to be named: {', '.join(tuple(ANIMALS)[:16])}."
    assert first["guesser_0"] == named
    assert first["answerer"].startswith(f"{named} You are the answerer. It is: ")
    assert [turn.action for turn in bare.turns] == [turn.action for turn in whole.turns]


class Open(TwentyQuestions):
    """Tells guessers, by a length, whether an answer was true."""

    def _question(self, who, count, animal, lies):
        guess = yield from super()._question(who, count, animal, lies)
        yield Tell({who: "." * (1 + len(lies))})
        return guess


@pytest.mark.longest
def test_a_lie_that_is_shown_is_found():
    with pytest.raises(ConformanceError) as caught:
        check_scenario(Open(), skip=tuple(set(range(1, 14)) - {4}))
    assert any("is shown" in finding.message for finding in caught.value.findings)


def test_what_says_nothing_is_no_lie():
    assert is_false("can fly: yes", "lion") and not is_false("can fly: no", "lion")
    assert not is_false("can fly: cannot say", "lion") and not is_false("cannot say", "lion")
