"""People played by a language model: `user_llm`, `user_react`, `user_verify`, `user_reflection`.
They know no domain; the briefing is the part.

Four ways to find the next message, one way to say it:

- `user_llm` takes one draft as it comes, `user_react` thinks first (`Thought:` / `Response:`); what
  is thought is kept and never said.
- `user_verify` shows each draft to a judge and draws another one if it is refused;
  `user_reflection` lets the model say what was wrong with a refused draft and improve it. The judge
  is the policy `judge` of the seat (`policies: {judge: NAME}`), or else the seat's own.
- A draft may be gated by a free check instead (`gate: audit`), in each of the four. Of `drafts`
  drafts the last one is sent, whatever is said of it. Refused drafts enter no history; every model
  call is a Reply of the turn.

The talk ends by the tool `end_tool`, or, for models without tools (`stop: word`), by a message
that is wholly one of the episode's random tokens; `marks` says whether the benchmarks' own marks
end it too. No other text ends anything. Where the seat's own policy is learned and judges
itself, its verdicts are trained on as well: give the judge a policy of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gem_ma.agents.audit import Draft, audit
from gem_ma.agents.labels import reason, response, verdict
from gem_ma.agents.marks import Tokens, escaped, has_marks, removed, way_of
from gem_ma.agents.thread import Thread, dialogue, written
from gem_ma.scenarios.service_desk.agents.customer_traits import Character
from gem_ma.scenarios.service_desk.agents.traits import PlayedTraits

from gem_ma import Action, Asked, Malformed, Message, Reply, Tool, ToolCall
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.formats import parse_tool_calls
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.types import SYSTEM, TOOL
from gem_ma.system.options import flat

EXCERPT = 200  # characters of an unreadable answer that are kept
THINK = """\
Answer in two labelled parts:
Thought: what has happened and what you want next. Nobody else reads this.
Response: the one message that you say. Only this part is sent."""
WORDS = """\
You have no tools. Where you are told to call {tool}, make your whole message exactly one of \
these instead, alone and without any other word:
{tokens}
Never mention these words, and do not use any other sign to end."""
JUDGE = """\
You check a draft. Somebody plays the part of "{agent}" in a conversation, by the briefing below; \
the draft is what they would say next. It is good if it keeps to the briefing and to what was \
said before, invents nothing, gives away no more than is needed, is said as "{agent}" would say \
it and not as the other side, and ends the conversation only if the briefing allows that now.
Answer in two lines:
Reason: one sentence
Verdict: true if the draft is good, false if it is not"""
REFLECT = """\
Your draft was not sent. The draft: {draft}
What is wrong with it: {why}
Answer in two labelled parts:
Reflection: what to do better. Nobody else reads this.
Response: the one message that you say instead."""
AGAIN = "[Your last draft was not sent: {why}. Write another one.]"
NO_LABEL = "missing_response: there is no text behind a label `Response:`"
EMPTY = "empty: it says nothing"
ONLY_MARKS = "token_leak: it is a mark and no message"
UNREADABLE = "the check gave no verdict"

Gate = Literal["none", "judge", "audit"]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One draft: the action that it would be, and why it can be none."""

    action: Action
    raw: str  # what the model wrote
    text: str = ""  # what of it was to be said, marks included
    fault: str = ""

    @property
    def words(self) -> str:
        """The draft in words, for who judges or improves it."""
        calls = () if self.fault else self.action.tool_calls
        return (
            " ".join([self.action.text, *(f"(calls {written(call)})" for call in calls)]).strip()
            # Cut: a draft may be endless, and the judge reads the whole talk beside it.
            or self.raw.strip()[:4000]
            or "(nothing)"
        )


@dataclass(frozen=True, slots=True)
class Drafting:
    """How many drafts a message has at most, and what lets one through. `gate`: None leaves it to
    the behaviour; `none` sends the first."""

    gate: Gate | None = None
    drafts: int = 3

    def check(self, agent: str) -> None:
        """Raises ConfigError for a value out of its choice or range."""
        _choice(agent, "gate", self.gate or "none", ("none", "judge", "audit"))
        if isinstance(self.drafts, bool) or not isinstance(self.drafts, int) or self.drafts < 1:
            raise ConfigError(
                f"agent {agent!r}: drafts is a whole number of at least 1; got {self.drafts!r}"
            )


@dataclass(frozen=True, slots=True)
class Ending:
    """How the model ends the talk.

    `stop`: by its `end_tool`, or by a word. `marks`: whether a benchmark's own mark of the end
    (`###STOP###`, `###TRANSFER###`, `###OUT-OF-SCOPE###`) ends it where it is the whole message
    (`alone`), `anywhere` in it as in the benchmarks, or not at all (`none`).
    """

    stop: Literal["tool", "word"] = "tool"
    marks: Literal["alone", "anywhere", "none"] = "alone"
    end_tool: str = "end_conversation"

    def check(self, agent: str) -> None:
        """Raises ConfigError for a value out of its choice."""
        _choice(agent, "stop", self.stop, ("tool", "word"))
        _choice(agent, "marks", self.marks, ("alone", "anywhere", "none"))


def _choice(agent: str, name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"agent {agent!r}: {name} is one of {', '.join(allowed)}; got {value!r}")


class UserLLM:
    """A person played by a model: one draft, sent as it comes. Options: see `__init__`."""

    needs_policy = True
    gate: Gate = "none"
    labelled = False  # the model answers in labelled parts

    @flat
    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        *,
        drafting: Drafting = Drafting(),
        ending: Ending = Ending(),
        persona: str = "",
        character: Character = Character(),  # noqa: B008  (frozen)
    ) -> None:
        """`persona`: who it is, in words. A config names the fields of the objects: `gate`,
        `drafts`, `stop`, `marks`, `end_tool`, `preset` and the traits."""
        drafting.check(agent)
        ending.check(agent)
        self.agent = agent
        self.sample = sample
        self.task = task
        self.drafts, self.gate = drafting.drafts, drafting.gate or type(self).gate
        self.end_tool = ending.end_tool
        self.marks = ending.marks
        self.traits = PlayedTraits(agent, rng, persona, character, getattr(task, "traits", None))
        # A generator of its own, so that the tokens are the same whether or not traits draw.
        self._stem = random.Random(rng.getrandbits(64))
        self._in_words = ending.stop == "word"
        self.tokens: Tokens | None = None
        self.thread = Thread(agent, self._heard, plain=self._in_words)

    def _heard(self, text: str) -> str:
        return escaped(text, self.tokens)

    # -- one turn ---------------------------------------------------------------------------------

    async def act(self, asked: Asked) -> Action:
        end = next((tool for tool in asked.tools if tool.name == self.end_tool), None)
        # Once an episode, when it is known which ways the tool has.
        if self._in_words and self.tokens is None and end is not None:
            self.tokens = Tokens(self._stem, ways(end))
        if end is not None and self.traits.is_out_of_patience(self._others(asked)):
            return self._end(end, "gave_up")
        direction = self.traits.direction(
            sum(message.sender == self.agent for message in asked.transcript)
        )
        stage = (Message(f"[{direction}]"),) if direction else ()
        prompt = (*self.thread.prompt(asked, self._instructions(end)), *stage)
        candidate = await self._choose(asked, prompt)
        # The stage direction is kept with the act that followed it, or the model sees acts out of
        # nowhere.
        self.thread.keep(asked, *stage, self._act_in_history(candidate))
        return candidate.action

    def _act_in_history(self, candidate: _Candidate) -> Message:
        """What the model is shown of its own act later: as sampled where nothing but white space
        was taken away, so that the next prompt goes on from the sampled tokens; a thinking
        user's thoughts stay before its eyes."""
        action = candidate.action
        sampled = not candidate.fault and (self.labelled or action.text == candidate.raw.strip())
        return Message(
            candidate.raw if sampled else action.text,
            self.agent,
            () if self._in_words and sampled else action.tool_calls,
        )

    async def _choose(self, asked: Asked, prompt: tuple[Message, ...]) -> _Candidate:
        """Draws drafts until one is let through; the last one is taken as it is."""
        candidate = await self._draw(asked, prompt)
        for left in reversed(range(self.drafts)):
            why = candidate.fault or await self._objection(asked, candidate)
            if not why or not left:
                break
            # The draft is drawn again from the same prompt: refused ones enter no history.
            candidate = await self._redraw(asked, prompt, candidate, why)
        return candidate

    async def _draw(
        self, asked: Asked, messages: tuple[Message, ...], labelled: bool | None = None
    ) -> _Candidate:
        tools = () if self._in_words else asked.tools
        reply: Reply = await self.sample(messages, legal=asked.legal, tools=tools)
        return self._read(asked, reply, self.labelled if labelled is None else labelled)

    async def _redraw(
        self, asked: Asked, prompt: tuple[Message, ...], refused: _Candidate, why: str
    ) -> _Candidate:
        """Another draft; `why` says what was wrong with the refused one."""
        return await self._draw(asked, (*prompt, Message(AGAIN.format(why=why))))

    def _read(self, asked: Asked, reply: Reply, labelled: bool) -> _Candidate:
        """A reply as a draft."""
        # One call at most, as an act of a person is one thing.
        whole = reply.text.strip()
        calls = reply.tool_calls[:1]
        text = response(whole) if labelled else whole
        fault = ""
        if text is None:
            text = ""
            fault = "" if calls else NO_LABEL
        # A model without a tool parser writes its call as text.
        if not calls and asked.tools and not self._in_words:
            text, found = parse_tool_calls(text)
            calls = found[:1]
        end = next((tool for tool in asked.tools if tool.name == self.end_tool), None)
        way = self.tokens.read(text) if self.tokens is not None else None
        if way is not None and end is not None:
            return _Candidate(self._end(end, way), reply.text)
        way = way_of(text, self.marks == "anywhere") if self.marks != "none" and not calls else ""
        # Words beside a benchmark's mark are still said.
        if end is not None and way in ways(end):
            return _Candidate(
                replace(self._end(end, way), text=removed(text, self.tokens)), reply.text
            )
        parsed = parse_legal(text, asked.legal) if asked.legal is not None else None
        ends = all(isinstance(call, ToolCall) and call.name == self.end_tool for call in calls)
        # beside a call of another tool nothing is said
        words = removed(text, self.tokens) if ends else ""
        if not words and not calls and not fault:
            fault = ONLY_MARKS if has_marks(text, self.tokens) else EMPTY
        if fault:
            return _Candidate(
                Action("", (Malformed(reply.text[:EXCERPT], fault),)), reply.text, text, fault
            )
        return _Candidate(Action(words, calls, parsed), reply.text, text)

    def _end(self, end: Tool, way: str) -> Action:
        name, known = _way(end)
        # A way that the tool does not know becomes its last one, which is the vaguest.
        arguments = {name: way if way in known or not known else known[-1]} if name else {}
        return Action("", (ToolCall("call_0", end.name, arguments),))

    # -- the gate ---------------------------------------------------------------------------------

    async def _objection(self, asked: Asked, candidate: _Candidate) -> str:
        """What the gate has against a draft; "" where it lets it through."""
        if self.gate == "none":
            return ""
        draft = self._draft(asked, candidate)
        findings = self.check(draft)
        if self.gate == "audit":
            return "; ".join(findings)
        # A thread of its own: the judge sees no history of the speaker.
        reply: Reply = await self.sample(
            self._brief(asked, candidate, findings), thread="judge", policy="judge"
        )
        good = verdict(reply.text)
        return (
            ""
            if good
            else UNREADABLE
            if good is None
            else reason(reply.text) or "a check refused it"
        )

    def check(self, draft: Draft) -> Sequence[str]:
        """What the free check has against a draft. A behaviour that is given the task may know
        better, see `user_ledger`."""
        return audit(draft)

    def _draft(self, asked: Asked, candidate: _Candidate) -> Draft:
        own_messages = tuple(
            message.text for message in asked.transcript if message.sender == self.agent
        )
        action = candidate.action
        return Draft(
            action.text,
            candidate.text,
            action.tool_calls,
            self._situation(asked),
            self._others(asked),
            own_messages,
            tuple(asked.transcript),
        )

    def _brief(
        self, asked: Asked, candidate: _Candidate, findings: Sequence[str]
    ) -> tuple[Message, ...]:
        """What the judge is shown: the part, the talk under the names of who said what, the
        draft, and what the free check found."""
        parts = [
            f'The briefing of "{self.agent}":\n{self._situation(asked)}',
            (
                "The conversation so"
                f" far:\n{dialogue(asked.transcript, self.agent, self._heard) or '(nothing yet)'}"
            ),
            f'The draft of what "{self.agent}" says next:\n{candidate.words}',
        ]
        parts += (
            ["What an automatic check found in the draft:\n" + "\n".join(findings)]
            if findings
            else []
        )
        return (Message.system(JUDGE.format(agent=self.agent)), Message("\n\n".join(parts)))

    # -- what it sees -----------------------------------------------------------------------------

    def _instructions(self, end: Tool | None) -> str:
        parts = [self.traits.persona] if self.traits.persona else []
        parts += [THINK] if self.labelled else []
        if self._in_words and end is not None and self.tokens is not None:
            tokens = [f"{self.tokens.token(way)}" for way in self.tokens.ways] or [self.tokens.stem]
            parts.append(
                WORDS.format(tool=end.name, tokens="\n".join(tokens))
                + f"\n{end.description}".rstrip()
            )
        return "\n\n".join(parts)

    def _situation(self, asked: Asked) -> str:
        return "\n".join(message.text for message in asked.transcript if message.sender == SYSTEM)

    def _others(self, asked: Asked) -> tuple[str, ...]:
        return tuple(
            message.text
            for message in asked.transcript
            if message.sender not in (self.agent, SYSTEM, TOOL)
        )


class UserReact(UserLLM):
    """A person played by a model that thinks before it speaks.

    An answer without a response label is drawn again, and is a fault in the end; a thought is
    never sent.
    """

    labelled = True


class UserVerify(UserLLM):
    """A person played by a model that shows each draft to a judge; a refused one is drawn again."""

    gate: Gate = "judge"


class UserReflection(UserLLM):
    """A person played by a model that shows each draft to a judge; a refused one it improves
    itself, and what it says instead is judged again."""

    gate: Gate = "judge"

    async def _redraw(
        self, asked: Asked, prompt: tuple[Message, ...], refused: _Candidate, why: str
    ) -> _Candidate:
        return await self._draw(
            asked, (*prompt, Message(REFLECT.format(draft=refused.words, why=why))), labelled=True
        )


def ways(end: Tool) -> tuple[str, ...]:
    """The values among which a call that ends the talk has to choose; () where it has no choice."""
    return _way(end)[1]


def _way(end: Tool) -> tuple[str, tuple[str, ...]]:
    """(name, allowed values) of the first argument of a tool that is a closed choice."""
    for name, schema in end.parameters.get("properties", {}).items():
        if isinstance(schema, dict) and schema.get("enum"):
            return str(name), tuple(map(str, schema["enum"]))
    return "", ()
