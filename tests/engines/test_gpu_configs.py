"""Configs for one GPU, without one: each is checked as it stands, and runs in small as its own
comment says."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

pytest.importorskip("torch", reason="needs the train extra")


from benchmarks.learner import talks
from gem_ma import credit
from gem_ma.cli.main import group
from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.tiny import make_model
from gem_ma.engines.local.transformers import Transformers
from gem_ma.training.learner.torch_learner import TorchLearner
from tests.broken_runs import steps_of
from tests.chat_templates import FAMILIES

CONFIGS = Path(__file__).parents[2] / "configs"
GPU = sorted(CONFIGS.glob("gpu_*.yaml"))
each = pytest.mark.parametrize("path", GPU, ids=lambda path: path.stem)


def comment(path: Path) -> str:
    return "\n".join(
        line.removeprefix("#") for line in path.read_text().splitlines() if line.startswith("#")
    )


def said(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def ran(*words: str) -> Any:
    done = CliRunner().invoke(group, words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done


@pytest.mark.longest
@each
def test_it_runs_in_small_as_its_comment_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = comment(path).partition("In small, without a GPU: ")[2].replace("\\\n", " ")
    make, train = (shlex.split(line)[1:] for line in text.splitlines())
    assert make[:2] == ["new", "model"] and train[:2] == ["train", f"configs/{path.name}"]
    ran(*make)
    ran("train", str(path), *train[2:], "--out", "run", "--quiet")
    lines = steps_of(tmp_path / "run")
    learned = said(path)["train"]["policies"]
    assert lines and all(line["policies"].keys() == set(learned) for line in lines)
    assert all(line["policies"][name]["rows"] > 0 for line in lines for name in learned)


@pytest.mark.longest
@each
def test_it_is_checked_as_it_stands_without_a_gpu(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's models are a small one with the chat template of their family."""
    monkeypatch.chdir(tmp_path)
    if "Qwen" in path.read_text():
        make_model("stand-in", said(path)["scenario"]["id"], size="nano", positions=32768)
        (tmp_path / "stand-in" / "chat_template.jinja").write_text(FAMILIES["thinking"].template)
        from gem_ma.engines.models import model_folder

        monkeypatch.setattr(model_folder, "find_model", lambda name, *_: tmp_path / "stand-in")
    else:
        ran("new", "model", "models/medium", "--scenario", "guess_number", "--size", "medium")
        path = _without_device(path, tmp_path)
    done = ran("check", str(path), "--offline")
    assert "no fault" in done.output and "learns" in done.output


def _without_device(path: Path, folder: Path) -> Path:
    """Without the GPU, which the transformers engine takes when it is opened."""
    text, count = re.subn("device: cuda", "device: cpu", path.read_text())
    assert count == 1
    (folder / path.name).write_text(text)
    return folder / path.name


@pytest.mark.long
@pytest.mark.parametrize(("lora", "size"), [(None, 18), ({"rank": 8}, 16)])
def test_what_a_weight_takes_that_learns_and_one_that_is_frozen(
    lora: dict[str, Any] | None, size: int, kuhn_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted before a step, when gradients and moments are there. All weights take 2 bytes more
    in a later pass, for its gradient in bfloat16: 20. Adapters are float32 as they are."""
    options = {"lora": lora} if lora else {}
    engine = Transformers(str(kuhn_model), policy="main", dtype="bfloat16", **options)
    learner = TorchLearner(engine)
    held: list[int] = []
    clip = learner.clip

    def counted(bound: float) -> float:
        tensors = [
            *engine.model.parameters(),
            *learner.masters.values(),
            *(weight.grad for weight in learner.masters.values()),
            *(each for state in learner.optimizer.state.values() for each in state.values()),
        ]
        once = {each.data_ptr(): each.numel() * each.element_size() for each in tensors}
        held.append(sum(once.values()))
        return clip(bound)

    monkeypatch.setattr(learner, "clip", counted)
    allowed = (engine.banned == 0).nonzero()[:, 0].tolist()
    table = credit.turns(talks(4, 2, allowed, 0), "main")
    settings = LossSettings(minibatches=1)
    for _ in range(2):  # moments are there from the second step on
        learner.update(table, table.ret, lr=1e-3, settings=settings, rng=random.Random(0))
    trained = sum(weight.numel() for weight in learner.parameters.values())
    frozen = sum(weight.numel() for weight in engine.model.parameters()) - trained
    # the counts of the optimiser's steps aside
    assert held[-1] - 2 * frozen == pytest.approx(size * trained, rel=0.01)
