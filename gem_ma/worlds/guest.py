"""Foreign code is a guest: it is imported when it is used, prints nothing, and leaves the process's
random states as they were. All of this is process-wide, so guests take turns: in a second thread a
guest waits for the first to leave.
"""

from __future__ import annotations

import io
import os
import random
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from importlib import import_module
from itertools import accumulate
from threading import RLock
from types import ModuleType
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import near
from gem_ma.system.extras import install

# numpy's global random state, put aside for a guest and put back.
# `numpy.random.get_state` and `set_state` copy it number by number, which takes longer than a step
# of most environments. Another generator in its place takes a moment, but numpy then forgets the
# second of two normals, of which the caller may have drawn the first. So that one is kept here.

_FREE: list[Any] = []  # generators of guests that have left; to make one takes longest of all


class _Blank:
    """Stands for a generator while the rest of a state is read or written."""

    def __init__(self) -> None:
        self.state = {"bit_generator": "MT19937", "state": {}}


def put_aside(random: Any) -> Any:
    """Takes the caller's state out of `numpy.random`, and leaves another there that is to be
    seeded. What comes back is for `put_back`."""
    if not _is_quick(random):
        return random.get_state()
    aside = random.get_bit_generator(), _normal(random.mtrand._rand)
    lent = _FREE.pop() if _FREE else random.MT19937()
    random.set_bit_generator(lent)
    return *aside, lent


def put_back(random: Any, aside: Any) -> None:
    """Whatever the guest has done to `numpy.random`, the caller finds what was put aside."""
    if not _is_quick(random):
        random.set_state(aside)
        return
    generator, normal, lent = aside
    random.set_bit_generator(generator)
    if normal is not None:
        _give_normal(random.mtrand._rand, normal)
    _FREE.append(lent)


def _normal(state: Any) -> float | None:
    """The normal that waits in a `RandomState`, None where none does."""
    generator = state._bit_generator
    state._bit_generator = _Blank()
    try:
        rest = state.get_state(legacy=False)
    finally:
        state._bit_generator = generator
    return float(rest["gauss"]) if rest["has_gauss"] else None


def _give_normal(state: Any, normal: float) -> None:
    generator = state._bit_generator
    blank = _Blank()
    state._bit_generator = blank
    try:
        state.set_state({**blank.state, "has_gauss": 1, "gauss": normal})
    finally:
        state._bit_generator = generator


@cache
def _is_quick(random: Any) -> bool:
    """Whether this numpy is built as the short way needs it, tried on states of our own."""
    try:
        first, other = (random.RandomState(random.MT19937(5)) for _ in range(2))
        first.standard_normal(3)
        other.standard_normal(4)  # the last of which waits in the first one
        normal = _normal(first)
        if normal is None or _normal(other) is not None:
            return False
        _give_normal(other, normal)
        same = list(first.standard_normal(3)) == list(other.standard_normal(3))
        return same and callable(random.set_bit_generator)
    except Exception:  # another numpy, with other insides
        return False


# held while foreign code runs; a guest that copies or imports another one enters again
TURN = RLock()


def library(module: str, extra: str, *more: str, beside: str = "") -> ModuleType:
    """The module of a library, imported now, with nothing printed. Raises ConfigError with what to
    type where it is missing; `beside`: what to install where the extra is not enough."""
    # From the top: a package whose own import failed half way leaves parts behind, and asked for
    # alone such a part would answer, with half of what it knows.
    above = list(accumulate(module.split("."), "{}.{}".format))
    try:
        with quiet():
            for name in (*more, *above):
                found = import_module(name)
            return found
    except ImportError as error:
        # what C++ makes of a Ctrl-C while it is imported
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        if not isinstance(error, ModuleNotFoundError):
            raise
        lacks_more = beside and error.name and error.name.partition(".")[0] != extra
        typed = f'pip install "{beside}"' if lacks_more else install(extra)
        raise ConfigError(f"{extra}: there is no module {error.name!r}; type {typed}") from error


class Muted(io.StringIO):
    """A stderr that is thrown away. `beyond` is the one behind it, for lines of our own that come
    meanwhile from a signal or another thread."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.beyond = getattr(stream, "beyond", stream)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing that foreign code prints, or warns of, reaches the terminal."""
    with (
        TURN,
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(Muted(sys.stderr)),
    ):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def still() -> Iterator[None]:
    """Quiet, for C++ too: it writes its errors to the descriptor, past Python's `sys.stderr`."""
    with quiet():
        held = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        try:
            yield
        finally:
            os.dup2(held, 2)
            os.close(held)
            os.close(nowhere)


@contextmanager
def guest(seed: int) -> Iterator[None]:
    """Foreign code's turn: quiet, and with global random states of its own, made from `seed`. The
    caller's are put back."""
    with TURN:
        numpy = sys.modules.get("numpy")  # the base install has it; it may not be imported yet
        outside = random.getstate()
        beyond = put_aside(numpy.random) if numpy else None
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        try:
            with quiet():
                yield
        finally:
            random.setstate(outside)
            if numpy:
                put_back(numpy.random, beyond)


@contextmanager
def starting(name: str, what: str = "started") -> Iterator[None]:
    """An environment is made: whatever its library raises, an id, an option or a package that is
    missing, is a ConfigError in one line that begins with the name."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{name}: cannot be {what}: {one_line(error)}") from error


def unknown(what: str, name: str, known: Collection[str]) -> ConfigError:
    """The fault of a name that a library does not have, with the nearest that it has."""
    close = near(name, known)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {len(known)}"
    return ConfigError(f"{what} is called {name!r} ({hint})")


def one_line(error: BaseException) -> str:
    """What a library says of its failure, on a line: nltk frames its advice by stars."""
    plain = re.sub(r"\x1b\[[\d;]*m|\*{5,}", " ", str(error))
    line = " ".join(plain.split())[:200]
    # the text of a KeyError is a bare key, that of an exit a bare number
    bare = isinstance(error, (KeyError, SystemExit, AssertionError)) and line
    return f"{type(error).__name__}: {line}" if bare else line or type(error).__name__
