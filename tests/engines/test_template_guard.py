"""A chat template runs in jinja's sandbox, with a bound of size."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.models import chat_template
from gem_ma.engines.models.chat_template import ChatTemplate
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message

SAYS = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer(byte_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(byte_model)


def template_of(tokenizer: Any, source: str) -> ChatTemplate:
    mine = copy.copy(tokenizer)
    mine.chat_template = source + SAYS
    return ChatTemplate(mine, None, "models/evil")


def test_a_template_beyond_the_bound_is_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "MOST_TEXT", 1000)
    said = "^models/evil: the chat template has 1[0-9]+ characters; 1000 are read; use another"
    with pytest.raises(ConfigError, match=said):
        template_of(tokenizer, "x" * 1000)


def test_a_rendering_beyond_the_bound_ends_that_play_alone(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "MOST_TEXT", 1000)
    template = template_of(tokenizer, "{% if messages | length > 8 %}{{ 'a' * 1000 }}{% endif %}")
    talk = [Message(f"{number}", "ab"[number % 2]) for number in range(12)]
    assert template.pieces("a", talk[:5])
    with pytest.raises(EngineError, match=r"^models/evil: the chat template makes 1\d+ characters"):
        template.pieces("a", talk)
    assert template.pieces("a", talk[:6])


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ cycler.__init__ }}"]
)
def test_a_template_reaches_nothing_beyond_the_sandbox(tokenizer: Any, source: str) -> None:
    try:
        shown = template_of(tokenizer, source).pieces("a", [Message("hello", "b")])
    except EngineError as error:
        assert "\n" not in str(error) and str(error).startswith("models/evil: the chat template")
    except ConfigError as error:
        assert "\n" not in str(error)
    else:  # jinja shows what is out of reach as nothing
        assert "class" not in str(shown) and "function" not in str(shown)
