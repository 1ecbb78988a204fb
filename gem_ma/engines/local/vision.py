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

from gem_ma.engines.local.shared_model import Base
from gem_ma.engines.local.sight import Sight
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError


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
