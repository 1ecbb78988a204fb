"""The attendants that a training brings along: scores and weights of the beginning, notes on stale
episodes, shares of padding, the weights of the best exam, and success by task for a curriculum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from gem_ma.config.settings import Config
from gem_ma.config.training import CurriculumSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.episode import placed
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.capabilities import Pads
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.saving import write_model
from gem_ma.training.loop.step import Attendant, Step
from gem_ma.training.schedule.curriculum import DECAY, Tally, TaskChoices


def fingerprints(policies: Mapping[str, Policy]) -> dict[str, str]:
    """SHA-256 of the weights of every policy whose engine holds weights."""
    engines = {name: policy.core for name, policy in policies.items()}
    return {
        name: engine.fingerprint() for name, engine in engines.items() if isinstance(engine, Weighs)
    }


class BeginningState(TypedDict):
    """The entry `first` of a checkpoint."""

    scores: dict[str, Any]
    weights: dict[str, str]


class Beginning(Attendant):
    """Keeps the scores of the first exam and the digests of all weights. At the end only the
    digests of policies that learn may differ."""

    name = "first"
    shape = BeginningState

    def __init__(self, policies: Mapping[str, Policy], learned: Sequence[str]) -> None:
        self.policies = policies
        self.learned = learned
        self.scores: Mapping[str, Any] = {}
        self.weights: Mapping[str, str] = {}

    def examined(self, step: Step) -> None:
        """Takes the first exam."""
        # `weights` is empty only here: a run without learners holds its last exam at step 0 too
        if step.number == 0 and step.scores is not None and not self.weights:
            self.scores, self.weights = step.scores, fingerprints(self.policies)

    def summary(self) -> Mapping[str, Any]:
        """`before`, and whose weights changed. Raises EngineError where a frozen policy's did."""
        # policies may share a base: a step of one that reached another would go unseen otherwise
        after = fingerprints(self.policies)
        changed = [name for name, digest in after.items() if digest != self.weights.get(name)]
        moved = [name for name in changed if name not in self.learned]
        if moved:
            raise EngineError(
                f"the weights of {', '.join(moved)} changed although only"
                f" {', '.join(self.learned) or 'none'} learn"
            )
        unchanged = [name for name in after if name not in changed]
        return {
            "before": self.scores,
            "changed": changed,
            "unchanged": unchanged,
            "weights": after,
        }

    def state(self) -> Mapping[str, Any]:
        return {"scores": self.scores, "weights": self.weights}

    def load(self, state: Any) -> None:
        self.scores = state["scores"]
        self.weights = state["weights"]


# Small attendants: notes on episodes that were too old, and the share of padding in passes.


class StalenessNotes(Attendant):
    """Says once per policy that many of its episodes were too old to learn from."""

    def __init__(self) -> None:
        self.warned: set[str] = set()

    def updated(self, step: Step) -> None:
        """Passes on the warnings of the step's lessons."""
        for lesson in step.lessons:
            if lesson.warning and lesson.policy not in self.warned:
                step.notes.append(f"step {step.number}, {lesson.warning}")
                self.warned.add(lesson.policy)


class PaddingShares(Attendant):
    """Records the share of computed positions that held padding, by policy. It depends on what
    fits into a pass, so it belongs to the timings."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def updated(self, step: Step) -> None:
        """Records the shares of the policies that learned."""
        # the others keep the share of their last update, which is not of this step
        taught = ((name, self.learners[name]) for name in step.taught)
        shares = {name: learner.padding for name, learner in taught if isinstance(learner, Pads)}
        known = {name: share for name, share in shares.items() if share is not None}
        if known:
            step.times["padding"] = known


# Keeps the weights of the best exam so far as models of the run folder (`train.checkpoints.best`),
# beside those of the end.


# scores that say how far from an equilibrium
FALLING = ("nash_conv", "exploitability")


class Best(Attendant):
    """Writes `models/NAME.best` of each policy that learns, whenever an exam is better than all
    before. `measure`: a score of exams, dots between its words; of equals the first stays."""

    name = "best"
    shape = dict[str, float]
    optional = True  # of a run that was begun without it: the best from here on

    def __init__(
        self, measure: str, policies: Mapping[str, Policy], folder: RunFolder | None
    ) -> None:
        self.measure = measure
        self.policies = policies
        self.folder = folder
        self.exam: dict[str, float] = {}  # `step` and `score`

    def examined(self, step: Step) -> None:
        """Compares an exam, and writes the weights where it is the best so far."""
        if step.scores is None:
            return
        score = self._score(step.scores)
        # NaN compares with nothing, and would stay or go by chance
        if score is None or math.isnan(score):
            return
        falls = self.measure.startswith(FALLING)
        if self.exam and (score >= self.exam["score"] if falls else score <= self.exam["score"]):
            return
        self.exam = {"step": float(step.number), "score": score}
        # a run that was killed after this exam holds it once more, and writes the same
        for name, policy in self.policies.items():
            if self.folder is not None and isinstance(policy.core, Weighs):
                write_model(self.folder, f"{name}.best", policy.core)

    def _score(self, scores: Mapping[str, Any]) -> float | None:
        """None where every play of the exam failed: that says nothing of the weights."""
        value: Any = scores
        for word in self.measure.split("."):
            value = value.get(word) if isinstance(value, Mapping) else None
            if isinstance(value, Mapping) and value.get("ok") == 0:
                return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            exams = [key for key in scores if key.startswith(("sampled", "greedy"))]
            # of a game without success, or of one agent's, there is none
            known = [f"{key}.success" for key in exams if scores[key]["success"] is not None]
            known += [f"{key}.return.{agent}" for key in exams for agent in scores[key]["return"]]
            known += [key for key in scores if key.startswith(FALLING)]
            raise ConfigError(
                f"train.checkpoints.best: exams of this run have no score {self.measure!r}; such as"
                f" {', '.join(known)}"
            )
        return float(value)

    def summary(self) -> Mapping[str, Any]:
        """Its step and score, and where the weights lie."""
        names = [n for n, policy in self.policies.items() if isinstance(policy.core, Weighs)]
        models = {name: f"models/{name}.best" for name in names}
        return {"best": {"measure": self.measure, **self.exam, "models": models}}

    def state(self) -> Mapping[str, Any]:
        return self.exam

    def load(self, state: Any) -> None:
        self.exam = dict(state)


# Counts how often plays of each task succeed, for `train.curriculum`; what is drawn from it is in
# `gem_ma.training.schedule.curriculum`.


class Curriculum(Attendant):
    """The tallies of all tasks that were met. A play counts less with every step."""

    name = "curriculum"
    shape = dict[str, tuple[float, float]]
    optional = True  # of a run that was begun without it: estimates begin here

    def __init__(self, how: CurriculumSettings, config: Config, worlds: Worlds) -> None:
        self.how = how
        self.worlds = worlds
        self.seed = config.run.seed
        self.split = config.train.split if config.train is not None else "train"
        self.tallies: dict[str, Tally] = {}

    def choices(self) -> TaskChoices:
        """What chooses the tasks of one step, by all that was counted until now."""
        # copies: under overlap the next step is counted before this one's refills are drawn
        now = {task: list(tally) for task, tally in self.tallies.items()}
        return TaskChoices(self.how, self.split, self.seed, now)

    def played(self, step: Step) -> None:
        """Counts the plays of a step; what failed or is judged by nobody says nothing."""
        for tally in self.tallies.values():
            tally[:] = [number * DECAY for number in tally]
        # branches go on from the middle of a play, so they are not plays of its task
        for episode in (*step.rollouts.plays, *step.rollouts.refills):
            won = self.worlds.success(episode) if episode.end.scored else None
            if won is not None:
                tally = self.tallies.setdefault(placed(episode.world, episode.task), [0.0, 0.0])
                tally[0] += 1
                tally[1] += won

    def state(self) -> Mapping[str, Any]:
        return self.tallies

    def load(self, state: Any) -> None:
        self.tallies = {task: list(tally) for task, tally in state.items()}
