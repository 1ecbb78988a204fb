"""The maker of tiny models: a causal LM of Qwen3 or Llama architecture, or one of Qwen2-VL's that
sees images, with its own tokenizer and chat template, in seconds and without a download.

Two kinds of tokenizer:

- Size `word` has one id for every word and digit that it has heard, so an action is a few tokens. A
  piece glued to the one before it is written `##piece`: `bet.` is `bet ##.`, `12` is `1 ##2`. Calls
  are in the xml form: a value stands between words there, and in JSON it would be glued to quotes.
- `nano`, `tiny`, `small` and `medium` are byte-level BPE with a ChatML template, tools and calls
  included: any text round-trips.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gem_ma.engines.base import stable_seed
from gem_ma.engines.models.loading import MARK, NOTE, draw, import_stack, quiet, weights_digest
from gem_ma.kernel.errors import ConfigError, ScenarioError, StoreError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Tool
from gem_ma.registry import as_scenario
from gem_ma.system.files import place, remove

IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_CONTENT_MACRO = (
    "{%- macro shown(content) -%}"
    "{%- if content is string -%}{{- content -}}"
    "{%- else -%}{%- for part in content or [] -%}"
    "{%- if part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{%- endmacro -%}"
)


def showing(template: str) -> str:
    """A chat template of a tiny model, with images where they stand in a content."""
    # as the templates for words and for bytes write a content
    for content in ("(message['content'] or '')", "message['content'] +"):
        end = content[-2:] if content.endswith("+") else ""
        template = template.replace(content, f"shown(message['content']){end}")
    return _CONTENT_MACRO + template


def vision_config(transformers: Any, tokenizer: Any, text: dict[str, Any]) -> Any:
    """The config of a model that sees; `text` are the options of its language model."""
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    # Places on three axes share the halves of a head: a quarter is time, as in the large models.
    side = 3 * half // 8
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [half - 2 * side, side, side],
    }
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    return transformers.Qwen2VLConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config={
            "depth": 2,
            "embed_dim": text["hidden_size"],
            "hidden_size": text["hidden_size"],
            "num_heads": 4,
            "mlp_ratio": 2,
            # 2 x 2 patches of 8 x 8 pixels become one id
            "patch_size": 8,
            "spatial_merge_size": 2,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=text["tie_word_embeddings"],
        dtype="float32",
    )


def write_processor(folder: Path) -> None:
    """Writes what turns images into patches beside the weights."""
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 8,
        "merge_size": 2,
        "temporal_patch_size": 2,
        # pixels of an image: smaller ones are enlarged, larger ones shrunk
        "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")


PAD = "<|pad|>"
UNKNOWN = "<|unknown|>"
END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
WORD_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] or '') -}}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{- ' <tool_call> <function=' + call['function']['name'] + '>' -}}"
    "{%- for key, value in call['function']['arguments'] | items -%}"
    "{{- ' <parameter=' + key + '> ' + (value if value is string else value | tojson) -}}"
    "{{- ' </parameter>' -}}"
    "{%- endfor -%}"
    "{{- ' </function> </tool_call>' -}}"
    "{%- endfor -%}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
# A backslash at the end of a line of this text joins it to the next one.
CHATML_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0]['role'] == 'system' -%}{{- messages[0]['content'] + '\\n\\n' -}}{%- endif -%}
{{- 'You may call these tools, one JSON schema per line:\\n<tools>\\n' -}}
{%- for tool in tools -%}{{- (tool | tojson) + '\\n' -}}{%- endfor -%}
{{- '</tools>\\nA call is written <tool_call>\\n{"name": ..., "arguments": {...}}\\n\
</tool_call><|im_end|>\\n' -}}
{%- elif messages[0]['role'] == 'system' -%}
{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|im_start|>assistant\\n' -}}
{%- generation -%}
{{- message['content'] or '' -}}
{%- for call in message['tool_calls'] or [] -%}
{{- ('\\n' if message['content'] or not loop.first else '') + '<tool_call>\\n' + \
(call['function'] | tojson) + '\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>' -}}
{%- endgeneration -%}
{{- '\\n' -}}
{%- elif message['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}\
{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + message['content'] + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}\
{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- elif message['role'] == 'user' or not loop.first -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

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


def word_tokenizer(known: Iterable[str], *, sees: bool = False) -> Any:
    """One id for every word of these texts, and for every digit. `sees`: and those of images."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    digits = [mark + digit for digit in "0123456789" for mark in ("", "##")]
    seen = {piece for text in known for piece in pieces(text)}
    # sorted: the same texts give the same ids, in whatever order they come
    words = [UNKNOWN, *sorted({*digits, *seen})]
    model = models.WordPiece(
        {word: number for number, word in enumerate(words)},
        unk_token=UNKNOWN,
        max_input_chars_per_word=1000,  # a longer word would be unknown as a whole
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    # outside the model's words: a content that spells one never becomes one
    tokenizer.add_special_tokens([PAD, END, *ROLES])
    tags: dict[str, Any] = {"pad": PAD, "end": END, "unknown": UNKNOWN, "roles": ROLES}
    return _wrapped(tokenizer, WORD_TEMPLATE, sees=sees, **tags)


def byte_tokenizer(known: Iterable[str], *, sees: bool = False) -> Any:
    """Byte-level BPE that was trained on these texts. `sees`: with the ids of images."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    pad = "<|endoftext|>"
    start = "<|im_start|>"
    end = "<|im_end|>"
    tokenizer = Tokenizer(models.BPE())
    # a space that is added in front of a text would not come back in decoding
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2044,  # with the four tags 2048
        special_tokens=[pad, start, end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # so that no text is unknown
        show_progress=False,
    )
    tokenizer.train_from_iterator(known, trainer)
    # an id each, but no control tokens: a policy must be able to say them
    tags = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    names: dict[str, Any] = {"pad": pad, "end": end, "unknown": None, "roles": (start,)}
    return _wrapped(tokenizer, CHATML_TEMPLATE, sees=sees, **names)


def _wrapped(
    tokenizer: Any,
    template: str,
    *,
    pad: str,
    end: str,
    unknown: str | None,
    roles: tuple[str, ...],
    sees: bool,
) -> Any:
    from transformers import PreTrainedTokenizerFast

    extra = {"unk_token": unknown} if unknown else {}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        additional_special_tokens=[*roles, *IMAGE_TOKENS] if sees else list(roles),
        clean_up_tokenization_spaces=False,
        **extra,
    )
    wrapped.chat_template = showing(template) if sees else template
    return wrapped


PLAYS = 2000  # at most
QUIET_PLAYS = 100  # in a row without a new word: the words are all there
MAX_STEPS = 24  # decision points of a play
ENOUGH = 500_000  # characters
OPEN_WORDS = ("hello", "yes", "no", "please go on", "I do not know")  # where the choice is open


def texts(scenario: Scenario, seed: int = 0) -> Iterator[str]:
    """The different texts that agents see and may say in seeded random-legal plays: what a
    tokenizer must be able to write."""
    rng = random.Random(f"words/{seed}")
    tasks = [task for split in ("train", "test") for task in _tasks(scenario, split)] or [None]
    known: set[str] = set()
    words: set[str] = set()
    quiet = 0  # plays in a row without a new word
    for number in range(PLAYS):
        task = tasks[number % len(tasks)]
        play_seed = stable_seed("words", seed, number)
        heard = dict.fromkeys(_play(scenario, task, play_seed, rng))
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


def _play(scenario: Scenario, task: Any, seed: int, rng: random.Random) -> Iterator[str]:
    try:
        game = Game(scenario, task, seed)
        while game.pending and game.step < MAX_STEPS:
            actions = {}
            for agent, asked in game.pending.items():
                choices = asked.legal or OPEN_WORDS
                yield from choices
                yield from (json.dumps(_words(tool)) for tool in asked.tools)
                actions[agent] = rng.choice(choices)
            game.send(actions)
    except ScenarioError as error:
        raise ScenarioError(f"no words could be collected from {scenario.id}: {error}") from error
    for agent in scenario.agents:
        yield from (message.text for message in game.view(agent))
        yield agent  # a name line may stand before another agent's message
    game.close()


def _words(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "arguments": list(tool.parameters.get("properties", {}))}


Made = TypeVar("Made")


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
SEES = "qwen2-vl"
# name -> how the library calls it
ARCHITECTURES = {"qwen3": "Qwen3", "llama": "Llama", SEES: "Qwen2VL"}


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
    """Writes a model folder that the loaders of the library read; gives what it is, as {path,
    scenario, size, parameters, engine, ...}. The same arguments write the same folder.

    `tied`: one matrix embeds and reads out. `positions`: the longest conversation in tokens, or a
    function that computes it from the tokenizer (`gem_ma.training.learner.positions.Measured`).
    `heard`: texts that the tokenizer shall know beside those of the scenario, such as transcripts.

    Raises ConfigError for a path that holds something already, an unknown size or architecture, and
    without the train extra; StoreError where the folder cannot be written.
    """
    target = Path(path)
    _check(size, architecture, positions)
    check_new(target)

    import_stack()  # before the plays, which take longer than the refusal
    played = as_scenario(scenario)
    known = [*texts(played, seed), *heard]
    make = byte_tokenizer if SIZES[size].byte_level else word_tokenizer
    tokenizer = make(known, sees=architecture == SEES)
    positions = positions if isinstance(positions, int) else positions(tokenizer)
    model = _model(SIZES[size], architecture, tokenizer, seed, tied, positions)
    facts = {
        "scenario": played.id,
        "size": size,
        "architecture": architecture,
        "seed": seed,
        "tied": tied,
        "positions": positions,
    }
    place_new(target, lambda partial: _write(partial, model, tokenizer, facts, played.version))
    parameters = sum(weight.numel() for weight in model.parameters())
    engine = "vision" if architecture == SEES else "transformers"
    made = {"parameters": parameters, "vocabulary": len(tokenizer), "engine": engine}
    return {"path": str(target), **facts, **made}


def _check(size: str, architecture: str, positions: int | Callable[[Any], int]) -> None:
    for what, name, names in (
        ("size", size, [*SIZES]),
        ("architecture", architecture, [*ARCHITECTURES]),
    ):
        if name not in names:
            raise ConfigError(f"no {what} is called {name!r}; known: {', '.join(names)}")
    if isinstance(positions, int) and positions < 1:
        raise ConfigError(f"a model has at least 1 position; got {positions}")


def _write(folder: Path, model: Any, tokenizer: Any, facts: dict[str, Any], version: int) -> None:

    with quiet(import_stack()[1]):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if facts["architecture"] == SEES:
        write_processor(folder)
    # the digest comes last: it marks these weights as untrained, and no others
    note = {**facts, "scenario_version": version, MARK: weights_digest(folder)}
    (folder / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


# -- folders -------------------------------------------------------------------------------------


def check_new(target: Path) -> None:
    """Raises ConfigError where something stands already; an empty folder may."""
    if not target.name or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise ConfigError(
            f"{target}: exists already and is left as it is; name a new folder, or remove this one"
            " first"
        )


def place_new(target: Path, write: Callable[[Path], Made]) -> Made:
    """Puts the model folder that `write` makes at a place where none was; gives what `write` gives.
    Raises ConfigError where something came there meanwhile, StoreError."""
    _sweep(target)
    # of this process alone: another one may be writing a model for the same place
    aside = f".{target.name}.{os.getpid()}.tmp"
    try:
        return place(target, target.parent, write, aside=aside, new=True)
    except OSError as error:
        check_new(target)  # writing took a while: what came there meanwhile says more
        raise StoreError(f"{target}: the model could not be written: {error}") from error


def _sweep(target: Path) -> None:
    """Removes what a killed process left beside a model folder."""
    for path in target.parent.iterdir() if target.parent.is_dir() else ():
        left = re.fullmatch(rf"\.{re.escape(target.name)}\.(\d+)\.tmp", path.name)
        if left and not _runs(int(left[1])):
            remove(path, target.parent)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


# -- weights -------------------------------------------------------------------------------------


def _model(
    size: Size, architecture: str, tokenizer: Any, seed: int, tied: bool, positions: int
) -> Any:
    import torch
    import transformers

    vocabulary = len(tokenizer)
    name = ARCHITECTURES[architecture]
    options: dict[str, Any] = {
        # padded as large models are; the few words of a game are not worth it
        "vocab_size": math.ceil(vocabulary / 64) * 64 if size.byte_level else vocabulary,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_value_heads,
        "intermediate_size": size.feed_forward,
        "max_position_embeddings": positions,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if architecture == SEES:
        kind = "ConditionalGeneration"
        config = vision_config(transformers, tokenizer, options)
    else:
        how = {"head_dim": size.head_dim, "dtype": "float32"}
        kind = "CausalLM"
        config = getattr(transformers, f"{name}Config")(**options, **how)
    tokenizer.model_max_length = positions
    # the library draws weights of its own first, which are overwritten
    with torch.random.fork_rng(devices=[]):  # the caller's global stream stays where it was
        model = getattr(transformers, f"{name}For{kind}")(config)
    draw(model, seed)
    # the library's defaults would cut the distribution that a learner believes in
    model.generation_config = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model.eval()
