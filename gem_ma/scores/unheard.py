"""Policies that never spoke: every request was too long, too slow, refused, or answered by nothing.
A run in which that is so of a policy has a score, and measured nothing. Reads records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

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


class Heard(msgspec.Struct, array_like=True, gc=False):
    """What a play, or several, tell of a policy."""

    plays: int = 0  # in which it has a seat
    acted: int = 0  # turns without a model: its behaviour did not ask it
    replies: int = 0
    empty: int = 0
    spoke: int = 0
    # of replies in which nothing is said; `thought` where something is thought
    finishes: dict[str, int] = msgspec.field(default_factory=dict)
    models: dict[str, int] = msgspec.field(default_factory=dict)  # as servers called them

    def hear(self, reply: Reply) -> None:
        """Takes in a reply."""
        self.replies += 1
        self.empty += reply.silent
        if reply.model:
            self.models[reply.model] = self.models.get(reply.model, 0) + 1
        finish = "thought" if reply.reasoning.strip() else reply.finish
        if reply.text.strip() or reply.tool_calls or (finish != "thought" and reply.token_ids):
            self.spoke += 1
        else:
            self.finishes[finish] = self.finishes.get(finish, 0) + 1

    def add(self, more: Heard, times: int) -> None:
        """Takes in what another play tells, so many times."""
        self.plays += times * more.plays
        self.acted += times * more.acted
        self.replies += times * more.replies
        self.empty += times * more.empty
        self.spoke += times * more.spoke
        for sums, counts in ((self.finishes, more.finishes), (self.models, more.models)):
            for name, number in counts.items():
                sums[name] = sums.get(name, 0) + times * number


def heard_in(episode: Episode) -> dict[str, Heard]:
    """Policy -> what this play tells of it."""
    policies = {seat.policy: Heard(1) for seat in episode.cast.values() if seat.policy is not None}
    for turn in episode.turns:
        for reply in turn.replies:
            policies.setdefault(reply.policy, Heard()).hear(reply)
        if not turn.replies and policies:
            seat = episode.cast.get(turn.agent)
            if seat is not None and seat.policy is not None:
                policies[seat.policy].acted += 1
    return policies


class Voices:
    """Which policies have said anything, over plays as they pass."""

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}
        self._ends: dict[str, Counter[End]] = {}
        self._errors: dict[str, str] = {}

    def add(self, policies: Mapping[str, Heard], end: End, error: str, times: int = 1) -> None:
        """Takes in so many plays alike; an interrupted one says nothing of its policies."""
        if end is End.INTERRUPTED:
            return
        for name, heard in policies.items():
            self._heard.setdefault(name, Heard()).add(heard, times)
            ends = self._ends.setdefault(name, Counter())
            if heard.plays:
                ends[end] += times
                self._errors[name] = self._errors.get(name) or error

    def unheard(self) -> dict[str, str]:
        """Policy -> a line on why it never spoke, for those that were asked and did not."""
        lines = {
            name: _line(heard, self._ends[name], self._errors.get(name, ""))
            for name, heard in sorted(self._heard.items())
        }
        return {name: f"policy {name!r} {line}" for name, line in lines.items() if line}

    def has_heard(self, policies: Iterable[str]) -> bool:
        """Whether each of these policies has spoken."""
        return all(name in self._heard and self._heard[name].spoke for name in policies)


def _line(heard: Heard, ends: Counter[End], error: str) -> str:
    if heard.spoke:
        return ""
    if heard.replies:
        finish = max(heard.finishes, key=heard.finishes.__getitem__)
        why = _NOTHING_SAID.get(finish, _EMPTY)
        return f"said nothing: each of its {heard.replies} replies {why}"
    # a play that came to its end may have had no turn for it
    if heard.acted or not ends or ends.keys() - _BEFORE_IT.keys():
        return ""
    end, count = ends.most_common(1)[0]
    why = _BEFORE_IT[end]
    if end is End.FAILED and error:
        why = f"{why}: {error}"
    return f"never spoke: {count} of {ends.total()} plays ended before its first reply: {why}"


def unheard_of(episodes: Iterable[Episode], policies: Iterable[str]) -> list[str]:
    """The lines on those of these policies that never spoke; no further episode is read than one
    in which the last of them has."""
    voices = Voices()
    wanted = set(policies)
    for episode in episodes if wanted else ():
        voices.add(heard_in(episode), episode.end, episode.error or "")
        if voices.has_heard(wanted):
            return []
    return [line for name, line in voices.unheard().items() if name in wanted]


def lines_of(summary: Mapping[str, object]) -> list[str]:
    """The lines on policies that never spoke in a run's summary, which an older one lacks."""
    unheard = summary.get("unheard", {})
    return list(unheard.values()) if isinstance(unheard, dict) else []
