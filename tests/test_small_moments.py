"""Moments of AdamW in 8 bits: what is kept of a number, steps beside those of AdamW, memory,
resumes, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import RunFolder
from gem_ma.training.entry import run_training
from gem_ma.training.schedule.checks import checked

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.training.learner.small_moments import (  # noqa: E402
    FIRST,
    SECOND,
    _read,
    _rounded,
    kept_shapes,
    small_adamw,
)
from tests.broken_runs import Killed  # noqa: E402


def dice(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("grid", "sign"), [(FIRST, -1), (SECOND, 1)])
@pytest.mark.parametrize("shape", [(3, 100), (256,), (1,), (5, 7, 11)])
def test_what_is_kept_lies_one_place_of_the_grid_away_and_right_in_the_mean(
    grid: Any, sign: int, shape: tuple[int, ...]
) -> None:
    values = torch.randn(shape, generator=dice()) ** 3
    values = values if sign < 0 else values.abs()
    total = torch.zeros(shape)
    for seed in range(64):
        places, scale = _rounded(values, *grid, dice(seed))
        read = _read(places, scale, *grid)
        top, power = grid
        # by numbers, not by blocks
        scales = scale.repeat_interleave(256)[: values.numel()].view(shape)
        apart = (read / scales).abs() ** (1 / power) - (values / scales).abs() ** (1 / power)
        assert float(apart.abs().max()) <= 1 / top + 1e-5
        assert bool((read * values >= 0).all())
        total += read
    assert float((total / 64 - values).abs().max()) < 0.02 * float(values.abs().max())
    assert {"exp_avg": shape, "exp_avg_scale": tuple(scale.shape)}.items() <= kept_shapes(
        shape
    ).items()


def test_zeros_stay_zeros_and_a_small_second_moment_never_becomes_one() -> None:
    zeros = torch.zeros(300)
    for grid in (FIRST, SECOND):
        assert not _read(*_rounded(zeros, *grid, dice()), *grid).any()
    mixed = torch.full((300,), 1e-30)
    mixed[0] = 1.0
    assert bool((_read(*_rounded(mixed, *SECOND, dice()), *SECOND)[:256] > 0).all())


def descended(kind: str, betas: tuple[float, float], steps: int) -> tuple[Any, float, int]:
    """(a weight after noisy descent, its distance to the goal, bytes of the moments)."""
    source = torch.Generator().manual_seed(1)
    goal = torch.randn(40, 30, generator=source)
    weight = torch.zeros(40, 30, requires_grad=True)
    make = small_adamw if kind == "int8" else torch.optim.AdamW
    optimizer = make([weight], 0.02, betas=betas, weight_decay=0.01)
    for _ in range(steps):
        noise = torch.randn(40, 30, generator=source)
        weight.grad = (weight.detach() - goal) * torch.logspace(-3, 0, 30) + 0.1 * noise
        optimizer.step()
    held = [it for key, it in optimizer.state[weight].items() if key != "step"]
    size = sum(it.numel() * it.element_size() for it in held)
    return weight.detach(), float((weight.detach() - goal).norm() / goal.norm()), size


def test_the_first_step_is_that_of_adamw() -> None:
    small, plain = (descended(kind, (0.9, 0.95), 1)[0] for kind in ("int8", "float32"))
    assert torch.allclose(small, plain, atol=1e-7)


@pytest.mark.parametrize("betas", [(0.9, 0.95), (0.9, 0.999)])
def test_it_comes_as_far_as_adamw_with_a_quarter_of_the_memory(betas: tuple[float, float]) -> None:
    (small, near, size), (plain, nearest, whole) = (
        descended(kind, betas, 300) for kind in ("int8", "float32")
    )
    moved = torch.nn.functional.cosine_similarity(small.flatten(), plain.flatten(), dim=0)
    print(f"{betas}: distance {near:.4f} and {nearest:.4f}, {size} and {whole} bytes")
    assert near < 1.1 * nearest + 0.01 and float(moved) > 0.98
    assert size <= 0.27 * whole


def test_a_second_moment_falls_though_a_step_is_less_than_a_place() -> None:
    weight = torch.zeros(1000, requires_grad=True)
    optimizer = small_adamw([weight], 0.0, (0.9, 0.999), 0.0)
    for step in range(1000):
        weight.grad = torch.full((1000,), 1.0 if step < 100 else 0.0)
        weight.grad[::256] = 1.0  # keeps the scale of a block where it is
        optimizer.step()
    state = optimizer.state[weight]
    held = _read(state["exp_avg_sq"], state["exp_avg_sq_scale"], *SECOND)
    exact = (1 - 0.999**100) * 0.999**900
    assert float(held[1:256].mean()) == pytest.approx(exact, rel=0.15)


# -- runs ----------------------------------------------------------------------------------------


def kuhn(model: Path, *words: str) -> Config:
    small = ("train.episodes=8", "train.steps=3", "train.save_every=1", "evaluate.episodes=4")
    quiet = ("train.on_collapse=off", "evaluate.every=null", "run.baselines=false")
    more = ("train.warm_start={}", f"policies.main.model=transformers/{model}")
    words = (*more, "policies.main.constrain=legal", "train.loss.moments=int8", *words)
    return config.load("kuhn_tiny", [*small, *quiet, *words]).config


def test_a_killed_run_ends_as_an_unbroken_one(tmp_path: Path, thin_model: Path) -> None:
    settings = kuhn(thin_model)

    def kill(step: int, metrics: Any) -> None:
        if step == 2:
            raise Killed

    def trained(path: Path, **more: Any) -> dict[str, Any]:
        facts = settings.model_dump(mode="json")
        with RunFolder.open(path, config_text="", resolved=facts) as folder:
            return run_training(settings, folder, **more)

    with pytest.raises(Killed):
        trained(tmp_path / "broken", on_step=kill)
    trained(tmp_path / "broken")
    summary = trained(tmp_path / "whole")
    assert summary["changed"] == ["main"]
    held = tmp_path / "whole" / "checkpoints" / "step-000003" / "main.optimizer.safetensors"
    weights = held.with_name("main.model.safetensors")
    assert held.stat().st_size < 0.6 * weights.stat().st_size
    for file in ("metrics.jsonl", "checkpoints/step-000003/DONE"):
        assert (tmp_path / "broken" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_what_has_no_such_moments_is_one_line(thin_model: Path) -> None:
    settings = kuhn(thin_model, "train.shard=true")
    with pytest.raises(ConfigError, match="moments: int8 is kept in blocks"):
        checked(settings, settings.policies)
    table = config.load("kuhn_table", ["train.loss.moments=int8"]).config
    with pytest.raises(ConfigError, match="moments: int8 is for language models"):
        run_training(table)
