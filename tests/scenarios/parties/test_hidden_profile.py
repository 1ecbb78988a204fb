"""The hidden profile: what is dealt, the exact chance of those who heed their own facts alone, and
that only what is said is known."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from gem_ma.scenarios.parties.hidden_profile import FACT, HiddenProfile, chosen, favoured

from gem_ma import Game, Plan, Seat, Tell, check_scenario, make
from gem_ma.kernel.errors import ConformanceError
from gem_ma.kernel.talk import BIDS
from tests.plays import played_all, recorded

SHAPES = [
    {},
    {"agents": 2, "unshared": 1, "lead": 1},
    {"agents": 3, "choices": 5, "unshared": 1, "lead": 2},
    {"agents": 5, "choices": 2, "unshared": 2, "lead": 9},
    {"agents": 64, "choices": 4, "unshared": 8, "lead": 20},
]


@pytest.mark.parametrize("options", SHAPES)
@pytest.mark.parametrize("hidden", [0.0, 0.5, 1.0])
def test_what_all_know_speaks_for_one_and_all_facts_for_the_right_one(options, hidden):
    scenario = make("hidden_profile", hidden=hidden, **options)
    misleads = []
    for seed in range(12):
        task = scenario.tasks("test")[seed]
        shared = scenario.shared(task)
        held = scenario.deal(random.Random(seed), task)
        assert {len(hand) for hand in held.values()} == {scenario.unshared}
        facts = [*shared, *itertools.chain(*held.values())]
        # all are different, and none is numbered by how many there are
        assert len({fact[1:] for fact in facts}) == len(facts) and all(map(FACT.fullmatch, facts))
        (leader,) = favoured(shared, scenario.choices)
        lead = sorted(fact[0] for fact in shared).count(leader) - 1
        assert lead == scenario.lead and len(shared) == len(scenario.choices) + lead
        (right,) = favoured(facts, scenario.choices)
        assert scenario.right(task, held) == right
        misleads.append(right != leader)
    assert (any(misleads), all(misleads)) == (hidden > 0, hidden == 1)


def by_hand(agents, unshared, shared, pool):
    """The chance of each choice over all orders of the facts, one by one."""
    facts = [place for place, count in enumerate(pool) for _ in range(count)]
    total = [Fraction(0)] * len(pool)
    orders = set(itertools.permutations(facts))
    for order in orders:
        tops = []
        for start in range(0, len(facts), unshared):
            hand = order[start : start + unshared]
            knows = [count + hand.count(place) for place, count in enumerate(shared)]
            tops.append([place for place, count in enumerate(knows) if count == max(knows)])
        votes = list(itertools.product(*tops))
        for cast in votes:
            counts = [cast.count(place) for place in range(len(pool))]
            best = [place for place, count in enumerate(counts) if count == max(counts)]
            for place in best:
                total[place] += Fraction(1, len(best) * len(votes))
    return [chance / len(orders) for chance in total]


@pytest.mark.parametrize(
    "shape",
    [
        (3, 1, (2, 1), (0, 3)),
        (4, 2, (3, 1, 1), (2, 4, 2)),
        (3, 2, (2, 1, 1), (1, 4, 1)),
        (2, 3, (2, 1, 1, 1), (1, 3, 1, 1)),
    ],
)
def test_the_chance_of_own_facts_is_what_enumeration_gives(shape):
    expected = by_hand(*shape)
    assert chosen(*shape) == pytest.approx([float(chance) for chance in expected], abs=1e-12)
    assert sum(chosen(*shape)) == pytest.approx(1)


@pytest.mark.longest
@pytest.mark.parametrize("options", [{}, {"hidden": 0.5}, {"choices": 2, "unshared": 4}])
def test_ten_thousand_plays_of_own_facts_come_out_as_computed(options):
    scenario = make("hidden_profile", talk="none", **options)
    tasks = scenario.tasks("test")
    lots = random.Random(5)
    won = 0
    for seed in range(10_000):
        task = tasks[seed % len(tasks)]
        game = Game(scenario, task, seed)
        held = scenario.deal(random.Random(seed), task)
        shared = scenario.shared(task)
        game.send(
            {a: lots.choice(favoured((*shared, *held[a]), scenario.choices)) for a in game.pending}
        )
        won += game.ledger[0].value == 1
    chance = scenario.baselines["own facts alone, everybody (success)"]
    assert abs(won / 10_000 - chance) < 3 * (chance * (1 - chance) / 10_000) ** 0.5


def played(behaviour, count, **options):
    scenario = make("hidden_profile", **options)
    cast = {agent: Seat(behaviour) for agent in scenario.agents}
    plans = [Plan(scenario, cast, f"test/{seed % 100}", seed) for seed in range(count)]
    episodes = played_all(plans)
    assert not [episode.error for episode in episodes if episode.error]
    return scenario, episodes


def interval(scenario, episodes):
    share = sum(map(scenario.success, episodes)) / len(episodes)
    half = 1.96 * (share * (1 - share) / len(episodes)) ** 0.5
    return share, share - half, share + half


@pytest.mark.longest
@pytest.mark.parametrize(
    "hidden, order",
    [
        (1.0, ("own", "mixed", "unshared")),
        (0.5, ("random_legal", "own", "mixed", "unshared")),
    ],
)
def test_who_says_what_others_do_not_know_is_right_most_often(hidden, order):
    """One behaviour in all seats: all are paid alike."""
    names = [who if who == "random_legal" else f"hidden_profile_{who}" for who in order]
    found = [interval(*played(name, 600, hidden=hidden)) for name in names]
    print(hidden, dict(zip(names, found, strict=True)))
    for (_, _, high), (_, low, _) in itertools.pairwise(found):
        assert high < low


@pytest.mark.longest
def test_what_all_know_is_said_more_often_by_chance():
    """Of nine things that each may say, each in three rounds: an unshared fact is one member's."""
    scenario, episodes = played("random_legal", 1500)
    for name, chance in (
        ("unshared mentioned", 1 - (8 / 9) ** 3),
        ("shared mentioned", 1 - (8 / 9) ** 12),
    ):
        shares = [scenario.measures(episode)[name] for episode in episodes]
        mean = sum(shares) / len(shares)
        spread = (sum((x - mean) ** 2 for x in shares) / len(shares)) ** 0.5
        assert abs(mean - chance) < 3 * spread / len(shares) ** 0.5, name


@pytest.mark.parametrize("order", ["at once", "in turn", "bids"])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("talk", ["none", "signals", "free"])
def test_members_play_each_form_of_talk(talk, marked, order):
    options = {"talk": talk, "marked": marked, "order": order, "rounds": 8}
    for who in ("shared", "mixed", "unshared"):
        scenario, episodes = played(f"hidden_profile_{who}", 3, **options)
        # eight rounds are enough for all that anybody knows, but not by bids: one speaks a round
        if talk != "none" and order != "bids":
            assert all(map(scenario.success, episodes))


def test_only_what_one_knows_may_be_said_and_is_heard():
    scenario = make("hidden_profile", rounds=1)
    task = scenario.tasks("train")[3]
    held = scenario.deal(random.Random(8), task)
    shared = scenario.shared(task)
    game = Game(scenario, task, 8)
    for agent, asked in game.pending.items():
        assert set(asked.legal) == {*shared, *held[agent], "nothing"}
        knows = set(FACT.findall(" ".join(message.text for message in game.view(agent))))
        assert knows == {*shared, *held[agent]}
    one, other = scenario.agents[:2]
    game.send({agent: held[agent][0] if agent == one else held[one][0] for agent in game.pending})
    assert [m.text for m in game.view(other) if m.sender == one] == [held[one][0]]
    # what it does not know it cannot say
    assert not [m for m in game.view(one) if m.sender == other]


def test_the_lot_breaks_ties_and_those_who_know_more_bid_more():
    scenario = make("hidden_profile", agents=2, talk="none")
    winners = set()
    for seed in range(20):
        game = Game(scenario, {"facts": "test/1"}, seed)
        game.send({"member_0": "A", "member_1": "B"})
        winners.add(game.ledger[0].why[0])
    assert winners == {"A", "B"}
    _, (episode,) = played("hidden_profile_unshared", 1, order="bids", rounds=4)
    bids = [turn.action.parsed for turn in episode.turns if turn.legal == BIDS]
    # each has three to say, and whoever speaks has one less
    assert bids[:4] == ["3"] * 4 and sorted(bids[4:8]) == ["2", "3", "3", "3"]


def test_unmarked_facts_are_in_no_order_that_tells():
    game = Game(make("hidden_profile", marked=False), {"facts": "test/1"}, 1)
    text = game.view("member_0")[0].text
    known = FACT.findall(text)
    assert "Only you" not in text and known == sorted(known) and len(known) == 8


def test_measures_by_hand():
    scenario = make("hidden_profile", agents=3, talk="free", rounds=1, pay="share")
    held = scenario.deal(random.Random(0), scenario.tasks("train")[0])
    shared = scenario.shared(scenario.tasks("train")[0])
    right = scenario.right(scenario.tasks("train")[0], held)
    wrong = shared[0][0]
    unknown = next(f"A{n}" for n in range(1, 99) if f"A{n}" not in {*shared, *held["member_1"]})
    said = [f"I know {held['member_0'][0]} and {shared[0]}.", f"{unknown}!", "hm"]
    votes = [right, right, wrong]

    def play(vote):
        game = Game(scenario, scenario.tasks("train")[0], 0)
        game.send(dict(zip(scenario.agents, said, strict=True)))
        game.send(dict(zip(scenario.agents, vote, strict=True)))
        return game

    def episode(game):
        cast = {agent: Seat() for agent in scenario.agents}
        return recorded(cast, tuple(game.turns), tuple(game.ledger))

    made = episode(play(votes))
    assert "the share of members who vote right" in made.turns[0].observed[0].text
    misled = sum(right not in favoured((*shared, *h), scenario.choices) for h in held.values())
    assert scenario.measures(made) == pytest.approx(
        {
            "unshared mentioned": 1 / 9,
            "shared mentioned": 1 / 5,
            "agreement": 2 / 3,
            "votes right": 2 / 3,
            "misled": misled / 3,
            "made up": 1 / 3,
        }
    )
    assert scenario.success(made) and made.returns()["member_2"] == pytest.approx(2 / 3)
    # who cannot be read does not vote; where nobody does the lot decides
    silent = episode(play(["hm"] * 3))
    assert scenario.measures(silent)["agreement"] is None
    assert set(silent.returns().values()) == {0.0}


class Open(HiddenProfile):
    """Tells, before they vote, how many of its own facts a member has for A, or for what its first
    one speaks."""

    def play(self, rng, task):
        letters = "".join(fact[0] for fact in self.deal(random.Random(1), task)["member_1"])
        leak = 1 + letters.count("A") if not self.marked else 1 + "ABC".index(letters[0])
        yield Tell({"member_0": "." * leak})
        yield from super().play(rng, task)


@pytest.mark.longest
@pytest.mark.parametrize("marked", [True, False])
def test_a_leak_is_found(marked):
    with pytest.raises(ConformanceError) as caught:
        check_scenario(Open(marked=marked), skip=tuple(set(range(1, 14)) - {4}))
    assert any("is shown" in finding.message for finding in caught.value.findings)
