"""The chat templates that TRL ships, which are those of public models: what goes through them comes
back. In an environment of its own: make test-trl."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.trl
SPEC = find_spec("trl")
if SPEC is None or SPEC.origin is None:
    pytest.skip("make test-trl has trl", allow_module_level=True)

from gem_ma.engines.models.chat import Chat, ChatOptions  # noqa: E402
from gem_ma.kernel.types import Message, Tool, ToolCall  # noqa: E402

# those for training differ in marks around answers alone
SHIPPED = sorted(
    path
    for path in (Path(SPEC.origin).parent / "chat_templates").glob("*.jinja")
    if not path.stem.endswith("_training")
)
CONTROL = re.compile(
    r"<\|[^|<>\s'\"]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|<\|?(?:turn|tool_call|tool_response|channel)\|?>"
    r"|<(?:start|end)_of_\w+>|<\|\"\|>|\[/?[A-Z_]{4,20}\]"
)
# what ends a turn, by whichever of them a template holds
ENDS = (
    *("<|call|>", "<|return|>", "<|im_end|>", "<|eot_id|>", "<|eot|>", "<turn|>", "<end_of_turn>"),
    *("<|observation|>", "<|user|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "<|end|>"),
    "<end_of_utterance>",
)
ME = "player_0"
LOOK = Tool(
    "look",
    "Looks at it.",
    {
        "type": "object",
        "properties": {"at": {"type": "string"}, "n": {"type": "integer"}, "d": {"type": "object"}},
    },
)
CALLS = (
    ToolCall("call_0", "look", {"at": 'the "door"\n<b> 12', "n": 3, "d": {"x": ["y", True]}}),
    ToolCall("call_1", "look", {}),
)


def chat_of(byte_model: Path, source: str) -> Chat:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(byte_model)
    controls = list(dict.fromkeys(CONTROL.findall(source)))
    tokenizer.add_special_tokens({"additional_special_tokens": controls})
    ends = [word for word in ENDS if word in controls][:2] or [tokenizer.eos_token]
    tokenizer.eos_token = ends[0]
    tokenizer.bos_token = tokenizer.bos_token or "<bos>"
    tokenizer.chat_template = source
    return Chat(tokenizer, frozenset(tokenizer.convert_tokens_to_ids(ends)), ChatOptions())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_goes_through_a_shipped_template_comes_back(byte_model: Path, path: Path) -> None:
    chat = chat_of(byte_model, path.read_text())
    for calls in (CALLS[:1], CALLS[1:], CALLS):
        ids = chat.answer("", calls, (LOOK,))
        text, read, _ = chat.read(chat.text(ids[:-1]), (LOOK,))
        given = [(call.name, call.arguments) for call in calls]
        assert text.strip() == ""
        assert [
            (getattr(call, "name", ""), getattr(call, "arguments", call)) for call in read
        ] == given
    said, read, _ = chat.read(chat.text(chat.answer("I bet 3.")[:-1]), (LOOK,))
    assert (said.strip(), read) == ("I bet 3.", ())
    talk = (
        *(Message.system("be brief"), Message("go"), Message("", ME, CALLS)),
        *(Message.tool("call_0", "seen"), Message.tool("call_1", "nothing")),
        *(Message("done", ME), Message("thanks")),
    )
    shown = chat.tokenizer.decode(chat.render(ME, talk, (LOOK,)))
    assert all(word in shown for word in ("be brief", "go", "door", "seen", "nothing", "done"))
    assert "Looks at it." in shown
