"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import gem_ma.agents
import gem_ma.scenarios
import pytest

import gem_ma

OPTIONAL = {
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "safetensors",
    "tokenizers",
    "jinja2",
    "vllm",
    "openai",
    "ray",
    "numpy",
    "pettingzoo",
    "gymnasium",
}


def modules() -> Iterator[str]:
    for package in (gem_ma, gem_ma.agents, gem_ma.scenarios):
        # of gem_ma its own folder, not the checkout that it also looks into
        paths = list(package.__path__)[:1]
        for found in pkgutil.walk_packages(
            paths, package.__name__ + ".", onerror=lambda name: None
        ):
            if not found.name.endswith("__main__") and not (
                package is gem_ma and found.name.startswith(("gem_ma.scenarios", "gem_ma.agents"))
            ):
                yield found.name


@pytest.mark.parametrize("name", sorted(set(modules())))
def test_the_examples_in_docstrings_run(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_the_walk_finds_the_rooms_and_some_examples() -> None:
    found = set(modules())
    assert {
        "gem_ma.scenario",
        "gem_ma.engines.small.human",
        "gem_ma.agents.bots",
        "gem_ma.scenarios.kuhn",
    } <= found
    assert (
        sum(
            len(test.examples)
            for name in ("gem_ma.scenario", "gem_ma.parsing")
            for test in doctest.DocTestFinder().find(import_module(name))
        )
        >= 4
    )
