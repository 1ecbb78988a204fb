"""Judges a program by tests that it cannot see. The text of this file is run behind the wall, by
`gem_ma.tools.sandbox.grade`, with the standard library alone.

The judge holds the tests and gives the verdict. The program runs in an interpreter of its own,
which has never held them (`program.py`): arguments go to it and results come back, as JSON. So
what it prints, replaces, overrides or ends is its own, and a result is plain data of Python's own
types. Arguments are copies: a program that changes them changes nothing that a test looks at.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import Any

MOST = 1 << 20  # bytes of a result, and of what a run prints
LONGEST = 300  # characters of a value in a message
CLOSE = 1e-6  # between numbers with a point: absolute, and relative to the larger one
PYTHON = [sys.executable, "-I", "-S", "-X", "utf8"]
# raised inside a `map` or a loop of a test, these would end it early and in silence
_ENDS_LOOPS = ("StopIteration", "StopAsyncIteration")
Score = tuple[int, int, str]  # tests passed, tests in all, why the first one failed


class Broken(BaseException):
    """The program ended, took too long or answered what no program may. No Exception: a test that
    expects one may not take it for that."""


class Program:
    """A program that runs, and is asked to call its functions."""

    def __init__(self, runner: str, text: str, codec: dict[str, Any], deadline: float) -> None:
        self.plain = codec["plain"]
        self.restored = codec["restored"]
        self.deadline = deadline
        self.broken = self.call = ""  # why it answers no more; its last call, in words
        self.calls = 0
        inward, self.to = os.pipe()
        self.back, outward = os.pipe()
        self.process = subprocess.Popen(
            [*PYTHON, "-c", runner, str(inward), str(outward)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(inward, outward),
            start_new_session=True,
        )
        os.close(inward)
        os.close(outward)
        os.set_blocking(self.to, False)  # a program need not read
        try:
            came = self._asked(text)
            self.broken = "" if came[0] == "gave" else f"it raises {came[1]}: {came[2]}"
        except Broken as error:
            self.broken = str(error)

    def ask(self, name: str, args: Any, named: dict[str, Any]) -> Any:
        """What its function gives. Raises what that raises, and Broken."""
        # arguments in words before they are sent: a test may change them later
        words = [*map(_brief, args), *(f"{key}={_brief(named[key])}" for key in named)]
        self.call = f"{name}({', '.join(words)})"[:LONGEST]
        self.calls += 1
        if self.broken:
            raise Broken(self.broken)
        request = [
            name,
            [self.plain(value) for value in args],
            {key: self.plain(value) for key, value in named.items()},
        ]
        came = self._asked(request)
        try:
            if came[0] == "gave":
                result = self.restored(came[1])
                self.call = f"{self.call} gave {_brief(result)}"
                return result
            _, kind, text = came
        except (TypeError, ValueError, IndexError, OverflowError, RecursionError):
            raise self._break("its answer is no value") from None
        self.call = f"{self.call} raised {kind}: {text}"[: 2 * LONGEST]
        raise _error(kind, text)

    def _asked(self, request: Any) -> Any:
        data = (json.dumps(request) + "\n").encode()
        answer = bytearray()
        while data or not answer.endswith(b"\n"):
            left = max(0.0, self.deadline - time.monotonic())
            ends = select.select((self.back,), (self.to,) if data else (), (), left)
            if not ends[0] and not ends[1]:
                raise self._break("it takes too long")
            if ends[1]:
                try:
                    data = data[os.write(self.to, data) :]
                except BrokenPipeError:
                    raise self._break("it ended itself") from None
            if ends[0]:
                more = os.read(self.back, 1 << 16)
                answer += more
                if not more or len(answer) > MOST:
                    raise self._break("its result is too large" if more else "it ended itself")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise self._break("its answer is no value") from None

    def _break(self, why: str) -> Broken:
        self.broken = why
        return Broken(why)

    def close(self) -> None:
        """Ends it, and what it started in its session."""
        _end(self.process)
        os.close(self.to)
        os.close(self.back)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _brief(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "..."
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def _error(kind: str, text: str) -> Exception:
    """What the program raised, as an exception of this process."""
    known = getattr(builtins, kind, None) if kind not in _ENDS_LOOPS else None
    if isinstance(known, type) and issubclass(known, Exception):
        with suppress(TypeError):  # some want more than a text
            return known(text)
    return RuntimeError(f"{kind}: {text}")


# -- tests in Python ------------------------------------------------------------------------------


class _Counted(ast.NodeTransformer):
    """Counts each `assert` of a test instead of ending at the first that fails."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        text = "try:\n pass\nexcept Exception as _error:\n _missed(_error)\nelse:\n _passed()"
        guarded = ast.parse(text).body[0]
        assert isinstance(guarded, ast.Try)
        guarded.body = [node]
        return ast.fix_missing_locations(ast.copy_location(guarded, node))


def unit(program: Program, test: str, setup: str, entry: Collection[str], share: bool) -> Score:
    """Runs a test. Names that neither it nor `setup` nor Python binds are functions of the program;
    so are those of `entry`, which `setup` may hold unfinished. A test that asks for none of them
    says nothing of the program, and fails."""
    tree = ast.parse(test, "<test>")
    space: dict[str, Any] = {"__name__": "test"}
    exec(compile(setup, "<setup>", "exec"), space)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in {*entry, *(names - space.keys() - set(dir(builtins)))} - {""}:
        space[name] = _function(program, name)
    asserts = sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
    failures: list[str] = []
    passed: list[bool] = []  # of each assertion that was run

    def missed(error: BaseException) -> None:
        failures.append(_why(error, test, program))

    if share and asserts:
        space |= {"_missed": missed, "_passed": lambda: passed.append(True)}
        tree = ast.fix_missing_locations(_Counted().visit(tree))
    ended = False
    calls = program.calls
    try:
        exec(compile(tree, "<test>", "exec"), space)
        ended = True
    except BaseException as error:  # SystemExit too: of the test's, which is a fault of its own
        missed(error)
    if program.broken and not failures:  # a test may have caught it
        failures.append(f"{program.call}: {program.broken}")
    if asserts and not failures and program.calls == calls:
        return 0, asserts if share else 1, "the test calls nothing of the program"
    if not (share and asserts) or not passed:
        return (
            int(not failures),
            1 if ended or not share else max(1, asserts),
            "".join(failures[:1]),
        )
    # a test that broke off has assertions that nobody ran
    total = len(passed) + len(failures)
    return len(passed), total if ended else max(total, asserts), "".join(failures[:1])


def _function(program: Program, name: str) -> Callable[..., Any]:
    return lambda *args, **named: program.ask(name, args, named)


def _why(error: BaseException, test: str, program: Program) -> str:
    """A failure in words: the line of the test, and what the program's function did."""
    if isinstance(error, Broken):
        return f"{program.call}: {error}" if program.call else str(error)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name != "ask"
    ]
    text = test.splitlines()
    here = next((at for at in reversed(lines) if at and at <= len(text)), 0)
    line = text[here - 1].strip()[:LONGEST] if here else ""
    if not isinstance(error, AssertionError):
        line = f"{line} ({type(error).__name__}: {str(error)[:LONGEST]})"
    return f"{line}: {program.call}" if program.call else line


# -- arguments and results ------------------------------------------------------------------------


def called(program: Program, entry: str, args: list[Any], wanted: Any) -> Score:
    """One call of a function, and what it shall give."""
    try:
        result = program.ask(entry, args, {})
    except BaseException as error:
        words = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        return 0, 1, f"{program.call}: {words}"
    good = same(result, wanted)
    return int(good), 1, "" if good else f"{program.call}, not {_brief(wanted)}"


def same(result: Any, wanted: Any) -> bool:
    """Equality of plain data. A list is a tuple, since JSON has no tuples; a bool is not a
    number."""
    if isinstance(result, bool) or isinstance(wanted, bool):
        return result is wanted
    if isinstance(result, float) or isinstance(wanted, float):
        numbers = isinstance(result, (int, float)) and isinstance(wanted, (int, float))
        with suppress(OverflowError):  # an integer beyond the range of floats
            return numbers and math.isclose(result, wanted, rel_tol=CLOSE, abs_tol=CLOSE)
        return False
    if isinstance(result, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(result) == len(wanted) and all(map(same, result, wanted))
    if isinstance(result, dict) and isinstance(wanted, dict):
        named = {_key(key): value for key, value in result.items()}
        if len(named) < len(result) or named.keys() != wanted.keys():
            return False
        return all(same(named[key], wanted[key]) for key in wanted)
    return type(result) is type(wanted) and bool(result == wanted)


def _key(key: Any) -> Any:
    """A key of a dict as JSON writes it, which has texts alone."""
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    return repr(key) if isinstance(key, (int, float)) else key


# -- standard input and output --------------------------------------------------------------------


def ran(text: str, given_input: str, wanted: str, deadline: float) -> Score:
    """One run of a whole program. Its output is compared line by line, without the white space at
    the ends of lines and of the whole."""
    with open("solution.py", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    # files, not pipes: who keeps one open, or never reads, holds nobody up
    with ExitStack() as stack:
        source, out, err = (stack.enter_context(tempfile.TemporaryFile(dir=".")) for _ in range(3))
        source.write(given_input.encode("utf-8", "replace"))
        source.seek(0)
        process = subprocess.Popen(
            [*PYTHON, "solution.py"],
            stdin=source,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST)),
        )
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return 0, 1, f"for the input {_brief(given_input)} it takes too long"
        finally:
            _end(process)
        ends = (out.fileno(), err.fileno())
        printed, errors = (os.pread(end, MOST, 0).decode("utf-8", "replace") for end in ends)
    if code:
        last = errors.strip().rsplit("\n", 1)[-1] or f"it ends with the code {code}"
        return 0, 1, f"for the input {_brief(given_input)}: {last[:LONGEST]}"
    good = _lines(printed) == _lines(wanted)
    wrong = f"for the input {_brief(given_input)} it prints {_brief(printed)}, not {_brief(wanted)}"
    return int(good), 1, "" if good else wrong


def _lines(text: str) -> list[str]:
    # not `splitlines`, for which a form feed ends a line too
    return [line.rstrip() for line in text.strip().split("\n")]


# -- the verdict ----------------------------------------------------------------------------------


def judged(runner: str, text: str, task: dict[str, Any], seconds: float, share: bool) -> Any:
    """`{passed, total, why}` of a program. `runner`: the text of `program.py`. `task`: `tests`, a
    list of `{test}`, `{args, gives}` or `{stdin, stdout}`, with `setup` and `entry`. `seconds` are
    for all tests together; without `share` it ends at the first that fails."""
    deadline = time.monotonic() + seconds
    passed = total = 0
    why = ""
    program = None
    codec: dict[str, Any] = {"__name__": "codec"}
    exec(compile(runner, "<program.py>", "exec"), codec)
    try:
        for test in task["tests"]:
            if "stdin" in test:
                score = ran(text, test["stdin"], test["stdout"], deadline)
            else:
                program = program or Program(runner, text, codec, deadline)
                entries = (task["entry"], *test.get("own", ()))
                score = (
                    unit(program, test["test"], task["setup"], entries, share)
                    if "test" in test
                    else called(program, task["entry"], test["args"], test["gives"])
                )
            passed = passed + score[0]
            total = total + score[1]
            why = why or score[2]
            if why and not share:
                break
    finally:
        if program is not None:
            program.close()
    return {"passed": passed, "total": max(total, len(task["tests"])), "why": why}
