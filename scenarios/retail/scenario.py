"""Retail customer service: the assistant has the tools, the user has a wish, and the database is the judge.

Type `gem-ma run retail`; `configs/retail_scripted.yaml` plays our own generated shop, `configs/retail_tau1.yaml` tau-bench's tasks. The two
talk by turns; calls of tools are answered here, by the episode's own store, and the user never sees them. Only the user's tool
`end_conversation`, the assistant's `transfer_to_human_agents` and the two bounds on actions end a talk; no word in a text does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.retail.grading import GRADERS, Outcome, gold_state
from gem_ma.scenarios.retail.schemas import TOOLS
from gem_ma.scenarios.retail.shop import OwnWorld
from gem_ma.scenarios.retail.source import VARIABLE
from gem_ma.scenarios.retail.store import SEMANTICS, RetailStore
from gem_ma.scenarios.retail.taubench import TauBench
from gem_ma.scenarios.retail.texts import EMPTY, GREETING, NOT_FIRST, ONE_CALL, POLICY, USER_BRIEFING, USER_EMPTY
from gem_ma.scenarios.service.task import Task

from gem_ma import Action, Ask, Episode, Malformed, Message, Reward, Scenario, Tell, Tool, ToolCall
from gem_ma.errors import ConfigError
from gem_ma.parsing import clean
from gem_ma.scenario import Play

OWN = "own"
REASONS = ("settled", "refused", "transferred", "gave_up", "out_of_scope")
END = Tool(
    "end_conversation",
    "Ends the conversation. settled: you got what you came for; refused: it cannot be done and you accept that; transferred: you were handed "
    "over; gave_up: the assistant does not help; out_of_scope: your situation does not say how to go on.",
    {"type": "object", "properties": {"reason": {"type": "string", "enum": list(REASONS)}}, "required": ["reason"]},
)
USER_TOOLS = (END,)
BASELINES = {"retail_nothing": 0.0, "retail_transfer": 0.0, "retail_echo": 0.0, "retail_refuse": 0.07}  # on the generated shop's test split
SOLUTION = ("actions", "outputs", "goal", "ends", "wishes", "knowledge", "flags", "proof", "raw")
GRACE = 3  # assistant actions between a text that comes with end_conversation and the end


class Retail(Scenario):
    """Customer service of a shop: an assistant with 16 tools and a user who wants something; paid by what became of the database."""

    agents = ("assistant", "user")
    version = 1
    cooperative = True  # both are paid the outcome
    chance = False
    private = {"user": ("instruction", *SOLUTION), "assistant": SOLUTION}  # the assistant sees no instruction, neither side the solution
    default_cast = {"assistant": "retail_scripted", "user": "retail_user"}

    def __init__(
        self,
        data: str | None = None,
        scoring: str = "canonical",
        semantics: str | None = None,
        max_actions: int = 30,
        max_user_actions: int = 40,
        users: int = 40,
        orders: int = 80,
        products: int = 20,
    ) -> None:
        """`data`: a tau-bench folder or checkout, `own` for the generated shop, None for TAU_BENCH_PATH or else the generated shop.

        `scoring`: `canonical` or `tau1`. `semantics`: how the tools behave, `tau1` (always on tau-bench's data) or `fixed` (default of the
        generated shop, whose size `users`, `orders` and `products` set). The talk ends when the assistant has acted `max_actions` times or the
        user `max_user_actions` times. Raises ConfigError for an option, DataError for a missing or damaged folder.
        """
        if scoring not in GRADERS:
            raise ConfigError(f"scenario.scoring: there is {' and '.join(GRADERS)}; got {scoring!r}")
        if semantics is not None and semantics not in SEMANTICS:
            raise ConfigError(f"scenario.semantics: there is {' and '.join(SEMANTICS)}; got {semantics!r}")
        for name, value, least in (("max_actions", max_actions, 1), ("max_user_actions", max_user_actions, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"scenario.{name}: a whole number of at least {least}; got {value!r}")
        folder = data if data is not None else os.environ.get(VARIABLE) or OWN
        if not isinstance(folder, (str, os.PathLike)):
            raise ConfigError(f"scenario.data: a folder, or {OWN!r} for the generated shop; got {data!r}")
        self.source: TauBench | OwnWorld
        if folder == OWN:
            self.source = OwnWorld(semantics or "fixed", users, orders, products)
        elif semantics == "fixed":
            raise ConfigError("scenario.semantics: 'fixed' is for the generated shop; tau-bench's data takes 'tau1'")
        else:
            self.source = TauBench(folder)
        self.scoring, self.semantics = scoring, self.source.semantics
        self.max_actions, self.max_user_actions = max_actions, max_user_actions
        self.ends_within = max_actions + max_user_actions
        self.baselines = BASELINES if folder == OWN and scoring == "canonical" else {}
        self.policy = self.source.policy() or POLICY

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split: `train`, `val`, `test` of the generated shop; the files `dev`, `test`, `train` of a folder."""
        return self.source.tasks(split)

    def provenance(self) -> dict[str, Any]:
        """Where the data come from: name, folder as given, SHA-256 digest, and the git commit of a checkout."""
        return self.source.provenance()

    def success(self, episode: Episode) -> bool | None:
        """Whether the outcome was paid in full; None where the grader could not score the task."""
        if any(entry.why == "unscored" for entry in episode.ledger):
            return None
        return any(entry.agent == "assistant" and entry.why == "outcome" and entry.value > 1 - 1e-6 for entry in episode.ledger)

    def play(self, rng: random.Random, task: Task | None) -> Play:
        """A play without a task is one of the first training task."""
        task = task or self.tasks("train")[0]
        desk = _Desk(RetailStore(self.source.world(task), self.semantics), strict=self.scoring != "tau1", shown=[self.policy])
        outcome = yield from self._talk(desk, USER_BRIEFING.format(instruction=task.instruction))
        end, gold = desk.store.copy().overlay, gold_state(desk.store.overlay.base, self.semantics, task)
        verdict = GRADERS[self.scoring](task, end, gold, outcome)
        why = "outcome" if verdict.scored else "unscored"
        yield Reward(dict.fromkeys(self.agents, verdict.reward), why=why)

    def _talk(self, desk: _Desk, briefing: str) -> Any:
        """Plays the talk and gives its Outcome."""
        to_user: tuple[Message, ...] = (Message.system(briefing), Message(GREETING, "assistant"))
        to_assistant: tuple[Message, ...] = (Message.system(self.policy),)
        leaving, grace = "", 0  # a reason given together with a text holds once the assistant has answered that text
        acted = asked = 0
        while True:
            if asked == self.max_user_actions:
                yield Tell({"user": to_user})
                return desk.outcome("limit")
            said = (yield Ask({"user": to_user}, tools=USER_TOOLS))["user"]
            asked += 1
            reason, fault = _ending(said)
            if reason and not said.text.strip():
                return desk.outcome("user", reason)
            if fault:
                to_user = fault
                continue
            leaving, grace = reason, GRACE
            to_assistant = (*to_assistant, Message(said.text, "user"))
            desk.shown.append(said.text)
            answer = ""
            while not answer:
                if acted == self.max_actions or (leaving and not grace):
                    yield Tell({"assistant": to_assistant})
                    return desk.outcome("user" if leaving else "limit", leaving)
                did = (yield Ask({"assistant": to_assistant}, tools=TOOLS))["assistant"]
                acted, grace = acted + 1, grace - 1
                to_assistant = desk.answer(did)
                if desk.transferred:
                    yield Tell({"assistant": to_assistant})
                    return desk.outcome("transfer")
                answer = "" if to_assistant else did.text
            to_user = (Message(answer, "assistant"),)
            if leaving:
                yield Tell({"user": to_user})
                return desk.outcome("user", leaving)


@dataclass(slots=True)
class _Desk:
    """The assistant's side of one talk: the store, and the rules of a turn."""

    store: RetailStore
    strict: bool  # a call must stand alone; tau1 runs the first and ignores what stands beside it
    shown: list[str]
    said: list[str] = field(default_factory=list)
    transferred: bool = False

    def answer(self, did: Action) -> tuple[Message, ...]:
        """What the assistant sees of its own action; () where it was a message to the user."""
        calls = did.tool_calls
        if not calls:
            if not did.text.strip():
                return (Message(EMPTY),)
            self.said.append(did.text)
            return ()
        if self.strict and (len(calls) > 1 or did.text.strip()):
            return tuple(_result(call, ONE_CALL) for call in calls)
        return (_result(calls[0], self._run(calls[0])), *(_result(call, NOT_FIRST) for call in calls[1:]))

    def _run(self, call: ToolCall | Malformed) -> str:
        if isinstance(call, Malformed):
            return f"Error: malformed: {call.reason}"
        observation = self.store.call(call.name, call.arguments)
        if self.store.terminates(call.name):
            self.transferred = not (self.strict and observation.startswith("Error: "))
        self.shown.append(observation)
        return observation

    def outcome(self, by: str, reason: str = "") -> Outcome:
        return Outcome(by, reason, tuple(self.said), tuple(self.shown))


def _result(call: ToolCall | Malformed, text: str) -> Message:
    return Message.tool(call.id if isinstance(call, ToolCall) else "", clean(text))


def _ending(said: Action) -> tuple[str, tuple[Message, ...]]:
    """The reason with which the user ends the talk, if it does, and what it is told where its action is none."""
    if not said.tool_calls:
        return "", () if said.text.strip() else (Message(USER_EMPTY),)
    call = said.tool_calls[0]
    if len(said.tool_calls) > 1:
        fault = ONE_CALL
    elif isinstance(call, Malformed):
        fault = f"Error: malformed: {call.reason}"
    elif call.name != END.name:
        fault = f"Unknown action {call.name}"
    elif isinstance(call.arguments, dict) and call.arguments.get("reason") in REASONS:  # a tuple: what cannot be hashed is none of them
        return call.arguments["reason"], ()
    else:
        fault = f"Error: reason must be one of {', '.join(REASONS)}"
    return "", tuple(_result(call, fault) for call in said.tool_calls)
