"""Servers of this machine: where they listen, and which requests come from somewhere else.

Both guards are for a browser: a page of a foreign site can ask a server here (CSRF), or rebind its
own name to this address (DNS rebinding). Knows no server: `headers` is any mapping.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.system.extras import install

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(port: int, *hosts: str) -> list[str]:
    """What the header Host may say of a server on this port that listens at these hosts too."""
    return [f"{name}:{port}" for name in (LOOPBACK, "localhost", *hosts)]


def is_ours(headers: Mapping[str, str], names: list[str]) -> bool:
    """Whether a request asks for one of these names, and not on behalf of another site."""
    # exactly: another name that leads here is that of a site which rebinds its address
    if headers.get("host", "").lower() not in names:
        return False
    return headers.get("origin") is None or has_our_origin(headers, names)


def has_our_origin(headers: Mapping[str, str], names: list[str]) -> bool:
    """Whether a page of this server sent the request."""
    return headers.get("origin") in [f"http://{name}" for name in names]


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket that listens; port 0 is a free one. Raises OSError where it is taken."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # before the address is told: who comes early waits, and is not refused
        bound.listen(backlog)
    except OSError:
        bound.close()
        raise
    return bound


def library(what: str, extra: str) -> Any:
    """uvicorn. Raises ConfigError where it or starlette is missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"{what} needs starlette and uvicorn: {install(extra)}") from error
    return uvicorn
