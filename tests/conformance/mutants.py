"""Scenarios, views and kernels with one fault each, over the bases of `shapes`. Each names the
rules of which at least one must catch it."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import random
import time

import numpy

from gem_ma import Ask, Call, Game, Leave, Reward, Scenario, Tell
from gem_ma.envs.aec import aec_env
from gem_ma.envs.gym import gym_env
from gem_ma.envs.parallel import parallel_env
from gem_ma.kernel.scenario import replay
from tests.conformance.shapes import OFFERS, Alone, Early, Haggle, Toolbox, Wolves

AUTHORS: list[tuple[type[Scenario], set[int]]] = []
VIEWS: list[tuple[str, object, type[Scenario], set[int]]] = []
KERNELS: list[tuple[type[Game], type[Scenario], set[int]]] = []


def author(*rules):
    def note(cls):
        AUTHORS.append((cls, set(rules)))
        return cls

    return note


# -- authors' faults -----------------------------------------------------------------------------


@author(2)
class DrawsFromTheGlobalRandom(Haggle):
    def price(self, rng):
        return random.choice((10, 20, 30))


@author(2)
class SeedsNumpy(Haggle):
    def price(self, rng):
        numpy.random.seed(3)
        return super().price(rng)


@author(1)
class TellsTheTime(Haggle):
    def opening(self, agent, secret):
        return super().opening(agent, secret) + str(time.time_ns())


@author(1)
class CountsPlays(Haggle):
    count = 0

    def deal(self, rng, task):
        self.count += 1
        return super().deal(rng, task)

    def opening(self, agent, secret):
        return super().opening(agent, secret) + f" Game {self.count}."


@author(1)
class KeepsTheRoundOnSelf(Haggle):
    def play(self, rng, task):
        self.round = 0
        inner, answer = super().play(rng, task), None
        while True:
            try:
                effect = inner.send(answer)
            except StopIteration:
                return
            if isinstance(effect, Ask):
                self.round += 1
                effect = Ask(
                    {agent: f"Round {self.round}. {text}" for agent, text in effect.to.items()},
                    effect.legal,
                )
            answer = yield effect


@author(1)
class IgnoresItsSeed(Haggle):
    def play(self, rng, task):
        yield from super().play(random.Random(0), task)


@author(1)
class SortsTheTaskOnce(Toolbox):
    def stock(self, task):
        task["stock"].sort()
        return task["stock"]


@author(5)
class TakesAnArgumentForGranted(Toolbox):
    def name_of(self, call):
        return call.arguments["name"]


@author(5)
class TakesATypeForGranted(Toolbox):
    def name_of(self, call):
        return call.arguments.get("name", "").strip()


@author(5)
class ShowsThreeTimesAsMuch(Alone):
    ends_within = None

    def play(self, rng, task):
        log = "x"
        while True:
            log *= 3
            said = yield Ask({"solver": log})
            log += said["solver"].text


@author(4)
class TellsTheSellersNumber(Haggle):
    def opening(self, agent, secret):
        return super().opening(agent, secret) + (
            f" The seller has {secret['seller']}." if agent == "buyer" else ""
        )


@author(4)
class LegalDependsOnTheOther(Haggle):
    def legal(self, agent, secret):
        return OFFERS if agent == "seller" else OFFERS[: secret["seller"] // 10]


@author(5)
class ReadsJson(Haggle):
    def read(self, action):
        return json.loads(action.text)["arguments"]["n"] if action.text.startswith("{") else 0


@author(5)
class BelievesItIsAscii(Haggle):
    def read(self, action):
        return len(action.text.encode("ascii"))


@author(3, 5)
class RepeatsTheHistory(Scenario):
    """Two talk."""

    agents = ("ann", "bob")
    chance = False

    def play(self, rng, task):
        texts = []
        for number in range(6):
            agent = self.agents[number % 2]
            said = yield Ask({agent: "So far: " + " / ".join(texts)})
            texts.append(said[agent].text)


@author(6)
class YieldsInFinally(Haggle):
    def play(self, rng, task):
        try:
            yield from super().play(rng, task)
        finally:
            yield Tell({"seller": "bye"})


@author(6)
class SwallowsEverything(Haggle):
    def play(self, rng, task):
        for _ in range(3):
            try:
                yield Ask({"seller": "?"})
            except:  # noqa: E722 - the fault
                continue
        yield from super().play(rng, task)

    ends_within = 8


@author(6)
class AsksUntilItIsLegal(Scenario):
    """Four questions."""

    agents = ("ann",)
    ends_within = 4
    chance = False

    def play(self, rng, task):
        for _ in range(4):
            parsed = None
            while parsed is None:
                parsed = (yield Ask({"ann": "?"}, legal=("a", "b")))["ann"].parsed


@author(7)
class PaysInfinity(Haggle):
    def pay(self, values):
        return dict.fromkeys(values, float("inf"))


@author(7)
class PaysAGhost(Haggle):
    def pay(self, values):
        return {**values, "ghost": 1.0}


@author(7)
class IsNotZeroSum(Haggle):
    zero_sum = True


@author(7)
class IsNotCooperative(Haggle):
    cooperative = True


@author(7)
class PaysWhoHasLeft(Wolves):
    def play(self, rng, task):
        yield Ask({"ann": "?"})
        yield Leave("ann")
        yield Reward({"ann": 1.0})
        yield from super().play(rng, task)


@author(11)
class AsksWhoHasLeft(Wolves):
    def play(self, rng, task):
        yield Ask({"ann": "?"})
        yield Leave("ann")
        yield Ask({"ann": "?"})


@author(11)
class AsksAGhost(Haggle):
    def play(self, rng, task):
        yield from super().play(rng, task)
        yield Ask({"ghost": "?"})


@author(11)
class AsksNobody(Haggle):
    def play(self, rng, task):
        yield from super().play(rng, task)
        yield Ask({})


@author(11)
class TellsForEver(Haggle):
    def play(self, rng, task):
        yield from super().play(rng, task)
        while True:
            yield Tell({"seller": "and"})


@author(11)
class EndsWithoutAnAsk(Haggle):
    def play(self, rng, task):
        yield Tell({"seller": "nothing"})


@author(1, 8)
class TakesATicketWithoutACall(Haggle):
    numbers = itertools.count()

    def price(self, rng):
        return next(self.numbers)


@author(8)
class DrawsInsideACall(Haggle):
    def play(self, rng, task):
        number = yield Call(rng.randrange, 100)
        yield Tell({"seller": f"Lot {number}."})
        yield from super().play(rng, task)


@author(8)
class CopiesItsRng(Haggle):
    def play(self, rng, task):
        yield from super().play(random.Random(rng.random()), task)


@author(10)
class RefusesALegalString(Haggle):
    def read(self, action):
        if action.parsed == "offer 30":
            raise ValueError("too dear")
        return super().read(action)


@author(10)
class RefusesALegalStringPolitely(Scenario):
    """One asks for a move and never takes `up`."""

    agents = ("ann",)
    chance = False

    def play(self, rng, task):
        for _ in range(4):
            said = yield Ask({"ann": "Move."}, legal=("left", "right", "up"))
            if said["ann"].parsed not in ("left", "right"):
                yield Tell({"ann": f"{said['ann'].text} is not a legal move, try again."})


@author(10)
class LegalStringsFoldTogether(Haggle):
    def legal(self, agent, secret):
        return ("offer 10", "offer  10", "Offer 10")


@author(3)
class ShowsAnInt(Haggle):
    def opening(self, agent, secret):
        return secret[agent]


@author(1)
class DeclaresNoChance(Haggle):
    chance = False


# -- faults of views -----------------------------------------------------------------------------


def view(kind, *rules, base=Haggle):
    def note(function):
        VIEWS.append((kind, function, base, set(rules)))
        return function

    return note


def _instead(self, method, original, *args, **kwargs):
    return method(original, self, *args, **kwargs)


def changed(env, **methods):
    """This one view with other methods; each gets the original as its first argument."""
    body = {}
    for name, method in methods.items():
        original = getattr(type(env), name)
        body[name] = functools.partialmethod(_instead, method, original)
    env.__class__ = type("Mutant", (type(env),), body)
    return env


@view("aec", 1)
def seed_counts_once(scenario, **options):
    def reset(original, self, seed=None, options=None):
        original(self, None if getattr(self, "had", False) else seed, options)
        self.had = True

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 1, 9)
def seed_zero_is_none(scenario, **options):
    return changed(
        aec_env(scenario, **options),
        reset=lambda original, self, seed=None, options=None: original(self, seed or None, options),
    )


@view("aec", 5)
def raises_outside_the_mask(scenario, **options):
    def step(original, self, action):
        mask = self.infos[self.agent_selection].get("action_mask")
        if action is not None and mask and action not in mask:
            raise ValueError("illegal")
        original(self, action)

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 3)
def observe_consumes(scenario, **options):
    def observe(original, self, agent):
        shown, done = original(self, agent)["messages"], vars(self).setdefault("done", {})
        new, done[agent] = shown[done.get(agent, 0) :], len(shown)
        return {"messages": new}

    return changed(aec_env(scenario, **options), observe=observe)


def after_step(edit):
    def make(scenario, **options):
        def step(original, self, action):
            original(self, action)
            edit(self)

        return changed(aec_env(scenario, **options), step=step)

    return make


view("aec", 7)(after_step(lambda env: env.rewards.update(dict.fromkeys(env.rewards, float("inf")))))
view("aec", 7)(
    after_step(
        lambda env: env._cumulative_rewards.update(dict.fromkeys(env._cumulative_rewards, 0.25))
    )
)
view("aec", 6, 5)(after_step(lambda env: env.terminations.update(dict.fromkeys(env.agents, False))))
view("aec", 6)(after_step(lambda env: env.truncations.update(env.terminations)))


@view("aec", 7)
def own_cumulative_stays(scenario, **options):
    def step(original, self, action):
        agent, before = self.agent_selection, dict(self._cumulative_rewards)
        original(self, action)
        if action is not None and agent in self._cumulative_rewards:
            self._cumulative_rewards[agent] += before[agent]

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 2)
def reset_seeds_random(scenario, **options):
    def reset(original, self, seed=None, options=None):
        random.seed(seed)
        original(self, seed, options)

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 3)
def one_dict_is_refilled(scenario, **options):
    def observe(original, self, agent):
        kept = vars(self).setdefault("kept", {}).setdefault(agent, {})
        kept.update(original(self, agent))
        return kept

    return changed(aec_env(scenario, **options), observe=observe)


@view("aec", 6)
def agents_is_possible_agents(scenario, **options):
    def reset(original, self, seed=None, options=None):
        original(self, seed, options)
        self.agents = self.possible_agents

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 3, 4)
def second_mover_sees_the_first(scenario, **options):
    def observe(original, self, agent):
        said = [
            {"role": "user", "name": a, "content": x.text, "tool_calls": "", "tool_call_id": ""}
            for a, x in self._actions.items()
            if a != agent
        ]
        return {"messages": (*original(self, agent)["messages"], *said)}

    return changed(aec_env(scenario, **options), observe=observe)


@view("aec", 6, 7)
def no_dead_step(scenario, **options):
    def step(original, self, action):
        original(self, action)
        while self.agents and (
            self.terminations[self.agent_selection] or self.truncations[self.agent_selection]
        ):
            original(self, None)

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 9)
def everybody_gets_the_movers_mask(scenario, **options):
    def step(original, self, action):
        original(self, action)
        mask = self.infos.get(self.agent_selection, {}).get("action_mask")
        for info in self.infos.values():
            if mask:
                info["action_mask"] = mask

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 6)
def limit_off_by_one(scenario, max_steps=None, **options):
    return aec_env(scenario, max_steps=max_steps + 1 if max_steps else None, **options)


@view("aec", 7, base=Early)
def early_reward_dropped(scenario, **options):
    def reset(original, self, seed=None, options=None):
        original(self, seed, options)
        self._session.rewards()

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 9, 5, base=Wolves)
def after_a_death_the_next_is_skipped(scenario, **options):
    def step(original, self, action):
        original(self, action)
        live = [a for a in self.agents if self.infos[a]["active"]]
        if action is None and len(live) == 1 and len(self.agents) > 2:
            original(self, "pass")

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 12)
def fresh_spaces(scenario, **options):
    return changed(
        aec_env(scenario, **options),
        action_space=lambda original, self, agent: copy.deepcopy(original(self, agent)),
    )


@view("aec", 3, 9)
def observes_the_other(scenario, **options):
    return changed(
        aec_env(scenario, **options),
        observe=lambda original, self, agent: original(self, self.possible_agents[0]),
    )


@view("aec", 4)
def infos_hold_the_deal(scenario, **options):
    def reset(original, self, seed=None, options=None):
        original(self, seed, options)
        for info in self.infos.values():
            info["deal"] = str(self.scenario.deal(random.Random(self.game.seed), None))

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 4, base=Toolbox)
def infos_hold_the_task(scenario, **options):
    def reset(original, self, seed=None, options=None):
        original(self, seed, options)
        for info in self.infos.values():
            info["task"] = str(self.game.task)

    return changed(aec_env(scenario, **options), reset=reset)


@view("aec", 9, base=Toolbox)
def everybody_gets_the_tools(scenario, **options):
    def step(original, self, action):
        original(self, action)
        offered = next((info["tools"] for info in self.infos.values() if "tools" in info), None)
        for info in self.infos.values() if offered else ():
            info["tools"] = offered

    return changed(aec_env(scenario, **options), step=step)


@view("aec", 1, base=Alone)
def no_seed_is_seed_zero(scenario, **options):
    return changed(
        aec_env(scenario, **options),
        reset=lambda original, self, seed=None, options=None: original(self, seed or 0, options),
    )


@view("aec", 1, 7)
def a_reset_in_mid_episode_keeps_what_was_paid(scenario, **options):
    def reset(original, self, seed=None, options=None):
        before = dict(getattr(self, "_cumulative_rewards", {}))
        original(self, seed, options)
        self._cumulative_rewards.update(before)

    return changed(aec_env(scenario, **options), reset=reset)


def after_parallel(edit):
    def make(scenario, **options):
        def step(original, self, actions):
            return edit(self, *original(self, actions)) or ()

        return changed(parallel_env(scenario, **options), step=step)

    return make


view("parallel", 3)(
    after_parallel(
        lambda env, o, r, t, c, i: (
            {a: {"messages": list(x["messages"])} for a, x in o.items()},
            r,
            t,
            c,
            i,
        )
    )
)
view("parallel", 7)(
    after_parallel(
        lambda env, o, r, t, c, i: (
            o,
            {a: x + (random.random() if env.game.step > 2 else 0) for a, x in r.items()},
            t,
            c,
            i,
        )
    )
)
view("parallel", 7)(
    after_parallel(lambda env, o, r, t, c, i: (o, dict.fromkeys(r, float("nan")), t, c, i))
)
view("parallel", 7)(after_parallel(lambda env, o, r, t, c, i: (o, {**r, "ghost": 1.0}, t, c, i)))
view("parallel", 9, 12)(after_parallel(lambda env, o, r, t, c, i: (o, r, t, i)))


@view("parallel", 9)
def no_active_agents_at_reset(scenario, **options):
    def reset(original, self, seed=None, options=None):
        observations, infos = original(self, seed, options)
        return observations, {
            a: {k: v for k, v in info.items() if k != "active_agents"} for a, info in infos.items()
        }

    return changed(parallel_env(scenario, **options), reset=reset)


@view("parallel", 9)
def an_idle_agent_replaces_the_active_one(scenario, **options):
    def step(original, self, actions):
        spoken = [text for agent, text in actions.items() if agent not in self.game.pending]
        return original(self, dict.fromkeys(actions, spoken[0]) if spoken else actions)

    return changed(parallel_env(scenario, **options), step=step)


@view("parallel", 5, 6)
def agents_stay_after_the_end(scenario, **options):
    def step(original, self, actions):
        before = list(self.agents)
        result = original(self, actions)
        self.agents = before
        return result

    return changed(parallel_env(scenario, **options), step=step)


@view("parallel", 9)
def step_empties_the_actions(scenario, **options):
    def step(original, self, actions):
        given = original(self, dict(actions))
        actions.clear()
        return given

    return changed(parallel_env(scenario, **options), step=step)


@view("gym", 12)
def partners_draw_unseeded(scenario, agent="seller", others=None, **options):
    wild = {
        other: lambda messages, legal, rng: random.SystemRandom().choice(legal or ("x",))
        for other in scenario.agents
        if other != agent
    }
    return gym_env(scenario, agent=agent, others=wild, **options)


@view("gym", 7)
def the_last_reward_is_missing(scenario, **options):
    def step(original, self, action):
        o, r, t, c, i = original(self, action)
        return o, 0.0 if t else r, t, c, i

    return changed(gym_env(scenario, **options), step=step)


@view("gym", 7)
def the_last_reward_is_missing_in_a_plain_factory(scenario):
    env = gym_env(scenario, agent="buyer", others={"seller": "first_legal"})
    return the_last_reward_is_missing_over(env)


def the_last_reward_is_missing_over(env):
    def step(original, self, action):
        o, r, t, c, i = original(self, action)
        return o, r + (1.0 if t else 0.0), t, c, i

    return changed(env, step=step)


# -- faults of kernels ---------------------------------------------------------------------------


def kernel(*rules, base=Haggle):
    def note(cls):
        KERNELS.append((cls, base, set(rules)))
        return cls

    return note


class CallsOut(Haggle):
    """The base with outside work."""

    def play(self, rng, task):
        yield Call(lambda: 1)
        yield from super().play(rng, task)


@kernel(8)
class ForkSharesTheRng(Game):
    def fork(self, step=None, seed=None):
        other = super().fork(step, seed)
        other.rng = self.rng
        return other


@kernel(8)
class ForkWithTheNextSeed(Game):
    def fork(self, step=None, seed=None):
        return replay(
            self.scenario,
            self.task,
            self.seed + 1,
            [t for t in self.turns if step is None or t.step < step],
            self.calls,
        )


@kernel(8)
class ForkIsShallow(Game):
    def fork(self, step=None, seed=None):
        return copy.copy(self)


@kernel(8, base=CallsOut)
class ReplayCallsAgain(Game):
    def fork(self, step=None, seed=None):
        other = Game(self.scenario, self.task, self.seed)
        for at in range(self.step if step is None else step):
            other.send({turn.agent: turn.action for turn in self.turns if turn.step == at})
        return other


@kernel(4)
class OneByOne(Game):
    def send(self, actions, replies=None):
        pending = list(self.pending)
        for agent in pending[1:]:
            for other in pending[: pending.index(agent)]:
                self._views.messages[agent].append(self._views.messages[other][-1])
        super().send(actions, replies)


@kernel(5)
class DropsEmptyTurns(Game):
    def send(self, actions, replies=None):
        super().send(actions, replies)
        self.turns = [turn for turn in self.turns if turn.action.text]


@kernel(8)
class ForkForgetsItsSeed(Game):
    def fork(self, step=None, seed=None):
        return super().fork(step)
