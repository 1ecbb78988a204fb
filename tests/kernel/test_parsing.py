"""Reading answers: legal strings in the stated order, tool calls by the stated table, and
hostile text at no more than its length."""

from __future__ import annotations

import json
import string
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.parsing import (
    MAX_CALLS,
    MAX_DEPTH,
    MAX_TEXT,
    clean,
    fold,
    parse_action,
    parse_legal,
    parse_tool_calls,
)
from gem_ma.kernel.parsing.legal import _DENIES, _marked
from gem_ma.kernel.types import Action, Malformed, Tool, ToolCall

LEGAL = ("check", "bet")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bet", "bet"),
        ("BET", "bet"),
        ("  Bet \n", "bet"),
        (r"so \boxed{bet}", "bet"),
        (r"\boxed{check} no, \boxed{bet} it is, not check", "bet"),
        (r"\boxed{\text{bet}} or check", "bet"),
        ("[check] ... [ Bet ]", "bet"),
        ("[bet] and then ]", "bet"),
        ("[bet] then [", "bet"),
        ("I check? No. <action>bet</action>", "bet"),
        ("<action>\nbet\n</action> [check", "bet"),
        ("<action>[bet]</action> check", "bet"),
        (r"[check] then \boxed{bet}", "bet"),
        ('{"name": "move", "arguments": {"move": "bet"}}', "bet"),
        ("I could check.\nI will bet!", "bet"),
        ("bet\n\n", "bet"),
        ("bet, not fold", "bet"),
        # a mark that names nothing legal is no answer; the last line is
        ("[raise] I mean bet", "bet"),
        ("check or bet?", None),
        ("better", None),
        ("alphabet", None),
        ("", None),
        ("bet\nor what", None),
        ("[check, bet]", None),
        ("<answer>\nbet\n</answer>", "bet"),
        # what is named to be denied
        ("not bet", None),
        ("I will not bet.", None),
        ("I don't want to bet", None),
        ("Don’t bet!", None),
        ("never bet", None),
        ("no bet", None),
        ("I cannot [bet]", None),
        ("I would not:\n[bet]", "bet"),
        ("I would not, but [bet]", "bet"),
        ("Never mind. [bet]", "bet"),
        ("I will not 'really' [bet]", None),
        ("I would rather not **bet** here", None),
        ("bet is wrong", None),
        ("neither check nor bet", None),
        ("I refuse to bet", None),
        ("anything but bet", None),
        ("bet? No.", None),
        ("bet? No, check", "check"),
        ("answer: bet\n(Not check.)", "bet"),
        ("bet\n\nnot check\nnever check", "bet"),
        ("I will not check, I bet", "bet"),
        ("I won't check but bet", "bet"),
        ("check instead of bet", "check"),
        ("I bet rather than check", "bet"),
        ("not [check] but [bet]", "bet"),
        ("[bet], not [check]", "bet"),
        ("I do not know.\nbet", "bet"),
        ("Why not bet?", "bet"),
        ("It is not close: bet", "bet"),
        ("No, bet", "bet"),
        ("not check and not bet", None),
        ("what?\nnot check", None),
    ],
)
def test_a_legal_string_is_found_in_the_stated_order_or_not_at_all(
    text: str, expected: str | None
) -> None:
    assert parse_legal(text, LEGAL) == expected


DENIALS = ["not", "n't", "don’t", "no", "never", "instead of", "why"]


@pytest.mark.long
@given(
    st.lists(st.sampled_from([*DENIALS, "I", "do", "(", '"', "'s", "—"]), max_size=9),
    st.lists(st.sampled_from(["\n", " ", "\t", "\u2003"]), max_size=3),
    st.sampled_from([*",.;:!?", " (", ""]),
)
def test_behind_the_end_of_a_clause_no_mark_is_denied(
    words: list[str], space: list[str], stop: str
) -> None:
    before = " ".join(words) + stop + "".join(space)
    denied = _DENIES.search(fold(before.rpartition("\n")[2]) + " ")
    if not before.rpartition("\n")[2].strip():
        denied = None
    assert (_marked(f"{before}[bet]") is None) == (denied is not None)
    assert denied is None or stop in ("", " (")


def test_the_exact_string_wins_over_marks_and_folding() -> None:
    assert parse_legal("[a] b", ("a", "b", "[a] b")) == "[a] b"
    assert parse_legal("Bet", ("bet", "Bet")) == "Bet"
    assert parse_legal("I say [Bet]", ("bet", "Bet")) == "Bet"


def test_two_legal_strings_that_fold_alike_are_never_guessed() -> None:
    assert parse_legal("BET", ("bet", "Bet")) is None
    assert parse_legal("I bEt", ("bet", "Bet", "check")) is None
    # twice the same is one
    assert (
        parse_legal("check", ("check", "check"))
        == parse_legal("CHECK", ("check", "check"))
        == "check"
    )


def test_a_legal_string_inside_another_is_two_matches() -> None:
    assert parse_legal("I call 2 now", ("call", "call 2")) is None
    assert parse_legal("call 2", ("call", "call 2")) == "call 2"


@pytest.mark.parametrize(
    ("text", "legal", "expected"),
    [
        ("move -1 please", ("-1", "+1"), "-1"),
        ("a.c", ("abc",), None),
        ("ШАХ!", ("шах", "мат"), "шах"),
    ],
)
def test_legal_strings_are_text_not_patterns(
    text: str, legal: tuple[str, ...], expected: str | None
) -> None:
    assert parse_legal(text, legal) == expected


def call(name: str = "f", **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def tagged(*bodies: str) -> str:
    return "".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def kinds(text: str) -> list[str]:
    return [
        found.name if isinstance(found, ToolCall) else found.reason.split(":")[0]
        for found in parse_tool_calls(text)[1]
    ]


def test_a_good_call_beside_a_bad_one_is_kept() -> None:
    assert kinds(tagged(call("f"), "{bad", call("g"))) == ["f", "bad_json", "g"]
    assert [
        found.id
        for found in parse_tool_calls(tagged("{", call("g")))[1]
        if isinstance(found, ToolCall)
    ] == ["call_1"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", "bad_json"),
        ("{'name': 'f', 'arguments': {}}", "bad_json"),
        ('{"name": "f", "arguments": {"x": 1', "bad_json"),
        ('{"name": "f", "arguments": {"x": NaN}}', "bad_json"),
        ('{"name": "f", "arguments": {"x": -Infinity}}', "bad_json"),
        ('{"name": "f", "arguments": {"x": 1e999}}', "bad_json"),
        ('{"name": "f", "arguments": {"x": 1, "x": 2}}', "bad_json"),
        ('{"name": "f", "name": "g", "arguments": {}}', "bad_json"),
        ('{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}", "bad_json"),
        ('{"name": "f", "arguments": {"x": -' + "9" * 65 + "}}", "bad_json"),
        ("[" * 10_000, "bad_json"),
        ('{"a":' * 10_000, "bad_json"),
        ('{"name": "f", "arguments": {"x": ' + "[" * 40 + "]" * 40 + "}}", "bad_json"),
        ('{"name": "f", "arguments": "' + "[" * 5000 + '"}', "bad_json"),
        ('[{"name": "f", "arguments": {}}]', "not_object"),
        ('"f"', "not_object"),
        ("null", "not_object"),
        ('{"arguments": {}}', "missing_name"),
        ('{"name": "", "arguments": {}}', "missing_name"),
        ('{"name": 3, "arguments": {}}', "missing_name"),
        ('{"name": "f"}', "bad_arguments"),
        ('{"name": "f", "arguments": null}', "bad_arguments"),
        ('{"name": "f", "arguments": [1]}', "bad_arguments"),
        ('{"name": "f", "arguments": "x"}', "bad_arguments"),
        ('{"name": "f", "arguments": "[1]"}', "bad_arguments"),
    ],
)
def test_what_cannot_be_read_is_malformed_data_of_a_named_kind(body: str, kind: str) -> None:
    (found,) = parse_tool_calls(tagged(body))[1]
    assert (
        isinstance(found, Malformed)
        and found.reason.startswith(kind + ": ")
        and len(found.text) <= 200
    )
    assert kinds(tagged(body, call("next")))[-1] in ("next", kind)


def test_the_deepest_allowed_arguments_are_read() -> None:
    inner = MAX_DEPTH - 2  # the call and its arguments are two
    for leaf in ("", "1"):
        assert kinds(
            tagged('{"name": "f", "arguments": {"x": ' + "[" * inner + leaf + "]" * inner + "}}")
        ) == ["f"]
        assert kinds(
            tagged(
                '{"name": "f", "arguments": {"x": '
                + "[" * (inner + 1)
                + leaf
                + "]" * (inner + 1)
                + "}}"
            )
        ) == ["bad_json"]
    assert kinds(tagged('{"name": "f", "arguments": {"x": ' + "9" * 64 + "}}")) == ["f"]


def test_too_many_and_too_large() -> None:
    assert kinds(tagged(*[call()] * (MAX_CALLS + 5))) == ["f"] * MAX_CALLS + ["too_many"]
    assert kinds(tagged(call(x="a" * MAX_TEXT))) == ["too_large"]
    assert kinds(call(x="a" * MAX_TEXT)) == ["too_large"]
    # plain text may be long
    assert parse_tool_calls("a" * 2 * MAX_TEXT) == ("a" * 2 * MAX_TEXT, ())


def test_a_bare_json_object_is_a_call_and_other_text_is_text() -> None:
    assert parse_tool_calls(f" {call(x=1)}\n") == ("", (ToolCall("call_0", "f", {"x": 1}),))
    assert kinds('{"name": "f", "arguments": {') == []
    assert kinds('{"name": "f", "arguments": {]}') == ["bad_json"]
    for text in ("hello", '{"x": 1}', f"I say {call()}", f"{call()} {{}}", ""):
        assert parse_tool_calls(text) == (text, ())


def test_surrogates_are_replaced_in_names_keys_and_values() -> None:
    (found,), rest = parse_tool_calls(
        '\ud800<tool_call>{"name": "f\\ud800", "arguments": {"k\\udfff": ["\\ud83d"]}}</tool_call>'
    )[::-1]
    assert found == ToolCall("call_0", "f?", {"k?": ["?"]}) and rest == "?"


def test_an_action_has_calls_where_tools_are_offered_and_a_legal_string_where_a_choice_is_closed() -> (
    None
):
    look = (Tool("f"),)
    text = "Wait. " + tagged(call())
    assert parse_action(text, None, look) == Action("Wait.", (ToolCall("call_0", "f", {}),))
    assert parse_action(text) == Action(text)
    assert parse_action("[bet]", LEGAL) == Action("[bet]", (), "bet")
    assert parse_action("[bet]", LEGAL, look) == Action("[bet]", (), "bet")
    assert parse_action("\ud800") == Action("?")


PIECES = [
    "<tool_call>",
    "</tool_call>",
    '{"name": "f", "arguments": {',
    '"',
    "\\",
    "}",
    "]",
    "[",
    "{",
    "\\boxed{",
    "<action>",
    "</action>",
    "bet",
    "NaN",
    "1e9",
    "\n",
    "\ud800",
]


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=40).map("".join))
def test_no_text_ever_raises_and_what_comes_out_can_be_written(text: str) -> None:
    action = parse_action(text, LEGAL, (Tool("f"),))
    assert action.parsed in (*LEGAL, None)
    for found in action.tool_calls:
        json.dumps(
            found.arguments if isinstance(found, ToolCall) else found.text, allow_nan=False
        ).encode()
    action.text.encode("utf-8")
    assert parse_legal(text, LEGAL) in (*LEGAL, None)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(string.printable, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(string.printable, max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.longest
@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(string.printable, max_size=5), JSON, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_a_written_call_is_read_back(arguments: dict[str, Any], twice: bool, bare: bool) -> None:
    body = json.dumps({"name": "f", "arguments": json.dumps(arguments) if twice else arguments})
    assert parse_tool_calls(body if bare else tagged(body)) == (
        "",
        (ToolCall("call_0", "f", arguments),),
    )


HOSTILE: dict[str, Callable[[int], str]] = {
    "tags": lambda n: "<tool_call>" * (n // 11),
    "open strings": lambda n: '<tool_call>{"' * (n // 13),
    "escaped quotes": lambda n: '<tool_call>{"name": "' + '\\"' * (n // 2 - 20),
    "braces": lambda n: "<tool_call>" + "{" * (n - 11),
    "keys": lambda n: "<tool_call>" + '{"a":' * (n // 5 - 3),
    "closed arrays": lambda n: "<tool_call>" + "[" * (n // 2 - 8) + "]" * (n // 2 - 8),
    "wide": (
        lambda n: '<tool_call>{"name": "f", "arguments": {"x": [' + "[]," * (n // 3 - 30) + "[]]}}"
    ),
    "digits": lambda n: '<tool_call>{"name": "f", "arguments": {"x": ' + "9" * (n - 50),
    "actions": lambda n: "<action>" * (n // 8),
    "ends": lambda n: "</action>" * (n // 9),
    "boxes": lambda n: "\\boxed{" * (n // 7),
    "brackets": lambda n: "[" * n,
    "bare": lambda n: '{"name"' + "{" * (n - 8) + "}",
    "spaces": lambda n: " " * n,
    "words": lambda n: "aab " * (n // 4),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [MAX_TEXT, 1_000_000])
def test_hostile_text_costs_no_more_than_its_length(name: str, size: int) -> None:
    text = HOSTILE[name](size)[:size]
    start = time.process_time()
    action = parse_action(
        text, ("aaaaab", "aab aac", *(f"move {number}" for number in range(100))), (Tool("f"),)
    )
    assert time.process_time() - start < 3  # quadratic work would take minutes
    assert action.parsed is None and not any(
        isinstance(found, ToolCall) for found in action.tool_calls if name != "wide"
    )


def test_clean_and_fold() -> None:
    assert clean("aé😀\ud800") == "aé😀?" and clean("plain") == "plain"
    assert fold("  A\t b\u00a0C ß ") == "a b c ss"
