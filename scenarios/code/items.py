"""A row of a data set as a task: what is to be written, and its tests.

Read as they stand: HumanEval (`prompt, test, entry_point`), lists of assertions (`tests` or MBPP's
`test_list`), and `inputs, outputs`: texts for standard input and output, or lists of arguments and
results where an `entry_point` is named. APPS's `input_output` is the same, in a text.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.errors import DataError

MOST_TESTS = 1_000  # of a task
_PROMPT = ("prompt", "question", "text", "problem")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef)
# what a module may hold without doing anything
_SILENT = (*_DEFINES, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Pass)
_SOLUTION = ("canonical_solution", "solution", "code")


@dataclass(frozen=True, slots=True)
class Problem:
    """`tests` in the judge's form (`judge.judged`). Without an `entry` and with `stdin` in its
    tests it is a whole program."""

    name: str
    prompt: str
    tests: tuple[Mapping[str, Any], ...]
    entry: str = ""
    setup: str = ""
    solution: str = ""

    @property
    def is_program(self) -> bool:
        return "stdin" in self.tests[0]

    @property
    def examples(self) -> list[str]:
        """Its tests as a question may show them."""
        return [_example(test, self.entry) for test in self.tests]


def _example(test: Mapping[str, Any], entry: str) -> str:
    if "test" in test:
        return str(test["test"]).strip()
    if "args" in test:
        return f"{entry}({', '.join(map(repr, test['args']))}) gives {test['gives']!r}"
    return f"input:\n{test['stdin']}\noutput:\n{test['stdout']}"


def problem_of_row(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> Problem:
    """The task of a row. `columns`: our name of a column -> its name in the data. Raises DataError
    with `where`."""

    def column(*names: str) -> Any:
        values = (row.get(columns.get(name, name)) for name in names)
        return next((value for value in values if value not in (None, "", [])), None)

    prompt = column(*_PROMPT)
    if not isinstance(prompt, str):
        raise DataError(
            f"{where}: no text in a column {', '.join(_PROMPT)}; it has {', '.join(row)}"
        )
    entry = column("entry_point") or ""
    setup = column("setup", "test_setup_code") or ""
    solution = column(*_SOLUTION)
    tests = _cases(column("input_output"), column("inputs"), column("outputs"), entry, where)
    if not tests:
        texts = column("test", "tests", "test_list")
        tests = _texts([texts] if isinstance(texts, str) else texts, entry, where)
        _name_builtins(tests, solution if isinstance(solution, str) else "")
        # the unfinished function of the question holds what its tests may use besides
        setup = prompt if entry and _is_python(prompt) else setup
    if len(tests) > MOST_TESTS:
        raise DataError(f"{where}: {len(tests)} tests; {MOST_TESTS} are allowed")
    name = column("task_id", "name")
    return Problem(
        str(name if name is not None else where.rpartition(" ")[2]),
        prompt,
        tuple(tests),
        str(tests[0].get("entry", entry)),
        setup if isinstance(setup, str) else "",
        solution if isinstance(solution, str) else "",
    )


def _texts(texts: Any, entry: str, where: str) -> list[dict[str, Any]]:
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise DataError(f"{where}: no tests; they are `test`, `tests` or `inputs` and `outputs`")
    for text in texts:
        if not _is_python(text):
            raise DataError(f"{where}: a test is no Python: {text.strip()[:80]!r}")
    return [{"test": f"{text}{_calls(ast.parse(text), entry, where)}"} for text in texts]


def _calls(test: ast.Module, entry: str, where: str) -> str:
    """Calls of the functions that a test defines: HumanEval's `check` of what it tests, and those
    that pytest would run. Raises DataError where all of its assertions would be left unread."""
    functions = [node for node in test.body if isinstance(node, ast.FunctionDef)]
    if entry and any(function.name == "check" for function in functions):
        return f"\ncheck({entry})\n"
    held = [node for node in test.body if isinstance(node, (*_DEFINES, ast.ClassDef))]
    asserts = (isinstance(node, ast.Assert) for each in held for node in ast.walk(each))
    if any(not isinstance(node, _SILENT) for node in test.body) or not any(asserts):
        return ""
    run = [f.name for f in functions if f.name.startswith("test") and not _wanted(f.args)]
    if not run:
        names = ", ".join(node.name for node in held)
        raise DataError(
            f"{where}: its test defines {names} and calls nothing; `check` wants an entry_point,"
            " and functions without arguments are called test_..."
        )
    return "".join(f"\n{name}()" for name in run) + "\n"


def _wanted(arguments: ast.arguments) -> bool:
    """Whether a function wants an argument."""
    plain = len(arguments.posonlyargs) + len(arguments.args) > len(arguments.defaults)
    return plain or None in arguments.kw_defaults


def _name_builtins(tests: list[dict[str, Any]], solution: str) -> None:
    """Notes for each test which names of Python's own it means otherwise: those that the solution
    defines, as MBPP's `sum`. What an answer defines decides nothing: it could replace `abs`."""
    tree = ast.parse(solution if _is_python(solution) else "")
    defined = {node.name for node in tree.body if isinstance(node, (*_DEFINES, ast.ClassDef))}
    for test in tests if (own := sorted(defined & set(dir(builtins)))) else ():
        test["own"] = own


def _cases(packed: Any, inputs: Any, outputs: Any, entry: str, where: str) -> list[dict[str, Any]]:
    if isinstance(packed, str):
        try:
            packed = json.loads(packed)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: input_output is no JSON ({error})") from error
    if isinstance(packed, Mapping):
        inputs = packed.get("inputs")
        outputs = packed.get("outputs")
        entry = str(packed.get("fn_name") or entry)
    if inputs is None and outputs is None:
        return []
    lists = isinstance(inputs, list) and isinstance(outputs, list)
    if not lists or len(inputs) != len(outputs) or not inputs:
        raise DataError(f"{where}: inputs and outputs are two lists of one length")
    if entry:
        if not all(isinstance(args, list) for args in inputs):
            raise DataError(f"{where}: inputs of {entry} are lists of its arguments")
        pairs = zip(inputs, outputs, strict=True)
        return [{"args": args, "gives": gives, "entry": entry} for args, gives in pairs]
    if not all(isinstance(text, str) for text in (*inputs, *outputs)):
        raise DataError(f"{where}: without an entry_point, inputs and outputs are texts")
    return [{"stdin": i, "stdout": o} for i, o in zip(inputs, outputs, strict=True)]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
