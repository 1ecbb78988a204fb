"""Programs to write: one agent writes Python, tests that it cannot see judge it behind the wall.
`docs/questions.md` has the options.

Type `gem-ma run code` for tasks of our own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.scenarios.code.answers import program_of
from gem_ma.scenarios.code.items import Problem, problem_of_row
from gem_ma.scenarios.rows import SPLITS, Data, read, splits_of

from gem_ma import Ask, Call, ConfigError, Episode, Message, Reward, Scenario
from gem_ma.kernel.scenario import Play
from gem_ma.tools.sandbox import judge, require
from gem_ma.tools.walls import MIB, Wall

HERE = Path(__file__).parent
OWN_FILE = HERE / "own.jsonl"
FUNCTION = (
    "Write the Python function that is asked for. Answer with the whole function, and what it"
    " needs, in one ```python block."
)
PROGRAM = (
    "Write a Python program that reads standard input and prints what is asked for. Answer with the"
    " whole program in one ```python block."
)
NOTHING = "There is no program in your answer."
UNJUDGED = "With this program the tests come to no end."
CREDITS = ("all", "share")
SLACK_S = 2.0  # of a judgement beyond its tests' time: two interpreters start


class Code(Scenario):
    """Functions and programs to write, judged by unit tests or by input and output."""

    agents = ("coder",)
    chance = False
    default_cast = {"coder": "code_stub"}
    baseline_casts = {
        "a function without a body": {"coder": "code_stub"},
        "gives its argument back": {"coder": "code_echo"},
    }

    def __init__(
        self,
        data: Data = "",
        attempts: int = 1,
        credit: str = "all",
        examples: int = 0,
        held_out: float = 0.5,
        shuffle: int | None = 0,
        limits: Mapping[str, Any] | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """`data`: a file, files by split, or an id of the hub; else ours. An answer at attempt k
        pays its score / k; between them the failing test is shown. `credit: share` pays the share
        of the tests that pass. `examples`: tests that stand in the question. `limits`: `timeout_s`
        (of all tests of an answer), `memory_mb` (of each process), `sandbox`. `columns`: our name
        of a column -> its name in the data. Raises ConfigError, DataError."""
        if credit not in CREDITS:
            raise ConfigError(f"scenario.credit: all or share; got {credit!r}")
        if attempts < 1 or examples < 0 or not 0 <= held_out <= 1:
            raise ConfigError(
                "scenario: attempts is at least 1, examples at least 0, held_out a share from 0 to"
                f" 1; got {attempts}, {examples}, {held_out:g}"
            )
        bounds = {"timeout_s": 5.0, "memory_mb": 512, "sandbox": "bubblewrap", **(limits or {})}
        numbers = [bounds["timeout_s"], bounds["memory_mb"]]
        plain = all(type(number) in (int, float) and number < math.inf for number in numbers)
        if len(bounds) > 3 or not plain or not numbers[0] > 0 or not numbers[1] >= 64:
            raise ConfigError(
                "scenario.limits: timeout_s above 0, memory_mb from 64, sandbox; got"
                f" {', '.join(f'{key}: {value}' for key, value in bounds.items())}"
            )
        self.data = data or str(OWN_FILE)
        self.credit = credit
        self.examples = examples
        self.attempts = self.ends_within = attempts
        self.share = held_out
        self.shuffle = shuffle
        self.columns = dict(columns or {})
        self.timeout_s = bounds["timeout_s"]
        self.memory_mb = int(bounds["memory_mb"])
        self.tier = bounds["sandbox"]
        require(self.tier)
        self.tasks("all")  # what is wrong with the data is said before anything is played

    # -- data -------------------------------------------------------------------------------------

    def tasks(self, split: str) -> Sequence[Problem]:
        """A split's tasks, shuffled by `shuffle`; `all` are those of all splits."""
        digest = read(self.data, "code")[1]
        data = self.data if isinstance(self.data, str) else tuple(self.data.items())
        columns = tuple(sorted(self.columns.items()))
        tasks = _prepared(data, digest, columns, self.share, self.shuffle)
        if split == "all":
            return [task for name in SPLITS for task in tasks[name]]
        if split not in tasks:
            raise ConfigError(f"code: no split {split!r}; there are {', '.join(SPLITS)}, all")
        return tasks[split]

    def provenance(self) -> dict[str, Any]:
        names = self.data if isinstance(self.data, str) else dict(self.data)
        name = "our own tasks" if names == str(OWN_FILE) else names
        return {"name": name, "digest": read(self.data, "code")[1]}

    # -- the play ---------------------------------------------------------------------------------

    def answers(self, rng: random.Random, task: Problem) -> tuple[str, ...]:
        """The solution, where the data holds one."""
        return (task.solution,) if task.solution else ()

    def play(self, rng: random.Random, task: Problem) -> Play:
        message: Any = (Message.system(PROGRAM if task.is_program else FUNCTION), self._asked(task))
        for attempt in range(1, self.attempts + 1):
            actions = yield Ask({"coder": message})
            text = program_of(actions["coder"].text, task.prompt, task.entry)
            verdict: dict[str, Any] = {"passed": 0, "total": len(task.tests), "why": NOTHING}
            if text:
                verdict = yield from self._judged(task, text)
            passed = verdict["passed"] == verdict["total"]
            if passed or attempt == self.attempts:
                share = verdict["passed"] / verdict["total"]
                score = share if self.credit == "share" else float(passed)
                yield Reward({"coder": score / attempt}, why="tests" if passed else "score")
                return
            message = f"A test fails. {verdict['why']}\nWrite it again."

    def _asked(self, task: Problem) -> str:
        examples = task.examples[: self.examples]
        return "\n\n".join([task.prompt, *examples])

    def _judged(self, task: Problem, text: str) -> Any:
        """The judge's verdict; nothing passes where the program prevents one."""
        # the standard library alone: in an installed package the tests themselves could be read
        wall = Wall(self.tier, (), ("subprocess", "traceback"), self.memory_mb * MIB)
        test_set = {"tests": list(task.tests), "setup": task.setup, "entry": task.entry}
        runner = _source("program.py")
        options = (self.timeout_s, self.credit == "share")
        return (
            yield Call(
                judge,
                "judge:judged",
                runner,
                text,
                test_set,
                *options,
                control=(runner, "", test_set, *options),
                unjudged={"passed": 0, "total": len(task.tests), "why": UNJUDGED},
                wall=wall,
                source=_source("judge.py"),
                timeout_s=self.timeout_s + SLACK_S,
            )
        )

    # -- how its numbers are read -----------------------------------------------------------------

    rates = ("first try",)
    more_is_better = ("first try",)

    def success(self, episode: Episode) -> bool | None:
        return any(pay.why == "tests" for pay in episode.ledger) if episode.ledger else None

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """`attempts`, and how often the first one passed."""
        passed = any(pay.why == "tests" for pay in episode.ledger)
        tries = len({turn.step for turn in episode.turns})
        return {"attempts": tries, "first try": float(passed and tries == 1)} if tries else {}


@lru_cache(maxsize=4)
def _source(name: str) -> str:
    return (HERE / name).read_text("utf-8")


@lru_cache(maxsize=8)
def _prepared(
    data: Any,
    digest: str,  # of the data: a file that is written anew is another one
    columns: tuple[tuple[str, str], ...],
    share: float,
    shuffle: int | None,
) -> dict[str, list[Problem]]:
    """The tasks of each split."""
    return splits_of(
        data,
        "code",
        lambda row, where: problem_of_row(row, dict(columns), where),
        lambda task: task.prompt,
        share,
        shuffle,
    )
