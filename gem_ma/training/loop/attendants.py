"""The attendants that a training brings along: scores and weights of the beginning, shares of
padding, the weights of the best exam, success by task for a curriculum, and what was learned
from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from gem_ma.config.settings import Config
from gem_ma.config.training import CurriculumSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.episode import End, Episode, placed
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exams import Plays, changes, plays_of
from gem_ma.training.loop.roles import Learner, Pads
from gem_ma.training.loop.saving import write_model
from gem_ma.training.loop.step import Attendant, Step
from gem_ma.training.schedule.plans import DECAY, Tally, TaskChoices


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
    plays: NotRequired[dict[str, Any]]  # by exam; checkpoints of older versions have none


class Beginning(Attendant):
    """Keeps the scores of the first exam, and the digests of all weights. At the end the last exam
    is compared with the first, and only the digests of policies that learn may differ."""

    name = "first"
    shape = BeginningState

    def __init__(self, policies: Mapping[str, Policy], learned: Sequence[str]) -> None:
        self.policies = policies
        self.learned = learned
        self.scores: Mapping[str, Any] = {}
        self.weights: Mapping[str, str] = {}
        self.plays: Mapping[str, Plays] = {}
        self.changes: Mapping[str, Any] = {}

    def examined(self, step: Step) -> None:
        # `weights` is empty only here: a run without learners holds its last exam at step 0 too
        if step.number == 0 and step.scores is not None and not self.weights:
            self.scores = step.scores
            self.weights = fingerprints(self.policies)
            self.plays = {name: plays_of(cell) for name, cell in step.cells.items()}
        if step.last and step.number:
            self.changes = {
                name: changes(self.plays[name], cell)
                for name, cell in step.cells.items()
                if name in self.plays
            }

    def summary(self) -> Mapping[str, Any]:
        """`before`, the `changes` of its scores, and whose weights changed. Raises EngineError
        where a frozen policy's did."""
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
        told = {"changed": changed, "unchanged": unchanged, "weights": after}
        return {"before": self.scores, "changes": self.changes, **told}

    def state(self) -> Mapping[str, Any]:
        return {"scores": self.scores, "weights": self.weights, "plays": self.plays}

    def load(self, state: Any) -> None:
        self.scores = state["scores"]
        self.weights = state["weights"]
        self.plays = state.get("plays", {})


class PaddingShares(Attendant):
    """Records the share of computed positions that held padding, by policy. It depends on what
    fits into a pass, so it belongs to the timings."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def updated(self, step: Step) -> None:
        # the others keep the share of their last update, which is not of this step
        taught = ((name, self.learners[name]) for name in step.taught)
        shares = {name: learner.padding for name, learner in taught if isinstance(learner, Pads)}
        known = {name: share for name, share in shares.items() if share is not None}
        if known:
            step.times["padding"] = known


# scores that say how far from an equilibrium
FALLING = ("nash_conv", "exploitability")


def is_averaged(measure: str) -> bool:
    """Whether a score of exams is of the averaged policies, and not of the last weights."""
    return measure.startswith(tuple(f"{name}_averaged" for name in FALLING))


class Best(Attendant):
    """Writes `models/NAME.best` of each policy that learns, whenever an exam is better than all
    before (`train.checkpoints.best`); of equals the first stays. `measure`: a score of exams, dots
    between its words; `models` gives what the exam was of."""

    name = "best"
    shape = dict[str, float]
    optional = True  # of a run that was begun without it: the best from here on

    def __init__(
        self,
        measure: str,
        models: Callable[[], Mapping[str, Weighs]],
        folder: RunFolder | None,
    ) -> None:
        self.measure = measure
        self.models = models
        self.folder = folder
        self.exam: dict[str, float] = {}  # `step` and `score`

    def examined(self, step: Step) -> None:
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
        if self.folder is not None:
            for name, model in self.models().items():
                write_model(self.folder, f"{name}.best", model)

    def _score(self, scores: Mapping[str, Any]) -> float | None:
        """None where every play of the exam failed, which says nothing of the weights, and where
        this exam lacks what another one had: not every play has each measure."""
        of = (one for key, one in scores.items() if self.measure.startswith(f"{key}."))
        if any(isinstance(one, Mapping) and one.get("ok") == 0 for one in of):
            return None
        value = dict(_numbers(scores)).get(self.measure)
        if value is None and not self.exam:
            exams = [key for key in scores if key.startswith(("sampled", "greedy"))]
            # of a game without success, or of one agent's, there is none
            known = [f"{key}.success" for key in exams if scores[key]["success"] is not None]
            known += [f"{key}.return.{agent}" for key in exams for agent in scores[key]["return"]]
            known += [f"{k}.scores.{name}" for k in exams for name in scores[k].get("scores", ())]
            known += [key for key in scores if key.startswith(FALLING)]
            raise ConfigError(
                f"train.checkpoints.best: exams of this run have no score {self.measure!r}; such as"
                f" {', '.join(known)}"
            )
        return value

    def summary(self) -> Mapping[str, Any]:
        """Its step and score, and where the weights lie."""
        # none where no exam had the score
        models = {name: f"models/{name}.best" for name in self.models() if self.exam}
        return {"best": {"measure": self.measure, **self.exam, "models": models}}

    def state(self) -> Mapping[str, Any]:
        return self.exam

    def load(self, state: Any) -> None:
        self.exam = dict(state)


def _numbers(scores: Mapping[str, Any], begin: str = "") -> Iterator[tuple[str, float]]:
    """Every number of these exams, by the words that lead to it: what is called there may have dots
    of its own."""
    for word, value in scores.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{begin}{word}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{begin}{word}", float(value)


class Curriculum(Attendant):
    """How often plays of each task succeeded, for `train.curriculum`; a play counts less with
    every step."""

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


# share of a step's episodes; more cut ones than that bias what is learned, and the user is warned
CUT_SHARE = 0.05
# how a play was cut -> by what
LIMITS = {
    End.TRUNCATED: "a limit of their world",
    End.MAX_STEPS: "run.max_steps or the time limit of their world",
    End.MAX_TURNS: "run.max_turns",
    End.MAX_TOKENS: "run.max_tokens",
    End.TIMEOUT: "run.episode_timeout_s",
}
# what may become of an episode; of equals the earlier one is told
FATES = ("sampled", "context", "time", "bare", "unasked", "silent", "failed")
CLOSE = 1e-7  # ten times the spread below which an estimator sees no difference
HUGE = 1e150  # its square is still a number
LONGER = (
    "use a model with more positions (gem-ma new model --positions N), or let its agents see less"
)


class Taught(Attendant):
    """Whether a policy has learned anything, and if not, why. Counts by policy: steps, trained
    tokens, steps with an advantage, and what became of its episodes. A run whose policies learned
    nothing is not a result, however cleanly it ended.

    An episode that seats the policy has `sampled` tokens of it, or none because it `failed`, met
    the limit of a model's `context` or a limit of `time`, did not ask its agents (`unasked`), took
    replies without ids (`bare`), or left the policy `silent`.
    """

    name = "taught"
    shape = dict[str, dict[str, int]]
    optional = True

    def __init__(
        self, config: Config, policies: Iterable[str], *, without_critic: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.without_critic = without_critic
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in policies}
        self.warned: set[str] = set()  # policies of which many episodes were too old

    def played(self, step: Step) -> None:
        """Says once that limits cut episodes, where nobody values what would have followed."""
        line = cut_note(step.number, step.rollouts.plays, self.without_critic)
        if line is not None:
            step.notes.append(line)
            self.without_critic = ()  # said once a run; every step would say it again

    def updated(self, step: Step) -> None:
        """Counts, and warns after the first step of policies that had nothing to learn from."""
        if not step.number:
            return
        for name, numbers in step.metrics["policies"].items():
            self.note(name, step.rollouts.episodes, numbers)
        if step.number == 1:
            step.notes += (f"step 1: so far {line}" for line in self.speechless())
        for lesson in step.lessons:
            if lesson.warning and lesson.policy not in self.warned:
                step.notes.append(f"step {step.number}, {lesson.warning}")
                self.warned.add(lesson.policy)

    def summary(self) -> Mapping[str, Any]:
        nothing = self.nothing()
        return {"learned_nothing": nothing} if nothing else {}

    def note(self, policy: str, episodes: Sequence[Episode], stats: Mapping[str, Any]) -> None:
        """Takes the episodes and the numbers of one update of a policy."""
        count = self.counts[policy]
        # episodes without its tokens count too: how they ended says why it did not learn
        mine = (e for e in episodes if any(seat.policy == policy for seat in e.cast.values()))
        count.update(_fate(episode, policy) for episode in mine)
        returns = _returns(episodes, policy)
        spread = max(returns) - min(returns) if returns else 0.0
        count["alike"] += spread == 0
        count["close"] += 0 < spread < CLOSE
        count["huge"] += any(abs(value) > HUGE for value in returns)
        count["steps"] += 1
        count["tokens"] += int(stats.get("tokens", 0))
        count["stale"] += int(stats.get("dropped_stale", 0))
        count["excluded"] += int(stats.get("excluded", 0))
        # without advantages an entropy bonus alone still moves the weights
        pulled = stats.get("zero_advantage", 0.0) < 1 or stats.get("grad_norm", 0.0) > 0
        count["moved"] += bool(stats.get("optimizer_steps")) and pulled

    def nothing(self) -> dict[str, str]:
        """Policy -> why it learned nothing, for those that did not."""
        still = {name: count for name, count in self.counts.items() if not count["moved"]}
        told = {name: self._why(name, count) for name, count in still.items()}
        return {name: f"policy {name!r} learned nothing: {why}" for name, why in told.items()}

    def speechless(self) -> list[str]:
        """A line for each policy that was to learn and had no token to learn from so far."""
        asked = {name for name, n in self.counts.items() if n["steps"] and not n["tokens"]}
        return [line for name, line in self.nothing().items() if name in asked]

    def _why(self, policy: str, count: Counter[str]) -> str:
        # the causes in the order in which one hides the next
        seated = sum(count[fate] for fate in FATES)
        if not count["steps"]:
            return "its turn never came; raise train.steps, or shorten the turns of train.alternate"
        if count["tokens"]:
            return self._unmoved(count)
        if not seated:
            return (
                f"it sat in none of the episodes of {count['steps']} steps; look at agents: and"
                " train.opponents"
            )
        if not count["sampled"]:
            # one reason, the commonest; of equals the one that a config can mend
            most = max(FATES[1:], key=lambda fate: count[fate])
            behaviours = dict.fromkeys(
                seat.behaviour for seat in self.config.agents.values() if seat.policy == policy
            )
            return {
                "context": (
                    f"{count['context']} of {seated} episodes ended before its first reply, because"
                    f" a prompt no longer fitted the context of a model; {LONGER}"
                ),
                "silent": (
                    f"it sampled nothing in {count['silent']} of {seated} episodes; the behaviour"
                    f" of its seat ({', '.join(behaviours)}) does not ask its model: take `direct`"
                    " or another one that does"
                ),
                "time": (
                    f"{count['time']} of {seated} episodes were cut before its first reply; raise"
                    f" {LIMITS[End.TIMEOUT]}"
                ),
                "unasked": (
                    f"its agents were not asked in {count['unasked']} of {seated} episodes; look at"
                    " the scenario, and at limits that end a play before their turn"
                ),
                "bare": (
                    f"its replies in {count['bare']} of {seated} episodes have no token ids; train"
                    " with an engine that gives them"
                ),
                "failed": f"{count['failed']} of {seated} episodes failed; gem-ma show says why",
            }[most]
        if count["stale"]:
            return (
                f"{count['stale']} of {seated} episodes were too old for it (train.max_policy_lag);"
                " raise it, or play with train.overlap: false"
            )
        if count["excluded"]:
            return (
                f"{count['excluded']} of {seated} episodes were left out as failed or cut"
                " (train.credit.truncated); raise the limit that cuts them"
            )
        return f"none of its replies in {count['sampled']} episodes had a token to learn from"

    def _unmoved(self, count: Counter[str]) -> str:
        """Why a policy that had tokens did not move."""
        if count["huge"]:
            return f"returns beyond {HUGE:.0e} have no squares: scale its rewards down"
        if count["close"] == count["steps"]:
            return (
                f"its returns differ by less than {CLOSE:.0e}, which counts as rounding: scale its"
                " rewards up"
            )
        if count["alike"] == count["steps"]:  # no grouping of them would help
            return (
                f"every advantage of its {count['tokens']} tokens was 0, because all plays of a"
                " step were paid alike; reward what differs, or begin where it wins some and loses"
                " some"
            )
        key = self.config.train.estimator.key if self.config.train is not None else None
        which = f" (train.estimator.key {key})" if key else ""
        return (
            f"every advantage of its {count['tokens']} tokens was 0, because all returns within a"
            f" group were equal{which}; play more episodes of one start, name a wider key, or"
            " reward what differs"
        )

    def state(self) -> dict[str, dict[str, int]]:
        return {name: dict(count) for name, count in self.counts.items()}

    def load(self, state: Any) -> None:
        # checkpoints of older versions have none; their policies count as taught
        for name, count in self.counts.items():
            count.clear()
            count.update(state.get(name, {"steps": 1, "tokens": 1, "moved": 1}))


def _fate(episode: Episode, policy: str) -> str:
    """What became of an episode, for this policy: one of the names that `Taught` counts."""
    if not episode.end.scored:
        return "failed"
    replies = [reply for turn in episode.turns for reply in turn.replies if reply.policy == policy]
    if any(reply.token_ids for reply in replies):
        return "sampled"
    if episode.end is End.CONTEXT:
        return "context"
    if episode.end is End.TIMEOUT:
        return "time"
    if replies:
        return "bare"
    asked = any(episode.cast[turn.agent].policy == policy for turn in episode.turns)
    return "silent" if asked else "unasked"


def _returns(episodes: Sequence[Episode], policy: str) -> list[float]:
    return [
        paid
        for episode in episodes
        if episode.end.scored
        for agent, paid in episode.returns().items()
        if episode.cast[agent].policy == policy
    ]


def cut_note(step: int, episodes: Sequence[Episode], without_critic: Sequence[str]) -> str | None:
    """One line where more than CUT_SHARE of a step's episodes (from 1) were cut and nobody values
    what would have followed."""
    ends = Counter(episode.end for episode in episodes if episode.end.bootstraps)
    # a critic values what would have followed; without one a cut play looks like a lost one
    scored = sum(episode.end.scored for episode in episodes)
    if not without_critic or ends.total() <= CUT_SHARE * scored:
        return None
    limits = [(end, count) for end, count in ends.items() if end in LIMITS]
    shares = [f"{count} of {scored} episodes were cut by {LIMITS[end]}" for end, count in limits]
    todo = ["raise the limit"] * bool(shares)
    if full := ends[End.CONTEXT]:
        why = "a prompt no longer fitted the context of a model"
        shares.append(f"{full} of {scored} episodes ended because {why}")
        todo.append(LONGER)
    learn = "learns" if len(without_critic) == 1 else "learn"
    rest = (
        f"and {', '.join(without_critic)} {learn} as if nothing followed; {'; '.join(todo)}; or"
        " name an estimator with a critic (gae)"
    )
    return f"step {step}: {', '.join(shares)}, {rest}"
