"""The tasks of reasoning_gym: their items, what their graders pay for an answer, and which graders
evaluate it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from gem_ma.worlds.guest import guest, library
from gem_ma.worlds.ordered import in_order

Data = tuple[str, int, int, str]  # task, size, seed, options as JSON
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")
# no gold answer is one; `min(1, nan)` is 1, so a grader may pay it in full
_NO_NUMBER = re.compile(r"(?<![^\W\d_])(?:nan|inf|infinity)(?![^\W\d_])", re.IGNORECASE)


@lru_cache(maxsize=64)
def data_of(name: str, size: int, seed: int, options: str) -> Any:
    make_set = library("reasoning_gym", "reasoning_gym").create_dataset
    return in_order(make_set(name, size=size, seed=seed, **json.loads(options)))


@lru_cache(maxsize=1024)  # a fork asks again, and some questions take .2 s to make
def item_of(data: Data, index: int) -> Any:
    made = data_of(*data)
    with guest(data[2] + index):  # a few draw from the global state
        return made[index]


def score(data: Data, item: Any, answer: str) -> float:
    """What the grader of a task pays; 0 for what it cannot read, and for no share of 1."""
    if _NO_NUMBER.search(answer) and not _NO_NUMBER.search(str(item["answer"])):
        return 0.0
    made = data_of(*data)
    # an answer that a grader cannot read is wrong, and any of them raise
    with suppress(Exception), guest(0):
        paid = float(made.score_answer(answer, item))
        return paid if 0 <= paid <= 1 else 0.0
    return 0.0


def evaluates(name: str) -> bool:
    """Whether the files of a task's classes hand any text to an interpreter."""
    task = import_module("reasoning_gym.factory").DATASETS[name][0]
    files = {part.__module__ for part in task.__mro__ if part.__module__ not in ("abc", "builtins")}
    return any(_EVALUATES.search(inspect.getsource(sys.modules[file])) for file in files)
