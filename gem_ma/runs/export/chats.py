"""What one agent saw and said in one episode, as chat messages, with what each of its turns was
paid and which tokens its policy sampled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gem_ma.credit import credit
from gem_ma.envs.observation import encode, to_chat
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Message, Reply, Turn, spoken

Fields = dict[str, Any]


def chat(messages: Iterable[Message], observer: str) -> list[Fields]:
    """Messages as chat templates and servers take them, in the eyes of an agent."""
    return to_chat({"messages": tuple(encode(message, observer) for message in messages)})


def seen_before(episode: Episode, turn: Turn) -> list[Message]:
    """All that the agent of a turn had seen and said when it was asked there."""
    messages: list[Message] = []
    for earlier in episode.turns:
        if earlier.agent != turn.agent:
            continue
        messages += earlier.observed
        if earlier is turn:
            break
        messages.append(spoken(turn.agent, earlier.action))
    return messages


def identity(episode: Episode) -> Fields:
    """What names an episode, in every format."""
    return {
        "task": episode.id[0],
        # as text: readers of JSON that know doubles alone lose digits of a 63-bit seed
        "seed": str(episode.seed),
        "repeat": episode.repeat,
        "scenario": episode.scenario,
        "version": episode.version,
    }


def conversation(episode: Episode, agent: str) -> Fields:
    """`messages tools turns before`; a turn is `{message, step, reward, replies}`.

    `message` is the number of the agent's own message in `messages`. The rewards of the turns and
    what was paid `before` the first of them sum to the agent's return.
    """
    folded = credit(episode, agent)
    messages: list[Fields] = []
    turns: list[Fields] = []
    tools: dict[str, Fields] = {}
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        messages += chat(turn.observed, agent)
        turns.append(
            {
                "message": len(messages),
                "step": turn.step,
                "reward": float(folded.rewards[len(turns)]),
                "replies": [tokens(reply) for reply in turn.replies],
            }
        )
        messages += chat([spoken(agent, turn.action)], agent)
        tools |= {tool.name: tool.schema for tool in turn.tools}
    messages += chat(episode.final.get(agent, ()), agent)
    return {
        "messages": messages,
        "tools": list(tools.values()),
        "turns": turns,
        "before": folded.before,
    }


def tokens(reply: Reply) -> Fields:
    """What a policy sampled: ids and log-probabilities stand as they were, [] where the engine
    gave none."""
    return {
        "policy": reply.policy,
        "version": reply.version,
        "finish": reply.finish,
        "prompt_ids": list(reply.prompt_ids),
        "token_ids": list(reply.token_ids),
        "logprobs": list(reply.logprobs),
        # where there is one: most models think nothing
        **({"reasoning": reply.reasoning} if reply.reasoning else {}),
    }


def speakers(episode: Episode, named: Iterable[str] = ()) -> list[str]:
    """The agents whose conversations are written: those that are named; else those that a policy
    plays, or all where none does."""
    acted = {turn.agent for turn in episode.turns}
    chosen = [agent for agent in episode.cast if agent in set(named)] if named else []
    if not named:
        chosen = [agent for agent, seat in episode.cast.items() if seat.policy is not None]
    return [agent for agent in (chosen or (() if named else episode.cast)) if agent in acted]
