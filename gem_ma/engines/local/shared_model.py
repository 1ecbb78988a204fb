"""A loaded model with all that its policies share: weights, tokenizer, token loop and lock. It is
the model of one policy, or one base under many adapters; a shared base never learns."""

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
from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.sampling import Source
from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.loading import (
    READING,
    SEEING,
    How,
    first_line,
    import_stack,
    load_model,
)
from gem_ma.engines.models.settings import Memory
from gem_ma.engines.models.sight import around_images, image_processor, sight_of
from gem_ma.engines.models.vocabulary import Vocabulary, end_ids
from gem_ma.kernel.errors import ConfigError

# Weak: the weights are freed with the last policy that uses them.
_SHARED: WeakValueDictionary[tuple[object, ...], Base] = WeakValueDictionary()
_OPENING = threading.Lock()


class Base:
    """A causal language model of `folder` in this process. `name`: the folder, or what the hub
    calls it. `sees`: a vision-language model, with its image processor. Raises DataError for a
    damaged folder, ConfigError for devices that cannot be used."""

    def __init__(
        self,
        name: str,
        folder: Path,
        policy: str,
        how: How,
        *,
        shared: bool,
        padded_tokens: int,
        sees: bool = False,
    ) -> None:
        self.torch, transformers = import_stack()
        # before the weights, which may take minutes
        processor = image_processor(transformers, folder, name, policy) if sees else None
        try:
            self.torch.zeros(1, device=how.device)
        except (RuntimeError, AssertionError) as error:
            # An AssertionError comes from a torch that was built without the device.
            raise ConfigError(
                f"policy {policy!r}: device {how.device!r} cannot be used here"
                f" ({first_line(error)}); device: cpu always works"
            ) from error
        self.name = name
        self.folder = folder
        self.shared = shared
        kind = SEEING if sees else READING
        self.tokenizer, self.model = load_model(self.torch, transformers, folder, policy, how, kind)
        # accelerate places the parts itself; ids go to where the embeddings lie.
        placed = self.model.get_input_embeddings().weight.device
        self.device = how.device if how.device_map is None else str(placed)
        # A model that names no number of positions has no such limit.
        text = self.model.config.get_text_config()
        self.positions = int(getattr(text, "max_position_embeddings", 0) or 1 << 30)
        # The head, not the tokenizer: heads are often padded to a round number of rows.
        self.size = int(self.model.get_output_embeddings().weight.shape[0])
        configured = self.model.generation_config.eos_token_id
        self.ends = end_ids(self.tokenizer, configured, self.name, f"policy {policy!r}")
        self.padded_tokens = padded_tokens
        where = f"policy {policy!r}"
        self.sight = sight_of(self.model, processor, self.device, where, name) if sees else None
        self._begin()

    def _begin(self) -> None:
        self.adapters = Adapters(self.torch, self.model)
        self.lock = threading.RLock()  # held while sampling and while weights change
        self._locks: WeakSet[Any] = WeakSet()
        self._decoders: dict[frozenset[int], Decoder] = {}
        self._hashed: tuple[object, str] | None = None

    def copy(self) -> Base:
        """The same weights in a module of its own, without adapters."""
        other = copy.copy(self)
        other.shared = False
        other.model = copy.deepcopy(self.model)
        other._begin()
        return other

    @property
    def vision(self) -> Any:
        """What a chat needs to show images; None for a model that reads text only."""
        if self.sight is None:
            return None
        return self.tokenizer.convert_ids_to_tokens(self.sight.token), self.sight.images.ids

    def decoder(self, chat: Chat) -> Decoder:
        """The token loop of all policies that may say what this chat lets them say."""
        # The marks of a chat are all that its vocabulary depends on beside the tokenizer.
        if chat.marks not in self._decoders:
            never = around_images(self.model) if self.sight is not None else ()
            vocabulary = Vocabulary.of(chat, self.size, never, self.sight)
            self._decoders[chat.marks] = Decoder(
                self.torch,
                self.model,
                vocabulary,
                vocabulary.mask(self.torch, self.device),
                # what is kept is cut between any two ids, and an image is in one
                Memory(self.padded_tokens, None if self.sight is None else 0),
                positions=self.positions,
                route=partial(_route, self.torch, self.device),
                weights=self._computing,
            )
        return self._decoders[chat.marks]

    def limit(self, padded_tokens: int) -> None:
        """Forward passes of at most so many tokens; of several wishes the smallest holds."""
        self.padded_tokens = min(self.padded_tokens, padded_tokens)
        for decoder in self._decoders.values():
            decoder.padded_tokens = self.padded_tokens

    def another_lock(self) -> Any:
        """A lock for a policy that computes beside others; like `lock` it holds up changes."""
        lock = threading.RLock()
        self._locks.add(lock)
        return lock

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Inside, adapters may come and go: nobody computes."""
        with ExitStack() as held:
            # `lock` first: two threads that change the module meet there
            for lock in (self.lock, *self._locks):
                held.enter_context(lock)
            yield

    def _computing(self, source: Source) -> list[Any]:
        mine = self.adapters.parameters(source.adapter) if source.adapter is not None else {}
        return [*self.weights().values(), *mine.values()]

    def routed(self, adapter: str | None) -> AbstractContextManager[None]:
        """Inside, every row of the module sees this adapter."""
        return route((adapter,), self.torch, self.device)

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any]:
        """The parameters of the model by name, without those of adapters."""
        return self.adapters.base()

    def fingerprint(self) -> str:
        """SHA-256 of the weights. Shared weights are read again only after one was written to."""
        weights = self.weights()
        # Every policy on the base asks, before and after a run, and hashing reads all of it.
        stamp = tuple((weight.data_ptr(), weight._version) for weight in weights.values())
        if not self.shared or self._hashed is None or self._hashed[0] != stamp:
            self._hashed = (stamp, digest_of(weights, self.torch).hexdigest())
        return self._hashed[1]


def open_base(
    name: str,
    folder: Path,
    policy: str,
    how: How,
    *,
    shared: bool,
    padded_tokens: int,
    sees: bool = False,
) -> Base:
    """A model that is loaded anew; or, `shared`, the one that this process has open already."""
    options: dict[str, Any] = {"shared": shared, "padded_tokens": padded_tokens, "sees": sees}
    if not shared:
        return Base(name, folder, policy, how, **options)
    with _OPENING:
        # Sizes and times: a folder that was written to since is another model.
        files = sorted(
            (file.name, (stat := file.stat()).st_size, stat.st_mtime_ns)
            for file in folder.iterdir()
            if file.is_file()
        )
        key = (os.path.realpath(folder), tuple(files), how, sees)
        base = _SHARED.get(key)
        if base is None:
            base = _SHARED[key] = Base(name, folder, policy, how, **options)
        base.limit(padded_tokens)
        return base


def digest_of(weights: Mapping[str, Any], torch: Any) -> Any:
    """SHA-256 of weights by name, a digest that takes more."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        # Through bytes: numpy has no bfloat16.
        digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest


def _route(torch: Any, device: Any, sources: Sequence[Source]) -> AbstractContextManager[None]:
    return route([source.adapter for source in sources], torch, device)
