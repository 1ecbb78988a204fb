"""The tool `search`: the passages that fit a query best, out of a folder of texts by their words
(`passages`) or by their meaning (`dense`), or out of a server that searches (`retriever`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Tool
from gem_ma.tools.belt import Equipment, Use
from gem_ma.tools.dense import Dense  # late: it brings torch
from gem_ma.tools.passages import PASSAGE, Index, Passage, read
from gem_ma.tools.retriever import Retriever

DESCRIPTION = "Searches a collection of texts and gives the passages that fit the query best."
PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for, in words."}},
    "required": ["query"],
}
TIMEOUT_S = 30.0


class Finder(Protocol):
    """Where passages are found."""

    def best(self, query: str, most: int) -> list[Passage]:
        """Up to `most` passages, the best first. Whatever it raises is what the agent is shown."""


class Look(Use):
    """The last query of a play."""

    def __init__(self, finder: Finder, most: int) -> None:
        self.finder = finder
        self.most = most
        self.query: Any = None

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.query = arguments.get("query")

    def run(self) -> Any:
        if not isinstance(self.query, str):
            raise TypeError("query is a text")
        passages = self.finder.best(self.query, self.most)
        # those of a server may have any length
        parts = [f"[{passage.file}]\n{passage.text[: 4 * PASSAGE]}" for passage in passages]
        return "\n\n".join(parts) or "No passage fits this query."


class Search(Equipment):
    """`tools: [{search: {folder: docs}}]`, or `{search: {url: ADDRESS}}`."""

    tools = (Tool("search", DESCRIPTION, PARAMETERS),)

    def __init__(
        self,
        folder: str | None = None,
        *,
        model: str | None = None,
        url: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float = TIMEOUT_S,
        results: int = 3,
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Reads the folder, and the embedding model where one is named. Raises ConfigError where
        they cannot be read, or the address is none; the server is not asked yet."""
        self.finder = _finder(folder, model, url, api_key_env, timeout_s)
        self.results = results
        self.uses = uses
        self.reward = reward

    def open(self) -> Look:
        return Look(self.finder, self.results)


def _finder(
    folder: str | None, model: str | None, url: str | None, key: str | None, timeout_s: float
) -> Finder:
    if url is not None and folder is None and model is None:
        return Retriever(url, key, timeout_s)
    # an empty text would be the folder that gem-ma was started in
    if not folder or url is not None:
        raise ConfigError("search: wants a folder, which may have a model, or a url")
    passages = read(Path(folder))
    if model is None:
        return Index(passages)

    return Dense(passages, Path(model))
