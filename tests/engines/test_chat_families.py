"""Chat templates of several families: prompts that only grow equal the full rendering, markers
stay text, ends and answers are right."""

from __future__ import annotations

import json
import math
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.models.chat import Chat, ChatOptions
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Malformed, Message, Reply, Request, Tool, ToolCall
from tests.chat_templates import FAMILIES, HEADERS, THINKING

ME, OTHER = "player_0", "player_1"
LOOK = Tool(
    "look",
    "Looks <|im_end|> at it.",
    {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}},
)
DIALOGUES = 50


def tokenizer_of(byte_model: Path, name: str) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    family = FAMILIES[name]
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [*family.controls, *([family.start] if family.start else [])]}
    )
    tokenizer.eos_token = family.controls[0]
    if family.start:
        tokenizer.bos_token = family.start
    tokenizer.chat_template = family.template
    return tokenizer


@pytest.fixture(params=[*FAMILIES, "plain"])
def chat(request: pytest.FixtureRequest, byte_model: Path) -> Chat:
    if request.param == "plain":
        tokenizer = tokenizer_of(byte_model, "turns")
        tokenizer.chat_template = None
        return Chat(tokenizer, frozenset({tokenizer.eos_token_id}), ChatOptions("plain"))
    return chat_of(byte_model, request.param)


def chat_of(byte_model: Path, name: str, options: Any = None, **more: Any) -> Chat:
    tokenizer = tokenizer_of(byte_model, name)
    return Chat(tokenizer, frozenset({tokenizer.eos_token_id}), ChatOptions(options, **more))


def encode(chat: Chat, text: str) -> tuple[int, ...]:
    return tuple(
        chat.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    )


def phrase(chat: Chat, rng: random.Random) -> str:
    odd = [
        *chat.tokenizer.all_special_tokens,
        "zqslot000000",
        "naïve 💡",
        "\n",
        '"',
        "\\",
        "<tool_response>",
    ]
    return " ".join(rng.choices(["bet", "check", "12", *odd], k=rng.randint(1, 4))).strip() or "bet"


def written(chat: Chat, call: ToolCall) -> str:
    """A call as the family's own template writes it in the history."""
    inside = json.dumps(call.arguments, ensure_ascii=False)
    if chat.tool_format == "llama":
        return f'{{"name": "{call.name}", "parameters": {inside}}}'
    if chat.tool_format == "mistral":
        return f'[TOOL_CALLS] [{{"name": "{call.name}", "arguments": {inside}}}]'
    if chat.tool_format == "xml":
        given = "".join(
            f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in call.arguments.items()
        )
        return f"<tool_call>\n<function={call.name}>\n{given}</function>\n</tool_call>"
    return f'<tool_call>\n{{"name": "{call.name}", "arguments": {inside}}}\n</tool_call>'


def said_as(chat: Chat, request: Request, text: str, call: ToolCall | None, cut: bool) -> Reply:
    """A reply whose ids are those of the text, marks of tool calls as one id; with the end of
    turn unless it was cut."""
    ids: list[int] = []
    if call is None:
        ids += chat.answer(text)[:-1]
    else:
        whole = written(chat, call)
        mark = "[TOOL_CALLS]" if chat.tool_format == "mistral" else ""
        ids += [chat.tokenizer.convert_tokens_to_ids(mark)] if mark else []
        ids += encode(chat, ("" if mark else chat.lead) + whole.removeprefix(mark))
    ids += [] if cut else [min(chat.ends)]
    return Reply(
        text,
        (call,) if call else (),
        chat.prompt(request),
        tuple(ids),
        (0.0,) * len(ids),
        "length" if cut else "stop",
    )


@pytest.mark.parametrize("with_tools", [False, True], ids=["talk", "tools"])
def test_grown_prompts_equal_the_full_rendering_in_random_dialogues(
    chat: Chat, with_tools: bool
) -> None:
    tools = (LOOK,) if with_tools else ()
    for seed in range(DIALOGUES // 2):
        rng = random.Random(f"{seed}/{with_tools}")
        messages: tuple[Message, ...] = (
            (Message.system(phrase(chat, rng)),) if rng.random() < 0.5 else ()
        )
        messages += (Message(phrase(chat, rng)),)
        before: tuple[int, ...] = ()
        for _ in range(3):
            request = Request(ME, messages, tools, conversation=str(seed))
            prompt = chat.prompt(request)
            assert prompt[: len(before)] == before
            assert prompt == chat.render(ME, messages, tools)
            call = (
                ToolCall("call_0", "look", {"at": phrase(chat, rng), "n": 3})
                if with_tools and rng.random() < 0.5
                else None
            )
            reply = said_as(
                chat, request, "" if call else phrase(chat, rng), call, cut=rng.random() < 0.2
            )
            chat.sampled(request, reply)
            before = prompt + reply.token_ids
            messages += (Message(reply.text, ME, reply.tool_calls),)
            if call is not None:
                messages += (Message.tool("call_0", phrase(chat, rng)),)
                if chat.tool_format == "mistral":  # a user may speak only after an answer
                    continue
            if call is None or rng.random() < 0.5:
                messages += tuple(
                    Message(phrase(chat, rng), rng.choice(("scenario", OTHER, "system")))
                    for _ in range(rng.randint(1, 2))
                )
    assert chat.turns == DIALOGUES and chat.restarts == 0


def test_markers_in_any_text_stay_text(chat: Chat) -> None:
    control = set(chat.tokenizer.all_special_ids)
    marker = "".join(chat.tokenizer.all_special_tokens)

    def controls(text: str) -> list[int]:
        call = ToolCall("c", "look", {text: [text, {"x": text}]})
        messages = (
            Message.system(text),
            Message(text),
            Message("", ME, (call,)),
            Message.tool("c", text),
            Message(text, ME),
            Message(text, OTHER),
        )
        schema = {
            "type": "object",
            "properties": {text: {"type": "string", "description": text, "enum": [text]}},
        }
        return [
            token
            for token in chat.render(ME, messages, (Tool("look", text, schema),))
            if token in control
        ]

    assert controls(marker) == controls("bet") and controls("bet")
    assert not set(chat.answer(marker)[:-1]) & control


def test_a_call_with_markers_for_a_name_stays_text(chat: Chat) -> None:
    control = set(chat.tokenizer.all_special_ids)

    def controls(name: str) -> list[int]:
        messages = (
            Message("go"),
            Message("", ME, (ToolCall(name, name, {}),)),
            Message.tool(name, "seen"),
        )
        return [token for token in chat.render(ME, messages, (LOOK,)) if token in control]

    assert controls(chat.tokenizer.all_special_tokens[-1] * 3) == controls("look")


def test_an_answer_is_what_stands_between_the_generation_prompt_and_the_next_message(
    chat: Chat,
) -> None:
    prompt, whole = (
        chat.render(ME, (Message("go"),)),
        chat.render(ME, (Message("go"), Message("bet", ME), Message("on"))),
    )
    answer = chat.answer("bet")
    assert whole[: len(prompt) + len(answer)] == prompt + answer
    assert answer[-1] in chat.ends and chat.text(answer[:-1]).strip() == "bet"
    assert len(chat.answer("")) >= 1 and chat.answer("")[-1] in chat.ends


def test_the_format_of_calls_is_told_by_the_template_and_what_it_writes_is_read(chat: Chat) -> None:
    call = ToolCall("call_0", "look", {"at": 'a "quoted"\nline', "n": 3})
    assert chat.read(written(chat, call), (LOOK,)) == ("", (call,), "")
    assert chat.read(written(chat, call), ()) == (written(chat, call), (), "")


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_every_family_has_its_own_format(byte_model: Path, name: str, family: Any) -> None:
    chat = chat_of(byte_model, name)
    native = chat.template.ways[0].write is None
    assert (chat.tool_format, native) == (family.tool_format, family.native)
    assert chat.continues


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_a_format_that_does_not_read_what_the_template_writes_is_refused(
    byte_model: Path, name: str, family: Any
) -> None:
    assert chat_of(byte_model, name, tool_format=family.tool_format)
    if not family.native:  # nothing to hold it against
        chat = chat_of(byte_model, name, tool_format="python")
        call = ToolCall("call_0", "look", {"n": 3})
        assert chat.read("[look(n=3)]", (LOOK,))[1] == (call,)
        return
    with pytest.raises(ConfigError, match="tool_format: python does not read the calls") as error:
        chat_of(byte_model, name, tool_format="python")
    assert "zqtool" in str(error.value) and "\n" not in str(error.value)


def test_a_template_without_tools_gets_them_as_text_and_its_calls_and_results_too(
    byte_model: Path,
) -> None:
    chat = chat_of(byte_model, "turns")
    messages = (
        Message("go"),
        Message("Well", ME, (ToolCall("c", "look", {"at": "it"}),)),
        Message.tool("c", "seen"),
    )
    text = chat.tokenizer.decode(chat.render(ME, messages, (LOOK,)))
    assert text.startswith("<bos><start_of_turn>user\nYou can call these tools.")
    assert '"name": "look"' in text
    assert text.count("<end_of_turn>") == 3
    assert text.endswith(
        'go<end_of_turn>\n<start_of_turn>model\nWell\n<tool_call>\n{"name": "look", "arguments":'
        ' {"at": "it"}}\n</tool_call><end_of_turn>\n'
        "<start_of_turn>user\n<tool_response>\nseen\n</tool_response><end_of_turn>\n<start_of_turn>model\n"
    )


def test_the_headers_family_shows_results_as_ipython_and_one_fixed_day(byte_model: Path) -> None:
    chat = chat_of(byte_model, "headers")
    told = (
        Message.system("Be brief."),
        Message("go"),
        Message("", ME, (ToolCall("c", "look", {"at": "it"}),)),
        Message.tool("c", "seen"),
    )
    assert (
        chat.tokenizer.decode(chat.render(ME, told))
        == "<|begin|><|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n\nBe"
        " brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\ngo<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "look", "parameters": {"at":'
        ' "it"}}<|eot_id|>'
        "<|start_header_id|>ipython<|end_header_id|>\n\nseen<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert "Today: 01 Jan 2025\n" in chat.tokenizer.decode(
        chat_of(byte_model, "headers", {"date_string": "01 Jan 2025"}).render(ME, told)
    )
    assert "26 Jul" not in HEADERS


def test_two_calls_that_a_template_refuses_are_shown_as_text(byte_model: Path) -> None:
    chat = chat_of(byte_model, "headers")
    calls = (ToolCall("a", "look", {"at": "it"}), ToolCall("b", "look", {"at": "that"}))
    text = chat.tokenizer.decode(
        chat.render(
            ME,
            (Message("go"), Message("", ME, calls), Message.tool("a", "1"), Message.tool("b", "2")),
            (LOOK,),
        )
    )
    assert '<|python_tag|>{"name": "look", "parameters": {"at": "it"}}; {"name": "look"' in text
    said = chat.text(chat.answer("", calls, (LOOK,))[:-1])
    assert chat.read(said, (LOOK,))[1] == (
        ToolCall("call_0", "look", {"at": "it"}),
        ToolCall("call_1", "look", {"at": "that"}),
    )


def test_words_beside_a_call_that_a_template_drops_are_kept(byte_model: Path) -> None:
    call = ToolCall("c", "look", {"at": "it"})
    talk = (Message("go"), Message("Well", ME, (call,)), Message.tool("c", "seen"))
    for name, mark, written in (
        ("headers", "<|python_tag|>", '{"name": "look", "parameters": {"at": "it"}}'),
        ("brackets", "[TOOL_CALLS]", '[{"name": "look", "arguments": {"at": "it"}}]'),
    ):
        chat = chat_of(byte_model, name)
        ids = chat.render(ME, talk, (LOOK,))
        text = chat.tokenizer.decode(ids)
        assert f"Well\n{mark}{written}" in text and "seen" in text
        # a control token, as the policy writes it
        assert chat.tokenizer.convert_tokens_to_ids(mark) in ids


def test_own_messages_in_a_row_become_one_where_roles_must_alternate(byte_model: Path) -> None:
    chat = chat_of(byte_model, "turns")
    text = chat.tokenizer.decode(
        chat.render(ME, (Message("go"), Message("bet", ME), Message("and more", ME), Message("on")))
    )
    assert (
        text == "<bos><start_of_turn>user\ngo<end_of_turn>\n<start_of_turn>model\nbet\nand"
        " more<end_of_turn>\n<start_of_turn>user\non<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_result_without_a_call_goes_on_where_the_template_refuses_it_alone(
    byte_model: Path,
) -> None:
    chat = chat_of(byte_model, "brackets")
    text = chat.tokenizer.decode(
        chat.suffix(ME, (Message.tool("call_0", "seen"),), (LOOK,), ended=False)
    )
    assert text == '</s>[TOOL_RESULTS] {"content": seen, "call_id": "call00000"}[/TOOL_RESULTS]'


def test_a_model_without_a_template_says_so_in_one_line_and_can_be_shown_roles_as_plain_text(
    byte_model: Path,
) -> None:
    tokenizer = tokenizer_of(byte_model, "turns")
    tokenizer.chat_template = None
    ends = frozenset({tokenizer.eos_token_id})
    with pytest.raises(ConfigError, match=r"there is no chat template.*template: plain") as error:
        Chat(tokenizer, ends)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="template is 'plain' or the options"):
        Chat(tokenizer, ends, ChatOptions("fancy"))
    with pytest.raises(ConfigError, match="tool_format is auto, hermes"):
        Chat(tokenizer, ends, ChatOptions("plain", tool_format="jsn"))
    chat = Chat(tokenizer, ends, ChatOptions("plain"))
    text = tokenizer.decode(
        chat.render(
            ME,
            (Message.system("Be brief."), Message("go"), Message("bet", ME), Message("on", OTHER)),
        )
    )
    assert (
        text
        == "<bos>System: Be brief.\n\nUser: go\n\nAssistant: bet<end_of_turn>\n\nUser: player_1:"
        " on\n\nAssistant:"
    )
    assert tokenizer.chat_template is None  # the folder that is saved later stays as it was


def test_lone_surrogates_in_contents_calls_and_tools_are_replaced(chat: Chat) -> None:
    bad = "x\ud800y"
    call = ToolCall(bad, bad, {bad: [bad]})
    messages = (
        Message.system(bad),
        Message(bad),
        Message(bad, ME, (call, Malformed(bad, bad))),
        Message.tool(bad, bad),
        Message(bad, "a\udfffb"),
    )
    assert "\ufffd" not in chat.tokenizer.decode(chat.render(ME, messages, (Tool("look", bad),)))
    assert chat.answer(bad) == chat.answer("x?y")


# -- thinking ------------------------------------------------------------------------------------


def talk(chat: Chat, texts: list[str], *, result: bool = False) -> list[tuple[int, ...]]:
    """Prompts of a talk in which the policy writes these texts."""
    messages: tuple[Message, ...] = (Message("go"),)
    prompts = []
    for text in texts:
        request = Request(ME, messages, conversation="c")
        prompts.append(chat.prompt(request))
        ids = (*encode(chat, text), min(chat.ends))
        answer, _, thought = chat.read(text)
        reply = Reply(answer, (), prompts[-1], ids, (0.0,) * len(ids), reasoning=thought)
        chat.sampled(request, reply)
        messages += (Message(answer, ME), Message.tool("c", "seen") if result else Message("on"))
    return [*prompts, chat.prompt(Request(ME, messages, conversation="c"))]


@pytest.mark.parametrize("options", [None, {"enable_thinking": True}, {"enable_thinking": False}])
def test_kept_thinking_never_forks(byte_model: Path, options: Any) -> None:
    chat = chat_of(byte_model, "thinking", options)
    prompts = talk(chat, ["<think>\nhm\n</think>\n\nbet", "<think>so</think>check"])
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))
    assert "<think>\nhm\n</think>\n\nbet<|im_end|>" in chat.tokenizer.decode(prompts[-1])
    assert (chat.turns, chat.restarts) == (2, 0)


def test_thinking_that_is_not_kept_forks_at_every_message_of_others_and_is_counted(
    byte_model: Path,
) -> None:
    chat = chat_of(byte_model, "thinking", keep_thinking=False)
    prompts = talk(chat, ["<think>\nhm\n</think>\n\nbet", "<think>so</think>check"])
    assert "hm" not in chat.tokenizer.decode(prompts[1])
    assert "so" not in chat.tokenizer.decode(prompts[2])
    assert (
        chat.tokenizer.decode(prompts[1])
        == "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\nbet<|im_end|>\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (chat.turns, chat.restarts) == (2, 2)
    plain = chat_of(byte_model, "thinking", keep_thinking=False)
    talk(plain, ["bet", "check"])
    assert (plain.turns, plain.restarts) == (2, 0)  # nothing to leave out
    tools = chat_of(byte_model, "thinking", keep_thinking=False)
    assert "hm" in tools.tokenizer.decode(talk(tools, ["<think>hm</think>bet"], result=True)[-1])
    assert tools.restarts == 0  # thoughts stay until the next message of others


def test_the_generation_prompt_follows_the_options(byte_model: Path) -> None:
    def end(options: Any) -> str:
        chat = chat_of(byte_model, "thinking", options)
        return str(chat.tokenizer.decode(chat.render(ME, (Message("go"),)))).split("<|im_end|>\n")[
            -1
        ]

    assert end(None) == end({"enable_thinking": True}) == "<|im_start|>assistant\n"
    assert end({"enable_thinking": False}) == "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_calls_in_thinking_are_thoughts(byte_model: Path) -> None:
    chat = chat_of(byte_model, "thinking")
    call = ToolCall("call_0", "look", {"at": "it"})
    thought = f"perhaps {written(chat, call)}"
    before = f"<think>\n{thought}\n</think>\n\n"
    assert chat.read(before + written(chat, call), (LOOK,)) == ("", (call,), thought)
    assert chat.read(f"{before}no", (LOOK,)) == ("no", (), thought)
    assert chat.read(f"<think> {thought}", (LOOK,), "length") == ("", (), thought)
    aloud = ToolCall("call_0", "look", {"at": "a </think> b"})
    assert chat.read(written(chat, aloud), (LOOK,)) == ("", (aloud,), "")
    opened = opening(byte_model)
    assert opened.opens_thinking
    assert opened.read(f"perhaps {written(chat, call)}</think>{written(chat, call)}", (LOOK,))[
        1
    ] == (call,)


def opening(byte_model: Path, mark: str = "<think>\\n") -> Chat:
    """A template whose prompt opens a thought."""
    tokenizer = chat_of(byte_model, "thinking").tokenizer
    tokenizer.chat_template = THINKING.replace("is false else ''", f"is false else '{mark}'")
    return Chat(tokenizer, frozenset({tokenizer.eos_token_id}))


def test_a_thought_that_the_prompt_opens_is_cut_kept_and_closed_by_a_demonstration(
    byte_model: Path,
) -> None:
    for mark in ("<think>\\n", "[THINK]", "<|channel>thought\\n", "<seed:think>"):
        chat = opening(byte_model, mark)
        assert chat.opens_thinking and chat.read("I could bet", (), "length")[0] == ""
        assert chat.read(chat.text(chat.answer("bet")[:-1])) == ("bet", (), "")
    prompts = talk(opening(byte_model), ["hm\n</think>\n\nbet", "so, to", "then</think>check"])
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))


def test_a_control_token_that_only_the_vocabulary_marks_as_such_is_one(
    byte_model: Path, tmp_path: Path
) -> None:
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    from gem_ma.engines.local.transformers import Transformers

    folder = tmp_path / "model"
    shutil.copytree(byte_model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(
        [
            AddedToken(mark, special=True, normalized=False)
            for mark in ("<|role|>", "<|python_tag|>")
        ],
        special_tokens=True,
    )
    tokenizer.chat_template += "{# <|python_tag|> opens a call #}"
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("extra_special_tokens", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    role, mark = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(
        ["<|role|>", "<|python_tag|>"]
    )

    engine = Transformers(str(folder), policy="main")
    assert not {role, mark} & set(engine.tokenizer.all_special_ids)
    # a mark of a tool call may be said, a role not
    assert (float(engine.banned[role]), float(engine.banned[mark])) == (-math.inf, 0.0)
    assert engine.chat.text((mark,)) == "<|python_tag|>" and engine.chat.text((role,)) == ""
