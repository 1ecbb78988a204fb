"""LiteLLM itself, offline: its own mock answers, and its client against a server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.kernel.errors import EndpointError

pytestmark = pytest.mark.litellm
pytest.importorskip("litellm", reason="make test-litellm has it")

KEY = "sk-this-is-only-a-test-0123456789abcdef"
# answers, one after the other: status and text; 200 for ever after
SCRIPT: list[tuple[int, str]] = []
ASKED: list[dict[str, Any]] = []


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ASKED.append({"path": self.path, "key": self.headers["authorization"], **body})
        status, text = SCRIPT.pop(0) if SCRIPT else (200, "cooperate")
        choice = {"index": 0, "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        answer: dict[str, Any] = {"error": {"message": text, "code": None}}
        if status == 200:
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
            answer |= {"choices": [choice | {"finish_reason": "stop"}], "usage": usage}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None: ...


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    SCRIPT.clear()
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()


def seat(model: str, *more: str) -> list[str]:
    seated = ["agents.player_0={policy: p, behaviour: direct}", f"policies.p.model={model}", *more]
    return [*seated, "scenario.tasks=2", "scenario.rounds=1"]


def test_mock_answers_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    mock = "policies.p.extra_body={mock_response: defect}"
    # twice: each run has an event loop of its own
    for out in ("one", "two"):
        run = gem_ma.run("dilemma", seat("litellm/anthropic/claude-haiku-4-5", mock), out=out)
        assert (run["episodes"], run["failed"]) == (2, 0)
        said = [t.action.parsed for e in run.episodes() for t in e.turns if t.agent == "player_0"]
        assert said == ["defect"] * 2
        # a provider that knows no seed is asked without one
        kinds = {
            a.kind for e in run.episodes() for t in e.turns for r in t.replies for a in r.attempts
        }
        assert kinds <= {"adapted"}


def test_a_server_is_asked_again_and_no_key_is_kept(server: str, tmp_path: Path) -> None:
    SCRIPT[:] = [(429, "slow down"), (500, f"trouble with {KEY}"), (200, f"defect {KEY}")]
    run = gem_ma.run(
        "dilemma", seat("litellm/openai/m", f"policies.p.base_url={server}"), out="run"
    )
    assert run["failed"] == 0 and ASKED[0]["path"] == "/v1/chat/completions"
    kinds = [a.kind for e in run.episodes() for t in e.turns for r in t.replies for a in r.attempts]
    assert {"rate_limited", "server"} <= set(kinds) and len(ASKED) == len(kinds) + 2
    assert all(sent["key"] == f"Bearer {KEY}" for sent in ASKED)
    kept = [file.read_text(errors="replace") for file in Path("run").rglob("*") if file.is_file()]
    assert kept and not any(KEY in text for text in kept)


def test_a_wrong_key_ends_the_run(server: str) -> None:
    SCRIPT[:] = [(401, "bad key")] * 50
    with pytest.raises(EndpointError, match="refused the key in OPENAI_API_KEY"):
        gem_ma.run("dilemma", seat("litellm/openai/m", f"policies.p.base_url={server}"), out="run")
    assert len(ASKED) <= 4


def test_the_command_prints_no_word_of_the_library(tmp_path: Path, server: str) -> None:
    words = seat("litellm/openai/m", f"policies.p.base_url={server}")
    SCRIPT[:] = [(500, "down"), (429, "slow")]
    command = [sys.executable, "-m", "gem_ma", "run", "dilemma", *words, "--quiet", "--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "litellm" not in (done.stdout + done.stderr).lower().replace("litellm/", "")
