"""`gem-ma doctor`: what it finds, what it tells to type, and what it keeps to itself."""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from gem_ma.cli.doctor import EXTRAS, command, examined
from gem_ma.engines import CATALOG
from gem_ma.system.extras import install


def without(monkeypatch: pytest.MonkeyPatch, *missing: str, **changed: str) -> None:
    """Makes it look as if these distributions were missing, or of these versions."""
    real = metadata.version

    def version(name: str) -> str:
        if name in missing:
            raise metadata.PackageNotFoundError(name)
        return changed.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_every_engine_is_told_and_the_base_is_whole() -> None:
    found = examined()
    assert set(found["engines"]) >= set(CATALOG)
    assert all(found["engines"][name]["ready"] for name in ("human", "replay", "scripted", "table"))
    versions = {one["name"]: one["version"] for one in found["packages"]}
    assert all(versions[name] == metadata.version(name) for name in EXTRAS["base"])
    assert found["faults"] == []


def test_a_missing_extra_is_a_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torch", "tinker")
    engines = examined()["engines"]
    assert engines["openai"]["ready"]  # by the base
    assert (engines["transformers"]["ready"], engines["transformers"]["say"]) == (
        False,
        install("train"),
    )
    assert engines["vllm"]["say"] == install("train")
    assert engines["tinker"]["say"] == install("tinker")
    assert engines["table"]["ready"]
    done = CliRunner().invoke(command, [], standalone_mode=False)
    # nothing is wrong with leaving an extra out
    assert (done.return_value, install("train") in done.stdout) == (0, True)


def test_a_version_out_of_range_and_a_base_that_is_not_whole_are_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, "rich", numpy="1.2.0")
    monkeypatch.setattr("gem_ma.cli.doctor._ranges", lambda: {"numpy": ">=1.26"})
    found = examined()
    assert found["faults"] == [
        "numpy: version 1.2.0 does not fit >=1.26",
        f"the base lacks rich: {install()}",
    ]
    assert CliRunner().invoke(command, ["--json"], standalone_mode=False).return_value == 1


def test_a_torch_that_cannot_be_imported_is_a_fault_of_every_engine_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    monkeypatch.setitem(sys.modules, "torch", None)
    found = examined()
    assert any("torch is installed and cannot be imported" in fault for fault in found["faults"])
    assert not found["engines"]["transformers"]["ready"]


class Torch(SimpleNamespace):
    __version__ = "2.13.0"


@pytest.mark.parametrize(
    ("module", "found", "engine", "said"),
    [
        (
            "torch",
            SystemExit(3),
            "transformers",
            "torch is installed and cannot be imported: SystemExit: 3",
        ),
        (
            "torch",
            SimpleNamespace(),
            "transformers",
            "torch is installed only in part; install it again",
        ),
        (
            "torch",
            Torch(),
            "vllm",
            (
                "torch is installed and cannot be imported: AttributeError: 'Torch' object has no"
                " attribute 'cuda'"
            ),
        ),
        (
            "transformers",
            RuntimeError("built for\nanother"),
            "vision",
            "transformers is installed and cannot be imported: RuntimeError: built for",
        ),
    ],
)
def test_a_module_that_is_broken_is_told_and_its_engines_are_not_ready(
    module: str, found: Any, engine: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    whole = {"is_available": lambda: False}
    fine = Torch(cuda=SimpleNamespace(**whole), backends=SimpleNamespace(mps=Torch(**whole)))
    modules = {"torch": fine, "transformers": fine, module: found}
    real = importlib.import_module

    def imported(name: str, package: str | None = None) -> Any:
        if isinstance(modules.get(name), BaseException):
            raise modules[name]
        return modules.get(name) or real(name, package)

    monkeypatch.setattr(importlib, "import_module", imported)
    monkeypatch.setitem(sys.modules, "torch", modules["torch"])
    told = examined()
    assert said in told["faults"]
    assert not told["engines"][engine]["ready"] and told["engines"]["table"]["ready"]
    assert CliRunner().invoke(command, ["--json"], standalone_mode=False).return_value == 1


def test_keys_are_told_to_be_set_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-3141")
    for arguments in ([], ["--json"]):
        done: Any = CliRunner().invoke(command, arguments, standalone_mode=False)
        assert "sk-canary" not in done.output
    assert json.loads(done.stdout)["variables"]["OPENAI_API_KEY"] == "set"
