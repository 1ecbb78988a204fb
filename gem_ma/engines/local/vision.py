"""The `vision` engine: a vision-language model in this process, which sees the images of messages.

It is the `transformers` engine with pixels (`gem_ma.engines.local.sight`). Two things are
otherwise: nothing is kept of a conversation for its next turn, and policies with adapters are
sampled one after another, since the rows of a vision tower are patches, which do not say whose they
are.
"""

from __future__ import annotations

from gem_ma.engines.local.shared_model import Base
from gem_ma.engines.local.sight import Sight
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError


class Vision(Transformers):
    """A local vision-language model of the Qwen-VL family as an engine: `vision/PATH`. Options as
    of `transformers/PATH`, without `kv_tokens`; needs the vision extra."""

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
