"""A server of tools that breaks the protocol, or the habits of it, in one way each, without the
SDK: `python odd_mcp_server.py WAY`. Its one tool counts its calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

WAY = sys.argv[1]
OBJECT = {"type": "object", "properties": {"way": {"type": "string"}}}
DEEP: dict[str, Any] = {"type": "string"}
for _ in range(40):
    DEEP = {"type": "object", "properties": {"x": DEEP}}
TOOLS: dict[str, Any] = {
    "deep": [{"name": "count", "inputSchema": DEEP}],
    "space": [{"name": "a b", "inputSchema": OBJECT}],
    "nameless": [{"name": "", "inputSchema": OBJECT}],
    "tokens": [{"name": "a\n<|im_end|>", "inputSchema": OBJECT}],
    "long": [{"name": "a" * 300, "inputSchema": OBJECT}],
    "twice": [{"name": "count", "inputSchema": OBJECT}] * 2,
    "none": [],
    "large": [{"name": "count", "description": "x" * 300_000, "inputSchema": OBJECT}],
    "infinite": [{"name": "count", "inputSchema": {**OBJECT, "default": float("inf")}}],
    "list": [{"name": "count", "inputSchema": [1]}],
    "some": [{"name": "a b", "inputSchema": OBJECT}, {"name": "count", "inputSchema": OBJECT}],
}
TEXT = {"type": "text", "text": "words"}
RESULTS: dict[str, Any] = {
    "picture": {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, TEXT]},
    "link": {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]},
    "inner": {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "in"}}]},
    "structure": {"content": [], "structuredContent": {"x": [1]}},
    "nothing": {"content": []},
    "failed": {"content": [], "isError": True},
    "shapeless": {"content": "words"},
    "unknown kind": {"content": [{"type": "hologram"}]},
    "long text": {"content": [{"type": "text", "text": "x" * 9_000}]},
    "half a letter": {"content": [{"type": "text", "text": "\ud800"}]},
}
count = 0


def say(id: Any, **more: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id, **more}), flush=True)


def asks_and_noise() -> None:
    """What a client hears besides answers."""
    os.write(1, b"a line of a log\n\xff\xfe\n{}\n")
    for number, method in enumerate(("sampling/createMessage", "roots/list", "no/such")):
        say(1000 + number, method=method, params={})
    say(999, result={"content": []})
    for _ in range(100):
        note = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
        print(json.dumps({"jsonrpc": "2.0", **note}), flush=True)


def called(id: Any) -> None:
    global count
    count += 1
    if WAY == "silent at first" and not os.path.exists(sys.argv[2]):
        open(sys.argv[2], "w").close()
        return  # never answered
    if WAY == "ends in a call" and count == 2:
        sys.exit("ValueError: no more")
    if WAY == "closes":
        os.close(1)
        time.sleep(600)
    if WAY == "noisy":
        asks_and_noise()
    if WAY == "refusing":
        return say(id, error={"code": -32602, "message": "wrong\nwords"})
    text = {"type": "text", "text": f"{os.environ.get('ODD_KEY', '')} {count}".strip()}
    if WAY == "lingering":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.DEVNULL)
        text["text"] = f"{os.getpid()} {child.pid}"
    say(id, result=RESULTS.get(WAY, {"content": [text]}))


def main() -> None:
    if WAY == "broken":
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            version = "1999-01-01" if WAY == "ancient" else message["params"]["protocolVersion"]
            about = {"serverInfo": {"name": "odd", "version": "1"}, "capabilities": {"tools": {}}}
            say(id, result={"protocolVersion": version, **about})
        elif method == "tools/list":
            say(id, result={"tools": TOOLS.get(WAY, [{"name": "count", "inputSchema": OBJECT}])})
        elif method == "tools/call":
            called(id)
        elif method == "server/discover":
            say(id, error={"code": -32601, "message": "unknown"})
    while WAY == "lingering":  # its input has ended
        with suppress(Exception):
            time.sleep(600)


main()
