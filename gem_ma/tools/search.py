"""The tool `search`: the passages that fit a query best, out of a folder of texts by their words
(`passages`) or by their meaning (`dense`), or out of a server that searches (`retriever`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gem_ma.engines.models.loading import first_line, import_stack, quiet
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Tool
from gem_ma.system.folders import check_named, read_named
from gem_ma.tools.belt import Equipment, Use
from gem_ma.tools.passages import PASSAGE, Index, Passage, read
from gem_ma.tools.retriever import Retriever

# Passages by their meaning: a sentence-embedding model of a local folder says how near each is to a
# query.
# The folder is one of `sentence-transformers`, as all-MiniLM-L6-v2 or e5, and is read by
# `transformers` alone: the mean (or the first) of the last hidden states, scaled to length 1
# (Reimers and Gurevych, "Sentence-BERT", 2019). Nothing is fetched.

BATCH = 32  # texts that are embedded at once
MOST_TOKENS = 512  # of a text; the rest is not seen
POOLINGS = ("mean", "cls")
TOKENIZERS = ("tokenizer.", "vocab.", "spiece.", "sentencepiece.")  # beginnings of files


class Dense:
    """Passages as vectors, which are made at the first query."""

    def __init__(self, passages: list[Passage], model: Path) -> None:
        self.passages = passages
        self.lock = threading.Lock()
        self.embedder = Embedder(model)
        self.vectors: Any = None

    def best(self, query: str, most: int) -> list[Passage]:
        """The `most` nearest passages, the nearest first; ties in the order of files."""
        with self.lock:  # calls come from threads
            if self.vectors is None:
                texts = [passage.text for passage in self.passages]
                self.vectors = self.embedder.vectors(texts, "passage")
            scores = self.vectors @ self.embedder.vectors([query], "query")[0]
        order = scores.argsort(descending=True, stable=True)[:most]
        return [self.passages[number] for number in order.tolist()]


class Embedder:
    """Texts to vectors of length 1."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError for a folder that holds no such model."""
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"search: {folder} is not a folder of an embedding model (config.json)"
            )
        if not any(file.name.startswith(TOKENIZERS) for file in folder.iterdir()):
            # transformers would make one that knows no word
            raise ConfigError(f"search: {folder} holds no tokenizer (tokenizer.json)")
        self.torch, transformers = import_stack()
        pooled = {
            name.removeprefix("pooling_mode_")
            for name, value in _settings(folder / "1_Pooling" / "config.json").items()
            if name.startswith("pooling_mode_") and value is True
        }
        names = {"mean_tokens": "mean", "cls_token": "cls"}
        self.pooling = names.get(pooled.pop() if len(pooled) == 1 else "", "") if pooled else "mean"
        if self.pooling not in POOLINGS:
            raise ConfigError(f"search: {folder} pools in another way than {' or '.join(POOLINGS)}")
        # e5 and its kin want to be told which text is a query
        prompts = _settings(folder / "config_sentence_transformers.json").get("prompts")
        self.prompts = prompts if isinstance(prompts, dict) else {}
        length = _settings(folder / "sentence_bert_config.json").get("max_seq_length")
        self.most = MOST_TOKENS
        if isinstance(length, int) and length > 1:
            self.most = min(length, MOST_TOKENS)
        try:
            check_named(folder)  # the loaders of the library open what they find
            with quiet(transformers):
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True
                )
                self.model = transformers.AutoModel.from_pretrained(
                    folder, local_files_only=True, use_safetensors=True
                ).eval()
            rows = self.model.get_input_embeddings().weight.shape[0]
            if max(self.tokenizer.get_vocab().values()) >= rows:
                raise ValueError("its tokenizer knows words that the model does not")
            # a fault that each query would show: no padding, a decoder beside, no numbers
            if not self.torch.isfinite(self.vectors(["a", "a word"], "query")).all():
                raise ValueError("it gives vectors that are not numbers")
        except Exception as error:  # of any class: the library raises dozens
            why = first_line(error)
            raise ConfigError(f"search: {folder} cannot be read as a model ({why})") from error

    def vectors(self, texts: Sequence[str], kind: str) -> Any:
        """A matrix, one row a text. `kind`: query or passage."""
        prompt = str(self.prompts.get(kind) or "")
        rows = []
        with self.torch.inference_mode():
            for begin in range(0, len(texts), BATCH):
                batch = [prompt + text for text in texts[begin : begin + BATCH]]
                inputs = self.tokenizer(
                    batch, padding=True, truncation=True, max_length=self.most, return_tensors="pt"
                )
                states = self.model(**inputs).last_hidden_state
                mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
                # of the padding nothing may count
                mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
                rows.append(states[:, 0] if self.pooling == "cls" else mean)
            return self.torch.nn.functional.normalize(self.torch.cat(rows), dim=1)


def _settings(file: Path) -> dict[str, Any]:
    """A JSON object of the folder; empty without such a file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(read_named(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"search: {file} cannot be read as JSON ({error})") from error
    return value if isinstance(value, dict) else {}


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
        return "\n\n".join(map(shown, passages)) or "No passage fits this query."


def shown(passage: Passage) -> str:
    """A passage as an agent reads it."""
    # those of a server may have any length
    return f"[{passage.file}]\n{passage.text[: 4 * PASSAGE]}"


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
        passage_chars: int = PASSAGE,
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Reads the folder, and the embedding model where one is named. Raises ConfigError where
        they cannot be read, or the address is none; the server is not asked yet."""
        self.finder = _finder(folder, passage_chars, model, url, api_key_env, timeout_s)
        self.results = results
        self.uses = uses
        self.reward = reward

    def open(self) -> Look:
        return Look(self.finder, self.results)

    def texts(self) -> Iterable[str]:
        passages = getattr(self.finder, "passages", ())  # a server does not tell its own
        return (shown(passage) for passage in passages)


def _finder(
    folder: str | None,
    least: int,
    model: str | None,
    url: str | None,
    key: str | None,
    timeout_s: float,
) -> Finder:
    if url is not None and folder is None and model is None:
        return Retriever(url, key, timeout_s)
    # an empty text would be the folder that gem-ma was started in
    if not folder or url is not None:
        raise ConfigError("search: wants a folder, which may have a model, or a url")
    passages = read(Path(folder), least)
    if model is None:
        return Index(passages)

    return Dense(passages, Path(model))
