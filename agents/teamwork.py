"""A member of a team (`docs/parties/teamwork.md`) that plays the rules' own questions as another
behaviour does, and keeps to a script where the team talks."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from gem_ma.agents import CATALOG
from gem_ma.agents.bots import chosen
from gem_ma.agents.options import probability

from gem_ma import Action, Asked, Message
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.legal import parse_action

TEAM = "team"
RIGHT = "The right answer is: "
MINE = "I get: "
_PICK = re.compile(r"\b(first|second), of (\w{1,40})\b")
_FACT = re.compile(r"<facts>([^<]{1,200})")


class Member:
    """Answers as the behaviour `plays` would. Reviews by what it would answer itself, follows who
    objects or plans, hints by how long the answer is, quotes a fact, and believes whose quotes are
    verified. With probability `slips` it does any of these at random."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        plays: str = "random_legal",
        slips: float = 0.0,
        **options: Any,
    ) -> None:
        """`options` are those of `plays`."""
        self.agent = agent
        self.rng = rng
        self.slips = probability(agent, "slips", slips)
        if plays not in CATALOG:
            raise ConfigError(f"agent {agent!r}: plays is a behaviour by its id; got {plays!r}")
        module, _, name = CATALOG[plays].partition(":")
        factory = getattr(import_module(module), name)
        needs_task = getattr(factory, "privileged", False)
        if needs_task and not type(self).privileged:
            raise ConfigError(
                f"agent {agent!r}: {plays} is given the task; take behaviour: team_expert"
            )
        given = {"task": task} if needs_task else {}
        self.alone = factory(agent, sample, rng, **given, **options)

    privileged = False

    async def act(self, asked: Asked) -> Action:
        last = asked.new[-1] if asked.new else Message("")
        is_talk = last.sender == TEAM
        words = last.text
        if self.slips and self.rng.random() < self.slips:
            choice = self.rng.choice(asked.legal or ("0", "1", "yes", "no"))
            return chosen(choice) if asked.legal else Action(choice)
        if asked.legal and set(asked.legal) == {"approve", "object"}:
            return await self.review(asked)
        if asked.legal == ("first", "second"):
            return self.judge(asked, words)
        if not is_talk or words.startswith(("Answer again", "The answers of all")):
            return await self.answer(asked)
        if words.startswith("Help"):
            return self.hint(asked)
        if words.startswith("Why"):
            return self.argue(asked)
        return await self.suggest(asked)

    async def own(self, asked: Asked, legal: Sequence[str] | None) -> Action:
        """What it would answer to the rules, of whose talk it sees nothing else."""
        rules = tuple(m for m in asked.transcript[1:] if m.sender in ("scenario", "system", "tool"))
        mine = tuple(m for m in asked.transcript[1:] if m.sender in ("scenario", self.agent))
        said = await self.alone.act(
            replace(asked, new=rules[-1:], transcript=mine if legal else rules, legal=legal)
        )
        return parse_action(said, legal) if isinstance(said, str) else said

    async def answer(self, asked: Asked) -> Action:
        """As whoever objects or plans says, where that can be played; else its own."""
        for message in reversed(asked.new):
            heard = message.text.partition(MINE)[2].removesuffix("\nobject")
            if heard and message.sender != self.agent:
                said = parse_action(heard, asked.legal)
                if not asked.legal or said.parsed:
                    return said
        return await self.own(asked, asked.legal)

    async def review(self, asked: Asked) -> Action:
        draft = next(m.text for m in reversed(asked.new) if m.sender not in (TEAM, "scenario"))
        own = (await self.own(asked, None)).text
        if _bare(own) == _bare(draft):
            return chosen("approve")
        return Action(f"{MINE}{own}\nobject", (), "object")

    async def suggest(self, asked: Asked) -> Action:
        own = (await self.own(asked, asked.legal)).text
        if asked.legal:
            choice = own if own in asked.legal else self.rng.choice(asked.legal)
            return chosen(choice)
        return Action(f"{MINE}{own}")

    def hint(self, asked: Asked) -> Action:
        told = next((m.text for m in asked.transcript if m.text.startswith(RIGHT)), RIGHT)
        answer = told.removeprefix(RIGHT)
        if asked.legal:
            # the same word for the same answer: numbers by their size, others by their first letter
            place = int(answer) if answer.isdecimal() else sum(map(ord, answer[:1]))
            choice = asked.legal[place % len(asked.legal)]
            return chosen(choice)
        return Action(f"Its length is {len(answer)}." if answer else "I do not know.")

    def argue(self, asked: Asked) -> Action:
        if asked.legal:
            choice = self.rng.choice(asked.legal)
            return chosen(choice)
        facts = [fact for m in asked.transcript for fact in _FACT.findall(m.text)]
        return Action(f"<quote>{facts[-1].strip()}</quote>" if facts else "I stand by it.")

    def judge(self, asked: Asked, words: str) -> Action:
        weight = {pick: self.weight(asked.new, who) for pick, who in _PICK.findall(words)}
        most = max(weight.values(), default=0)
        best = [pick for pick in weight if weight[pick] == most] or list(asked.legal or ())
        choice = self.rng.choice(best)
        return chosen(choice)

    def weight(self, heard: Sequence[Message], who: str) -> int:
        said = "".join(message.text for message in heard if message.sender == who)
        return said.count("<verified>") - said.count("<unverified>")


class Expert(Member):
    """The same, for behaviours that are given the task, as `question_oracle`."""

    privileged = True


def _bare(text: str) -> str:
    return text.casefold().rpartition("answer:")[2].strip().rstrip(".")
