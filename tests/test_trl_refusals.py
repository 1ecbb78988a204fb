"""What TRL would silently learn otherwise is refused, with stubs in place of TRL and its trainers;
with the real ones: make test-trl."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gem_ma.integrations
from gem_ma.errors import ConfigError
from gem_ma.types import Sampling

NAME = "gem_ma.integrations.trl"


@pytest.fixture
def trl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, on stubs; as if it had never been imported afterwards."""
    pytest.importorskip("torch", reason="needs the train extra")
    stubs = {"datasets": {"Dataset": object}, "trl": {"GRPOTrainer": type("GRPOTrainer", (), {})}}
    for name, members in stubs.items():
        stub = ModuleType(name)
        vars(stub).update(members)
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr(gem_ma.integrations, "trl", None, raising=False)
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    del sys.modules[NAME]
    yield import_module(NAME)


def rollouts(trl: Any, per_turn: bool = True) -> Any:
    made = object.__new__(trl.Rollouts)
    made.per_turn, made.checked = per_turn, None
    made.policy = SimpleNamespace(name="player", sampling=Sampling(temperature=0.7))
    made.engine = SimpleNamespace(vocabulary=SimpleNamespace(banned=frozenset()))
    return made


def trainer(trl: Any, *, turns: bool = True, peft: bool = False, **more: Any) -> Any:
    made = (trl.TurnTrainer if turns else trl.GRPOTrainer)()
    options = {"temperature": 0.7, "use_vllm": False, "processes": 1, **more}
    made.args = SimpleNamespace(temperature=options["temperature"], use_vllm=options["use_vllm"])
    made.model = SimpleNamespace(get_output_embeddings=None)
    if peft:
        made.model.peft_config = {"default": object()}
    made.accelerator = SimpleNamespace(
        num_processes=options["processes"], unwrap_model=lambda model: model
    )
    return made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 1.0}, "temperature=1.0: the config samples at 0.7"),
        ({"use_vllm": True}, "use_vllm=True: plays are sampled in this process"),
        ({"processes": 2}, "several processes: "),
        ({"peft": True}, "peft_config: "),
        ({"turns": False}, "GRPOTrainer knows one advantage an episode"),
    ],
)
def test_a_trainer_that_would_learn_something_else_is_refused(
    trl: Any, options: dict[str, Any], words: str
) -> None:
    made = rollouts(trl)
    for _ in range(2):  # a refusal is not remembered as a look that found nothing
        with pytest.raises(ConfigError, match=f"^TRL: {words}[^\n]*$"):
            made._check(trainer(trl, **options))
    made._check(trainer(trl))


def test_a_turn_trainer_wants_an_advantage_a_turn(trl: Any) -> None:
    with pytest.raises(ConfigError, match="TurnTrainer wants Rollouts"):
        rollouts(trl, per_turn=False)._check(trainer(trl))
    rollouts(trl, per_turn=False)._check(trainer(trl, turns=False))
