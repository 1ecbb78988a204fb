"""reasoning_gym's procedural questions as scenarios of one step: `reasoning_gym:arc_1d`.

Further options are those of the task's generator. Graders that hand the answer to `eval`, `exec`
or sympy are recognised by their source, and run in the guarded worker (`gem_ma.tools.sandbox`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gem_ma import Ask, Call, ConfigError, Episode, Message, Reward, Scenario
from gem_ma.kernel.parsing.text import boxed
from gem_ma.kernel.scenario import Play
from gem_ma.tools.sandbox import judge, require
from gem_ma.tools.walls import MIB, Wall
from gem_ma.worlds import graders
from gem_ma.worlds.graders import Data, data_of, evaluates, item_of, score
from gem_ma.worlds.guest import guest, library, unknown
from gem_ma.worlds.option_values import check

# an item's seed is the set's plus its index: nearer seeds would share questions between splits
SEEDS = {"train": 100_000_000, "dev": 200_000_000, "test": 300_000_000}
PACKAGES = ("reasoning_gym", "gem_ma")  # that the grader needs in the worker
BRIEF = Message.system(
    "Answer the question. Put the final answer into \\boxed{}, and nothing else into it."
)
SCORE = f"{graders.__name__}:score"
TIER = "bubblewrap"
ENOUGH = 0.99  # of a score, to be right: some graders pay a part for form


class ReasoningGym(Scenario):
    """A task of reasoning_gym: a question, an answer, a score."""

    agents = ("agent_0",)
    chance = False
    ends_within = 1

    def __init__(self, name: str, size: int = 500, sandbox: str = TIER, **options: Any) -> None:
        """`size` questions in each split. Raises ConfigError for what is missing or refused."""
        check(ReasoningGym, name, {"size": size})
        factory = library("reasoning_gym.factory", "reasoning_gym")
        known = factory.DATASETS.keys() - {"composite"}
        if name not in known:
            raise unknown("reasoning_gym: no task", name, known)
        self.name = name
        self.size = size
        self.options = json.dumps(options, sort_keys=True)
        self.tier = sandbox if evaluates(name) else ""
        if self.tier:
            require(self.tier)
        try:
            with guest(0):
                data_of(*self._set("train"))
        except Exception as error:  # their own checks are asserts
            raise ConfigError(f"reasoning_gym:{name}: {error or 'refuses its options'}") from error

    def _set(self, split: str) -> Data:
        return self.name, self.size, SEEDS[split], self.options

    def tasks(self, split: str) -> Sequence[str]:
        if split not in SEEDS:
            raise ValueError(f"no split {split!r}; there are {', '.join(SEEDS)}")
        return [f"{split}:{index}" for index in range(self.size)]

    def answers(self, rng: random.Random, task: str) -> tuple[str, ...]:
        """The answer of the generator, where it gives one."""
        answer = self._item(task)[1].get("answer")
        return () if answer is None else (str(answer),)

    def _item(self, task: str) -> tuple[Data, Any]:
        split, _, index = task.partition(":")
        data = self._set(split)
        return data, item_of(data, int(index))

    def play(self, rng: random.Random, task: str) -> Play:
        data, item = self._item(task)
        actions = yield Ask({"agent_0": (BRIEF, item["question"])})
        answer = boxed(actions["agent_0"].text)
        paid = 0.0 if self.tier else score(data, item, answer)
        if self.tier:
            wall = Wall(
                self.tier, PACKAGES, (*PACKAGES, "numpy.random", graders.__name__), 2048 * MIB
            )
            share = yield Call(
                judge,
                f"{graders.__name__}:score",
                data,
                item,
                answer,
                control=(data, item, ""),
                unjudged=0.0,
                wall=wall,
            )
            with suppress(TypeError):  # evaluated, it may say anything
                paid = share if 0 <= share <= 1 else 0.0
        yield Reward({"agent_0": paid}, why="score")

    def success(self, episode: Episode) -> bool | None:
        return any(pay.value >= ENOUGH for pay in episode.ledger) if episode.ledger else None
