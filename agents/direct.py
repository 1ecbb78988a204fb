"""The plain behaviour: show the policy the whole transcript, take its reply as the action; and the
same with the choices shown."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gem_ma import Action, Asked, Message
from gem_ma.kernel.parsing.legal import parse_action


class Direct:
    """One model call per turn, nothing added."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.sample = sample

    async def act(self, asked: Asked) -> Action:
        reply = await self.sample(self.shown(asked), legal=asked.legal, tools=asked.tools)
        # Calls and text alike are passed on: a scenario decides what may stand beside a call.
        if reply.tool_calls:
            return Action(reply.text, reply.tool_calls)
        return parse_action(reply.text, asked.legal)

    def shown(self, asked: Asked) -> Sequence[Message]:
        """What the policy is shown."""
        return asked.transcript


class Choices(Direct):
    """As `direct`, with the legal strings behind each question that has some: a model behind an
    endpoint is told of them by nobody else."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.told: dict[int, Message] = {}  # length of the transcript -> what was said behind it

    def shown(self, asked: Asked) -> Sequence[Message]:
        if asked.legal:
            words = f"Answer with one of these, and nothing else: {' | '.join(asked.legal)}"
            self.told[len(asked.transcript)] = Message(words, "scenario")
        # what was told before stays in its place: a prompt grows by appending
        shown = []
        for place, message in enumerate(asked.transcript):
            shown += [self.told[place]] if place in self.told else []
            shown.append(message)
        last = self.told.get(len(asked.transcript))
        return [*shown, last] if last is not None and asked.legal else shown
