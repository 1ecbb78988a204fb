"""Value objects in constructors: a config names their fields, Python may pass the object."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gem_ma.config import load
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import construct
from gem_ma.system.options import flat


@dataclass(frozen=True)
class Patience:
    timeout_s: float = 120.0
    attempts: int = 12
    met: bool = field(default=False, metadata={"option": False})  # no option


@dataclass(frozen=True)
class Words:
    tone: str = "plain"


class Engine:
    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        patience: Patience = Patience(attempts=3),
        words: Words = Words(),
    ) -> None:
        self.name, self.policy, self.patience, self.words = name, policy, patience, words


class Heir(Engine):
    pass


@pytest.mark.parametrize("made", [Engine, Heir])
def test_fields_are_written_one_by_one_or_as_the_object(made: Any) -> None:
    assert made("m").patience == Patience(120.0, 3)  # the default of this constructor
    assert made("m", timeout_s=5.0).patience == Patience(5.0, 3)
    assert made("m", patience=Patience(1.0)).patience == Patience(1.0, 12)
    assert made("m", patience=Patience(1.0), attempts=2).patience == Patience(1.0, 2)
    assert made("m", tone="dry").words == Words("dry")


@pytest.mark.parametrize("made", [Engine, Heir])
def test_whoever_reads_a_signature_sees_the_fields(made: Any) -> None:
    parameters = inspect.signature(made).parameters
    assert list(parameters) == ["name", "policy", "timeout_s", "attempts", "tone"]
    assert parameters["attempts"].default == 3


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"timout_s": 1.0}, "did you mean 'timeout_s'?"),
        ({"patience": {"timeout_s": 1.0}}, "unknown key"),
        ({"attempts": "many"}, "should be a valid integer"),
        ({"met": True}, "unknown key"),
    ],
)
def test_the_check_of_a_config_judges_fields(
    options: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    policy = {"model": f"{__name__}:Engine/m", **options}
    seats = {agent: {"behaviour": "direct", "policy": "a"} for agent in ("player_0", "player_1")}
    config = {"scenario": {"id": "kuhn_poker"}, "policies": {"a": policy}, "agents": seats}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "run.yaml")
    assert fault in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"timout_s": 1.0}, "did you mean 'timeout_s'"),
        ({"patience": {"timeout_s": 1.0}}, "unexpected keyword argument 'patience'"),
    ],
)
def test_an_opener_says_the_nearest_field(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        construct("engine", Engine, "m", **options)


def test_two_objects_with_one_field_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="duplicate parameter"):

        @flat
        def twice(a: Words = Words(), b: Words = Words()) -> None:
            pass
