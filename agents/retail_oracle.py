"""An assistant that knows the task and keeps the policy: its success with a user is that user's ceiling.

Identify, read, propose, wait for a yes, write, tell the facts. Privileged: it is given the task, and may not sit where a policy learns.
"""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma.agents.retail_talk import EMAIL, Script, Scripted, change, is_yes, need_task, proposal, say, use

WRITES = re.compile(r"(cancel|modify|return|exchange)_")


class RetailOracle(Scripted):
    """Serves the task's solution by the book."""

    privileged = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__()
        self.task = need_task(agent, task)

    def script(self, heard: str) -> Script:
        task, writes = self.task, [wish for wish in self.task.wishes if WRITES.match(wish.kind)]
        email = EMAIL.search(heard)
        if email and email.group() == task.knows("email"):
            yield use("find_user_id_by_email", email=email.group())
        else:
            yield use("find_user_id_by_name_zip", **{name: task.knows(name) for name in ("first_name", "last_name", "zip")})
        yield use("get_user_details", user_id=task.user_id)
        for order_id in dict.fromkeys(wish.arguments["order_id"] for wish in task.wishes if "order_id" in wish.arguments):
            yield use("get_order_details", order_id=order_id)
        if writes:
            heard = yield say(proposal([change(wish.kind, wish.arguments) for wish in writes]))
            while not is_yes(heard):
                heard = yield say(proposal([change(wish.kind, wish.arguments) for wish in writes]))
            for wish in writes:
                yield use(wish.kind, **wish.arguments)
        facts = f" What you asked for: {'; '.join(task.outputs)}." if task.outputs else ""
        done = "All of this has been done." if writes else "I have looked into it."
        if task.goal == "refused":
            done = "I am sorry, but this is not possible: the order is no longer pending, so it cannot be cancelled."
        if task.goal == "transferred":
            if facts:
                yield say(f"{done}{facts}")
            yield use("transfer_to_human_agents", summary="The customer wants what the tools cannot do.")
        while True:
            yield say(f"{done}{facts} Is there anything else?")
