"""Collapse detectors: what tells that a learner has stopped being a player, although its reward may
not show it. Pure functions of the record.

| signal | alarm |
|---|---|
| `side`: share of games that the first agent wins against itself | off `reference` by > max(.15, 3 standard errors), 3 exams in a row |
| `anchor`: return against an anchor on the same seeds | below the best exam by > 3 standard errors of the difference |
| `deaf`: what the private part of a view changes in a decision's probabilities | < .05 over all probed views |
| `entropy` at decision tokens | < .05 nats, or halved within 10 updates, mean of 3 |
| `one_action`: share of the commonest action in each closed choice | > .95, mean of 3 |
| `invalid`, `length`: unreadable answers, tokens per answer | > 2 x the mean of the 10 updates before (and of `invalid` more than .05) |
| `unreadable`: share of answers that name no legal move, or are no readable call | > .5, mean of 3 |

Low entropy is no alarm by itself where a game is not zero-sum and the return is at its best:
that is learning. In self-play of a zero-sum game the return says nothing, so there the alarm
stands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gem_ma.evaluation.game_tree import Strategy
from gem_ma.types import Episode, Malformed, Message, Reply, Turn

SIDE, ERRORS, EXAMS = 0.15, 3.0, 3
DEAF, PROBES = 0.05, 64
ENTROPY, HALVED, WINDOW, SMOOTH = 0.05, 0.5, 10, 3
ONE_ACTION, TWICE, INVALID, UNREADABLE = 0.95, 2.0, 0.05, 0.5
# of which no more than the last updates is judged
RECENT = ("entropy", "one_action", "invalid", "length", "unreadable")
Encode = Callable[[str], Sequence[int]]  # text of an answer -> its ids, end of turn included
# no collapse: so it may begin, and older weights would not cure it
HARMLESS = frozenset({"unreadable"})
ADVICE = {  # what to type, by signal; {policy} is its name
    "unreadable": (
        "bind it to what can be read, policies.{policy}.constrain=legal (closed choices) or tools"
        " (calls), or begin with train.warm_start"
    ),
    "invalid": "bind it to what can be read: policies.{policy}.constrain=legal, or tools",
    "length": "policies.{policy}.max_tokens bounds its answers",
    "entropy": "learn more slowly, train.lr a third, or keep it exploring, train.loss.entropy=0.01",
    "one_action": (
        "learn more slowly, train.lr a third, or keep it exploring, train.loss.entropy=0.01"
    ),
    "deaf": "begin with train.warm_start, or let one side learn first: train.policies=[{policy}]",
    "side": (
        "half of its games against older selves: 'train.opponents={{latest: 0.5, uniform: 0.5}}'"
    ),
    "anchor": (
        "learn more slowly, train.lr a third, or play the old opponents too:"
        " 'train.opponents={{latest: 0.5, uniform: 0.5}}'"
    ),
}
DECISIONS = 30  # or turns of an update, below which its shares are noise


class Alarm(NamedTuple):
    """A detector has fired: `value` passed `limit`."""

    signal: str
    policy: str
    value: float
    limit: float
    text: str


# -- what is measured ----------------------------------------------------------------------------


def health(
    episodes: Sequence[Episode], policy: str, encode: Encode | None = None
) -> dict[str, float]:
    """How a policy answers in these episodes; {} where it did not.

    Over all `turns`: the mean `length` of its last replies in tokens and the share of `invalid`
    answers (a closed choice that could not be read, a malformed tool call). Over `decisions`,
    turns with several legal strings: the share of `one_action`, the commonest of each closed
    choice, the estimated `entropy` at the decision token in nats, and `format_entropy` at all
    other sampled tokens of the same replies, where there are any. Both estimates are means of
    the sampled tokens' surprise. `encode` gives the ids of an answer's text, where the policy
    has a tokenizer.
    """
    turns = _sampled(episodes, policy)
    if not turns:
        return {}
    choices: dict[tuple[str, ...], list[tuple[Turn, Reply]]] = {}
    for turn, reply in turns:
        if turn.legal is not None and len(turn.legal) > 1:
            choices.setdefault(turn.legal, []).append((turn, reply))
    decisions = sum(map(len, choices.values()))
    found = {
        "turns": float(len(turns)),
        "length": sum(len(reply.token_ids) for _, reply in turns) / len(turns),
        "invalid": sum(_unreadable(turn) for turn, _ in turns) / len(turns),
        "decisions": float(decisions),
    }
    if decisions:
        found["one_action"] = (
            sum(
                Counter(turn.action.parsed for turn, _ in part).most_common(1)[0][1]
                for part in choices.values()
            )
            / decisions
        )
        chosen = [
            (reply, at)
            for legal, part in choices.items()
            for reply, at in decision_tokens(legal, part, encode)
        ]
        if chosen:
            found["entropy"] = sum(-reply.logprobs[at] for reply, at in chosen) / len(chosen)
        others = [
            -value for reply, at in chosen for n, value in enumerate(reply.logprobs) if n != at
        ]
        if others:
            found["format_entropy"] = sum(others) / len(others)
    return found


def _unreadable(turn: Turn) -> bool:
    return (turn.legal is not None and turn.action.parsed is None) or any(
        isinstance(call, Malformed) for call in turn.action.tool_calls
    )


def _sampled(episodes: Sequence[Episode], policy: str) -> list[tuple[Turn, Reply]]:
    """Every turn of the policy with its last reply."""
    own = []
    for episode in episodes:
        if episode.end.scored:
            for turn in episode.turns:
                replies = [
                    reply for reply in turn.replies if reply.policy == policy and reply.token_ids
                ]
                if replies:
                    own.append((turn, replies[-1]))
    return own


def decision_tokens(
    legal: Sequence[str], part: Sequence[tuple[Turn, Reply]], encode: Encode | None = None
) -> list[tuple[Reply, int]]:
    """The readable answers to one closed choice, each with the place in its sampled ids at which it
    decides.

    That is the first place at which the ids of the legal strings differ. Where the sampled ids
    do not hold the ids of what was meant (no tokenizer here, another wording), it is the first
    at which recorded answers with different meanings differ, and where all mean the same, the
    least certain one.
    """
    read = [
        (turn.action.parsed, reply)
        for turn, reply in part
        if turn.action.parsed is not None and len(reply.logprobs) == len(reply.token_ids)
    ]
    if not read:
        return []
    spelled = {text: tuple(encode(text)) for text in legal} if encode is not None else {}
    differ = _first_difference(list(spelled.values()))
    held = [_where(reply.token_ids, spelled.get(parsed, ())) for parsed, reply in read]
    fallback = _recorded_difference(read)
    found = []
    for (parsed, reply), start in zip(read, held, strict=True):
        exact = start is not None and differ is not None and differ < len(spelled[parsed])
        found.append(
            (
                reply,
                (start or 0) + (differ or 0) if exact else min(fallback, len(reply.logprobs) - 1),
            )
        )
    return found


def _recorded_difference(read: Sequence[tuple[str, Reply]]) -> int:
    shown = {parsed: reply.token_ids for parsed, reply in read}
    sequences = list(shown.values())
    if len(sequences) > 1:
        at = _first_difference(sequences)
        return at if at is not None else min(map(len, sequences)) - 1
    length = min(len(reply.logprobs) for _, reply in read)
    return min(range(length), key=lambda n: sum(reply.logprobs[n] for _, reply in read))


def _first_difference(sequences: Sequence[Sequence[int]]) -> int | None:
    """The first place at which not all ids are the same; None where they agree as far as the
    shortest goes."""
    return next(
        (n for n, ids in enumerate(zip(*sequences, strict=False)) if len(set(ids)) > 1), None
    )


def _where(ids: Sequence[int], part: Sequence[int]) -> int | None:
    """Where the ids hold these ids in a row."""
    width = len(part)
    return (
        next(
            (n for n in range(len(ids) - width + 1) if tuple(ids[n : n + width]) == tuple(part)),
            None,
        )
        if width
        else None
    )


def first_share(episodes: Sequence[Episode]) -> tuple[float, int] | None:
    """Share of games that the first agent wins, half the ties included, and the number of games;
    None without any."""
    scored = [
        list(episode.returns().values())
        for episode in episodes
        if episode.end.scored and len(episode.cast) > 1
    ]
    if not scored:
        return None
    points = [
        0.5 if paid[0] == max(paid[1:]) else float(paid[0] > max(paid[1:])) for paid in scored
    ]
    return sum(points) / len(points), len(points)


def private_effect(
    strategy: Strategy, episodes: Sequence[Episode], agents: Sequence[str], probes: int = PROBES
) -> float | None:
    """How much a decision's probabilities change, at most, when what only this agent was shown is
    exchanged for that of another episode.

    Two recorded views of one agent are such an exchange when they agree in all that others saw
    or said and in the legal strings, and differ in what only this agent was shown. Largest
    difference of a probability over such pairs of the first `probes` views; None where there is
    no pair.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Message, ...], list[float]]] = {}
    seen = 0
    for episode in episodes:
        transcripts = {agent: episode.transcript(agent) for agent in episode.cast}
        for agent in agents:
            shared = {
                message
                for other, messages in transcripts.items()
                if other != agent
                for message in messages
            }
            view: tuple[Message, ...] = ()
            for turn in (turn for turn in episode.turns if turn.agent == agent):
                view = (*view, *turn.observed)
                if turn.legal is not None and len(turn.legal) > 1 and seen < probes:
                    public = tuple(
                        m.text if m.sender == agent or m in shared else None for m in view
                    )
                    group = groups.setdefault((agent, turn.legal, public), {})
                    if view not in group:
                        chances = [float(chance) for chance in strategy(agent, view, turn.legal)]
                        # among readable answers
                        group[view] = [chance / (sum(chances) or 1.0) for chance in chances]
                        seen += 1
                view = (*view, Message(turn.action.text, agent, turn.action.tool_calls))
    spreads = [
        max(max(column) - min(column) for column in zip(*views.values(), strict=True))
        for views in groups.values()
        if len(views) > 1
    ]
    return max(spreads) if spreads else None


# -- what is judged ------------------------------------------------------------------------------


def side(shares: Sequence[tuple[float, int]], policy: str, reference: float = 0.5) -> Alarm | None:
    """Judges the last three (share, games) of mirror play."""
    last = list(shares)[-EXAMS:]
    limits = [
        max(SIDE, ERRORS * math.sqrt(reference * (1 - reference) / games)) for _, games in last
    ]
    if len(last) < EXAMS or any(
        abs(share - reference) <= limit for (share, _), limit in zip(last, limits, strict=True)
    ):
        return None
    text = (
        f"the first agent wins {last[-1][0]:.2f} of the games against itself, {reference:.2f} would"
        " be even"
    )
    return Alarm("side", policy, last[-1][0], limits[-1], text)


def anchor(scores: Sequence[tuple[float, float]], policy: str, name: str) -> Alarm | None:
    """Judges the last (mean, standard error) against an anchor by the best one before."""
    if len(scores) < 2:
        return None
    (mean, error), (best, best_error) = scores[-1], max(list(scores)[:-1])
    allowed = ERRORS * math.hypot(error, best_error)
    if best - mean <= allowed:
        return None
    return Alarm(
        "anchor",
        policy,
        mean,
        best - allowed,
        f"against {name} it gets {mean:.3f}, and got {best:.3f} before",
    )


def deaf(effect: float | None, policy: str) -> Alarm | None:
    """Judges what the private part of a view changes."""
    if effect is None or effect >= DEAF:
        return None
    text = (
        f"what only it is shown changes no probability of its decisions by more than {effect:.3f}:"
        " it does not read its own cards"
    )
    return Alarm("deaf", policy, effect, DEAF, text)


def entropy(values: Sequence[float], policy: str) -> Alarm | None:
    """Judges the entropies of the updates so far."""
    if len(values) < SMOOTH:
        return None
    now = _mean(values[-SMOOTH:])
    if now < ENTROPY:
        return Alarm(
            "entropy", policy, now, ENTROPY, f"the entropy of its decisions is {now:.3f} nats"
        )
    if len(values) >= WINDOW + SMOOTH:
        before = _mean(values[-WINDOW - SMOOTH : -WINDOW])
        if now < HALVED * before:
            text = (
                f"the entropy of its decisions fell from {before:.3f} to {now:.3f} nats in 10"
                " updates"
            )
            return Alarm("entropy", policy, now, HALVED * before, text)
    return None


def one_action(shares: Sequence[float], policy: str) -> Alarm | None:
    """Judges the shares of the commonest action."""
    if len(shares) < SMOOTH or (now := _mean(shares[-SMOOTH:])) <= ONE_ACTION:
        return None
    return Alarm(
        "one_action",
        policy,
        now,
        ONE_ACTION,
        f"in {now:.2f} of its decisions it does the same thing, whatever it sees",
    )


def unreadable(shares: Sequence[float], policy: str) -> Alarm | None:
    """Judges the shares of answers that could not be read, from the first updates on: what
    cannot be read is hardly ever paid."""
    if len(shares) < SMOOTH or (now := _mean(shares[-SMOOTH:])) <= UNREADABLE:
        return None
    return Alarm("unreadable", policy, now, UNREADABLE, f"{now:.0%} of its answers are unreadable")


def doubled(values: Sequence[float], policy: str, signal: str, floor: float = 0.0) -> Alarm | None:
    """Judges the last value by the mean of the ten before it; values up to `floor` never count."""
    if len(values) <= WINDOW:
        return None
    limit = max(TWICE * _mean(values[-WINDOW - 1 : -1]), floor)
    if values[-1] <= limit:
        return None
    what = {
        "invalid": "of its answers are unreadable",
        "length": "tokens is the mean length of its answers",
    }.get(signal, signal)
    return Alarm(
        signal,
        policy,
        values[-1],
        limit,
        f"{values[-1]:.3g} {what}, more than twice the mean of the updates before",
    )


def at_its_best(returns: Sequence[float]) -> bool:
    """Whether the mean of the last three returns is within a tenth of the whole range from the
    best such mean so far."""
    means = [_mean(returns[n - SMOOTH : n]) for n in range(SMOOTH, len(returns) + 1)]
    return bool(means) and means[-1] >= max(means) - 0.1 * (max(means) - min(means))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# -- the watch -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """What the detectors remember of one run; JSON values only, so that a checkpoint holds it. An
    alarm is given once until it has cleared.

    An alarm of the updates has cleared after ten updates without it, one of the exams with the
    first exam without it.
    """

    zero_sum: bool
    reference: float = 0.5
    past: dict[str, list[Any]] = field(default_factory=dict)
    # policy/signal -> how many judgements without the alarm clear it
    active: dict[str, int] = field(default_factory=dict)

    def after_update(
        self, policy: str, found: Mapping[str, float], paid: float | None
    ) -> list[Alarm]:
        """Takes the `health` of a policy in one update's episodes and the mean return of its
        agents; gives the new alarms."""
        if paid is not None:
            self._keep("paid", policy, paid)
        for name in RECENT:
            if (
                name in found
                and found["decisions" if name in ("entropy", "one_action") else "turns"]
                >= DECISIONS
            ):
                self._keep(name, policy, found[name])
        learned = not self.zero_sum and at_its_best(self._of("paid", policy))
        judged = {
            "entropy": None if learned else entropy(self._of("entropy", policy), policy),
            "one_action": one_action(self._of("one_action", policy), policy),
            "invalid": doubled(self._of("invalid", policy), policy, "invalid", INVALID),
            "unreadable": unreadable(self._of("invalid", policy), policy),
            "length": doubled(self._of("length", policy), policy, "length"),
        }
        return self._new(judged, policy)

    def after_exam(
        self, scores: Mapping[str, Any], policies: Sequence[str], step: int
    ) -> list[Alarm]:
        """Takes an exam; gives the new alarms. `deaf` is judged after the first update, since
        nothing was learned before."""
        alarms = []
        share = scores.get("first_share")
        for policy in policies:
            judged: dict[str, Alarm | None] = {}
            if share is not None and len(policies) == 1:
                self._keep("side", policy, [share, scores["sampled"]["ok"]])
                judged["side"] = side(
                    [(value, games) for value, games in self._of("side", policy)],
                    policy,
                    self.reference,
                )
            for key, one in scores.items():
                if (
                    key.startswith("against ")
                    and (mean := one["return"].get(policy)) is not None
                    and one["standard_error"].get(policy) is not None
                ):
                    self._keep(key, policy, [mean, one["standard_error"][policy]])
                    judged[key] = anchor(
                        [(value, error) for value, error in self._of(key, policy)],
                        policy,
                        key.removeprefix("against "),
                    )
            effect = scores.get(f"private_effect {policy}")
            if effect is not None and effect >= DEAF:
                self.past[f"{policy}/heard"] = [True]
            if step > 0:
                judged["deaf"] = deaf(effect, policy)
            alarms += self._new(judged, policy)
        return alarms

    def heard(self, policy: str) -> bool:
        """Whether an exam found the policy to read what only it is shown."""
        return bool(self._of("heard", policy))

    def calm(self, policy: str) -> bool:
        """Whether no alarm of the policy stands that says it has become worse."""
        return not any(
            name.startswith(f"{policy}/") and name.rpartition("/")[2] not in HARMLESS
            for name in self.active
        )

    def forget(self, policy: str) -> None:
        """Drops what is known of a policy, as after its weights were put back."""
        self.past = {
            name: values
            for name, values in self.past.items()
            if not name.startswith(f"{policy}/") or name == f"{policy}/heard"
        }
        self.active = {
            name: left for name, left in self.active.items() if not name.startswith(f"{policy}/")
        }

    def _new(self, judged: Mapping[str, Alarm | None], policy: str) -> list[Alarm]:
        alarms = []
        for name, alarm in judged.items():
            key = f"{policy}/{name}"
            left = self.active.pop(key, 0)
            if alarm is not None:
                self.active[key] = WINDOW if name in RECENT else 1
                alarms += [alarm] if not left else []
            elif left > 1:
                self.active[key] = left - 1
        return alarms

    def _of(self, name: str, policy: str) -> list[Any]:
        return self.past.get(f"{policy}/{name}", [])

    def _keep(self, name: str, policy: str, value: Any) -> None:
        values = [*self._of(name, policy), value]
        self.past[f"{policy}/{name}"] = values[-WINDOW - SMOOTH :] if name in RECENT else values
