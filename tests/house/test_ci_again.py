"""`.ci/again.py` runs a failed test once more, alone: a hiccup is told and passes, a fault is red."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("case", ["a - b", "c[d]"])
def test_fails_at_first(case):
    seen = Path(case.replace(" ", "_"))
    if not seen.exists():
        seen.touch()
        assert case == "the first trace"

def test_fails_always():
    assert {always}
"""


def again(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs the script where `.venv/bin/python` is this interpreter."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    words = [sys.executable, str(ROOT / ".ci" / "again.py"), *command]
    site = os.pathsep.join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])
    # pytest alone, in a third of the time
    environment = {**os.environ, "PYTHONPATH": site, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.mark.longest
@pytest.mark.parametrize("fault", [False, True])
def test_a_test_that_passes_alone_is_told_and_a_fault_is_red(tmp_path: Path, fault: bool) -> None:
    (tmp_path / "test_it.py").write_text(TEST.replace("{always}", str(not fault)))
    done = again(tmp_path, sys.executable, "-m", "pytest", "-q", "test_it.py")
    assert done.returncode == int(fault)
    told = [line for line in done.stdout.splitlines() if line.startswith(("flaky: ", "red: "))]
    assert told == [
        "flaky: test_it.py::test_fails_at_first[a - b]",
        "flaky: test_it.py::test_fails_at_first[c[d]]",
        *(["red: test_it.py::test_fails_always"] if fault else []),
    ]
    # the first trace stands behind the name
    assert "the first trace" in done.stdout.split("flaky: ", 1)[1].split("flaky: ")[0]


def test_a_command_that_fails_without_a_test_is_red(tmp_path: Path) -> None:
    assert again(tmp_path, sys.executable, "-c", "raise SystemExit(3)").returncode == 3
