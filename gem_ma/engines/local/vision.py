"""The `vision` engine: a vision-language model in this process, which sees the images of messages.

It is the `transformers` engine with pixels: sampled in batches, bound to legal strings, and learned
whole or by an adapter. In the prompt an image is as many image ids as the processor makes patches
of it, where the chat template puts it. The pixels go to the model beside them
(`gem_ma.engines.local.sight`), so the record needs only the ids, and the images by their digests.

Two things are otherwise. Nothing is kept of a conversation for its next turn, which computes the
whole prompt again. And policies with adapters are sampled one after another: the rows of a vision
tower are patches, which say not whose they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gem_ma.engines.local.shared_model import Base
from gem_ma.engines.local.sight import Sight
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Image


class Vision(Transformers):
    """A local vision-language model of the Qwen-VL family as an engine: `vision/PATH`. Options as
    of `transformers/PATH`; needs the vision extra.

    Raises DataError where the folder is missing or damaged, ConfigError where its processor or
    its kind of model is not supported, and for `kv_tokens`.
    """

    exports = "vision"
    sees = True

    def _open(self, *, shared: bool) -> Base:
        if self.kv_tokens:
            raise ConfigError(
                f"policy {self.policy!r}: the vision engine keeps no KV for the next turn; leave"
                " kv_tokens out"
            )
        self.kv_tokens = 0
        return super()._open(shared=shared)

    @property
    def shares(self) -> None:
        """See `Mixes`: no pass holds rows of two adapters."""
        return None

    @property
    def sight(self) -> Sight:
        """What ids of images show."""
        assert self.base.sight is not None  # as the base was opened
        return self.base.sight

    @property
    def image_id(self) -> int:
        """The token that stands for a patch of an image."""
        return self.sight.token

    def image_ids(self, image: Image) -> tuple[int, ...]:
        """What stands for the image in a prompt. Raises EngineError for anything that is not an
        image."""
        return self.sight.images.ids(image)

    def score(
        self,
        prompt: Sequence[int],
        ids: Sequence[int],
        images: Sequence[Image] = (),
        temperature: float = 1.0,
    ) -> list[float]:
        """Log-probabilities of `ids` after `prompt`, in which these images stand in order: one
        pass over all with the pixels."""
        pictures = self.sight.open(images)  # held until the pass is done
        seen = self.sight.seen([*prompt, *ids], [picture.image.digest for picture in pictures])
        with self.lock, self.torch.inference_mode(), self.active():
            inputs: dict[str, Any] = self.sight.inputs(self.torch, np.array([seen], np.int64))
            logits = self.model(**inputs, use_cache=False).logits
        # The logits at a place are those of the id behind it.
        scores = (logits[0, len(prompt) - 1 : -1].float() + self.banned) / temperature
        chances = scores.log_softmax(-1)
        return [float(row[token]) for row, token in zip(chances, ids, strict=True)]
