"""The records: what is said, what is done, what is paid. Data only; behaviour is functions over
them.

All records are frozen, compare by value and travel as JSON (`gem_ma.codec`). Words: a *step* is
one decision point, a *turn* is one agent's action at it. An `Episode` is the only thing that
training, evaluation and the viewer read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

SCENARIO, SYSTEM, TOOL = "scenario", "system", "tool"  # senders that are no agents
RESERVED_SENDERS = frozenset({SCENARIO, SYSTEM, TOOL})
# characters of one saying, where nothing else is set: four times what a model writes in 2,048
# tokens
MAX_SAID = 32_768


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


Content = str | tuple[str | Image, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed request of an agent to run a tool; `arguments` are JSON values.

    `repaired`: what its reader had to put right, "" for nothing; no part of what the call is.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    # not compared: two ways to write one call are the same call
    repaired: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Malformed:
    """What was meant to be a tool call and could not be read. Data for the scenario, never an
    exception."""

    text: str
    reason: str


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


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent did at a decision point. `parsed` = the legal string recognised in `text`, or
    None.

    `cut`: bytes of UTF-8 by which what was said is longer than the driver's limit on it; text
    and calls are what is left.
    """

    text: str = ""
    tool_calls: tuple[ToolCall | Malformed, ...] = ()
    parsed: str | None = None
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a policy samples. Every field is sent explicitly; nothing is inherited from a model
    folder or a server."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply; None = the server did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    # of the prompt; tells how it was computed, not what was said
    cached_tokens: int | None = field(default=None, compare=False)
    # of the completion; None = the server did not tell them apart
    reasoning_tokens: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a request that an engine had to repeat."""

    kind: str
    status: int | None = None
    wait_s: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy sampled, exactly as sampled; nothing downstream encodes the text again.

    `prompt_ids`, `token_ids` and `logprobs` are () where the engine cannot give them: such a
    reply may be played, never trained on. `finish`: stop | length | context_overflow |
    content_filter. `version` = weights at the first sampled token. `reasoning`: what a server
    gives apart from the answer as the model's thinking. `model`: the name that the server says
    it answered with, "" where it says none. `cut`: as in an Action.
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

    @property
    def silent(self) -> bool:
        """True where nothing was said, called, thought or sampled, and neither a filter nor a
        full context is the reason."""
        said = self.text.strip() or self.tool_calls or self.reasoning.strip() or self.token_ids
        return not said and self.finish in ("stop", "length")


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the reward ledger. `step` = last committed decision point, -1 before the
    first."""

    step: int
    agent: str
    value: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a `Call` effect gave after decision point `step`: a JSON value, or the text of an
    error."""

    step: int
    value: Any = None
    error: str | None = None


class End(Enum):
    """How an episode ended."""

    TERMINATED = "terminated", "The scenario reached its own end."
    MAX_STEPS = "max_steps", "The driver's limit on decision points cut the play."
    MAX_TURNS = "max_turns", "The driver's limit on turns cut the play."
    MAX_TOKENS = "max_tokens", "The driver's limit on sampled tokens cut the play."
    TIMEOUT = "timeout", "The driver's wall-clock limit cut the play."
    CONTEXT = "context", "A prompt no longer fitted the context of a model."
    INTERRUPTED = "interrupted", "The run was stopped; neither trained on nor scored."
    FAILED = (
        "failed",
        (
            "Code outside the agents failed (scenario, engine, call); neither trained on nor"
            " scored, always counted."
        ),
    )

    def __new__(cls, value: str, doc: str) -> End:
        # an Enum has no place for a docstring per member, so each brings its own
        member = object.__new__(cls)
        member._value_ = value
        member.__doc__ = doc
        return member

    @property
    def bootstraps(self) -> bool:
        """True for a truncation: the play could have gone on, so a value may stand in for the
        rest."""
        # an interrupted play is no truncation: it will be played again from its start
        return self in (End.MAX_STEPS, End.MAX_TURNS, End.MAX_TOKENS, End.TIMEOUT, End.CONTEXT)

    @property
    def scored(self) -> bool:
        """True where the episode counts in scores and updates."""
        return self not in (End.INTERRUPTED, End.FAILED)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the driver; None = none. They are not rules of the scenario.

    `max_said`: characters of one saying, and of the arguments of its calls; what is beyond is
    cut off, counted, and ends nothing.
    """

    max_steps: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    max_said: int | None = MAX_SAID


@dataclass(frozen=True, slots=True)
class Seat:
    """Who plays an agent: a behaviour id with its options, and the policy it samples from, if
    any."""

    behaviour: str = "direct"
    policy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    privileged: bool = False  # the behaviour was given the task (oracle, scripted user)
    # further ones, by what the behaviour calls them: {"judge": name}
    policies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Episode:
    """One play: the only thing that training, evaluation and the viewer read. Returns, success and
    views are derived.

    `task` is `<split>/<index>`; `group` names episodes that share a start; `final` holds, per
    agent, the messages after its last turn, an unanswered Ask included; `forks` are (step, seed)
    pairs at which the play's random generator was reseeded.
    """

    scenario: str
    version: int
    seed: int
    task: str
    repeat: int
    group: str | None
    cast: Mapping[str, Seat]
    turns: tuple[Turn, ...]
    calls: tuple[CallResult, ...]
    forks: tuple[tuple[int, str], ...]
    final: Mapping[str, tuple[Message, ...]]
    ledger: tuple[Entry, ...]
    end: End
    error: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the scenario

    @property
    def id(self) -> tuple[str, int, int]:
        """(task, seed, repeat): unique in a run."""
        return (self.task, self.seed, self.repeat)

    def returns(self) -> dict[str, float]:
        """Undiscounted sum of the ledger per agent of the cast."""
        # agents that were never paid have 0, not nothing
        totals = dict.fromkeys(self.cast, 0.0)
        for entry in self.ledger:
            totals[entry.agent] = totals.get(entry.agent, 0.0) + entry.value
        return totals

    def transcript(self, agent: str) -> tuple[Message, ...]:
        """Everything that the agent saw and said, in order."""
        seen: list[Message] = []
        for turn in self.turns:
            if turn.agent == agent:
                seen += turn.observed
                seen.append(spoken(agent, turn.action))
        return (*seen, *self.final.get(agent, ()))


def spoken(agent: str, action: Action) -> Message:
    """An agent's own action as it stands in its transcript."""
    return Message(action.text, agent, action.tool_calls)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a behaviour gets when its agent must act."""

    new: tuple[Message, ...]
    transcript: Sequence[Message]
    legal: tuple[str, ...] | None
    tools: tuple[Tool, ...]
    step: int
