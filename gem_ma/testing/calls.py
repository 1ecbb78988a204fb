"""A scenario with its calls intercepted. A play is a function of (seed, task, actions, call
results): two plays are compared under the same results.

The scenario's own code is not touched: a copy of the object gets a `play` that passes every
effect on and puts another function into each Call.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from gem_ma.kernel.scenario import Call, Scenario
from gem_ma.testing.kit import differing

# (call, how many before it in this play, the play's start)
Instead = Callable[[Call, int, str], Call]


def counting(scenario: Scenario, runs: list[int]) -> Scenario:
    """Each run of a call's function appends to `runs`. Raises TypeError where the object takes
    no further attributes."""

    def counted(call: Call, number: int, start: str) -> Call:
        def run(*args: Any, **kwargs: Any) -> Any:
            runs.append(1)
            return call.function(*args, **kwargs)

        return Call(run, *call.args, **call.kwargs)

    return _intercepted(scenario, counted)


def remembering(
    scenario: Scenario, memory: dict[Any, tuple[bool, Any]], *, whatever_the_seed: bool = False
) -> Scenario:
    """A call that was made before, at the same place of a play with the same start (or of any),
    gives what it gave then."""

    def remembered(call: Call, number: int, start: str) -> Call:
        name = getattr(call.function, "__qualname__", type(call.function).__name__)
        # without addresses: a function object prints another one in every play
        arguments = re.sub(r"0x[0-9a-f]+", "", f"{call.args!r} {sorted(call.kwargs.items())!r}")

        def run(*args: Any, **kwargs: Any) -> Any:
            key = (None if whatever_the_seed else start, number, name, arguments)
            # an error is remembered too: outside work that fails once may succeed the next time
            if key not in memory:
                try:
                    memory[key] = True, call.function(*args, **kwargs)
                except Exception as error:
                    memory[key] = False, error
            fine, value = memory[key]
            if not fine:
                raise value
            return value

        return Call(run, *call.args, **call.kwargs)

    return _intercepted(scenario, remembered)


def _intercepted(scenario: Scenario, instead: Instead) -> Scenario:
    play = scenario.play

    def wrapped(rng: random.Random, task: Any) -> Any:
        start = f"{rng.getstate()!r} {task!r}"
        inner = play(rng, task)
        # a `play` that is not a generator goes through as it is, so that the kernel names the fault
        return _passing(inner, instead, str(hash(start))) if hasattr(inner, "send") else inner

    return differing(scenario, play=wrapped)


def _passing(inner: Any, instead: Instead, start: str) -> Iterator[Any]:
    """The generator as it is, but for its calls."""
    answer = None
    thrown = None
    calls = 0
    while True:
        try:
            effect = inner.send(answer) if thrown is None else inner.throw(thrown)
        except StopIteration:
            return
        answer = None
        thrown = None
        if isinstance(effect, Call):
            effect = instead(effect, calls, start)
            calls = calls + 1
        try:
            answer = yield effect
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as error:
            thrown = error  # what the kernel throws in must reach the author's own try
