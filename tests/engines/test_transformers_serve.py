"""The openai engine against the library's own server: `transformers serve` on loopback with the
tiny model, played through the command line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_ma.cli.main import main
from gem_ma.runs.store import read_episodes
from tests.leash import leashed

MISSING = [
    name
    for name in ("torch", "transformers", "openai", "fastapi", "uvicorn", "starlette")
    if importlib.util.find_spec(name) is None
]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f'needs pip install "transformers[serving]": no {", ".join(MISSING)}'
)

KEY = "sk-canary-serve-81"
READY_S = 120.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that loads any folder that a request names."""
    folder = tmp_path_factory.mktemp("served")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "hub").mkdir()
    environment = {
        **os.environ,
        "HF_HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = shutil.which("transformers", path=str(Path(sys.executable).parent)) or "transformers"
    arguments = [
        command,
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
        "--dtype",
        "float32",
    ]
    with (folder / "log.txt").open("wb") as log:
        server = leashed(arguments, stdout=log, stderr=log, env=environment)
        try:
            until = time.monotonic() + READY_S
            while not _ready(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None or time.monotonic() > until:
                    pytest.fail(
                        "the server did not start:"
                        f" {(folder / 'log.txt').read_text(errors='replace')[-2000:]}"
                    )
                time.sleep(0.3)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


CASTS = {"kuhn_poker": ("player_0", "player_1"), "referential": ("speaker", "listener")}


@pytest.mark.longest
def test_episodes_are_played_by_a_model_behind_the_library_s_server(
    served: str, byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, since the server is nearly all that they cost, and long tests are left out one by
    one."""
    monkeypatch.setenv("MY_KEY", KEY)
    for scenario, agents in CASTS.items():
        for stream in (False, True):
            folder = tmp_path / f"{scenario}-{stream}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            _plays(scenario, agents, stream, served, byte_model, folder)


def _plays(
    scenario: str, agents: tuple[str, str], stream: bool, served: str, model: Path, folder: Path
) -> None:
    policy = (
        f'{{model: "openai/{model}", base_url: "{served}", api_key_env: MY_KEY, max_tokens: 6,'
        f" stream: {str(stream).lower()}}}"
    )
    cast = "".join(f"  {agent}: {{policy: main}}\n" for agent in agents)
    (folder / "talk.yaml").write_text(
        f"scenario: {{id: {scenario}, tasks: 5}}\nagents:\n{cast}policies:\n  main: {policy}\n",
        encoding="utf-8",
    )
    assert main(["check", "talk.yaml"]) == 0
    assert main(["run", "talk.yaml", "--out", "run", "--quiet"]) == 0
    episodes = list(read_episodes(folder / "run" / "episodes.jsonl"))
    assert len(episodes) == 5 and not any(episode.error for episode in episodes)
    replies = [reply for episode in episodes for turn in episode.turns for reply in turn.replies]
    # an untrained model may say a lone control token
    assert len(replies) == 10 and any(reply.text for reply in replies)
    assert all(
        reply.usage.prompt_tokens and 0 < (reply.usage.completion_tokens or 0) <= 6
        for reply in replies
    )
    refused = {(attempt.kind, attempt.status) for reply in replies for attempt in reply.attempts}
    assert not refused  # it knows no top_k, which nobody named
    assert not any(
        KEY in file.read_text(encoding="utf-8", errors="replace")
        for file in folder.rglob("*")
        if file.is_file()
    )
