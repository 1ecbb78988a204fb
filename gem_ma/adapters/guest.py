"""Foreign code is a guest: it is imported when it is used, prints nothing, and leaves the process's
random states as they were. All of this is process-wide, so a guest runs inline, never in a thread.
"""

from __future__ import annotations

import io
import random
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from types import ModuleType

from gem_ma.errors import ConfigError
from gem_ma.installing import install


def library(module: str, extra: str, *more: str) -> ModuleType:
    """The module of a library, imported now, with nothing printed. Raises ConfigError with what to
    type where it is missing."""
    try:
        with quiet():
            for name in more:
                import_module(name)
            return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{extra}: there is no module {error.name!r}; type {install(extra)}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing that foreign code prints, or warns of, reaches the terminal."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def guest(seed: int) -> Iterator[None]:
    """Foreign code's turn: quiet, and with global random states of its own, made from `seed`. The
    caller's are put back."""
    numpy = sys.modules.get("numpy")  # the base install has it; it may not be imported yet
    outside = random.getstate()
    beyond = numpy.random.get_state() if numpy else None
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed)
    try:
        with quiet():
            yield
    finally:
        random.setstate(outside)
        if numpy:
            numpy.random.set_state(beyond)


def one_line(error: BaseException) -> str:
    """What a library says of its failure, on a line: nltk frames its advice by stars."""
    plain = re.sub(r"\x1b\[[\d;]*m|\*{5,}", " ", str(error))
    return " ".join(plain.split())[:200] or type(error).__name__
