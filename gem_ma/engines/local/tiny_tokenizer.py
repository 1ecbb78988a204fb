"""The two kinds of tokenizer of tiny models, each with its chat template.

- `word`: one id for every word that it has heard, so an action is a few tokens. Digits are an id
  each. A piece glued to the one before it, without white space, is written `##piece`: `bet.` is
  `bet ##.`, `12` is `1 ##2`. Decoding gives the text back up to the kind of white space. What was
  never heard becomes the unknown token. Calls are in the xml form: a value stands between words
  there, and in JSON it would be glued to its quotes, which white space would take it from.
- byte-level BPE with a ChatML template, system, tools and tool calls included: any text
  round-trips.

Knows texts; knows no scenario and no weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gem_ma.engines.local.tiny_vision import IMAGE_TOKENS, showing

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
