"""Acts on a collapse: feeds the detectors, records their alarms, and under `train.on_collapse` goes
back to older weights or mixes in the pool.

`rollback` keeps two states of every learner, taken every ten steps while there is no alarm, and
goes back to the older one, which was healthy ten to twenty steps ago. It halves the learning
rate, since the same steps at the same rate would lead to the same place. Versions go on rising.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.training import TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exploitability import ScoresTexts
from gem_ma.training.loop.attendant import NO_FILES, Attendant
from gem_ma.training.loop.exams import effects
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.selfplay.collapse import ADVICE, DEAF, HARMLESS, WAKING, WINDOW, Alarm, Watch
from gem_ma.training.selfplay.league import League
from gem_ma.training.selfplay.signs import Encode, health

Files = Mapping[str, bytes]
PROBES = 32  # views between two exams; an exam takes twice as many
ACTED = {"rolled_back_to", "mixed_pool"}  # keys of an alarm about which something was done
NAMES = {
    "entropy": "decision_entropy",
    "format_entropy": "format_entropy",
    "length": "reply_tokens",
    "invalid": "invalid_share",
    "one_action": "one_action",
    "decisions": "decisions",
}


class GuardState(TypedDict):
    """What a checkpoint holds of it, beside the weights."""

    past: dict[str, list[Any]]
    active: dict[str, int]
    brake: dict[str, float]
    kept: dict[str, dict[str, int]]
    told: dict[str, int]
    again: NotRequired[dict[str, list[int]]]


class Guard(Attendant):
    """Watches the learned policies of one run."""

    name = "guard"
    shape = GuardState

    def __init__(
        self,
        settings: TrainSettings,
        worlds: Worlds,
        learners: Mapping[str, Learner],
        league: League,
        policies: Mapping[str, Policy] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.league = league
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
        self.brake = dict.fromkeys(settings.policies, 1.0)  # of the learning rate
        # policy -> `healthy` and `candidate`, each (step, state); a collapse shows late, so the
        # candidate may be ill already, and becomes healthy once the next one is taken
        self.saved: dict[str, dict[str, tuple[int, Files]]] = {}
        self.counts: dict[str, int] = {}  # policy and signal -> alarms so far
        self.again: dict[str, list[int]] = {}  # the steps of those after the first
        self._alarms: list[Alarm] = []  # since the last `settle`; empty in every checkpoint

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
        """Judges an exam, and acts on all alarms since the last call."""
        if step.scores is not None:
            self.after_exam(step.scores, step.number)
        alarms = self.settle(step.number, last=step.last)
        back = [alarm for alarm in alarms if "rolled_back_to" in alarm]
        # they were played with the weights that are gone, so these steps are played anew
        if back and (discarded := step.ahead.drop()):
            for alarm in back:
                alarm["discarded"] = discarded
        step.rows += alarms
        for alarm in alarms:
            name = f"{alarm['policy']} {alarm['signal']}"
            if self.counts[name] > 1:
                self.again.setdefault(name, []).append(step.number)
            # what is done is said each time, what is seen once
            if self.counts[name] == 1 or alarm.keys() & ACTED:
                step.notes.append(self._note(alarm))
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

    def settle(self, step: int, *, last: bool = False) -> list[dict[str, Any]]:
        """Acts on the alarms since the last call, and gives them as lines of the record. After the
        `last` step it only reports them."""
        lines = []
        back = {}
        for alarm in self._alarms:
            line = {"kind": "alarm", "step": step, **alarm._asdict()}
            name = f"{alarm.policy} {alarm.signal}"
            self.counts[name] = self.counts.get(name, 0) + 1
            way = "warn" if last or alarm.signal in HARMLESS else self.settings.on_collapse
            # a policy that has been deaf from the start would be rolled back at every exam
            if way == "rollback" and (alarm.signal != "deaf" or self.watch.heard(alarm.policy)):
                back[alarm.policy] = line["rolled_back_to"] = self.saved[alarm.policy]["healthy"][0]
            elif way == "mix_pool" and not self.league.mixed:
                self.league.mixed = line["mixed_pool"] = True
            lines.append(line)
        self._alarms = []
        # after all lines are made: two alarms of one policy name the same step, and go back once
        for name in back:
            self._restore(name)
        if self.settings.on_collapse == "rollback" and step % WINDOW == 0 and not last:
            for name in self.learners:
                if name not in back and self.watch.calm(name):
                    self._keep(name, step)
        return lines

    def _keep(self, name: str, step: int) -> None:
        # the first state is both: until there is a second one, there is nothing older
        now = (step, self.learners[name].state())
        self.saved[name] = {
            "healthy": self.saved.get(name, {}).get("candidate", now),
            "candidate": now,
        }

    def _restore(self, name: str) -> None:
        learner = self.learners[name]
        (_, files) = self.saved[name]["healthy"]
        # a version names one set of weights, so the publish must raise the present number
        note = {**json.loads(files["learner.json"]), "version": learner.version}
        learner.load({**files, "learner.json": json.dumps(note).encode()})
        learner.publish()
        self.saved[name]["candidate"] = self.saved[name]["healthy"]
        self.brake[name] /= 2
        self.watch.forget(name)

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
        """An alarm as a line for the user: what was done about it, else what to try."""
        text = f"step {alarm['step']}, policy {alarm['policy']}: {alarm['text']}"
        if "rolled_back_to" in alarm:
            text += f"; back to the weights of step {alarm['rolled_back_to']}"
            text += " at half the learning rate"
        if "mixed_pool" in alarm:
            text += "; half of its games against itself go to the pool"
        cures = self._cures(alarm["policy"], alarm["signal"])
        return text if alarm.keys() & ACTED or not cures else f"{text}; try: {', or '.join(cures)}"

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
        """Everything but the kept weights, as JSON values."""
        steps = {
            name: {age: step for age, (step, _) in ages.items()}
            for name, ages in self.saved.items()
        }
        return {
            "past": self.watch.past,
            "active": self.watch.active,
            "brake": self.brake,
            "kept": steps,
            "told": self.counts,
            **({"again": self.again} if self.again else {}),
        }

    def files(self) -> dict[str, bytes]:
        """The kept weights, as files of a checkpoint."""
        ages = [
            (f"{name}@{age}", files)
            for name, ages in self.saved.items()
            for age, (_, files) in ages.items()
        ]
        return {f"{where}.{file}": data for where, files in ages for file, data in files.items()}

    def load(self, state: Any, files: Files = NO_FILES) -> None:
        """The inverse of `state` and `files`; `files` may hold those of others."""
        self.watch.past = state["past"]
        self.watch.active = state["active"]
        self.brake = state["brake"]
        self.counts = state["told"]
        self.saved = {}
        self.again = state.get("again", {})
        for name, ages in state["kept"].items():
            self.saved[name] = {}
            for age, step in ages.items():
                prefix = f"{name}@{age}."
                self.saved[name][age] = (
                    step,
                    {
                        file.removeprefix(prefix): data
                        for file, data in files.items()
                        if file.startswith(prefix)
                    },
                )


def _encoder(learner: Learner) -> Encode | None:
    """How the policy spells an answer, where it has a tokenizer."""
    return learner.spell if isinstance(learner, ScoresTexts) else None
