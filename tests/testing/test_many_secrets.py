"""Rule 4 among many agents: roles that change places, values that are drawn apart, and what a play
reveals to some of them. Each leak is planted once and found; without it nothing is."""

import random

import pytest

from gem_ma import Ask, Message, Reward, Scenario, Tell, check_scenario, dealt
from gem_ma.kernel.errors import ConformanceError
from gem_ma.testing.report import RULES

REST = tuple(rule for rule in RULES if rule not in (4, 7, 11))
SEEDS = (0,)  # the deals that are exchanged are 400 whatever is played besides


class Wolves(Scenario):
    """Eight players, two wolves and a seer; all are asked in each night, so that nobody is known by
    being asked."""

    agents = tuple(f"player_{number}" for number in range(8))
    leak = ""
    zero_sum = True
    ends_within = 40

    def tasks(self, split):
        return (None,)

    def deal(self, rng, task):
        roles = ["wolf"] * 2 + ["seer"] + ["villager"] * 5
        return dict(zip(self.agents, rng.sample(roles, len(roles)), strict=True))

    def team(self, episode, agent):
        return "wolves" if dealt(self, episode)[agent] == "wolf" else "village"

    def role(self, episode, agent):
        return dealt(self, episode)[agent]

    def play(self, rng, task):
        if self.leak == "drawn before":
            rng.random()
        role = self.deal(rng, task)
        pack = [agent for agent in self.agents if role[agent] == "wolf"]
        for agent in self.agents:
            yield Tell({agent: f"You are a {role[agent]}."})
        yield Tell(dict.fromkeys(pack, f"Wolves: {', '.join(pack)}."), reveals=pack)
        if self.leak == "told":
            yield Tell({self.agents[0]: f"{self.agents[3]} is a {role[self.agents[3]]}"})
        alive = list(self.agents)
        while pack and len(pack) < len(alive) - len(pack):
            legal = {agent: self.night(role, agent, alive) for agent in alive}
            asked = sorted(alive, key=lambda agent: role[agent]) if self.leak == "order" else alive
            acts = yield Ask(dict.fromkeys(asked, "Night."), legal=legal)
            for agent in [agent for agent in alive if role[agent] == "seer"]:
                seen = acts[agent].parsed
                if seen in role:
                    named = () if self.leak == "looked" else (seen,)
                    yield Tell({agent: f"{seen} is a {role[seen]}."}, reveals=named)
            # by lot, whoever of the pack named it: where the first decides, its seat tells
            victims = sorted(acts[wolf].parsed for wolf in pack if acts[wolf].parsed in alive)
            yield from self.dies(rng.choice(victims or alive), role, alive, pack)
            if self.leak == "sender" and len(pack) == 2:
                yield Tell(dict.fromkeys(alive, Message("Somebody howls.", sender=pack[0])))
            if self.leak == "length":
                yield Tell(dict.fromkeys(alive, "." * (3 + len(role[alive[0]]))))
            votes = yield Ask(
                dict.fromkeys(alive, "Vote."),
                legal={agent: self.votes(role, agent, alive) for agent in alive},
            )
            out = [votes[agent].parsed for agent in alive if votes[agent].parsed in alive]
            if out:
                yield from self.dies(rng.choice(sorted(out)), role, alive, pack)
        won = "wolf" if pack else "village"
        yield Reward(
            {x: 1.0 if (role[x] == "wolf") == (won == "wolf") else -1.0 for x in self.agents},
            why=f"{won} wins",
        )

    def night(self, role, agent, alive):
        others = tuple(other for other in alive if other != agent)
        if role[agent] == "wolf":
            return tuple(other for other in others if role[other] != "wolf")
        return others if role[agent] == "seer" else ("sleep",)

    def votes(self, role, agent, alive):
        others = tuple(other for other in alive if other != agent)
        if self.leak == "legal":
            return tuple(sorted(others, key=lambda other: role[other]))
        return others

    def dies(self, who, role, alive, pack):
        alive.remove(who)
        if who in pack:
            pack.remove(who)
        named = () if self.leak == "dead" else (who,)
        yield Tell(dict.fromkeys(self.agents, f"{who} is dead, a {role[who]}."), reveals=named)


class Values(Scenario):
    """Each has a value of its own, drawn apart; the first price is public."""

    agents = tuple(f"bidder_{number}" for number in range(8))
    leak = ""
    ends_within = 2

    def deal(self, rng, task):
        return {agent: rng.randint(0, 1000) for agent in self.agents}

    def play(self, rng, task):
        value = self.deal(rng, task)
        legal = tuple(map(str, range(0, 1001, 100)))
        bids = yield Ask({agent: f"Worth {value[agent]}. Bid?" for agent in self.agents}, legal)
        price = {agent: int(bids[agent].parsed or 0) for agent in self.agents}
        best = max(self.agents, key=lambda agent: price[agent])
        said = f"sold at {price[best]}"
        if self.leak == "told":
            said += f", which was worth {value[best]}"
        yield Ask(dict.fromkeys(self.agents, said), ("ok",))
        yield Reward({best: float(value[best] - price[best])})


def findings(kind, leak):
    scenario = kind()
    scenario.leak = leak
    try:
        report = check_scenario(scenario, skip=REST, seeds=SEEDS)
    except ConformanceError as error:
        return [finding for finding in error.findings if finding.rule == 4], error.findings
    assert 4 in report.passed, report.untested
    return [], ()


@pytest.mark.longest
@pytest.mark.parametrize("kind", [Wolves, Values])
def test_secrets_of_eight_agents_are_tested_and_clean(kind):
    assert findings(kind, "") == ([], ())


@pytest.mark.longest
@pytest.mark.parametrize(
    "leak", ["told", "order", "looked", "sender", "length", "legal", "dead", "drawn before"]
)
def test_a_leak_among_wolves_is_found(leak):
    assert findings(Wolves, leak)[0]


@pytest.mark.long
def test_a_leak_of_a_value_is_found():
    assert findings(Values, "told")[0]


class Opened(Values):
    """All values are told when nobody is asked any more."""

    def play(self, rng, task):
        value = self.deal(rng, task)
        yield Ask({agent: f"Worth {value[agent]}. Bid?" for agent in self.agents}, ("1", "2"))
        yield Tell(dict.fromkeys(self.agents, f"Values: {value}."))


@pytest.mark.long
def test_the_outcome_is_not_compared():
    assert findings(Opened, "") == ([], ())


def test_what_was_dealt_is_found_in_the_record():
    from gem_ma import Game
    from gem_ma.kernel.episode import End
    from gem_ma.testing.rules_play import Episode, Seat

    scenario = Wolves()
    for seed in range(3):
        game = Game(scenario, None, seed)
        told = {agent: game.view(agent)[0].text for agent in scenario.agents}
        cast = {agent: Seat() for agent in scenario.agents}
        episode = Episode("", 1, seed, "test/0", 0, None, cast, (), (), (), {}, (), End.TERMINATED)
        assert {a: f"You are a {role}." for a, role in dealt(scenario, episode).items()} == told
        game.close()


class Unequal(Wolves):
    def play(self, rng, task):
        yield from super().play(rng, task)
        yield Reward({self.agents[0]: 0.5})


class Strangers(Wolves):
    teams = {"red": ("nobody",)}


@pytest.mark.longest
@pytest.mark.parametrize("kind", [Unequal, Strangers])
def test_teams_that_do_not_add_up_are_found(kind):
    assert [finding for finding in findings(kind, "")[1] if finding.rule == 7]


@pytest.mark.longest
def test_a_leak_is_found_in_every_seeding():
    """Not by luck: with other deals too."""
    scenario = Wolves()
    scenario.leak = "dead"
    deal = scenario.deal
    for salt in range(2):
        scenario.deal = lambda rng, task, salt=salt: deal(
            random.Random(f"{salt}/{rng.getrandbits(32)}"), task
        )
        with pytest.raises(ConformanceError) as caught:
            check_scenario(scenario, skip=REST, seeds=SEEDS)
        assert any(finding.rule == 4 for finding in caught.value.findings)


def test_of_seats_that_are_called_alike_three_are_tried():
    from gem_ma import gym_env
    from gem_ma.testing.kit import Kit
    from gem_ma.testing.rules_gym import Gym

    scenario = Values()
    scenario.agents = (*(f"buyer_{n}" for n in range(32)), *(f"seller_{n}" for n in range(32)))
    kit = Kit(scenario, (None,), (0,), 10)
    assert Gym(kit, gym_env).agents() == [
        *("buyer_0", "buyer_16", "buyer_31"),
        *("seller_0", "seller_16", "seller_31"),
    ]
    scenario.agents = ("ann", "bob", "cat", "dan")
    assert Gym(kit, gym_env).agents() == list(scenario.agents)


class Reasons(Scenario):
    """Its chance shows in the reason of a payment alone, which no environment tells."""

    agents = ("ann", "bob")
    ends_within = 1

    def play(self, rng, task):
        yield Ask(dict.fromkeys(self.agents, "?"), legal=("yes", "no"))
        yield Reward(dict.fromkeys(self.agents, 1.0), why=f"drawn {rng.random()}")


@pytest.mark.longest
def test_what_only_a_reason_shows_is_not_asked_of_environments():
    skipped = tuple(rule for rule in RULES if rule not in (1, 9))
    check_scenario(Reasons(), skip=skipped)
