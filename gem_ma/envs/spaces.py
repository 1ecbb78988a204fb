"""Chat spaces: any text is a member, and a mask of legal strings makes every random player play
legally.

Gymnasium's own `Text` knows a charset only and samples up to its length limit. Not supported:
flattening and Gymnasium's vector layer with shared memory, both refused here because Gymnasium
would ask for an array as long as the longest text (gigabytes).
"""

from __future__ import annotations

import string
from typing import Any, NoReturn

from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import utils as flattening
from gymnasium.vector.utils import create_shared_memory

# no bound in practice; spaces want a number, and some keep it in 32 bits
MAX_LENGTH = 2**31 - 1
SAMPLED_LENGTH = 32


class ChatText(spaces.Text):
    """Any text as far as `contains` goes; short printable ASCII for players that sample without a
    mask.

    `sample(mask)` with a tuple of strings picks one of them, from the space's own random stream.
    """

    def __init__(
        self, max_length: int = MAX_LENGTH, *, min_length: int = 0, seed: Any = None
    ) -> None:
        super().__init__(max_length, min_length=min_length, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        # the charset is of samples alone: agents write any letter
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        # ("yes", "no") is a pair too
        if isinstance(mask, (tuple, list)) and all(isinstance(choice, str) for choice in mask):
            if not mask:
                raise ValueError("an empty mask leaves nothing to sample")
            # the space's own stream: seeding it makes a random player repeatable
            return str(mask[int(self.np_random.integers(len(mask)))])
        if mask is None and probability is None:
            most = min(self.max_length, max(SAMPLED_LENGTH, self.min_length))
            mask = (int(self.np_random.integers(self.min_length, most + 1)), None)
        return super().sample(mask, probability)

    def __repr__(self) -> str:
        return f"ChatText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatText) and (self.min_length, self.max_length) == (
            other.min_length,
            other.max_length,
        )

    def __hash__(self) -> int:
        return hash((self.min_length, self.max_length))


def _refuse_flattening(space: ChatText, *_: Any) -> NoReturn:
    raise TypeError(
        "a chat observation has no flat form: text has no fixed length; read the messages, or"
        " encode them with a wrapper of your own"
    )


for _function in (
    flattening.flatdim,
    flattening.flatten_space,
    flattening.flatten,
    flattening.unflatten,
):
    # singledispatch of Gymnasium: a subclass is registered, or flattened as its base
    _function.register(ChatText, _refuse_flattening)


@create_shared_memory.register(ChatText)
def _refuse_sharing(space: ChatText, *_: Any, **__: Any) -> NoReturn:
    # what AsyncVectorEnv turns into its advice: shared_memory=False
    raise CustomSpaceError("a text has no fixed length, so processes cannot share its memory")


def observation_space() -> spaces.Dict:
    """The space of `gem_ma.envs.observation`: no key `observation`, which PettingZoo would take
    for an array."""
    # every key in every message: a Dict space knows no optional ones
    keys = ("role", "name", "content", "tool_calls", "tool_call_id")
    return spaces.Dict(
        {"messages": spaces.Sequence(spaces.Dict({key: ChatText() for key in keys}))}
    )
