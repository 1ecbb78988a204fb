"""A chat template is bounded in time and size, and what fits its budget is rendered as
transformers renders it."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.local.chat_template import ChatTemplate
from gem_ma.engines.local.template_budget import BUDGET, TemplateLimit, refill
from gem_ma.engines.local.template_guard import guard
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Message
from tests.chat_templates import CHATML, THINKING

NEST = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor"
    " %}{% endfor %}{% endfor %}"
)
DOUBLED = (
    "{% set ns = namespace(x='ab', l=['ab']) %}{% for i in range(60) %}{% set ns.x = ns.x OP ns.x"
    " %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
)
MANY = "{% set a = range(99999) | list %}{% set t = 'a' * 99999 %}{% for x in a %}"
HOSTILE = {
    "nested loops": NEST,
    "a text times a number": "{{ 'a' * 10**10 }}",
    "in two steps": "{{ ('a' * 99999) * 99999 }}",
    "a list times a number": "{{ [0] * 10**10 }}",
    "concatenation": DOUBLED.replace("OP", "~"),
    "addition": DOUBLED.replace("OP", "+"),
    "captured": (
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{%"
        " endset %}{% set ns.x = y %}{% endfor %}"
    ),
    "shared lists, shown": DOUBLED.replace("ns.x OP ns.x", "1") + "{{ ns.l }}",
    "shared lists, as JSON": DOUBLED.replace("ns.x OP ns.x", "1") + "{{ ns.l | tojson }}",
    "a filter with a width": "{{ 'a' | center(10000000000) }}",
    "an indent": "{{ 'a\\n' | indent(10000000000) }}",
    "a method with a width": "{{ 'a'.ljust(10**10) }}",
    "a format": "{{ '%10000000000d' % 3 }}",
    "a format's own width": "{{ '%*d' % (10**9, 3) }}",
    "a method that formats": "{{ '{:>10000000000}'.format(1) }}",
    "a replacement": "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
    "a join": "{{ (['a' * 99999] * 99999) | join('x') }}",
    "a macro": (
        "{% macro f(n) %}{{ f(n - 1) if n else '' }}{{ f(n - 1) if n else '' }}{% endmacro %}{{"
        " f(60) }}"
    ),
    "a great number": "{{ (10**300 * 1) ** 30000 }}",
    "template text": "{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}",
    "a search in a list": MANY + "{% if 100000 in a %}{% endif %}{% endfor %}",
    "a search in a text": MANY + "{% if 'b' in t %}{% endif %}{% endfor %}",
    "a range, sorted again and again": (
        "{% for i in range(99999) %}{% set a = range(99999) | sort %}{% endfor %}"
    ),
    "a range, summed again and again": (
        "{% for i in range(99999) %}{% set a = range(99999) | sum %}{% endfor %}"
    ),
    "filters over a list": (
        MANY + "{{ a | map('string') | list | length }}{{ a | max }}{% endfor %}"
    ),
}


@pytest.fixture(scope="module")
def tokenizer(byte_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(byte_model)


@pytest.mark.parametrize("source", list(HOSTILE.values()), ids=list(HOSTILE))
def test_a_hostile_template_is_one_line_that_names_it(tokenizer: Any, source: str) -> None:
    mine = copy.copy(tokenizer)
    mine.chat_template = source + "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    start = time.process_time()
    with pytest.raises(
        ConfigError,
        match=f"^models/evil: the chat template was stopped: it takes more than {BUDGET} ",
    ) as caught:
        ChatTemplate(mine, None, "models/evil")
    assert "\n" not in str(caught.value) and time.process_time() - start < 60  # of years


def test_a_template_that_is_hostile_only_later_ends_one_rendering(tokenizer: Any) -> None:
    mine = copy.copy(tokenizer)
    mine.chat_template = (
        "{% if messages | length > 8 %}"
        + NEST
        + "{% endif %}{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    )
    template = ChatTemplate(mine, None, "models/evil")
    talk = [Message(f"{number}", "ab"[number % 2]) for number in range(12)]
    assert template.pieces("a", talk[:5])
    with pytest.raises(TemplateLimit, match=r"^models/evil: the chat template was stopped"):
        template.pieces("a", talk)
    assert template.pieces("a", talk[:6])  # each rendering has a budget of its own


@pytest.mark.parametrize("source", [CHATML, THINKING])
def test_what_fits_is_rendered_as_before(tokenizer: Any, source: str) -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool{n}",
                "description": "does",
                "parameters": {"type": "object"},
            },
        }
        for n in range(10)
    ]
    talk = [{"role": "system", "content": "Be kind."}]
    talk += [
        {"role": "user" if n % 2 else "assistant", "content": f"line {n}"} for n in range(1, 401)
    ]
    mine = copy.copy(tokenizer)
    mine.chat_template = source + "{# a template that nobody else compiles #}"
    before = mine.apply_chat_template(talk, tools=tools, add_generation_prompt=True, tokenize=False)
    guard(mine.chat_template)
    refill()
    assert (
        mine.apply_chat_template(talk, tools=tools, add_generation_prompt=True, tokenize=False)
        == before
    )
