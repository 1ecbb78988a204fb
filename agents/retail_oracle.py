"""An assistant that knows the task and keeps the policy: its success with a user is that user's ceiling.

It asks who is there, reads what the solution reads, refuses what cannot be done, proposes, waits for a yes, writes, and tells the facts. Even
the values that it knows it uses only once the customer has said them. Privileged: it is given the task, and may not sit where a policy learns.
"""

from __future__ import annotations

import random
import re
from typing import Any

from gem_ma.agents.retail_talk import Script, Scripted, change, is_yes, need_task, proposal, say, use
from gem_ma.scenarios.service.task import Task, Wish

WRITES = re.compile(r"(cancel|modify|return|exchange)_")
FINDS = re.compile(r"find_user_id_by_")
WHO = "Could you please give me your e-mail address, or your full name and zip code?"
WHY = {
    "order_status": "the status of the order does not allow it",
    "not_yours": "it does not belong to your account",
    "unavailable": "what you want is not available",
    "product_type": "an item can be replaced only by one of the same product type",
    "cancel_reason": "this reason is not accepted",
    "payment_method": "this payment method cannot be used, it is not on file for this",
    "balance": "the balance of the gift card does not cover it",
    "once": "the items of an order can be changed only once",
}


class RetailOracle(Scripted):
    """Serves the task's solution by the book."""

    privileged = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__()
        self.task: Task = need_task(agent, task)

    def script(self, heard: str) -> Script:
        task = self.task
        yield from self._identify(heard)
        for call in task.actions:
            if not WRITES.match(call.name) and not FINDS.match(call.name) and call.name != "transfer_to_human_agents":
                yield use(call.name, **call.arguments)
        refusals = " ".join(_refusal(wish) for wish in task.wishes if wish.kind == "impossible")
        writes = [call for call in task.actions if WRITES.match(call.name)]
        if refusals and writes:
            yield say(refusals)
        if writes:
            while not is_yes((yield say(proposal([change(call.name, call.arguments) for call in writes])))):
                pass
            for call in writes:
                yield use(call.name, **call.arguments)
        facts = f" What you asked for: {'; '.join(task.outputs)}." if task.outputs else ""
        done = "All of this has been done." if writes else "" if refusals else "I have looked into it."
        if task.goal == "transferred":
            if facts:
                yield say(f"{done}{facts}")
            yield use("transfer_to_human_agents", summary="The customer wants what the tools cannot do.")
        while True:
            yield say(f"{done} {refusals}{facts} Is there anything else?".strip())

    def _identify(self, heard: str) -> Script:
        """Finds the account by what the customer has said; a task that no customer can prove itself in is served all the same."""
        task, told = self.task, heard
        email, name = task.knows("email"), [task.knows(slot) for slot in ("first_name", "last_name", "zip")]
        while True:
            if email and email in told:
                yield use("find_user_id_by_email", email=email)
            elif all(name) and all(value in told for value in name):
                yield use("find_user_id_by_name_zip", first_name=name[0], last_name=name[1], zip=name[2])
            elif email or all(name):
                told += " " + (yield say(WHO))
                continue
            break


def _refusal(wish: Wish) -> str:
    """A sentence that refuses one wish with its reason."""
    order_id = wish.arguments.get("order_id", "")
    what = f"{wish.intent or 'change'} for order {order_id}" if order_id else "what you ask for"
    return f"I am sorry, the {what} is not possible: {WHY.get(wish.reason, 'this lies beyond what I can do with my tools')}."
