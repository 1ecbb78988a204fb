"""Passages by their meaning: a sentence-embedding model of a local folder says how near each is to
a query.

The folder is one of `sentence-transformers`, as all-MiniLM-L6-v2 or e5, and is read by
`transformers` alone: the mean (or the first) of the last hidden states, scaled to length 1
(Reimers and Gurevych, "Sentence-BERT", 2019). Nothing is fetched.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_ma.engines.local.loading import first_line, import_stack, quiet
from gem_ma.kernel.errors import ConfigError
from gem_ma.system.folders import check_named, read_named
from gem_ma.tools.passages import Passage

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
            raise ConfigError(f"search: {folder} is no folder of an embedding model (config.json)")
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
                raise ValueError("it gives vectors that are no numbers")
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
    """A JSON object of the folder; empty where there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(read_named(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"search: {file} cannot be read as JSON ({error})") from error
    return value if isinstance(value, dict) else {}
