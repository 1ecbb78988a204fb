"""reasoning_gym's procedural questions as scenarios of one step: `reasoning_gym:arc_1d`.

Further options are those of the task's generator. Graders that hand the answer to `eval`, `exec`
or sympy are recognised by their source, and run in the guarded worker (`gem_ma.tools.sandbox`).
"""

from __future__ import annotations

import inspect
import json
import random
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from typing import Any

from gem_ma import Ask, Call, ConfigError, Episode, Message, Reward, Scenario
from gem_ma.adapters.guest import guest, library
from gem_ma.adapters.option_values import check
from gem_ma.adapters.ordered import in_order
from gem_ma.errors import CallError
from gem_ma.parsing.boxed import boxed
from gem_ma.scenario import Play
from gem_ma.tools.sandbox import grade, require
from gem_ma.tools.walls import MIB, Wall

# an item's seed is the set's plus its index: nearer seeds would share questions between splits
SEEDS = {"train": 100_000_000, "dev": 200_000_000, "test": 300_000_000}
PACKAGES = ("reasoning_gym", "gem_ma")  # that the grader needs in the worker
BRIEF = "Answer the question. Put the final answer into \\boxed{}, and nothing else into it."
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")
# no gold answer is one; `min(1, nan)` is 1, so a grader may pay it in full
_NO_NUMBER = re.compile(r"(?<![^\W\d_])(?:nan|inf|infinity)(?![^\W\d_])", re.IGNORECASE)
TIER = "bubblewrap"
Data = tuple[str, int, int, str]  # task, size, seed, options as JSON
ENOUGH = 0.99  # of a score, to be right: some graders pay a part for form


@lru_cache(maxsize=64)
def _data(name: str, size: int, seed: int, options: str) -> Any:
    make_set = library("reasoning_gym", "reasoning_gym").create_dataset
    return in_order(make_set(name, size=size, seed=seed, **json.loads(options)))


@lru_cache(maxsize=1024)  # a fork asks again, and some questions take .2 s to make
def _item(data: Data, index: int) -> Any:
    with guest(data[2] + index):  # a few generators draw from the global state
        return _data(*data)[index]


def score(data: Data, item: Any, answer: str) -> float:
    """What the grader of a task pays; 0 for what it cannot read, and for no share of 1."""
    if _NO_NUMBER.search(answer) and not _NO_NUMBER.search(str(item["answer"])):
        return 0.0
    # an answer that a grader cannot read is wrong, and any of them raise
    with suppress(Exception), guest(0):
        paid = float(_data(*data).score_answer(answer, item))
        return paid if 0 <= paid <= 1 else 0.0
    return 0.0


def evaluates(name: str) -> bool:
    """Whether the files of a task's classes hand any text to an interpreter."""
    task = import_module("reasoning_gym.factory").DATASETS[name][0]
    files = {part.__module__ for part in task.__mro__ if part.__module__ not in ("abc", "builtins")}
    return any(_EVALUATES.search(inspect.getsource(sys.modules[file])) for file in files)


class ReasoningGym(Scenario):
    """A task of reasoning_gym: a question, an answer, a score."""

    agents = ("agent_0",)
    chance, ends_within = False, 1

    def __init__(self, name: str, size: int = 500, sandbox: str = TIER, **options: Any) -> None:
        """`size` questions in each split. Raises ConfigError for what is missing or refused."""
        check(ReasoningGym, name, {"size": size})
        factory = library("reasoning_gym.factory", "reasoning_gym")
        known = factory.DATASETS.keys() - {"composite"}
        if name not in known:
            near = ", ".join(get_close_matches(name, known) or sorted(known)[:3])
            raise ConfigError(f"reasoning_gym has no task {name!r}; near: {near}")
        self.name, self.size, self.options = name, size, json.dumps(options, sort_keys=True)
        self.tier = sandbox if evaluates(name) else ""
        if self.tier:
            require(self.tier)
        try:
            with guest(0):
                _data(*self._set("train"))
        except Exception as error:  # their own checks are asserts
            raise ConfigError(f"reasoning_gym:{name}: {error or 'refuses its options'}") from error

    def _set(self, split: str) -> Data:
        return self.name, self.size, SEEDS[split], self.options

    def tasks(self, split: str) -> Sequence[str]:
        if split not in SEEDS:
            raise ValueError(f"no split {split!r}; there are {', '.join(SEEDS)}")
        return [f"{split}:{index}" for index in range(self.size)]

    def play(self, rng: random.Random, task: str) -> Play:
        data = self._set(task.partition(":")[0])
        item = _item(data, int(task.partition(":")[2]))
        actions = yield Ask({"agent_0": (Message.system(BRIEF), item["question"])})
        answer = boxed(actions["agent_0"].text)
        paid = 0.0 if self.tier else score(data, item, answer)
        if self.tier:
            wall = Wall(self.tier, PACKAGES, (*PACKAGES, "numpy.random", __name__), 2048 * MIB)
            with suppress(CallError, TypeError):  # it ended its process, or took too long
                share = yield Call(grade, f"{__name__}:score", data, item, answer, wall=wall)
                paid = share if 0 <= share <= 1 else 0.0  # evaluated, it may say anything
        yield Reward({"agent_0": paid}, why="score")

    def success(self, episode: Episode) -> bool | None:
        return any(pay.value >= ENOUGH for pay in episode.ledger) if episode.ledger else None
