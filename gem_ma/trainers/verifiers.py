"""Scenarios inside verifiers, and so inside prime-rl: an environment whose roles are the learned
agents of a config.

    # my_env.py, for: vf-eval my_env
    from gem_ma.trainers.verifiers import environment
    GemTaskset, GemEnv = environment("my.yaml", returns="episode")
    __all__ = ["GemEnv", "GemTaskset"]

A role holds a conversation of text with the model that verifiers serves; tools are offered in it as
text. A trace has one reward, so what the config pays by turn is summed; the turns stand in
`trace.info`. Written for verifiers 0.4.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from gem_ma import credit
from gem_ma.api import Source
from gem_ma.config.loading import Overrides
from gem_ma.engines.wording import (
    BEFORE_RESULT,
    BEHIND_RESULT,
    call_as_text,
    speaker,
    tools_as_text,
)
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, ProgramError
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.types import SYSTEM, TOOL, Action, Asked, Message, ToolCall
from gem_ma.system.extras import install
from gem_ma.trainers.course import Outside, Start

try:
    import verifiers.v1 as vf
    from pydantic import create_model
except ImportError as error:
    raise ConfigError(
        f"the integration wants verifiers ({error}); type: {install('verifiers')}"
    ) from error

# a chat loop in this process: the default of verifiers is a sandbox that is paid for
HERE = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}


class Data(vf.TaskData):
    """Where a play starts."""

    start: str


class GemTask(vf.Task[Data]):
    """A start of the config's training."""


class GemTasksetConfig(vf.TasksetConfig):
    """`starts`: how many tasks there are."""

    starts: int = 256


def environment(
    source: Source,
    overrides: Overrides = (),
    *,
    policy: str | None = None,
    returns: str = "turn",
) -> tuple[type, type]:
    """The taskset and the environment that a module exports.

    `returns`: "episode" says that one reward an episode is meant. Raises ConfigError without it,
    for a role that verifiers could not name, and for what an `Outside` refuses.
    """
    plays = Outside(source, overrides, policy=policy)
    plays.only_episodes("verifiers (prime-rl)", returns)
    if wrong := [agent for agent in plays.agents if not agent.isidentifier()]:
        raise ConfigError(f"agents: {wrong[0]!r} cannot be the name of a role in verifiers")
    roles: dict[str, Any] = {
        agent: (vf.AgentConfig, vf.AgentConfig(**HERE)) for agent in plays.agents
    }
    settings: Any = create_model("GemEnvConfig", __base__=vf.EnvConfig, **roles)

    class GemTaskset(vf.Taskset[GemTask, GemTasksetConfig]):
        """The starts of a config."""

        def load(self) -> list[GemTask]:
            return [
                GemTask(Data(name=str(start), prompt=None, start=str(start)))
                for start in plays.starts(self.config.starts)
            ]

    class GemEnv(vf.Env[settings]):
        """One play an episode."""

        async def run(self, task: Any, agents: Any) -> None:
            async with AsyncExitStack() as stack:
                seats = {agent: _Role(agent, agents, task, stack) for agent in plays.agents}
                players = {
                    agent: (lambda *_, seat=seat, **__: seat) for agent, seat in seats.items()
                }
                episode = await plays.play(Start.of(task.data.start), behaviours=players)
                # an exception is the episode's own failure, and what is scored is never a guess
                if not episode.end.scored:
                    raise ProgramError(f"the play failed: {episode.error}")
                for seat in seats.values():
                    _pay(seat, episode)

    return GemTaskset, GemEnv


class _Role:
    """The behaviour of one role: it hands what is new to the model that verifiers serves."""

    def __init__(self, agent: str, agents: Any, task: Any, stack: AsyncExitStack) -> None:
        self.agent = agent
        self._agents = agents
        self._task = task
        self._stack = stack
        self.interaction: Any = None
        self._tools: tuple[Any, ...] = ()

    async def act(self, asked: Asked) -> Action:
        """One segment of the role's conversation. Raises ProgramError where verifiers has ended
        it."""
        new = list(asked.new)
        if self.interaction is None:
            await self._open(asked, new)
        text = "\n\n".join(_text_of(self.agent, message) for message in new)
        if asked.tools and asked.tools != self._tools:  # others than were offered before
            text = f"{tools_as_text(asked.tools)}\n\n{text}".strip()
            self._tools = asked.tools
        segment = await self.interaction.turn(text or "It is your turn.")
        if segment.terminated:
            why = self.interaction.trace.stop_condition
            raise ProgramError(f"agent {self.agent!r}: verifiers ended its run ({why})")
        return parse_action(segment.last_reply, asked.legal, asked.tools)

    async def _open(self, asked: Asked, new: list[Message]) -> None:
        briefing = []
        while new and new[0].sender == SYSTEM:
            briefing.append(new.pop(0).text)
        if asked.tools:
            briefing.append(tools_as_text(asked.tools))
            self._tools = asked.tools
        data = vf.TaskData(
            idx=self._task.data.idx, prompt=None, system_prompt="\n\n".join(briefing) or None
        )
        open_role = getattr(self._agents, self.agent).interaction(vf.Task(data))
        self.interaction = await self._stack.enter_async_context(open_role)


def _text_of(agent: str, message: Message) -> str:
    if message.sender == TOOL:
        return f"{BEFORE_RESULT}{message.text}{BEHIND_RESULT}"
    calls = [call_as_text(call) for call in message.tool_calls if isinstance(call, ToolCall)]
    return "\n".join([speaker(agent, message) + message.text, *calls])


def _pay(seat: _Role, episode: Episode) -> None:
    """Writes what the agent was paid to its trace; an agent that never acted has none."""
    if seat.interaction is None:
        return
    trace = seat.interaction.trace
    paid = credit.credit(episode, seat.agent)
    trace.record_reward("return", float(paid.rewards.sum()) + paid.before)
    trace.record_metric("turns", len(paid.rewards))
    trace.info["turn_rewards"] = paid.rewards.tolist()
    trace.info["end"] = episode.end.value
