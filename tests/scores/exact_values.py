"""Exact values of turns in three small worlds whose players are known, by enumeration of all that
may happen: what `gem_ma.attribution` estimates by forks.

Players draw each act apart, so a probability of what was seen is a product. Axes: 5 nodes of a ring
with numbers from 0 to VALUES - 1, two rounds of talk, then answers.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from gem_ma import Episode, Plan, Scenario, Seat, make, play
from gem_ma.driver.behaviour import Factory, FromFunction
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Message
from gem_ma.registry import dealt
from gem_ma.scores.forked import Forks

Text = Callable[[Sequence[Message], Any, random.Random], str]


def player(function: Text) -> Factory:
    def made(agent: str, sample: Any, rng: random.Random, task: Any = None) -> FromFunction:
        return FromFunction(function, rng)

    made.waits = False  # type: ignore[attr-defined]
    return made


def forks_of(
    scenario: Scenario, players: Mapping[str, Factory], seed: int, **options: Any
) -> Forks:
    cast = {agent: Seat("tests") for agent in scenario.agents}
    played = asyncio.run(play(Plan(scenario, cast, seed=seed), {}, players))
    assert played.end.scored, played.error
    return Forks(scenario, played, behaviours=players, **options)


class Repeated(Forks):
    """The same forks with other random numbers, for each `number`."""

    number = 0

    def seed(self, *what: Any) -> str:
        return super().seed(*what, self.number)


# -- Kuhn poker ------------------------------------------------------------------------------------

KUHN = make("kuhn_poker")
BOLD = {"J": 0.3, "Q": 0.5, "K": 0.8}  # the chance of the second of two moves


def card(messages: Sequence[Message]) -> str:
    return str(messages[0].text).rstrip(".")[-1]


def bold(messages: Sequence[Message], legal: Any, rng: random.Random) -> str:
    return str(legal[rng.random() < BOLD[card(messages)]])


KUHN_PLAYERS = dict.fromkeys(KUHN.agents, player(bold))


def chance(game: Game, agent: str, text: str) -> float:
    second = BOLD[card(game.view(agent))]
    legal = game.pending[agent].legal
    assert legal is not None
    return second if text == legal[1] else 1 - second


def worth(game: Game, agent: str) -> float:
    """What an agent is paid from here on, in expectation."""
    if not game.pending:
        return sum(entry.value for entry in game.ledger if entry.agent == agent)
    ((mover, asked),) = game.pending.items()
    total = 0.0
    for text in asked.legal or ():
        after = game.fork()
        after.send({mover: text})
        total += chance(game, mover, text) * worth(after, agent)
    return total


def of_kuhn(episode: Episode, place: int, given: str) -> float:
    """The value of a turn of Kuhn: of one deal, or of all that its player could not tell from it,
    by how likely the other would have done there what it did."""
    turn = episode.turns[place]
    seat = KUHN.agents.index(turn.agent)
    deals = {
        tuple(card(Game(KUHN, None, seed).view(agent)) for agent in KUHN.agents): seed
        for seed in range(100)
    }
    dealt_cards = tuple(card(episode.transcript(agent)) for agent in KUHN.agents)
    assert len(deals) == 6
    meant = [dealt_cards]
    if given == "view":
        meant = [deal for deal in deals if deal[seat] == dealt_cards[seat]]
    weighed = total = 0.0
    for deal in meant:
        game = Game(KUHN, None, deals[deal])
        weight = 1.0
        for before in episode.turns[:place]:
            if before.agent != turn.agent:
                weight *= chance(game, before.agent, before.action.text)
            game.send({before.agent: before.action.text})
        after = game.fork()
        after.send({turn.agent: turn.action.text})
        weighed += weight * (worth(after, turn.agent) - worth(game, turn.agent))
        total += weight
    return weighed / total


# -- referential -----------------------------------------------------------------------------------

REFERENTIAL = make("referential", colours=2, shapes=2)
SHARP = {"speaker": 0.9, "listener": 0.8}  # how often each does what it means, and does not guess


def named(words: Sequence[str], others: Sequence[str], sharp: float) -> Factory:
    """Says of a thing, or hears of a word, what stands at the same place of the others."""

    def act(messages: Sequence[Message], legal: Any, rng: random.Random) -> str:
        text = str(messages[-1].text)
        place = next((n for n, word in enumerate(words) if word in text), None)
        knows = rng.random() < sharp  # drawn whatever was heard
        guess = rng.choice(list(others))
        return others[place] if knows and place is not None else guess

    return player(act)


def language(speaker: float, listener: float) -> dict[str, Factory]:
    things, words = REFERENTIAL.meanings, REFERENTIAL.utterances
    return {
        "speaker": named(things, words, speaker),
        "listener": named(words, things, listener),
    }


def said_of(agent: str, meant: int, said: int) -> float:
    """How likely an agent says this where it means that."""
    return SHARP[agent] * (meant == said) + (1 - SHARP[agent]) / len(REFERENTIAL.meanings)


def points(thing: int, answer: int) -> float:
    pairs = [REFERENTIAL.meanings[place].split() for place in (thing, answer)]
    return sum(one == other for one, other in zip(*pairs, strict=True)) / 2


def of_referential(episode: Episode, place: int, given: str) -> float:
    """The value of the speaker's turn, which knows all, or of the listener's."""
    things, words = REFERENTIAL.meanings, REFERENTIAL.utterances
    every = range(len(things))
    thing = things.index(dealt(REFERENTIAL, episode)["speaker"])
    word = words.index(episode.turns[0].action.text)
    answered = things.index(episode.turns[1].action.text)
    if place == 0:
        heard = [
            math.fsum(said_of("listener", w, a) * points(thing, a) for a in every) for w in every
        ]
        return heard[word] - math.fsum(said_of("speaker", thing, w) * heard[w] for w in every)
    likely = [float(t == thing) for t in every]
    if given == "view":
        likely = [said_of("speaker", t, word) for t in every]
    paid = [
        math.fsum(share * points(t, a) for t, share in zip(every, likely, strict=True))
        for a in every
    ]
    other = math.fsum(said_of("listener", word, a) * paid[a] for a in every)
    return (paid[answered] - other) / math.fsum(likely)


# -- a sum over a ring of five ---------------------------------------------------------------------

VALUES = 2
NODES = 5
SURE = 0.85  # how often a node says what it means, else one of the other numbers
RING = make("network", problem="sum", agents=NODES, values=VALUES, rounds=2, pay="share")
Numbers = tuple[int, ...]


def meant_by(own: int, heard: Sequence[Sequence[int]]) -> int:
    """Its number, then what it heard, then the sum of all: of its own, of what both neighbours hold
    and of what they heard from beyond."""
    if not heard:
        return own
    if len(heard) == 1:
        return sum(heard[0]) % VALUES
    return (own + sum(heard[0]) + sum(heard[1]) - 2 * own) % VALUES


def noisy(messages: Sequence[Message], legal: Any, rng: random.Random) -> str:
    own = int(re.findall(r"You hold (\d+)", str(messages[0].text))[0])
    lines = [str(message.text).split("Heard:") for message in messages]
    heard = [list(map(int, re.findall(r": (\d+)", line[1]))) for line in lines if len(line) > 1]
    meant = meant_by(own, heard)
    slip = rng.randrange(1, VALUES)
    return str(meant if rng.random() < SURE else (meant + slip) % VALUES)


RING_PLAYERS = dict.fromkeys(RING.agents, player(noisy))


def likely(node: int, held: Numbers, said: Sequence[Numbers], act: int) -> float:
    """How likely a node does this after the rounds that were said."""
    heard = [(row[node - 1], row[(node + 1) % NODES]) for row in said]
    is_meant = act == meant_by(held[node], heard)
    return SURE if is_meant else (1 - SURE) / (VALUES - 1)


def every_act(fixed: Mapping[int, int]) -> Iterator[Numbers]:
    """What all nodes may do at once where some do a thing that is known."""
    every = range(VALUES)
    return itertools.product(*([fixed[n]] if n in fixed else every for n in range(NODES)))


def by_all(
    held: Numbers, said: tuple[Numbers, ...], acts: Numbers, fixed: Mapping[int, int]
) -> float:
    """How likely all but the fixed nodes act so."""
    return math.prod(likely(n, held, said, acts[n]) for n in range(NODES) if n not in fixed)


@cache
def paid_after(held: Numbers, said: tuple[Numbers, ...]) -> float:
    """What each is paid in expectation after these rounds; the third are the answers."""
    if len(said) == 3:
        return said[2].count(sum(held) % VALUES) / NODES
    if len(said) == 2:
        right = sum(held) % VALUES
        return math.fsum(likely(n, held, said, right) for n in range(NODES)) / NODES
    return math.fsum(
        by_all(held, said, acts, {}) * paid_after(held, (*said, acts)) for acts in every_act({})
    )


@cache
def paid_for(held: Numbers, said: tuple[Numbers, ...], done: tuple[tuple[int, int], ...]) -> float:
    """The same where some nodes do a thing that is known in the next round."""
    fixed = dict(done)
    return math.fsum(
        by_all(held, said, acts, fixed) * paid_after(held, (*said, acts))
        for acts in every_act(fixed)
    )


def alike(held: Numbers, rows: Sequence[Numbers], node: int) -> Iterator[tuple[float, Any, Any]]:
    """All deals and rounds that a node cannot tell from these: (how likely, held, said)."""
    known = {node - 1 if node else NODES - 1, node, (node + 1) % NODES}

    def further(likelihood: float, deal: Numbers, said: tuple[Numbers, ...]) -> Iterator[Any]:
        if len(said) == len(rows):
            yield likelihood, deal, said
            return
        row = rows[len(said)]
        for acts in every_act({n: row[n] for n in known}):
            share = by_all(deal, said, acts, {node: acts[node]})
            yield from further(likelihood * share, deal, (*said, acts))

    for deal in every_act({node: held[node]}):
        yield from further(1.0, deal, ())


def of_ring(episode: Episode, place: int, given: str) -> float:
    turn = episode.turns[place]
    node = RING.agents.index(turn.agent)
    held = tuple(dealt(RING, episode).values())
    texts = [int(each.action.text) for each in episode.turns]
    rows = [tuple(texts[at : at + NODES]) for at in range(0, len(texts), NODES)]
    before = tuple(rows[: turn.step])
    cases = [(1.0, held, before)] if given == "state" else list(alike(held, before, node))
    beside: dict[int, int] = {}
    if given == "state":
        beside = {n: act for n, act in enumerate(rows[turn.step]) if n != node}
    weighed = 0.0
    for share, deal, said in cases:
        paid = [paid_for(deal, said, tuple({**beside, node: act}.items())) for act in range(VALUES)]
        drawn = math.fsum(likely(node, deal, said, act) * paid[act] for act in range(VALUES))
        weighed += share * (paid[texts[place]] - drawn)
    return weighed / math.fsum(share for share, _, _ in cases)


# -- all of them -----------------------------------------------------------------------------------


class Known(NamedTuple):
    """A world with its players, and the exact value of a turn by its place in a play."""

    scenario: Scenario
    players: Mapping[str, Factory]
    exact: Callable[[Episode, int, str], float]


WORLDS = {
    "kuhn_poker": Known(KUHN, KUHN_PLAYERS, of_kuhn),
    "referential": Known(REFERENTIAL, language(**SHARP), of_referential),
    "network": Known(RING, RING_PLAYERS, of_ring),
}
