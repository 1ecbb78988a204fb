"""Policies that never spoke: every request was too long, too slow, refused, or answered by nothing.
A run in which that is so of a policy has a score, and measured nothing. Reads records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.types import Reply

# how a play ends in which a policy was asked and gave no reply -> why, and what to do
_BEFORE_IT = {
    End.CONTEXT: (
        "a prompt no longer fitted the context of a model; take a model with a longer context, a"
        " smaller max_tokens, or let its agents see less (memory:)"
    ),
    End.TIMEOUT: "the time of the play was over; raise run.episode_timeout_s",
    End.FAILED: "the play failed",
}
# how a reply ends in which nothing is said -> why, and what to do
_NOTHING_SAID = {
    "content_filter": "was refused or held back by a filter; gem-ma show has the server's words",
    "context_overflow": "met the end of the model's context",
    "thought": "was a thought without an answer; raise its max_tokens",
}
_EMPTY = "was empty; look at its model and its max_tokens"


@dataclass(slots=True)
class _Heard:
    replies: int = 0
    spoke: bool = False
    acted: bool = False  # without a model: its behaviour does not ask it
    # of replies in which nothing is said; `thought` where something is thought
    finishes: Counter[str] = field(default_factory=Counter)
    ends: Counter[End] = field(default_factory=Counter)  # of plays that seat it
    error: str = ""


class Voices:
    """Which policies have said anything, over episodes as they pass."""

    def __init__(self) -> None:
        self._policies: dict[str, _Heard] = {}

    def add(self, episode: Episode) -> None:
        """Takes an episode; an interrupted one says nothing of its policies."""
        if episode.end is End.INTERRUPTED:
            return
        for name in {seat.policy for seat in episode.cast.values() if seat.policy is not None}:
            heard = self._policies.setdefault(name, _Heard())
            heard.ends[episode.end] += 1
            heard.error = heard.error or episode.error or ""
        for turn in episode.turns:
            seat = episode.cast.get(turn.agent)
            if not turn.replies and seat is not None and seat.policy is not None:
                self._policies[seat.policy].acted = True
            for reply in turn.replies:
                self._policies.setdefault(reply.policy, _Heard())
                self._hear(self._policies[reply.policy], reply)

    def unheard(self) -> dict[str, str]:
        """Policy -> a line on why it never spoke, for those that were asked and did not."""
        lines = {name: _line(heard) for name, heard in sorted(self._policies.items())}
        return {name: f"policy {name!r} {line}" for name, line in lines.items() if line}

    def has_heard(self, policies: Iterable[str]) -> bool:
        """Whether each of these policies has spoken."""
        return all(name in self._policies and self._policies[name].spoke for name in policies)

    @staticmethod
    def _hear(heard: _Heard, reply: Reply) -> None:
        heard.replies += 1
        if reply.text.strip() or reply.tool_calls:
            heard.spoke = True
        elif reply.reasoning.strip():
            heard.finishes["thought"] += 1
        elif reply.token_ids:
            heard.spoke = True
        else:
            heard.finishes[reply.finish] += 1


def _line(heard: _Heard) -> str:
    if heard.spoke:
        return ""
    if heard.replies:
        finish = heard.finishes.most_common(1)[0][0]
        why = _NOTHING_SAID.get(finish, _EMPTY)
        return f"said nothing: each of its {heard.replies} replies {why}"
    # a play that came to its end may have had no turn for it
    if heard.acted or not heard.ends or heard.ends.keys() - _BEFORE_IT.keys():
        return ""
    end, count = heard.ends.most_common(1)[0]
    why = _BEFORE_IT[end]
    if end is End.FAILED and heard.error:
        why = f"{why}: {heard.error}"
    return f"never spoke: {count} of {heard.ends.total()} plays ended before its first reply: {why}"


def unheard_of(episodes: Iterable[Episode], policies: Iterable[str]) -> list[str]:
    """The lines on those of these policies that never spoke; no further episode is read than one
    in which the last of them has."""
    voices = Voices()
    wanted = set(policies)
    for episode in episodes if wanted else ():
        voices.add(episode)
        if voices.has_heard(wanted):
            return []
    return [line for name, line in voices.unheard().items() if name in wanted]


def lines_of(summary: Mapping[str, object]) -> list[str]:
    """The lines on policies that never spoke in a run's summary, which an older one lacks."""
    unheard = summary.get("unheard", {})
    return list(unheard.values()) if isinstance(unheard, dict) else []
