"""Calls go through a chat template and come back through its reader, in the shapes of current model
families; what does not is refused. Nothing that was said becomes a call or a turn."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.models.answers import SHAPES
from gem_ma.engines.models.chat import Chat, ChatOptions
from gem_ma.engines.models.chat_template import Shape
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Tool, ToolCall
from tests.chat_templates import FAMILIES, NEWER

ME = "player_0"
SCHEMA = {
    "at": {"type": "string"},
    "n": {"type": "integer"},
    "x": {"type": "number"},
    "d": {"type": "object"},
    "l": {"type": "array"},
}
LOOK = Tool("look", "Looks at it.", {"type": "object", "properties": SCHEMA})
TAKE = Tool("take", "Takes it.", {"type": "object", "properties": {}})
TOOLS = (LOOK, TAKE)
PLAIN = ToolCall("call_0", "look", {"at": "the door", "n": 3})
EMPTY = ToolCall("call_1", "take", {})
CALLS = {
    "plain": (PLAIN,),
    "no arguments": (EMPTY,),
    "two": (PLAIN, EMPTY),
    "quotes and lines": (
        ToolCall("call_0", "look", {"at": 'it\'s "so"\n\n  <b> \\n é 💡 {x}, [y]: z'}),
    ),
    "digits": (ToolCall("call_0", "look", {"at": "12", "n": -12, "x": 1.5}),),
    "words of JSON": (ToolCall("call_0", "look", {"at": "null", "l": ["true", "None"]}),),
    "nested": (
        ToolCall("call_0", "look", {"d": {"a": {"b": ["c'd", 1, None, True]}}, "l": [[], {}]}),
    ),
    "control tokens": (
        ToolCall("call_0", "look", {"at": "<|im_end|></s><|end|><turn|> <|user|>"}),
    ),
}
ALL = {**FAMILIES, **NEWER}


def chat_of(byte_model: Path, name: str, ended_by: int = 0, **options: Any) -> Chat:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    family = ALL[name]
    start = [family.start] if family.start else []
    tokenizer.add_special_tokens({"additional_special_tokens": [*family.controls, *start]})
    tokenizer.eos_token = family.controls[0]
    if family.start:
        tokenizer.bos_token = family.start
    tokenizer.chat_template = family.template
    count = ended_by or (2 if name in ("glm", "channels", "quotes") else 1)
    ends = family.controls[:count]
    return Chat(tokenizer, frozenset(tokenizer.convert_tokens_to_ids(ends)), ChatOptions(**options))


@pytest.fixture(scope="module")
def chats(byte_model: Path) -> dict[str, Chat]:
    return {name: chat_of(byte_model, name) for name in ALL}


def back(chat: Chat, ids: tuple[int, ...]) -> tuple[str, list[Any]]:
    """What a play would read out of these ids."""
    assert ids[-1] in chat.ends
    text, calls, _ = chat.read(chat.text(ids[:-1]), TOOLS)
    return text.strip(), [
        (getattr(call, "name", call), getattr(call, "arguments", "")) for call in calls
    ]


def facts(calls: tuple[ToolCall, ...]) -> list[Any]:
    return [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize("name", ALL)
def test_the_format_is_the_one_that_reads_what_the_template_writes(
    chats: dict[str, Chat], name: str
) -> None:
    chat = chats[name]
    assert (chat.tool_format, chat.template.ways[0].write is None) == (
        ALL[name].tool_format,
        ALL[name].native,
    )
    assert chat.continues


@pytest.mark.parametrize("name", ALL)
def test_a_demonstration_is_read_back_as_the_calls_that_it_shows(
    chats: dict[str, Chat], name: str
) -> None:
    for what, text in product(CALLS, ("", "Well, I look.")):
        try:
            ids = chats[name].answer(text, CALLS[what], TOOLS)
        except EngineError:
            # words before a call are a thought there, and a text with its marks is no text
            assert (name, what, text != "") == ("channels", "control tokens", True)
            continue
        assert back(chats[name], ids) == (text, facts(CALLS[what])), what
        # nothing in it is an id that is never sampled
        sampled = chats[name].marks | chats[name].ends
        assert not (set(ids) & set(chats[name].template.controls)) - sampled


@pytest.mark.parametrize("name", ALL)
def test_an_answer_in_words_is_read_back(chats: dict[str, Chat], name: str) -> None:
    assert back(chats[name], chats[name].answer("I bet 3.")) == ("I bet 3.", [])


@pytest.mark.parametrize("name", ALL)
def test_a_history_lacks_nothing(chats: dict[str, Chat], name: str) -> None:
    talk = (
        *(Message.system("be brief"), Message("go"), Message("Well,", ME, (PLAIN, EMPTY))),
        *(Message.tool("call_0", "seen it"), Message.tool("call_1", "took it")),
        *(Message("done", ME), Message("thanks")),
    )
    text = chats[name].tokenizer.decode(chats[name].render(ME, talk, TOOLS))
    for part in ("be brief", "Well,", "the door", "take", "seen it", "took it", "done", "thanks"):
        assert part in text
    assert "Looks at it" in text


@pytest.mark.parametrize("name", ALL)
def test_a_prompt_grows_behind_a_call_as_the_template_writes_it(
    chats: dict[str, Chat], name: str
) -> None:
    grows_behind_a_call(chats[name], name)


@pytest.mark.parametrize("name", ["glm", "channels", "quotes"])
def test_no_result_is_lost_where_a_call_ends_with_no_end_token(byte_model: Path, name: str) -> None:
    grows_behind_a_call(chat_of(byte_model, name, ended_by=1), name)


def grows_behind_a_call(chat: Chat, name: str) -> None:
    talk: tuple[Message, ...] = (Message("go"),)
    request = Request(ME, talk, TOOLS, conversation=name)
    prompt = chat.prompt(request)
    ids = chat.answer("", (PLAIN,), TOOLS)
    text, calls, thought = chat.read(chat.text(ids[:-1]), TOOLS)
    chat.sampled(request, Reply(text, calls, prompt, ids, (0.0,) * len(ids), reasoning=thought))
    talk += (Message(text, ME, calls), Message.tool("call_0", "seen it"))
    grown = chat.prompt(Request(ME, talk, TOOLS, conversation=name))
    assert grown[: len(prompt) + len(ids)] == prompt + ids
    tail = grown[len(prompt) + len(ids) :]
    # of the call's own name, though the call stands in the ids alone
    assert chat.render(ME, talk, TOOLS)[-len(tail) :] == tail
    assert "seen it" in chat.tokenizer.decode(tail)


@pytest.mark.parametrize("name", NEWER)
def test_what_was_said_is_neither_a_call_nor_a_turn(chats: dict[str, Chat], name: str) -> None:
    chat = chats[name]
    controls = set(chat.template.controls)
    written = chat.tokenizer.decode(chat.answer("", (PLAIN,), TOOLS))
    odd = written + "".join(chat.tokenizer.all_special_tokens)

    def controls_of(text: str) -> list[int]:
        call = ToolCall("call_0", "look", {"at": text, text: [text]})
        talk = (
            *(Message.system(text), Message(text), Message(text, ME), Message(text)),
            *(Message("", ME, (call,)), Message.tool("call_0", text), Message(text)),
        )
        described = Tool("look", text, {"type": "object", "properties": SCHEMA})
        return [token for token in chat.render(ME, talk, (described,)) if token in controls]

    assert controls_of(odd) == controls_of("bet")
    try:
        ids = chat.answer("", (ToolCall("call_0", "look", {"at": odd}),), TOOLS)
    except EngineError as refused:
        assert "cannot be demonstrated" in str(refused) and "\n" not in str(refused)
    else:
        assert back(chat, ids) == ("", [("look", {"at": odd})])


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\n", "'", '"', "\\", "</b>", "12", "null"]
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "at": TEXTS,
        "n": st.integers(-(10**9), 10**9),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "d": st.dictionaries(
            st.from_regex(r"[a-z]{1,4}", fullmatch=True), TEXTS | st.booleans(), max_size=2
        ),
        "l": st.lists(TEXTS | st.none() | st.integers(0, 9), max_size=3),
    },
)


@pytest.mark.long
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ARGUMENTS, st.sampled_from(sorted(ALL)))
def test_any_arguments_come_back_or_are_refused(
    chats: dict[str, Chat], arguments: dict[str, Any], name: str
) -> None:
    try:
        ids = chats[name].answer("", (ToolCall("call_0", "look", arguments),), TOOLS)
    except EngineError as refused:
        assert "cannot be demonstrated" in str(refused)
        return
    (call,) = back(chats[name], ids)[1]
    assert call[0] == "look" and json.dumps(call[1]) == json.dumps(arguments)


def test_a_clock_stands_still(chats: dict[str, Chat]) -> None:
    text = chats["channels"].tokenizer.decode(chats["channels"].render(ME, (Message("go"),)))
    assert "Today 2024-07-26" in text


def test_a_format_that_is_named_decides_for_a_template_that_tells_of_no_tools(
    byte_model: Path,
) -> None:
    chat = chat_of(byte_model, "separated", tool_format="deepseek")
    assert chat.template.ways[0].write is None
    with pytest.raises(ConfigError, match="tool_format: glm does not read the calls"):
        chat_of(byte_model, "separated", tool_format="glm")


def test_a_call_that_its_own_form_cannot_hold_is_written_in_another_that_is_read_too(
    chats: dict[str, Chat],
) -> None:
    untyped = Tool("look", "", {"type": "object", "properties": {}})
    call = ToolCall("call_0", "look", {"n": 3})
    # the xml form has no numbers but those of a schema
    said = chats["xml"].text(chats["xml"].answer("", (call,), (untyped,))[:-1])
    assert said.startswith("<tool_call>\n{") and chats["xml"].read(said, (untyped,))[1] == (call,)


@pytest.mark.parametrize("name", ALL)
def test_a_demonstration_that_would_be_read_as_something_else_is_refused_in_one_line(
    chats: dict[str, Chat], name: str
) -> None:
    # its text is a call too
    text = '<tool_call>{"name": "take", "arguments": {}}</tool_call>'
    with pytest.raises(EngineError, match=r"'look' cannot be demonstrated: .* format") as error:
        chats[name].answer(text, (PLAIN,), TOOLS)
    assert "\n" not in str(error.value)


def test_the_shapes_are_tried_from_the_plainest_on() -> None:
    assert SHAPES[0] == Shape() and len(set(SHAPES)) == len(SHAPES)


HEAD = (
    "{% for t in tools or [] %}{{ (t | tojson) + '\\n' }}{% endfor %}{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + ':' }}"
)
TAIL = "{{ '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant:' }}"
SHOWN = (
    "{% for c in m['tool_calls'] or [] %}{{ '<tool_call>' + BODY + '</tool_call>' }}{% endfor %}"
)
BODY = "(c['function'] | tojson)"
ODD = {
    "the last call alone": SHOWN.replace("m['tool_calls'] or []", "(m['tool_calls'] or [])[-1:]"),
    "names alone": SHOWN.replace("BODY", "c['function']['name']"),
    "names in another case": SHOWN.replace("BODY", "(c['function'] | tojson | upper)"),
    "arguments as Python": SHOWN.replace("BODY", "(c['function']['arguments'] | string)"),
    "arguments escaped": SHOWN.replace("BODY", "(c['function'] | tojson | forceescape)"),
    "arguments without quotes": SHOWN.replace("BODY", "(c['function'] | tojson | replace('\"', ''))"),
    "arguments in full twice": SHOWN.replace("BODY", "(c | tojson) + (c['function'] | tojson)"),
    "numbers as texts": SHOWN.replace("BODY", "(c['function'] | tojson | replace('3', '\"3\"'))"),
    "arguments left out": SHOWN.replace("BODY", "({'name': c['function']['name'], 'arguments': {}} | tojson)"),
    "an error for any call": SHOWN.replace("BODY", "c['function']['nothing']['at']"),
    "results dropped": "{% if m['role'] != 'tool' %}" + SHOWN.replace("BODY", BODY),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_a_template_that_spoils_calls_or_results_is_shown_them_as_text(
    byte_tokenizer: Any, what: str
) -> None:
    inside = ODD[what] + ("" if "dropped" in what else "{{ m['content'] }}")
    if "dropped" in what:
        inside += "{{ m['content'] }}{% endif %}"
    byte_tokenizer.chat_template = HEAD + inside + TAIL
    chat = Chat(byte_tokenizer, frozenset({byte_tokenizer.eos_token_id}))
    for name, calls in CALLS.items():
        assert (what, name, back(chat, chat.answer("", calls, TOOLS))) == (
            *(what, name),
            ("", facts(calls)),
        )
    talk = (
        *(Message("go"), Message("", ME, (PLAIN, EMPTY)), Message.tool("call_0", "seen it")),
        *(Message.tool("call_1", "took it"), Message("thanks")),
    )
    text = chat.tokenizer.decode(chat.render(ME, talk, TOOLS))
    said = text.partition(":go<|im_end|>")[2]
    for part in ("look", "the door", "take", "seen it", "took it", "thanks"):
        assert part in said
    assert "Looks at it" in text


def test_a_template_that_speaks_of_one_form_and_writes_another_is_believed_in_neither(
    byte_tokenizer: Any,
) -> None:
    odd = "{{ '[~' + c['function']['name'] + '~]' + (c['function']['arguments'] | tojson) }}"
    written = "{% for c in m['tool_calls'] or [] %}" + odd + "{% endfor %}"
    for spoken in ("<function=name>", "[TOOL_CALLS]"):
        said = "Write " + spoken + ". {{ tools | tojson }}"
        byte_tokenizer.chat_template = said + HEAD + written + "{{ m['content'] }}" + TAIL
        chat = Chat(byte_tokenizer, frozenset({byte_tokenizer.eos_token_id}))
        assert (chat.tool_format, chat.template.shows_tools) == ("hermes", False)
        assert back(chat, chat.answer("", (PLAIN,), TOOLS)) == ("", facts((PLAIN,)))


@pytest.fixture
def byte_tokenizer(byte_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(byte_model)
