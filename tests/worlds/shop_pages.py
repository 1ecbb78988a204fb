"""A shop of three pages on loopback: a list, a lamp with a basket that the browser keeps, and an
order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGES = {
    "/": '<h1>Shop</h1><a href="/lamp">Lamp</a>',
    "/lamp": """<h1>Lamp</h1><p id="told"></p><button>Put into the basket</button>
<a href="/order">Order</a>
<script>
  const tell = () => { told.textContent = `In the basket: ${localStorage.lamps ?? 0}`; };
  document.querySelector("button").onclick = () => {
    localStorage.lamps = Number(localStorage.lamps ?? 0) + 1; tell(); };
  tell();
</script>""",
    "/order": """<h1>Order</h1><p id="told"></p>
<form><label>Name <input name="who"></label><button>Send</button></form>
<script>
  const who = new URLSearchParams(location.search).get("who");
  if (who) told.textContent = `Thank you, ${who}: ${localStorage.lamps ?? 0} lamps`;
</script>""",
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path.partition("?")[0])
        self.send_response(200 if page else 404)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(f"<!doctype html><title>Shop</title>{page or 'No page.'}".encode())

    def log_message(self, *words: Any) -> None: ...


@contextmanager
def shop() -> Iterator[str]:
    """Its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
