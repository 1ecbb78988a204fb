"""Values of turns, messages and agents against exact ones, and the traps of forks."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.planted import FAULTS, found
from gem_ma import Ask, Episode, Plan, Reward, Scenario, Seat, Tell, attribution, make, play
from gem_ma.driver.behaviour import Factory, FromFunction
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Action, Asked, Message
from gem_ma.scores.forked import Forks, Openings, mean_of
from gem_ma.scores.together import groups_of
from tests.scores.exact_values import (
    KUHN,
    KUHN_PLAYERS,
    REFERENTIAL,
    WORLDS,
    Repeated,
    forks_of,
    language,
    of_kuhn,
    player,
)


@pytest.mark.longest
@pytest.mark.parametrize("given", ["state", "view"])
@pytest.mark.parametrize(
    ("world", "plays"),
    [
        ("kuhn_poker", 10),
        ("referential", 8),
        pytest.param("network", 1, marks=pytest.mark.long),
    ],
)
def test_values_of_turns_are_the_exact_ones(
    world: str, plays: int, given: attribution.Given
) -> None:
    scores = []
    within = []
    known = WORLDS[world]
    for seed in range(700, 700 + plays):
        forks = forks_of(known.scenario, known.players, seed)
        values = asyncio.run(attribution.turn_values(forks, plays=12, given=given))
        turns = [(turn.step, turn.agent) for turn in forks.episode.turns]
        assert [(step, agent) for step, agent, _ in values] == turns
        for place, (_, _, value) in enumerate(values):
            assert value.failed == 0
            if value.error:
                true = known.exact(forks.episode, place, given)
                scores.append((value.mean - true) / value.error)
                within.append(value.low <= true <= value.high)
    assert len(scores) >= 15
    assert sum(abs(score) < 3 for score in scores) >= len(scores) - 1
    assert statistics.fmean(within) > 0.8
    # a value that lies beside the truth by .7 standard errors would show
    assert abs(statistics.fmean(scores)) < 4 / math.sqrt(len(scores))


def test_the_farthest_counts_more_in_an_error() -> None:
    value = mean_of([0.0] * 63 + [1.0], 64, 0)
    assert value.error == pytest.approx(math.sqrt(3) / 64, rel=0.02)


@pytest.mark.long
def test_what_lay_and_what_could_be_known_differ() -> None:
    episodes = [forks_of(KUHN, KUHN_PLAYERS, seed).episode for seed in range(700, 710)]
    true = [
        [of_kuhn(episode, turn.step, given) for given in ("state", "view")]
        for episode in episodes
        for turn in episode.turns
    ]
    assert any(lay * known < 0 for lay, known in true)


@pytest.mark.longest
def test_common_random_numbers_leave_a_fraction_of_the_variance() -> None:
    base = forks_of(KUHN, KUHN_PLAYERS, 703)
    agent = base.episode.turns[0].agent
    forks = Repeated(KUHN, base.episode, behaviours=KUHN_PLAYERS)

    async def measured(number: int) -> tuple[float, float]:
        Repeated.number = number
        (value, *_) = await attribution.turn_values(forks, plays=8, agent=agent)
        apart = []
        for pair in range(8):
            kept = await forks.fork(0, forks.seed("x", pair), kept=[agent], behaviours={})
            drawn = await forks.fork(0, forks.seed("y", pair), kept=[], behaviours={})
            apart.append(kept.returns()[agent] - drawn.returns()[agent])
        return float(value.value.mean or 0), statistics.fmean(apart)

    together, apart = zip(*(asyncio.run(measured(n)) for n in range(40)), strict=True)
    true = of_kuhn(base.episode, 0, "state")
    for values in (together, apart):
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert abs(statistics.fmean(values) - true) < 3 * error
    assert statistics.variance(together) < 0.4 * statistics.variance(apart)


class Echo(Scenario):
    """Pays where a player draws the very number that the world drew."""

    agents = ("ann",)
    ends_within = 1

    def play(self, rng: random.Random, task: Any) -> Any:
        drawn = rng.random()
        said = yield Ask({"ann": "A number?"})
        yield Reward({"ann": float(said["ann"].text == str(drawn))})


def test_players_never_draw_what_their_world_draws() -> None:
    numbers = player(lambda messages, legal, rng: str(rng.random()))
    forks = forks_of(Echo(), {"ann": numbers}, 0)
    for given in ("state", "view"):
        shares = asyncio.run(attribution.agent_values(forks, numbers, plays=20, given=given))
        assert (shares.everybody, shares.nobody) == (0.0, 0.0)


def test_forks_of_different_plays_draw_apart() -> None:
    # the same seeds in all plays would make their errors dependent
    seeds = {forks_of(KUHN, KUHN_PLAYERS, seed).seed("turn", 0, "player_0", 0) for seed in range(5)}
    assert len(seeds) == 5


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_message_is_worth_what_the_listener_makes_of_it() -> None:
    players = language(0.9, 0.8)
    worths = []
    for seed in range(50):
        forks = forks_of(REFERENTIAL, players, seed)
        (said, _) = asyncio.run(attribution.message_values(forks, plays=6))
        assert (said.step, said.agent) == (0, "speaker")
        worths.append(said.values["listener"].mean)
    # right: 1 by knowing, 1/2 by guessing; a speaker is right .9 + .1 / 4 of the time, and of its
    # three other words two share an attribute; silence leaves the guess
    right = 0.9 + 0.1 / 4
    heard = right * 1 + (1 - right) * (2 / 3) * 0.5
    true = 0.8 * heard + 0.2 * 0.5 - 0.5
    error = statistics.stdev(worths) / math.sqrt(len(worths))
    assert abs(statistics.fmean(worths) - true) < 3 * error
    assert error < 0.06


@pytest.mark.longest
def test_what_a_listener_could_know_is_what_it_heard() -> None:
    values = []
    for seed in range(8):
        forks = forks_of(REFERENTIAL, language(1.0, 0.8), seed)
        if forks.episode.returns()["listener"] == 1:
            (turn,) = asyncio.run(
                attribution.turn_values(forks, plays=30, given="view", agent="listener")
            )
            values.append(turn.value)
    # had it heard other words, its answer would be worth less than another
    true = 1 - (0.8 + 0.2 * 0.5)
    error = math.hypot(*(value.error for value in values)) / len(values)
    assert abs(statistics.fmean(value.mean for value in values) - true) < 3 * error
    assert error < 0.04 and {value.pairs for value in values} == {30}


def test_to_a_deaf_listener_a_message_is_worth_nothing() -> None:
    forks = forks_of(REFERENTIAL, language(0.9, 0.0), 1)
    for instead in ("silence", "other deal"):
        (said, _) = asyncio.run(attribution.message_values(forks, plays=12, instead=instead))
        assert (said.values["listener"].mean, said.values["listener"].error) == (0.0, 0.0)


class Meeting(Scenario):
    """Two agents act at once, twice, and are paid where both said yes."""

    agents = ("ann", "bob")
    ends_within = 2
    cooperative = True

    def play(self, rng: random.Random, task: Any) -> Any:
        for _ in range(2):
            said = yield Ask(dict.fromkeys(self.agents, "Yes?"))
            luck = rng.random()
            yield Tell(dict.fromkeys(self.agents, f"{said['ann'].text} and {said['bob'].text}"))
            both = all(action.text == "yes" for action in said.values())
            yield Reward(dict.fromkeys(self.agents, both + luck), why="both")


def often(share: float) -> Factory:
    return player(lambda messages, legal, rng: "yes" if rng.random() < share else "no")


def test_silence_is_forced_and_those_who_act_beside_it_keep_what_they_did() -> None:
    forks = forks_of(Meeting(), {"ann": often(1.0), "bob": often(0.5)}, 3)
    bob = [turn.action.text for turn in forks.episode.turns if turn.agent == "bob"]
    values = asyncio.run(attribution.message_values(forks, plays=8, agent="ann"))
    # without ann's yes nothing is paid, and with it what bob did: no draw of bob's lies between
    worths = [value.values["ann"].mean for value in values]
    assert worths == pytest.approx([float(text == "yes") for text in bob])


@pytest.mark.longest
def test_a_turn_is_compared_by_its_own_act_alone() -> None:
    said = set()
    for seed in range(8):
        forks = forks_of(Meeting(), {"ann": often(0.5), "bob": often(0.5)}, seed)
        ann = [turn.action.text for turn in forks.episode.turns if turn.agent == "ann"]
        bob = [turn.action.text for turn in forks.episode.turns if turn.agent == "bob"]
        turns = asyncio.run(attribution.turn_values(forks, plays=40, agent="bob"))
        for value, mine, other in zip(turns, bob, ann, strict=True):
            said.add((mine, other))
            if other == "no":
                # ann keeps what she did, and all that follows draws the same numbers
                assert (value.value.mean, value.value.error) == pytest.approx((0, 0))
            else:
                assert value.value.mean == pytest.approx(0.5 if mine == "yes" else -0.5, abs=0.3)
                # of differences of 0 and 1; another second act would add as much again
                assert value.value.error < 0.09
    assert len(said) == 4


class Weather(Scenario):
    """An agent sees its card, and where it is `told` the weather, which is not dealt."""

    agents = ("ann",)
    ends_within = 1

    def __init__(self, told: bool) -> None:
        self.told = told

    def deal(self, rng: random.Random, task: Any) -> dict[str, str]:
        return {"ann": rng.choice("ab")}

    def play(self, rng: random.Random, task: Any) -> Any:
        seen = self.deal(rng, task)["ann"] + (rng.choice("rs") if self.told else "")
        yield Ask({"ann": seen})
        yield Reward({"ann": 1.0})


@pytest.mark.parametrize("told", [True, False])
def test_an_opening_is_remembered_by_its_deal_where_that_decides_it(told: bool) -> None:
    scenario = Weather(told)
    forks = forks_of(scenario, {"ann": often(1.0)}, 0)
    view = forks.episode.turns[0].observed
    openings = Openings(forks, "ann", view)
    shown = [Game(scenario, None, seed).view("ann") == view for seed in range(1, 40)]
    assert [openings.may_be(seed) for seed in range(1, 40)] == shown
    assert {True, False} == set(shown) and len(openings.known) == (0 if told else 2)


@pytest.mark.long
def test_an_agent_that_fails_is_counted_and_left_out() -> None:
    def breaks(messages: Sequence[Message], legal: Any, rng: random.Random) -> str:
        said = "yes" if rng.random() < 0.5 else "no"
        if "no and" in str(messages) and rng.random() < 0.5:
            raise ValueError("no")
        return said

    seeds = (seed for seed in range(50))
    players = {"ann": player(breaks), "bob": often(1.0)}
    for seed in seeds:
        cast = {agent: Seat("tests") for agent in ("ann", "bob")}
        played = asyncio.run(play(Plan(Meeting(), cast, seed=seed), {}, players))
        if played.end.scored and played.turns[0].action.text == "yes":
            break
    forks = Forks(Meeting(), played, behaviours=players)
    (value, _) = asyncio.run(attribution.turn_values(forks, plays=40, agent="ann"))
    assert 0 < value.value.failed < 40
    # those that ended tell it: a yes is worth what it is paid
    assert value.value.low <= 0.5 <= value.value.high


def test_an_agent_without_a_turn_has_no_values() -> None:
    forks = forks_of(Meeting(), {"ann": often(0.5), "bob": often(0.5)}, 0)
    turns = tuple(turn for turn in forks.episode.turns if turn.agent == "ann")
    alone = replace(forks, episode=replace(forks.episode, turns=turns))
    for given in ("state", "view"):
        assert asyncio.run(attribution.turn_values(alone, given=given, agent="bob")) == []


class Dawn(Scenario):
    """An agent is told one of two things, and then something that hardly ever comes again."""

    agents = ("ann",)
    ends_within = 2

    def play(self, rng: random.Random, task: Any) -> Any:
        yield Ask({"ann": rng.choice("ab")})
        yield Ask({"ann": str(rng.random())})
        yield Reward({"ann": 1.0})


def test_a_turn_whose_view_does_not_come_again_is_given_up_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forks = forks_of(Dawn(), {"ann": often(1.0)}, 0)
    dealt = attribution._dealt_anew
    seeds = []

    async def counted(*args: Any) -> Any:
        seeds.append(args[-1])
        return await dealt(*args)

    monkeypatch.setattr(attribution, "_dealt_anew", counted)
    first, second = asyncio.run(attribution.turn_values(forks, plays=20, given="view", tries=30))
    assert (first.value.pairs, second.value.pairs, second.value.mean) == (20, 0, None)
    # half of the deals begin alike: some forty for the first turn, and none for the second
    # beyond the thirtieth
    assert len(seeds) < 60


def test_what_breaks_off_in_another_deal_is_counted() -> None:
    # a play that goes round: its first player acts twice
    plays = (forks_of(KUHN, KUHN_PLAYERS, seed) for seed in range(99))
    base = next(forks for forks in plays if len(forks.episode.turns) == 3)
    breaks = player(lambda messages, legal, rng: str(1 / 0))
    forks = Forks(KUHN, base.episode, behaviours={**KUHN_PLAYERS, "player_1": breaks})
    values = asyncio.run(attribution.turn_values(forks, plays=6, given="view", agent="player_0"))
    assert len(values) == 2
    assert all(value.value.mean is None and value.value.failed >= 6 for value in values)
    # in most deals it has no second act to be compared with
    said = asyncio.run(attribution.message_values(base, plays=20, instead="other deal"))
    last = said[-1].values["player_0"]
    assert last.failed > 0 and last.pairs + last.failed == 20


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
@pytest.mark.filterwarnings("error")
def test_work_that_is_given_up_ends_in_order(ends: str) -> None:
    forks = forks_of(KUHN, KUHN_PLAYERS, 1, concurrency=4)
    begun: list[int] = []
    left: list[int] = []
    faults: list[dict[str, Any]] = []

    async def slow(number: int) -> None:
        if ends == "failed" and number == 1:
            raise ConfigError("no")
        begun.append(number)
        try:
            await asyncio.sleep(60)
        finally:  # a connection takes a while to close, and not all take the same
            for _ in range(2 * number):
                await asyncio.sleep(0)
            left.append(number)

    async def given_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        work = asyncio.ensure_future(forks.all(slow(number) for number in range(8)))
        await asyncio.sleep(0.01)
        if ends == "cancelled":
            work.cancel()
        with pytest.raises(asyncio.CancelledError if ends == "cancelled" else ConfigError):
            await work
        assert begun and sorted(left) == begun

    asyncio.run(given_up())
    gc.collect()
    assert not faults


# -- agents ----------------------------------------------------------------------------------------


def guessing(agent: str, sample: Any, rng: random.Random, task: Any = None) -> FromFunction:
    others = REFERENTIAL.utterances if agent == "speaker" else REFERENTIAL.meanings
    return FromFunction(lambda messages, legal, rng: rng.choice(others), rng)


@pytest.mark.long
def test_shares_add_up_and_equal_agents_have_equal_ones() -> None:
    forks = forks_of(REFERENTIAL, language(0.9, 0.8), 5)
    shares = asyncio.run(attribution.agent_values(forks, guessing, plays=200, given="view"))
    total = sum(value.mean for value in shares.shares.values())
    assert shares.exact and abs(total - (shares.everybody - shares.nobody)) < 1e-9
    ((_, speaker), (_, listener)) = shares.shares.items()
    # one without the other is worth a guess, so both are needed alike
    assert abs(speaker.mean - listener.mean) < 3 * math.hypot(speaker.error, listener.error)
    assert speaker.low > 0


class Votes(Scenario):
    """Seven agents; each yes pays its share to all."""

    agents = tuple(f"voter_{n}" for n in range(7))
    ends_within = 1

    def play(self, rng: random.Random, task: Any) -> Any:
        said = yield Ask(dict.fromkeys(self.agents, "Yes?"), legal=("yes", "no"))
        paid = sum(action.text == "yes" for action in said.values()) / 7
        yield Reward(dict.fromkeys(self.agents, paid))


@pytest.mark.long
def test_shares_of_many_agents_are_sampled_by_orders() -> None:
    forks = forks_of(Votes(), dict.fromkeys(Votes.agents, often(1.0)), 0)
    shares = asyncio.run(attribution.agent_values(forks, "first_legal", plays=10))
    # first_legal says yes too, so nobody adds anything
    assert not shares.exact and {value.mean for value in shares.shares.values()} == {0.0}
    some = asyncio.run(attribution.agent_values(forks, "random_legal", plays=60))
    assert sum(value.mean for value in some.shares.values()) == pytest.approx(
        (some.everybody or 0) - (some.nobody or 0), abs=1e-9
    )
    assert all(abs(value.mean - 0.5 / 7) < 4 * value.error for value in some.shares.values())


def test_what_a_team_comes_to_is_its_mean_as_in_every_score() -> None:
    class Pairs(Votes):
        def team(self, episode: Episode, agent: str) -> str:
            return "first" if agent in self.agents[:2] else "second"

    forks = forks_of(Pairs(), dict.fromkeys(Pairs.agents, often(1.0)), 0)
    shares = asyncio.run(attribution.agent_values(forks, often(1.0), plays=2, whose="first"))
    team = groups_of(forks.episode, team=Pairs().team)["team first"]
    assert shares.everybody == team.mean != 0 and set(shares.shares) == {*Pairs.agents[:2]}


def test_shares_of_plays_that_all_fail_are_not_nothing() -> None:
    forks = forks_of(Votes(), dict.fromkeys(Votes.agents, often(1.0)), 0)
    breaks = player(lambda messages, legal, rng: str(1 / 0))
    shares = asyncio.run(attribution.agent_values(forks, breaks, plays=2))
    assert (shares.everybody, shares.nobody) == (None, None)
    assert all(value.mean is None and value.failed for value in shares.shares.values())


def test_a_zero_sum_world_asks_whose_return_is_shared_out() -> None:
    forks = forks_of(KUHN, KUHN_PLAYERS, 1)
    with pytest.raises(ConfigError, match=r"zero-sum.*whose return.*player_0, player_1"):
        asyncio.run(attribution.agent_values(forks, "random_legal", plays=2))
    with pytest.raises(ConfigError, match=r"no agent or team .* 'nobody'"):
        asyncio.run(attribution.agent_values(forks, "random_legal", plays=2, whose="nobody"))
    shares = asyncio.run(attribution.agent_values(forks, "random_legal", plays=8, whose="player_0"))
    assert set(shares.shares) == set(KUHN.agents)


# -- the turn that decided -------------------------------------------------------------------------


class Wires(Scenario):
    """Five wires; who cuts the red one has lost."""

    agents = ("hand",)
    ends_within = 5

    def play(self, rng: random.Random, task: Any) -> Any:
        lost = False
        for _ in range(5):
            said = yield Ask({"hand": "Which?"}, legal=("blue", "red"))
            lost = lost or said["hand"].text == "red"
        yield Reward({"hand": float(not lost)})

    def success(self, episode: Episode) -> bool | None:
        return bool(episode.returns()["hand"])


class Cuts:
    """Cuts the red wire at one step, by what it remembers."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.cut = 0

    async def act(self, asked: Asked) -> Action | str:
        self.cut += 1
        return "red" if self.cut == self.at + 1 else "blue"


@pytest.mark.parametrize("at", range(5))
def test_the_decisive_turn_is_where_the_fault_was_planted(at: int) -> None:
    forks = forks_of(Wires(), {"hand": cutting(at)}, 0)
    turn, tried = asyncio.run(
        attribution.decisive_turn(
            forks, "hand", "first_legal", success=forks.scenario.success, plays=2
        )
    )
    assert turn is not None and turn.step == at
    assert [wins.won for wins in tried] == [0] * (4 - at) + [2]
    assert {(wins.plays, wins.failed) for wins in tried} == {(2, 0)}
    best = tried[-1].best
    # what was done before the better player took over stands
    assert best is not None and len(best.turns) == 5 and forks.scenario.success(best)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_decisive_turn_of_a_talk_is_the_act_that_loses_it(fault: str) -> None:
    row = found(make("retail"), fault, talks=1, plays=2)
    assert (row.lost, row.right) == (1, 1)


def test_where_nothing_helps_no_turn_is_decisive() -> None:
    forks = forks_of(Wires(), {"hand": cutting(0)}, 0)
    # a behaviour that always cuts the red one
    turn, tried = asyncio.run(
        attribution.decisive_turn(
            forks,
            "hand",
            "tests.scores.test_attribution:Reds",
            success=forks.scenario.success,
            plays=2,
        )
    )
    assert turn is None and len(tried) == 5


@pytest.mark.parametrize("seed", range(3))
def test_those_who_act_beside_who_takes_over_keep_what_they_did(seed: int) -> None:
    forks = forks_of(Meeting(), {"ann": often(0.5), "bob": often(0.0)}, seed)
    ann = [turn.action.text for turn in forks.episode.turns if turn.agent == "ann"]
    _, (last, *_) = asyncio.run(
        attribution.decisive_turn(
            forks,
            "bob",
            "tests.scores.test_attribution:Yes",
            success=lambda fork: {turn.action.text for turn in fork.turns[-2:]} == {"yes"},
            plays=8,
        )
    )
    assert (last.won, last.plays) == (8 * (ann[-1] == "yes"), 8)


def cutting(at: int) -> Factory:
    def made(agent: str, sample: Any, rng: Any, task: Any = None) -> Cuts:
        return Cuts(at)

    return made


class Reds:
    says = "red"

    def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None) -> None:
        pass

    async def act(self, asked: Asked) -> str:
        return self.says


class Yes(Reds):
    says = "yes"
