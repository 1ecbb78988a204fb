"""Collapse detectors: they notice that a learner has stopped being a player, even where its reward
does not show it. They judge what `gem_ma.training.selfplay.signs` measures, and read no episodes.

- `side`, the share of games that the first agent wins against itself: off `reference` by more than
  max(.15, 3 standard errors), 3 exams in a row.
- `anchor`, the return against an anchor on the same seeds: below the best exam by more than 3
  standard errors of the difference.
- `deaf`, how much the private part of a view changes a decision's probabilities: below .05 over
  all probed views.
- `entropy` at decision tokens: below .05 nats, or halved within 10 updates, as means of 3.
- `one_action`, the share of the commonest action in each closed choice: above .95, mean of 3.
- `invalid` and `length`, unreadable answers and tokens per answer: above twice the mean of the 10
  updates before (and of `invalid` more than .05).
- `unreadable`, the share of answers that name no legal move, or are not a readable call: above .5,
  mean of 3.

Low entropy is not an alarm where a game is not zero-sum and the return is at its best: that is
learning. In self-play of a zero-sum game the return says nothing, so there it is an alarm; where
one side alone learns, against players who stand still, it is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.spelling import in_quotes
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exploitability import ScoresTexts
from gem_ma.training.loop.exams import effects
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Attendant, Step
from gem_ma.training.schedule.settings import settings_of
from gem_ma.training.selfplay.signs import health

# 3 standard errors: a run has tens of exams, and at 2 one in twenty would raise a false alarm
EVEN = 0.5
SIDE = 0.15
ERRORS = 3.0
EXAMS = 3
DEAF = 0.05  # a player who reads its cards moves some decision by far more
ENTROPY = 0.05
HALVED = 0.5
WINDOW = 10
SMOOTH = 3
ONE_ACTION = 0.95
TWICE = 2.0
INVALID = 0.05
UNREADABLE = 0.5
DOUBLED = {
    "invalid": "of its answers are unreadable",
    "length": "tokens is the mean length of its answers",
}
# signals that are judged by their last updates alone
RECENT = ("entropy", "one_action", "invalid", "length", "unreadable")
SLOWER = "learn more slowly, train.lr a third"
EXPLORING = "keep it exploring, train.loss.entropy=0.01"
BOUND = "bind it to what can be read, policies.{policy}.constrain=legal (closed choices) or tools"
OLDER = "half of its games against older selves: 'train.opponents={{latest: 0.5, uniform: 0.5}}'"
# Random weights hardly read what they are shown; this wakes them, in models alone
# (experiments/log.md).
WAKING = (
    "learn several times from each step's plays, train.loss.epochs=3 train.loss.minibatches=4"
    " train.lr=0.002"
)
FROM = "'train.warm_start.{policy}={{cast: {{\"*\": {{behaviour: FILE.py:NAME}}}}}}'"
CLONING = f"begin as a clone of players who can be read, {FROM}"
READING = f"begin as a clone of players who read what they are shown, {FROM}"
ADVICE = {  # what to type, by signal; {policy} is its name
    "unreadable": (BOUND, CLONING),
    "invalid": (BOUND,),
    "length": ("policies.{policy}.max_tokens bounds its answers",),
    "entropy": (SLOWER, EXPLORING),
    "one_action": (SLOWER, EXPLORING),
    "deaf": (WAKING, READING),
    "side": (OLDER,),
    "anchor": (SLOWER, OLDER),
}
DECISIONS = 30  # of an update (or turns, for shares of turns); with fewer a share is noise


class Alarm(NamedTuple):
    """A detector has fired: `value` passed `limit`."""

    signal: str
    policy: str
    value: float
    limit: float
    text: str


def side(shares: Sequence[tuple[float, int]], policy: str) -> Alarm | None:
    """Judges the last three (share, games) of mirror play."""
    last = list(shares)[-EXAMS:]
    # few games have a wide error of their own, so the fixed bound alone would fire on chance
    limits = [max(SIDE, ERRORS * math.sqrt(EVEN * (1 - EVEN) / games)) for _, games in last]
    pairs = zip(last, limits, strict=True)
    if len(last) < EXAMS or any(abs(share - EVEN) <= limit for (share, _), limit in pairs):
        return None
    won = last[-1][0]
    text = f"the first agent wins {won:.2f} of the games against itself; {EVEN:.2f} would be even"
    return Alarm("side", policy, won, limits[-1], text)


def anchor(scores: Sequence[tuple[float, float]], policy: str, name: str) -> Alarm | None:
    """Judges the last (mean, standard error) against an anchor by the best one before."""
    if len(scores) < 2:
        return None
    mean, error = scores[-1]
    best, best_error = max(scores[:-1])
    # of two means; taken as independent, which errs on the side of no alarm on equal seeds
    allowed = ERRORS * math.hypot(error, best_error)
    if best - mean <= allowed:
        return None
    text = f"against {name} it gets {mean:.3f}, and got {best:.3f} before"
    return Alarm("anchor", policy, mean, best - allowed, text)


def deaf(effect: float | None, policy: str) -> Alarm | None:
    if effect is None or effect >= DEAF:
        return None
    text = (
        f"what only it is shown changes no probability of its decisions by more than {effect:.3f}:"
        " it plays without reading what it is shown"
    )
    return Alarm("deaf", policy, effect, DEAF, text)


def entropy(values: Sequence[float], policy: str) -> Alarm | None:
    """Judges the entropies of the updates so far."""
    if len(values) < SMOOTH:
        return None
    now = _mean(values[-SMOOTH:])
    if now < ENTROPY:
        text = f"the entropy of its decisions is {now:.3f} nats"
        return Alarm("entropy", policy, now, ENTROPY, text)
    if len(values) >= WINDOW + SMOOTH:
        # a slow fall is learning, so only a fall within few updates counts
        before = _mean(values[-WINDOW - SMOOTH : -WINDOW])
        if now < HALVED * before:
            fell = f"fell from {before:.3f} to {now:.3f} nats in 10 updates"
            text = f"the entropy of its decisions {fell}"
            return Alarm("entropy", policy, now, HALVED * before, text)
    return None


def one_action(shares: Sequence[float], policy: str) -> Alarm | None:
    if len(shares) < SMOOTH or (now := _mean(shares[-SMOOTH:])) <= ONE_ACTION:
        return None
    text = f"in {now:.2f} of its decisions it does the same thing, whatever it sees"
    return Alarm("one_action", policy, now, ONE_ACTION, text)


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
    # the floor, since twice almost nothing is still almost nothing
    limit = max(TWICE * _mean(values[-WINDOW - 1 : -1]), floor)
    if values[-1] <= limit:
        return None
    text = f"{values[-1]:.3g} {DOUBLED[signal]}, more than twice the mean of the updates before"
    return Alarm(signal, policy, values[-1], limit, text)


def at_its_best(returns: Sequence[float]) -> bool:
    """Whether the mean of the last three returns is within a tenth of the whole range from the
    best such mean so far."""
    # over the whole run, or a policy that has long collapsed would be at the best of its last ones
    means = [_mean(returns[n - SMOOTH : n]) for n in range(SMOOTH, len(returns) + 1)]
    return bool(means) and means[-1] >= max(means) - 0.1 * (max(means) - min(means))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(slots=True)
class Detectors:
    """What the detectors remember of one run, as JSON values. An alarm is raised once, and again
    only after it has cleared: one of the updates after ten updates without it, one of the exams
    after the first exam without it."""

    zero_sum: bool
    past: dict[str, list[Any]] = field(default_factory=dict)
    # policy/signal -> how many judgements without the alarm clear it
    active: dict[str, int] = field(default_factory=dict)

    def after_update(
        self, policy: str, health: Mapping[str, float], paid: float | None
    ) -> list[Alarm]:
        """The new alarms, from a policy's `health` in an update and its agents' mean return."""
        if paid is not None:
            self._keep("paid", policy, paid)
        # an update with too few decisions leaves no trace, rather than a number that is chance
        for name in RECENT:
            basis = "decisions" if name in ("entropy", "one_action") else "turns"
            if name in health and health[basis] >= DECISIONS:
                self._keep(name, policy, health[name])
        # in self-play of a zero-sum game the mean return is the same at any strength
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
        alarms = []
        for policy in policies:
            judged: dict[str, Alarm | None] = {}
            # mirror play of several learners says nothing about one of them
            if len(policies) == 1 and (share := scores.get("first_share")) is not None:
                self._keep("side", policy, [share, scores["sampled"]["ok"]])
                shares = [(value, games) for value, games in self._of("side", policy)]
                judged["side"] = side(shares, policy)
            for key in (key for key in scores if key.startswith("against ")):
                mean = scores[key]["return"].get(policy)
                error = scores[key]["standard_error"].get(policy)
                if mean is not None and error is not None:
                    self._keep(key, policy, [mean, error])
                    past = [(value, spread) for value, spread in self._of(key, policy)]
                    judged[key] = anchor(past, policy, key.removeprefix("against "))
            alarms += self._new(judged, policy)
            # before the first update nothing was learned
            if step > 0:
                alarms += self.after_probe(policy, scores.get(f"private_effect {policy}"))
        return alarms

    def after_probe(self, policy: str, effect: float | None) -> list[Alarm]:
        """The new alarm, if any, of how much the private part of a view changes."""
        return self._new({"deaf": deaf(effect, policy)}, policy)

    def _new(self, judged: Mapping[str, Alarm | None], policy: str) -> list[Alarm]:
        alarms = []
        for name, alarm in judged.items():
            key = f"{policy}/{name}"
            left = self.active.pop(key, 0)
            if alarm is not None:
                # an update comes every step and may flicker around a limit; an exam is rare
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


PROBES = 32  # views between two exams; an exam takes twice as many
NAMES = {
    "entropy": "decision_entropy",
    "format_entropy": "format_entropy",
    "length": "reply_tokens",
    "invalid": "invalid_share",
    "one_action": "one_action",
    "decisions": "decisions",
}


class GuardState(TypedDict):
    """What a checkpoint holds of it."""

    past: dict[str, list[Any]]
    active: dict[str, int]
    told: dict[str, int]
    again: NotRequired[dict[str, list[int]]]


class Guard(Attendant):
    """Watches the learned policies of one run: feeds the detectors, records their alarms, and tells
    the user what to try."""

    name = "guard"
    shape = GuardState

    def __init__(
        self,
        settings: TrainSettings,
        worlds: Worlds,
        learners: Mapping[str, Learner],
        policies: Mapping[str, Policy] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.worlds = worlds
        self.policies = {name: policies[name] for name in settings.policies if name in policies}
        self.learners = {name: learners[name] for name in settings.policies}
        # under `off` the signs are still measured and logged, but not judged
        self.on = settings.on_collapse != "off"
        self.detectors = Detectors(self._is_duel(worlds))
        self.counts: dict[str, int] = {}  # policy and signal -> alarms so far
        self.again: dict[str, list[int]] = {}  # the steps of those after the first
        self._alarms: list[Alarm] = []  # of this step; empty in every checkpoint

    def _is_duel(self, worlds: Worlds) -> bool:
        """Whether what one learner wins another one loses in every world. Against players who stand
        still the return of a zero-sum game tells how well it is played."""
        if not all(world.scenario.zero_sum for world in worlds.played):
            return False
        return self.settings.opponents is not None or any(
            sum(seat.policy in self.learners for seat in world.config.agents.values()) > 1
            for world in worlds.played
        )

    def updated(self, step: Step) -> None:
        if step.number:
            policies = step.metrics["policies"]
            episodes = step.rollouts.episodes
            measured = self.after_update(episodes, policies)
            for name, values in measured.items():
                policies[name] |= values
            self._probe(step)

    def _probe(self, step: Step) -> None:
        """Asks every ten steps whether the policies read what only they are shown."""
        every = self.worlds.played[0].config.evaluate.every
        # an exam judges it too
        if not self.on or step.number % WINDOW or (every and step.number % every == 0):
            return
        found = effects(self.worlds, self.policies, self.learners, step.rollouts.episodes, PROBES)
        for name, effect in found.items():
            self._alarms += self.detectors.after_probe(name, effect)

    def examined(self, step: Step) -> None:
        """Judges an exam, and tells all alarms since the last call."""
        if step.scores is not None:
            self.after_exam(step.scores, step.number)
        for alarm in self._alarms:
            name = f"{alarm.policy} {alarm.signal}"
            self.counts[name] = self.counts.get(name, 0) + 1
            row = {"kind": "alarm", "step": step.number, **alarm._asdict()}
            step.rows.append(row)
            if self.counts[name] == 1:
                step.notes.append(self._note(row))
            else:
                self.again.setdefault(name, []).append(step.number)
        self._alarms = []
        if step.number == 0 and self.on:
            step.notes += self._unread(step.scores or {})
        if step.last:
            step.notes += [
                f"policy {name.replace(' ', ': ', 1)} again at step {', '.join(map(str, steps))}"
                for name, steps in self.again.items()
            ]

    def summary(self) -> Mapping[str, Any]:
        return {"alarms": self.counts} if self.counts else {}

    def after_update(
        self, episodes: Sequence[Episode], policies: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, float]]:
        """The signs of health in the episodes of an update, by policy; `policies`: the metrics of
        those that learned."""
        logged = {}
        for name, numbers in policies.items():
            learner = self.learners[name]
            # how it spells an answer, where it has a tokenizer
            encode = learner.spell if isinstance(learner, ScoresTexts) else None
            measured = health(episodes, name, encode)
            # its own: an agent may have been played by another one, a snapshot say
            paid = [*numbers.get("return", {}).values()]
            if self.on:
                mean = _mean(paid) if paid else None
                self._alarms += self.detectors.after_update(name, measured, mean)
            logged[name] = {NAMES[key]: value for key, value in measured.items() if key in NAMES}
        return logged

    def after_exam(self, scores: Mapping[str, Any], step: int) -> None:
        if self.on:
            self._alarms += self.detectors.after_exam(scores, self.settings.policies, step)
        # a clone has learned already, from players who may have ignored what they saw
        for name in self.settings.policies if self.on and step == 0 else ():
            if name in self.settings.warm_start:
                effect = scores.get(f"private_effect {name}")
                self._alarms += self.detectors.after_probe(name, effect)

    def _unread(self, scores: Mapping[str, Any]) -> list[str]:
        """Lines on random weights that hardly read what they are shown: no alarm yet."""
        effects = {name: scores.get(f"private_effect {name}") for name in self.settings.policies}
        return [
            f"step 0, policy {name}: what only it is shown changes no probability of its decisions"
            f" by more than {effect:.3f} yet; asked again every ten steps"
            for name, effect in effects.items()
            # 0 is an empty table, which has ignored nothing
            if effect and effect < DEAF and name not in self.settings.warm_start
        ]

    def _note(self, alarm: Mapping[str, Any]) -> str:
        """An alarm as a line for the user, with what to try."""
        text = f"step {alarm['step']}, policy {alarm['policy']}: {alarm['text']}"
        cures = self._cures(alarm["policy"], alarm["signal"])
        return f"{text}; try: {', or '.join(cures)}" if cures else text

    def _cures(self, policy: str, signal: str) -> list[str]:
        """What may help and is not set already."""
        settings = settings_of(self.settings, policy)
        section = self.worlds.played[0].config.policies.get(policy)
        held = {
            "loss.entropy": settings.loss.entropy >= 0.01,
            "loss.epochs": settings.loss.epochs >= 3,
            "warm_start": policy in settings.warm_start and signal != "deaf",
            "opponents": settings.opponents is not None,
            ".constrain": section is not None and section.options.get("constrain") == "legal",
        }
        reads = isinstance(self.learners[policy], ScoresTexts)
        return [
            cure.format(policy=in_quotes(policy))
            for cure in ADVICE.get(signal, ())
            if not any(key in cure and is_set for key, is_set in held.items())
            and (cure is not WAKING or reads)
        ]

    def state(self) -> dict[str, Any]:
        return {
            "past": self.detectors.past,
            "active": self.detectors.active,
            "told": self.counts,
            **({"again": self.again} if self.again else {}),
        }

    def load(self, state: Any) -> None:
        self.detectors.past = state["past"]
        self.detectors.active = state["active"]
        self.counts = state["told"]
        self.again = state.get("again", {})
