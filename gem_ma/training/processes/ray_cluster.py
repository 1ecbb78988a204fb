"""The cluster behind `--ray ADDRESS`: one that answers at an address, or one that is started on
this machine. Knows no workers.

Ray waits for minutes at an address where no Ray is, and ends the process then. So whoever answers
there is asked first.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.system.extras import install

LOCAL = "local"  # stands for an address: a cluster of this machine, for the length of the run
# On Linux the first one makes every daemon of Ray bind 127.0.0.1; without it they listen on all
# interfaces. Both are read when Ray is imported.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
KNOCK_S = 5.0  # for the first answer of a cluster
STORE = 200 * 2**20  # bytes of shared memory of a local cluster: weights and reports pass there
# How every client of gRPC begins (RFC 9113, section 3.4): a fixed line, and a frame of settings
# that is empty. Its kind, the fourth byte, is 4, and the first frame of the answer has the same.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5)
# how the last part of a traceback begins
_CAUSE = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")


def open_cluster(address: str, workers: int | None = None) -> Any:
    """Ray, connected to the cluster at `address`, or to one that is started here ("local") with so
    many cores, or all. Raises ConfigError without the extra and where there is no such cluster.
    """
    if address == LOCAL:
        # before the import; what a user has set stays
        for name, value in LOOPBACK.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--ray needs Ray ({error.name or error}): {install('ray')}") from error
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        cores = workers or os.cpu_count() or 1
        options = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE}
    start = "start one with: ray start --head, or write --ray local"
    try:
        if address != LOCAL:
            knock(address)
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except OSError as error:
        raise ConfigError(
            f"--ray {address}: no Ray cluster answers there ({line_of(error)}); {start}"
        ) from error
    except (ValueError, RuntimeError) as error:  # a wrong address, other versions of Ray or Python
        raise ConfigError(f"--ray {address}: {line_of(error)}") from error
    except SystemExit as error:  # how Ray gives up
        raise ConfigError(f"--ray {address}: no Ray cluster answers there; {start}") from error
    _hush()
    return ray


def knock(address: str) -> None:
    """Raises OSError where nobody listens at host:port, or somebody who is no Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):  # such as `auto`
        return
    if int(port) > 65535:
        raise OSError(f"port {port}: the largest is 65535")
    place = (host.strip("[]"), int(port))
    with socket.create_connection(place, KNOCK_S) as connection:
        # under TLS Ray answers nobody who does not encrypt; it is enough that somebody is there
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        connection.settimeout(KNOCK_S)
        connection.sendall(PREFACE)
        try:
            # a file reads on until all four are there: they may come one by one
            with connection.makefile("rb") as answers:
                answer = answers.read(4)
        except ConnectionError:  # it hangs up on what it does not understand
            answer = b""
        if answer[3:4] != PREFACE[-6:-5]:
            raise OSError("what answers there does not speak as Ray does")


def _hush() -> None:
    """Ray prints what becomes of its processes on standard output, where results are: the run says
    in its words what of that matters."""
    # It has no option for it. Where the name is gone, Ray prints as it likes.
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *args, **options: None  # type: ignore[union-attr]


def line_of(error: BaseException) -> str:
    """What it says, in one line: of a traceback the end, which names the cause."""
    # colours, and the markers below a line of code
    text = re.sub(r"\x1b\[[0-9;]*m|^[\s^~]+$", "", str(error), flags=re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [place for place, line in enumerate(lines) if _CAUSE.match(line)]
    lines = lines[causes[-1] :] if causes else lines
    return " ".join(lines)[:300] or type(error).__name__
