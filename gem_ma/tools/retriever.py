"""A server that searches, in the shape of Search-R1's retriever (Jin et al., 2025):

    POST {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"contents": "\\"Title\\"\\ntext"}, "score": 0.7}, ...]]}

A try has a deadline for all of it, and its body a size; a key is sent as a bearer's and taken out
of whatever comes back. What goes wrong is raised, in one line, and the agent is shown that.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from gem_ma.engines.api.endpoint import Endpoint
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing import clean
from gem_ma.system.env_file import NO_SECRET
from gem_ma.tools.passages import Passage

MOST_BYTES = 8 << 20  # of an answer
MOST_QUERY = 4_000  # characters
PATH = "/retrieve"  # of an address that has none
# of a server that is busy or away; the wait doubles
TRIES = 3
WAIT_S = 0.5
BUSY = (429, 500, 502, 503, 504)
EXCERPT = 200  # characters of a server's complaint


class RetrieverError(Exception):
    """The server gave no passages; `again`: another try may help. It holds no key."""

    def __init__(self, text: str, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


class Retriever:
    """The server at one address. May be asked from several threads."""

    def __init__(self, url: str, key_name: str | None = None, timeout_s: float = 30.0) -> None:
        """Raises ConfigError for anything that is not an address, or a variable that holds no
        key."""
        endpoint = Endpoint(base_url=url, api_key_env=key_name, timeout_s=timeout_s)
        try:
            # an address may hold no password and no query, which would be logged
            address = str(endpoint.checked("search", "/").base_url)
        except ConfigError as error:
            raise ConfigError(str(error).replace("base_url", "url")) from None
        self.parts = urlsplit(address)
        self.timeout_s = timeout_s
        self.key = endpoint.key("search")

    def best(self, query: str, most: int) -> list[Passage]:
        """The server's first `most` passages. Raises RetrieverError."""
        asked = {"queries": [query[:MOST_QUERY]], "topk": most, "return_scores": True}
        body = json.dumps(asked).encode()
        for number in range(TRIES):
            try:
                entries = _first_list(self._post(body))[:most]
                return [self._passage(entry) for entry in entries]
            except RetrieverError as error:
                if not error.again or number == TRIES - 1:
                    raise
            time.sleep(WAIT_S * 2**number)
        raise AssertionError("the last try returns or raises")

    def _post(self, body: bytes) -> bytes:
        secure = self.parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(str(self.parts.hostname), self.parts.port, timeout=self.timeout_s)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self.key.value not in NO_SECRET:
            headers["authorization"] = f"Bearer {self.key.value}"
        late = threading.Event()
        status = 0
        data = b""
        # a limit of the socket begins anew with each byte: one that drips would hold for ever
        clock = threading.Timer(self.timeout_s, _cut, (connection, late))
        clock.daemon = True
        clock.start()
        try:
            connection.connect()
            if not late.is_set():  # the clock found no socket to end
                connection.request("POST", self.parts.path or PATH, body, headers)
                response = connection.getresponse()
                status = response.status
                data = response.read(MOST_BYTES + 1)
                if response.length and len(data) <= MOST_BYTES:
                    raise http.client.IncompleteRead(data, response.length)
        except TimeoutError:
            late.set()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not late.is_set():
                why = self._harmless(f"{type(error).__name__}: {error}")
                raise RetrieverError(f"the retriever gave no answer ({why})", True) from None
        finally:
            clock.cancel()
            connection.close()
        if late.is_set():  # what was read until then may look like a whole body
            raise RetrieverError(f"the retriever gave no answer within {self.timeout_s:g} s")
        if status != http.client.OK:
            text = self._harmless(data[: 8 * EXCERPT].decode("utf-8", "replace"))
            raise RetrieverError(f"the retriever answered {status}: {text}", status in BUSY)
        if len(data) > MOST_BYTES:
            raise RetrieverError(f"the retriever's answer is longer than {MOST_BYTES >> 20} MiB")
        return data

    def _harmless(self, text: str) -> str:
        """A server's words on a short line, without the key."""
        # hidden before it is cut, or the beginning of a key would stay
        return self.key.hide_at_cut(" ".join(clean(text).split()))[:EXCERPT]

    def _passage(self, entry: Any) -> Passage:
        """A passage, with or without its score. Its first line in quotes is its title."""
        document = entry.get("document", entry) if isinstance(entry, dict) else entry
        text = document
        title = ""
        if isinstance(document, dict):
            text = next((document[key] for key in ("contents", "text") if key in document), None)
            title = document.get("title") or document.get("id") or ""
        if not isinstance(text, str):
            raise RetrieverError("the retriever's answer has a passage without `contents`")
        first, _, rest = text.partition("\n")
        if len(first) > 2 and first[0] == first[-1] == '"' and rest:
            title = first[1:-1]
            text = rest
        return Passage(self._harmless(str(title)), self.key.hide(clean(text)))


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    if (end := connection.sock) is not None:
        with suppress(OSError):  # it was closed in between
            end.shutdown(socket.SHUT_RDWR)  # whoever reads from it goes on at once


def _first_list(data: bytes) -> list[Any]:
    """The passages of the first query, which was the only one."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise RetrieverError("the retriever's answer is no JSON") from None
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or not result or not isinstance(result[0], list):
        raise RetrieverError("the retriever's answer has no list of passages under `result`")
    return result[0]
