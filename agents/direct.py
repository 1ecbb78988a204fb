"""The plain behaviour: show the policy the whole transcript, take its reply as the action."""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Action, Asked
from gem_ma.kernel.parsing.legal import parse_action


class Direct:
    """One model call per turn, nothing added."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.sample = sample

    async def act(self, asked: Asked) -> Action:
        reply = await self.sample(asked.transcript, legal=asked.legal, tools=asked.tools)
        # Calls and text alike are passed on: a scenario decides what may stand beside a call.
        if reply.tool_calls:
            return Action(reply.text, reply.tool_calls)
        return parse_action(reply.text, asked.legal)
