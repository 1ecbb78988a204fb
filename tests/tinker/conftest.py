"""SkyRL's server of the Tinker API for a module of tests: a tiny model, a port of the system, loopback
only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leash import leashed

ROOT = Path(__file__).resolve().parents[2]
START_S = 180.0
BACKEND = {
    "max_lora_adapters": 32,
    "max_lora_rank": 8,
    # fixed, or each number of rows is compiled anew
    "sample_max_num_sequences": 32,
    "train_micro_batch_size": 32,
}


class SkyRL:
    """The server as a process; `url` is its address."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> SkyRL:
        """Starts it, and waits until it answers. Raises AssertionError with the end of its log."""
        cache = Path(sys.prefix) / "jax-cache"  # what was compiled is kept beside the packages
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        options = {
            "base-model": self.model,
            "backend": "jax",
            "backend-config": json.dumps(BACKEND),
            "port": self.port,
            "database-url": f"sqlite:///{self.folder}/server.db",
            "checkpoints-base": self.folder / "checkpoints",
        }
        words = [str(word) for pair in options.items() for word in (f"--{pair[0]}", pair[1])]
        program = Path(__file__).with_name("skyrl_server.py")
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, str(program), "api", *words]
            self.process = leashed(command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + START_S
        while not self._answers():
            told = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None and time.monotonic() < deadline, told
            time.sleep(0.5)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        """Ends the server; it ends its engine."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, 9)  # the group that it was started as


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny clone of players who draw half of their words, of a family that SkyRL knows."""
    from gem_ma.cli.main import main

    path = tmp_path_factory.mktemp("model") / "tiny"
    cast = ("--clone", "speaker=noisy_speaker", "--clone", "listener=noisy_listener")
    assert main(["new", "model", str(path), "--scenario", "referential", *cast]) == 0
    return path


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    """The server, for all tests: it compiles for a minute or two."""
    started = SkyRL(model, tmp_path_factory.mktemp("server")).start()
    yield started
    started.stop()
