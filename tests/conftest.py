"""Fixtures that several test files share. Models are made once per test process, in seconds, and
never changed: engines load copies."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gem_ma.system.import_folders import _FOLDERS
from tests import unsynced
from tests.browser import MISSING, Browser

ROOT = Path(__file__).resolve().parents[1]

if find_spec("hypothesis"):  # the environment of vLLM may have none
    from hypothesis import settings

    settings.register_profile("shared", deadline=None)  # a busy machine is no fault of the code
    # the same examples each time: a change is refused for what it does, not for what was drawn
    settings.register_profile("fixed", deadline=None, derandomize=True)  # `.ci/run`
    settings.register_profile("many", deadline=None, max_examples=1000)  # `make test-learning`
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "shared"))
# before torch: more threads on a shared machine are many times slower
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# an address of the shell would be asked in place of the servers of the tests
for _name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
    os.environ.pop(_name, None)
unsynced.begin()

AT_START = {*os.environ, "RANK", "WORLD_SIZE", "OPENAI_API_KEY", "OPENAI_BASE_URL"}
IN_TEST = "PYTEST_CURRENT_TEST"
# what a run of the suite may leave in the checkout
CACHES = {".hypothesis", ".pytest_cache", "__pycache__"}
FILES = pytest.StashKey[set[str]]()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # whoever asks for these tests alone wants them to run
    skipped = Browser.find() is None and config.getoption("markexpr") != "browser"
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            if skipped:
                item.add_marker(pytest.mark.skip(reason=MISSING))


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[FILES] = set(os.listdir(ROOT))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in several processes (`make test`) fails where a test wrote into the checkout."""
    if not session.config.getoption("numprocesses", None):  # also a process of xdist itself
        return
    left = set(os.listdir(ROOT)) - session.config.stash[FILES] - CACHES
    if left:
        names = ", ".join(sorted(left))
        session.config.get_terminal_writer().line(
            f"\ntests leave in this folder: {names}; a test writes into tmp_path"
        )
        session.exitstatus = session.exitstatus or 1


def pytest_collection() -> None:
    gc.disable()  # nothing that is collected goes away: a third of the time went into looking


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # else every full collection of a test walks through 700,000 objects of pytest


def pytest_unconfigure() -> None:
    if "tests.warm" in sys.modules:
        sys.modules["tests.warm"].close()


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _surroundings() -> dict[str, object]:
    """What a process has one of, and one test could leave changed for the next."""
    torch = sys.modules.get("torch")
    return {
        "folder": os.getcwd(),
        # a library that is imported may add names of its own
        "environment": {name: os.environ.get(name) for name in AT_START if name != IN_TEST},
        "signals": [signal.getsignal(number) for number in SIGNALS],
        "umask": _umask(),
        "type of torch": str(torch.get_default_dtype()) if torch else "torch.float32",
    }


def _umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


@contextmanager
def same_places() -> Iterator[None]:
    """Imports look into the same folders afterwards. A command that runs in this process adds its
    folder, and that of each file that it names: `tests` among them would turn `tests/trl` into a
    package `trl`, which the next file takes for the library."""
    places, folders = sys.path[:], _FOLDERS[:]
    yield
    added = set(_FOLDERS) - {*folders, *places}
    for name, module in list(sys.modules.items()) if added else ():
        file = getattr(module, "__file__", None) or ""
        if "." not in name and os.path.dirname(file) in added:  # with a dot: the suite's own
            del sys.modules[name]
    sys.path[:], _FOLDERS[:] = places, folders


@pytest.fixture(autouse=True, scope="session")
def places_of_the_session() -> Iterator[None]:
    with same_places():
        yield


@pytest.fixture(autouse=True, scope="module")
def places_of_a_file(places_of_the_session: None) -> Iterator[None]:
    """Also what fixtures of a whole file add."""
    with same_places():
        yield


@pytest.fixture(autouse=True)
def leaves_no_trace() -> Iterator[None]:
    """One test may not decide what the next one sees."""
    before = _surroundings()
    with same_places():
        yield
    if full_weights := sys.modules.get("gem_ma.engines.vllm.server"):
        # an engine that a test left behind still owns its address, which the system gives again
        full_weights._OWNERS.clear()
    after = _surroundings()
    changed = {name: (before[name], after[name]) for name in after if before[name] != after[name]}
    assert not changed, f"the test leaves changed, with what was before and after: {changed}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium for the tests of one file."""
    with Browser(tmp_path_factory.mktemp("chromium")) as one:
        yield one


def _model(
    tmp_path_factory: pytest.TempPathFactory, scenario: str, size: str, **changes: int
) -> Path:
    """A model of this size of which some numbers may be others."""
    pytest.importorskip("torch", reason="needs the train extra")
    pytest.importorskip("transformers", reason="needs the train extra")
    from gem_ma.engines.local.tiny import SIZES, make_model

    path = tmp_path_factory.mktemp("models") / f"{scenario}-{size}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, size, replace(SIZES[size], **changes))
        make_model(path, scenario, size=size, seed=1)
    return path


@pytest.fixture(scope="session")
def kuhn_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word-level model of Kuhn poker, untrained."""
    return _model(tmp_path_factory, "kuhn_poker", "word")


@pytest.fixture(scope="session")
def thin_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `kuhn_model` with one layer, which takes half its time."""
    return _model(tmp_path_factory, "kuhn_poker", "word", layers=1)


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level model with a ChatML template, untrained."""
    return _model(tmp_path_factory, "kuhn_poker", "nano")


@pytest.fixture(scope="session")
def referential_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the referential game, untrained."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    path = tmp_path_factory.mktemp("models") / "referential"
    make_model(path, "referential")
    return path


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt: whoever runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def hangup() -> Iterator[None]:
    """A terminal that is closed ends who runs there: under `nohup` it is ignored, by children too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
