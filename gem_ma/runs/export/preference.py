"""Pairs of acts: two plays of one start, an agent that saw the same in both, and chose otherwise.

What follows the choice decides which of the two is preferred, so a pair says as much as the
episodes that it comes from. A pair holds one act on each side: a longer completion would hold
words of others, which a policy is not to be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Turn, spoken
from gem_ma.runs.export.chats import chat, identity, seen_before, speakers

Won = Callable[[Episode], bool | None]


def pairs(
    episodes: Iterable[Episode], won: Won, agents: Iterable[str] = ()
) -> Iterator[dict[str, Any]]:
    """`prompt chosen rejected tools agent margin`, and what names the two episodes.

    Of the plays of one start (task and seed, or `group`) the best is paired with each that came to
    less. A pair whose talk parted before the agent chose otherwise is none.
    """
    starts: dict[tuple[str, int | str], list[Episode]] = {}
    for episode in episodes:
        if episode.end.scored:
            starts.setdefault((episode.id[0], episode.group or episode.seed), []).append(episode)
    for plays in starts.values():
        for agent in speakers(plays[0], agents):
            ranked = sorted(plays, key=lambda play: _worth(play, agent, won), reverse=True)
            for worse in ranked[1:]:
                margin = _worth(ranked[0], agent, won) - _worth(worse, agent, won)
                pair = _pair(ranked[0], worse, agent) if margin > 0 else None
                if pair is not None:
                    yield {**pair, "margin": margin}


def _worth(episode: Episode, agent: str, won: Won) -> float:
    """Success where it is judged, else the agent's return."""
    success = won(episode)
    return episode.returns().get(agent, 0.0) if success is None else float(success)


def _pair(better: Episode, worse: Episode, agent: str) -> dict[str, Any] | None:
    turns = [[turn for turn in play.turns if turn.agent == agent] for play in (better, worse)]
    for first, second in zip(*turns, strict=False):
        if (first.observed, first.legal) != (second.observed, second.legal):
            return None
        if _same(first, second):
            continue
        names = identity(worse)
        return {
            "prompt": chat(seen_before(better, first), agent),
            "chosen": chat([spoken(agent, first.action)], agent),
            "rejected": chat([spoken(agent, second.action)], agent),
            "tools": [tool.schema for tool in first.tools],
            "agent": agent,
            **identity(better),
            "rejected_seed": names["seed"],
            "rejected_repeat": names["repeat"],
        }
    return None


def _same(first: Turn, second: Turn) -> bool:
    """Whether two acts say and call the same; ids of calls are drawn by servers."""
    acts = [
        (turn.action.text, [(getattr(c, "name", ""), getattr(c, "arguments", c)) for c in calls])
        for turn in (first, second)
        for calls in [turn.action.tool_calls]
    ]
    return acts[0] == acts[1]
