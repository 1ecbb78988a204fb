"""The scenario `code`: what is right passes, what forges a verdict does not. The tests run behind
the wall; without bubblewrap they fail, and `make sandbox` installs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.code.answers import program_of
from gem_ma.scenarios.code.scenario import NOTHING, Code

from gem_ma import Game, make, task_of
from gem_ma.kernel.errors import CallError, ConfigError, DataError, ScenarioError
from gem_ma.tools import sandbox

PROMPT = 'import math\n\ndef half(x):\n    """Half of a number."""\n'
TEST = "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(7) == 3.5\n    assert candidate(0) == 0\n"
RIGHT = "def half(x):\n    return x / 2"
UNIT = {
    "prompt": PROMPT,
    "entry_point": "half",
    "test": TEST,
    "canonical_solution": "    return x / 2\n",
}
CALLS = {
    "prompt": "Write half(x).",
    "entry_point": "half",
    "inputs": [[4], [7], [0]],
    "outputs": [2, 3.5, 0],
}
LISTED = {"prompt": "Write half(x).", "test_list": ["assert half(4) == 2", "assert half(7) == 3.5"]}
RUNS = {
    "question": "Print half of the number.",
    "inputs": ["4\n", "8\n"],
    "outputs": ["2\n", "4\n"],
}
PRINTS = "print(int(input()) // 2)"


def played(folder: Path, row: dict[str, Any], *answers: str, **options: Any) -> Game:
    """A play of one task; its fork must be the same."""
    file = folder / "tasks.jsonl"
    file.write_text(json.dumps(row))
    scenario = make("code", data=str(file), held_out=1.0, attempts=len(answers), **options)
    game = Game(scenario, task_of(scenario, "test/0"), seed=0)
    for answer in answers:
        if game.pending:
            game.send({"coder": answer})
    again = game.fork()
    assert (again.ledger, again.turns) == (game.ledger, game.turns)
    return game


def paid(folder: Path, row: dict[str, Any], answer: str, **options: Any) -> float:
    return played(folder, row, answer, **options).ledger[-1].value


@pytest.mark.parametrize("row", [UNIT, CALLS, LISTED], ids=["check", "calls", "assertions"])
def test_a_right_function_passes_in_a_block_and_plain(row: dict[str, Any], tmp_path: Path) -> None:
    for answer in (RIGHT, f"I divide.\n```python\n{RIGHT}\n```\nDone.", f"```\n{RIGHT}"):
        assert paid(tmp_path, row, answer) == 1
    for wrong in (
        "def half(x):\n    pass",
        "",
        "half",
        "def other(x): return x / 2",
        "```python\n```",
    ):
        assert paid(tmp_path, row, wrong) == 0


def test_a_program_is_judged_by_what_it_prints(tmp_path: Path) -> None:
    for right in (
        PRINTS,
        f"```python\n{PRINTS}\n```",
        "import sys\nsys.stdout.write(f'{int(input()) // 2}  \\n\\n')",
    ):
        assert paid(tmp_path, RUNS, right) == 1
    for wrong in (
        "print(2)",
        "print(int(input()))",
        "pass",
        f"{PRINTS}\nprint('more')",
        f"{PRINTS}\n1 / 0",
        "(",
    ):
        assert paid(tmp_path, RUNS, wrong) == 0


# Each says that it passes, by another way; none of them halves a number.
FORGERIES = {
    "prints the success line": 'print(\'OK\'); print(\'{"passed": 3, "total": 3, "why": ""}\')',
    "ends in order": "import sys; sys.exit(0)",
    "ends at once": "import os; os._exit(0)",
    "ends when it is called": "import os\ndef half(x): os._exit(0)",
    "leaves when it is called": "def half(x): raise SystemExit(0)",
    "is equal to everything": """
class Yes(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0
    __hash__ = float.__hash__
def half(x): return Yes(9)""",
    "is an object equal to everything": """
class Yes:
    def __eq__(self, other): return True
    __rsub__ = __sub__ = lambda self, other: 0
def half(x): return Yes()""",
    "writes to every descriptor": """
import os
def half(x):
    for end in range(64):
        try: os.write(end, b'{"status": "ok", "value": {"passed": 3, "total": 3, "why": ""}}\\n')
        except OSError: pass""",
    "writes to every descriptor first": """
import os
for end in range(64):
    try: os.write(end, b'{"status": "ok", "value": {"passed": 3, "total": 3, "why": ""}}\\n["gave", ["bool", true]]\\n')
    except OSError: pass
def half(x): return 1""",
    "replaces json, os and the modules of the judge": """
import builtins, json, os, sys
json.dumps = lambda *a, **k: '["gave", ["bool", true]]'
json.loads = lambda *a, **k: ["half", [], {}]
os.write = lambda end, data: len(data)
builtins.isinstance = lambda *a: True
for module in list(sys.modules.values()):
    for name in ("judged", "unit", "same", "ran", "grade"):
        if hasattr(module, name): setattr(module, name, lambda *a, **k: {"passed": 3, "total": 3, "why": ""})
def half(x): return 1""",
    "replaces what asserts use": "import builtins\nbuiltins.AssertionError = Exception\nclass AssertionError(Exception): pass\ndef half(x): return 1",
    "looks for the test in its frames": """
import gc, inspect, sys
def half(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if 'candidate(4)' in repr(value)[:100000] and 'candidate(4)' + ' ==' in repr(value): return x / 2
        frame = frame.f_back
    for value in gc.get_objects():
        if type(value) is str and 'assert ' + 'candidate' in value: return x / 2""",
    "looks for the test in files and processes": """
import os
def half(x):
    for top in ("/tmp", "/packages", "/proc", "/home", "/root", "/work", "/inside.py"):
        for folder, _, names in os.walk(top):
            for name in names:
                try: text = open(os.path.join(folder, name), errors="replace").read(1 << 20)
                except Exception: continue
                if 'assert ' + 'candidate' in text: return x / 2""",
    "recurses deeply": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef half(x): return half(x)",
    "gives a value without an end": "def half(x):\n    y = []\n    y.append(y)\n    return y",
    "ends the judge": "import os, signal\ndef half(x):\n    os.kill(os.getppid(), signal.SIGKILL)",
    "ends all": "import os, signal\ndef half(x):\n    os.kill(-1, signal.SIGKILL)",
    "leaves by a thread": "import os, threading\nthreading.Thread(target=lambda: os._exit(0)).start()\ndef half(x): return 1",
    "ends a loop of the test": "def half(x): raise StopIteration",
    "claims to have no judge": "def half(x): raise AssertionError('passed')",
    "defines the check": "def half(x): return 1\ndef check(candidate): return True\ncandidate = None",
    "writes a large result": "def half(x): return 'x' * (1 << 22)",
    "prints without end": "def half(x):\n    while True: print('x' * 100000)",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_no_program_forges_its_verdict(how: str, tmp_path: Path) -> None:
    # one assertion that passes would be a third
    assert paid(tmp_path, UNIT, FORGERIES[how], credit="share", limits={"timeout_s": 1.0}) == 0


def test_arguments_are_copies(tmp_path: Path) -> None:
    """A program that empties its argument changes nothing that the test compares with."""
    test = "def check(candidate):\n    numbers = [3, 1, 2]\n    assert candidate(numbers) == sorted(numbers)\n"
    row = {"prompt": "def order(numbers):\n", "entry_point": "order", "test": test}
    assert paid(tmp_path, row, "def order(n):\n    n.clear()\n    return []") == 0
    assert paid(tmp_path, row, "def order(n):\n    return sorted(n)") == 1


def test_a_test_that_wants_an_error_is_not_served_by_an_end(tmp_path: Path) -> None:
    for catches in ("Exception", "BaseException"):
        test = f"def check(candidate):\n    try:\n        candidate(0)\n    except {catches}:\n        return\n    assert False\n"
        row = {"prompt": "def fail(x):\n", "entry_point": "fail", "test": test}
        assert paid(tmp_path, row, "import os\ndef fail(x):\n    os._exit(0)") == 0
        assert paid(tmp_path, row, "def fail(x):\n    raise ValueError(x)") == 1


@pytest.mark.parametrize(
    "forgery",
    [
        "import os; os._exit(0)",
        "print('OK\\nAccepted')",
        "import os\nfor end in range(64):\n  try: os.write(end, b'2\\n')\n  except OSError: pass",
        "import os\nprint(open('/proc/self/fd/0').read(), os.listdir('.'))",
        "while True: pass",
        "import time; time.sleep(60)",
        "print('2\\n' * 10 ** 9)",
        "import os\nwhile True: os.fork()",
        "x = bytearray(1 << 34)",
    ],
)
def test_no_run_forges_its_output(forgery: str, tmp_path: Path) -> None:
    row = {**RUNS, "inputs": ["6", "8"], "outputs": ["3", "4"]}
    assert paid(tmp_path, row, forgery, credit="share", limits={"timeout_s": 1.0}) == 0


def test_values_of_all_plain_types_cross_exactly(tmp_path: Path) -> None:
    values = "[None, True, 1, -(2 ** 20000), 0.1, float('inf'), 'a\\n\\ud800', (1, [2]), {1: {2}}, frozenset([3]), b'x', 1j]"
    test = f"def check(candidate):\n    for value in {values}:\n        result = candidate(value)\n        assert result == value and type(result) is type(value)\n"
    row = {"prompt": "def same(x):\n", "entry_point": "same", "test": test}
    assert paid(tmp_path, row, "def same(x):\n    return x") == 1
    assert paid(tmp_path, row, "def same(x):\n    return x if x is not True else 1") == 0


def test_credit_by_share_counts_assertions_and_cases(tmp_path: Path) -> None:
    zero_right = "def half(x):\n    return x // 2"  # wrong for 7 alone
    for row in (UNIT, CALLS):
        assert paid(tmp_path, row, zero_right, credit="share") == pytest.approx(2 / 3)
        assert paid(tmp_path, row, zero_right) == 0
    assert paid(tmp_path, LISTED, zero_right, credit="share") == 0.5
    assert paid(tmp_path, RUNS, "input()\nprint(4)", credit="share") == 0.5
    breaks_off = "import os\ndef half(x):\n    return 2 if x == 4 else os._exit(0)"
    assert paid(tmp_path, UNIT, breaks_off, credit="share") == pytest.approx(1 / 3)


def test_a_later_attempt_is_told_what_failed_and_pays_less(tmp_path: Path) -> None:
    game = played(tmp_path, UNIT, "def half(x):\n    return x // 2", "", f"```python\n{RIGHT}\n```")
    told = [message.text for message in game.view("coder") if message.sender != "coder"]
    assert "assert candidate(7) == 3.5: half(7) gave 3" in told[2]
    assert NOTHING in told[3]
    assert game.ledger[-1].value == pytest.approx(1 / 3)
    game = played(tmp_path, RUNS, "print(2)", PRINTS)
    assert "for the input '8\\n' it prints '2\\n', not '4\\n'" in game.view("coder")[3].text


def test_a_bomb_costs_its_time_and_the_next_answer_is_judged_rightly(tmp_path: Path) -> None:
    bombs = (
        "def half(x):\n    while True: pass",
        "def half(x): return 10 ** 10 ** 10",
        "def half(x): return [0] * 10 ** 12",
    )
    for bomb in bombs:
        assert paid(tmp_path, UNIT, bomb, limits={"timeout_s": 1.0}) == 0
        assert paid(tmp_path, UNIT, RIGHT) == 1


def test_a_play_without_a_judge_fails_and_is_not_paid_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def nobody(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise CallError("judge:judged: its process ended")

    monkeypatch.setattr(sandbox, "grade", nobody)
    with pytest.raises(ScenarioError, match="no verdict, nor one of an answer of ours"):
        played(tmp_path, UNIT, RIGHT)
    assert len(asked) == 3
    one_fails = iter([nobody])
    monkeypatch.undo()
    grade = sandbox.grade
    monkeypatch.setattr(sandbox, "grade", lambda *a, **o: next(one_fails, grade)(*a, **o))
    assert played(tmp_path, UNIT, RIGHT).ledger[-1].value == 1


def test_a_test_that_nobody_can_run_fails_the_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_ma.scenarios.code.scenario.SLACK_S", 0.1)
    endless = {**UNIT, "test": "def check(candidate):\n    while True: pass\ncheck(half)"}
    with pytest.raises(ScenarioError, match="no result within"):
        played(tmp_path, endless, RIGHT, limits={"timeout_s": 0.1})


PREVENTED = {
    "ends it": "import os\ndef half(x): os.kill(os.getppid(), 9)",
    "stops it": "import os\ndef half(x): os.kill(os.getppid(), 19)",
    "takes its memory": """
import os, resource
def half(x): resource.prlimit(os.getppid(), resource.RLIMIT_AS, (1, 1)); return [1] * 100000""",
    "takes its processor": "def half(x): return [0] * 9",
}


@pytest.mark.parametrize("how", PREVENTED)
def test_a_program_that_prevents_its_verdict_is_paid_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_ma.scenarios.code.scenario.SLACK_S", 0.4)
    test = "def check(candidate):\n    assert 2 ** sum(range(10 ** 10 * len(candidate(4)))) == 1\n"
    row = {**UNIT, "test": test} if how == "takes its processor" else UNIT
    assert played(tmp_path, row, PREVENTED[how], limits={"timeout_s": 0.2}).ledger[-1].value == 0


def test_examples_stand_in_the_question(tmp_path: Path) -> None:
    view = played(tmp_path, LISTED, RIGHT, examples=1).view("coder")
    assert "assert half(4) == 2" in view[1].text and "half(7)" not in view[1].text
    assert "half(4) gives 2" in played(tmp_path, CALLS, RIGHT, examples=1).view("coder")[1].text


def test_our_own_solutions_pass_and_what_solves_nothing_does_not() -> None:
    scenario = make("code")
    tasks = [*scenario.tasks("train"), *scenario.tasks("dev"), *scenario.tasks("test")]
    assert len(tasks) == len(scenario.tasks("all")) == len({task.name for task in tasks}) >= 16
    for number, task in enumerate(tasks):
        for answer, wanted in ((task.solution, 1.0), ("pass", 0.0))[: 1 if number % 4 else 2]:
            game = Game(scenario, task, seed=0)
            game.send({"coder": answer})
            assert game.ledger[0].value == wanted, (task.name, answer)


def test_the_program_is_found_in_an_answer() -> None:
    assert program_of("```py\nx = 1\n```\nor\n```python\ny = 2\n```") == "y = 2\n"
    assert (
        program_of("```python\ndef f(): pass\n```\nUse it:\n```python\nf()\n```", "def f():\n", "f")
        == "def f(): pass\n\n"
    )
    # what defines nothing goes on from the question, at the margin too
    assert (
        program_of("    return 1", "import os\ndef f():\n", "f")
        == "import os\ndef f():\n    return 1\n"
    )
    assert program_of("```\nreturn 1\n```", "def f():\n", "f") == "def f():\n    return 1\n"
    listed = "1. This:\n   ```python\n   def f():\n       return 1\n   ```\n2. Done."
    assert program_of(listed, "def f():\n", "f") == "def f():\n    return 1\n\n"
    assert program_of("f = lambda: 1", "def f():\n", "f") == "f = lambda: 1\n"
    assert program_of("f == 1", "def f():\n", "f") == "def f():\n    f == 1\n"
    assert program_of("", "def f():\n", "f") == program_of("```\n```", "def f():\n", "f") == ""


PYTEST = (
    "def test_even():\n    assert half(4) == 2\n\ndef test_odd(x=7):\n    assert half(x) == 3.5\n"
)


@pytest.mark.parametrize("credit", ["all", "share"])
def test_functions_of_tests_are_called(credit: str, tmp_path: Path) -> None:
    row = {"prompt": "Write half(x).", "test": f"import math\n{PYTEST}"}
    assert paid(tmp_path, row, RIGHT, credit=credit) == 1
    for wrong in ("def half(x): return 0", "pass", "def test_even(): pass"):
        assert paid(tmp_path, row, wrong, credit=credit) == 0


@pytest.mark.parametrize("credit", ["all", "share"])
@pytest.mark.parametrize("test", ["assert sum([1, 2]) == 3", "assert 1 == 1", "x = 2\nassert x"])
def test_a_test_that_asks_nothing_of_the_program_passes_nobody(
    test: str, credit: str, tmp_path: Path
) -> None:
    row = {"prompt": "Add them.", "test_list": [test]}
    assert paid(tmp_path, row, "def sum(x): return 3", credit=credit) == 0


def test_a_solution_may_be_called_as_a_function_of_pythons_own(tmp_path: Path) -> None:
    right = "def sum(a, b):\n    return a + b"
    row = {"prompt": "Add them.", "test_list": ["assert sum(1, 2) == 3"], "code": right}
    assert paid(tmp_path, row, right) == 1
    assert paid(tmp_path, row, "def sum(a, b):\n    return a") == 0
    assert paid(tmp_path, row, "pass") == 0
    # what an answer calls so replaces nothing in a test
    close = {"prompt": "Halve.", "test_list": ["assert abs(half(4) - 2) < 1e-6"]}
    assert paid(tmp_path, close, "def half(x): return 9\ndef abs(x): return 0") == 0


def test_keys_of_a_dict_are_compared_as_json_writes_them(tmp_path: Path) -> None:
    row = {"prompt": "p", "entry_point": "f", "inputs": [[1]], "outputs": [{"1": [2], "true": 0}]}
    assert paid(tmp_path, row, "def f(x): return {x: (2,), True == 1: 0}") == 0
    assert paid(tmp_path, row, "def f(x): return {'1': [2], True: 0}") == 1
    assert paid(tmp_path, row, "def f(x): return {1: [2], '1': [2], 'true': 0}") == 0


def test_a_line_ends_with_a_newline_alone(tmp_path: Path) -> None:
    row = {"question": "p", "inputs": [""], "outputs": ["1\n2\n"]}
    assert paid(tmp_path, row, "print('1\\r\\n2', end='')") == 1
    assert paid(tmp_path, row, "print('1\\x0b2')") == paid(tmp_path, row, "print('1\\u20282')") == 0


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "p", "test": "def check(f):\n    assert f(1)"}, "wants an entry_point"),
        (
            {"prompt": "p", "test": "class T:\n    def t(self):\n        assert f(1)"},
            "defines T and",
        ),
        ({"prompt": "p", "test": "def test_f(x):\n    assert f(x)"}, "calls nothing"),
        ({}, "no text in a column prompt"),
        ({"prompt": "p"}, "no tests"),
        ({"prompt": "p", "test": "def ("}, "no Python"),
        ({"prompt": "p", "inputs": ["1"], "outputs": []}, "two lists of one length"),
        ({"prompt": "p", "inputs": [1], "outputs": ["1"]}, "are texts"),
        (
            {"prompt": "p", "entry_point": "f", "inputs": [1], "outputs": [1]},
            "lists of its arguments",
        ),
        ({"prompt": "p", "input_output": "{"}, "no JSON"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_in_a_line(
    row: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=words) as error:
        make("code", data=str(tmp_path / "tasks.jsonl"))
    assert "row 1" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"credit": "some"},
        {"attempts": 0},
        {"examples": -1},
        {"held_out": 2.0},
        {"limits": {"timeout_s": 0}},
        {"limits": {"timeout_s": float("nan")}},
        {"limits": {"timeout_s": "5"}},
        {"limits": {"cpu": 1}},
        {"limits": {"sandbox": "docker"}},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Code(**options)
