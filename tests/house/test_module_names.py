"""Modules are importable by their older names, and are the same objects there."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import gem_ma
from gem_ma.kernel.scenario import Scenario


@pytest.mark.parametrize("old", sorted(gem_ma._MOVED))
def test_an_older_name_gives_the_same_module(old: str) -> None:
    new = gem_ma._MOVED[old]
    assert import_module(f"gem_ma.{old}") is import_module(new)
    spec = import_module(new).__spec__
    assert spec is not None and spec.name == new


@pytest.mark.long
def test_what_lies_inside_of_an_older_name_is_not_loaded_twice() -> None:
    code = (
        "from gem_ma.store.lines import read_manifest as old\n"
        "import gem_ma.evaluation.stats, gem_ma.scores.stats\n"
        "from gem_ma.runs.store.lines import read_manifest as new\n"
        "assert old is new and gem_ma.evaluation.stats is gem_ma.scores.stats\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_older_name_is_an_attribute_too() -> None:
    assert gem_ma.scenario.Scenario is Scenario


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"gem_ma\.never"):
        import_module("gem_ma.never")
