"""The viewer on a port of this machine, for tests that ask it as a browser does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gem_ma.pages.live.site import Site


@contextmanager
def served(site: Site) -> Iterator[int]:
    """Gives the port, and ends the server behind it."""
    uvicorn = pytest.importorskip("uvicorn")
    from gem_ma.pages.live.server import app, listen

    with listen(0) as bound:
        port = bound.getsockname()[1]
        settings = uvicorn.Config(app(site, port), log_level="error", lifespan="off")
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()
