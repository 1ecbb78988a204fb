"""How much is said, and how much it does: two measures of Lowe et al. 2019 (arXiv 1903.05168).

Speaker consistency says whether messages tell something: how much of what a speaker was dealt, or
does next, is in its messages. Influence says whether anybody listens: how much of what a hearer
does next depends on which message it hears. Agents may have the first without the second, as where
nobody listens to a speaker who still tells the truth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from gem_ma.driver.forks import scripted
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Turn
from gem_ma.registry import dealt
from gem_ma.scores.attribution import numbered, said_elsewhere
from gem_ma.scores.forked import Forks, Seen


class Influence(NamedTuple):
    """Nats of a hearer's next act that depend on which message it hears, 0 to the logarithm of the
    number of messages; of `plays` forks, `failed` of which did not come so far."""

    step: int
    speaker: str
    hearer: str
    nats: float | None
    plays: int
    failed: int


def mutual_information(pairs: Iterable[tuple[Hashable, Hashable]]) -> float:
    """I(X; Y) in nats of the pairs (x, y) as they were counted; too high by about
    (|X| - 1)(|Y| - 1) / 2n of n pairs that have nothing to do with each other.

    >>> mutual_information([("a", 1), ("b", 2)] * 5) == math.log(2)
    True
    >>> mutual_information([("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    0.0
    """
    joint = Counter(pairs)
    total = joint.total()
    ones: Counter[Hashable] = Counter()
    others: Counter[Hashable] = Counter()
    for (one, other), count in joint.items():
        ones[one] += count
        others[other] += count
    terms = (
        count / total * math.log(count * total / (ones[one] * others[other]))
        for (one, other), count in joint.items()
    )
    return max(math.fsum(terms), 0.0)


def speaker_consistency(
    scenario: Scenario,
    episodes: Sequence[Episode],
    speaker: str,
    about: Literal["deal", "act"] = "deal",
) -> float | None:
    """The share, 0 to 1, of what a speaker was dealt (or of its next act) that its first message
    tells: I(message; other) / H(other) over plays. None where the other thing is always the same,
    or is not there. It is an overestimate where plays are few (see `mutual_information`): take
    many more than there are messages times deals. Raises ConfigError for a speaker that has no
    seat.
    """
    pairs: list[tuple[Hashable, Hashable]] = []
    for episode in episodes:
        if speaker not in episode.cast:
            names = ", ".join(episode.cast)
            raise ConfigError(f"no agent of {scenario.id} is called {speaker!r}; it has {names}")
        if not episode.end.scored:
            continue
        acts = [turn.action.text for turn in episode.turns if turn.agent == speaker]
        if about == "act":
            pairs += [(acts[0], acts[1])] if len(acts) > 1 else []
        elif acts and speaker in (secrets := dealt(scenario, episode)):
            pairs.append((acts[0], repr(secrets[speaker])))
    entropy = mutual_information((other, other) for _, other in pairs)
    return mutual_information(pairs) / entropy if entropy else None


async def influences(
    forks: Forks, *, messages: int = 8, plays: int = 8, agent: str | None = None
) -> list[Influence]:
    """How much each message of an agent (or of all) does to the next act of each that acts after
    it: I(message; act) of `messages` that the speaker says in other deals, each heard in `plays`
    forks. All messages are heard with the same random numbers, so a deaf hearer is influenced by
    exactly 0 (the causal influence of communication, by forks in place of probabilities)."""
    if messages < 2:
        raise ConfigError(f"influence compares 2 or more messages; got {messages}")
    found: list[Influence] = []
    for place, turn in numbered(forks.turns(agent)):
        if turn.action.text and not turn.action.tool_calls:
            found += await _of_message(forks, turn, place, messages, plays)
    return found


async def _of_message(
    forks: Forks, turn: Turn, place: int, messages: int, plays: int
) -> list[Influence]:
    seeds = [forks.seed("influence", turn.step, turn.agent, n) for n in range(messages)]
    drawn = await forks.all(said_elsewhere(forks, turn.agent, place, seed) for seed in seeds)
    texts = [text for text in drawn if text is not None]
    later = (other.agent for other in forks.episode.turns if other.step > turn.step)
    hearers = [hearer for hearer in dict.fromkeys(later) if hearer != turn.agent]
    heard = [(text, n) for text in texts for n in range(plays)] if hearers else []
    acts = await forks.all(_next_acts(forks, turn, text, n, hearers) for text, n in heard)
    influences = []
    for hearer in hearers:
        pairs = [
            (text, act[hearer]) for (text, _), act in zip(heard, acts, strict=True) if hearer in act
        ]
        nats = mutual_information(pairs) if len(texts) > 1 and pairs else None
        failed = len(heard) - len(pairs)
        influences.append(Influence(turn.step, turn.agent, hearer, nats, len(heard), failed))
    return influences


async def _next_acts(
    forks: Forks, turn: Turn, text: str, number: int, hearers: Sequence[str]
) -> Mapping[str, str]:
    """What each hearer does first after a message."""
    acts: dict[str, str] = {}

    def watch(game: Game) -> None:
        for act in game.turns:
            if act.step > turn.step and act.agent in hearers:
                acts.setdefault(act.agent, repr(act.action))
        if len(acts) == len(hearers):
            raise Seen

    # of the number alone: what is said is all that differs between two messages
    seed = forks.seed("hearing", turn.step, turn.agent, number)
    beside = [x.agent for x in forks.episode.turns if x.step == turn.step and x is not turn]
    says = {turn.agent: scripted(forks.behaviour(turn.agent), {turn.step: text})}
    made = await forks.fork(turn.step, seed, kept=beside, behaviours=says, watch=watch)
    for act in made.turns:
        if act.step > turn.step and act.agent in hearers:
            acts.setdefault(act.agent, repr(act.action))
    return acts
