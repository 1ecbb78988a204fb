"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import gem_ma.agents
import gem_ma.scenarios
import pytest

import gem_ma
from gem_ma.kernel.errors import ConfigError

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


def modules() -> Iterator[tuple[str, str]]:
    """(name, folder of its file) of every module."""
    for package in (gem_ma, gem_ma.agents, gem_ma.scenarios):
        # of gem_ma its own folder, not the checkout that it also looks into
        paths = list(package.__path__)[:1]
        for found in pkgutil.walk_packages(
            paths, package.__name__ + ".", onerror=lambda name: None
        ):
            if not found.name.endswith("__main__") and not (
                package is gem_ma and found.name.startswith(("gem_ma.scenarios", "gem_ma.agents"))
            ):
                yield found.name, found.module_finder.path


def source(folder: str, name: str) -> str:
    file = Path(folder, name.rpartition(".")[2])
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return file.read_text(encoding="utf-8")


FOLDERS = dict(sorted(modules()))


@pytest.mark.parametrize("name", [name for name in FOLDERS if ">>>" in source(FOLDERS[name], name)])
def test_the_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(imported(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_every_module_can_be_imported() -> None:
    for name in FOLDERS:
        with suppress(pytest.skip.Exception):
            imported(name)


def imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")
    except ConfigError as error:  # an integration says in one line which trainer it wants
        if not isinstance(error.__cause__, ImportError):
            raise
        pytest.skip(f"{name} needs {error.__cause__.name}, which is not installed")
