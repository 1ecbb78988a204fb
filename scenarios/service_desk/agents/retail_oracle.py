"""An assistant that knows the task and keeps the policy: its success with a user is that user's
ceiling.

It asks who is there, reads what the solution reads, refuses what cannot be done, proposes, waits
for a yes, writes, and tells the facts. Even the values that it knows it uses only once the
customer has said them. Privileged: it is given the task, and may not sit where a policy learns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_scripted import ONCE
from gem_ma.scenarios.service_desk.agents.retail_talk import (
    Script,
    Scripted,
    acts_of,
    change,
    made,
    need_task,
    proposal,
    say,
    use,
)
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task, Wish
from gem_ma.scenarios.service_desk.reading.answers import answer
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS, SWAPS
from gem_ma.scenarios.service_desk.retail.store.tasks import INTENTS

from gem_ma import Action, Asked
from gem_ma.kernel.types import RESERVED_SENDERS

FINDS = re.compile(r"find_user_id_by_")
# Both ways at once: which one the customer has, the oracle may know and must not use.
WHO = "Could you please give me your e-mail address, or your full name and zip code?"
MORE = "Is there anything else?"
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
WHAT = {
    "modify": "change of items",
    "payment": "change of the payment method",
    "address": "change of the address",
    "cancel": "cancellation",
}


class RetailOracle(Scripted):
    """Serves the task's solution by the book."""

    privileged = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent)
        self.task: Task = need_task(agent, task)
        self.customer_texts = ""  # by the customer
        self.made: list[Any] = []  # calls that were answered without an error
        self.texts: list[str] = []  # own texts
        self.before: tuple[list[Any], list[str]] = [], []  # both, as the script began

    def script(self, heard: str) -> Script:
        # Without a wish there is nobody to serve, as in tasks that only transfer.
        task, self.before = self.task, (self.made, self.texts)
        if task.wishes or task.outputs:
            yield from self._identify()
        # nobody has named them yet
        foreign = {
            wish.arguments.get("order_id") for wish in task.wishes if wish.reason == "not_yours"
        }
        for call in task.actions:
            reads = (
                call.name not in INTENTS
                and not FINDS.match(call.name)
                and call.name != "transfer_to_human_agents"
            )
            known = (call.name, dict(call.arguments)) in self.before[0]
            if reads and not known and call.arguments.get("order_id", "") not in foreign:
                yield use(call.name, **call.arguments)
        # What no wish asks for is still a part of the solution, as in a benchmark's tasks.
        left = [call for call in task.actions if call.name in INTENTS]
        for wish in task.wishes:
            yield from self._serve(wish, left)
        for call in left:
            yield from self._write(call.name, call.arguments)
        owned = {output for wish in task.wishes for output in wish.outputs}
        loose = [output for output in task.outputs if output not in owned]
        if loose:
            yield from self._tell(f"What you asked for: {'; '.join(loose)}. {MORE}")
        if task.goal == "transferred":
            yield use(
                "transfer_to_human_agents", summary="The customer wants what the tools cannot do."
            )
        refusals = " ".join(_refusal(wish) for wish in task.wishes if wish.kind == "impossible")
        facts = f"What you asked for: {'; '.join(task.outputs)}." if task.outputs else ""
        # It never gives up: how long a talk goes on is the user's to say.
        while True:
            yield say(" ".join(part for part in (refusals, facts, MORE) if part))

    def _serve(self, wish: Wish, left: list[GoldCall]) -> Script:
        """One wish, with what is wanted instead where it is refused; its write is taken off the
        list."""
        asked: Wish | None = wish
        while asked is not None:
            if asked.kind == "impossible" and asked.reason != "beyond_tools":
                yield from self._tell(f"{_refusal(asked)} {MORE}")
            elif asked.outputs and not asked.writes:
                yield from self._tell(f"What you asked for: {'; '.join(asked.outputs)}. {MORE}")
            for call in left:
                if call.serves(asked):
                    left.remove(call)
                    # what was asked for first is proposed first, and taken back
                    if asked.before_change is not None:
                        yield from self._address(asked.before_change.arguments)
                        first = proposal([change(call.name, asked.before_change.arguments)])
                        # The first mind is taken back before its yes, so no answer is waited for.
                        yield from self._tell(f"{first} {ONCE}" if call.name in SWAPS else first)
                    yield from self._write(call.name, call.arguments)
                    break
            asked = asked.instead

    def _write(self, name: str, arguments: Mapping[str, Any]) -> Script:
        """Proposes a change, makes it after a yes, and says so; one that was made is only told."""
        if (name, dict(arguments)) not in self.before[0]:
            yield from self._address(arguments)
            asked = proposal([change(name, arguments)])
            asked = f"{asked} {ONCE}" if name in SWAPS else asked
            # Proposed until there is a yes: a sceptical customer asks first.
            while answer((yield say(asked))) != "yes":
                pass
            yield use(name, **arguments)
        # a customer who is content would leave before it is handed over
        if self.task.goal != "transferred":
            yield from self._tell(f"This has been done: {change(name, arguments)}. {MORE}")

    def _tell(self, text: str) -> Script:
        """Says what has to be said once."""
        if text not in self.before[1]:
            yield say(text)

    def _address(self, arguments: Mapping[str, Any]) -> Script:
        """Asks for an address that it knows and was not told."""
        # A customer that was not asked has not said it, and a proposal would come from nowhere.
        if any(str(arguments.get(part, "")) not in self.customer_texts for part in ADDRESS):
            yield say(
                "Please give me the whole new address, with street, city, state, country and zip"
                " code."
            )

    async def act(self, asked: Asked) -> Action:
        # whatever the customer is called here: its name may be hidden
        others = RESERVED_SENDERS | {self.agent}
        self.customer_texts = "".join(
            f" {message.text}" for message in asked.transcript if message.sender not in others
        )
        self.made = made(asked.transcript, self.agent)
        self.texts = [message.text for message in acts_of(self.agent, asked.transcript)]
        return await super().act(asked)

    def _identify(self) -> Script:
        """Finds the account by what the customer has said; a task that no customer can prove
        itself in is served all the same."""
        task = self.task
        if any(FINDS.match(name) for name, _ in self.made):
            return
        email, name = (
            task.knows("email"),
            [task.knows(slot) for slot in ("first_name", "last_name", "zip")],
        )
        # The e-mail address first: it finds one account, where a name may fit several.
        while True:
            words = self.customer_texts
            if email and email in words:
                yield use("find_user_id_by_email", email=email)
            elif all(name) and all(value in words for value in name):
                yield use(
                    "find_user_id_by_name_zip", first_name=name[0], last_name=name[1], zip=name[2]
                )
            # It can still say who it is: ask on.
            elif email or all(name):
                yield say(WHO)
                continue
            break


def _refusal(wish: Wish) -> str:
    """A sentence that refuses one wish with its reason."""
    order_id = wish.arguments.get("order_id", "")
    what = (
        f"{WHAT.get(wish.intent, wish.intent or 'change')} for order {order_id}"
        if order_id
        else "what you ask for"
    )
    return (
        f"I am sorry, the {what} is not possible:"
        f" {WHY.get(wish.reason, 'this lies beyond what I can do with my tools')}."
    )
