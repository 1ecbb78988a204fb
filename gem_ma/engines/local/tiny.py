"""The maker of tiny models: a causal LM of Qwen3 or Llama architecture with its own tokenizer and
chat template, in seconds and without a download.

It knows words, tokenizers and layer sizes; it does not know how a model is sampled or trained. Two
kinds of tokenizer:

- `word` (the default): one id for every word of one scenario, so an action is a few tokens. The
  words come from seeded random-legal plays and from the legal strings. Digits are an id each. A
  piece glued to the one before it, without white space, is written `##piece`: `bet.` is `bet ##.`,
  `12` is `1 ##2`. Decoding gives the text back up to the kind of white space. What was never seen
  becomes the unknown token.
- byte-level BPE (`nano`, `tiny`, `small`, `medium`) with a ChatML template, system, tools and
  tool calls included: any text round-trips.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.base import stable_seed
from gem_ma.engines.local.untrained import MARK, NOTE, draw, weights_digest
from gem_ma.errors import ConfigError, ScenarioError, StoreError
from gem_ma.registry import as_scenario
from gem_ma.scenario import Game, Scenario
from gem_ma.types import Tool

# plays; in a row without a new word; decision points; characters
PLAYS, QUIET_PLAYS, MAX_STEPS, ENOUGH = 2000, 100, 24, 500_000
# said where the choice is open
OPEN_WORDS = ("hello", "yes", "no", "please go on", "I do not know")
PAD, UNKNOWN, END = "<|pad|>", "<|unknown|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
WORD_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] or '') -}}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{- ' <tool_call> ' + (call['function'] | tojson) + ' </tool_call>' -}}"
    "{%- endfor -%}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
CHATML_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0]['role'] == 'system' -%}{{- messages[0]['content'] + '\\n\\n' -}}{%- endif -%}
{{- 'You may call these tools, one JSON schema per line:\\n<tools>\\n' -}}
{%- for tool in tools -%}{{- (tool | tojson) + '\\n' -}}{%- endfor -%}
{{- '</tools>\\nA call is written <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call><|im_end|>\\n' -}}
{%- elif messages[0]['role'] == 'system' -%}
{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|im_start|>assistant\\n' -}}
{%- generation -%}
{{- message['content'] or '' -}}
{%- for call in message['tool_calls'] or [] -%}
{{- ('\\n' if message['content'] or not loop.first else '') + '<tool_call>\\n' + (call['function'] | tojson) + '\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>' -}}
{%- endgeneration -%}
{{- '\\n' -}}
{%- elif message['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + message['content'] + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- elif message['role'] == 'user' or not loop.first -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Widths of a tiny model; `byte_level` names the kind of its tokenizer."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int
    feed_forward: int
    byte_level: bool = True


SIZES = {
    "word": Size(64, 2, 4, 4, 16, 192, byte_level=False),
    "nano": Size(64, 2, 4, 2, 32, 192),
    "tiny": Size(128, 4, 4, 2, 32, 384),
    "small": Size(256, 6, 8, 4, 32, 768),
    "medium": Size(512, 12, 8, 4, 64, 1536),
}
ARCHITECTURES = {"qwen3": "Qwen3", "llama": "Llama"}  # name -> how the library calls it


def make_model(
    path: str | Path,
    scenario: str | Scenario = "referential",
    *,
    size: str = "word",
    architecture: str = "qwen3",
    seed: int = 0,
    tied: bool = True,
    positions: int | Callable[[Any], int] = 4096,
    heard: Iterable[str] = (),
) -> dict[str, Any]:
    """Writes a model folder that `AutoModelForCausalLM` and `AutoTokenizer` load; gives what it is,
    as {path, scenario, size, parameters, ...}.

    The same arguments write the same weights and the same tokenizer. `tied`: one matrix embeds
    and reads out. `positions`: the longest conversation in tokens, or what gives it when it is
    shown the tokenizer (`gem_ma.training.learner.positions.Measured`). `heard`: texts that the tokenizer
    shall know beside those of seeded random-legal plays, such as transcripts. Raises ConfigError
    where `path` holds something already, for a size or an architecture that there is not and
    without the train extra, StoreError where the folder cannot be written.
    """
    target = Path(path)
    for what, name, names in (
        ("size", size, [*SIZES]),
        ("architecture", architecture, [*ARCHITECTURES]),
    ):
        if name not in names:
            raise ConfigError(f"no {what} is called {name!r}; known: {', '.join(names)}")
    if isinstance(positions, int) and positions < 1:
        raise ConfigError(f"a model has at least 1 position; got {positions}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(
            f"{target}: exists already and is left as it is; name a new folder, or remove this one"
            " first"
        )
    from gem_ma.engines.local.loading import import_stack, quiet

    _, transformers = import_stack()
    played = as_scenario(scenario)
    known = [*texts(played, seed), *heard]
    tokenizer = _byte_tokenizer(known) if SIZES[size].byte_level else _word_tokenizer(known)
    positions = positions if isinstance(positions, int) else positions(tokenizer)
    model = _model(SIZES[size], architecture, tokenizer, seed, tied, positions)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # renamed when whole: no half-written model is ever seen
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            with quiet(transformers):
                model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            made = {
                "scenario": played.id,
                "size": size,
                "architecture": architecture,
                "seed": seed,
                "tied": tied,
                "positions": positions,
            }
            note = {**made, "scenario_version": played.version, MARK: weights_digest(partial)}
            (partial / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
            partial.chmod(0o755)
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{target}: the model could not be written: {error}") from error
    parameters = sum(weight.numel() for weight in model.parameters())
    return {"path": str(target), **made, "parameters": parameters, "vocabulary": len(tokenizer)}


# -- words ---------------------------------------------------------------------------------------


def texts(scenario: Scenario, seed: int = 0) -> Iterator[str]:
    """The different texts that agents see and may say in seeded random-legal plays over all
    tasks: views, legal strings, tools."""
    rng = random.Random(f"words/{seed}")
    tasks = [task for split in ("train", "test") for task in _tasks(scenario, split)] or [None]
    known: set[str] = set()
    words: set[str] = set()
    quiet = 0
    for number in range(PLAYS):
        heard = dict.fromkeys(
            _one_play(scenario, tasks[number % len(tasks)], stable_seed("words", seed, number), rng)
        )
        fresh = [text for text in heard if text not in known]
        known.update(fresh)
        before = len(words)
        words.update(piece for text in fresh for piece in pieces(text))
        yield from fresh
        quiet = 0 if len(words) > before else quiet + 1
        if quiet >= QUIET_PLAYS or sum(map(len, known)) > ENOUGH:
            return


def _tasks(scenario: Scenario, split: str) -> list[Any]:
    try:
        return list(scenario.tasks(split))
    except ConfigError:  # a scenario without this split
        return []


def _one_play(scenario: Scenario, task: Any, seed: int, rng: random.Random) -> Iterator[str]:
    try:
        game = Game(scenario, task, seed)
        while game.pending and game.step < MAX_STEPS:
            said = {}
            for agent, asked in game.pending.items():
                choices = asked.legal or OPEN_WORDS
                yield from choices
                yield from (json.dumps(_words(tool)) for tool in asked.tools)
                said[agent] = rng.choice(choices)
            game.send(said)
    except ScenarioError as error:
        raise ScenarioError(f"no words could be collected from {scenario.id}: {error}") from error
    for agent in scenario.agents:
        yield from (message.text for message in game.view(agent))
        yield agent  # a name line may stand before another agent's message
    game.close()


def _words(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "arguments": list(tool.parameters.get("properties", {}))}


_PIECE = re.compile(r"[^\W\d]\w*|\d|[^\w\s]")


def pieces(text: str) -> Iterator[str]:
    """Words, single digits and single marks of a text; `##` before a piece that is glued to the one
    before it.

    >>> list(pieces("bet 12."))
    ['bet', '1', '##2', '##.']
    """
    end = -1
    for match in _PIECE.finditer(text):
        yield ("##" if match.start() == end else "") + match.group()
        end = match.end()


def _word_tokenizer(known: Iterable[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    digits = [mark + digit for digit in "0123456789" for mark in ("", "##")]
    seen = {piece for text in known for piece in pieces(text)}
    words = [UNKNOWN, *sorted({*digits, *seen})]
    model = models.WordPiece(
        {word: at for at, word in enumerate(words)},
        unk_token=UNKNOWN,
        max_input_chars_per_word=1000,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    # outside the model's words: a content that spells one never becomes one
    tokenizer.add_special_tokens([PAD, END, *ROLES])
    return _wrapped(tokenizer, WORD_TEMPLATE, pad=PAD, end=END, unknown=UNKNOWN, roles=ROLES)


def _byte_tokenizer(known: Iterable[str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    pad, start, end = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2044,
        special_tokens=[pad, start, end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(known, trainer)
    tags = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    return _wrapped(tokenizer, CHATML_TEMPLATE, pad=pad, end=end, unknown=None, roles=(start,))


def _wrapped(
    tokenizer: Any,
    template: str,
    *,
    pad: str,
    end: str,
    unknown: str | None,
    roles: tuple[str, ...],
) -> Any:
    from transformers import PreTrainedTokenizerFast

    extra = {"unk_token": unknown} if unknown else {}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        additional_special_tokens=list(roles),
        clean_up_tokenization_spaces=False,
        **extra,
    )
    wrapped.chat_template = template
    return wrapped


# -- weights -------------------------------------------------------------------------------------


def _model(
    size: Size, architecture: str, tokenizer: Any, seed: int, tied: bool, positions: int
) -> Any:
    import torch
    import transformers

    vocabulary = len(tokenizer)
    config = getattr(transformers, f"{ARCHITECTURES[architecture]}Config")(
        vocab_size=math.ceil(vocabulary / 64) * 64 if size.byte_level else vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head_dim,
        intermediate_size=size.feed_forward,
        max_position_embeddings=positions,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    tokenizer.model_max_length = positions
    with torch.random.fork_rng(devices=[]):  # the caller's global stream stays where it was
        model = getattr(transformers, f"{ARCHITECTURES[architecture]}ForCausalLM")(config)
    draw(model, seed)
    model.generation_config = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model.eval()
