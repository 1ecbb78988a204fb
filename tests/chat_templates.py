"""Chat templates in the manner of widely used model families, and the control tokens that each
needs. Written for the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


def text_of(name: str) -> str:
    """The template of tests/templates with this name."""
    return (Path(__file__).parent / "templates" / f"{name}.jinja").read_text("utf-8")


CHATML = text_of("chatml")
THINKING = text_of("thinking")
HEADERS = text_of("headers")
BRACKETS = text_of("brackets")
TURNS = text_of("turns")
XML = text_of("xml")
LABELS = text_of("labels")
BARS = text_of("bars")
GLM = text_of("glm")
CHANNELS = text_of("channels")
QUOTES = text_of("quotes")
SEPARATED = text_of("separated")
SECTIONS = text_of("sections")
INVOKES = text_of("invokes")
LISTS = text_of("lists")

# it shows tools and results, and drops calls
NO_CALLS = text_of("no_calls")

# it opens a thought, and shows an empty one behind the last question only
OPENED = XML.replace(
    "{{ '<|im_start|>' + m['role'] + '\\\\n' + m['content'] }}",
    "{{ '<|im_start|>' + m['role'] + '\\\\n' + ('<think>\\\\n\\\\n</think>\\\\n\\\\n' if m['role'] == 'assistant' and"
    " messages[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list | length == 0 else '') + m['content'] }}",
).replace("'<|im_start|>assistant\\\\n' }}", "'<|im_start|>assistant\\\\n<think>\\\\n' }}")

# contents are lists of parts, and a text is none
PARTS = text_of("parts")


@dataclass(frozen=True, slots=True)
class Family:
    """A template, its control tokens (the first ends a turn) and what it can show."""

    template: str
    controls: tuple[str, ...]
    tool_format: str
    native: bool = True  # it shows tools, calls and results its own way
    start: str = ""


FAMILIES = {
    "chatml": Family(CHATML, ("<|im_end|>", "<|im_start|>"), "hermes"),
    "thinking": Family(THINKING, ("<|im_end|>", "<|im_start|>"), "hermes"),
    "headers": Family(
        HEADERS,
        ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        "llama",
        start="<|begin|>",
    ),
    "brackets": Family(
        BRACKETS,
        ("</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        "mistral",
        start="<s>",
    ),
    "turns": Family(
        TURNS, ("<end_of_turn>", "<start_of_turn>"), "hermes", native=False, start="<bos>"
    ),
    "xml": Family(XML, ("<|im_end|>", "<|im_start|>"), "xml"),
    "labels": Family(
        LABELS, ("<|eos|>", "<|User|>", "<|Assistant|>", "<|Result|>"), "hermes", start="<|bos|>"
    ),
    "bars": Family(
        BARS,
        ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"),
        "hermes",
        native=False,
    ),
}

# those of tests/engines/test_round_trips.py; the first two controls of "glm" and "channels" end a turn
NEWER = {
    "glm": Family(GLM, ("<|user|>", "<|observation|>", "<|assistant|>", "<|system|>"), "glm"),
    "channels": Family(
        CHANNELS,
        (
            *("<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|message|>"),
            *("<|channel|>", "<|constrain|>"),
        ),
        "harmony",
    ),
    "quotes": Family(
        QUOTES,
        (
            *("<turn|>", "<|tool_response>", "<|turn>", "<tool_response|>"),
            *("<|tool_call>", "<tool_call|>", '<|"|>'),
        ),
        "gemma",
        start="<bos>",
    ),
    "separated": Family(
        SEPARATED,
        (
            *("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>"),
            *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
            *("<｜tool▁calls▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        ),
        "deepseek",
        start="<｜begin｜>",
    ),
    "sections": Family(
        SECTIONS,
        (
            *("<|im_end|>", "<|im_middle|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>"),
            *("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
        ),
        "kimi",
    ),
    "invokes": Family(INVOKES, ("[e~[", "]~b]"), "xml"),
    "lists": Family(
        LISTS,
        ("<|im_end|>", "<|im_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),
        "python",
    ),
    "no calls, known marks": Family(
        NO_CALLS,
        ("<|im_end|>", "<|im_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),
        "python",
        native=False,
    ),
    "no calls": Family(NO_CALLS, ("<|im_end|>", "<|im_start|>"), "hermes", native=False),
    "opened": Family(OPENED, ("<|im_end|>", "<|im_start|>"), "xml"),
    "parts": Family(PARTS, ("<|end|>",), "hermes", native=False),
}
