"""An answer as a policy would have written it behind its prompt: what a template adds to a prompt
for it, up to the end of the turn.

Found without knowing the template, by rendering the talk with and without the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import dropwhile, takewhile

from gem_ma.engines.models.chat_template import (
    MANY,
    ChatTemplate,
    Mark,
    Piece,
    Shape,
    Way,
    Writer,
    in_tags,
)
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.formats import FORMATS
from gem_ma.kernel.parsing.json_calls import MARKED, PYTHON_TAG, TOOL_CALLS
from gem_ma.kernel.parsing.reasoning import closing_of, split_reasoning
from gem_ma.kernel.types import Malformed, Message, Tool, ToolCall

ME = "x"
_QUESTION = "zqasked"
ASKED = Message(_QUESTION)
ANSWER_WORD = "zqanswer"
ANSWER = f"\x00{ANSWER_WORD}\x00"  # stands where an answer would, and is never encoded
_NEXT = "zqnext"  # what others say behind it


def answers(
    template: ChatTemplate,
    ends: Mapping[str, int],
    message: Message,
    tools: Sequence[Tool] = (),
    ways: Sequence[Way] = (),
) -> Iterator[tuple[list[Piece], int | None]]:
    """What the template adds for this message of the agent `ME`, and the id that ends its turn
    (None where it shows none), in each of the talks in which it may stand. `ends`: text -> id."""
    prompt = _behind_question(template.pieces(ME, (ASKED,), tools))
    calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
    results = tuple(Message.tool(call.id, _NEXT) for call in calls)
    # templates write the last message of a talk in other ways, so it stands there last
    for behind in dict.fromkeys((results or (Message(_NEXT),), (Message(_NEXT),), ())):
        try:
            talk = _behind_question(template.pieces(ME, (ASKED, message, *behind), tools, ways))
        except EngineError:
            continue
        added = _added(prompt, talk) or _instead(template, talk, behind, tools)
        if added is not None:
            yield _until_end(template, ends, _until_next(added), behind, tools)


def text_of(pieces: Sequence[Piece]) -> str:
    """The text of pieces, images left out."""
    return "".join(part for part, _ in pieces if isinstance(part, str))


# -- where it begins ------------------------------------------------------------------------------


def _behind_question(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces behind what was asked: what stands in front of it may change as the talk grows."""
    return [*dropwhile(lambda piece: not (piece[1] and _QUESTION in str(piece[0])), pieces)][1:]


def _added(prompt: Sequence[Piece], talk: Sequence[Piece]) -> list[Piece] | None:
    """What stands in a talk behind its prompt; None where it does not begin as the prompt does. A
    thought that either opens or closes is not part of what they have in common."""
    asked = text_of(prompt)
    whole = text_of(talk)
    if whole.startswith(asked):
        return pieces_from(talk, len(asked))
    bare = asked
    while closing_of(bare) is not None:
        bare = bare[: max(map(bare.rfind, "<[◁"))]
    if not whole.startswith(bare):
        bare = bare.rstrip()
    if not whole.startswith(bare):
        return None
    added = pieces_from(talk, len(bare))
    first = added[0][0] if added and not added[0][1] else ""
    if isinstance(first, str) and closing_of(asked) is None:
        return pieces_from(added, len(first) - len(first.lstrip()))
    thought = _thought_at_start(first) if isinstance(first, str) else 0
    added = pieces_from(added, thought)
    closing = closing_of(asked)
    if closing and isinstance(first, str):
        added.insert(0, (_closing(asked[len(bare) :], first[:thought]) or closing, False))
    return added


def _instead(
    template: ChatTemplate, talk: Sequence[Piece], behind: Sequence[Message], tools: Sequence[Tool]
) -> list[Piece] | None:
    """What stands in the talk in place of a plain answer, where a template writes a prompt in other
    words once it is answered; None where the two talks differ before."""
    try:
        plain = template.pieces(ME, (ASKED, Message(ANSWER, ME), *behind), tools)
    except EngineError:
        return None
    front = text_of(_behind_question(plain)).partition(ANSWER)[0]
    return pieces_from(talk, len(front)) if text_of(talk).startswith(front) else None


def _thought_at_start(text: str) -> int:
    """The length of an empty thought in front of a text, with the space behind it."""
    length = 0
    while (end := text.find(">", length)) >= 0 and closing_of(text[length : end + 1]) is not None:
        length = end + 1
    return length + len(text[length:]) - len(text[length:].lstrip()) if length else 0


def _closing(opened: str, thought: str) -> str:
    """What closes the thought that a prompt has `opened`, as the template writes an empty one."""
    tag = opened.rstrip()
    if thought.startswith(tag):
        thought = thought.removeprefix(tag)
        return thought.removeprefix(opened[len(tag) :])
    return thought


def pieces_from(pieces: Sequence[Piece], start: int) -> list[Piece]:
    """The pieces from this character on."""
    rest: list[Piece] = []
    for part, content in pieces:
        length = len(part) if isinstance(part, str) else 0
        if isinstance(part, str) and start:
            part = part[start:]
        start = max(0, start - length)
        if part or not isinstance(part, str):
            rest.append((part, content))
    return rest


def _until(pieces: Sequence[Piece], end: int) -> list[Piece]:
    front: list[Piece] = []
    for part, content in pieces:
        if end <= 0:
            break
        front.append((part[:end], content) if isinstance(part, str) else (part, content))
        end -= len(part) if isinstance(part, str) else 0
    return front


# -- where it ends --------------------------------------------------------------------------------


def _until_end(
    template: ChatTemplate,
    ends: Mapping[str, int],
    added: Sequence[Piece],
    behind: Sequence[Message],
    tools: Sequence[Tool],
) -> tuple[list[Piece], int | None]:
    """The pieces of the turn without the token that ends it, and that token."""
    pieces: list[Piece] = []
    for part, content in added:
        end = None if content or not isinstance(part, str) else first_end(part, ends)
        if end is not None:
            pieces.append((str(part)[: end[0]], False))
            return [piece for piece in pieces if piece[0]], ends[end[1]]
        pieces.append((part, content))
    return _without_next(template, pieces, behind, tools), None


def _until_next(pieces: Sequence[Piece]) -> list[Piece]:
    return [*takewhile(lambda piece: not (piece[1] and _NEXT in str(piece[0])), pieces)]


def first_end(text: str, ends: Mapping[str, int]) -> tuple[int, str] | None:
    """Where the first token that ends a turn stands in a text of the template's, and which."""
    places = {end: place for end in ends if (place := text.find(end)) >= 0}
    # of those at one place the longest
    return min(
        ((place, end) for end, place in places.items()),
        key=lambda first: (first[0], -len(first[1])),
        default=None,
    )


def _without_next(
    template: ChatTemplate,
    pieces: Sequence[Piece],
    behind: Sequence[Message],
    tools: Sequence[Tool],
) -> list[Piece]:
    """The pieces without the beginning of the next message, which also follows a plain answer."""
    for others in dict.fromkeys((behind, (Message(_NEXT),))):
        try:
            plain = template.pieces(ME, (ASKED, Message(ANSWER, ME), *others), tools)
        except EngineError:
            continue
        tail = text_of(_until_next(plain)).rpartition(ANSWER)[2]
        text = text_of(pieces)
        if tail and text.endswith(tail):
            return _until(pieces, len(text) - len(tail))
        words = _words(template, pieces)
        for token in reversed(_words(template, [(tail, False)])):
            if not words or words[-1] != token:
                break
            words.pop()
        return words
    return list(pieces)


def _words(template: ChatTemplate, pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, with each control token for itself."""
    controls = re.compile("|".join(map(re.escape, template.controls.values())) or r"(?!)")
    words: list[Piece] = []
    for part, content in pieces:
        if content or not isinstance(part, str):
            words.append((part, content))
            continue
        place = 0
        for control in controls.finditer(part):
            words += [(part[place : control.start()], False), (control.group(), False)]
            place = control.end()
        words.append((part[place:], False))
    return [word for word in words if word[0] or not isinstance(word[0], str)]


# Which calls a template shows so that a reader reads them back, found out when a model is opened: a
# call with texts, numbers and objects, one without arguments, and both at once go through it. The
# first format whose reader gives back what went in is the one that the policy writes.
_NAME = "zqtool"  # no template holds this word
TOOL = Tool(
    _NAME,
    "looks",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "digits": {"type": "string"},
            "number": {"type": "integer"},
            "object": {"type": "object"},
        },
    },
)
FULL = ToolCall(
    "call_0",
    _NAME,
    {"text": "a \"b\" 'c'\n<d>", "digits": "12", "number": 3, "object": {"x": ["y", 1, True]}},
)
EMPTY = ToolCall("call_1", _NAME, {})
IDS = ("", "short", "named")
# the plainest first
SHAPES = tuple(Shape(as_text=as_text, ids=ids) for as_text in (False, True) for ids in IDS)


def settle(template: ChatTemplate, ends: Mapping[str, int], wanted: str, opened: bool) -> str:
    """Settles how the template is handed calls, and gives the format that its policy writes:
    `wanted`, or with `auto` the one that reads what the template writes. `opened`: the prompt opens
    a thought. Raises ConfigError where the wanted format does not read it."""
    example = ""
    spoken = ""  # the format that the template speaks of, where it does not write another
    shapes = SHAPES if "tool_calls" in template.source else ()
    formats = tuple(FORMATS) if wanted == "auto" else (wanted,)
    plain = template.shape
    for shape in shapes:
        template.shape = replace(shape, parts=plain.parts, no_tools=plain.no_tools)
        template.show_calls(True)
        written = list(_written(template, ends, (FULL,)))
        example = example or next((text for text in written if _NAME in text), "")
        tool_format = _reader(formats, written, (FULL,), opened)
        if example and not tool_format and not spoken:
            spoken = _reader(
                (_told_of(template),), _written(template, ends, (EMPTY,)), (EMPTY,), opened
            )
        chosen = (tool_format,) if tool_format else ()
        if _reader(chosen, _written(template, ends, (EMPTY,)), (EMPTY,), opened):
            both = (FULL, EMPTY)
            two = _reader(chosen, _written(template, ends, both), both, opened)
            template.calls_at_once = MANY if two else 1
            # where tools are told of in text, calls are written as that text asks for them; what
            # the model may write of its own is read all the same
            native = template.shows_tools or wanted != "auto" or tool_format == "hermes"
            template.show_calls(native, _writer(template, tool_format) if native else in_tags)
            return tool_format
    template.shape = plain
    if example and wanted != "auto":
        raise ConfigError(
            f"{template.where}: tool_format: {wanted} does not read the calls that the chat"
            f" template writes, such as {example.strip()[:80]!r}; leave it out"
        )
    if wanted == "auto":
        # spoken of, and not written in another form
        wanted = spoken if example else _told_of(template)
    return _in_text(template, wanted)


def same(calls: Sequence[ToolCall | Malformed], others: Sequence[ToolCall | Malformed]) -> bool:
    """Whether these are calls of the same tools with the same arguments."""

    def facts(call: ToolCall | Malformed) -> str:
        if isinstance(call, Malformed):
            return ""
        # as JSON, which tells 1, 1.0 and true from each other
        return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"

    return [*map(facts, calls)] == [*map(facts, others)]


def _reader(
    formats: Sequence[str], written: Iterable[str], calls: Sequence[ToolCall], opened: bool
) -> str:
    """The first format that reads these calls out of one of the texts by itself, "" for none."""
    for text in written:
        answer = split_reasoning(text, opened)[1]
        for name in filter(None, formats):
            tool_format = FORMATS[name]
            if tool_format.opens(answer):
                rest, read = tool_format.read(answer, (TOOL,), False)
                if not rest and same(read, calls):
                    return name
    return ""


def _written(
    template: ChatTemplate, ends: Mapping[str, int], calls: Sequence[ToolCall]
) -> Iterator[str]:
    message = Message("", ME, tuple(calls))
    # templates raise what they like
    with suppress(EngineError):
        for pieces, _ in answers(template, ends, message, (TOOL,), template.ways[:1]):
            yield text_of(pieces)


def _in_text(template: ChatTemplate, tool_format: str) -> str:
    """Settles the same for a template that shows no calls, or in a form that nobody reads."""
    # tools that the template shows go with calls as it speaks of them; else both are texts
    template.shows_tools = template.shows_tools and bool(tool_format)
    template.show_calls(False, _writer(template, tool_format) if template.shows_tools else in_tags)
    return tool_format or "hermes"


def settle_words(template: ChatTemplate, wanted: str) -> str:
    """The same for a tokenizer that cannot write JSON: calls are the template's, and tools are
    what the policy has learned of them."""
    template.shows_tools = True
    template.show_calls("tool_calls" in template.source)
    return (_told_of(template) or "hermes") if wanted == "auto" else wanted


def _told_of(template: ChatTemplate) -> str:
    """The format that the words of a template speak of, "" for none."""
    # its own words first: a tokenizer may have tokens of many families
    controls = "".join(template.controls.values()) if template.shows_tools else ""
    for words in (template.source, controls):
        # hermes last: others write other things between its tags
        for name in reversed(list(FORMATS)):
            if any(word in words for word in FORMATS[name].told_by):
                return name
    return ""


def _writer(template: ChatTemplate, tool_format: str) -> Writer:
    words = template.source + "".join(template.controls.values())
    if tool_format == "llama":
        return _llama
    if tool_format == "mistral":
        return partial(_json, mark=TOOL_CALLS)
    if tool_format == "python":
        return partial(_python, marked="<|tool_" in words)
    if tool_format == "json":
        mark = next((mark for mark in MARKED if mark in words), "")
        return partial(_json, mark=mark) if mark and MARKED[mark][1].names else in_tags
    return in_tags


def _llama(calls: Sequence[ToolCall]) -> list[str]:
    bodies = [{"name": call.name, "parameters": call.arguments} for call in calls]
    return [Mark(PYTHON_TAG), "; ".join(json.dumps(body, ensure_ascii=False) for body in bodies)]


def _json(calls: Sequence[ToolCall], mark: str) -> list[str]:
    bodies = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return [Mark(mark), json.dumps(bodies, ensure_ascii=False)]


def _python(calls: Sequence[ToolCall], marked: bool) -> list[str]:
    written = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in calls
    ]
    text = f"[{', '.join(written)}]"
    return [Mark("<|tool_call_start|>"), text, Mark("<|tool_call_end|>")] if marked else [text]
