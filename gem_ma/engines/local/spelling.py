"""Pieces of a prompt -> token ids, and sampled ids -> text, through one tokenizer.

Knows a tokenizer; knows neither templates nor conversations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from gem_ma.engines.local.chat_template import ChatTemplate, Piece
from gem_ma.kernel.parsing import clean
from gem_ma.kernel.parsing.reasoning import CONTROLS, HARMONY
from gem_ma.kernel.types import Image

KEPT_PIECES = 65_536  # encoded pieces kept; the oldest goes first
# control tokens of known templates that a policy writes itself
MARKS = (
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    *CONTROLS,
)


def marks_of(template: ChatTemplate, more: Sequence[str] = ()) -> frozenset[int]:
    """Control tokens that a policy may say: those of its template that open a tool call or a
    thought, and `more` of its tool format."""
    marks = (*MARKS, *(HARMONY if HARMONY[0] in template.source else ()))
    return frozenset(
        token
        for token, text in template.controls.items()
        if text in more or (text in marks and text in template.source)
    )


def controls_in(template: ChatTemplate, text: str) -> frozenset[int]:
    """The control tokens that stand in a text of the template's own."""
    return frozenset(token for token, control in template.controls.items() if control in text)


class Spelling:
    """Encodes pieces and decodes what was sampled. `marks`: control tokens that stay in a text;
    `image_ids`: the ids of an image, None for a model that reads text only."""

    def __init__(
        self,
        tokenizer: Any,
        marks: frozenset[int],
        image_ids: Callable[[Image], Sequence[int]] | None,
    ) -> None:
        self.tokenizer = tokenizer
        self.marks = marks
        self._image_ids = image_ids
        self._ids: OrderedDict[Piece, tuple[int, ...]] = OrderedDict()

    def encode(self, pieces: Sequence[Piece]) -> tuple[int, ...]:
        """The ids of pieces, each encoded by itself: the ids of a content do not depend on what
        stands beside it, so a longer conversation begins with the ids of the shorter one."""
        ids: list[int] = []
        for piece in pieces:
            known = self._ids.get(piece)
            if known is None:
                known = self._ids[piece] = self._encoded(piece)
                if len(self._ids) > KEPT_PIECES:
                    self._ids.popitem(last=False)
            ids += known
        return tuple(ids)

    def _encoded(self, piece: Piece) -> tuple[int, ...]:
        text, content = piece
        if isinstance(text, Image):
            return tuple(self._image_ids(text)) if self._image_ids else ()
        # split_special_tokens: a control token that somebody wrote is plain letters
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=content)
        return tuple(encoded["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without control tokens; those that open a tool call stay."""
        parts: list[str] = []
        plain: list[int] = []
        for token in [*ids, None]:  # None ends the last run of plain ids
            if token is not None and token not in self.marks:
                plain.append(token)
                continue
            parts.append(
                self.tokenizer.decode(
                    plain, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
            )
            plain = []
            if token is not None:
                parts.append(self.tokenizer.convert_ids_to_tokens(token))
        return clean("".join(parts))
