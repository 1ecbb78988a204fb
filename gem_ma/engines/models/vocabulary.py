"""The ids of a model: which end a turn, which are never sampled, and what text the others make.

One definition for every engine that holds a tokenizer: the sampler masks the banned ids, the
learner masks the same ids when it scores, and vLLM gets them as biases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.loading import read_json
from gem_ma.engines.models.sight import Sight
from gem_ma.kernel.errors import DataError, EngineError


def end_ids(tokenizer: Any, configured: Any, model: str, where: str) -> frozenset[int]:
    """Ids that end a turn: the tokenizer's end token, and what is `configured` as `eos_token_id`
    in the generation config of `model`. Raises DataError where there is none."""
    ids = configured if isinstance(configured, list) else [configured]
    # Both count: a chat model often ends its turns with an id that its tokenizer does not name.
    ends = frozenset(int(token) for token in [*ids, tokenizer.eos_token_id] if token is not None)
    if not ends:
        raise DataError(
            f"{where}: {model} names no end-of-turn token; set eos_token_id in"
            " generation_config.json"
        )
    return ends


def end_ids_of(folder: str, tokenizer: Any, where: str) -> frozenset[int]:
    """The same of a model's folder."""
    file = "generation_config.json"
    # Many folders have none; then the tokenizer's end token is all.
    present = (Path(folder) / file).is_file()
    configured = read_json(folder, file, where).get("eos_token_id") if present else None
    return end_ids(tokenizer, configured, folder, where)


def head_rows(config: Mapping[str, Any], folder: str, where: str) -> int:
    """Rows of the output head, those without a token included. Raises DataError."""
    # A model that sees as well keeps the settings of its language model apart.
    inner = config.get("text_config")
    size = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    if not isinstance(size, int) or size < 1:
        raise DataError(f"{where}: {folder}/config.json names no vocab_size")
    return size


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the ids of one model mean to one chat. `size`: rows of the output head, those without a
    token included. `banned`: ids that are never sampled and never trained on. `read(ids)`: their
    text. `sight`: what ids of images show; None for a model that reads text only."""

    size: int
    ends: frozenset[int]
    banned: frozenset[int]
    read: Callable[[Sequence[int]], str]
    sight: Sight | None = None

    @classmethod
    def of(
        cls, chat: Chat, size: int, never: Iterable[int] = (), sight: Sight | None = None
    ) -> Vocabulary:
        """The vocabulary of a chat's tokenizer under a head of `size` rows. Banned are control
        tokens, rows without a token, and the ids in `never`."""
        # Some templates open a tool call with a control token: the marks of a chat stay free.
        free = chat.ends | chat.marks
        controls = [token for token in chat.template.controls if token not in free]
        # Heads are padded to a round number of rows, and training never touched the last of them.
        padding = range(len(chat.tokenizer), size)
        banned = frozenset(token for token in (*controls, *padding, *never) if token < size)
        return cls(size, chat.ends, banned, chat.text, sight)

    def mask(self, torch: Any, device: Any) -> Any:
        """[size] float32, to be added to logits: -inf at banned ids, else 0."""
        mask = torch.zeros(self.size, dtype=torch.float32, device=device)
        mask[sorted(self.banned)] = -torch.inf
        return mask

    def check(self, ids: Sequence[int], whose: str) -> None:
        """Raises EngineError for an id beyond the head, whose row learning would look for."""
        most = max(ids, default=0)
        if most >= self.size:
            raise EngineError(
                f"{whose} sampled id {most}, and the model has {self.size}; name the folder that is"
                " served"
            )

    def cut(self, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
        """The text of sampled ids, without the end token and before the first stop string."""
        text = self.read(ids[:-1] if ids and ids[-1] in self.ends else ids)
        # An empty stop string stands in every text; it stops nothing.
        places = [place for place in (text.find(mark) for mark in stop if mark) if place >= 0]
        return text[: min(places)] if places else text
