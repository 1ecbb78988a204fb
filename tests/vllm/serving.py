"""vLLM's server for tests: started on loopback with the flags that docs/vllm.md names, stopped
by its process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.leash import leashed

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(
    os.environ.get("GEM_MA_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python")
).absolute()
START_S, STOP_S = 300.0, 30.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_SERVER_DEV_MODE": "1",  # the routes that take all weights
}
FLAGS = {
    "--served-model-name": "base",
    "--dtype": "float32",
    "--max-model-len": "2048",
    "--gpu-memory-utilization": "0.1",
    "--kv-cache-memory-bytes": str(64 * 2**20),
    "--host": "127.0.0.1",
    "--max-loras": "4",
    "--max-lora-rank": "8",
    "--logprobs-mode": "processed_logprobs",
    "--tool-call-parser": "hermes",
}
SWITCHES = (
    "--enforce-eager",
    "--enable-lora",
    "--enable-prompt-tokens-details",
    "--enable-auto-tool-choice",
)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class VllmServer:
    """One server of `model`; its output goes to `log`. `start` comes back at once, `wait` when
    it answers. Without `lora` it takes no adapters."""

    def __init__(self, model: Path, log: Path, *, lora: bool = True, **flags: str) -> None:
        self.model, self.log, self.port = model, log, free_port()
        named = {"--" + name.replace("_", "-"): value for name, value in flags.items()}
        self.flags = {
            name: value for name, value in {**FLAGS, **named}.items() if lora or "lora" not in name
        }
        self.switches = [name for name in SWITCHES if lora or "lora" not in name]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> VllmServer:
        command = [
            str(PYTHON),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(self.model),
            "--port",
            str(self.port),
        ]
        command += [word for pair in self.flags.items() for word in pair] + self.switches
        with open(self.log, "ab") as log:
            environment = {**os.environ, **ENVIRONMENT}
            self.process = leashed(
                command, cwd=self.log.parent, env=environment, stdout=log, stderr=log
            )
        return self

    def wait(self) -> VllmServer:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.root}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        told = self.log.read_text(errors="replace")[-3000:]
        self.stop()
        raise RuntimeError(f"vLLM's server did not start; the end of its log:\n{told}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Ends the server and the children of its session."""
        process, self.process = self.process, None
        if process is None:
            return
        for signal_ in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, signal_)  # the session was made for it
            except ProcessLookupError:
                break
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                continue
        process.wait(STOP_S)
