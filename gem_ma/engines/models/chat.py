"""Conversations as token ids that only ever grow, and sampled ids as text and calls. How messages
are shown: `gem_ma.engines.models.chat_template`. Three promises:

1. The next prompt is the previous prompt + what was sampled + the ids of what is new. What the
   policy sampled is never encoded again.
2. Contents are encoded apart from the template, so none becomes a control token.
3. Where a conversation does not go on as sampled (edited history, other tools), or a template
   cannot be continued, the whole prompt is rendered anew. Training counts that as a restart.

A thought is part of what was sampled, and no part of the messages. With `keep_thinking` it
stays in the history as ids, whatever the template does with it, so prompts only grow. Without
it, and where a prompt is rendered anew, thoughts are left out; those of before the last message
of others (tool results aside) each restart their row, and `restarts` counts them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from gem_ma.engines.models.answers import (
    ANSWER,
    ANSWER_WORD,
    ASKED,
    EMPTY,
    FULL,
    ME,
    TOOL,
    answers,
    first_end,
    pieces_from,
    same,
    settle,
    settle_words,
    text_of,
)
from gem_ma.engines.models.chat_template import ChatTemplate, Piece, Way
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.formats import FORMATS, parse_tool_calls
from gem_ma.kernel.parsing.reasoning import (
    CONTROLS,
    HARMONY,
    closing_of,
    knows_thoughts,
    split_reasoning,
)
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Image, Malformed, Message, Reply, Request, Tool, ToolCall

KEPT_PIECES = 65_536  # encoded pieces kept; the oldest goes first
# control tokens of known templates that a policy writes itself
MARKS = (
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    *CONTROLS,
)


def marks_of(template: ChatTemplate, more: Sequence[str] = ()) -> frozenset[int]:
    """Control tokens that a policy may say: those of its template that open a tool call or a
    thought, and `more` of its tool format."""
    marks = (*MARKS, *(HARMONY if HARMONY[0] in template.source else ()))
    return frozenset(
        token
        for token, text in template.controls.items()
        if text in more or (text in marks and text in template.source)
    )


def controls_in(template: ChatTemplate, text: str) -> frozenset[int]:
    """The control tokens that stand in a text of the template's own."""
    return frozenset(token for token, control in template.controls.items() if control in text)


class Spelling:
    """Pieces of a prompt -> token ids, and sampled ids -> text. `marks`: control tokens that stay
    in a text; `image_ids`: the ids of an image, None for a model that reads text only."""

    def __init__(
        self,
        tokenizer: Any,
        marks: frozenset[int],
        image_ids: Callable[[Image], Sequence[int]] | None,
    ) -> None:
        self.tokenizer = tokenizer
        self.marks = marks
        self._image_ids = image_ids
        self._ids: OrderedDict[Piece, tuple[int, ...]] = OrderedDict()

    def encode(self, pieces: Sequence[Piece]) -> tuple[int, ...]:
        """The ids of pieces, each encoded by itself: the ids of a content do not depend on what
        stands beside it, so a longer conversation begins with the ids of the shorter one."""
        ids: list[int] = []
        for piece in pieces:
            known = self._ids.get(piece)
            if known is None:
                known = self._ids[piece] = self._encoded(piece)
                if len(self._ids) > KEPT_PIECES:
                    self._ids.popitem(last=False)
            ids += known
        return tuple(ids)

    def _encoded(self, piece: Piece) -> tuple[int, ...]:
        text, content = piece
        if isinstance(text, Image):
            return tuple(self._image_ids(text)) if self._image_ids else ()
        # split_special_tokens: a control token that somebody wrote is plain letters
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=content)
        return tuple(encoded["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without control tokens; those that open a tool call stay."""
        parts: list[str] = []
        plain: list[int] = []
        for token in [*ids, None]:  # None ends the last run of plain ids
            if token is not None and token not in self.marks:
                plain.append(token)
                continue
            parts.append(
                self.tokenizer.decode(
                    plain, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
            )
            plain = []
            if token is not None:
                parts.append(self.tokenizer.convert_ids_to_tokens(token))
        return clean("".join(parts))


MOST_CONVERSATIONS = 4096  # conversations kept; the oldest goes first


@dataclass(slots=True)
class _Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    prompt: tuple[int, ...]
    ids: tuple[int, ...] = ()  # prompt + what was sampled; () until the reply is known
    text: str = ""  # of the reply
    calls: tuple[ToolCall | Malformed, ...] = ()
    ended: bool = False  # the last sampled id is an end token
    thinks: bool = False  # a thought stands in the ids


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How conversations are written for a model: options of a config, see `Chat`."""

    template: dict[str, Any] | str | None = None
    keep_thinking: bool = True
    tool_format: str = "auto"


class Chat:
    """The conversations of one policy. `turns` counts prompts that came after a reply, `restarts`
    those of them that did not go on from it.

    `ends`: ids that end a turn when sampled. `template` of the options goes to the template;
    "plain" stands for roles as plain text. `keep_thinking`: see the module.
    `tool_format`: how the policy writes tool calls, a key of `gem_ma.kernel.parsing.FORMATS`, or
    `auto` for the one that reads what its template writes. `vision`: (text that stands for an image
    in the template, ids of an image). Raises ConfigError where the template cannot show a talk, or
    the format does not read its calls.
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
        self.turns = 0
        self.restarts = 0
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self.tokenizer = tokenizer
        self.ends = ends
        self.where = where
        self.keep_thinking = options.keep_thinking
        image_token, image_ids = vision or (None, None)
        self.template = ChatTemplate(tokenizer, options.template, where, image_token)
        self._ends = {
            self.template.controls.get(token) or tokenizer.decode([token]): token for token in ends
        }
        prompt = text_of(self.template.pieces(ME, (ASKED,)))
        self.opens_thinking = bool(closing_of(prompt))
        # a template that knows thoughts leaves them to the model, unless its prompt closes one
        self.may_think = knows_thoughts(self.template.source) and closing_of(prompt) != ""
        # a tokenizer of words writes calls of words: no JSON, no quotes, and space around values
        written = tokenizer(json.dumps(FULL.arguments), add_special_tokens=False)["input_ids"]
        self._spells = tokenizer.unk_token_id is None or tokenizer.unk_token_id not in written
        if self._spells:
            self.tool_format = settle(self.template, self._ends, tool_format, self.opens_thinking)
        else:
            self.tool_format = settle_words(self.template, tool_format)
        self.before, self.lead, self.behind, end = self._around_answer()
        self._end = min(ends) if end is None else end
        self.marks = marks_of(self.template, FORMATS[self.tool_format].marks) | self._own_marks()
        self._spelling = Spelling(tokenizer, self.marks, image_ids)
        # what was said stands between the last thought and the end
        self._front = split_reasoning(text_of(self.before), self.opens_thinking)[1].lstrip()
        self._check()
        # last: it renders with all that was found
        self.continues = self._can_continue()

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids; the conversation is remembered until `sampled` completes it."""
        # taken out and put in again, so that the oldest is the one that was asked longest ago
        key = request.conversation
        before = self._conversations.pop(request.conversation, None)
        suffix = self._suffix(before, request) if before is not None else None
        if before is not None and suffix is not None:
            ids = before.ids + suffix
        else:
            ids = self.render(request.agent, request.messages, request.tools)
        if before is not None and before.ids:
            self.turns += 1
            self.restarts += suffix is None
        if key:
            thinks = suffix is not None and before is not None and before.thinks
            self._conversations[key] = _Conversation(
                tuple(request.messages), request.tools, ids, thinks=thinks
            )
            while len(self._conversations) > MOST_CONVERSATIONS:
                self._conversations.popitem(last=False)
        return ids

    def sampled(self, request: Request, reply: Reply) -> None:
        """What the policy answered to the last prompt of this conversation."""
        talk = self._conversations.get(request.conversation)
        if talk is None:
            return
        # of another prompt, or of none: nothing to go on from
        if talk.prompt != reply.prompt_ids or reply.finish == "context_overflow":
            del self._conversations[request.conversation]
            return
        talk.ids = reply.prompt_ids + reply.token_ids
        talk.text = reply.text
        talk.calls = reply.tool_calls
        talk.thinks = talk.thinks or bool(reply.reasoning)
        # a reply that max_tokens cut has no end of turn: the suffix brings it
        talk.ended = bool(reply.token_ids) and reply.token_ids[-1] in self.ends

    def recall(self, request: Request, reply: Reply) -> None:
        """Takes over from a record how this prompt was answered; the next one goes on from it."""
        if reply.prompt_ids and request.conversation:
            before = self._conversations.get(request.conversation)
            goes_on = before is not None and before.ids == reply.prompt_ids[: len(before.ids)]
            self._conversations[request.conversation] = _Conversation(
                tuple(request.messages),
                request.tools,
                reply.prompt_ids,
                thinks=before is not None and goes_on and before.thinks,
            )
            self.sampled(request, reply)

    # -- going on ---------------------------------------------------------------------------------

    def _suffix(self, before: _Conversation, request: Request) -> tuple[int, ...] | None:
        """Ids of what came after the sampled tokens, or None where this is not a continuation."""
        new = self._new_messages(before, request)
        if new is None:
            return None
        if (
            not self.keep_thinking
            and any(message.role(request.agent) != "tool" for message in new)
            and before.thinks
        ):
            return None
        try:
            calls = before.calls
            return self.suffix(request.agent, new, request.tools, ended=before.ended, calls=calls)
        except EngineError:
            # for example a template that refuses a tool result without a visible call
            return None

    def _new_messages(self, before: _Conversation, request: Request) -> tuple[Message, ...] | None:
        """What came behind the agent's answer, or None where the conversation does not go on as it
        was sampled."""
        length = len(before.messages)
        if (
            not self.continues
            or not before.ids
            or len(request.messages) <= length + 1
            or request.tools != before.tools
        ):
            return None
        answer = request.messages[length]
        if (
            answer.sender != request.agent
            or request.messages[:length] != before.messages
            or not self._is_answer(answer, before)
        ):
            return None
        new = request.messages[length + 1 :]
        # a second message of the agent's own was written by nobody, or sampled elsewhere
        return None if any(message.sender == request.agent for message in new) else tuple(new)

    def _is_answer(self, message: Message, before: _Conversation) -> bool:
        """Whether the agent's own message is what was said in the sampled answer."""
        if message.tool_calls != before.calls or not isinstance(message.content, str):
            return False
        # behaviours strip what they keep, and behind a thought stands white space
        same = before.thinks and message.content.strip() == before.text.strip()
        return message.content == before.text or same

    # -- to ids -----------------------------------------------------------------------------------

    def render(
        self, agent: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """The whole conversation with its generation prompt. Raises EngineError where the template
        refuses."""
        return self._spelling.encode(self.template.pieces(agent, messages, tools))

    def suffix(
        self,
        agent: str,
        new: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        ended: bool = True,
        calls: Sequence[ToolCall | Malformed] = (),
    ) -> tuple[int, ...]:
        """Ids between a sampled answer with these calls and the next one: [end of turn, unless
        sampled] + new messages + generation prompt. It is what the template puts behind a marker
        that stands where the answer would."""
        names = {call.id: call.name for call in calls if isinstance(call, ToolCall)}
        native = self.template.ways[:1]
        after_call = partial(self._after_call, agent, new, tools, names, native)
        ways = (
            # templates name the call that a result belongs to
            *((after_call,) if names else ()),
            partial(self._after_answer, agent, new, tools, native),
            # some refuse a result without its call
            after_call,
            partial(self._after_answer, agent, new, tools, self.template.ways),
        )
        pieces = _first_taken(ways)
        # the end of the turn was sampled already, and what stands in front of it
        behind = text_of(self.behind)
        if ended and behind and text_of(pieces).startswith(behind):
            pieces = pieces_from(pieces, len(behind))
        ids = self._spelling.encode(pieces)
        return ids[1:] if ended and ids and ids[0] in self.ends else ids

    def answer(
        self, text: str, calls: Sequence[ToolCall | Malformed] = (), tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Ids of an action's text and calls with the end of turn: the target of a demonstration.
        Raises EngineError where the template cannot show the calls."""
        if calls:
            return self._answer_with_calls(text, calls, tools)
        content = self.lead + clean(text)
        pieces = [*self.before, *([(content, True)] if content else []), *self.behind]
        return (*self._spelling.encode(pieces), self._end)

    def _answer_with_calls(
        self, text: str, calls: Sequence[ToolCall | Malformed], tools: Sequence[Tool]
    ) -> tuple[int, ...]:
        """The same with calls, read back, so that no demonstration shows anything else."""
        message = Message(text, ME, tuple(calls))
        for way in self.template.ways:
            with suppress(EngineError):
                for pieces, end in answers(self.template, self._ends, message, tools, (way,)):
                    ids = self._spelling.encode(pieces)
                    rest, read, _ = self.read(self.text(ids), tools or (TOOL,))
                    right = rest.strip() == text.strip() and same(read, calls)
                    if right or not self._spells:
                        return (*ids, self._end if end is None else end)
        names = ", ".join(getattr(call, "name", "(unreadable)") for call in calls)
        raise EngineError(
            f"{self.where}: an answer with the calls {names!r:.100} cannot be demonstrated: what"
            " the chat template writes for it is read as something else in the format"
            f" {self.tool_format}; leave it out of what is demonstrated"
        )

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
        answer = self._bare(answer)
        if not tools:
            return answer, (), thought
        rest, calls = parse_tool_calls(answer, self.tool_format, tools=tools, finish=finish)
        return rest if calls else answer, calls, thought

    def _bare(self, answer: str) -> str:
        if self._front and answer.lstrip().startswith(self._front):
            answer = answer.lstrip().removeprefix(self._front)
        return answer.removesuffix(text_of(self.behind))

    # -- what the template does around an answer --------------------------------------------------

    def _after_answer(
        self,
        agent: str,
        new: Sequence[Message],
        tools: Sequence[Tool],
        ways: Sequence[Way],
    ) -> list[Piece]:
        # many templates refuse to begin with an answer
        talk = (ASKED, Message(ANSWER, agent), *new)
        pieces = self.template.pieces(agent, talk, tools, ways)
        for place, (part, content) in enumerate(pieces):
            if content and _is_answer(part):
                return pieces[place + 1 :]
        raise EngineError(f"{self.where}: the chat template drops earlier answers")

    def _after_call(
        self,
        agent: str,
        new: Sequence[Message],
        tools: Sequence[Tool],
        names: Mapping[str, str],
        ways: Sequence[Way],
    ) -> list[Piece]:
        """The same behind calls, from the end of their turn on."""
        ids = dict.fromkeys(message.call_id for message in new if message.role(agent) == "tool")
        if not ids:
            raise EngineError(f"{self.where}: the chat template drops earlier answers")
        calls = tuple(ToolCall(call_id, names.get(call_id, "f"), {"a": ANSWER}) for call_id in ids)
        talk = (ASKED, Message("", agent, calls), *new)
        after = _behind_calls(self.template.pieces(agent, talk, tools, ways))
        # an end behind the next content is another turn's
        next_text = text_of([*takewhile(lambda piece: not piece[1], after)])
        end = first_end(next_text, self._ends)
        if end is not None:
            return pieces_from(after, end[0])
        shown = answers(self.template, self._ends, Message("", ME, calls), tools, ways)
        # the shortest: in some of the talks the beginning of the next message is taken for more
        closings = [text_of(_behind_calls(turn)) for turn, _ in shown]
        closing = min(closings, key=len, default="")
        if not next_text.startswith(closing):
            raise EngineError(f"{self.where}: the chat template shows no end of a turn with a call")
        return pieces_from(after, len(closing))

    def _around_answer(self) -> tuple[list[Piece], str, list[Piece], int | None]:
        """What the template puts in front of an answer, its spaces apart; what it puts behind it;
        and the id of the end of the turn."""
        plain = Message(ANSWER, ME)
        for pieces, end in (*answers(self.template, self._ends, plain), ([], None)):
            place = next((n for n, (part, _) in enumerate(pieces) if _is_answer(part)), None)
            if place is None:
                continue
            before = pieces[:place]
            behind = pieces[place + 1 :]
            return before, str(pieces[place][0]).removesuffix(ANSWER), behind, end
        return [], "", [], None

    def _check(self) -> None:
        """Raises ConfigError where the template drops or changes what is said in a talk."""
        calls = Message("", ME, (FULL,))
        talks = {
            "a system message": (Message.system("y"), ASKED),
            "an earlier answer": (ASKED, Message("y", ME), ASKED),
            "the result of a tool": (ASKED, calls, Message.tool(FULL.id, "y"), ASKED),
        }
        for what, talk in talks.items():
            try:
                self.template.pieces(ME, talk, (TOOL,) if calls in talk else ())
            except EngineError as error:
                raise ConfigError(
                    f"{self.where}: the chat template cannot show {what}"
                    f" ({str(error).removeprefix(f'{self.where}: ')}); use another model, or"
                    " template: plain"
                ) from error

    def _own_marks(self) -> frozenset[int]:
        """Control tokens that stand within an answer or a call as the template writes them."""
        written = text_of([*self.before, *self.behind])
        both = Message("", ME, (FULL, EMPTY)[: self.template.calls_at_once])
        with suppress(EngineError):
            pieces, _ = next(answers(self.template, self._ends, both, (TOOL,)), ([], None))
            written += text_of([piece for piece in pieces if not piece[1]])
        return controls_in(self.template, written)

    def _can_continue(self) -> bool:
        """Whether full renderings end as their suffixes do; else every turn is rendered in full."""
        # with and without a briefing: templates put words of their own in front of the first user
        user = Message("one")
        mine = Message("two", "x")
        more = Message("three")
        try:
            tail = self.suffix("x", (more,), ended=False)
            return all(
                self.render("x", (*front, mine, more))[-len(tail) :] == tail
                for front in ((user,), (Message.system("zero"), user))
            )
        except EngineError:
            return False


def _first_taken(ways: Sequence[Callable[[], list[Piece]]]) -> list[Piece]:
    """What the first of these ways finds; the last one's refusal where the template takes none."""
    for find in ways[:-1]:
        with suppress(EngineError):
            return find()
    return ways[-1]()


def _is_answer(part: Any) -> bool:
    # a content takes over the spaces that the template writes in front of it
    return isinstance(part, str) and part.strip(" ") == ANSWER


def _behind_calls(pieces: Sequence[Piece]) -> list[Piece]:
    """What stands behind the last argument that is an answer."""
    # the word alone: templates write arguments as JSON, and the zero bytes as escapes
    places = [place for place, (part, _) in enumerate(pieces) if ANSWER_WORD in str(part)]
    return list(pieces[places[-1] + 1 :]) if places else []
