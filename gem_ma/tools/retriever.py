"""A server that searches, in the shape of Search-R1's retriever (Jin et al., 2025):

    POST {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"contents": "\\"Title\\"\\ntext"}, "score": 0.7}, ...]]}

A try has a deadline for all of it, and its body a size; a key is sent as a bearer's and taken out
of whatever comes back. What goes wrong is raised, in one line, and the agent is shown that.
"""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from gem_ma.engines.endpoint.client import Client
from gem_ma.engines.endpoint.endpoint import Endpoint, Secret
from gem_ma.engines.endpoint.faults import Fault
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.text import clean
from gem_ma.system.env_file import NO_SECRET
from gem_ma.tools.passages import Passage

MOST_BYTES = 8 << 20  # of an answer
MOST_QUERY = 4_000  # characters
PATH = "/retrieve"  # of an address that has none
# of a server that is busy or away; the wait doubles
TRIES = 3
WAIT_S = 0.5
BUSY = (429, 500, 502, 503, 504)
TITLE = 200  # characters of a title


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
        self.address = address if urlsplit(address).path else address + PATH
        self.timeout_s = timeout_s
        key = endpoint.key("search")
        self.key = Secret("") if key.value in NO_SECRET else key

    def best(self, query: str, most: int) -> list[Passage]:
        """The server's first `most` passages. Raises RetrieverError."""
        asked = {"queries": [query[:MOST_QUERY]], "topk": most, "return_scores": True}
        for number in range(TRIES):
            try:
                entries = _first_list(self._post(asked))[:most]
                return [self._passage(entry) for entry in entries]
            except RetrieverError as error:
                if not error.again or number == TRIES - 1:
                    raise
            time.sleep(WAIT_S * 2**number)
        raise AssertionError("the last try returns or raises")

    def _post(self, body: dict[str, Any]) -> bytes:
        client = Client(self.address, self.key, 1)
        asking = client.post("", body, timeout_s=self.timeout_s, most_bytes=MOST_BYTES)
        try:
            # in a thread of its own: an event loop may run in the one that searches
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(asyncio.run, asking).result()[0]
        except Fault as fault:
            if isinstance(fault.__context__, TimeoutError):
                late = f"the retriever gave no answer within {self.timeout_s:g} s"
                raise RetrieverError(late) from None
            why = fault.without(self.key.hide).detail.replace("base_url", "url")
            if fault.status is None:
                raise RetrieverError(f"the retriever gave no answer ({why})", True) from None
            told = f"the retriever answered {fault.status}: {why}"
            raise RetrieverError(told, fault.status in BUSY) from None

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
        # hidden before it is cut, or the beginning of a key would stay
        title = self.key.hide(" ".join(clean(str(title)).split()))[:TITLE]
        return Passage(title, self.key.hide(clean(text)))


def _first_list(data: bytes) -> list[Any]:
    """The passages of the first query, which was the only one."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise RetrieverError("the retriever's answer is not JSON") from None
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or not result or not isinstance(result[0], list):
        raise RetrieverError("the retriever's answer has no list of passages under `result`")
    return result[0]
