"""Configs for one GPU, without one: each is checked as it stands, runs in small as its own comment
says, and the memory that it names is computed again."""

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

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.learner import talks
from gem_ma import credit
from gem_ma.cli.main import group
from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.settings import lora_settings
from gem_ma.engines.local.tiny import make_model
from gem_ma.engines.local.transformers import Transformers
from gem_ma.runs.store import read_metrics
from gem_ma.training.learner.torch_learner import TorchLearner
from tests.chat_templates import FAMILIES

CONFIGS = Path(__file__).parents[2] / "configs"
GPU = sorted(CONFIGS.glob("gpu_*.yaml"))
# what the hub's config.json of each says: width, layers, feed-forward, tied; heads are 16 or 32 of 128, 8 of keys
QWEN3 = {
    "Qwen/Qwen3-0.6B": (1024, 28, 16, 3072, True),
    "Qwen/Qwen3-1.7B": (2048, 28, 16, 6144, True),
    "Qwen/Qwen3-8B": (4096, 36, 32, 12288, False),
}
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


@pytest.mark.long
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
    lines = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    learned = said(path)["train"]["policies"]
    assert lines and all(line["policies"].keys() == set(learned) for line in lines)
    assert all(line["policies"][name]["rows"] > 0 for line in lines for name in learned)


@pytest.mark.long
@each
def test_it_is_checked_as_it_stands_without_a_gpu(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's models are a small one with the chat template of their family."""
    monkeypatch.chdir(tmp_path)
    if "Qwen" in path.read_text():
        make_model("stand-in", said(path)["scenario"]["id"], size="nano", positions=32768)
        (tmp_path / "stand-in" / "chat_template.jinja").write_text(FAMILIES["thinking"].template)
        from gem_ma.engines.local import model_folder

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


@each
def test_the_memory_that_it_names_is_what_it_comes_to(path: Path) -> None:
    (line,) = re.findall(r"^ Memory: (.*)$", comment(path), re.MULTILINE)
    for count, weights, size, product in re.findall(
        r"(?:(\d) x )?([\d.]+) M weights x (\d+) B = ([\d.]+) GB", line
    ):
        assert abs(int(count or 1) * float(weights) * int(size) / 1000 - float(product)) < 0.06
    policies = said(path)["policies"]
    learned = [policies[name] for name in said(path)["train"]["policies"]]
    name = learned[0]["model"].partition("/")[2]
    if name not in QWEN3:
        return
    model, lora = shape_of(name), learned[0].get("lora")
    whole = sum(weight.numel() for weight in model.parameters())
    assert f"learner {whole / 1e6:.0f} M weights x {2 if lora else 20} B" in line
    if lora is not None:
        assert f"{len(learned)} x {adapter_of(model, lora) / 1e6:.1f} M weights x 16 B" in line
    share = learned[0].get("engine", {}).get("gpu_memory_utilization")
    if share is None:
        (share,) = map(float, re.findall(r"--gpu-memory-utilization ([\d.]+)", comment(path)))
    (card,) = map(float, re.findall(r"one GPU of (\d+) GB", comment(path)))
    assert f"vLLM {share:g} of {card:g} GB = {share * card:.1f} GB" in line
    parts = [float(each) for each in re.findall(r"= ([\d.]+) GB", line)]
    (left,) = map(float, re.findall(r"left ([\d.]+) GB", line))
    assert abs(card - sum(parts) - left) < 0.15 and left >= 4


def shape_of(name: str) -> Any:
    width, layers, heads, feed, tied = QWEN3[name]
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=feed,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        return Qwen3ForCausalLM(config)


def adapter_of(model: Any, lora: dict[str, Any]) -> int:
    """Weights of an adapter of every linear layer but the head."""
    rank = lora_settings(lora, "x").rank
    return sum(
        rank * sum(layer.weight.shape)
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and name != "lm_head"
    )


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
