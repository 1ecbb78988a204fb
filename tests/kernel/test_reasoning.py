"""What a model thought, apart from what it said (`gem_ma.kernel.parsing.reasoning`)."""

from __future__ import annotations

import pytest

from gem_ma.kernel.parsing import split_reasoning

THOUGHT = "Is it [check], or \\boxed{check}?\nNo: <action>check</action> would be timid."
CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    '{"a": 1}<|call|>'
)
# how a family writes: a thought, then what is said
FAMILIES = {
    "qwen": "<think>\n{}\n</think>\n\n{}",
    "opened": "{}\n</think>\n\n{}",
    "thinking": "<thinking>{}</thinking>{}",
    "exaone": "<thought>\n{}\n</thought>\n\n{}",
    "reasoning": "<reasoning>{}</reasoning>\n{}",
    "seed": "<seed:think>{}</seed:think>{}",
    "longcat": "<longcat_think>\n{}\n</longcat_think>\n{}",
    "spaced": "< THINK >{}</ Think >\n{}",
    "magistral": "[THINK]{}[/THINK]{}",
    "cohere": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "openthinker": "<|begin_of_thought|>\n\n{}\n\n<|end_of_thought|>\n\n<|begin_of_solution|>{}",
    "apertus": "<|inner_prefix|>{}<|inner_suffix|>{}",
    "gemma": "<|channel>thought\n{}\n<channel|>{}",
    "medgemma": "<unused94>thought\n{}<unused95>{}",
    "kimi": "◁think▷{}◁/think▷{}",
    "harmony": (
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"
        "<|return|>"
    ),
    "harmony opened": "{}<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "harmony bare": "analysis{}assistantfinal{}",
    "kimi 3": "<|open|>think<|sep|>{}<|close|>think<|sep|><|open|>response<|sep|>{}",
    "solar": "<|think|>{}<|end|><|begin|>assistant<|content|>{}",
    "apriel": "{}\n[BEGIN FINAL RESPONSE]\n{}",
    "minimax 3": "<mm:think>{}</mm:think>{}",
    "hunyuan 3": "<think:open>{}</think:open>\n{}",
    "claude": "<antThinking>{}</antThinking>\n\n{}",
    "ernie": "<think>\n{}\n</think>\n\n\n<response>\n{}\n</response>\n",
    "repeated": "<think>\n<think>\n{}\n</think>\n\n{}",
    "closed twice": "<think>\n{}\n</think>\n</think>\n\n{}",
    "misspelled": "<think>{}</thinking>\n\n{}",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("said", ["bet", "Ninety.", "", "a < b, [c] and `<think>` are signs."])
def test_a_thought_is_told_from_what_is_said(family: str, said: str) -> None:
    text = FAMILIES[family].format(THOUGHT, said)
    assert split_reasoning(text) == (THOUGHT, said)


@pytest.mark.parametrize("family", [name for name, form in FAMILIES.items() if form[0] != "{"])
def test_a_thought_without_an_end_leaves_nothing_said(family: str) -> None:
    opening = FAMILIES[family].split("{}", maxsplit=1)[0]
    assert split_reasoning(f"{opening}To check would be") == ("To check would be", "")


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>a</think><think>b</think>c", "a\n\nb", "c"),
        ("<think>a</think>One.\n<think>b</think>\nTwo.", "a\n\nb", "One.\nTwo."),
        ("<think>a<think>b</think>c</think>d", "a<think>b</think>c", "d"),
        ("a</think>b</think>c", "a\n\nb", "c"),
        ("Okay. <think>secret</think> Ninety.", "secret", "Okay. Ninety."),
        ("I could check. </think> bet", "I could check.", "bet"),
        ("Perhaps bet.\n<think>\nor not", "Perhaps bet.\n\nor not", ""),
        # a tag within a thought
        ("<think>he means `</think>`\n</think>\n\nyes", "he means `</think>`", "yes"),
        ("<think>the </think> tag\n</think>\n\nyes", "the </think> tag", "yes"),
        ("<think>so I use </think>bet", "so I use", "bet"),
        ("<think>`x</think>The `bet`", "`x", "The `bet`"),
        ("<think>\n```\nx\n</think>\n\n```\ny\n```", "```\nx", "```\ny\n```"),
        ('<think>He said "yes."</think>bet', 'He said "yes."', "bet"),
        ("<think>so `f()`</think>bet", "so `f()`", "bet"),
        ('"Hi."<think>hm</think> "Bye."', "hm", '"Hi." "Bye."'),
        ("<think>I use the </think>\n\nA.\n\n<think>b</think>B.", "I use the\n\nb", "A.\n\nB."),
        # calls: those that are thought of, and those that are made
        ("<think> <tool_call> is a tag </think>bet", "<tool_call> is a tag", "bet"),
        ("Or <tool_call>{}</tool_call>?\n</think>\nNo.", "Or <tool_call>{}</tool_call>?", "No."),
        (f"<|channel|>analysis<|message|>a<|end|>{CALL}", "a", CALL),
        (
            "analysisSo.assistantcommentary to=functions.f json{}",
            "So.",
            "<|channel|>commentary to=functions.f json<|message|>{}",
        ),
        # a preamble is said, and is no answer where the thought behind it never ends
        (
            "<|channel|>commentary<|message|>Look:<|end|><|start|>assistant<|channel|>final"
            "<|message|>bet",
            "",
            "Look:\n\nbet",
        ),
        (
            "<|channel|>commentary<|message|>I bet?<|end|><|start|>assistant<|channel|>analysis"
            "<|message|>or",
            "or",
            "",
        ),
        ("analysisWe need to", "We need to", ""),
        ("a[BEGIN FINAL RESPONSE]\nb\n[END FINAL RESPONSE]", "a", "b"),
        ("<|START_RESPONSE|>b<|END_RESPONSE|>", "", "b"),
    ],
)
def test_thoughts_of_odd_forms(text: str, thought: str, said: str) -> None:
    assert split_reasoning(text) == (thought, said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bet",
        "Models write `<think>` first, then `</think>`.",
        "Wrap your thoughts in <think> and </think> tags, please.",
        "Write <think>your thoughts</think> before you answer.",
        "You forgot the </think> at the end.",
        "The </think> tag ends a thought.",
        "Do they close with </think>?",
        "I use <think> in my code",
        "He said '<think>' twice.",
        "My parser fails on <think>: it never closes.",
        "Please strip everything until </think> from the text.",
        "It printed </think>, then the answer.",
        "I wrapped it in <think></think> and it broke.",
        "Compare <think> (R1) with [THINK] (Magistral).",
        "re.sub(r'<think>.*?</think>', '', text)",
        "last = text.split('</think>')[-1]",
        "- <think> opens a thought\n- </think> closes it",
        "| <think> | opens |\n| </think> | closes |",
        "open_tag: <think>\nclose_tag: </think>",
        '{"say": "I call </think> odd"}',
        "<response>yes</response>",
        "```\n<think>\nx\n</think>\n```",
        "Here:\n\n    <think>x</think>\n\nas above.",
        "Code:\n~~~xml\n<think>x</think>\n~~~\nThat is all.",
        "<p><think>x</think></p>",
        "<code><think></code> opens it.",
        '{"say": "<think>x</think>"}',
        '<tool_call>{"name": "note", "arguments": {"a": "b <think>c</think>"}}</tool_call>',
        "&lt;think&gt;x&lt;/think&gt;",
        "<thinker>x</thinker> <think-tank>x</think-tank> <think/>",
        "[think] it over [/think]",
        "analysis of the case shows that you are right",
        "analysis: it is right",
        "analysis",
        "analysisResult = analysis(x)",
        "The analysis is done; the assistant is final.",
        "gpt-oss writes <|channel|>analysis<|message|> first.",
        CALL,
    ],
)
def test_what_only_speaks_of_thoughts_stays_as_it_is(text: str) -> None:
    assert split_reasoning(text) == ("", text)


def test_what_the_prompt_has_opened_is_a_thought_until_it_is_closed() -> None:
    assert split_reasoning("a</think>b", opened=True) == ("a", "b")
    assert split_reasoning("the </think> b", opened=True) == ("the", "b")
    assert split_reasoning("<think>a</think>b", opened=True) == ("a", "b")
    assert split_reasoning("a [/THINK]b", opened=True) == ("a", "b")
    harmony = "a<|start|>assistant<|channel|>final<|message|>b"
    assert split_reasoning(harmony, opened=True) == ("a", "b")
    assert split_reasoning("I bet", opened=True) == ("I bet", "")
    assert split_reasoning("analysis<|end|>", opened=True) == ("analysis<|end|>", "")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_said_holds_no_further_thought(family: str) -> None:
    for said in ("bet", "`<think>` is a tag", "Use </think> here.", "a\n<think>b</think>\nc"):
        rest = split_reasoning(FAMILIES[family].format("hm", said))[1]
        assert split_reasoning(rest) == ("", rest)
