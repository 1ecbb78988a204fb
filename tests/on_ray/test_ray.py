"""A training whose plays run on a Ray cluster of this machine, beside the same one in one process."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from gem_ma.cli.main import main
from tests.on_ray.watching import SAME, children, listening, write_busy

pytestmark = pytest.mark.ray


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_busy("busy.py")


def test_a_worker_that_is_killed_in_play_changes_no_byte_and_nothing_listens_outside(
    busy: str,
) -> None:
    seen: dict[str, object] = {}

    def kill() -> None:
        """Kills a worker as soon as one plays, and another one later."""
        end = time.monotonic() + 120
        killed: list[int] = []
        while time.monotonic() < end and len(killed) < 2:
            playing = [
                pid
                for pid, line in children().items()
                if "ray::Player.play" in line and pid not in killed
            ]
            if playing:
                seen.setdefault("wide", listening())
                os.kill(playing[0], signal.SIGKILL)
                killed.append(playing[0])
                time.sleep(1.0)
            time.sleep(0.002)
        seen["killed"] = killed

    assert main(["train", busy, "--out", "alone", "--quiet"]) == 0
    killer = threading.Thread(target=kill)
    killer.start()
    began = time.monotonic()
    command = ["train", busy, "--out", "ray", "--quiet", "--ray", "local", "--workers", "2"]
    assert main(command) == 0
    killer.join()
    print(f"{len(seen['killed'])} workers killed; {time.monotonic() - began:.1f} s in all")  # type: ignore[arg-type]
    assert len(seen["killed"]) == 2 and seen["wide"] == []  # type: ignore[arg-type]
    for name in SAME:
        assert Path("ray", name).read_bytes() == Path("alone", name).read_bytes(), name
