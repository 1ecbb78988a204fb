"""One tokenizer and its chat template: conversations as ids, what lies between two answers, and
sampled ids as text and calls.

Knows templates and tokenizers; remembers no conversation (`gem_ma.engines.local.chat`). Template
parts and contents are encoded apart, so a role marker inside a content stays plain text and never
becomes a control token. How messages are shown is in `gem_ma.engines.local.chat_template`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.local.chat_template import ChatTemplate, Piece
from gem_ma.engines.local.spelling import Spelling, marks_of
from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import FORMATS, clean, parse_tool_calls, split_reasoning
from gem_ma.parsing.reasoning import closing_of, knows_thoughts
from gem_ma.types import Image, Malformed, Message, Tool, ToolCall

ANSWER_WORD = "zqanswer"
ANSWER = f"\x00{ANSWER_WORD}\x00"  # stands where an answer would, and is never encoded


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How conversations are written for a model: options of a config, see `Rendering`."""

    template: dict[str, Any] | str | None = None
    keep_thinking: bool = True
    tool_format: str = "auto"


class Rendering:
    """Renders the conversations of one policy.

    `tokenizer`: a fast Hugging Face tokenizer with a chat template. `ends`: ids that end a turn
    when sampled. `template` of the options goes to the template; "plain" stands for roles as plain
    text. `keep_thinking`: see `gem_ma.engines.local.chat`. `tool_format`: how the policy writes
    tool calls, a key of `gem_ma.parsing.FORMATS`, or `auto` for what its template says. `vision`:
    (text that stands for an image in the template, ids of an image). Raises ConfigError where
    there is no template, or it cannot render a user message, and for an unknown format.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: frozenset[int],
        options: ChatOptions = ChatOptions(),
        where: str = "the tokenizer",
        *,
        vision: tuple[str, Callable[[Image], Sequence[int]]] | None = None,
    ) -> None:
        tool_format = options.tool_format
        if tool_format != "auto" and tool_format not in FORMATS:
            raise ConfigError(
                f"{where}: tool_format is auto, {', '.join(FORMATS)}; got {tool_format!r}"
            )
        self.tokenizer, self.ends, self.where = tokenizer, ends, where
        self.keep_thinking = options.keep_thinking
        image_token, image_ids = vision or (None, None)
        self.template = ChatTemplate(tokenizer, options.template, where, image_token)
        self.tool_format = format_of(self.template) if tool_format == "auto" else tool_format
        self.marks = marks_of(self.template)
        self._spelling = Spelling(tokenizer, self.marks, image_ids)
        # last, and in this order: both render, and the second looks at what the first found
        self.lead, self.closing, self.may_think = self._before_answer()
        self.opens_thinking = self.closing != ""
        self.continues = self._can_continue()

    # -- to ids -----------------------------------------------------------------------------------

    def render(
        self, agent: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """The whole conversation with its generation prompt, as ids. Raises EngineError where
        the template refuses."""
        return self._spelling.encode(self.template.pieces(agent, messages, tools))

    def suffix(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool] = (), *, ended: bool = True
    ) -> tuple[int, ...]:
        """Ids between a sampled answer and the next one: [end of turn, unless sampled] + new
        messages + generation prompt.

        Found without knowing the template: the text after a marker that stands where the answer
        would.
        """
        try:
            ids = self._after_answer(agent, new, tools, plainly=False)
        except EngineError:
            # a template that refuses a result without its call may still take a call
            try:
                ids = self._after_call(agent, new, tools)
            except EngineError:
                ids = self._after_answer(agent, new, tools)
        # the end of the turn was sampled already
        return ids[1:] if ended and ids and ids[0] in self.ends else ids

    def answer(
        self, text: str, calls: Sequence[ToolCall | Malformed] = (), tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Ids of an action's text and calls with the end of turn: the target of a demonstration.

        Raises EngineError where the template cannot show the calls of a first answer.
        """
        if calls:
            return self._answer_with_calls(text, calls, tools)
        after = self._after_answer("x", (Message("y"),), ()) if self.continues else ()
        # where the template does not show which end token it writes: any of them ends a turn
        end = next((token for token in after if token in self.ends), min(self.ends))
        written = [(self.closing, False), (self.lead + clean(text), True)]
        return (*self._spelling.encode([piece for piece in written if piece[0]]), end)

    def _answer_with_calls(
        self, text: str, calls: Sequence[ToolCall | Malformed], tools: Sequence[Tool]
    ) -> tuple[int, ...]:
        """What the template adds to a prompt for an answer with these calls, up to the end of its
        turn."""
        opening = (Message("x"),)
        prompt = self.render("x", opening, tools)
        # somebody speaks behind it: templates write the last message of a talk in other ways
        talk = (*opening, Message(text, "x", tuple(calls)), Message("y"))
        whole = self._spelling.encode(self.template.pieces("x", talk, tools))
        added = whole[len(prompt) :] if whole[: len(prompt)] == prompt else ()
        end = self._first_end(added)
        if end is None:
            raise EngineError(
                f"{self.where}: the chat template shows no answer with a tool call, so none can"
                " be demonstrated"
            )
        return added[: end + 1]

    # -- from ids ---------------------------------------------------------------------------------

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without control tokens; those that open a tool call stay."""
        return self._spelling.text(ids)

    def read(
        self, text: str, tools: Sequence[Tool] = (), finish: str = "stop"
    ) -> tuple[str, tuple[ToolCall | Malformed, ...], str]:
        """The text around the tool calls of a sampled text, the calls, and what was thought;
        without tools, all that was said is text. Calls in a thought are thoughts."""
        thought, answer = split_reasoning(text, self.opens_thinking)
        if not tools:
            return answer, (), thought
        rest, calls = parse_tool_calls(answer, self.tool_format, tools=tools, finish=finish)
        return rest if calls else answer, calls, thought

    # -- what the template does around an answer --------------------------------------------------

    def _after_answer(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool], *, plainly: bool = True
    ) -> tuple[int, ...]:
        # many templates refuse to begin with an answer
        talk = (Message("x"), Message(ANSWER, agent), *new)
        parts = self.template.pieces(agent, talk, tools, plainly=plainly)
        return self._spelling.encode(parts[self._place(parts) + 1 :])

    def _place(self, parts: Sequence[Piece]) -> int:
        """Where the answer stands, white space of the template in front of it included."""
        for place, (part, content) in enumerate(parts):
            # a content takes over the spaces that the template writes in front of it
            if content and isinstance(part, str) and part.strip(" ") == ANSWER:
                return place
        raise EngineError(f"{self.where}: the chat template drops earlier answers")

    def _after_call(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[int, ...]:
        """The same for a template that refuses a tool result without a call in sight: what
        follows a call, from the end of its turn on."""
        ids = dict.fromkeys(message.call_id for message in new if message.role(agent) == "tool")
        if not ids:
            raise EngineError(f"{self.where}: the chat template drops earlier answers")
        calls = tuple(ToolCall(call_id, "f", {"a": ANSWER}) for call_id in ids)
        talk = (Message("x"), Message("", agent, calls), *new)
        parts = self.template.pieces(agent, talk, tools, plainly=False)
        # the word alone: templates write arguments as JSON, and the zero bytes as escapes
        marks = [
            place
            for place, (part, _) in enumerate(parts)
            if isinstance(part, str) and ANSWER_WORD in part
        ]
        after = self._spelling.encode(parts[marks[-1] + 1 :]) if marks else ()
        end = self._first_end(after)
        if end is None:
            raise EngineError(f"{self.where}: the chat template shows no end of a turn with a call")
        return after[end:]

    def _first_end(self, ids: Iterable[int]) -> int | None:
        """Where the first end token stands."""
        return next((place for place, token in enumerate(ids) if token in self.ends), None)

    def _before_answer(self) -> tuple[str, str, bool]:
        """What the template puts between its generation prompt and an answer; what closes the
        thought that this prompt opens, "" where it opens none; whether a thought may come.

        A template that knows thoughts leaves them to the model, unless its generation prompt
        closes an empty one (`enable_thinking: false`).
        """
        may_think = knows_thoughts(self.template.source)
        try:
            prompt = self.template.pieces("x", (Message("x"),))
            whole = self.template.pieces("x", (Message("x"), Message(ANSWER, "x"), Message("y")))
            place = self._place(whole)
        except EngineError:
            return "", "", may_think
        asked = "".join(part for part, _ in prompt if isinstance(part, str))
        before = "".join(part for part, _ in whole[: place + 1] if isinstance(part, str))
        before = before.removesuffix(ANSWER)
        lead = before[len(asked) :] if before.startswith(asked) else ""
        # only white space: other words in front of an answer are for the model to write
        lead = lead if lead.isspace() else ""
        closing = closing_of(asked)
        return lead, closing or "", may_think and closing != ""

    def _can_continue(self) -> bool:
        """Whether full renderings of canned dialogues end as their suffixes do; where they do
        not, every turn is rendered in full."""
        # with and without a briefing: templates put words of their own in front of the first user
        user, mine, more = Message("one"), Message("two", "x"), Message("three")
        try:
            tail = self.suffix("x", (more,), ended=False)
            return all(
                self.render("x", (*front, mine, more))[-len(tail) :] == tail
                for front in ((user,), (Message.system("zero"), user))
            )
        except EngineError:
            return False


def format_of(template: ChatTemplate) -> str:
    """The tool format that a template's own text speaks of; hermes where it speaks of none,
    which is also what `TOOLS_IN_TEXT` asks for."""
    text = template.source
    if not template.reads_tools:
        return "hermes"
    # before hermes: Qwen3-Coder writes <function=...> between hermes' tags
    if "<function=" in text:
        return "xml"
    if "[TOOL_CALLS]" in text:
        return "mistral"
    if "<tool_call>" in text:
        return "hermes"
    if "<|python_start|>" in text or "func_name1(params_name1" in text:
        return "python"
    return "llama" if "<|python_tag|>" in text or '"parameters"' in text else "hermes"
