"""Tool calls in the ways of several model families: what is read, what is refused and why, and
hostile text at no more than its length."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.parsing import (
    DECODED,
    FORMATS,
    MAX_CALLS,
    MAX_TEXT,
    offered,
    parse_tool_calls,
    read_call,
)
from gem_ma.kernel.types import Malformed, Tool, ToolCall

TYPES = {
    "a": {"type": "integer"},
    "b": {"type": "string"},
    "c": {"type": "object"},
    "d": {"type": ["boolean", "null"]},
    "e": {"type": "number"},
}
F = Tool(
    "f",
    "",
    {
        "type": "object",
        "properties": {**TYPES, "g": {"anyOf": [{"type": "array"}, {"type": "null"}]}, "h": {}},
    },
)


def calls_of(text: str, tool_format: str, finish: str = "stop") -> tuple[str, list[Any]]:
    rest, calls = parse_tool_calls(text, tool_format, tools=(F,), finish=finish)
    return rest, [
        (c.name, c.arguments) if isinstance(c, ToolCall) else c.reason.split(":")[0] for c in calls
    ]


def hermes(*bodies: str) -> str:
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


GOOD, OTHER = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'
CALL, OTHER_CALL = ("f", {"a": 1}), ("g", {})

# what | text | finish | (text kept, calls)
TABLE: list[tuple[str, str, str, tuple[str, list[Any]]]] = [
    ("canonical", hermes(GOOD), "stop", ("", [CALL])),
    ("two calls", hermes(GOOD, OTHER), "stop", ("", [CALL, OTHER_CALL])),
    ("no newlines", f"<tool_call>{GOOD}</tool_call>", "stop", ("", [CALL])),
    ("text before", "I look. " + hermes(GOOD), "stop", ("I look.", [CALL])),
    ("text after", hermes(GOOD) + " Done.", "stop", ("Done.", [CALL])),
    ("unclosed at a stop", f"<tool_call>{GOOD}", "stop", ("", [CALL])),
    ("unclosed before a text", f"<tool_call>{GOOD} and on", "stop", ("and on", [CALL])),
    (
        "unclosed before a call",
        "<tool_call>" + GOOD + hermes(OTHER),
        "stop",
        ("", [CALL, OTHER_CALL]),
    ),
    ("unclosed at the limit", f"<tool_call>{GOOD}", "length", ("", ["truncated_call"])),
    ("cut inside", "<tool_call>" + GOOD[:20], "length", ("", ["truncated_call"])),
    ("closed at the limit", hermes(GOOD), "length", ("", [CALL])),
    (
        "the first closed, the second cut",
        hermes(GOOD) + "<tool_call>{",
        "length",
        ("", [CALL, "truncated_call"]),
    ),
    ("one good, one bad", hermes(GOOD, "{bad"), "stop", ("", [CALL, "bad_json"])),
    (
        "arguments as text",
        hermes('{"name": "f", "arguments": "{\\"a\\": 1}"}'),
        "stop",
        ("", [CALL]),
    ),
    (
        "end tag inside a string",
        hermes('{"name": "f", "arguments": {"b": "</tool_call>"}}'),
        "stop",
        ("", [("f", {"b": "</tool_call>"})]),
    ),
    (
        "end tag inside a cut string",
        '<tool_call>{"name": "f", "arguments": {"b": "</tool_call>',
        "length",
        ("", ["truncated_call"]),
    ),
]


@pytest.mark.parametrize(
    ("what", "text", "finish", "expected"), TABLE, ids=[row[0] for row in TABLE]
)
def test_the_table_of_hermes_calls(
    what: str, text: str, finish: str, expected: tuple[str, list[Any]]
) -> None:
    assert calls_of(text, "hermes", finish) == expected


def test_an_unknown_tool_is_passed_on_and_a_scenario_may_have_it_named_with_its_neighbours() -> (
    None
):
    (call,) = parse_tool_calls(hermes('{"name": "get_ordr", "arguments": {}}'))[1]
    assert isinstance(call, ToolCall)
    found = offered([call, ToolCall("c", "get_user", {})], [Tool("get_order"), Tool("get_user")])
    assert (
        isinstance(found[0], Malformed)
        and found[0].reason
        == "unknown_tool: no tool is called 'get_ordr'; nearest: get_order, get_user"
    )
    assert found[1] == ToolCall("c", "get_user", {})


def test_a_repair_is_marked_and_no_part_of_what_the_call_is() -> None:
    (call,) = parse_tool_calls(hermes('{"name": "f", "arguments": "{\\"a\\": 1}"}'))[1]
    assert isinstance(call, ToolCall) and call.repaired == DECODED
    assert call == ToolCall("call_0", "f", {"a": 1})
    twice, once = read_call("x", "f", '"{\\"a\\": 1}"'), read_call("x", "f", '{"a": 1}')
    assert (
        isinstance(twice, ToolCall)
        and isinstance(once, ToolCall)
        and (twice.repaired, once.repaired) == (DECODED, "")
    )


def xml(name: str = "f", **values: str) -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


XML: list[tuple[str, str, tuple[str, list[Any]]]] = [
    (xml(a="1", b="two\nlines"), "stop", ("", [("f", {"a": 1, "b": "two\nlines"})])),
    (
        "Let me. " + xml(b="1") + xml("g", x="1") + " So.",
        "stop",
        ("Let me.  So.", [("f", {"b": "1"}), ("g", {"x": "1"})]),
    ),
    (xml(), "stop", ("", [("f", {})])),
    ("<function=f><parameter=a>1</parameter></function>", "stop", ("", [("f", {"a": 1})])),
    (
        xml(c='{"x": [1]}', d="True", e="1.5", g="null", h="[1]"),
        "stop",
        ("", [("f", {"c": {"x": [1]}, "d": True, "e": 1.5, "g": None, "h": "[1]"})]),
    ),
    (xml(b="a </parameter> b"), "stop", ("", [("f", {"b": "a </parameter> b"})])),
    (xml(b="<|im_end|> & <b>"), "stop", ("", [("f", {"b": "<|im_end|> & <b>"})])),
    (xml(a="one"), "stop", ("", ["bad_arguments"])),
    (xml(a="1.5"), "stop", ("", ["bad_arguments"])),
    (xml(c="[1]"), "stop", ("", ["bad_arguments"])),
    (xml(c='{"x": NaN}'), "stop", ("", ["bad_arguments"])),
    (xml(a="9" * 65), "stop", ("", ["bad_arguments"])),
    (xml(g="[" * 10_000), "stop", ("", ["bad_arguments"])),
    (
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "stop",
        ("", ["bad_arguments"]),
    ),
    ("<function=><parameter=a>1</parameter></function> end", "stop", ("end", ["missing_name"])),
    ("<function=f><parameter=a 1</function>", "stop", ("", ["bad_xml"])),
    ("<function=f>x</function>", "stop", ("", ["bad_xml"])),
    ('<function=f>{"a": 1}</function>', "stop", ("", [CALL])),
    ('<function=f>{"a": }</function>', "stop", ("", ["bad_json"])),
    ('<function=f>{"a": 1}', "length", ("", ["truncated_call"])),
    ("<function=f><parameter=a>1</parameter>", "stop", ("", [("f", {"a": 1})])),
    ("<function=f><parameter=a>1</parameter>", "length", ("", ["truncated_call"])),
    ("<function=f><parameter=b>on and", "length", ("", ["truncated_call"])),
    (
        xml(a="1") + "\n<tool_call>\n<function=f>\n<para",
        "length",
        ("", [("f", {"a": 1}), "truncated_call"]),
    ),
    (hermes(GOOD), "stop", ("", [CALL])),  # a model of this family that falls back to JSON
    ("just text with a <parameter=x>", "stop", ("just text with a <parameter=x>", [])),
]
LLAMA: list[tuple[str, str, tuple[str, list[Any]]]] = [
    ('{"name": "f", "parameters": {"a": 1}}', "stop", ("", [CALL])),
    (
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        "stop",
        ("", [CALL, OTHER_CALL]),
    ),
    (
        '{"name": "f", "parameters": {"a": 1}}\n{"name": "g", "arguments": {}}',
        "stop",
        ("", [CALL, OTHER_CALL]),
    ),
    ('{"type": "function", "name": "f", "parameters": {"a": 1}}', "stop", ("", [CALL])),
    ('So: <|python_tag|>{"name": "f", "parameters": {"a": 1}}', "stop", ("So:", [CALL])),
    ('<|python_tag|>search.call(query="x y")', "stop", ("", [("search", {"query": "x y"})])),
    ('<|python_tag|>search.call(query="x', "length", ("", ["truncated_call"])),
    ("<|python_tag|>import os", "stop", ("", ["bad_json"])),
    (
        '{"name": "f", "parameters": {"a": 1}} is what I would call',
        "stop",
        ('{"name": "f", "parameters": {"a": 1}} is what I would call', []),
    ),
    ('{"name": "f", "parameters": {"a": ', "length", ("", ["truncated_call"])),
    ('{"name": "f", "parameters": {"a": ', "stop", ("", ["bad_json"])),
    ('{"name": "f", "parameters": {}, "arguments": {}}', "stop", ("", ["bad_arguments"])),
    ('{"name": "f"}', "stop", ("", ["bad_arguments"])),
    ('{"x": 1}', "stop", ('{"x": 1}', [])),
    ("Hello.", "stop", ("Hello.", [])),
]
PYTHON: list[tuple[str, str, tuple[str, list[Any]]]] = [
    ('[f(a=1, b="x")]', "stop", ("", [("f", {"a": 1, "b": "x"})])),
    (
        ' [f(a=1), g(), shop.get(x=[1, {"y": None}], z=(True, -2.5))]\n',
        "stop",
        ("", [CALL, OTHER_CALL, ("shop.get", {"x": [1, {"y": None}], "z": [True, -2.5]})]),
    ),
    ("So. <|python_start|>[f(a=1)]<|python_end|> On.", "stop", ("So.  On.", [CALL])),
    (r"[f(b='\d \\ \' é ] [')]", "stop", ("", [("f", {"b": "\\d \\ ' é ] ["})])),
    ("[f(a=1), f(1), g()]", "stop", ("", [CALL, "bad_arguments", OTHER_CALL])),
    ("[f(**{'a': 1})]", "stop", ("", ["bad_arguments"])),
    ("[f(a=1, a=2)]", "stop", ("", ["bad_arguments"])),
    ("[f(a={'x': 1, 'x': 2})]", "stop", ("", ["bad_arguments"])),
    ("[f(a={1: 2})]", "stop", ("", ["bad_arguments"])),
    ("[f(a=__import__('os').system('true'))]", "stop", ("", ["bad_arguments"])),
    ("[f(a=g())]", "stop", ("", ["bad_arguments"])),
    ("[f(a=x)]", "stop", ("", ["bad_arguments"])),
    ("[f(a=1+1)]", "stop", ("", ["bad_arguments"])),
    ("[f(a=b'x')]", "stop", ("", ["bad_arguments"])),
    ("[f(a=1j)]", "stop", ("", ["bad_arguments"])),
    ("[f(a=f'{1}')]", "stop", ("", ["bad_arguments"])),
    ("[f(a=1e999)]", "stop", ("", ["bad_arguments"])),
    (f"[f(a={'9' * 65})]", "stop", ("", ["bad_arguments"])),
    (f"[f(a={'9' * 5000})]", "stop", ("", ["bad_python"])),
    (f"[f(a={'[' * 40}{']' * 40})]", "stop", ("", ["bad_arguments"])),
    (f"[f(a={'[' * 10_000}{']' * 10_000})]", "stop", ("", ["bad_python"])),
    (f"[f(a={'-' * 100_000}1)]", "stop", ("", ["bad_python"])),
    (f"[f({'a.' * 60_000}a=1)]", "stop", ("", ["bad_python"])),
    ("[f(a=1), 5]", "stop", ("", [CALL, "missing_name"])),
    ("[f(a=1), (lambda: 0)()]", "stop", ("", [CALL, "missing_name"])),
    ("[f(a=1) for x in y]", "stop", ("", ["bad_python"])),
    ("[f(a=]", "stop", ("", ["bad_python"])),
    ("[f(a=1), g(", "length", ("", ["truncated_call"])),
    ("[f(a=1), g(", "stop", ("[f(a=1), g(", [])),
    ("[1, 2]", "stop", ("[1, 2]", [])),
    ("I call [f(a=1)]", "stop", ("I call [f(a=1)]", [])),
]
MISTRAL: list[tuple[str, str, tuple[str, list[Any]]]] = [
    (f"[TOOL_CALLS][{GOOD}]", "stop", ("", [CALL])),
    (f"Yes.[TOOL_CALLS] [{GOOD}, {OTHER}] after", "stop", ("Yes. after", [CALL, OTHER_CALL])),
    ("[TOOL_CALLS]f[ARGS]" + '{"a": 1}[TOOL_CALLS]g[ARGS]{}', "stop", ("", [CALL, OTHER_CALL])),
    ('[TOOL_CALLS]f{"a": 1}', "stop", ("", [CALL])),
    (f"[TOOL_CALLS][{GOOD}, {{bad", "stop", ("", [CALL, "bad_json"])),
    (f"[TOOL_CALLS][{GOOD}, {{bad", "length", ("", [CALL, "truncated_call"])),
    (f"[TOOL_CALLS][{GOOD}", "length", ("", [CALL, "truncated_call"])),
    (f"[TOOL_CALLS][{GOOD}", "stop", ("", [CALL])),
    (
        '[TOOL_CALLS][{"name": "f", "arguments": [1]}, ' + OTHER + "]",
        "stop",
        ("", ["bad_arguments", OTHER_CALL]),
    ),
    ('[TOOL_CALLS]f[ARGS]{"a": ', "length", ("", ["truncated_call"])),
    ('[TOOL_CALLS]f[ARGS]{"a": NaN}', "stop", ("", ["bad_json"])),
    ("[TOOL_CALLS]" + "[" * 10_000, "stop", ("", ["bad_json"])),
    ("[TOOL_CALLS]", "stop", ("", ["missing_name"])),
    ("[TOOL_CALLS][]", "stop", ("", [])),
    (GOOD, "stop", (GOOD, [])),
]


def glm(name: str = "f", **values: str) -> str:
    inside = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in values.items()
    )
    return f"<tool_call>{name}\n{inside}</tool_call>"


def invoke(name: str = "f", **values: str) -> str:
    inside = "".join(
        f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items()
    )
    return f'<invoke name="{name}">\n{inside}</invoke>\n'


def harmony(body: str, name: str = "f", start: str = "") -> str:
    head = f"{start}<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{head}{body}<|call|>"


def deepseek(body: str, name: str = "f") -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{body}<｜tool▁call▁end｜>"


def old_deepseek(body: str, name: str = "f") -> str:
    return deepseek(f"{name}\n```json\n{body}\n```", "function")


def kimi(body: str, name: str = "f") -> str:
    mark = "<|tool_call_argument_begin|>"
    return f"<|tool_call_begin|>functions.{name}:0{mark}{body}<|tool_call_end|>"


def solar(body: str, name: str = "f") -> str:
    head = f"<|tool_call:begin|>ab12<|tool_call:name|>{name}"
    return f"{head}<|tool_call:args|>{body}<|tool_call:end|>"


def gemma(body: str, name: str = "f") -> str:
    return f"<|tool_call>call:{name}{{{body}}}<tool_call|>"


Q = '<|"|>'
TRUNCATED: tuple[str, list[Any]] = ("", ["truncated_call"])
NEWER: dict[str, list[tuple[str, str, tuple[str, list[Any]]]]] = {
    "glm": [
        ("I look. " + glm(a="1") + "\n" + glm("g"), "stop", ("I look.", [CALL, OTHER_CALL])),
        ("<tool_call>g</tool_call>", "stop", ("", [OTHER_CALL])),
        (
            glm(a="1", b="two\n<b> lines\n"),
            "stop",
            ("", [("f", {"a": 1, "b": "two\n<b> lines\n"})]),
        ),
        (
            glm(b="</arg_value> <tool_call>"),
            "stop",
            ("", [("f", {"b": "</arg_value> <tool_call>"})]),
        ),
        (glm(b="12", h="3"), "stop", ("", [("f", {"b": "12", "h": "3"})])),
        (glm(c='{"x": [1]}', d="true"), "stop", ("", [("f", {"c": {"x": [1]}, "d": True})])),
        ('<tool_call>f\n{"a": 1}</tool_call>', "stop", ("", [CALL])),
        ('<tool_call>f\n{"a": }</tool_call> on', "stop", ("on", ["bad_json"])),
        (
            "<tool_calls:x><tool_call:x>f<tool_sep:x>\n<arg_key:x>a</arg_key:x>\n"
            "<arg_value:x>1</arg_value:x></tool_call:x>\n</tool_calls:x>",
            "stop",
            ("", [CALL]),
        ),
        (glm(a="one"), "stop", ("", ["bad_arguments"])),
        (glm(a="1") + glm("g")[:-5], "length", ("", [CALL, "truncated_call"])),
        (glm(a="1")[:-14], "length", TRUNCATED),
        (glm(a="1")[:-12], "stop", ("", [CALL])),
        ("<tool_call>f<arg_key>a</arg_key>1</tool_call> on", "stop", ("on", ["bad_xml"])),
        ("<tool_call></tool_call> on", "stop", ("on", ["missing_name"])),
        ("<tool_call>f<arg_key>a<tool_call>g</tool_call>", "stop", ("", ["bad_xml", OTHER_CALL])),
        (hermes(GOOD), "stop", ("", [CALL])),
        (glm("g") + hermes(GOOD), "stop", ("", [OTHER_CALL, CALL])),
    ],
    "xml": [
        (
            "So. <v:tool_call>\n" + invoke(a="1") + invoke("g") + "</v:tool_call>",
            "stop",
            ("So.", [CALL, OTHER_CALL]),
        ),
        (invoke(b="\nx\n"), "stop", ("", [("f", {"b": "\nx\n"})])),
        (
            '<｜X｜function_calls>\n<｜X｜invoke name="f">\n'
            '<｜X｜parameter name="h" string="false">3</｜X｜parameter>\n'
            '<｜X｜parameter name="a" string="true">3</｜X｜parameter>\n'
            "</｜X｜invoke>\n</｜X｜function_calls>",
            "stop",
            ("", [("f", {"h": 3, "a": "3"})]),
        ),
        ('<function name="f"><param name="a">1</param></function>', "stop", ("", [CALL])),
        (invoke(a="1").replace('"', "'"), "stop", ("", [CALL])),
        (invoke(a="1")[:-12], "length", TRUNCATED),
    ],
    "harmony": [
        (harmony('{"a": 1}'), "stop", ("", [CALL])),
        (' to=functions.f<|channel|>commentary json<|message|>{"a": 1}', "stop", ("", [CALL])),
        (
            harmony('{"a": 1}') + harmony("{}", "g", "<|start|>assistant"),
            "stop",
            ("", [CALL, OTHER_CALL]),
        ),
        (harmony('{"a": 1}').replace("json", " json"), "stop", ("", [CALL])),
        (harmony('{"a": 1}').replace("<|constrain|>json", "code"), "stop", ("", [CALL])),
        (harmony("{bad}"), "stop", ("", ["bad_json"])),
        (harmony("[1]"), "stop", ("", ["not_object"])),
        (harmony(""), "stop", ("", ["bad_json"])),
        (harmony('""'), "stop", ("", ["not_object"])),
        (harmony('{"a": 1}')[:-14], "length", TRUNCATED),
        (
            "<|channel|>final<|message|>I write to=f",
            "stop",
            ("<|channel|>final<|message|>I write to=f", []),
        ),
    ],
    "deepseek": [
        (
            "Yes.\n" + deepseek('{"a": 1}') + deepseek("{}", "g"),
            "stop",
            ("Yes.", [CALL, OTHER_CALL]),
        ),
        (
            "<｜tool▁calls▁begin｜>"
            + old_deepseek('{"a": 1}')
            + "\n"
            + old_deepseek("{}", "g")
            + "<｜tool▁calls▁end｜>",
            "stop",
            ("", [CALL, OTHER_CALL]),
        ),
        (deepseek("{bad}") + deepseek("{}", "g"), "stop", ("", ["bad_json", OTHER_CALL])),
        (deepseek("{}", ""), "stop", ("", ["missing_name"])),
        (deepseek('{"a": 1}')[:-20], "length", TRUNCATED),
        (deepseek('{"a": 1}')[:-17], "stop", ("", [CALL])),
    ],
    "kimi": [
        (
            "<|tool_calls_section_begin|>"
            + kimi('{"a": 1}')
            + kimi("{}", "g")
            + "<|tool_calls_section_end|>",
            "stop",
            ("", [CALL, OTHER_CALL]),
        ),
        (kimi('{"a": 1'), "stop", ("", ["bad_json"])),
        (kimi('{"a": 1}').replace("functions.", ""), "stop", ("", [CALL])),
        ("<|tool_call_begin|>f", "length", TRUNCATED),
    ],
    "solar": [
        (
            f"<|tool_calls|>{solar('{}', 'g')}{solar(chr(123) + chr(125), 'g')}<|calls|>",
            "stop",
            ("", [OTHER_CALL] * 2),
        ),
        (solar("5"), "stop", ("", ["not_object"])),
    ],
    "gemma": [
        (gemma("a:1") + gemma("", "g"), "stop", ("", [CALL, OTHER_CALL])),
        (
            "So. " + gemma(f"b:{Q}x, {{y}}: \n{Q},c:{{x:[1,-2.5,null,true,{Q}{Q}]}}") + " on",
            "stop",
            ("So.  on", [("f", {"b": "x, {y}: \n", "c": {"x": [1, -2.5, None, True, ""]}})]),
        ),
        (
            f"<start_function_call>call:f{{a:{'<escape>1<escape>'}}}<end_function_call>",
            "stop",
            ("", [CALL]),
        ),
        (gemma(f"a:{Q}one{Q}"), "stop", ("", ["bad_arguments"])),
        (gemma("a:one"), "stop", ("", ["bad_arguments"])),
        (gemma("a:1,a:2"), "stop", ("", ["bad_arguments"])),
        (gemma("a"), "stop", ("", ["bad_arguments"])),
        (gemma("a:"), "stop", ("", ["bad_arguments"])),
        (gemma("h:" + "[" * 40), "stop", ("", ["bad_arguments"])),
        (gemma("a:1").replace("call:f", ""), "stop", ("", ["missing_name"])),
        (gemma(f"b:{Q}x") + gemma("a:1"), "stop", ("", ["bad_arguments", CALL])),
        ("<|tool_call>call:f{a:1" + gemma("", "g"), "stop", ("", ["bad_arguments", OTHER_CALL])),
        (gemma("a:1")[:-13], "length", TRUNCATED),
    ],
    "python": [
        (
            "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|> on",
            "stop",
            ("on", [CALL, OTHER_CALL]),
        ),
        (
            "<|tool_call_start|>[f(b='<|tool_call_end|>]')]<|tool_call_end|>",
            "stop",
            ("", [("f", {"b": "<|tool_call_end|>]"})]),
        ),
        (
            "<|tool_call_start|>[f(a=1)]<|tool_call_end|><|tool_call_start|>[g()]<|tool_call_end|>",
            "stop",
            ("", [CALL, OTHER_CALL]),
        ),
        (
            '<|tool_call_start|>[f(c={"x": [true, null]})]',
            "stop",
            ("", [("f", {"c": {"x": [True, None]}})]),
        ),
        ("<|tool_call_start|>f<|tool_call_end|> on", "stop", ("on", ["bad_python"])),
        ("<|tool_call_start|>[f(b='", "length", TRUNCATED),
    ],
    "json": [
        (f"Yes. <tool_calls>[{GOOD}, {OTHER}]</tool_calls>", "stop", ("Yes.", [CALL, OTHER_CALL])),
        (f"<tool_calls>\n{GOOD}\n{OTHER}\n</tool_calls>", "stop", ("", [CALL, OTHER_CALL])),
        (f"<TOOLCALL>[{GOOD}]</TOOLCALL><TOOLCALL>[{OTHER}]", "stop", ("", [CALL, OTHER_CALL])),
        (
            '<|tools_prefix|>[{"f": {"a": 1}}, {"g": {}}]<|tools_suffix|>',
            "stop",
            ("", [CALL, OTHER_CALL]),
        ),
        (
            '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>',
            "stop",
            ("", [CALL]),
        ),
        (f"[{GOOD}, {OTHER}]", "stop", ("", [CALL, OTHER_CALL])),
        (f"<tool_calls>[{GOOD}, {{bad", "length", ("", [CALL, "truncated_call"])),
        ("<tool_calls>{bad}</tool_calls>", "stop", ("", ["bad_json"])),
        ("<tool_calls></tool_calls>", "stop", ("", ["bad_json"])),
        ("<tool_calls>[5]</tool_calls>", "stop", ("", ["not_object"])),
        (f"[{GOOD}] is what I would call", "stop", (f"[{GOOD}] is what I would call", [])),
    ],
    "llama": [
        (
            '<|python_start|><|python_end|>{"name": "f", "parameters": {"a": 1}}',
            "stop",
            ("", [CALL]),
        ),
        (hermes(GOOD, OTHER), "stop", ("", [CALL, OTHER_CALL])),
    ],
    "mistral": [(hermes(GOOD), "stop", ("", [CALL]))],
}


@pytest.mark.parametrize(
    ("tool_format", "text", "finish", "expected"),
    [
        (name, *row)
        for name, rows in (
            *(("xml", XML), ("llama", LLAMA), ("python", PYTHON), ("mistral", MISTRAL)),
            *NEWER.items(),
        )
        for row in rows
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_calls_in_the_ways_of_other_families(
    tool_format: str, text: str, finish: str, expected: tuple[str, list[Any]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what a model writes is no reason for Python to warn
        assert calls_of(text, tool_format, finish) == expected


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=", ".join(FORMATS)):
        parse_tool_calls("x", "yaml")


UNREADABLE = ("null", "[]", "3", '"x"', '""', "{", "nonsense", "{nonsense}", '{"a": }', "<b>", "")
WRITTEN: dict[str, Callable[[str], str]] = {
    "hermes": lambda body: hermes(f'{{"name": "f", "arguments": {body}}}'),
    "json": lambda body: f'<tool_calls>[{{"name": "f", "arguments": {body}}}]</tool_calls>',
    "llama": lambda body: f'<|python_tag|>{{"name": "f", "parameters": {body}}}',
    "mistral": lambda body: f"[TOOL_CALLS]f[ARGS]{body}",
    "xml": lambda body: f"<function=f>{body or 'x'}</function>",
    "glm": lambda body: f"<tool_call>f\n{body or 'x'}\n</tool_call>",
    "python": lambda body: f"<|tool_call_start|>[f({body or 'x'})]<|tool_call_end|>",
    "gemma": lambda body: f"<|tool_call>call:f{{{body or 'x'}}}<tool_call|>",
    "harmony": harmony,
    "deepseek": deepseek,
    "kimi": kimi,
    "solar": solar,
}


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("name", FORMATS)
def test_unreadable_arguments_are_never_no_arguments(name: str, finish: str) -> None:
    for body in UNREADABLE:
        _, calls = parse_tool_calls(WRITTEN[name](body), name, tools=(F,), finish=finish)
        assert len(calls) == 1 and isinstance(calls[0], Malformed), (body, calls)


MANY = {
    "hermes": "<tool_call>" + GOOD + "</tool_call>",
    "xml": xml(a="1"),
    "llama": '{"name": "f", "parameters": {"a": 1}};',
    "python": "f(a=1),",
    "mistral": GOOD + ",",
    "glm": glm(a="1"),
    "harmony": harmony('{"a": 1}'),
    "deepseek": deepseek('{"a": 1}'),
    "kimi": kimi('{"a": 1}'),
    "solar": solar('{"a": 1}'),
    "gemma": gemma("a:1"),
    "json": f"<tool_calls>{GOOD}</tool_calls>",
}


@pytest.mark.parametrize("name", FORMATS)
def test_limits_hold_in_every_format(name: str) -> None:
    def written(count: int) -> str:
        text = MANY[name] * count
        return {"python": f"[{text}]", "mistral": f"[TOOL_CALLS][{text[:-1]}]"}.get(name, text)

    assert calls_of(written(MAX_CALLS), name)[1] == [CALL] * MAX_CALLS
    assert calls_of(written(MAX_CALLS + 3), name)[1] == [CALL] * MAX_CALLS + ["too_many"]
    assert calls_of(written(MAX_TEXT // 5), name) == ("", ["too_large"])
    assert parse_tool_calls("a" * 2 * MAX_TEXT, name) == ("a" * 2 * MAX_TEXT, ())


PIECES = [
    "<tool_call>", "</tool_call>", "<function=f>", "<function=", "</function>", "<parameter=a>", "</parameter>", "<|python_tag|>", "<|python_start|>",
    "[TOOL_CALLS]", "[ARGS]", '{"name": "f", "parameters": {', GOOD, "[f(", "f(a=", ")]", "[", "]",
    "<|tool_call_start|>", "<invoke name=", "<｜X｜invoke", 'string="false">', "<tool_call>f", "<arg_key>", "</arg_key>", "<arg_value>",
    "</arg_value>", "<|channel|>commentary", " to=f", "<|message|>", "<|call|>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>",
    "<|tool_call>", "call:f{", '<|"|>', "<tool_call|>", "<tool_calls>", "<TOOLCALL>", ":",
    "{", "}", ",", ";", '"', "'", "\\", "1", "NaN", "lambda", "\n", "\0", "\ud800",
]  # fmt: skip


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=30).map("".join),
    st.sampled_from(["stop", "length"]),
)
def test_no_text_ever_raises_in_any_format_and_what_comes_out_can_be_written(
    text: str, finish: str
) -> None:
    for name in FORMATS:
        rest, calls = parse_tool_calls(text, name, tools=(F,), finish=finish)
        rest.encode()
        for call in calls:
            json.dumps(
                call.arguments if isinstance(call, ToolCall) else [call.text, call.reason],
                allow_nan=False,
            ).encode()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.longest
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.from_regex(r"arg_[a-z]{1,5}", fullmatch=True), VALUES, max_size=4))
def test_what_a_family_writes_is_read_back(arguments: dict[str, Any]) -> None:
    body = json.dumps({"name": "f", "arguments": arguments})
    pythonic = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    expected = ("", (ToolCall("call_0", "f", arguments),))
    for name, text in (
        ("llama", body),
        ("mistral", f"[TOOL_CALLS][{body}]"),
        ("python", f"[f({pythonic})]"),
    ):
        assert parse_tool_calls(text, name) == expected
    typed = Tool(
        "f", "", {"properties": {key: {"type": _kind(value)} for key, value in arguments.items()}}
    )
    written = xml(
        **{
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in arguments.items()
        }
    )
    assert parse_tool_calls(written, "xml", tools=(typed,)) == expected


def _kind(value: Any) -> str:
    names = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
        type(None): "null",
    }
    return names[type(value)]


HOSTILE: dict[str, Callable[[int], str]] = {
    "functions": lambda n: "<function=" * (n // 10),
    "named functions": lambda n: "<function=f>" * (n // 12),
    "parameters": lambda n: "<function=f>" + "<parameter=a>" * (n // 14),
    "closed parameters": lambda n: "<function=f>" + "<parameter=a></parameter>" * (n // 26),
    "parameter ends": lambda n: "<function=f><parameter=a>" + "</parameter>" * (n // 13),
    "spaced ends": lambda n: "<function=f><parameter=a>" + "</parameter>   \n" * (n // 17),
    "spaces": lambda n: "<tool_call>" + " " * (n - 11),
    "spaces in front": lambda n: "<tool_call>      " * (n // 17),
    "tags": lambda n: "<|python_tag|>" * (n // 14),
    "lists": lambda n: "[f(a=" * (n // 5),
    "closed lists": lambda n: "[" + "f(a=[1])," * (n // 10) + "]",
    "brackets": lambda n: "[f(a=" + "[" * (n // 2 - 5) + "]" * (n // 2 - 5) + ")]",
    "strings": lambda n: '[f(a="' + "\\x" * (n // 2 - 5) + '")]',
    "mistral": lambda n: "[TOOL_CALLS]" * (n // 12),
    "mistral names": lambda n: "[TOOL_CALLS]f[ARGS]{}" * (n // 22),
    "glm calls": lambda n: "<tool_call>f" * (n // 12),
    "glm keys": lambda n: "<tool_call>f" + "<arg_key>a</arg_key><arg_value>" * (n // 31),
    "glm ends": lambda n: (
        "<tool_call>f<arg_key>a</arg_key><arg_value>" + "</arg_value>  " * (n // 14)
    ),
    "invokes": lambda n: '<invoke name="' * (n // 14),
    "harmony heads": lambda n: "<|channel|>c to=f" * (n // 17),
    "harmony calls": lambda n: " to=f<|message|>{" * (n // 17),
    "deepseek": lambda n: "<｜tool▁call▁begin｜>f" * (n // 21),
    "deepseek spaces": lambda n: "<｜tool▁calls▁begin｜>" + " " * (n - 21),
    "kimi": lambda n: "<|tool_call_begin|>f<|tool_call_argument_begin|>{" * (n // 50),
    "solar": lambda n: "<|tool_call:begin|><|tool_call:name|>" * (n // 37),
    "gemma": lambda n: "<|tool_call>call:f{a:" * (n // 21),
    "gemma lists": lambda n: "<|tool_call>call:f{a:" + "[" * (n - 21),
    "gemma items": lambda n: "<|tool_call>call:f{a:[" + "1," * (n // 8),
    "gemma texts": lambda n: '<|tool_call>call:f{a:<|"|>' * (n // 26),
    "python texts": lambda n: "<|tool_call_start|>[" + '"\\' * (n // 2 - 10),
    "python starts": lambda n: "<|tool_call_start|>[" * (n // 20),
    "json marks": lambda n: "<tool_calls>[" * (n // 13),
    "json lists": lambda n: "<tool_calls>[]" * (n // 40),
    "objects": lambda n: '{"name": "f", "parameters": {}};' * (n // 33),
    "open objects": lambda n: '{"name": {' * (n // 10),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_costs_no_more_than_its_length_in_any_format(name: str) -> None:
    for size in (MAX_TEXT, 1_000_000):
        text = HOSTILE[name](size)[:size]
        for tool_format in FORMATS:
            start = time.process_time()
            parse_tool_calls(text, tool_format, tools=(F,))
            assert time.process_time() - start < 3, tool_format  # quadratic work would take minutes
