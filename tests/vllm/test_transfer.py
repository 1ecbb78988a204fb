"""`route: nccl` with vLLM's own trainer side: `real_transfer.py` runs in its environment once, and
these tests read what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.serving import ENVIRONMENT, PYTHON, ROOT, VllmServer


@pytest.fixture(scope="module")
def found(
    models: dict[str, Path],
    servers: dict[str, VllmServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("transfer") / "found.json"
    script = Path(__file__).with_name("real_transfer.py")
    done = subprocess.run(
        [PYTHON, script, models["untied_words"], models["bytes"], servers["bytes"].url, out],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1_000,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made: dict[str, Any] = json.loads(out.read_text())
    print(made)
    return made


def test_vllms_trainer_side_drives_a_publish_to_two_servers(found: dict[str, Any]) -> None:
    assert found["published"]["replicas"] == 2 and found["published"]["parity_gap"] <= 1e-4
    asked = [
        "/pause?mode=abort",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/reset_prefix_cache",
        "/update_weight_version",
        "/resume",
    ]
    for paths in found["paths"]:
        assert [path for path in paths if path != "/weight_info"] == asked
    assert found["ranks"] == [1, 2] and found["paused"] == [False, False]


def test_a_vllm_server_without_a_transfer_refuses_in_one_line_and_goes_on(
    found: dict[str, Any],
) -> None:
    assert "init_weight_transfer_engine failed" in found["refused"], found["refused"]
    assert "\n" not in found["refused"] and not found["is_paused"] and found["after"] == 6
