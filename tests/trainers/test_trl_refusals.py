"""What TRL would silently learn otherwise is refused, with stubs in place of TRL and its trainers;
with the real ones: make test-trl."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gem_ma.trainers
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Sampling

NAME = "gem_ma.trainers.trl"


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
    monkeypatch.setattr(gem_ma.trainers, "trl", None, raising=False)
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    del sys.modules[NAME]
    yield import_module(NAME)


def total(**_: Any) -> None:
    """Stands for what an episode paid."""


def total_of_nobody(**_: Any) -> None:
    """A reward function that the config knows nothing of."""


def rollouts(trl: Any, per_turn: bool = True) -> Any:
    made = object.__new__(trl.Rollouts)
    made.per_turn, made.checked, made.total = per_turn, None, total
    made.policy = SimpleNamespace(name="player", sampling=Sampling(temperature=0.7))
    made.engine = SimpleNamespace(vocabulary=SimpleNamespace(banned=frozenset()))
    return made


def trainer(trl: Any, *, turns: bool = True, peft: bool = False, **more: Any) -> Any:
    made = (trl.TurnTrainer if turns else trl.GRPOTrainer)()
    options = {"temperature": 0.7, "use_vllm": False, "processes": 1, **more}
    made.args = SimpleNamespace(
        **{name: value for name, value in options.items() if name not in ("tools", "extra")}
    )
    made.tools, made.ref_model = options.get("tools", []), None
    made.state = SimpleNamespace(stateful_callbacks={})
    made.reward_funcs = [total, *[total_of_nobody] * ("extra" in options)]
    made.reward_weights = [1.0, options.get("extra")][: len(made.reward_funcs)]
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
        ({"tools": [print]}, "tools= and environment_factory="),
        ({"top_p": 0.9}, "top_p= cuts what is sampled"),
        ({"min_p": 0.1}, "min_p= cuts what is sampled"),
        ({"generation_kwargs": {"top_k": 1}}, "generation_kwargs= cuts what is sampled"),
        ({"extra": 0.5}, "reward_funcs: TurnTrainer learns from the config's rewards alone"),
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


def test_what_changes_nothing_is_not_refused(trl: Any) -> None:
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    rollouts(trl)._check(trainer(trl, **neutral, generation_kwargs=None, extra=0.0))  # logged alone


def test_a_turn_trainer_wants_an_advantage_a_turn(trl: Any) -> None:
    with pytest.raises(ConfigError, match="TurnTrainer wants Rollouts"):
        rollouts(trl, per_turn=False)._check(trainer(trl))
    rollouts(trl, per_turn=False)._check(trainer(trl, turns=False))
