"""Feeds the collapse detectors, records their alarms, and tells the user what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exploitability import ScoresTexts
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.exams import effects
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.selfplay.collapse import ADVICE, DEAF, WAKING, WINDOW, Alarm, Watch
from gem_ma.training.selfplay.signs import Encode, health

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
    # in checkpoints of versions that could go back to older weights
    brake: NotRequired[dict[str, float]]
    kept: NotRequired[dict[str, dict[str, int]]]


class Guard(Attendant):
    """Watches the learned policies of one run."""

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
        self.agents = {
            name: [
                f"{world.name} {agent}".strip()
                for world in worlds.played
                for agent, seat in world.config.agents.items()
                if seat.policy == name
            ]
            for name in settings.policies
        }
        # under `off` the signs are still measured and logged; nobody judges them
        self.on = settings.on_collapse != "off"
        self.watch = Watch(all(bool(world.scenario.zero_sum) for world in worlds.played))
        self.counts: dict[str, int] = {}  # policy and signal -> alarms so far
        self.again: dict[str, list[int]] = {}  # the steps of those after the first
        self._alarms: list[Alarm] = []  # of this step; empty in every checkpoint

    def updated(self, step: Step) -> None:
        """Adds the signs of health of an update's episodes to its metrics."""
        if step.number:
            policies = step.metrics["policies"]
            measured = self.after_update(
                step.plays.episodes, step.metrics["return"], list(policies)
            )
            for name, values in measured.items():
                policies[name] |= values
            self._probe(step)

    def _probe(self, step: Step) -> None:
        """Asks every ten steps whether the policies read what only they are shown."""
        every = self.worlds.played[0].config.evaluate.every
        # an exam judges it too
        if not self.on or step.number % WINDOW or (every and step.number % every == 0):
            return
        found = effects(self.worlds, self.policies, self.learners, step.plays.episodes, PROBES)
        for name, effect in found.items():
            self._alarms += self.watch.after_probe(name, effect)

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
        """See `Attendant.summary`."""
        return {"alarms": self.counts} if self.counts else {}

    def after_update(
        self,
        episodes: Sequence[Episode],
        returns: Mapping[str, float | None],
        policies: Sequence[str],
    ) -> dict[str, dict[str, float]]:
        """The signs of health in the episodes of an update, by policy."""
        logged = {}
        for name in policies:
            measured = health(episodes, name, _encoder(self.learners[name]))
            paid = [
                value for agent in self.agents[name] if (value := returns.get(agent)) is not None
            ]
            if self.on:
                self._alarms += self.watch.after_update(
                    name, measured, sum(paid) / len(paid) if paid else None
                )
            logged[name] = {NAMES[key]: value for key, value in measured.items() if key in NAMES}
        return logged

    def after_exam(self, scores: Mapping[str, Any], step: int) -> None:
        """Judges an exam."""
        if self.on:
            self._alarms += self.watch.after_exam(scores, self.settings.policies, step)
        # a clone has learned already, from players who may have ignored what they saw
        for name in self.settings.policies if self.on and step == 0 else ():
            if name in self.settings.warm_start:
                effect = scores.get(f"private_effect {name}")
                self._alarms += self.watch.after_probe(name, effect)

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
            cure.format(policy=policy)
            for cure in ADVICE.get(signal, ())
            if not any(key in cure and is_set for key, is_set in held.items())
            and (cure is not WAKING or reads)
        ]

    def state(self) -> dict[str, Any]:
        """See `Attendant.state`."""
        return {
            "past": self.watch.past,
            "active": self.watch.active,
            "told": self.counts,
            **({"again": self.again} if self.again else {}),
        }

    def load(self, state: Any) -> None:
        """See `Attendant.load`."""
        self.watch.past = state["past"]
        self.watch.active = state["active"]
        self.counts = state["told"]
        self.again = state.get("again", {})


def _encoder(learner: Learner) -> Encode | None:
    """How the policy spells an answer, where it has a tokenizer."""
    return learner.spell if isinstance(learner, ScoresTexts) else None
