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


def test_values_by_agent_are_a_dict_to_whoever_reads_them() -> None:
    told = observation.ByAgent(("a", "b"), str.upper)
    whole = {"a": "A", "b": "B"}
    assert {**told} == whole and dict(told) == whole and told | {} == whole and {} | told == whole
    assert list(told.items()) == [("a", "A"), ("b", "B")] and list(told.values()) == ["A", "B"]
    assert told.get("a") == "A" and told.get("c") is None and told.copy() == whole
    assert copy.deepcopy(told) == whole and repr(told) == repr(whole) and isinstance(told, dict)
    assert json.loads(json.dumps(told)) == whole
    fresh = observation.ByAgent(("a", "b"), str.upper)
    assert fresh.pop("a") == "A" and fresh.pop("a", None) is None and list(fresh) == ["b"]
    with pytest.raises(KeyError):
        fresh["a"]
