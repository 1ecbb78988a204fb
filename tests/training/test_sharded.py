"""A learner in parts: the gradients of a whole one, checkpoints that any number of processes reads,
half the memory in each of two; and a run that is killed goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
ROOT = Path(__file__).parents[2]


def told(processes: int, job: str, model: Path, folder: Path) -> dict[str, Any]:
    """What the first of so many processes gives."""
    words = [str(processes), job, str(model), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.sharded_process", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.sharded
def test_gradients_in_parts_are_those_of_a_whole_learner(byte_model: Path, tmp_path: Path) -> None:
    """Gradients, not weights after a step: Adam makes the same step of half a gradient."""
    for name, gap in told(2, "compare", byte_model, tmp_path).items():
        # in bfloat16 the parts of a sum are rounded; a scale of .5 would be far above it
        assert gap < (0.01 if name.startswith("bfloat16") else 1e-5), (name, gap)


@pytest.mark.sharded
def test_the_first_process_alone_publishes_to_a_server_and_all_hear_of_a_gap(
    byte_model: Path, tmp_path: Path
) -> None:
    result = told(2, "elsewhere", byte_model, tmp_path)
    for kind in ("full False", "lora False"):
        gap, taken, version, _ = result[kind]
        assert gap < 1e-5 and taken == [1, 0] and version == 1, (kind, gap)
    refused, taken, version, _ = result["full True"]
    assert "sampler and learner differ" in str(refused) and version == 0


def furthest(one: dict[str, Any], other: dict[str, Any]) -> float:
    return max(
        float(np.abs(np.array(weight) - np.array(other[name])).max())
        for name, weight in one.items()
    )


@pytest.mark.sharded
def test_two_processes_go_on_bit_for_bit_and_one_goes_on_within_rounding(
    byte_model: Path, tmp_path: Path
) -> None:
    undisturbed = told(2, "steps", byte_model, tmp_path)
    (tmp_path / "meet-steps").unlink(missing_ok=True)
    again, alone = (told(count, "steps", byte_model, tmp_path) for count in (2, 1))
    assert again == undisturbed
    for kind in ("full", "lora"):
        assert furthest(alone[kind], undisturbed[kind]) < 1e-6, kind


@pytest.mark.sharded
def test_each_of_two_processes_holds_half_of_a_learner(tmp_path: Path) -> None:
    from gem_ma.engines.local.tiny import make_model

    make_model(tmp_path / "model", "referential", size="medium", positions=256)
    half, alone = (told(count, "memory", tmp_path / "model", tmp_path) for count in (2, 1))
    for name in ("weights", "gradients", "moments"):
        assert half[name] <= 0.6 * alone[name], (name, half, alone)


# -- runs ----------------------------------------------------------------------------------------

RUN = (
    "train.shard=true",
    "train.steps=6",
    "train.episodes=16",
    "train.save_every=2",
    "evaluate.episodes=8",
    "train.warm_start={}",
    "policies.listener.lora={rank: 4}",
    "train.loss={kl: 0.05, minibatches: 2}",
    "train.lr=0.00001",
)


def command(path: Path, model: Path, processes: int, *words: str) -> subprocess.Popen[str]:
    models = [f"policies.{agent}.model=transformers/{model}" for agent in ("speaker", "listener")]
    line = ["train", str(ROOT / "configs" / "referential.yaml"), *models, *RUN, *words]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gem_ma",
            *line,
            "--quiet",
            "--out",
            path.name,
        ]  # relative, as a run folder is by default
        + ["--processes", str(processes)] * (processes > 1),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=path.parent,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(started: subprocess.Popen[str]) -> None:
    _, said = started.communicate(timeout=280)
    assert started.returncode == 0, said


def weights_of(path: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    files = sorted((path / "models").glob("*/*.safetensors"))
    assert len(files) == 2
    return {
        f"{file.parent.name}/{key}": it for file in files for key, it in load_file(file).items()
    }


@pytest.fixture(scope="module")
def unbroken(referential_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes to its end."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    ended(command(path, referential_model, 2))
    return path


def truth(path: Path) -> dict[str, bytes]:
    """Everything of a run folder that must not depend on interruptions."""
    from safetensors.numpy import load_file

    files = [path / name for name in ("episodes.jsonl", "metrics.jsonl", "summary.json")]
    last = path / "checkpoints" / "step-000006"
    files += sorted(last.glob("*.json"))
    # tensors, not bytes: the writer has the names in its head in any order
    parts = {
        f"{file.name}/{name}": tensor.tobytes()
        for file in sorted(last.glob("shard-*"))
        for name, tensor in load_file(file).items()
    }
    assert parts
    return {**parts, **{file.name: file.read_bytes() for file in files}}


@pytest.mark.sharded
def test_a_run_whose_process_is_killed_ends_bit_for_bit_as_an_unbroken_one(
    referential_model: Path, unbroken: Path, tmp_path: Path
) -> None:
    from tests.training.test_processes import child, until_saved

    started = command(tmp_path / "run", referential_model, 2)
    until_saved(tmp_path / "run", 2)
    os.kill(child(started.pid, 1), signal.SIGKILL)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 1 and "process 1 of 2 was ended by signal 9" in said
    # what is left of a checkpoint that was being written is none
    (tmp_path / "run" / "checkpoints" / "step-000004.tmp-parts").mkdir(exist_ok=True)
    ended(command(tmp_path / "run", referential_model, 2))
    assert truth(tmp_path / "run") == truth(unbroken)
    assert not list((tmp_path / "run" / "checkpoints").glob("*.tmp-*"))


@pytest.mark.sharded
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(
    referential_model: Path, unbroken: Path, tmp_path: Path, sizes: tuple[int, int]
) -> None:
    started = command(tmp_path / "run", referential_model, sizes[0])
    from tests.training.test_processes import until_saved

    until_saved(tmp_path / "run", 4)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)
    ended(command(tmp_path / "run", referential_model, sizes[1]))
    found, expected = weights_of(tmp_path / "run"), weights_of(unbroken)
    # Adam makes steps of `lr` out of the last bits where nothing is ever paid, as here; what is
    # learned from real gradients is compared above
    assert max(float(np.abs(found[name] - it).max()) for name, it in expected.items()) < 24e-5


@pytest.mark.sharded
def test_a_shard_that_is_damaged_is_told(
    referential_model: Path, unbroken: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(unbroken, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    for path in (tmp_path / "run" / "checkpoints").glob("step-000006/shard-00002*"):
        path.write_bytes(path.read_bytes()[:-8])
    started = command(tmp_path / "run", referential_model, 2)
    _, said = started.communicate(timeout=280)
    assert "step-000006 was passed over: shard-00002" in said, said
    assert truth(tmp_path / "run") == truth(unbroken)
