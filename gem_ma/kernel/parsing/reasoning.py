"""What a model thought, apart from what it said.

Pure text, in linear time. Read are the marks that models write themselves: tags (`<think>`,
`<thinking>`, `<seed:think>`, `<reasoning>`, `<thought>` ...), the control tokens of Magistral,
Cohere, Gemma, Kimi and others, and harmony's channels (gpt-oss), also without its control tokens.

A tag is a mark or a mention. It is a mention in a code block, in quotes or backticks, inside a
tool call, and in the middle of a sentence that speaks of it; then it stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gem_ma.kernel.types import Reply

_NAME = (
    r"[ \t]{0,3}(?i:(?:[a-z]{1,20}[:_-]?)?think(?:ing)?(?:[:_][a-z0-9]{1,20})?"
    r"|(?:[a-z]{1,20}[:_-])?thoughts?|reasoning|scratchpad)(?:\s[^<>]{0,80})?>"
)
_KINDS = (  # what opens a thought, and what closes it; a tag closes whichever tag opened
    (rf"<{_NAME}", rf"<[ \t]{{0,3}}/{_NAME}"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|channel>(?:thought\b)?", r"<channel\|>"),  # Gemma 4
    (r"<unused94>(?:thought\b)?", r"<unused95>"),  # MedGemma
    (r"◁think▷", r"◁/think▷"),  # Kimi VL
    (r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),  # Kimi K3
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # OpenThinker, Sky-T1
    (  # Solar
        r"<\|think(?:ing)?\|>",
        r"<\|/think(?:ing)?\|>|<\|end\|>\s{0,3}<\|begin\|>assistant(?:<\|content\|>)?",
    ),
    (r"(?!)", r"\[BEGIN FINAL RESPONSE\]"),  # Apriel, which opens by a sentence of plain words
)
_PIECE = re.compile(
    r"(?P<fence>`{3,}|~{3,})|(?P<call><tool_call>)|(?P<called></tool_call>)"
    + "".join(
        f"|(?P<open{kind}>{opening})|(?P<close{kind}>{closing})"
        for kind, (opening, closing) in enumerate(_KINDS)
    )
)
# what each of them begins with: a search for all of them at once takes a microsecond a letter
_BEGINS = re.compile(r"[<\[◁`~]")
# one of these stands in each tag, in small letters
_WORDS = (
    "think",
    "thought",
    "reasoning",
    "scratchpad",
    "channel",
    "unused9",
    "inner_",
    "final resp",
)
# around the answer of those that mark it as well
_ANSWERS = (
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ("<response>", "</response>"),  # ERNIE, behind a thought alone
    ("", "[END FINAL RESPONSE]"),
)
_ANSWER_TOKENS = tuple(opening for opening, _ in _ANSWERS if "|" in opening)
_WINDOW = 80  # characters of a line that are looked at around a tag
_MOST = 4096  # tags that are looked at: no model writes more, and a server may send 32 MB
_NESTED = 256  # tags among which the end of a thought is looked for
_QUOTE_SIGNS = tuple("`'\"‘’“”«»")
# a sentence that speaks of a tag: the word in front of it, and what follows it
_SPEAKS = (
    " a an the this that it its your my no any each every of with without by to in into inside on"
    " at as like than between from for before after until and or is are was does do not called"
    " named element use used uses using write writes wrote written say says see add put print"
    " type types typed escape emit emits expect forgot missing remove replace strip skip ignore"
    " wrap if open opens opened opening close closes closed closing begin begins end ends mean"
    " means "
)
_NOUNS = ("tag", "tags", "token", "tokens", "marker", "markers")  # `start_tag`, too
_SPOKEN_OF = re.compile(
    r"[.,;?!)]|[ \t]{0,3}\||[ \t]{1,3}(?:tags?|tokens?|elements?|markers?|marks?|blocks?|is|are"
    r"|was|means?|and|or|at|in|by|before|after|does|must|should|can|will|opens|closes|ends|to)\b"
)
# control tokens that a policy writes itself, so that its text must keep them
CONTROLS = (
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<|START_THINKING|>", "<|END_THINKING|>"),
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|inner_prefix|>", "<|inner_suffix|>"),
    *("<|channel>", "<channel|>", "<unused94>", "<unused95>", "<seed:think>", "</seed:think>"),
)
# those of harmony, some of which mean other things elsewhere
HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", "<|end|>", "<|call|>")
_MARKUP = re.compile(
    r"<(?:code|pre|p|div|span|li|td|b|i|em|strong|body|html)\b[^<>]{0,40}>$", re.IGNORECASE
)
_HEAD = re.compile(
    r"(?:<\|start\|>([^<]{0,200}))?<\|channel\|>([^<]{0,200})"
    r"(?:<\|constrain\|>[^<]{0,100})?(<\|message\|>)?"
)
_SPEECH = ("final", "commentary", "call")
_MESSAGE_END = re.compile(r"<\|(?:end|return|call)\|>|<\|start\|>")
# the same where the control tokens are lost: no word goes on from these as the text does
_BARE_HEAD = re.compile(r"assistant(analysis|final|commentary)|\A\s*(analysis)")
_BARE_THOUGHT = re.compile(r"\s*(?:assistant)?analysis[^\W\d_][\w'’]{0,20}[,.?!:;]{0,3}\s[^\s=+*/]")


def split_reasoning(text: str, opened: bool = False) -> tuple[str, str]:
    r"""(what was thought, what was said). `opened`: the prompt has opened the thought already.

    A thought that never ends leaves nothing said. Several thoughts are joined by an empty line.
    Without any thought the text comes back as it is.

    >>> split_reasoning("<think>\nI bluff.\n</think>\n\nNinety.")
    ('I bluff.', 'Ninety.')
    >>> split_reasoning("I bluff.</think>Ninety."), split_reasoning("<think>I could")
    (('I bluff.', 'Ninety.'), ('I could', ''))
    >>> split_reasoning("Models write `<think>` first.")
    ('', 'Models write `<think>` first.')
    """
    # each mark begins with one of these signs, or is the name of a channel
    if not (opened or "<" in text or "[" in text or "◁" in text or "analysis" in text):
        return "", text
    messages = [*_channels(text, opened)] or [*_bare_channels(text)]
    if messages:
        return _of_channels(messages)
    if not opened and not _may_hold_tags(text):
        return "", text
    return _of_tags(text, opened)


def without_thought(reply: Reply) -> Reply:
    """The reply with what was thought in its `reasoning` alone; in the text of one that an older
    version recorded, or that the engine of somebody else gives, thoughts still stand."""
    thought, answer = split_reasoning(reply.text)
    # the same object: most replies hold no thought, and a copy costs
    if answer is reply.text:
        return reply
    return replace(reply, text=answer, reasoning=_joined([reply.reasoning, thought]))


def knows_thoughts(template: str) -> bool:
    """Whether the text of a chat template speaks of thoughts."""
    return HARMONY[0] in template or any(piece.what == "close" for piece in _pieces(template))


def closing_of(prompt: str) -> str | None:
    r"""What stands between a prompt that opens a thought and an answer without one; "" where the
    prompt has closed the thought itself, None where it ends otherwise.

    >>> closing_of("assistant\n<think>\n"), closing_of("assistant\n<think>\n\n</think>\n")
    ('\n</think>\n\n', '')
    """
    end = prompt.rstrip()[-_WINDOW:]
    if end.endswith("<|channel|>analysis<|message|>"):
        return "<|end|><|start|>assistant<|channel|>final<|message|>"
    for piece in _pieces(end):
        if piece.end == len(end) and piece.what in ("open", "close"):
            # a tag is closed as it was spelled
            tag = f"\n</{end[piece.start + 1 :]}\n\n"
            token = re.sub(r"\\(.)", r"\1", _KINDS[int(piece.kind)][1])
            return "" if piece.what == "close" else token if int(piece.kind) else tag
    return None


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, (text.strip() for text in texts)))


# -- tags -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """A tag, or one end of a code block or of a tool call."""

    start: int
    end: int
    what: str  # open, close; fence; call, called
    kind: str  # of a tag, its place in _KINDS
    quoted: bool  # never a mark
    mention: bool  # a mark only where a thought would have no end without it
    alone: bool  # nothing on its line in front of it, or a sentence that is over
    ends_line: bool


def _pieces(text: str) -> Iterator[_Piece]:
    end = 0
    for place in _BEGINS.finditer(text):
        if place.start() < end or not (match := _PIECE.match(text, place.start())):
            continue
        start, end = match.span()
        name = match.lastgroup or ""
        what = name.rstrip("0123456789")
        before = text[max(0, start - _WINDOW) : start].rpartition("\n")[2]
        after = text[end : end + _WINDOW].partition("\n")[0]
        if what == "fence" and before.strip():
            continue
        sentence = before.rstrip()
        alone = sentence == "" or sentence[-1] in ".!?…"
        quoted = (
            _is_quoted(before, after, what)
            or (before[-1:] == ">" and _MARKUP.search(before) is not None)
            or (sentence == "" and before.startswith(("    ", "\t")))
        )
        coded = any(before.count(sign) % 2 == 1 and sign in after for sign in '`"')
        mention = coded or (not alone and _is_spoken_of(before, after))
        yield _Piece(start, end, what, name[len(what) :], quoted, mention, alone, not after)


def _is_quoted(before: str, after: str, what: str) -> bool:
    """Whether a quote opens in front of a tag; one that ends what stands there opens none."""
    if before[-1:] not in _QUOTE_SIGNS:
        return False
    front = before[:-1].rstrip("rbfRBF") if what == "open" else before[:-1]
    opens = front == "" or front[-1] in " \t([{=:,>"
    return opens and (what == "open" or after[:1] in _QUOTE_SIGNS)


def _is_spoken_of(before: str, after: str) -> bool:
    """Whether the sentence around a tag speaks of it, by the words beside it."""
    if before[-1] not in " \t(:=":
        return False
    word = before.rstrip(" \t(:=").replace("(", " ").rpartition(" ")[2].casefold()
    if f" {word} " in _SPEAKS and before[-1] not in ":=":
        return True
    spoken = before[-1] in " \t" and _SPOKEN_OF.match(after) is not None
    return spoken or word.endswith(_NOUNS)


def _may_hold_tags(text: str) -> bool:
    if text.startswith(_ANSWER_TOKENS):
        return True
    folded = text.casefold()
    return any(word in folded for word in _WORDS)


def _of_tags(text: str, opened: bool) -> tuple[str, str]:
    pieces = list(islice(_pieces(text), _MOST))
    last = {piece.what: number for number, piece in enumerate(pieces)}
    thoughts: list[str] = []
    speech: list[str] = []
    place = number = 0
    spared = -1  # up to here a closing tag belongs to an opening one that is only mentioned
    silent = True  # nothing was said until here
    kind = "" if opened else None  # of the thought that goes on
    while kind is not None or number < len(pieces):
        if kind is not None:
            # a tag right behind another one is the same one, written twice
            while number < len(pieces) and _repeats(text, place, pieces[number], kind):
                place = pieces[number].end
                number = number + 1
            end = _end_of_thought(text, place, pieces[number : number + _NESTED], kind)
            if end is None:
                # what was said before is not an answer: the model had not made up its mind
                return _joined([*thoughts, *speech, text[place:]]), ""
            thoughts.append(text[place : pieces[number + end].start])
            place = pieces[number + end].end
            number = number + end + 1
            kind = None
            continue
        piece = pieces[number]
        number += 1
        if piece.what in ("fence", "call"):
            # what stands in a code block or a tool call is not a mark; one without an end is none
            end_of_block = "fence" if piece.what == "fence" else "called"
            if last.get(end_of_block, -1) >= number:
                while pieces[number].what != end_of_block:
                    number += 1
                number += 1
            continue
        ordinary = not piece.quoted and not piece.mention
        if piece.what == "open":
            silent = silent and not text[place : piece.start].strip()
            ends = piece.alone or last.get("close", -1) >= number
            if silent or (ordinary and ends):
                speech.append(text[place : piece.start])
                place = piece.end
                kind = piece.kind
            else:
                spared = _end_of_line(text, piece.end)
        elif piece.what == "close" and ordinary and piece.start >= spared:
            # its opening stands in the prompt, or nowhere
            thoughts += [*speech, text[place : piece.start]]
            speech = []
            place = piece.end
            silent = True
    if not thoughts and not text.startswith(_ANSWER_TOKENS):
        return "", text
    return _joined(thoughts), _answer([*speech, text[place:]])


def _repeats(text: str, place: int, piece: _Piece, kind: str) -> bool:
    same = piece.what == "open" and piece.kind == (kind or piece.kind)
    return same and not text[place : piece.start].strip()


def _end_of_line(text: str, place: int) -> int:
    line = text.find("\n", place, place + 4 * _WINDOW)
    return line if line >= 0 else place + 4 * _WINDOW


def _end_of_thought(text: str, place: int, pieces: Sequence[_Piece], kind: str) -> int | None:
    """Which of the pieces ends the thought that begins at `place`; None where none does."""
    depth = 1
    mark = mention = None
    for number, piece in enumerate(pieces):
        if piece.what not in ("open", "close") or piece.quoted or (kind and piece.kind != kind):
            continue
        if piece.what == "open":
            depth += not piece.mention and not _repeats(text, place, piece, kind)
            place = piece.end
        elif piece.mention and not piece.ends_line:
            mention = number if mention is None else mention
        else:
            mark = number
            depth = depth - 1
            if not depth:
                break
    return mention if mark is None else mark


def _answer(parts: Sequence[str]) -> str:
    """What was said around thoughts, without the space that stood behind them."""
    space = True  # in front of the next part
    answer = ""
    for part in parts:
        answer += part.lstrip() if space else part
        space = not answer or answer[-1].isspace()
    for opening, closing in _ANSWERS:
        if answer.startswith(opening) and (opening or closing in answer):
            return answer.removeprefix(opening).rstrip().removesuffix(closing).strip()
    return answer


# -- channels -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Channel:
    """A message of harmony; `name` is "" for what belongs to no channel."""

    name: str
    text: str
    ended: bool


def _channels(text: str, opened: bool) -> Iterator[_Channel]:
    """Harmony's messages in a text that begins with one, or with the end of one."""
    heads = list(islice(_HEAD.finditer(text), _MOST)) if "<|channel|>" in text else []
    if not heads:
        return
    lead = text[: heads[0].start()].strip()
    if lead and not opened and not lead.endswith("<|end|>"):
        return
    yield _Channel("analysis", lead.removesuffix("<|end|>"), True)
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        stop = len(text) if following is None else following.start()
        end = _MESSAGE_END.search(text, head.end(), stop)
        header = f"{head[1] or ''} {head[2]}"
        if " to=" in header:
            # a call, for those who read calls
            yield _Channel("call", text[head.start() : stop], True)
            continue
        name = head[2].split()[0] if head[2].strip() else ""
        ended = following is not None or end is not None
        own = (head[1] or "assistant").startswith("assistant")
        content = text[head.end() : end.start() if end else stop]
        yield _Channel(name if own and head[3] else "analysis", content, ended)


def _bare_channels(text: str) -> Iterator[_Channel]:
    """The same where the control tokens were lost: `analysis...assistantfinal...`."""
    heads = list(islice(_BARE_HEAD.finditer(text), _MOST)) if "analysis" in text[:_WINDOW] else []
    if not heads or text[: heads[0].start()].strip():
        return
    if len(heads) == 1 and not _BARE_THOUGHT.match(text):
        return
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        stop = len(text) if following is None else following.start()
        name = head[1] or "analysis"
        content = text[head.end() : stop]
        if name == "commentary" and content.startswith(" to="):
            # as it was before its tokens were lost, for those who read calls
            content = content.replace("{", "<|message|>{", 1)
            yield _Channel("call", f"<|channel|>commentary{content}", True)
        else:
            yield _Channel(name, content, following is not None)


def _of_channels(messages: Sequence[_Channel]) -> tuple[str, str]:
    cut = messages[-1].name not in _SPEECH and not messages[-1].ended
    thoughts = [message.text for message in messages if message.name not in _SPEECH]
    # a preamble is said, but is not an answer where the thought behind it never ended
    texts = [
        message.text
        for message in messages
        if message.text.strip() and message.name in (("final",) if cut else ("final", "commentary"))
    ]
    calls = [message.text for message in messages if message.name == "call"]
    further, answer = _of_tags("\n\n".join(texts), opened=False)
    return _joined([*thoughts, further]), answer + "".join(calls)
