"""A pytest plugin: this process takes one test file after another from a pipe that it shares with
others, and writes down what each cost, and each long test of it.

The pipe holds names of equal length, so that one read is one name, whoever reads. The next file is
collected before the last test of the present one runs: pytest ends the fixtures that the next test
does not share, and those of the whole session are shared.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES, COSTS = "GEM_MA_TEST_FILES", "GEM_MA_TEST_COSTS"  # a pipe's number; a file's path
LENGTH = 160  # bytes of a name in the pipe
MODULES = pytest.StashKey[dict[Path, pytest.Collector]]()
LONG = 0.7  # CPU seconds from which on a test has a line of its own
TICKS = os.sysconf("SC_CLK_TCK")
DEAR = pytest.StashKey[dict[str, float]]()  # the long tests of the present file
PLACES = pytest.StashKey[list[str]]()  # where imports look before any test has run


def padded(name: str) -> bytes:
    assert len(name.encode()) <= LENGTH, name
    return name.encode().ljust(LENGTH)


def pytest_collection(session: pytest.Session) -> bool:
    """Knows all files by name; imports none. A second `perform_collect` would make folders anew,
    and fixtures belong to the folder that was made when their conftest.py was read."""
    paths = (session.config.rootpath / "tests").rglob("test_*.py")
    session.perform_collect([str(path) for path in sorted(paths)], genitems=False)
    session.items = []
    session.config.stash[PLACES] = sys.path[:]
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    # The first call has files in place of tests. `-m` and `-k` choose among tests, so they may not
    # see these: a file has no mark, and would be left out whole.
    if MODULES not in config.stash:
        config.stash[MODULES] = {module.path: module for module in items}
        items.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    began = _spent()
    yield
    if (cost := _spent() - began) >= LONG:
        item.session.stash[DEAR][item.nodeid] = cost


def pytest_runtestloop(session: pytest.Session) -> bool:
    items = _items(session)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop:
            raise session.Interrupted(str(session.shouldfail or session.shouldstop))
        item = following
    return True


def _items(session: pytest.Session) -> Iterator[pytest.Item]:
    pipe, modules = int(os.environ[NAMES]), session.config.stash[MODULES]
    while name := os.read(pipe, LENGTH):
        path, began, failed = name.decode().strip(), _spent(), session.testsfailed
        dear = session.stash[DEAR] = {}
        gc.disable()  # as in conftest.py
        with _as_at_first(session.config.stash[PLACES]):
            items = list(session.genitems(modules[session.config.rootpath / path]))
        session.config.hook.pytest_collection_modifyitems(
            session=session, config=session.config, items=items
        )
        gc.enable()
        gc.freeze()
        session.testscollected += len(items)
        yield from items
        row = [path, _spent() - began, session.testsfailed - failed, dear]
        with Path(os.environ[COSTS]).open("a") as costs:
            costs.write(f"{json.dumps(row)}\n")


@contextmanager
def _as_at_first(places: list[str]) -> Iterator[None]:
    """A file is imported as if it were the first: the present one's fixtures still stand, and a
    folder that they added could hold a module of the same name."""
    before, sys.path[:] = sys.path[:], places
    try:
        yield
    finally:
        sys.path[:] = before


def _spent() -> float:
    """CPU seconds of this process, of its children that have ended, and of the warm processes with
    theirs, which do not end before this one."""
    spent = sum(os.times()[:4])
    if "tests.warm" in sys.modules:
        for warm in sys.modules["tests.warm"]._pair:
            stat = Path(f"/proc/{warm.process.pid}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, stat[11:15])) / TICKS
    return spent
