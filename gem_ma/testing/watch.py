"""The checks that every observation, reward and info of an environment must stand, whichever
environment it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gem_ma.testing.kit import Kit

# each holds all messages before it, so that the cost grows with the square of their number
EACH = 120  # observations of an episode that are all looked at


class Played:
    """One episode as an environment shows it."""

    def __init__(self, agents: tuple[str, ...]) -> None:
        self.turns: list[tuple[str, Any, Any, str]] = []
        self.totals = dict.fromkeys(agents, 0.0)
        self.ended: dict[str, str] = {}  # agent -> terminated | truncated
        self.final: dict[str, Any] = {}
        self.steps = 0
        self.complete = False

    def seen(self) -> list[Any]:
        """What a deterministic environment repeats."""
        return [self.turns, self.totals, self.ended, self.final]


class Watch:
    """The checks that every observation, reward and info of an environment must stand, in one
    episode."""

    def __init__(self, kit: Kit, env: Any, name: str, seed: int, light: bool = False) -> None:
        self.kit = kit
        self.env = env
        self.name = name
        self.seed = seed
        self.light = light
        self.observations: list[tuple[str, Any, Any]] = []
        self.last: dict[str, Any] = {}
        self.step = self.count = 0

    def fail(self, rule: int, message: str, agent: str | None = None) -> None:
        self.kit.fail(
            rule,
            f"{self.name}: {message}",
            agent=agent,
            step=self.step,
            seed=self.seed,
            key=(self.name, message[:60], agent if rule == 4 else ""),
        )

    def observed(self, agent: str, observation: Any) -> None:
        """Rule 3: in space, JSON, UTF-8, growing by appending, never changed afterwards."""
        self.count += 1
        # a long play is looked at here and there: each observation holds all before it
        if self.light or (self.count > EACH and self.count % 16):
            return
        # learners of other libraries size their networks by the space
        if not self.env.observation_space(agent).contains(observation):
            self.fail(3, "an observation lies in its space", agent)
        try:
            # a NaN is not JSON, although Python writes it
            text = json.dumps(observation, allow_nan=False)
            json.dumps(observation, ensure_ascii=False).encode("utf-8")
            if json.loads(text) != _listed(observation):
                self.fail(3, "an observation survives a JSON round trip", agent)
        except (TypeError, ValueError) as error:
            self.fail(3, f"an observation is JSON and UTF-8; {error}", agent)
        # copies: an environment that edits a message in place would move both alike
        messages = messages_of(observation)
        before = self.last.get(agent, ())
        if messages is not None:
            if messages[: len(before)] != before:
                self.fail(
                    3, "an observation extends the one before it, messages are only appended", agent
                )
            self.last[agent] = tuple(
                dict(message) if isinstance(message, dict) else message for message in messages
            )
        # as text: a copy would share what an environment edits deep inside
        self.observations.append((agent, observation, repr(observation)))

    def reward(self, agent: str, value: Any) -> float:
        """Rule 7: a finite number for an agent that is known."""
        if agent not in self.kit.agents:
            self.fail(7, f"rewards name agents of the scenario, not {agent!r}")
            return 0.0
        try:
            number = float(value)
            # float("1") works, and True is a number in Python: neither is a reward
            wrong = isinstance(value, (str, bytes, bool)) or number - number != 0
        except (TypeError, ValueError):
            number = 0.0
            wrong = True
        if wrong:
            self.fail(7, f"rewards are finite numbers; got {value!r}", agent)
            return 0.0
        return number

    def info(self, agent: str, info: Any, active: Any) -> None:
        """Rule 9: who must act stands in every info, what is legal only in that of an agent that
        must."""
        if not isinstance(info, Mapping) or "active_agents" not in info:
            self.fail(9, "infos name the active agents at every step, also at reset", agent)
            return
        if active is not None and list(info["active_agents"]) != list(active):
            self.fail(9, "all infos name the same active agents", agent)
        if "action_mask" in info and (
            agent not in info["active_agents"] or not info["action_mask"]
        ):
            self.fail(
                9,
                "a mask is given to active agents of a closed choice only, and never empty",
                agent,
            )
        if "tools" in info and (agent not in info["active_agents"] or not info["tools"]):
            self.fail(
                9, "tools are given to active agents that are offered some, and never empty", agent
            )

    def flags(self, agent: str, terminated: Any, truncated: Any) -> bool:
        """Rule 6: Python bools, never both True."""
        # a numpy bool looks alike, and breaks `is True` in wrappers
        if type(terminated) is not bool or type(truncated) is not bool:
            self.fail(6, f"flags are True or False; got {terminated!r} and {truncated!r}", agent)
        if terminated and truncated:
            self.fail(6, "a part ends by termination or by truncation, never by both", agent)
        return bool(terminated or truncated)

    def unchanged(self) -> None:
        """Rule 3: what was handed out stays as it was."""
        # some forty of an episode: each text holds all before it
        for agent, observation, copied in self.observations[
            :: max(1, len(self.observations) // 40)
        ]:
            if repr(observation) != copied:
                self.fail(3, "an observation that was handed out never changes afterwards", agent)
                return


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


def messages_of(observation: Any) -> Any:
    return observation.get("messages") if isinstance(observation, dict) else None


class _Offered:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        function = schema.get("function", schema)
        self.name = str(function.get("name"))
        self.parameters = function.get("parameters")


def tools_of(info: Any) -> tuple[_Offered, ...]:
    offered = info.get("tools", ()) if isinstance(info, Mapping) else ()
    return tuple(_Offered(schema) for schema in offered if isinstance(schema, Mapping))
