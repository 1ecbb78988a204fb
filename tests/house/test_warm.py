"""A command that a warm process forks does what a process of Python does."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.command_line import environment, gem_ma, signalled
from tests.warm import start

SALTED = "raise ValueError(f'salt {hash(\"a word\")}')\n"
LEAVES = "import os, sys\nos.chdir('/')\nos.environ['LEFT'] = '1'\nsys.path.insert(0, '/left')\n"
SLEEPS = "import pathlib, time\npathlib.Path('ready').write_text('1')\ntime.sleep(60)\n"


@pytest.mark.parametrize(
    "words", [["list", "scenarios"], ["run", "nowhere"], ["run", "dilemma", "-n", "2", "--json"]]
)
def test_a_fork_prints_and_returns_what_a_process_does(tmp_path: Path, words: list[str]) -> None:
    there, here = tmp_path / "a", tmp_path / "b"
    for folder in (there, here):
        folder.mkdir()
    real = subprocess.run(
        [sys.executable, "-m", "gem_ma", *words],
        cwd=there,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    fork = gem_ma(*words, cwd=here)
    assert (fork.returncode, fork.stdout) == (real.returncode, real.stdout)
    assert fork.stderr == real.stderr


def test_a_command_and_the_next_have_two_salts(tmp_path: Path) -> None:
    (tmp_path / "salted.py").write_text(SALTED)
    said = [gem_ma("run", "salted:Game", cwd=tmp_path).stderr for _ in range(4)]
    assert "salt " in said[0] and said[0] != said[1] and said[:2] == said[2:]


def test_what_a_command_changes_stays_in_it(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    (tmp_path / "looks.py").write_text(
        'import os, sys\nraise ValueError(f\'{os.environ.get("LEFT")} {"leaves" in sys.modules} {"/left" in sys.path} {os.getcwd()}\')\n'
    )
    for _ in range(2):
        assert gem_ma("run", "leaves:Game", cwd=tmp_path).returncode == 2
    for _ in range(2):
        assert f"None False False {tmp_path}" in gem_ma("run", "looks:Game", cwd=tmp_path).stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_reaches_the_fork_alone(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    for _ in range(2):
        ready = tmp_path / "ready"
        ended, _, _, said = signalled(
            "run", "sleeps:Game", cwd=tmp_path, number=number, ready=ready
        )
        assert (ended, said.strip()) == (code, "stopped")
        ready.unlink()


def test_two_run_at_once_and_one_that_is_killed_says_so(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with tempfile.TemporaryFile() as out, open(os.devnull) as none:
        how = {"cwd": tmp_path, "env": environment(), "streams": (none, out, out)}
        slow = [start("run", "sleeps:Game", **how) for _ in range(3)]
        assert gem_ma("--version", cwd=tmp_path).returncode == 0
        assert [command.poll() for command in slow] == [None] * 3
        for command in slow:
            command.kill()
        assert [command.wait(timeout=30) for command in slow] == [-signal.SIGKILL] * 3
