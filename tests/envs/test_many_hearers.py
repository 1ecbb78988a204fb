"""Environments of many agents tell those who look, as of the step at which they were told."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import gem_ma
from gem_ma.envs import observation, session

AGENTS = tuple(f"a{number}" for number in range(12))


class Round(gem_ma.Scenario):
    """Each speaks in turn, and all hear it; who has spoken twice leaves."""

    id = "round"
    version = 1
    agents = AGENTS

    def play(self, rng: Any, task: Any) -> Any:
        for turn in range(2 * len(AGENTS)):
            who = AGENTS[turn % len(AGENTS)]
            said = yield gem_ma.Ask({who: "your turn"}, ("yes", "no"))
            yield gem_ma.Tell(dict.fromkeys(AGENTS[turn - 11 :], f"{who}: {said[who].text}"))
            yield gem_ma.Reward({who: 1.0})
            if turn >= len(AGENTS):
                yield gem_ma.Leave(who)


def plain(values: Any) -> Any:
    """A copy that nothing of the environment reaches; tuples are lists there."""
    return json.loads(json.dumps(values))


@pytest.fixture(params=[2, 100])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many agents are told at once: fewer than there are, and more."""
    monkeypatch.setattr(session, "FEW", request.param)
    return int(request.param)


def steps(env: Any) -> list[Any]:
    """All that a Parallel environment gives, kept as it is given."""
    kept = [env.reset(seed=3)]
    while env.agents:
        kept.append(env.step(dict.fromkeys(env.game.pending, "yes")))
    return kept


def test_what_was_told_stays_however_late_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FEW", 100)
    at_once = plain(steps(gem_ma.parallel_env(Round)))
    monkeypatch.setattr(session, "FEW", 2)
    env = gem_ma.parallel_env(Round)
    kept = steps(env)
    env.reset(seed=4)  # another play
    assert plain(kept) == at_once
    assert len(at_once) == 25


def test_aec_tells_the_same_to_few_and_to_many(few: int) -> None:
    env = gem_ma.aec_env(Round)
    env.reset(seed=3)
    told = []
    for agent in env.agent_iter():
        seen, reward, terminated, truncated, info = env.last()
        assert set(env.infos) == set(env.agents) == set(env.rewards)
        told.append((agent, plain(seen), reward, terminated, truncated, plain(info)))
        env.step(None if terminated or truncated else "no")
    assert [row[2] for row in told if row[3]] == [1.0] * len(AGENTS)
    assert told[12][2] == 1.0 and told[12][5]["step"] == 12 and told[12][5]["turn"] == 1


def test_a_message_is_encoded_once_for_all_who_hear_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def counting(message: Any, observer: str) -> Any:
        counted.append(observer)
        return observation.encode(message, observer)

    monkeypatch.setattr(session, "encode", counting)
    env = gem_ma.parallel_env(Round)
    env.reset(seed=1)
    seen, *_ = env.step({"a0": "yes"})
    assert len({agent for agent in AGENTS if seen[agent]["messages"]}) == len(AGENTS)
    # what was asked of a0 and a1, what a0 said, and the one line that all heard
    assert len(counted) == 4
    first = seen["a1"]["messages"][0]
    first["content"] = "edited"
    assert seen["a2"]["messages"][0]["content"] == "a0: yes"


USES: dict[str, Any] = {
    "items": lambda values: list(values.items()),
    "values": lambda values: list(values.values()),
    "keys": lambda values: list(values.keys()),
    "get": lambda values: (values.get("a"), values.get("c"), values.get("c", 1)),
    "pop": lambda values: (values.pop("a"), values.pop("a", 1), list(values)),
    "popitem": lambda values: (values.popitem(), list(values)),
    "setdefault": lambda values: (values.setdefault("a", 1), values.setdefault("c", 1)),
    "update": lambda values: (values.update(a=1), dict(values)),
    "copy": lambda values: values.copy(),
    "clear": lambda values: (values.clear(), dict(values)),
    "__or__": lambda values: values | {"c": 1},
    "__ror__": lambda values: {"a": 1} | values,
    "__ior__": lambda values: dict(values.__ior__({"a": 1})),
    "__eq__": lambda values: (values == {"a": "A", "b": "B"}, values == {}, values == {"a": "A"}),
    "__ne__": lambda values: (values != {"a": "A", "b": "B"}, values != {}),
    "__contains__": lambda values: ("a" in values, "c" in values),
    "__delitem__": lambda values: (values.__delitem__("a"), dict(values)),
    "__setitem__": lambda values: (values.__setitem__("a", 1), dict(values)),
    "__getitem__": lambda values: values["b"],
    "__iter__": lambda values: list(values),
    "__reversed__": lambda values: list(reversed(values)),
    "__len__": len,
    "__repr__": repr,
    "fromkeys": lambda values: type(dict(values)).fromkeys("ab"),
    "__class_getitem__": lambda values: 0,
    "a copy of all": copy.deepcopy,
    "as keywords": lambda values: {**values},
    "as JSON": lambda values: json.loads(json.dumps(values)),
    "by its class": lambda values: isinstance(values, dict),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_use_of_a_dict_gives_what_a_dict_gives(use: Any) -> None:
    assert use(observation.ByAgent(("a", "b"), str.upper)) == use({"a": "A", "b": "B"})


def test_all_that_a_dict_can_do_is_among_these_uses() -> None:
    common = {*vars(object), "__lt__", "__le__", "__gt__", "__ge__", "__hash__"}
    assert set(vars(dict)) - common <= set(USES)
