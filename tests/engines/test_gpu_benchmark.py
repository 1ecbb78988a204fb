"""`make benchmark-gpu` without a GPU: what it says there, and the same code on a processor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

import gem_ma.config as configs
from benchmarks import gpu

SMALL = gpu.How("cpu", True, "transformers")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "sees no CUDA device" in said.err


def test_make_refuses_before_anything_is_fetched(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU")
    (tmp_path / "pyproject.toml").touch()
    there = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["make", "--file", gpu.ROOT / "Makefile", "benchmark-gpu"],
        cwd=tmp_path,
        env=there,
        capture_output=True,
        text=True,
    )
    assert done.returncode and "needs an NVIDIA GPU" in done.stdout
    assert not (tmp_path / ".venv-gpu").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpu_arithmetic_06b", "gpu_dilemma_17b"])
def test_every_number_comes_of_the_same_code_on_a_processor(name: str, tmp_path: Path) -> None:
    found = gpu.measured(name, SMALL, tmp_path)
    assert all(number > 0 for number in found.values())
    assert gpu.row(name, found).count("|") == gpu.HEAD.splitlines()[0].count("|")


@pytest.mark.parametrize("name", gpu.NAMES)
@pytest.mark.parametrize("how", [gpu.How("cuda", False, "vllm"), SMALL], ids=["cuda", "small"])
def test_what_is_measured_is_the_config_in_one_process(
    name: str, how: gpu.How, tmp_path: Path
) -> None:
    before = configs.load(gpu.ROOT / "configs" / f"{name}.yaml").config
    changed = configs.load(
        gpu.ROOT / "configs" / f"{name}.yaml", gpu.overrides(name, how, tmp_path)
    ).config
    assert changed.train is not None and before.train is not None
    assert changed.train.policies == before.train.policies
    for policy in changed.train.policies:
        now, then = changed.policies[policy], before.policies[policy]
        assert "base_url" not in now.options
        assert ("lora" in now.options) == ("lora" in then.options)
        assert how.small or (now.model, now.max_tokens) == (then.model, then.max_tokens)
    assert how.small or changed.train == before.train


def test_the_table_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "gpu.md"
    text = gpu.PAGE.read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in gpu.NAMES)
    page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(gpu, "PAGE", page)
    monkeypatch.setattr(gpu, "every", lambda given: ["| the row |"])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--small", "--write"])
    assert gpu.main() == 0
    written = page.read_text(encoding="utf-8")
    begin, _, rest = text.partition("<!-- made by make benchmark-gpu -->\n")
    _, end, after = rest.partition("\n<!-- end -->")
    assert written.startswith(begin) and written.endswith(end + after)
    assert "| the row |" in written and "not run by us yet" not in written
    assert "| the row |" in capsys.readouterr().out
