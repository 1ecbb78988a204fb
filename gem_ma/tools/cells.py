"""What the child of a worker does: it runs the cells of a call, one after another, and says what
came of each. `inside.py` imports this file, with the standard library alone."""

from __future__ import annotations

import ast
import base64
import builtins
import contextlib
import json
import linecache
import os
import pickle
import random
import resource
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

KEPT_WHY = 2_000  # characters of an error
MAX_OPEN = 64  # descriptors of a process


def live(wall: dict[str, Any], stdin: int, out: int, cells: int, result: int) -> None:
    """Runs cell after cell in one namespace."""
    os.setsid()
    for old, new in ((stdin, 0), (out, 1), (out, 2)):
        os.dup2(old, new)
    low, high = sorted((cells, result))
    for first, behind in ((3, low), (low + 1, high), (high + 1, MAX_OPEN)):
        os.closerange(first, behind)  # the supervisor's: a child may not answer in its name
    memory = wall["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.chdir(wall["folder"])
    random.seed(0)  # a session that is built again draws what it drew
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    number = 0
    while line := line_of(cells):
        request = json.loads(line)
        # bound before the text of a model runs: it may replace what these modules offer
        dumps = json.dumps
        write = os.write
        came = _graded(request) if "function" in request else run(request["code"], space, number)
        for name in ("stdout", "stderr"):
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()
        number += 1
        write_all(result, (dumps({**came, "number": number}) + "\n").encode(), write)


def _graded(request: dict[str, Any]) -> dict[str, Any]:
    module, _, name = request["function"].partition(":")
    try:
        # a pickle of ours, which comes in: nothing that is pickled ever goes out
        args, options = pickle.loads(base64.b64decode(request["pickled"]))
        space: Any = {"__name__": module}
        # of ours too, where the package is not mounted
        exec(compile(request.get("source", ""), f"<{module}>", "exec"), space)
        value = (space.get(name) or getattr(import_module(module), name))(*args, **options)
        json.dumps(value, allow_nan=False)
    except BaseException as error:  # SystemExit too: it is the answer that asks for the end
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[:KEPT_WHY]}
    return {"status": "ok", "value": value}


def run(code: str, space: dict[str, Any], number: int) -> dict[str, Any]:
    """Runs a cell as an interactive Python does: what its last line gives is printed."""
    file = f"<cell {number}>" if number else "<cell>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    try:
        tree = ast.parse(code, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        why = f"SystemExit: {error.code}"[:KEPT_WHY]
        return {"status": "error", "why": why} if error.code not in (None, 0) else {"status": "ok"}
    except BaseException as error:
        why = f"{type(error).__name__}: {_words(error)}"[:KEPT_WHY]
        with contextlib.suppress(BaseException):
            print(_trace(error), file=sys.stderr)
        return {"status": "error", "why": why}
    return {"status": "ok"}


def _words(error: BaseException) -> str:
    with contextlib.suppress(BaseException):  # of a class of the model's own
        return str(error)
    return "?"


def _trace(error: BaseException) -> str:
    """The traceback without the frames of this file."""
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_filename == __file__:
        here = here.tb_next
    text = traceback.format_exception(type(error), error, here, limit=-8, chain=False)
    return "".join(text).rstrip()


def line_of(end: int) -> bytes:
    """The next line of a pipe on which nobody writes a second one before it is answered."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(end, 1 << 16)):
        line += more
    return line


def write_all(end: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    while data:
        data = data[write(end, data) :]
