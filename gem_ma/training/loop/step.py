"""One step of training, as the loop of `gem_ma.training.train` passes it on: played, credited,
updated, published, recorded."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.table import TurnTable
from gem_ma.driver.rollout import ADMITTED, Admission
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import Batched
from gem_ma.engines.capabilities import Batches, Pins
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import DataError, GemMaError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.shapes import with_bytes
from gem_ma.scores.studies import Cell
from gem_ma.training.loop.measures import tokens_of

# Playing ahead (`train.overlap: k`): the episodes of the next k steps are sampled while this step's
# update runs, so a learner is off-policy by k publishes at most. Which weights play which step is a
# rule, never a matter of timing: step s (from 0) is played with version s - k, those before it with
# the first. Plays of one step begin when those of the step before have ended; or, admitted
# continuously, where a play of an older step leaves its slot. Updates run in a thread, on weights
# of their own. A checkpoint holds the episodes that were played ahead, as lines of the record.

FILE = "episodes@ahead"  # what the names of such files of a checkpoint begin with


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """What was played for a step (from 0): its `plays` in the order of their plans, after them
    what was played in the place of some (`refills`), and the branches.

    `aside`: the ids of those that others took the place of. `forks`, `refilled` and `chosen` (the
    tasks that a curriculum took) are logged.
    """

    step: int
    plays: tuple[Episode, ...]
    branches: tuple[Episode, ...] = ()
    forks: Mapping[str, Any] | None = None
    refills: tuple[Episode, ...] = ()
    aside: frozenset[tuple[str, int, int]] = frozenset()
    refilled: Mapping[str, Any] | None = None
    chosen: Mapping[str, Any] | None = None

    @property
    def episodes(self) -> list[Episode]:
        return [*self.plays, *self.refills, *self.branches]

    @property
    def taught(self) -> list[Episode]:
        return [episode for episode in self.episodes if episode.id not in self.aside]

    @property
    def counts(self) -> dict[str, Mapping[str, Any]]:
        """What is logged of forks, refills and chosen tasks, where there are any."""
        told = {"forks": self.forks, "refill": self.refilled, "curriculum": self.chosen}
        return {name: numbers for name, numbers in told.items() if numbers is not None}

    def with_images(self, bytes_of: Callable[[str], bytes]) -> StepRollouts:
        """The same with the bytes of all images: lines of the record have their digests alone."""
        plays, refills, branches = (
            tuple(with_bytes(episode, bytes_of) for episode in episodes)
            for episodes in (self.plays, self.refills, self.branches)
        )
        return replace(self, plays=plays, refills=refills, branches=branches)

    def dump(self) -> bytes:
        """A file of a checkpoint: a line of facts, then one per episode."""
        # whole: played again after a resume, they would come from weights that are a step newer
        note: dict[str, Any] = {"step": self.step, "plays": len(self.plays), "forks": self.forks}
        if self.refilled is not None:
            note |= {"refills": len(self.refills), "refilled": self.refilled}
            note["aside"] = sorted(map(list, self.aside))
        if self.chosen is not None:
            note["chosen"] = self.chosen
        lines = (json.dumps(note), *map(dump_episode, self.episodes))
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def load(cls, data: bytes) -> StepRollouts:
        """The inverse of `dump`. Raises DataError."""
        try:
            head, *lines = data.decode().rstrip("\n").split("\n")
            note = json.loads(head)
            episodes = tuple(map(load_episode, lines))
            first = note["plays"]
            refills = note.get("refills", 0)
            return cls(
                int(note["step"]),
                episodes[:first],
                episodes[first + refills :],
                note["forks"],
                episodes[first : first + refills],
                frozenset((str(t), int(seed), int(n)) for t, seed, n in note.get("aside", ())),
                note.get("refilled"),
                note.get("chosen"),
            )
        # RecursionError: JSON that is nested too deep; all of these are damage
        except (ValueError, KeyError, TypeError, RecursionError, GemMaError) as error:
            raise DataError(
                f"the episodes that a checkpoint holds cannot be read ({type(error).__name__}:"
                f" {error})"
            ) from error


def dumped(ahead: Iterable[StepRollouts]) -> dict[str, bytes]:
    # the first is called as in checkpoints of before there could be several
    return {
        f"{FILE}{f'-{number}' if number > 1 else ''}.jsonl": played.dump()
        for number, played in enumerate(ahead, 1)
    }


def pinned(policies: Mapping[str, Policy]) -> dict[str, Policy] | None:
    """These policies with the weights that are published now, whatever is published later; None
    where an engine cannot stay as it is."""
    stays: dict[str, Policy] = {}
    for name, policy in policies.items():
        if not isinstance(policy.core, Pins):
            return None
        engine: Any = policy.core.pinned()
        stays[name] = replace(
            policy, engine=Batched(engine) if isinstance(engine, Batches) else engine
        )
    return stays


class Ahead:
    """The steps that are played ahead: those that have ended, and those that are still played, one
    after the other. With an `admission` they are played side by side, in its places."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.admission = admission
        self._ended: dict[int, StepRollouts] = {}
        self._tasks: dict[int, asyncio.Task[StepRollouts]] = {}
        self._last: asyncio.Task[StepRollouts] | None = None

    @classmethod
    def of(cls, config: Config) -> Ahead:
        mixed = config.train is not None and config.train.admission == "continuous"
        return cls(Admission(config.run.concurrency) if mixed else None)

    def missing(self, steps: range) -> list[int]:
        return [step for step in steps if step not in self._ended and step not in self._tasks]

    def begin(self, step: int, play: Callable[[], Coroutine[Any, Any, StepRollouts]]) -> None:
        """Plays a step as soon as the one that was begun before has ended, or there is a place."""
        before = self._last if self.admission is None else None

        async def run() -> StepRollouts:
            if self.admission is not None:
                ADMITTED.set((self.admission, step))  # in the context of this task alone
            if before is not None:
                await asyncio.wait([before])
                # the caller that asks for the steps in their order gets its error
                if before.cancelled() or before.exception() is not None:
                    raise asyncio.CancelledError
            return await play()

        self._last = self._tasks[step] = asyncio.ensure_future(run())

    async def take(self, step: int) -> StepRollouts | None:
        """What was played for a step, once it has ended; None where it was not begun. Raises what
        its plays raised."""
        if step in self._tasks:
            self._ended[step] = await self._tasks[step]
            del self._tasks[step]
        return self._ended.pop(step, None)

    async def settled(self) -> None:
        """Waits until all has ended that was begun. Raises what the first of its plays raised."""
        for step in sorted(self._tasks):
            self._ended[step] = await self._tasks[step]
            del self._tasks[step]

    def ended(self) -> list[StepRollouts]:
        return [self._ended[step] for step in sorted(self._ended)]

    def put(self, ended: Iterable[StepRollouts]) -> None:
        self._ended |= {played.step: played for played in ended}

    async def __aenter__(self) -> Ahead:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends all plays, with whatever error the run ends: theirs are lost."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()


PHASES = ("play", "credit", "update", "publish", "record")


class Phases:
    """A clock of one step: the time since the last lap belongs to the phase that has ended. Times
    are not part of the record of a run, since no two runs agree on them."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()  # the wall clock may be set back while a run goes on

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now

    def row(self, played: float = 0, learned: float = 0) -> dict[str, float]:
        """Seconds by phase and in all, and tokens a second: of `played` sampled tokens while
        playing, of `learned` trained ones in updates."""
        row = {
            "at": round(time.time(), 3),  # seconds since the epoch, when the step ended
            "step_s": round(sum(self.seconds.values()), 6),
            **{f"{phase}_s": round(seconds, 6) for phase, seconds in self.seconds.items()},
        }
        for phase, tokens in (("play", played), ("update", learned)):
            if tokens and self.seconds[phase] > 0:  # a coarse clock may see no time pass
                row[f"{phase}_tokens_per_s"] = round(tokens / self.seconds[phase], 3)
        return row


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from at a step; `gem_ma.training.loop.updates` makes one for each
    policy whose turn it is."""

    policy: str
    settings: TrainSettings  # with what `train.per_policy` says of this policy
    gamma: Any  # the discount, or one by agent, that made the returns of `turns`
    turns: TurnTable
    numbers: dict[str, Any]  # logged, whatever the update adds
    step: int  # from 0
    rng: random.Random  # its own: what others draw beside it must not change its minibatches
    lr: float  # of this step, schedule and brake applied
    stale: bool  # all its episodes are too old, so it learns nothing
    warning: str | None  # for the user


@dataclass(slots=True)
class Step:
    """What has become of one step so far. Number 0 is the beginning, before anything is learned.

    `ahead`: what is played for steps to come while this one is learned (`train.overlap`); one
    object for the whole run.
    `scores`: of the exam at its end, where one is held, and `cells`, by exam, of which they are
    made. `rows` and `notes` wait to be handed to
    the record and to the user; `times` goes to timings.jsonl.
    """

    number: int
    ahead: Ahead = field(default_factory=Ahead)
    rollouts: StepRollouts = StepRollouts(-1, ())
    lessons: Sequence[Lesson] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    last: bool = False  # all is learned; what follows is the exam of the end
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    times: dict[str, Any] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)  # its clock starts with the step

    @property
    def index(self) -> int:
        """The step as plans and schedules count it, from 0."""
        return self.number - 1

    @property
    def taught(self) -> list[str]:
        return [lesson.policy for lesson in self.lessons if not lesson.stale]

    def timing(self) -> dict[str, Any]:
        """The row of timings.jsonl."""
        policies = self.metrics["policies"]
        # `get`: a learner of somebody else's engine may count no tokens
        trained = sum(policies[name].get("tokens", 0) for name in self.taught)
        return {**self.phases.row(tokens_of(self.rollouts.episodes), trained), **self.times}


class Attendant:
    """What follows a training without being part of its method: a league, a watch for collapse,
    averages, notes to the user. It may add rows to the record and notes for the user; a subclass
    overrides what it needs. `name` is its key in checkpoints; "" keeps nothing there.

    The order of calls: `played`, `updated`, `examined` in every step, `updated` and `examined` for
    step 0 too; `summary` once, after the exam of the end.
    """

    name = ""
    shape: Any = dict[str, Any]  # of `state`; what a checkpoint holds is checked against it
    optional = False  # checkpoints of older versions may lack it

    def played(self, step: Step) -> None:
        """The step is played, and its metrics of play are there."""

    def updated(self, step: Step) -> None:
        """Every policy whose turn it was has learned, and its weights are published."""

    def examined(self, step: Step) -> None:
        """The step is recorded; `step.scores` is its exam, None where none was due."""

    def summary(self) -> Mapping[str, Any]:
        """Keys of summary.json."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """All that a resume needs, as JSON values."""
        return {}

    def load(self, state: Any) -> None:
        """The inverse of `state`, which is {} in a checkpoint of a version that did not have this
        attendant."""
