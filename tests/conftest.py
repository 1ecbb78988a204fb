"""Fixtures that several test files share. Models are made once per test process, in seconds, and
never changed: engines load copies."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("hypothesis"):  # the environment of vLLM may have none
    from hypothesis import settings

    settings.register_profile("shared", deadline=None)  # a busy machine is no fault of the code
    settings.load_profile("shared")
# before torch: more threads on a shared machine are many times slower
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _model(tmp_path_factory: pytest.TempPathFactory, scenario: str, size: str) -> Path:
    pytest.importorskip("torch", reason="needs the train extra")
    pytest.importorskip("transformers", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    path = tmp_path_factory.mktemp("models") / f"{scenario}-{size}"
    make_model(path, scenario, size=size, seed=1)
    return path


@pytest.fixture(scope="session")
def kuhn_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A word-level model of Kuhn poker, untrained."""
    return _model(tmp_path_factory, "kuhn_poker", "word")


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level model with a ChatML template, untrained."""
    return _model(tmp_path_factory, "kuhn_poker", "nano")
