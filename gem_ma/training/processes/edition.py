"""Which code a process runs: processes that play for one record must run the same."""

from __future__ import annotations

import platform
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path

import gem_ma


@cache  # a process does not change its code
def edition() -> dict[str, str]:
    """The versions of gem_ma and Python, a digest of the code of gem_ma, and the name of the
    machine."""
    place = Path(gem_ma.__file__).parent
    digest = sha256()
    # not the version alone: two checkouts of one version differ by what was written since
    for path in sorted(place.rglob("*.py")):
        digest.update(f"{path.relative_to(place).as_posix()}\0".encode() + path.read_bytes())
    return {
        "gem_ma": gem_ma.__version__,
        "python": platform.python_version(),
        "code": digest.hexdigest()[:12],
        "host": socket.gethostname(),
    }


def differs(mine: dict[str, str], other: dict[str, str]) -> str:
    """What sets two editions apart, in words; "" where they are the same."""
    # Python by its first two numbers: the third repairs faults, and Ray warns of it
    editions = [{**one, "python": ".".join(one["python"].split(".")[:2])} for one in (mine, other)]
    for name in ("gem_ma", "python", "code"):
        here, there = (one[name] for one in editions)
        if here != there:
            shown = f"other code of gem_ma {mine['gem_ma']}" if name == "code" else name
            return f"{shown} ({there} there, {here} here)"
    return ""
