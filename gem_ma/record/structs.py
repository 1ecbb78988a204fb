"""Lines of schema 2, written and read by msgspec. Imports the kernel and how a line saves room.

A line holds what a line of schema 1 does (`gem_ma.record.codec`), in the same order, but for three
things: token ids and log-probabilities are `Packed`; a call says its `kind`; and a field whose
default is a word (`sender`, `finish`) is always written.

msgspec checks types and knows neither NaN, duplicate keys, depth nor what belongs together. So
`write` and `read` give None wherever anything is not as they know it, and the second look of
`gem_ma.record.codec`, which is slow and knows all, decides and says what is wrong. What is read
here would be written again byte for byte: of the same key twice, or of 1e0 for 1.0, that is not
so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import astuple

from gem_ma.kernel.episode import CallResult, End, Entry, Episode, Seat
from gem_ma.kernel.types import (
    SCENARIO,
    Action,
    Attempt,
    Content,
    Image,
    Malformed,
    Message,
    Reply,
    Tool,
    ToolCall,
    Turn,
    Usage,
    maker,
)
from gem_ma.record.choices import LEAST, Choices, full
from gem_ma.record.shapes import LARGEST
from gem_ma.record.token_chains import Chains

SCHEMA = 2
MOST = float(LARGEST)
DEEP = 50  # of free values; below the limit of `gem_ma.record.shapes`, which then decides
# legal in JSON, but other readers split lines or drive terminals with them; in UTF-8
_SPLITTERS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")


def always(value: Any) -> Any:
    """A default for readers; msgspec leaves out what *is* the default, and equal words need not
    be the same object."""
    return msgspec.field(default_factory=lambda: value)


class Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Fields as in the kernel's record of this name."""


class Packed(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Numbers as their bytes, little-endian; msgspec writes bytes as base64."""

    of: Literal["u16", "u32", "f64"]
    base64: bytes


IDS: tuple[Literal["u16", "u32"], ...] = ("u16", "u32")
LOGPROBS = ("f64",)
PACKED = {"prompt_ids": IDS, "token_ids": IDS, "logprobs": LOGPROBS}
WIDTHS = {"u16": ("H", 2), "u32": ("I", 4), "f64": ("d", 8)}
Ids = Packed | tuple[int, ...]
Numbers = Packed | tuple[int | float, ...]
# of what a line holds in another form than the play; from a play they are taken as they are
IdsT = TypeVar("IdsT")
NumbersT = TypeVar("NumbersT")
LegalT = TypeVar("LegalT")
ToolsT = TypeVar("ToolsT")


class ToolCallRecord(Record, tag="call", tag_field="kind"):
    id: str
    name: str
    arguments: dict[str, Any]
    repaired: str = ""


class MalformedRecord(Record, tag="malformed", tag_field="kind"):
    text: str
    reason: str


Calls = tuple[ToolCallRecord | MalformedRecord, ...]


class ImageRecord(Record):
    digest: str
    media_type: str = always("image/png")


class MessageRecord(Record):
    content: str | tuple[str | ImageRecord, ...]
    sender: str = always(SCENARIO)
    tool_calls: Calls = ()
    call_id: str = ""


class ToolRecord(Record):
    name: str
    description: str = ""
    parameters: dict[str, Any] = always(Tool("").parameters)


class ActionRecord(Record):
    text: str = ""
    tool_calls: Calls = ()
    parsed: str | None = None
    cut: int = 0


class UsageRecord(Record):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class AttemptRecord(Record):
    kind: str
    status: int | None = None
    wait_s: int | float = always(0.0)
    detail: str = ""


class ReplyRecord(Record, Generic[IdsT, NumbersT]):
    text: str = ""
    tool_calls: Calls = ()
    prompt_ids: IdsT = ()  # type: ignore[assignment]
    prompt_of: tuple[int, int] | None = None
    token_ids: IdsT = ()  # type: ignore[assignment]
    logprobs: NumbersT = ()  # type: ignore[assignment]
    finish: str = always("stop")
    policy: str = ""
    version: int = 0
    usage: UsageRecord = msgspec.field(default_factory=UsageRecord)
    attempts: tuple[AttemptRecord, ...] = ()
    cut: int = 0
    reasoning: str = ""
    model: str = ""
    images: tuple[str, ...] = ()


class TurnRecord(Record, Generic[IdsT, NumbersT, LegalT, ToolsT], kw_only=True):
    step: int
    agent: str
    observed: tuple[MessageRecord, ...]
    legal: LegalT | None = None
    legal_of: tuple[int, list[int], list[tuple[int, str]]] | None = None
    tools: ToolsT = ()  # type: ignore[assignment]
    action: ActionRecord
    replies: tuple[ReplyRecord[IdsT, NumbersT], ...] = ()


class SeatRecord(Record):
    behaviour: str = always("direct")
    policy: str | None = None
    options: dict[str, Any] = {}
    privileged: bool = False
    policies: dict[str, str] = {}
    memory: dict[str, Any] = {}


class CallResultRecord(Record):
    step: int
    value: Any = None
    error: str | None = None


class EntryRecord(Record):
    step: int
    agent: str
    value: int | float
    why: str = ""
    original: int | float | None = None


class EpisodeRecord(Record, Generic[IdsT, NumbersT, LegalT, ToolsT], kw_only=True):
    # schema and id first: a reader of ids looks at the beginning of a line alone
    schema: Literal[2] = always(SCHEMA)
    id: tuple[str, int, int]
    scenario: str
    version: int
    seed: int
    task: str
    repeat: int
    group: str | None
    cast: dict[str, SeatRecord]
    calls: tuple[CallResultRecord, ...]
    forks: tuple[tuple[int, str], ...]
    final: dict[str, tuple[MessageRecord, ...]]
    ledger: tuple[EntryRecord, ...]
    end: End
    error: str | None
    options: dict[str, Any]
    world: str = ""
    cut: tuple[str, ...] = ()
    tools: tuple[ToolRecord, ...] = ()
    turns: tuple[TurnRecord[IdsT, NumbersT, LegalT, ToolsT], ...]


Play = EpisodeRecord[Any, Any, Any, Any]
Line = EpisodeRecord[Ids, Numbers, tuple[str, ...], tuple[int, ...]]


make_message = maker(Message)
make_action = maker(Action)
make_reply = maker(Reply)
make_usage = maker(Usage)
make_turn = maker(Turn)
make_entry = maker(Entry)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


# -- both ways ------------------------------------------------------------------------------------


class Unsure(Exception):
    """Something that only the second look can judge."""


# what the library and loops say to values that are not as they should be
UNFIT = (
    *(Unsure, msgspec.MsgspecError, TypeError, ValueError, AttributeError),
    *(OverflowError, RecursionError, struct.error),
)


@lru_cache(maxsize=1024)
def layout(count: int, letter: str) -> struct.Struct:
    """`count` little-endian numbers of the kind that `struct` calls `letter`."""
    return struct.Struct(f"<{count}{letter}")


def _check_free(value: Any, left: int = DEEP) -> None:
    """Raises Unsure where something in this list or object is not as JSON gives it back, or lies
    deep."""
    is_object = type(value) is dict
    for item in value.values() if is_object else value:
        kind = type(item)
        if kind is dict or kind is list:
            if not left:
                raise Unsure
            _check_free(item, left - 1)
        elif kind is float:
            if item - item != 0:  # NaN and the infinities
                raise Unsure
        elif kind is int:
            if not -LARGEST <= item <= LARGEST:
                raise Unsure
        elif kind is not str and kind is not bool and item is not None:
            raise Unsure
    if is_object and not all(type(key) is str for key in value):
        raise Unsure


def _check_finite(numbers: Sequence[float]) -> None:
    """Raises Unsure where one is NaN, infinite or a huge integer."""
    if not -MOST < float(sum(numbers)) < MOST:
        raise Unsure


def _check(record: Play) -> None:
    """Raises Unsure for what types do not tell; turns and messages are not looked at."""
    if record.options:
        _check_free(record.options)
    for result in record.calls:
        _check_free([result.value])
    for seat in record.cast.values():
        if seat.options or seat.memory:
            _check_free([seat.options, seat.memory])
    for tool in record.tools:
        _check_free(tool.parameters)
    ledger = record.ledger
    if ledger:
        _check_finite([entry.value for entry in ledger])
        _check_finite([entry.original for entry in ledger if entry.original is not None])


def _check_calls(acts: Iterable[Message | Action | Reply]) -> None:
    """The same for the calls of a play."""
    for act in acts:
        for call in act.tool_calls:
            if isinstance(call, ToolCall):
                _check_free([call.arguments])


def _line(record: Play) -> bytes:
    line = _encode(record)
    if line.isascii() and b"\x7f" not in line:  # the common case, without a search
        return line
    return _SPLITTERS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), line)


# -- writing --------------------------------------------------------------------------------------


def write(episode: Episode, sure: bool = False) -> bytes | None:
    """The line of an episode, without newline; None where the second look must decide. `sure`:
    it did."""
    try:
        record = msgspec.convert(episode, Play, from_attributes=True)
        writer = _Writer(sure)
        for number, (turn, made) in enumerate(zip(episode.turns, record.turns, strict=True)):
            writer.finish(number, turn, made)
        record.tools = tuple(writer.tools)
        if not sure:
            _check(record)
            for messages in episode.final.values():
                _check_calls(messages)
        return _line(record)
    except UNFIT:
        return None


class _Writer:
    """What a line keeps in mind from turn to turn: tools, lists and ids that stand once."""

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        self.tools: list[ToolRecord] = []
        self._numbers: dict[bytes, int] = {}
        # by id(): the episode outlives this object
        self._tuples: dict[int, tuple[int, ...]] = {}
        self._legal: dict[int, tuple[str, ...]] = {}
        self._chains = Chains()
        self._choices = Choices()

    def finish(self, number: int, turn: Turn, made: TurnRecord[Any, Any, Any, Any]) -> None:
        """Gives the turn of a line what is another there. Raises one of `UNFIT`."""
        if not self.sure:
            acts: tuple[Message | Action | Reply, ...]
            acts = (*turn.observed, turn.action, *turn.replies)
            for act in acts:
                if act.tool_calls:
                    _check_calls((act,))
        if turn.tools != ():
            if id(turn.tools) not in self._tuples:
                self._tuples[id(turn.tools)] = self._numbered(turn.tools)
            made.tools = self._tuples[id(turn.tools)]
        if turn.legal is not None:
            if id(turn.legal) not in self._legal:
                self._legal[id(turn.legal)] = msgspec.convert(turn.legal, tuple[str, ...])
            made.legal = self._legal[id(turn.legal)]
            if len(made.legal) >= LEAST:
                made.legal_of = self._choices.change(number, turn.agent, made.legal)
                if made.legal_of is not None:
                    made.legal = ()
        for reply, kept in zip(turn.replies, made.replies, strict=True):
            self._pack(reply, kept, turn.agent)

    def _numbered(self, tools: Sequence[Tool]) -> tuple[int, ...]:
        numbers = []
        for tool in msgspec.convert(tools, tuple[ToolRecord, ...], from_attributes=True):
            # by content: each turn may make its tools anew
            key = _encode(tool)
            if key not in self._numbers:
                self._numbers[key] = len(self.tools)
                self.tools.append(tool)
            numbers.append(self._numbers[key])
        return tuple(numbers)

    def _pack(self, reply: Reply, kept: ReplyRecord[Any, Any], agent: str) -> None:
        if not self.sure:
            _check_finite(reply.logprobs)
            _check_finite([attempt.wait_s for attempt in reply.attempts])
        prompt = reply.prompt_ids
        kept.prompt_of = self._chains.shared(agent, prompt)
        self._chains.add(agent, prompt, reply.token_ids)
        if kept.prompt_of is not None:
            prompt = prompt[kept.prompt_of[1] :]
        kept.prompt_ids = _packed_ids(prompt)
        kept.token_ids = _packed_ids(reply.token_ids)
        if reply.logprobs:
            kept.logprobs = Packed("f64", layout(len(reply.logprobs), "d").pack(*reply.logprobs))


def _packed_ids(ids: tuple[int, ...]) -> Ids:
    if len(ids) == 0:
        return ()
    for kind in IDS:  # the narrow ones first
        try:
            return Packed(kind, layout(len(ids), WIDTHS[kind][0]).pack(*ids))
        except struct.error:
            continue
    # no vocabulary has such numbers, but a line holds them
    return msgspec.convert(ids, tuple[int, ...])


# -- reading --------------------------------------------------------------------------------------


def read(line: bytes) -> Episode | None:
    """The episode of a line that `write` wrote; None where the second look must decide."""
    try:
        record = _decode(line)
        if _line(record) != line.rstrip(b"\n"):
            return None
        _check(record)
        return _episode(record)
    except UNFIT:
        return None


def unpacked(numbers: Packed | tuple[Any, ...], kinds: Sequence[str]) -> tuple[Any, ...]:
    """The numbers, which are of one of these kinds where they are packed. Raises Unsure."""
    if isinstance(numbers, tuple):
        return numbers
    letter, size = WIDTHS[numbers.of]
    count, rest = divmod(len(numbers.base64), size)
    if rest or numbers.of not in kinds:
        raise Unsure
    return layout(count, letter).unpack(numbers.base64)


def _episode(record: Play) -> Episode:
    tools = tuple(Tool(tool.name, tool.description, tool.parameters) for tool in record.tools)
    shared: dict[tuple[int, ...], tuple[Tool, ...]] = {(): ()}
    chains = Chains()
    lists: list[tuple[str, ...] | None] = []
    turns = []
    for turn in record.turns:
        if turn.legal_of is not None:
            lists.append(tuple(full(lists, turn.legal_of, "")))
        else:
            lists.append(turn.legal)
        offered = shared.get(turn.tools)
        if offered is None:
            offered = shared[turn.tools] = _offered(tools, turn.tools)
        act = turn.action
        action = make_action(
            act.text, _calls(act.tool_calls) if act.tool_calls else (), act.parsed, act.cut
        )
        replies = tuple([_reply(reply, turn.agent, chains) for reply in turn.replies])
        observed = _messages(turn.observed)
        turns.append(
            make_turn(turn.step, turn.agent, observed, lists[-1], offered, action, replies)
        )
    episode = Episode(
        record.scenario,
        record.version,
        record.seed,
        record.task,
        record.repeat,
        record.group,
        {agent: Seat(*astuple(seat)) for agent, seat in record.cast.items()},
        tuple(turns),
        tuple([CallResult(*astuple(result)) for result in record.calls]),
        record.forks,
        {agent: _messages(messages) for agent, messages in record.final.items()},
        tuple(
            [
                make_entry(one.step, one.agent, one.value, one.why, one.original)
                for one in record.ledger
            ]
        ),
        record.end,
        record.error,
        record.options,
        record.world,
        record.cut,
    )
    # the id stands in the line for readers that do not read the rest; it may not lie
    if record.id != episode.id:
        raise Unsure
    return episode


def _offered(tools: tuple[Tool, ...], numbers: tuple[int, ...]) -> tuple[Tool, ...]:
    # one tuple for all turns that offer the same, as it was when they were written
    if not all(0 <= number < len(tools) for number in numbers):
        raise Unsure
    return tuple([tools[number] for number in numbers])


def _messages(messages: tuple[MessageRecord, ...]) -> tuple[Message, ...]:
    return tuple(
        [
            make_message(
                one.content if isinstance(one.content, str) else _content(one.content),
                one.sender,
                _calls(one.tool_calls) if one.tool_calls else (),
                one.call_id,
            )
            for one in messages
        ]
    )


def _content(parts: tuple[str | ImageRecord, ...]) -> Content:
    return tuple(
        [part if isinstance(part, str) else Image(part.digest, part.media_type) for part in parts]
    )


def _calls(calls: Calls) -> tuple[ToolCall | Malformed, ...]:
    made: list[ToolCall | Malformed] = []
    for call in calls:
        if isinstance(call, ToolCallRecord):
            _check_free(call.arguments)
            made.append(ToolCall(call.id, call.name, call.arguments, call.repaired))
        else:
            made.append(Malformed(call.text, call.reason))
    return tuple(made)


def _reply(reply: ReplyRecord[Any, Any], agent: str, chains: Chains) -> Reply:
    prompt = unpacked(reply.prompt_ids, IDS)
    if reply.prompt_of is not None:
        prompt = chains.full(agent, prompt, reply.prompt_of, "")
    ids = unpacked(reply.token_ids, IDS)
    chains.add(agent, prompt, ids)
    logprobs = unpacked(reply.logprobs, LOGPROBS)
    _check_finite(logprobs)
    _check_finite([attempt.wait_s for attempt in reply.attempts])
    return make_reply(
        reply.text,
        _calls(reply.tool_calls) if reply.tool_calls else (),
        prompt,
        ids,
        logprobs,
        reply.finish,
        reply.policy,
        reply.version,
        make_usage(*astuple(reply.usage)),
        tuple([Attempt(*astuple(attempt)) for attempt in reply.attempts]),
        reply.cut,
        reply.reasoning,
        reply.model,
        reply.images,
    )
