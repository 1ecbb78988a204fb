"""Reads a model of Llama's architecture out of one GGUF file: its facts, its words, its weights as
float32 arrays. Knows bytes and numpy; knows neither torch nor where the file came from.

The format is that of ggml's `docs/gguf.md`, version 3, little-endian. Of the quantised types only
those of the models in `gem_ma.engines.local.packaged` are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import DataError

Weights = NDArray[np.float32]
Bytes = NDArray[np.uint8]
MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
# kind of a value -> how struct unpacks it; 8 is a text and 9 a list
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT = 8
_LIST = 9
CONTROL = 3  # the kind of a token that is no text, such as the end of a turn
PLACES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""GGUF's name of a weight -> that of the transformers library, both without block and ending."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]  # as torch has it: the fastest axis last
    kind: int
    offset: int  # bytes behind the head


class Gguf:
    """An opened file: `facts` by GGUF's key, and `weights()` by the library's name.

    Raises DataError where it is no GGUF file, or holds a kind of numbers that is not known here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = 0
        try:
            self._bytes: Bytes = np.memmap(path, np.uint8, "r")
            self._read_head()
        except (struct.error, UnicodeDecodeError, ValueError, KeyError, IndexError) as error:
            raise DataError(f"{path}: no GGUF file that can be read here ({error})") from error

    def _read_head(self) -> None:
        magic, version, tensors, facts = struct.unpack("<4sIQQ", self._take(24))
        if magic != MAGIC or version not in VERSIONS:
            raise ValueError(f"it begins with {magic!r}, version {version}")
        self.facts: dict[str, Any] = {}
        for _ in range(facts):
            key = self._text()
            self.facts[key] = self._value(self._number("I"))
        self._tensors = [self._tensor() for _ in range(tensors)]
        step = int(self.facts.get("general.alignment", ALIGNMENT))
        # the numbers begin at the next multiple behind the head
        self._numbers = -(-self._place // step) * step

    def weights(self) -> Iterator[tuple[str, Weights]]:
        """Every weight of the model, in the order of the file, one in memory at a time."""
        heads = {
            "attn_q": int(self.fact("attention.head_count")),
            "attn_k": int(self.fact("attention.head_count_kv")),
        }
        for tensor in self._tensors:
            *block, place, ending = tensor.name.split(".")
            if tensor.kind not in _KINDS or place not in PLACES or ending != "weight":
                raise DataError(f"{self.path}: {tensor.name}, of kind {tensor.kind}, is not known")
            values = self._values(tensor)
            if place in heads:
                values = _halves(values, heads[place])
            layer = f"model.layers.{block[1]}." if block else ""
            yield f"{layer}{PLACES[place]}.weight", values

    def fact(self, name: str) -> Any:
        """A fact of this architecture, such as `block_count`."""
        return self.facts[f"{self.facts['general.architecture']}.{name}"]

    # -- bytes -----------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        self._place += count
        return self._bytes[self._place - count : self._place].tobytes()

    def _number(self, kind: str) -> Any:
        [value] = struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))
        return value

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            return self._number(_NUMBERS[kind])
        inner = self._number("I")
        count = self._number("Q")
        return [self._value(inner) for _ in range(count)]

    def _tensor(self) -> _Tensor:
        name = self._text()
        axes = self._number("I")
        shape = struct.unpack(f"<{axes}Q", self._take(8 * axes))
        return _Tensor(name, shape[::-1], self._number("I"), self._number("Q"))

    def _values(self, tensor: _Tensor) -> Weights:
        """The numbers of a tensor, in its shape."""
        size, per_block, read = _KINDS[tensor.kind]
        blocks = int(np.prod(tensor.shape)) // per_block
        start = self._numbers + tensor.offset
        held = self._bytes[start : start + blocks * size]
        if len(held) != blocks * size:
            raise DataError(f"{self.path}: ends within {tensor.name}; fetch the file again")
        return read(held.reshape(blocks, size)).reshape(tensor.shape)


def _halves(values: Weights, heads: int) -> Weights:
    """Rows of a query or key matrix as the library has them. ggml turns neighbours by one angle,
    the library the k-th of each half of a head: so the file holds the halves interleaved."""
    outputs, inputs = values.shape
    paired = values.reshape(heads, outputs // heads // 2, 2, inputs)
    return paired.swapaxes(1, 2).reshape(outputs, inputs)


# -- kinds of numbers: blocks [n, bytes] -> values [n, numbers] ------------------------------------


def _half(blocks: Bytes, start: int) -> Weights:
    """The float16 of each block [n, 1] at a byte."""
    return blocks[:, start : start + 2].copy().view(np.float16).astype(np.float32)


def _float32(blocks: Bytes) -> Weights:
    return blocks.copy().view(np.float32)


def _float16(blocks: Bytes) -> Weights:
    return _half(blocks, 0)


def _q4_1(blocks: Bytes) -> Weights:
    """Sixteen bytes behind a scale and a least value: the low halves are the first 16 numbers."""
    nibbles = blocks[:, 4:]
    steps = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)
    return steps * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Weights:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


# kind -> (bytes of a block, numbers in it, reader)
_KINDS: dict[int, tuple[int, int, Callable[[Bytes], Weights]]] = {
    0: (4, 1, _float32),
    1: (2, 1, _float16),
    3: (20, 32, _q4_1),
    8: (34, 32, _q8_0),
}
