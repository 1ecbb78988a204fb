"""The suite's dealer: what one test file adds to the folders of imports, the next does not see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.dealing import COSTS, NAMES, padded

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = "from tests.conftest import leaves_no_trace, places_of_a_file, places_of_the_session\n"
# its fixture stands while the next file is imported, and ends after that
ADDS = """
from pathlib import Path

import pytest
from gem_ma.system.import_folders import search_folder

@pytest.fixture(scope="module")
def a_file_is_named():
    search_folder(Path({tests!r}))

def test_one(a_file_is_named): ...
def test_two(a_file_is_named): ...
"""
# a folder beside the tests would be a package of that name
LOOKS = """
from importlib.util import find_spec
SEEN = find_spec("trl_of_nobody")

def test_sees_nothing(tmp_path):
    from gem_ma.system.import_folders import search_folder
    search_folder(tmp_path)
    assert SEEN is find_spec("trl_of_nobody") is None
"""


def test_the_folders_of_one_file_are_not_those_of_the_next(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "trl_of_nobody").mkdir(parents=True)
    (tests / "test_adds.py").write_text(ADDS.format(tests=str(tests)))
    (tests / "test_looks.py").write_text(LOOKS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    names, ours = os.pipe()
    for file in ("test_adds.py", "test_looks.py"):
        os.write(ours, padded(f"tests/{file}"))
    os.close(ours)
    passed = {NAMES: str(names), COSTS: str(tmp_path / "costs"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.dealing", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | passed,
        pass_fds=[names],
        capture_output=True,
        text=True,
    )
    os.close(names)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
