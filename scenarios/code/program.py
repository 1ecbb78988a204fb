"""The program's side of a judgement: an interpreter that runs what a model wrote, and answers calls
of its functions. The text of this file is run behind the wall, with the standard library alone.

It is started anew for each judgement and knows no test: it reads the program, then names of
functions with their arguments. The judge reads this file too, for the form of values between them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

_SCALARS: tuple[Any, ...] = (bool, int, float, str)  # in this order: a bool is an int too
_GROUPS: tuple[Any, ...] = (list, tuple, set, frozenset)
LONGEST = 300  # characters of what an exception says


def plain(value: Any) -> list[Any]:
    """A value as JSON that keeps its type; what derives from a type of Python's own becomes that
    type. Raises TypeError for everything else."""
    for base in _SCALARS:
        if isinstance(value, base):
            # hexadecimal, because Python reads no decimal number of more than 4,300 digits
            return ["int", hex(value)] if base is int else [base.__name__, base(value)]
    if value is None:
        return ["none", 0]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", list(value)]
    if isinstance(value, dict):
        return ["dict", [[plain(key), plain(inner)] for key, inner in value.items()]]
    for base in _GROUPS:
        if isinstance(value, base):
            return [base.__name__, [plain(item) for item in value]]
    raise TypeError(f"a value of the type {type(value).__name__} cannot leave its process")


def restored(data: Any) -> Any:
    """The value behind its JSON. Raises TypeError or ValueError for what `plain` never gives."""
    kind, inside = data
    if kind == "int":
        return int(inside, 16)
    if kind == "none":
        return None
    if kind == "complex":
        return complex(*map(float, inside))
    if kind == "dict":
        return {restored(key): restored(value) for key, value in inside}
    if kind == "bytes":
        return bytes(inside)
    for base in (*_SCALARS, *_GROUPS):
        if kind == base.__name__:
            # whoever answers is not trusted: the type is made here, whatever stands there
            return base(map(restored, inside)) if base in _GROUPS else base(inside)
    raise ValueError("no value")


def _outcome(work: Callable[[], Any]) -> list[Any]:
    try:
        return ["gave", plain(work())]
    except BaseException as error:  # SystemExit too: the next call is answered all the same
        try:
            text = str(error)[:LONGEST]
        except BaseException:  # a class of the program's own
            text = "?"
        return ["raised", type(error).__name__, text]


def main() -> None:
    """Loads the program on the first line of the pipe, then answers a call a line."""
    inward = os.fdopen(int(sys.argv[1]), "r")
    outward = int(sys.argv[2])
    # bound before the program runs: it may replace what these modules offer
    loads = json.loads
    dumps = json.dumps
    write = os.write
    text = loads(inward.readline())
    space: dict[str, Any] = {"__name__": "solution"}
    came = _outcome(lambda: exec(compile(text, "<program>", "exec"), space))
    while True:
        data = (dumps(came) + "\n").encode()
        while data:
            data = data[write(outward, data) :]
        line = inward.readline()
        if not line:
            return
        name, values, named = loads(line)
        arguments = [restored(value) for value in values]
        options = {key: restored(value) for key, value in named.items()}
        came = _outcome(lambda n=name, a=arguments, o=options: space[n](*a, **o))  # type: ignore[misc]


if __name__ == "__main__":
    main()
