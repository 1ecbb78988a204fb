"""Speaker consistency and influence: exact where they can be computed, and 0 where nobody
listens."""

from __future__ import annotations

import asyncio
import math

import pytest

from gem_ma import Plan, Seat, play
from gem_ma.kernel.errors import ConfigError
from gem_ma.scores.communication import influences, mutual_information, speaker_consistency
from tests.scores.exact_values import KUHN, KUHN_PLAYERS, REFERENTIAL, forks_of, language


def plays(speaker: float, listener: float, count: int) -> list:
    cast = {agent: Seat("tests") for agent in REFERENTIAL.agents}
    players = language(speaker, listener)

    async def played() -> list:
        return [await play(Plan(REFERENTIAL, cast, seed=n), {}, players) for n in range(count)]

    return asyncio.run(played())


def test_information_is_what_a_table_of_counts_says() -> None:
    # x = y in three of four: H(Y) - H(Y | X) = log 2 + (3/4) log (3/4) + (1/4) log (1/4)
    pairs = [(0, 0)] * 3 + [(0, 1)] + [(1, 1)] * 3 + [(1, 0)]
    true = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert mutual_information(pairs) == pytest.approx(true)
    assert mutual_information([(x, y) for x in "abc" for y in "de"]) == 0
    assert mutual_information([]) == 0


def test_who_tells_the_truth_to_a_deaf_listener_is_consistent_and_has_no_influence() -> None:
    episodes = plays(1.0, 0.0, 200)
    assert speaker_consistency(REFERENTIAL, episodes, "speaker") == pytest.approx(1)
    forks = forks_of(REFERENTIAL, language(1.0, 0.0), 3)
    (one,) = asyncio.run(influences(forks, messages=12))
    assert (one.speaker, one.hearer, one.nats, one.failed) == ("speaker", "listener", 0.0, 0)


@pytest.mark.long
def test_a_babbler_is_not_consistent_and_may_be_heard() -> None:
    episodes = plays(0.0, 1.0, 2000)
    told = speaker_consistency(REFERENTIAL, episodes, "speaker")
    # of nothing the count finds 9 / 2n nats of log 4
    assert told is not None and told < 0.01
    forks = forks_of(REFERENTIAL, language(0.0, 1.0), 3)
    (one,) = asyncio.run(influences(forks, messages=40, plays=2))
    # what is heard decides: all that 40 draws of four words tell
    assert one.nats == pytest.approx(math.log(4), abs=0.1)


@pytest.mark.longest
def test_half_a_listener_has_half_the_influence() -> None:
    some = []
    for seed in range(6):
        forks = forks_of(REFERENTIAL, language(1.0, 0.5), seed)
        (one,) = asyncio.run(influences(forks, messages=24, plays=24))
        some.append(one.nats)
    # knows with .5, else guesses one of four: .625 right, .125 for each other
    true = math.log(4) + 0.625 * math.log(0.625) + 3 * 0.125 * math.log(0.125)
    assert sum(some) / len(some) == pytest.approx(true, abs=0.12)


def test_what_nobody_can_measure_is_none() -> None:
    forks = forks_of(REFERENTIAL, language(1.0, 1.0), 0)
    assert asyncio.run(influences(forks, agent="listener")) == []  # nobody acts after it
    with pytest.raises(ConfigError, match="2 or more messages"):
        asyncio.run(influences(forks, messages=1))
    with pytest.raises(ConfigError, match="'nobody'; its agents are speaker, listener"):
        asyncio.run(influences(forks, agent="nobody"))
    episodes = plays(1.0, 1.0, 20)
    with pytest.raises(ConfigError, match="'nobody'; it has speaker, listener"):
        speaker_consistency(REFERENTIAL, episodes, "nobody")
    assert speaker_consistency(REFERENTIAL, episodes, "speaker", about="act") is None
    assert speaker_consistency(REFERENTIAL, episodes, "listener") is None
    # the next act of a player of Kuhn poker is there, in plays that go round
    rounds = [forks_of(KUHN, KUHN_PLAYERS, seed).episode for seed in range(40)]
    told = speaker_consistency(KUHN, rounds, "player_0", about="act")
    assert told is not None and 0 <= told <= 1
