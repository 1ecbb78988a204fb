"""Networks: each checker on planted right and wrong answers, what is told to whom, what chance is
worth."""

from __future__ import annotations

import itertools
import random

import pytest
from gem_ma.scenarios.parties.network import (
    NOBODY,
    PROBLEMS,
    by_chance,
    check,
    grid,
    linked,
    regular,
)

from gem_ma import Game, make

VALUES = 4


def some_graph(rng):
    """A connected graph of 2 to 12 agents: a random tree with further edges."""
    count = rng.randint(2, 12)
    pairs = {(rng.randrange(place), place) for place in range(1, count)}
    for _ in range(rng.randint(0, count)):
        one, other = rng.sample(range(count), 2)
        pairs.add((min(one, other), max(one, other)))
    return linked(tuple(f"node_{place}" for place in range(count)), tuple(sorted(pairs)))


def right(problem, graph, held, rng):
    """Answers that solve it, made by a greedy pass in a random order."""
    agents = list(graph.near)
    rng.shuffle(agents)
    if problem == "consensus":
        return dict.fromkeys(graph.near, str(held[agents[0]]))
    if problem == "sum":
        return dict.fromkeys(graph.near, str(sum(held.values()) % VALUES))
    if problem == "leader":
        return {agent: "yes" if agent == agents[0] else "no" for agent in graph.near}
    given = {}
    for agent in agents:
        near = [given[other] for other in graph.near[agent] if other in given]
        if problem == "colouring":
            given[agent] = next(str(c) for c in itertools.count() if str(c) not in near)
        elif problem == "cover":
            given[agent] = "yes" if "no" in near else "no"
        elif agent not in given:
            free = [other for other in graph.near[agent] if other not in given]
            given[agent] = rng.choice(free) if free else NOBODY
            if free:
                given[given[agent]] = agent
    return {agent: given[agent] for agent in graph.near}


def is_solved(problem, graph, answers, held):
    """The same question, asked in another way: sets, and no edge looked at twice."""
    links = [frozenset(edge) for edge in graph.edges]
    if None in answers.values():
        return False
    if problem == "consensus":
        return len(set(answers.values())) == 1 and set(answers.values()) <= set(
            map(str, held.values())
        )
    if problem == "sum":
        return set(answers.values()) == {str(sum(held.values()) % VALUES)}
    if problem == "leader":
        return sorted(answers.values()) == ["no"] * (len(answers) - 1) + ["yes"]
    if problem == "colouring":
        return all(len({answers[agent] for agent in link}) == 2 for link in links)
    if problem == "cover":
        members = {agent for agent in answers if answers[agent] == "yes"}
        covers = lambda chosen: all(link & chosen for link in links)  # noqa: E731
        return covers(members) and not any(covers(members - {agent}) for agent in members)
    pairs = {frozenset((a, b)) for a, b in answers.items() if b != NOBODY}
    paired = [agent for pair in pairs for agent in pair]
    return (
        pairs <= set(links)
        and len(paired) == len(set(paired))
        and set(paired) == {a for a, b in answers.items() if b != NOBODY}
        and all(link & set(paired) for link in links)
    )


def choices(problem, graph, agent):
    if problem == "matching":
        return [*graph.near[agent], NOBODY, None]
    if problem in ("leader", "cover"):
        return ["yes", "no", None]
    return [*map(str, range(VALUES if problem != "colouring" else 6)), None]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_hundreds_of_right_and_wrong_answers_are_told_apart(problem):
    rng = random.Random(problem)
    seen = {True: 0, False: 0}
    while min(seen.values()) < 300:
        graph = some_graph(rng)
        held = {agent: rng.randrange(VALUES) for agent in graph.near}
        answers = right(problem, graph, held, rng)
        assert check(problem, graph, answers, held, VALUES) == (True, 1.0)
        seen[True] += 1
        for agent in rng.choices(list(answers), k=rng.randint(1, 3)):
            answers[agent] = rng.choice(choices(problem, graph, agent))
        solved, share = check(problem, graph, answers, held, VALUES)
        assert solved == is_solved(problem, graph, answers, held), (graph.edges, answers)
        assert 0 <= share <= 1
        seen[solved] += 1


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_share_of_random_answers_is_exact(problem):
    """By enumeration of all answers on a star with a further edge."""
    graph = linked(("a", "b", "c", "d"), ((0, 1), (0, 2), (0, 3), (1, 2)))
    held = dict(zip(graph.near, (1, 2, 3, 1), strict=True))
    lists = [[c for c in choices(problem, graph, agent) if c] for agent in graph.near]
    if problem == "colouring":
        lists = [["0", "1", "2", "3"]] * 4
    shares = [
        check(problem, graph, dict(zip(graph.near, answers, strict=True)), held, VALUES)[1]
        for answers in itertools.product(*lists)
    ]
    assert by_chance(problem, graph, 4) == pytest.approx(sum(shares) / len(shares), abs=1e-12)


def test_graphs_are_what_they_are_called():
    agents = tuple(f"node_{place}" for place in range(12))
    assert len(grid(12)) == 17 and len(grid(7)) == 6
    for seed in range(20):
        graph = regular(agents, 3, str(seed))
        assert {len(near) for near in graph.near.values()} == {3} and len(graph.edges) == 18
        assert {a: set(near) for a, near in graph.near.items()} == {
            a: set(near) for a, near in graph.mixed.items()
        }
    assert len({regular(agents, 3, str(seed)).edges for seed in range(20)}) == 20
    assert [len(make("network", graph="star", agents=n).pairs) for n in (2, 64)] == [1, 63]


def test_only_neighbours_hear():
    game = Game(make("network", agents=5, graph="star", problem="sum"), seed=3)
    game.send({agent: agent[-1].replace("4", "0") for agent in game.pending})
    assert "Heard: node_0: 0." in game.view("node_2")[-1].text
    assert "Heard: node_1: 1; node_2: 2; node_3: 3; node_4: 0." in game.view("node_0")[-1].text
    game.send(dict.fromkeys(game.pending, "no signal at all"))
    assert "Heard: node_0: -." in game.view("node_2")[-1].text


def test_free_talk_keeps_its_sender_and_hides_it_from_the_anonymous():
    for anonymous, sender in ((False, "node_1"), (True, "scenario")):
        game = Game(make("network", talk="free", anonymous=anonymous, agents=6), seed=3)
        assert ("node_" in game.view("node_0")[0].text) != anonymous
        game.send({agent: f"I am {agent[-1]}" for agent in game.pending})
        heard = [m for m in game.view("node_0") if "I am 1" in m.text]
        assert [message.sender for message in heard] == [sender]


def test_neighbours_are_paired_through_their_numbers():
    game = Game(make("network", problem="matching", anonymous=True, talk="none", agents=2), seed=0)
    game.send(dict.fromkeys(game.pending, "neighbour 1"))
    assert game.ledger[0].why == "solved, 1.0000 satisfied"
    assert [entry.value for entry in game.ledger] == [1.0, 1.0]


def test_pay_is_all_or_a_share():
    for pay, paid in (("solved", 0.0), ("share", 0.75)):
        scenario = make("network", problem="colouring", agents=4, talk="none", pay=pay)
        game = Game(scenario)
        game.send(dict(zip(scenario.agents, "0012", strict=True)))
        assert game.ledger[0].value == paid
