"""One base, many hands: whoever computes on a base holds one of its locks, so no adapter opens
meanwhile, and runs repeat bit for bit."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from tests.broken_runs import trained, truth

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from peft.tuners.lora import LoraLayer  # noqa: E402

from gem_ma.engines.local.shared_model import Base  # noqa: E402
from gem_ma.training.learner.torch_critic import TorchCritic  # noqa: E402
from gem_ma.training.loop.collector import Collector  # noqa: E402

WINDOW_S = 1.0  # two threads wait so long for each other; where a lock is between them, in vain


def odd(model: Path) -> Config:
    """LoRA, a critic, play beside learning, a league and forks, in four steps."""
    return config.load(
        "kuhn_table",
        [
            *(
                f"policies.main.model=transformers/{model}",
                "policies.main.lora={rank: 2, targets: [q_proj, v_proj]}",
            ),
            *(
                "policies.main.max_tokens=4",
                "train.steps=4",
                "train.episodes=8",
                "train.lr=0.01",
                "train.save_every=4",
            ),
            *(
                "train.estimator={name: gae, key: [policy]}",
                "train.overlap=true",
                "train.fork={width: 2}",
                "train.loss.kl=0.01",
            ),
            *(
                "train.opponents={latest: 0.4, uniform: 0.6}",
                "train.pool.every=1",
                "train.pool.loaded=1",
                "evaluate.episodes=4",
            ),
        ],
    ).config


@pytest.fixture(scope="module")
def model(kuhn_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that no other test holds open, so that its base is made here."""
    return Path(shutil.copytree(kuhn_model, tmp_path_factory.mktemp("own") / "model"))


@pytest.fixture(scope="module")
def calm(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bool]]:
    """A run that nothing disturbs, and of each forward pass of its bases whether the thread held
    a lock of the base."""
    path, passes, begin = tmp_path_factory.mktemp("calm") / "run", list[bool](), Base._begin

    def seen(base: Base) -> None:
        passes.append(any(lock._is_owned() for lock in (base.lock, *base._locks)))

    def beginning(base: Base) -> None:
        begin(base)
        for module in (base.model, base.model.base_model):
            module.register_forward_pre_hook(lambda *_: seen(base))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Base, "_begin", beginning)
        trained(path, odd(model))
    return path, passes


@pytest.mark.longest
def test_every_pass_of_a_whole_run_is_under_a_lock_of_its_base(
    calm: tuple[Path, list[bool]],
) -> None:
    assert len(calm[1]) > 100 and all(calm[1])


@pytest.mark.longest
def test_a_run_in_which_adapters_open_at_the_worst_instant_is_the_same_bit_for_bit(
    calm: tuple[Path, list[bool]], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of the league opens as soon as a critic computes with gradient, and both wait for
    each other a little: where no lock is between them, the pass falls into the instant in which
    all gradients are off.
    """
    beside, changing, switch, forward = (
        Collector.collect_ahead,
        Base.changing,
        LoraLayer.enable_adapters,
        TorchCritic._forward,
    )
    waits, fits, switched, passed = (threading.Event() for _ in range(4))
    met: list[bool] = []

    async def both_at_once(*given: Any) -> Any:
        waits.set()
        fits.clear()
        switched.clear()
        try:
            return await beside(*given)
        finally:
            waits.clear()

    def opened(base: Base) -> Any:
        if waits.is_set():
            met.append(fits.wait(10))
        return changing(base)

    def switching(layer: Any, enabled: bool) -> None:
        switch(layer, enabled)  # here the gradients of all adapters of this layer are off
        if fits.is_set() and not switched.is_set():
            switched.set()
            passed.wait(WINDOW_S)

    def computed(critic: TorchCritic, batch: Any) -> Any:
        first = torch.is_grad_enabled() and waits.is_set() and not fits.is_set()
        if first:
            passed.clear()
            fits.set()
            switched.wait(WINDOW_S)
        try:
            return forward(critic, batch)
        finally:
            passed.set()

    for owner, name, slow in (
        (Collector, "collect_ahead", both_at_once),
        (Base, "changing", opened),
        (LoraLayer, "enable_adapters", switching),
        (TorchCritic, "_forward", computed),
    ):
        monkeypatch.setattr(owner, name, slow)
    trained(tmp_path / "race", odd(model))
    assert met and all(met)
    assert truth(tmp_path / "race") == truth(calm[0])
