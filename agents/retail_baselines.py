"""Assistants that serve nobody. What they are paid shows what a grader gives for nothing; print them beside every result."""

from __future__ import annotations

import random
from typing import Any

from gem_ma.agents.retail_talk import say, use

from gem_ma import Action, Asked


class _Baseline:
    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.rng = rng


class RetailNothing(_Baseline):
    """Is polite and does nothing."""

    async def act(self, asked: Asked) -> Action:
        return say("Thank you for your message.")


class RetailTransfer(_Baseline):
    """Hands every customer over to a human at once."""

    async def act(self, asked: Asked) -> Action:
        return use("transfer_to_human_agents", summary="A customer wants something.")


class RetailRefuse(_Baseline):
    """Refuses whatever is wanted."""

    async def act(self, asked: Asked) -> Action:
        return say("I am sorry, that is not possible.")


class RetailEcho(_Baseline):
    """Says back what the customer said."""

    async def act(self, asked: Asked) -> Action:
        return say(asked.new[-1].text if asked.new and asked.new[-1].text.strip() else "Yes?")
