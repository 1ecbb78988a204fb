"""Programs to write: one agent writes Python, tests that it cannot see judge it behind the wall.
`docs/questions.md` has the options.

Type `gem-ma run code` for tasks of our own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.scenarios.code.answers import program_of
from gem_ma.scenarios.code.items import Problem, problem_of_row
from gem_ma.scenarios.rows import Columns, Data, OfRows, first_try

from gem_ma import Ask, Call, ConfigError, Episode, Message, Reward
from gem_ma.kernel.scenario import Play
from gem_ma.tools.sandbox import judge, require
from gem_ma.tools.walls import MIB, Wall

HERE = Path(__file__).parent
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


class Code(OfRows):
    """Functions and programs to write, judged by unit tests or by input and output."""

    what, asked, own_file = "code", "prompt", str(HERE / "own.jsonl")
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
        self.data = data or self.own_file
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

    @staticmethod
    def made_of(row: Columns, where: str, *columns: tuple[str, str]) -> Problem:
        return problem_of_row(row, dict(columns), where)

    def options(self) -> tuple[Any, ...]:
        return tuple(sorted(self.columns.items()))

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
        return first_try(episode, "tests")


@lru_cache(maxsize=4)
def _source(name: str) -> str:
    return (HERE / name).read_text("utf-8")
