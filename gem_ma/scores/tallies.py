"""What a summary takes from each episode as it passes, so that a run of any length can be summed up
without holding its turns in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gem_ma.kernel.episode import End, Entry, Episode
from gem_ma.kernel.types import Malformed, Turn
from gem_ma.scores.copies import Copies
from gem_ma.scores.groups import (
    Labels,
    Measures,
    labels_if_any,
    labels_of,
    returns_of,
    values_of,
)
from gem_ma.scores.unheard import Voices

GOES_ON = 2  # further acts of who wanted to end
# of the end, as other benchmarks' users write it
_MARK = re.compile(r"(?<!#)#{3,}+[ \t]{0,8}[A-Z][A-Z _-]{1,30}#{3,}")


@dataclass(slots=True)
class AgentCounts:
    """Counts over the turns of one agent, of scored episodes."""

    sampled: int = 0  # tokens
    prompt: int = 0
    choices: int = 0  # closed ones, and those in which it named no legal string
    illegal: int = 0
    calls: int = 0
    malformed: int = 0
    turns: int = 0
    cut_turns: int = 0
    cut_bytes: int = 0

    def add(self, turn: Turn) -> None:
        for reply in turn.replies:
            # ids where the engine gives them; a server's own count otherwise
            self.sampled += len(reply.token_ids) or reply.usage.completion_tokens or 0
            self.prompt += len(reply.prompt_ids) or reply.usage.prompt_tokens or 0
        if turn.legal is not None:
            self.choices += 1
            self.illegal += turn.action.parsed is None
        self.calls += len(turn.action.tool_calls)
        self.malformed += sum(isinstance(call, Malformed) for call in turn.action.tool_calls)
        cut = turn.action.cut + sum(reply.cut for reply in turn.replies)
        self.turns += 1
        self.cut_turns += cut > 0
        self.cut_bytes += cut


@dataclass(slots=True)
class Tallies:
    """Counts over all episodes that were taken in. `turns`, `steps`, `model_calls`: of scored
    ones."""

    turns: int = 0
    steps: int = 0
    model_calls: int = 0
    retried: int = 0  # episodes
    by_agent: dict[str, AgentCounts] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=Counter)  # by policy, failed episodes included
    silent: Counter[str] = field(default_factory=Counter)
    served: dict[str, Counter[str]] = field(default_factory=dict)
    voices: Voices = field(default_factory=Voices)
    # by agent, plays that went on after a mark of the end that stood in the middle of a message
    marked: Counter[str] = field(default_factory=Counter)

    def add(self, episode: Episode) -> None:
        self.voices.add(episode)
        replies = [reply for turn in episode.turns for reply in turn.replies]
        # once per episode, however many of its requests were repeated
        self.retried += any(reply.attempts for reply in replies)
        for reply in replies:
            self.replies[reply.policy] += 1
            # adds 0 too: every policy has an entry
            self.silent[reply.policy] += reply.silent
            if reply.model:
                self.served.setdefault(reply.policy, Counter())[reply.model] += 1
        self.marked.update(episode.whose(agent) for agent in _marked(episode))
        if episode.end.scored:
            self.turns += len(episode.turns)
            self.steps += 1 + max((turn.step for turn in episode.turns), default=-1)
            self.model_calls += len(replies)
            for turn in episode.turns:
                self.by_agent.setdefault(episode.whose(turn.agent), AgentCounts()).add(turn)

    def by_policy(self) -> dict[str, Any]:
        """`empty`: of each policy's replies, how many said nothing; `served`: what servers called
        their models; where any is, `unheard`: why a policy never spoke, and `marked`: of each
        agent, the plays that went on after its mark of the end."""
        empty = {
            name: {"replies": n, "empty": self.silent[name], "share": self.silent[name] / n}
            for name, n in sorted(self.replies.items())
        }
        served = {
            name: dict(sorted(names_of.items(), key=lambda pair: (-pair[1], pair[0])))
            for name, names_of in sorted(self.served.items())
        }
        unheard = self.voices.unheard()
        odd = {"unheard": unheard, "marked": dict(sorted(self.marked.items()))}
        return {"empty": empty, "served": served, **{name: of for name, of in odd.items() if of}}


def _marked(episode: Episode) -> Iterator[str]:
    """The agents whose model wrote a mark such as ###STOP### beside a text, which was cut, and that
    acted several times after it."""
    turns: dict[str, list[Turn]] = {}
    for turn in episode.turns:
        if turn.replies:
            turns.setdefault(turn.agent, []).append(turn)
    for agent, acts in turns.items():
        if any(
            turn.action.text.strip()
            and not _MARK.search(turn.action.text)
            and _MARK.search(turn.replies[-1].text)
            for turn in acts[:-GOES_ON]
        ):
            yield agent


@dataclass(slots=True)
class Taken:
    """Episodes without their turns, in the order of their ids, and what the scenario said of them
    while they were whole."""

    episodes: list[Episode]
    tallies: Tallies
    judged: list[tuple[Episode, bool]]
    measured: Mapping[int, Mapping[str, float]]  # by `id` of the episode in `episodes`
    labelled: Mapping[int, Mapping[str, tuple[str, ...]]]
    copied: frozenset[str]  # the worlds whose plays are one play again

    def measures(self, episode: Episode) -> Mapping[str, float]:
        return self.measured[id(episode)]

    def labels(self, episode: Episode) -> Mapping[str, tuple[str, ...]]:
        return self.labelled[id(episode)]


def take(
    episodes: Iterable[Episode], success: Any, measures: Measures | None, labels: Labels | None
) -> Taken:
    """Asks each episode what a summary needs, one after the other, and keeps no turn.

    Raises ScenarioError, and whatever `success` raises.
    """
    tallies = Tallies()
    slims = []
    won: dict[int, bool] = {}
    measured: dict[int, Mapping[str, float]] = {}
    labelled: dict[int, Mapping[str, tuple[str, ...]]] = {}
    cast: Mapping[str, Any] = {}
    copies: dict[str, Copies] = {}
    for episode in episodes:
        tallies.add(episode)
        copies.setdefault(episode.world, Copies()).add(episode)
        cast = episode.cast if episode.cast != cast else cast  # one for all that share it
        slim = _slim(episode, cast)
        slims.append(slim)
        if episode.end.scored:
            if success is not None and (judged := success(episode)) is not None:
                won[id(slim)] = judged
            if measures is not None:
                measured[id(slim)] = values_of(episode, measures)
            if labels is not None:
                labelled[id(slim)] = labels_of(episode, labels)
        elif episode.end is End.FAILED and labels is not None:
            labelled[id(slim)] = labels_if_any(episode, labels)
    # so that no sum depends on which episode ended first
    slims.sort(key=lambda episode: episode.id)
    verdicts = [(slim, won[id(slim)]) for slim in slims if id(slim) in won]
    copied = frozenset(world for world, plays in copies.items() if plays.one_play)
    return Taken(slims, tallies, verdicts, measured, labelled, copied)


def _slim(episode: Episode, cast: Mapping[str, Any]) -> Episode:
    """An episode with its identity, end and returns only."""
    # one entry per agent: returns stay, and a ledger of thousands goes
    ledger = tuple(Entry(-1, agent, value) for agent, value in returns_of(episode).items())
    return replace(
        episode, cast=cast, ledger=ledger, turns=(), calls=(), forks=(), final={}, options={}
    )
