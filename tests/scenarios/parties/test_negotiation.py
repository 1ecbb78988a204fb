"""Negotiation: counts by enumeration, who has the last word, when a vote passes, what is measured."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from gem_ma import Game, Plan, Seat, make, play


@pytest.mark.parametrize("parties, needed", [(2, None), (3, None), (6, None), (6, 3), (7, 7)])
def test_counts_of_deals_equal_enumeration(parties, needed):
    scenario = make("negotiation", parties=parties, needed=needed)
    lists = [[f"{issue} {o}" for o in options] for issue, options in OPTIONS.items()]
    for seed in range(50):
        secrets = scenario.deal(random.Random(seed), None)
        content = [
            [sum(s["points"][part] for part in deal) >= s["walk"] for s in secrets.values()]
            for deal in itertools.product(*lists)
        ]
        least = {2: 2}.get(parties, needed or parties - 1)
        both = [row for row in content if row[0] and row[1] and row.count(True) >= least]
        assert scenario.counts(secrets) == (len(both), sum(map(all, content)))
        assert both and len(content) == len(scenario.deals) == 27


OPTIONS = {
    "price": ("low", "medium", "high"),
    "date": ("spring", "summer", "autumn"),
    "term": ("short", "middling", "long"),
}


def test_points_of_the_best_deal_are_a_hundred():
    scenario = make("negotiation", parties=4, issues=5)
    for seed in range(20):
        for secret in scenario.deal(random.Random(seed), None).values():
            values = [scenario.worth(secret, deal) for deal in scenario.deals]
            assert (min(values), max(values), len(values)) == (0, 100, 243)
            assert 30 <= secret["walk"] <= 55


@pytest.mark.parametrize("last, who", [("first", "party_1"), ("second", "party_2")])
@pytest.mark.parametrize("rounds", [1, 4, 5])
def test_the_last_word_is_told_and_makes_no_offer(last, who, rounds):
    scenario = make("negotiation", last=last, rounds=rounds)
    game = Game(scenario, seed=1)
    assert f"{who} has the last word: turn {rounds} " in game.view("party_1")[0].text
    for turn in range(rounds):
        ((agent, asked),) = game.pending.items()
        if turn == rounds - 1:
            assert agent == who
            assert asked.legal == (("accept", "walk away") if turn else ("walk away",))
        game.send({agent: scenario.deals[turn] if turn < rounds - 1 else asked.legal[0]})
    assert game.ledger[0].why == (f"deal: {scenario.deals[rounds - 2]}" if turn else "no deal")


def test_the_lot_gives_either_the_last_word():
    starts = {next(iter(Game(make("negotiation"), seed=seed).pending)) for seed in range(20)}
    assert starts == {"party_1", "party_2"}


def test_who_cannot_be_read_walks_away():
    scenario = make("negotiation")
    game = Game(scenario, seed=1)
    game.send(dict.fromkeys(game.pending, "how about lunch"))
    walk = {a: s["walk"] / 100 for a, s in scenario.deal(random.Random(1), None).items()}
    assert {entry.agent: entry.value for entry in game.ledger} == walk and game.over


@pytest.mark.parametrize(
    "against, passes", [((), True), ((5,), True), ((2,), False), ((4, 5), False)]
)
def test_votes_need_the_leader_and_all_but_one(against, passes):
    game = Game(make("negotiation", parties=6, rounds=2), seed=0)
    game.send({"party_1": "price low, date summer, term long"})
    votes = {a: "reject" if int(a[-1]) in against else "accept" for a in game.pending}
    game.send(votes)
    assert game.over == passes
    if not passes:
        assert game.view("party_3")[-1].text.startswith("Rejected; in favour: party_1")
        game.send({"party_1": "walk away"})
        assert game.ledger[0].why == "no deal"


def test_a_round_without_a_proposal_passes():
    game = Game(make("negotiation", parties=3, rounds=2, talk="signals"), seed=0)
    assert "term long" in game.pending["party_2"].legal
    game.send(dict.fromkeys(game.pending, "term long"))
    assert [m.text for m in game.view("party_2") if m.sender == "party_3"] == ["term long"]
    game.send({"party_1": "let us talk"})
    assert list(game.pending) == ["party_1", "party_2", "party_3"]
    assert any("no proposal" in message.text for message in game.view("party_3"))


def test_measures_equal_a_slow_count():
    scenario = make("negotiation")
    cast = {agent: Seat(behaviour="random_legal") for agent in scenario.agents}
    seen = set()
    for seed in range(40):
        episode = asyncio.run(play(Plan(scenario, cast, seed=seed)))
        measured = scenario.measures(episode)
        one, other = scenario.deal(random.Random(seed), None).values()
        points = [(scenario.worth(one, d), scenario.worth(other, d)) for d in scenario.deals]
        got = [100 * episode.returns()[agent] for agent in scenario.agents]
        gains = [max(0, g - s["walk"]) for g, s in zip(got, (one, other), strict=True)]
        best = max(max(0, a - one["walk"]) * max(0, b - other["walk"]) for a, b in points)
        assert measured["welfare"] == pytest.approx(sum(got) / 200)
        assert measured["agreement"] == float(scenario.success(episode))
        if best:
            assert measured["nash share"] == pytest.approx(gains[0] * gains[1] / best)
        away = max(0, *(min(a - got[0], b - got[1]) for a, b in points))
        assert measured["pareto distance"] == pytest.approx(away / 100)
        seen.add((measured["agreement"], away > 0))
    assert len(seen) >= 3
