"""Reads a model of Llama's architecture out of one GGUF file, by the library `gguf`: its facts, its
words, its weights as float32 arrays, under the names that transformers gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.extras import install

Weights = NDArray[np.float32]
CONTROL = 3  # the kind of a token that is not text, such as the end of a turn
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


class Gguf:
    """An opened file: `facts` by GGUF's key, and `weights()` by the library's name.

    Raises DataError where it is not a GGUF file, ends too early, or holds weights that are not
    known here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise ConfigError(f"{path}: GGUF needs the package gguf: {install('train')}") from error
        try:
            self._reader = GGUFReader(path)
            self.facts = {key: field.contents() for key, field in self._reader.fields.items()}
        except Exception as error:  # numpy's own where a file is cut
            raise DataError(
                f"{path}: not a GGUF file that can be read here, or cut; fetch it again ({error})"
            ) from error

    def weights(self) -> Iterator[tuple[str, Weights]]:
        """Every weight of the model, in the order of the file, one in memory at a time."""
        from gguf.quants import dequantize

        heads = {
            "attn_q": int(self.fact("attention.head_count")),
            "attn_k": int(self.fact("attention.head_count_kv")),
        }
        for tensor in self._reader.tensors:
            *block, place, ending = tensor.name.split(".")
            if place not in PLACES or ending != "weight":
                raise DataError(f"{self.path}: {tensor.name} is not known")
            try:
                values = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32)
            except NotImplementedError as error:
                raise DataError(f"{self.path}: {tensor.name}: {error}") from error
            if place in heads:
                values = _halves(values, heads[place])
            layer = f"model.layers.{block[1]}." if block else ""
            yield f"{layer}{PLACES[place]}.weight", values

    def fact(self, name: str) -> Any:
        """A fact of this architecture, such as `block_count`."""
        return self.facts[f"{self.facts['general.architecture']}.{name}"]


def _halves(values: Weights, heads: int) -> Weights:
    """Rows of a query or key matrix as the library has them. ggml turns neighbours by one angle,
    the library the k-th of each half of a head: so the file holds the halves interleaved."""
    outputs, inputs = values.shape
    paired = values.reshape(heads, outputs // heads // 2, 2, inputs)
    return paired.swapaxes(1, 2).reshape(outputs, inputs)
