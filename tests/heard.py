"""The scripted customer of the shop, spoken to directly."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser
from gem_ma.scenarios.service_desk.retail import Task, Wish

from gem_ma import Action, Asked, Message, ToolCall


class Heard:
    """A customer with a task, perhaps with other wishes than the task's."""

    def __init__(self, task: Task, *wishes: Wish, seed: int = 0, **options: Any) -> None:
        wanted = replace(task, wishes=wishes or task.wishes)
        self.user = RetailUser("user", None, random.Random(seed), wanted, **options)
        self.opening = self.hear("Hi! How can I help you today?").text

    def hear(self, text: str) -> Action:
        new = (Message(text, "assistant"),)
        return asyncio.run(self.user.act(Asked(new, new, None, (), 0)))

    def says(self, text: str) -> str:
        return self.hear(text).text


def ended(action: Action) -> str:
    call = action.tool_calls[0] if action.tool_calls else None
    return call.arguments["reason"] if isinstance(call, ToolCall) else ""
