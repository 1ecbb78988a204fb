"""Two vLLM servers for the whole run, started side by side: one of a byte-level model with tied
embeddings, one of a word-level model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.vllm.serving import PYTHON, VllmServer

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(
                pytest.mark.skipif(
                    not PYTHON.exists(), reason="needs .venv-vllm: make test-vllm builds it"
                )
            )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`bytes`, `words`, `untied` and `untied_words`: folders of tiny models, untrained."""
    from gem_ma.engines.local.tiny import SIZES, Size, make_model

    folder = tmp_path_factory.mktemp("models")
    made = {
        "bytes": ("nano", True),
        "words": ("word32", True),
        "untied": ("nano", False),
        "untied_words": ("word32", False),
    }
    with pytest.MonkeyPatch.context() as patch:
        # vLLM on CPU knows no heads of 16, as `word` has
        patch.setitem(SIZES, "word32", Size(64, 2, 4, 2, 32, 192, byte_level=False))
        for name, (size, tied) in made.items():
            make_model(folder / name, "referential", size=size, seed=1, tied=tied, positions=2048)
    return {name: folder / name for name in made}


@pytest.fixture(scope="session")
def servers(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, VllmServer]]:
    logs = tmp_path_factory.mktemp("logs")
    started = {
        name: VllmServer(models[name], logs / f"{name}.log").start() for name in ("bytes", "words")
    }
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(VllmServer.wait, started.values()))
        yield started
    finally:
        for server in started.values():
            server.stop()


@pytest.fixture
def server(servers: dict[str, VllmServer]) -> VllmServer:
    """The server of the byte-level model."""
    return servers["bytes"]
