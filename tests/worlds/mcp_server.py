"""A server of tools with a state: it counts. `python mcp_server.py [PORT]`; without a port it
speaks on its standard input and output."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from mcp.server import MCPServer

server: Any = MCPServer("counter")
total = 0


@server.tool()
def add(number: int) -> str:
    """Adds to the total, and says what it is."""
    global total
    total += number
    return str(total)


@server.tool()
def fail() -> str:
    """Raises."""
    raise ValueError("as asked")


@server.tool()
def sleep() -> str:
    """Takes a minute."""
    time.sleep(60)
    return "late"


@server.tool()
def end() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def key() -> str:
    """What the server knows of keys."""
    return os.environ.get("OPENAI_API_KEY", "none")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
