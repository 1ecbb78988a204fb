"""A loaded model with all that its policies share: weights, tokenizer, token loop and lock. One
policy's own, or one base under many adapters.

Shared bases live as long as a policy uses them: a weak cache by folder, files and options. What
is shared never learns; adapters on it may.
"""

from __future__ import annotations

import copy
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from gem_ma.engines.local.adapters import Adapters, route
from gem_ma.engines.local.chat import Chat
from gem_ma.engines.local.chat_template import control_tokens
from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.loading import How, first_line, import_stack, load_model
from gem_ma.engines.local.model_folder import check_folder
from gem_ma.engines.local.sampling import Source
from gem_ma.errors import ConfigError, DataError

_SHARED: WeakValueDictionary[tuple[object, ...], Base] = WeakValueDictionary()
_OPENING = threading.Lock()


class Base:
    """A causal language model of `folder` in this process. `name`: the folder, or what the hub
    calls it.

    Raises DataError where the folder is missing parts or damaged, ConfigError for devices that
    cannot be used.
    """

    def __init__(
        self, name: str, folder: Path, policy: str, how: How, *, shared: bool, padded_tokens: int
    ) -> None:
        check_folder(folder, policy)
        self.torch, transformers = import_stack()
        try:
            self.torch.zeros(1, device=how.device)
        except (RuntimeError, AssertionError) as error:
            # torch asserts where it was built without the device
            raise ConfigError(
                f"policy {policy!r}: device {how.device!r} cannot be used here"
                f" ({first_line(error)}); device: cpu always works"
            ) from error
        self.name, self.folder, self.shared = name, folder, shared
        self.tokenizer, self.model = load_model(self.torch, transformers, folder, policy, how)
        self.device = (
            how.device
            if how.device_map is None
            else str(self.model.get_input_embeddings().weight.device)
        )
        self.positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 1 << 30)
        self.vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        self.ends = self._end_ids(policy)
        self.padded_tokens = padded_tokens
        self._begin()

    def _begin(self) -> None:
        self.adapters = Adapters(self.torch, self.model)
        self.lock = threading.RLock()  # held while sampling and while weights change
        self._locks: WeakSet[Any] = WeakSet()
        self._decoders: dict[frozenset[int], tuple[Decoder, Any]] = {}
        self._hashed: tuple[object, str] | None = None

    def copy(self) -> Base:
        """The same weights in a module of its own, without adapters."""
        other = copy.copy(self)
        other.shared, other.model = False, copy.deepcopy(self.model)
        other._begin()
        return other

    def decoder(self, chat: Chat) -> tuple[Decoder, Any]:
        """The token loop of all policies that may say what this chat lets them say, and its mask
        of ids: see `_banned`."""
        if chat.marks not in self._decoders:
            banned = self._banned(chat.marks)
            self._decoders[chat.marks] = (
                Decoder(
                    self.torch,
                    self.model,
                    banned=banned,
                    ends=self.ends,
                    positions=self.positions,
                    device=self.device,
                    padded_tokens=self.padded_tokens,
                    text=partial(spoken, chat, self.ends),
                    route=partial(_route, self.torch, self.device),
                    weights=self._computing,
                ),
                banned,
            )
        return self._decoders[chat.marks]

    def limit(self, padded_tokens: int) -> None:
        """Forward passes of at most so many tokens, padding included; of several wishes the
        smallest holds."""
        self.padded_tokens = min(self.padded_tokens, padded_tokens)
        for decoder, _ in self._decoders.values():
            decoder.padded_tokens = self.padded_tokens

    def another_lock(self) -> Any:
        """A lock for a policy that computes while others do, from other threads; it holds up
        changes of the module as `lock` does."""
        lock = threading.RLock()
        self._locks.add(lock)
        return lock

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Inside, adapters may come and go: nobody computes."""
        with ExitStack() as held:
            for lock in (self.lock, *self._locks):
                held.enter_context(lock)
            yield

    def _end_ids(self, policy: str) -> frozenset[int]:
        configured = self.model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        ends = frozenset(
            int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None
        )
        if not ends:
            raise DataError(
                f"policy {policy!r}: {self.name} names no end-of-turn token; set eos_token_id in"
                " generation_config.json"
            )
        return ends

    def _banned(self, marks: frozenset[int]) -> Any:
        """[vocabulary] float32: -inf at ids that are never sampled and never trained on, else 0."""
        mask = self.torch.zeros(self.vocabulary, dtype=self.torch.float32, device=self.device)
        mask[len(self.tokenizer) :] = -self.torch.inf  # rows that only pad the embedding
        free = self.ends | marks  # some templates open a tool call by a control token
        never = {
            token
            for token in control_tokens(self.tokenizer)
            if token not in free and token < self.vocabulary
        }
        mask[sorted(never)] = -self.torch.inf
        return mask

    def _computing(self, source: Source) -> list[Any]:
        """The parameters that a row of this source goes through: those of the model, and of its
        own adapter."""
        mine = self.adapters.parameters(source.adapter) if source.adapter is not None else {}
        return [*self.weights().values(), *mine.values()]

    def routed(self, adapter: str | None) -> AbstractContextManager[None]:
        """Inside, every row of the module sees this adapter."""
        return route((adapter,), self.torch, self.device)

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any]:
        """The parameters of the model by name, those of adapters apart."""
        return self.adapters.base()

    def fingerprint(self) -> str:
        """SHA-256 of the weights. Where they are shared they are read again only when one was
        written to."""
        weights = self.weights()
        stamp = tuple((weight.data_ptr(), weight._version) for weight in weights.values())
        if not self.shared or self._hashed is None or self._hashed[0] != stamp:
            self._hashed = (stamp, digest_of(weights, self.torch).hexdigest())
        return self._hashed[1]


def open_base(
    name: str, folder: Path, policy: str, how: How, *, shared: bool, padded_tokens: int
) -> Base:
    """A model of its own, or the one that this process has open already, for policies that leave
    its weights as they are."""
    if not shared:
        return Base(name, folder, policy, how, shared=False, padded_tokens=padded_tokens)
    check_folder(folder, policy)
    with _OPENING:
        files = sorted(
            (file.name, (stat := file.stat()).st_size, stat.st_mtime_ns)
            for file in folder.iterdir()
            if file.is_file()
        )
        key = (os.path.realpath(folder), tuple(files), how)
        base = _SHARED.get(key)
        if base is None:
            base = _SHARED[key] = Base(
                name, folder, policy, how, shared=True, padded_tokens=padded_tokens
            )
        base.limit(padded_tokens)
        return base


def spoken(chat: Chat, ends: frozenset[int], ids: Sequence[int], stop: Sequence[str] = ()) -> str:
    """The text of sampled ids, without the end token and before the first stop string."""
    kept = ids[:-1] if ids and ids[-1] in ends else ids
    text = chat.text(kept)
    cuts = [at for at in (text.find(mark) for mark in stop if mark) if at >= 0]
    return text[: min(cuts)] if cuts else text


def digest_of(weights: Mapping[str, Any], torch: Any) -> Any:
    """SHA-256 of weights by name, open to more."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest


def _route(torch: Any, device: Any, sources: Sequence[Source]) -> AbstractContextManager[None]:
    return route([source.adapter for source in sources], torch, device)
