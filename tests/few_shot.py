"""Real talks of a model with tau-bench's simulated customer, played through the retail scenario:
what monitor and ledger say of them.

The talks are those of a tau-bench checkout (`few_shot_data/MockRetailDomainEnv-few_shot.jsonl`),
which TAU_BENCH_PATH names; nothing of them is kept here. The file holds texts and results of
tools without the calls, so the calls are worked out from the results, and the task from customer
and writes. A call that failed in a way that says too little is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.watching.audit import Audit

from gem_ma import Action, Plan, Seat, ToolCall, play
from gem_ma.kernel.episode import Episode

CHECKOUT = Path(os.environ.get("TAU_BENCH_PATH") or "nowhere")
FILE = Path("few_shot_data/MockRetailDomainEnv-few_shot.jsonl")
needs_few_shot = pytest.mark.skipif(
    not (CHECKOUT / FILE).is_file(),
    reason=f"no {FILE}: name a tau-bench checkout in TAU_BENCH_PATH",
)
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
_SPEAKER = re.compile(r"^(user|assistant|tool): ", re.MULTILINE)
_STOP = "###STOP###"
Acts = list[tuple[str, Action]]


@dataclass(frozen=True, slots=True)
class Talk:
    """One real talk: its line in the file, the task that it is about, the acts of both sides,
    and what was found in them."""

    line: int
    task: str
    acts: Acts
    episode: Episode
    audit: Audit


def lines(checkout: Path = CHECKOUT) -> list[list[tuple[str, str]]]:
    """The talks as (speaker, text), in the order of the file."""
    rows = (checkout / FILE).read_text(encoding="utf-8").splitlines()
    found = []
    for row in rows:
        parts = _SPEAKER.split(json.loads(row)["messages_display"])[1:]
        found.append(
            [(speaker, text.strip()) for speaker, text in zip(parts[::2], parts[1::2], strict=True)]
        )
    return found


class Rebuilder:
    """Works out the calls of one talk, in its order, against a store that they change as they
    did."""

    def __init__(self, base: Base) -> None:
        self.store = RetailStore(base, "tau1")
        self.acts: Acts = []
        self.told = ""  # what the customer said
        self.user_id = ""
        self.writes: list[ToolCall] = []

    def take(self, talk: list[tuple[str, str]]) -> None:
        for place, (speaker, text) in enumerate(talk):
            beside = (
                speaker == "assistant" and place + 1 < len(talk) and talk[place + 1][0] != "user"
            )
            if speaker == "tool":
                if (call := self.call(text)) is not None:
                    self.store.call(call.name, dict(call.arguments))
                    self.writes += [call] if self.store.mutates(call.name) else []
                    self.acts.append(("assistant", Action("", (call,))))
            elif speaker == "assistant" and text != "None" and not beside:
                # what stands beside a call reached nobody
                self.acts.append(("assistant", Action(text)))
            elif speaker == "user":
                self.told += f"\n{text}"
                ends = ToolCall("end", "end_conversation", {"reason": "settled"})
                self.acts.append(("user", Action("", (ends,)) if _STOP in text else Action(text)))

    def call(self, result: str) -> ToolCall | None:
        if result == "Transfer successful":
            return _call("transfer_to_human_agents", summary="The customer needs a human.")
        if result == "Error: user not found":
            return self._find_failed()
        if result == "Error: order not found":
            written = re.findall(r"#?\bW?\d{6,8}\b", self.told)
            wrong = [one for one in written if one not in self.store.overlay.base.tables["orders"]]
            return _call("get_order_details", order_id=wrong[-1]) if wrong else None
        if re.fullmatch(r"[a-z]+_[a-z]+_\d+", result):
            return self._find(result)
        if re.fullmatch(r"-?\d+(\.\d+)?", result):
            return _call("calculate", expression=result)
        if result == "":
            return _call("think", thought="")
        record = json.loads(result) if result[:1] == "{" else None
        if not isinstance(record, dict):
            return None
        if "order_id" in record:
            return self._order(record)
        if "payment_methods" in record:
            return self._user(record)
        if "variants" in record:
            return _call("get_product_details", product_id=record["product_id"])
        return _call("list_all_product_types")

    def _find_failed(self) -> ToolCall:
        mails = re.findall(r"[\w.+-]+@[\w-]+(?:\.\w+)+", self.told)
        if mails:
            return _call("find_user_id_by_email", email=mails[-1])
        names, zips = (
            re.findall(r"\b([A-Z][a-z]+) ([A-Z][a-z]+)\b", self.told),
            re.findall(r"\b\d{5}\b", self.told),
        )
        first, last = names[-1] if names else ("", "")
        return _call(
            "find_user_id_by_name_zip",
            first_name=first,
            last_name=last,
            zip=zips[-1] if zips else "",
        )

    def _find(self, user_id: str) -> ToolCall:
        self.user_id = user_id
        user = self.store.overlay.record("users", user_id)
        if user["email"].lower() in self.told.lower():
            return _call("find_user_id_by_email", email=user["email"])
        return _call("find_user_id_by_name_zip", **user["name"], zip=user["address"]["zip"])

    def _user(self, record: Mapping[str, Any]) -> ToolCall:
        users = self.store.overlay.base.tables["users"]
        user_id = next(key for key, user in users.items() if user["email"] == record["email"])
        known = self.store.overlay.record("users", user_id)["address"]
        address = {
            name: record["address"].get(name, record["address"].get("province", ""))
            for name in ADDRESS
        }
        if all(known.get(name, known.get("province")) == value for name, value in address.items()):
            return _call("get_user_details", user_id=user_id)
        return _call("modify_user_address", user_id=user_id, **address)

    def _order(self, record: Mapping[str, Any]) -> ToolCall:
        order_id = record["order_id"]
        known = self.store.overlay.record("orders", order_id)
        if record["status"] != known["status"]:
            return self._moved(order_id, known, record)
        if record["address"] != known["address"]:
            address = {name: record["address"].get(name, "") for name in ADDRESS}
            return _call("modify_pending_order_address", order_id=order_id, **address)
        if len(record["payment_history"]) > len(known["payment_history"]):
            paid = record["payment_history"][len(known["payment_history"])]["payment_method_id"]
            return _call("modify_pending_order_payment", order_id=order_id, payment_method_id=paid)
        return _call("get_order_details", order_id=order_id)

    def _moved(
        self, order_id: str, known: Mapping[str, Any], record: Mapping[str, Any]
    ) -> ToolCall:
        status = record["status"]
        if status == "cancelled":
            return _call("cancel_pending_order", order_id=order_id, reason=record["cancel_reason"])
        if status == "return requested":
            method = record["return_payment_method_id"]
            return _call(
                "return_delivered_order_items",
                order_id=order_id,
                item_ids=record["return_items"],
                payment_method_id=method,
            )
        if status == "exchange requested":
            method, old, new = (
                record["exchange_payment_method_id"],
                record["exchange_items"],
                record["exchange_new_items"],
            )
            name = "exchange_delivered_order_items"
        else:
            pairs = [
                (before["item_id"], after["item_id"])
                for before, after in zip(known["items"], record["items"], strict=True)
                if before["item_id"] != after["item_id"]
            ]
            old, new = [one for one, _ in pairs], [other for _, other in pairs]
            method, name = (
                record["payment_history"][-1]["payment_method_id"],
                "modify_pending_order_items",
            )
        return _call(
            name,
            order_id=order_id,
            item_ids=old,
            new_item_ids=self._paired(old, new),
            payment_method_id=method,
        )

    def _paired(self, old: list[str], new: list[str]) -> list[str]:
        """The new items in the order of the old ones, by their products: an order lists both
        sorted."""
        left, found = list(new), []
        product_of = {
            item: key
            for key, product in self.store.overlay.base.tables["products"].items()
            for item in product["variants"]
        }
        for item in old:
            other = next(
                (one for one in left if product_of.get(one) == product_of.get(item)), left[0]
            )
            left.remove(other)
            found.append(other)
        return found


def _call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("call", name, arguments)


def matched(scenario: Retail, rebuilt: Rebuilder) -> str | None:
    """The task of the same customer whose solution's writes and words come nearest; None where
    none of its writes was made or asked for."""
    made = {_key(call.name, call.arguments) for call in rebuilt.writes}
    said = set(re.findall(r"[a-z]{4,}", rebuilt.told.lower()))
    best: tuple[tuple[float, float], str] | None = None
    for split in ("test", "train", "dev"):
        for place, task in enumerate(scenario.tasks(split)):
            if task.user_id != rebuilt.user_id:
                continue
            gold = {
                _key(call.name, call.arguments)
                for call in task.actions
                if rebuilt.store.mutates(call.name)
            }
            words = set(re.findall(r"[a-z]{4,}", task.instruction.lower()))
            likeness = (
                len(gold & made) - 0.5 * len(gold ^ made),
                len(words & said) / max(1, len(words)),
            )
            if (gold & made or not gold or likeness[1] > 0.25) and (
                best is None or likeness > best[0]
            ):
                best = likeness, f"{split}/{place}"
    return best[1] if best else None


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    flat = {
        key: sorted(value) if isinstance(value, list) else value for key, value in arguments.items()
    }
    return f"{name} {json.dumps(flat, sort_keys=True)}"


class _Replays:
    """Says what one side said."""

    def __init__(self, acts: Acts, agent: str) -> None:
        self.left: Iterator[Action] = iter([action for who, action in acts if who == agent])

    async def act(self, asked: Any) -> Action:
        return next(
            self.left, Action("", (ToolCall("end", "end_conversation", {"reason": "settled"}),))
        )


def replayed(scenario: Retail, task: str, acts: Acts) -> Episode:
    """A talk as an episode."""
    sides = {
        agent: lambda *_, agent=agent, **__: _Replays(acts, agent)
        for agent in ("assistant", "user")
    }
    cast = {"assistant": Seat("retail_nothing"), "user": Seat("retail_user")}
    return asyncio.run(play(Plan(scenario, cast, task), behaviours=sides))


def talks(scenario: Retail, checkout: Path = CHECKOUT) -> Iterator[Talk]:
    """Every talk whose task is known."""
    for number, talk in enumerate(lines(checkout), 1):
        rebuilt = Rebuilder(scenario.source.world(scenario.tasks("test")[0]))
        rebuilt.take(talk)
        task = matched(scenario, rebuilt)
        if task is not None:
            episode = replayed(scenario, task, rebuilt.acts)
            yield Talk(number, task, rebuilt.acts, episode, scenario.audit(episode))
