"""A ladder of weaker assistants: the careful one with one care taken away, so that a study has
rungs without a model.

Each shows one fault at the share `rate` of its chances, drawn from its own generator; at `rate:
0` it is the careful assistant.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_moves import ANYTHING_ELSE, Form, Lookup, Move
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted
from gem_ma.scenarios.service_desk.agents.retail_talk import change, say, use
from gem_ma.scenarios.service_desk.retail.domain.kinds import EXCHANGE, MODIFY

from gem_ma.kernel.errors import ConfigError


class _Weaker(RetailScripted):
    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, rate: float = 1.0
    ) -> None:
        super().__init__(agent, sample, rng)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
            raise ConfigError(f"agent {agent!r}: rate is a share from 0 to 1; got {rate!r}")
        self.rate = rate

    def slips(self) -> bool:
        """Whether the fault shows this time."""
        # Its own generator, so that a chance of one fault is drawn at the same place in each play.
        return self.rng.random() < self.rate


class RetailForgetsToConfirm(_Weaker):
    """Makes a change without asking for a yes."""

    def propose(self, form: Form, move: Move) -> Lookup:
        yield from self.write(form, move, "") if self.slips() else super().propose(form, move)


class RetailWrongItem(_Weaker):
    """Is agreed on one item or variant and writes another one."""

    def write(self, form: Form, move: Move, heard: str) -> Lookup:
        if move.tool in (EXCHANGE, MODIFY) and self.slips():
            # It looks the order up again, since the move holds ids alone.
            order = json.loads((yield use("get_order_details", order_id=form.order_id)))
            item = next(
                item for item in order["items"] if item["item_id"] == move.arguments["item_ids"][0]
            )
            product = json.loads((yield use("get_product_details", product_id=item["product_id"])))
            meant = (item["item_id"], move.arguments["new_item_ids"][0])
            others = [
                key
                for key, variant in product["variants"].items()
                if variant["available"] and key not in meant
            ]
            # Without another variant the fault cannot show.
            if others:
                new = [self.rng.choice(others), *move.arguments["new_item_ids"][1:]]
                move = replace(move, arguments={**move.arguments, "new_item_ids": new})
        elif "item_ids" in move.arguments and self.slips():
            order = json.loads((yield use("get_order_details", order_id=form.order_id)))
            others = [
                item["item_id"]
                for item in order["items"]
                if item["item_id"] not in move.arguments["item_ids"]
            ]
            if others:
                move = replace(
                    move,
                    arguments={
                        **move.arguments,
                        "item_ids": [self.rng.choice(others), *move.arguments["item_ids"][1:]],
                    },
                )
        yield from super().write(form, move, heard)


class RetailTransfersEarly(_Weaker):
    """Hands the customer over to a human instead of making a change that it could make."""

    def propose(self, form: Form, move: Move) -> Lookup:
        if self.slips():
            yield use(
                "transfer_to_human_agents",
                summary=f"The customer wants to {change(move.tool, move.arguments)}.",
            )
        # If the transfer ends nothing, as under tau2's rules, it goes on with care.
        yield from super().propose(form, move)


class RetailDropsWrite(_Weaker):
    """Says that an agreed change was made and does not make it."""

    def write(self, form: Form, move: Move, heard: str) -> Lookup:
        if not self.slips():
            yield from super().write(form, move, heard)
            return
        # Every word as if it had been done: only the database tells.
        heard = yield say(
            f"This has been done: {change(move.tool, move.arguments)}. {ANYTHING_ELSE}"
        )
        self.forms.remove(form)
        self.hear(heard)


class RetailRefusesMore(_Weaker):
    """Refuses a change that it could make."""

    def propose(self, form: Form, move: Move) -> Lookup:
        if not self.slips():
            yield from super().propose(form, move)
            return
        heard = yield say(f"I am sorry, this is not possible. {ANYTHING_ELSE}")
        self.forms.remove(form)
        self.hear(heard)


class RetailForgetsRequests(_Weaker):
    """Serves the first request of a message and forgets the others."""

    def hear(self, heard: str, form: Form | None = None) -> None:
        super().hear(heard, form)
        if len(self.forms) > 1 and self.slips():
            # The first form is the one under way.
            del self.forms[1:]


class RetailTrustsTheUser(_Weaker):
    """Takes the customer at its word: asks nobody who it is, and looks up what it is told of,
    whoever owns it."""

    def identify(self, heard: str) -> Lookup:
        if not self.slips():
            yield from super().identify(heard)
            return
        self.hear(heard)
        # Somebody must be named; else it has to ask.
        order_id = next((form.order_id for form in self.forms if form.order_id), "")
        if not order_id:
            yield from super().identify(heard)
            return
        read = yield use("get_order_details", order_id=order_id)
        if read.startswith("Error"):
            yield from super().identify(heard)
            return
        # Whoever owns the order is believed to be who is writing.
        user_id = json.loads(read)["user_id"]
        user = json.loads((yield use("get_user_details", user_id=user_id)))
        self.account.user_id, self.account.user = user_id, user
