"""Questions of any data set: one agent answers, a grader pays. `docs/questions.md` has the options.

Type `gem-ma run questions` for questions of our own: sums, facts and choices.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_ma.scenarios.questions import graders
from gem_ma.scenarios.questions.answers import RULES
from gem_ma.scenarios.questions.calls import read_tools
from gem_ma.scenarios.questions.calls import score as calls_score
from gem_ma.scenarios.questions.items import Item, item_of
from gem_ma.scenarios.questions.numbers import number
from gem_ma.scenarios.rows import Columns, Data, OfRows, first_try

from gem_ma import Ask, Call, ConfigError, Episode, Message, Reward, task_of
from gem_ma.kernel.scenario import Play
from gem_ma.system.extras import install
from gem_ma.tools.sandbox import judge, require
from gem_ma.tools.walls import MIB, Wall

NAMES = (*graders.GRADERS, "calls")
WORKER = Path(__file__).with_name("mathematics.py")
BRIEFS = {
    "letter": "Answer with the letter of the one choice that is right.",
    "number": "Answer with a number.",
}
CALLS = "Answer by calls of the functions that you are offered: all that are needed, and no others."
BRIEF = "Answer the question. {how} Put the answer on a line of its own at the end: Answer: ..."
NONE = "There is no single answer in what you wrote."
WRONG = "That is not right."
ENOUGH = 0.999  # of a score, to be right
COLUMNS = ("question", "answer", "choices", "kind")


class Questions(OfRows):
    """Questions out of a file or a data set, each with an answer that a grader knows."""

    what, asked = "questions", "question"
    own, own_file = "our own questions", str(Path(__file__).with_name("own.jsonl"))
    agents = ("solver",)
    chance = False
    default_cast = {"solver": "question_random"}
    baseline_casts = {
        "the same word always": {"solver": "question_constant"},
        "echoes the question": {"solver": "question_echo"},
        "the first choice": {"solver": "first_legal"},
        "at random": {"solver": "question_random"},
    }

    def __init__(
        self,
        data: Data = "",
        grader: str = "",
        take: str = "auto",
        attempts: int = 1,
        held_out: float = 0.2,
        shuffle: int | None = 0,
        sandbox: str = "bubblewrap",
        timeout_s: float = 5.0,
        **columns: str,
    ) -> None:
        """`data`: a file, files by split, or an id of the hub; else ours. `grader`: one of `NAMES`;
        each row decides where none is said. `take`: how the answer is found (`answers.py`). An
        answer at attempt k pays its score / k. Further options name columns: `question: prompt`,
        `answer: target`, `choices: options`, `kind: subject`.

        Raises ConfigError, and DataError for the row that is not a question.
        """
        if grader and grader not in NAMES:
            raise ConfigError(f"scenario.grader: one of {', '.join(NAMES)}; got {grader!r}")
        if take not in RULES:
            raise ConfigError(f"scenario.take: one of {', '.join(RULES)}; got {take!r}")
        if attempts < 1 or not 0 <= held_out <= 1 or not 0 < timeout_s < math.inf:
            raise ConfigError(
                "scenario: attempts is at least 1, held_out a share from 0 to 1, timeout_s above 0;"
                f" got {attempts}, {held_out:g}, {timeout_s:g}"
            )
        if unknown := columns.keys() - set(COLUMNS):
            known = "data, grader, take, attempts, held_out, shuffle, sandbox, timeout_s"
            raise ConfigError(
                f"scenario: no option {min(unknown)!r}; there are {known}, and the columns"
                f" {', '.join(COLUMNS)}"
            )
        self.data = data or self.own_file
        self.grader = grader
        self.take = take
        self.attempts = self.ends_within = attempts
        self.share = held_out
        self.shuffle = shuffle
        self.columns = {name: columns.get(name, name) for name in COLUMNS}
        self.tier = sandbox
        self.timeout_s = timeout_s
        self._check()

    def _check(self) -> None:
        """Reads the data, so that what is wrong is said before anything is played."""
        items = self.tasks("all")
        formulas = any(
            item.grader == "math" and number(text, item.question) is None
            for item in items
            for text in item.right
        )
        if formulas and find_spec("math_verify") is None:
            raise ConfigError(
                "scenario.grader: math needs math-verify for answers that are not plain numbers;"
                f" type {install('math')}"
            )
        if formulas:
            require(self.tier)
        right = Counter(item.right[0] for item in items)
        self.baselines = {
            "the commonest answer (success)": right.most_common(1)[0][1] / len(items),
        }
        if all(item.choices for item in items):
            drawn = sum(1 / len(item.choices) for item in items) / len(items)
            self.baselines["a choice at random (success)"] = drawn

    # -- data -------------------------------------------------------------------------------------

    @staticmethod
    def made_of(
        row: Columns, where: str, grader: str, columns: tuple[tuple[str, str], ...]
    ) -> Item:
        return item_of(row, dict(columns), grader, where)

    def options(self) -> tuple[Any, ...]:
        return self.grader, tuple(self.columns.items())

    # -- the play ---------------------------------------------------------------------------------

    def answers(self, rng: random.Random, task: Item) -> tuple[str, ...]:
        """Its right answers; of a choice, its letter and then its text."""
        if task.grader != "letter":
            return task.right
        return (*task.right, task.choices[task.letters.index(task.right[0])])

    def play(self, rng: random.Random, task: Item) -> Play:
        how = BRIEFS.get(task.grader, "")
        message: Any = (Message.system(" ".join(BRIEF.format(how=how).split())), task.text)
        legal = task.letters if task.grader == "letter" else None
        tools = read_tools(task.functions, "questions") if task.functions else None
        if tools:
            message = (Message.system(CALLS), task.text)
        for attempt in range(1, self.attempts + 1):
            action = (yield Ask({"solver": message}, legal=legal, tools=tools))["solver"]
            answer = graders.read(task, action.text, self.take)
            score = calls_score(task.calls, action) if tools else graders.score(task, answer)
            if score is None:
                score = yield from self._verified(task, answer)
            if score >= ENOUGH or attempt == self.attempts:
                yield Reward(
                    {"solver": score / attempt}, why="right" if score >= ENOUGH else "score"
                )
                return
            message = f"{WRONG if answer or tools else NONE} Try again."

    def _verified(self, task: Item, answer: str) -> Any:
        """What math-verify says, in a worker that ends with its time."""
        packages = ("math_verify",)
        wall = Wall(self.tier, packages, packages, 1024 * MIB)
        source = WORKER.read_text("utf-8")
        for right in task.right:
            call = Call(
                judge,
                "mathematics:same",
                right,
                answer,
                control=(right, right),
                unjudged=False,  # math-verify hangs on towers of powers
                wall=wall,
                source=source,
                timeout_s=self.timeout_s,
            )
            if (yield call) is True:
                return 1.0
        return 0.0

    # -- how its numbers are read -----------------------------------------------------------------

    rates = ("first try",)
    more_is_better = ("first try",)

    def success(self, episode: Episode) -> bool | None:
        return any(pay.why == "right" for pay in episode.ledger) if episode.ledger else None

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        """The kind of a question, where its row names one."""
        kind = task_of(self, episode.task).kind
        return {"kind": kind} if kind else {}

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        return first_try(episode, "right")
