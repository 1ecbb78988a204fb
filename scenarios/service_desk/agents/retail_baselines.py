"""Assistants that serve nobody. What they are paid shows what a grader gives for nothing; print
them beside every result."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from gem_ma.agents.bots import Bot
from gem_ma.scenarios.service_desk.agents.retail_talk import acts_of, called, need_task, say, use
from gem_ma.scenarios.service_desk.retail.store.tasks import INTENTS

from gem_ma import Action, Asked, Tool

# Words that could be a value; ids have a mark in front of them.
_SEEN = re.compile(r"#?\w[\w@.-]*\w")
_PER_MESSAGE = 40  # numbers that the spray tells at once


class RetailNothing(Bot):
    """Is polite and does nothing."""

    async def act(self, asked: Asked) -> Action:
        return say("Thank you for your message.")


class RetailTransfer(Bot):
    """Hands every customer over to a human at once."""

    async def act(self, asked: Asked) -> Action:
        return use("transfer_to_human_agents", summary="A customer wants something.")


class RetailRefuse(Bot):
    """Refuses whatever is wanted."""

    async def act(self, asked: Asked) -> Action:
        return say("I am sorry, that is not possible.")


class RetailEcho(Bot):
    """Says back what the customer said."""

    async def act(self, asked: Asked) -> Action:
        # An empty text would be a fault of its own, and this baseline shows what an echo is worth.
        return say(asked.new[-1].text if asked.new and asked.new[-1].text.strip() else "Yes?")


class RetailRandomCall(Bot):
    """Makes calls that fit their schemas, at random, out of the words that it has seen; every
    fourth turn it says that it is at work."""

    async def act(self, asked: Asked) -> Action:
        # A quarter of the turns it speaks, or the user would never act and the talk never end.
        if not asked.tools or self.rng.randrange(4) == 0:
            return say("One moment, please.")
        words = list(
            dict.fromkeys(
                word
                # Six messages and 400 words of each: results of tools are long, and old ids are of
                # no use.
                for message in asked.transcript[-6:]
                for word in _SEEN.findall(message.text)[:400]
            )
        ) or ["none"]
        tool: Tool = self.rng.choice(asked.tools)
        properties: Mapping[str, Any] = tool.parameters.get("properties", {})
        return use(
            tool.name, **{name: self._value(schema, words) for name, schema in properties.items()}
        )

    def _value(self, schema: Mapping[str, Any], words: list[str]) -> Any:
        # A closed list is kept to, or hardly a random call would reach the tool.
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        return [self.rng.choice(words)] if schema.get("type") == "array" else self.rng.choice(words)


class RetailGoldWrites(Bot):
    """Makes the solution's changes without a word to the customer: its database is right and its
    policy is not. Privileged."""

    privileged = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.writes = [
            (call.name, dict(call.arguments))
            for call in need_task(agent, task).actions
            # Its reads are left out: this one shows what writes alone are worth.
            if call.name in INTENTS and call.agent == agent
        ]

    async def act(self, asked: Asked) -> Action:
        left = list(self.writes)
        for message in acts_of(self.agent, asked.transcript):
            for call in called(message.tool_calls):
                if call in left:
                    left.remove(call)
        if left:
            name, arguments = left[0]
            # No question: it wants no yes.
            return use(name, **arguments)
        return say("All of this has been done.")


class RetailSpray(Bot):
    """Tells numbers, one after the other, in the hope that a wanted one is among them."""

    async def act(self, asked: Asked) -> Action:
        # Without end and without repeats, so that any whole number is told in time.
        first = _PER_MESSAGE * sum(1 for _ in acts_of(self.agent, asked.transcript))
        told = range(first, first + _PER_MESSAGE)
        return say(f"It is {', '.join(map(str, told))}.")
