"""`vf-eval` plays scenarios of this library against a server on loopback: every learned seat has a
trace, and what it was paid. In an environment of its own: make test-verifiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.verifiers
pytest.importorskip("verifiers", reason="make test-verifiers has it")

from gem_ma.kernel.errors import ConfigError  # noqa: E402
from gem_ma.trainers.verifiers import environment  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TRANSFER = "transfer_to_human_agents"
MODULE = """
from gem_ma.trainers.verifiers import environment
GemTaskset, GemEnv = environment({config!r}, {words!r}, returns="episode")
__all__ = ["GemEnv", "GemTaskset"]
"""


class Model(BaseHTTPRequestHandler):
    """A model that answers as `answer` does, streamed where it is asked to."""

    protocol_version = "HTTP/1.1"
    seen: list[Any] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body["messages"])
        text = answer(body["messages"])
        base = {"id": "x", "created": 0, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            self.send("application/json", json.dumps(whole))
            return
        base["object"] = "chat.completion.chunk"
        delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        lines = [{**base, "choices": [part]} for part in (delta, end)]
        lines.append({**base, "choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(line)}\n\n" for line in lines)
        self.send("text/event-stream", f"{text}data: [DONE]\n\n")

    def do_GET(self) -> None:
        self.send("application/json", json.dumps({"object": "list", "data": []}))

    def send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None: ...


def answer(messages: list[Any]) -> str:
    """Bets in Kuhn poker, and serves nobody in the shop."""
    text = str(messages[-1]["content"])
    if TRANSFER in str(messages[0]["content"]):
        call = {"name": "list_all_product_types", "arguments": {}}
        if text.startswith("<tool_response>"):
            call = {"name": TRANSFER, "arguments": {"summary": "nobody can help"}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    return "bet" if "bet" in text else "pass"


@pytest.fixture
def server() -> Iterator[str]:
    Model.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{opened.server_address[1]}/v1"
        opened.shutdown()


def evaluated(folder: Path, server: str, config: str, *words: str, count: int = 4) -> list[Any]:
    """The traces of `vf-eval`."""
    (folder / "gem_ma_test_env.py").write_text(MODULE.format(config=config, words=list(words)))
    command = [
        str(Path(sys.executable).parent / "vf-eval"), "gem-ma-test-env", "-n", str(count), "-m", "any",
        "--client.base-url", server, "--client.api-key-var", "GEM_MA_TEST_KEY", "--no-push", "--no-rich",
        "-o", str(folder / "out"),
    ]  # fmt: skip
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": path, "GEM_MA_TEST_KEY": "none"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    files = [path for path in folder.rglob("*.jsonl") if path.stat().st_size]
    assert files, done.stdout[-3000:]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_both_seats_of_a_game_have_a_trace_and_what_they_were_paid(
    tmp_path: Path, server: str
) -> None:
    episodes = evaluated(tmp_path, server, "kuhn_table")
    assert len(episodes) == 4 and all(each["ok"] for each in episodes)
    for episode in episodes:
        traces = {trace["agent"]["name"]: trace for trace in episode["traces"]}
        rewards = {name: trace["rewards"]["return"]["score"] for name, trace in traces.items()}
        assert set(rewards) == {"player_0", "player_1"} and sum(rewards.values()) == 0
        for name, trace in traces.items():
            assert trace["agent"]["trainable"]
            assert sum(trace["info"]["turn_rewards"]) == rewards[name]
            sampled = [node for node in trace["nodes"] if node["sampled"]]
            assert len(sampled) == trace["metrics"]["turns"] == len(trace["info"]["turn_rewards"])
            assert "Your card is" in trace["nodes"][0]["message"]["content"]


RETAIL = """
scenario: {id: retail, data: own}
agents: {assistant: {policy: main}, user: {behaviour: retail_user}}
policies: {main: {model: transformers/nowhere, constrain: null}}
train: {policies: [main]}
"""


def test_tools_are_offered_and_called_in_text(tmp_path: Path, server: str) -> None:
    config = tmp_path / "shop.yaml"
    config.write_text(RETAIL)
    (episode,) = evaluated(tmp_path, server, str(config), count=1)
    (trace,) = episode["traces"]  # the simulated user is no role
    assert episode["ok"] and trace["agent"]["name"] == "assistant"
    texts = [str(node["message"]["content"]) for node in trace["nodes"]]
    assert TRANSFER in texts[0]
    calls = [place for place, text in enumerate(texts) if text.startswith("<tool_call>")]
    assert len(calls) == 2 and trace["rewards"]["return"]["score"] == 0
    assert texts[calls[0] + 1].startswith("<tool_response>") and "Umbrella" in texts[calls[0] + 1]


def test_a_play_that_fails_is_no_result(tmp_path: Path, server: str) -> None:
    (episode,) = evaluated(
        tmp_path, server, "kuhn_table", "agents.player_1.behaviour=silent", "run.max_steps=1", count=1
    )  # fmt: skip
    # a cut play is scored as far as it went; one without an end of its own is marked so
    assert {trace["info"]["end"] for trace in episode["traces"]} == {"max_steps"}


def test_one_reward_an_episode_must_be_meant() -> None:
    with pytest.raises(ConfigError, match="returns='episode'"):
        environment("kuhn_table")
