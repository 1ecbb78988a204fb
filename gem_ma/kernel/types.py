"""What one turn is made of: what an agent is shown, what its policy is asked and replies, what it
does. Data only; behaviour is functions over them.

`dataclass(frozen=True)` sets each field by a lookup of its name; a play makes six such records a
turn, which was a third of its time. A class that is `quick` writes to its slots instead, and is
otherwise what it was.

All are frozen, compare by value and travel as JSON (`gem_ma.record.codec`). Words: a *step* is one
decision point, a *turn* is one agent's action at it. The record of a whole play is
`gem_ma.kernel.episode`.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from inspect import signature
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Gives a `@dataclass(frozen=True, slots=True)` a quicker constructor of the same signature.

    Raises TypeError for what this constructor would leave out: a `__post_init__`, and whatever
    makes parameters other than the fields.
    """
    if reason := _unfit(cls):
        raise TypeError(f"{cls.__qualname__}: no quick constructor, since {reason}")
    cls.__init__ = _constructor(cls, "set_{0}(self, {0})")  # type: ignore[method-assign]
    return cls


def maker(cls: type[T]) -> type[T]:
    """What makes records of a class that is `quick` in two thirds of the time: a class of the same
    slots, not frozen, whose instances become records of `cls` as soon as they are filled."""
    twin = type(cls.__name__, (), {"__slots__": cls.__slots__})  # type: ignore[attr-defined]
    fill = _constructor(cls, "self.{0} = {0}", "self.__class__ = cls")
    twin.__init__ = fill  # type: ignore[misc]
    return twin


def _constructor(cls: type, line: str, last: str = "pass") -> Any:
    """The function that does this `line` for each field, then the `last` one."""
    names: dict[str, Any] = {"cls": cls}
    parameters = ["self"]
    lines = []
    for one in fields(cls):
        default = ""
        if one.default is not MISSING:
            names[f"default_{one.name}"] = one.default
            default = f"=default_{one.name}"
        elif one.default_factory is not MISSING:
            # the mark that `dataclass` itself shows in its signature
            names[f"default_{one.name}"] = signature(cls).parameters[one.name].default
            names[f"make_{one.name}"] = one.default_factory
            default = f"=default_{one.name}"
            lines.append(f"    if {one.name} is default_{one.name}:")
            lines.append(f"        {one.name} = make_{one.name}()")
        names[f"set_{one.name}"] = getattr(cls, one.name).__set__  # of the slot
        parameters.append(one.name + default)
        lines.append("    " + line.format(one.name))
    # the names of our own fields, and nothing else, stand in this source
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join([*lines, f"    {last}"])
    exec(source, names)
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    # the annotations of the old one, for whoever reads the signature
    made.__annotations__ = vars(cls)["__init__"].__annotations__
    return made


def _unfit(cls: type) -> str:
    """Why the constructor of `dataclass` does more than to fill slots from its parameters; "" if
    it does not."""
    if not is_dataclass(cls) or "__slots__" not in vars(cls):
        return "it is not a dataclass with slots"
    if hasattr(cls, "__post_init__"):
        return "it has a __post_init__"
    # not so with init=False, kw_only and InitVar
    taken = [*signature(cls).parameters.values()]
    plain = [each.name for each in taken if each.kind is each.POSITIONAL_OR_KEYWORD]
    if plain != [field.name for field in fields(cls)]:
        return "its parameters are not its fields"
    return ""


# How a policy samples, which options of that nobody named, and what it took: tokens and tries.


class Unsaid:
    """Marks the value of an option that nobody named: an engine that computes takes it as it is,
    and an endpoint is not sent it."""


class _UnsaidNumber(float, Unsaid):
    pass


class _UnsaidCount(int, Unsaid):
    pass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a policy samples. Unset values are 1, 1 and off in engines that compute, and left to
    the server by engines that ask an endpoint; nothing is inherited from a model folder."""

    temperature: float = _UnsaidNumber(1.0)
    top_p: float = _UnsaidNumber(1.0)
    top_k: int = _UnsaidCount(0)
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply; None = the server did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    # of the prompt; tells how it was computed, not what was said
    cached_tokens: int | None = field(default=None, compare=False)
    # of the completion; None = the server did not tell them apart
    reasoning_tokens: int | None = field(default=None, compare=False)


@quick
@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a request that an engine had to repeat."""

    kind: str
    status: int | None = None
    wait_s: float = 0.0
    detail: str = ""


# Pixels as the bytes of a PNG, without a library: equal pixels give equal bytes on every machine.

STORED = 65_535  # bytes of one stored block, by the format


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A picture of `pixels`: red, green and blue of each, line by line from the top. Raises
    ValueError where their number does not fit."""
    if min(width, height) < 1 or len(pixels) != 3 * width * height:
        raise ValueError(f"{width} x {height} pixels take {3 * width * height} bytes")
    lines = (pixels[at : at + 3 * width] for at in range(0, len(pixels), 3 * width))
    # Every line begins with the number of its filter; 0 is none.
    data = b"".join(b"\0" + line for line in lines)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a colour, RGB
    parts = ((b"IHDR", head), (b"IDAT", _stored(data)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _stored(data: bytes) -> bytes:
    """The data in zlib's format, not compressed: what a compressor makes differs between versions,
    and the digest of an image stands in records that are replayed."""
    blocks = [data[at : at + STORED] for at in range(0, len(data), STORED)]
    last = len(blocks) - 1
    made = [
        struct.pack("<BHH", number == last, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    ]
    return b"\x78\x01" + b"".join(made) + struct.pack(">I", zlib.adler32(data))


# senders that are not agents
SCENARIO = "scenario"
SYSTEM = "system"
TOOL = "tool"
RESERVED_SENDERS = frozenset({SCENARIO, SYSTEM, TOOL})
# characters of one saying, where nothing else is set: four times what a model writes in 2,048
# tokens
MAX_SAID = 32_768


@quick
@dataclass(frozen=True, slots=True)
class Image:
    """An image part of a message, known by the SHA-256 of its bytes; the record stores the
    digest, the run folder the bytes."""

    digest: str
    media_type: str = "image/png"
    # not compared: a record that was read has no bytes and equals the one that was written
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, data: bytes, media_type: str = "image/png") -> Image:
        return cls(hashlib.sha256(data).hexdigest(), media_type, data)

    @classmethod
    def drawn(cls, pixels: Any) -> Image:
        """A picture of an array [height, width, 3] of bytes: red, green, blue. Raises ValueError
        for another shape or another type of numbers."""
        shape: Any = getattr(pixels, "shape", ())
        kind = str(getattr(pixels, "dtype", "")) or type(pixels).__name__
        if len(shape) != 3 or shape[2] != 3 or kind != "uint8":
            raise ValueError(f"pixels are uint8 [height, width, 3]; got {kind} {list(shape)}")
        return cls.of(png(shape[1], shape[0], pixels.tobytes()))


Content = str | tuple[str | Image, ...]


@quick
@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed request of an agent to run a tool; `arguments` are JSON values.

    `repaired`: what the parser had to correct, "" for nothing; ignored when calls are compared.
    """

    kind: ClassVar[str] = "call"
    id: str
    name: str
    arguments: dict[str, Any]
    # not compared: two ways to write one call are the same call
    repaired: str = field(default="", compare=False, repr=False)


@quick
@dataclass(frozen=True, slots=True)
class Malformed:
    """What was meant to be a tool call and could not be read. Data for the scenario, never an
    exception."""

    kind: ClassVar[str] = "malformed"
    text: str
    reason: str


@quick
@dataclass(frozen=True, slots=True)
class Message:
    """One visible message. It stores who sent it; the chat role depends on who looks (`role`)."""

    content: Content
    sender: str = SCENARIO
    tool_calls: tuple[ToolCall | Malformed, ...] = ()
    call_id: str = ""

    @classmethod
    def system(cls, content: Content) -> Message:
        """A briefing of the scenario."""
        return cls(content, SYSTEM)

    @classmethod
    def tool(cls, call_id: str, content: Content) -> Message:
        """The result of the tool call with this id."""
        return cls(content, TOOL, (), call_id)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part for part in self.content if isinstance(part, str))

    def role(self, observer: str) -> str:
        """Chat role in the eyes of an agent: its own lines are `assistant`, other agents and
        plain scenario text are `user`."""
        # an agent may be asked as the user of one play and the assistant of another
        if self.sender == observer:
            return "assistant"
        return self.sender if self.sender in (SYSTEM, TOOL) else "user"


@quick
@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an Ask offers: a name, one sentence, a JSON schema of the arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}, "required": []}
    )

    @property
    def schema(self) -> dict[str, Any]:
        """The function-calling form that chat templates and HTTP servers take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@quick
@dataclass(frozen=True, slots=True)
class Action:
    """What an agent did at a decision point. `parsed` = the legal string recognised in `text`, or
    None.

    `cut`: how many bytes of UTF-8 the driver's limit cut off; text and calls are the rest.
    """

    text: str = ""
    tool_calls: tuple[ToolCall | Malformed, ...] = ()
    parsed: str | None = None
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One request to an engine: the whole conversation as `agent` sees it."""

    agent: str
    messages: Sequence[Message]  # a tuple, or the transcript, which is as fixed
    tools: tuple[Tool, ...] = ()
    legal: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()
    # a stable digest of (episode seed, agent, turn, call): the same request draws the same tokens
    seed: int = 0
    conversation: str = ""  # "<episode>/<agent>": key of kept KV and of the last rendered ids
    turn: int = 0
    policy: str = ""


@quick
@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy sampled, exactly as sampled; nothing downstream encodes the text again.

    `prompt_ids`, `token_ids` and `logprobs` are () where the engine cannot give them: such a
    reply may be played, never trained on. `finish`: stop | length | context_overflow |
    content_filter. `images`: digests of the images that stand in the prompt, in order, of an
    engine that shows them to a local model. `version` = weights at the first sampled token.
    `reasoning`: what the model thought, without its tags; the text is what it said. `model`: the
    name that the server says it answered with, "" where it says none. `cut`: as in an Action.
    """

    text: str = ""
    tool_calls: tuple[ToolCall | Malformed, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = "stop"
    policy: str = ""
    version: int = 0
    usage: Usage = Usage()
    attempts: tuple[Attempt, ...] = ()
    cut: int = 0
    reasoning: str = ""
    model: str = field(default="", compare=False)  # of the server, not of what was said
    images: tuple[str, ...] = ()

    @property
    def sampled(self) -> int | None:
        """How many tokens it has: its ids, else what the server counted; None = it did not."""
        return len(self.token_ids) or self.usage.completion_tokens

    @property
    def silent(self) -> bool:
        """True where nothing was said, called, thought or sampled, and neither a filter nor a
        full context is the reason."""
        said = self.text.strip() or self.tool_calls or self.reasoning.strip() or self.token_ids
        return not said and self.finish in ("stop", "length")


@quick
@dataclass(frozen=True, slots=True)
class Turn:
    """One agent acted once. Turns of one step were asked together; none saw another's action."""

    step: int
    agent: str
    observed: tuple[Message, ...]  # new to this agent since its last turn, never the history again
    legal: tuple[str, ...] | None
    tools: tuple[Tool, ...]
    action: Action
    replies: tuple[Reply, ...] = ()  # every model call of this act; () for a bot

    @property
    def illegal(self) -> bool:
        """It names none of its legal strings, and calls none of the tools that were offered."""
        if self.legal is None or self.action.parsed is not None:
            return False
        offered = {tool.name for tool in self.tools}
        calls = self.action.tool_calls
        return not any(isinstance(call, ToolCall) and call.name in offered for call in calls)


def spoken(agent: str, action: Action) -> Message:
    """An agent's own action as it stands in its transcript."""
    return Message(action.text, agent, action.tool_calls)


@quick
@dataclass(frozen=True, slots=True)
class Asked:
    """What a behaviour gets when its agent must act.

    `turns`: the turns of all agents so far, for a behaviour that is given the task (privileged);
    () for every other.
    """

    new: tuple[Message, ...]
    transcript: Sequence[Message]
    legal: tuple[str, ...] | None
    tools: tuple[Tool, ...]
    step: int
    turns: Sequence[Turn] = ()
