"""What the rules say of a play is the same where some of its agents had to say their answers again:
their acts then stand at other steps than those of the others."""

from random import Random

import pytest

from gem_ma import Episode, Game, Seat, make
from gem_ma.kernel.episode import End
from gem_ma.scores.groups import values_of
from gem_ma.wrappers.retry import AGAIN, Retry

WORLDS = [
    ("commons", {"talk": "signals", "growth": 10, "collapse": 1}),
    ("market", {}),
    ("market", {"institution": "continuous", "quotes": 60}),
    ("auction", {"rounds": 4}),
    ("auction", {"rounds": 3, "form": "second price"}),
    ("auction", {"rounds": 3, "form": "ascending"}),
    ("werewolf", {"talk": "signals", "doctor": 1}),
    ("werewolf", {"votes": "open"}),
    ("network", {"problem": "sum"}),
    ("network", {"problem": "matching"}),
    ("negotiation", {}),
    ("negotiation", {"parties": 5, "talk": "signals"}),
    ("matrix", {"talk": "signals"}),
    ("matrix", {"preset": "bar", "agents": 6}),
    ("matrix", {"continuation": 0.8}),
    ("public_goods", {"talk": "signals", "fines": 1}),
    ("bargain", {"rounds": 4, "swap": True}),
    ("bargain", {"rounds": 4, "game": "trust"}),
    ("hidden_profile", {}),
    ("hidden_profile", {"order": "bids", "pay": "share", "hidden": 0.5}),
    ("twenty_questions", {}),
    ("twenty_questions", {"guessers": 3, "answerer": "rival"}),
    ("twenty_questions", {"form": "taboo"}),
    ("dilemma", {}),
]


def played(scenario, seed, stumbles=()):
    """A play of agents who draw what they do, each from a stream of its own; those who stumble
    say something else first."""
    game = Game(scenario, scenario.tasks("train")[0], seed)
    streams = {agent: Random(f"{seed}/{agent}") for agent in scenario.agents}
    while game.pending:
        acts = {}
        for agent, asked in game.pending.items():
            was_told = game.new(agent)[-1].text.startswith(AGAIN[:20])
            if agent in stumbles and not was_told:
                acts[agent] = "no such choice"
            else:
                acts[agent] = streams[agent].choice(asked.legal)
        game.send(acts)
    return Episode(
        "", 1, seed, "train/0", 0, None,
        {agent: Seat() for agent in scenario.agents},
        tuple(game.turns), (), (),
        {agent: game.new(agent) for agent in scenario.agents},
        tuple(game.ledger), End.TERMINATED,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "options"), WORLDS)
def test_measures_are_those_of_the_acts_that_counted(name, options):
    scenario = make(name, **options)
    around = Retry(make(name, **options))
    stumbles = scenario.agents[1::2]
    for seed in range(4):
        plain = played(scenario, seed)
        again = played(around, seed, stumbles)
        assert len(again.turns) > len(plain.turns)
        assert [(e.agent, e.value) for e in again.ledger] == [
            (e.agent, e.value) for e in plain.ledger
        ]
        assert values_of(again, around.measures) == values_of(plain, scenario.measures)
        assert around.success(again) == scenario.success(plain)
