"""Conversations as ids that only grow: suffixes, forks, role markers in contents, other
templates."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Malformed, Message, Reply, Request, Tool, ToolCall

pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.models.chat import Chat

ME, OTHER = "player_0", "player_1"
WORDS = [
    "bet",
    "check",
    "fold",
    "card",
    "J.",
    "12",
    "naïve 💡",
    "\n",
    "<|im_end|>",
    "<|user|>",
    "<|im_start|>system\n",
    "zqslot000000",
]
LOOK = Tool(
    "look", "Looks <|im_end|> at it.", {"type": "object", "properties": {"at": {"type": "string"}}}
)


@pytest.fixture(scope="module", params=["kuhn_model", "byte_model"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(request.getfixturevalue(request.param))


@pytest.fixture
def byte_tokenizer(byte_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(byte_model)


def chat_of(tokenizer: Any) -> Chat:
    return Chat(tokenizer, frozenset({tokenizer.eos_token_id}))


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def phrase(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))


def answer(
    request: Request,
    prompt: tuple[int, ...],
    text: str,
    ids: tuple[int, ...],
    calls: tuple[Any, ...] = (),
) -> Reply:
    return Reply(text, calls, prompt, ids, (0.0,) * len(ids))


@pytest.mark.parametrize("seed", range(4))
def test_grown_prompts_equal_the_full_rendering_in_random_dialogues(
    tokenizer: Any, seed: int
) -> None:
    rng, chat, end = random.Random(seed), chat_of(tokenizer), tokenizer.eos_token_id
    messages: tuple[Message, ...] = (Message.system(phrase(rng)),) if rng.random() < 0.5 else ()
    messages += (Message(phrase(rng)),)
    before: tuple[int, ...] = ()
    for _ in range(4):
        request = Request(ME, messages, conversation="c")
        prompt = chat.prompt(request)
        assert prompt[: len(before)] == before
        assert prompt == chat.render(ME, messages)
        said = phrase(rng).strip() or "bet"
        ids = (*encode(tokenizer, said), end)
        chat.sampled(request, answer(request, prompt, said, ids))
        before = prompt + ids
        senders = [
            rng.choice(("scenario", OTHER, "system", "tool")) for _ in range(rng.randint(1, 3))
        ]
        messages += (Message(said, ME), *(Message(phrase(rng), sender) for sender in senders))


def test_what_was_sampled_is_kept_though_its_text_encodes_to_other_ids(byte_tokenizer: Any) -> None:
    chat = chat_of(byte_tokenizer)
    first = Request(ME, (Message("hello"),), conversation="c")
    prompt = chat.prompt(first)
    # not how "check" is encoded
    odd = (*(encode(byte_tokenizer, letter)[0] for letter in "check"), byte_tokenizer.eos_token_id)
    assert odd[:-1] != encode(byte_tokenizer, "check")
    chat.sampled(first, answer(first, prompt, "check", odd))
    grown = chat.prompt(
        Request(ME, (Message("hello"), Message("check", ME), Message("go on")), conversation="c")
    )
    assert grown[: len(prompt) + len(odd)] == prompt + odd
    assert (
        byte_tokenizer.decode(grown[len(prompt) + len(odd) :])
        == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_reply_cut_by_its_limit_gets_the_end_of_turn_from_the_template(
    byte_tokenizer: Any,
) -> None:
    chat, end = chat_of(byte_tokenizer), byte_tokenizer.eos_token_id
    first = Request(ME, (Message("hello"),), conversation="c")
    prompt = chat.prompt(first)
    ids = encode(byte_tokenizer, "check")
    chat.sampled(first, answer(first, prompt, "check", ids))
    following = (Message("hello"), Message("check", ME), Message("go on"))
    grown = chat.prompt(Request(ME, following, conversation="c"))
    assert grown == chat.render(ME, following)
    assert grown[len(prompt) + len(ids)] == end


@pytest.mark.parametrize(
    "changed",
    [
        (Message("hello!"), Message("check", ME), Message("go on")),
        (Message("hello"), Message("Check", ME), Message("go on")),
        (Message("hello"), Message("check", OTHER), Message("go on")),
        (Message("hello"), Message("check", ME), Message("bet", ME), Message("go on")),
        (Message("go on"),),
        (Message("hello"),),
        (Message("hello"), Message("check", ME)),
    ],
)
def test_a_conversation_that_does_not_go_on_as_sampled_is_rendered_anew(
    byte_tokenizer: Any, changed: tuple[Message, ...]
) -> None:
    chat = chat_of(byte_tokenizer)
    first = Request(ME, (Message("hello"),), conversation="c")
    odd = (*(encode(byte_tokenizer, letter)[0] for letter in "check"), byte_tokenizer.eos_token_id)
    chat.sampled(first, answer(first, chat.prompt(first), "check", odd))
    assert chat.prompt(Request(ME, changed, conversation="c")) == chat.render(ME, changed)


def test_conversations_do_not_mix_and_one_without_a_key_is_never_kept(byte_tokenizer: Any) -> None:
    chat, end = chat_of(byte_tokenizer), byte_tokenizer.eos_token_id
    hello = (Message("hello"),)
    following = (*hello, Message("bet", ME), Message("go on"))
    odd = (*(encode(byte_tokenizer, letter)[0] for letter in "bet"), end)
    for key in ("a", ""):
        request = Request(ME, hello, conversation=key)
        chat.sampled(request, answer(request, chat.prompt(request), "bet", odd))
    for key in ("b", ""):
        assert chat.prompt(Request(ME, following, conversation=key)) == chat.render(ME, following)
    assert chat.prompt(Request(ME, following, conversation="a")) != chat.render(ME, following)


def test_other_tools_start_the_prompt_anew(byte_tokenizer: Any) -> None:
    chat, end = chat_of(byte_tokenizer), byte_tokenizer.eos_token_id
    first = Request(ME, (Message("hello"),), tools=(LOOK,), conversation="c")
    chat.sampled(
        first, answer(first, chat.prompt(first), "bet", (*encode(byte_tokenizer, "bet"), end))
    )
    following = (Message("hello"), Message("bet", ME), Message("go on"))
    assert chat.prompt(Request(ME, following, conversation="c")) == chat.render(ME, following)


def test_tool_results_continue_a_call_as_it_was_sampled(byte_tokenizer: Any) -> None:
    chat, end = chat_of(byte_tokenizer), byte_tokenizer.eos_token_id
    call = ToolCall("call_0", "look", {"at": "it"})
    first = Request(ME, (Message("hello"),), tools=(LOOK,), conversation="c")
    prompt = chat.prompt(first)
    # compact: not the template's form
    ids = (
        *encode(
            byte_tokenizer, 'Well <tool_call>{"name":"look","arguments":{"at":"it"}}</tool_call>'
        ),
        end,
    )
    chat.sampled(first, answer(first, prompt, "Well", ids, (call,)))
    grown = chat.prompt(
        Request(
            ME,
            (Message("hello"), Message("Well", ME, (call,)), Message.tool("call_0", "seen")),
            (LOOK,),
            conversation="c",
        )
    )
    assert grown[: len(prompt) + len(ids)] == prompt + ids
    assert (
        byte_tokenizer.decode(grown[len(prompt) + len(ids) :])
        == "\n<|im_start|>user\n<tool_response>\nseen\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_role_markers_in_any_text_stay_text(tokenizer: Any) -> None:
    chat = chat_of(tokenizer)
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    marker = "".join(tokenizer.convert_ids_to_tokens(sorted(control)))
    call = ToolCall("c", "look", {marker: [marker, {"x": marker}]})
    tool = Tool("look", marker)

    def controls(text: str, arguments: ToolCall, described: Tool) -> list[int]:
        messages = (
            Message.system(text),
            Message(text),
            Message(text, ME, (arguments, Malformed(text, "bad"))),
            Message.tool("c", text),
            Message(text),
        )
        return [token for token in chat.render(ME, messages, (described,)) if token in control]

    assert controls(marker, call, tool) == controls(
        "bet", ToolCall("c", "look", {"x": ["y", {"x": "z"}]}), Tool("look", "bet")
    )
    assert not set(chat.answer(marker)[:-1]) & control


def test_user_lines_join_and_other_agents_are_named(byte_tokenizer: Any) -> None:
    chat = chat_of(byte_tokenizer)
    told = (
        Message("Your card is J."),
        Message("bet", OTHER),
        Message("hi", "user"),
        Message.system("Be brief."),
    )
    assert (
        byte_tokenizer.decode(chat.render(ME, told))
        == "<|im_start|>user\nYour card is J.\nplayer_1: bet\nhi\nBe"
        " brief.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_rendering_is_what_the_library_renders(byte_tokenizer: Any) -> None:
    call = ToolCall("c", "look", {"at": 'a "quoted" naïve\nthing', "n": [1, 2.5, None, True]})
    messages = (
        Message.system("sys"),
        Message("hello"),
        Message("Well", ME, (call,)),
        Message.tool("c", "seen"),
        Message("thanks", ME),
        Message("bye"),
    )
    chat = [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "Well",
            "tool_calls": [
                {"type": "function", "function": {"name": "look", "arguments": call.arguments}}
            ],
        },
        {"role": "tool", "content": "seen", "tool_call_id": "c"},
        {"role": "assistant", "content": "thanks"},
        {"role": "user", "content": "bye"},
    ]
    expected = byte_tokenizer.apply_chat_template(
        chat, tools=[LOOK.schema], add_generation_prompt=True, tokenize=False
    )
    assert byte_tokenizer.decode(chat_of(byte_tokenizer).render(ME, messages, (LOOK,))) == expected


def test_an_answer_is_its_text_and_the_end_of_turn(tokenizer: Any) -> None:
    chat = chat_of(tokenizer)
    assert chat.answer("bet") == (*encode(tokenizer, "bet"), tokenizer.eos_token_id)
    assert chat.answer("") == (tokenizer.eos_token_id,)


def test_a_template_without_a_system_role_shows_briefings_as_the_users(byte_tokenizer: Any) -> None:
    byte_tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] not in ('user', 'assistant') %}{{"
        " raise_exception('no such role') }}{% endif %}{% if (m['role'] == 'user') != (loop.index0"
        " % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}[{{ m['role'] }}]{{"
        " m['content'] | trim }}<|im_end|>{% endfor %}{% if add_generation_prompt %}[assistant]{%"
        " endif %}"
    )
    chat = chat_of(byte_tokenizer)
    told = (Message.system("Be brief."), Message("hello"), Message("bet", ME), Message("go on"))
    assert (
        byte_tokenizer.decode(chat.render(ME, told))
        == "[user]Be brief.\nhello<|im_end|>[assistant]bet<|im_end|>[user]go"
        " on<|im_end|>[assistant]"
    )
    assert chat.continues


@pytest.mark.parametrize("dropped", ["user", "assistant"])
def test_a_template_that_drops_what_was_said_is_refused(byte_tokenizer: Any, dropped: str) -> None:
    byte_tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] != 'DROPPED' %}{{ m['content'] }}|{% endif %}{%"
        " endfor %}>".replace("DROPPED", dropped)
    )
    what = {"user": "render a user message", "assistant": "show an earlier answer"}[dropped]
    with pytest.raises(ConfigError, match=f"chat template cannot {what}.*drops a content") as error:
        chat_of(byte_tokenizer)
    assert "\n" not in str(error.value)


def test_no_template_or_a_broken_one_is_a_config_error(byte_tokenizer: Any) -> None:
    for broken in (
        None,
        "",
        "{% for %}",
        "{{ messages[0]['content'] | upper }}",
        "{{ raise_exception('never') }}",
    ):
        byte_tokenizer.chat_template = broken
        with pytest.raises(ConfigError, match="chat template"):
            chat_of(byte_tokenizer)
