"""The careful assistant of the shop in natural words: it decides and calls as `retail_scripted`
does, and says what it says as models and people do.

A wording rewrites each text of the scripted assistant. It looks names of items and payment methods
up in the results of its tools, and adds nothing that they do not show.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted

from gem_ma import Action, Asked

_DONE = "This has been done: "
_PLAN = "This is what I would do: 1) "
_CHANGES = {
    "cancel": re.compile(r"cancel order (?P<order>#W\d+) for the reason '(?P<reason>[^']*)'"),
    "return": re.compile(
        r"return from order (?P<order>#W\d+): (?P<items>.*), refunded to (?P<pay>\w+)"
    ),
    "swap": re.compile(
        r"(?:exchange|change) in order (?P<order>#W\d+): (?P<pairs>.*), with (?P<pay>\w+) for the difference"
    ),
    "payment": re.compile(r"change the payment of order (?P<order>#W\d+) to (?P<pay>\w+)"),
    "ship": re.compile(r"change the address of order (?P<order>#W\d+) to (?P<address>.*)"),
    "home": re.compile(r"change the default address of your account to (?P<address>.*)"),
}
_ASKS = (
    ("who", re.compile(r"I could not find your account")),
    ("hello", re.compile(r"What can I do for you\?")),
    ("order", re.compile(r"Which order is it about\?.*?(?P<orders>#W.*)?\.?$")),
    ("unknown", re.compile(r"I cannot find an order (?P<order>#W\d+)")),
    ("items", re.compile(r"Which items do you mean")),
    ("options", re.compile(r"Which options should the new (?P<name>.+) have")),
    ("why", re.compile(r"Why do you want to cancel")),
    ("method", re.compile(r"Which payment method shall I use\? There are (?P<methods>.*)\.")),
    ("address", re.compile(r"Please give me the whole new address, with (?P<parts>.*)\.")),
)
Words = Mapping[str, str]


class Shelf:
    """What the tools have shown: names of items, and payment methods as people call them."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[str, dict[str, str], float]] = {}
        self.methods: dict[str, str] = {}

    def read(self, text: str) -> None:
        if not text.startswith("{"):
            return
        record = json.loads(text)
        for item in record.get("items", ()):
            self.items[item["item_id"]] = (item["name"], item["options"], item["price"])
        variants = record.get("variants", {})
        for item in variants.values() if isinstance(variants, dict) else ():
            self.items[item["item_id"]] = (record["name"], item["options"], item["price"])
        for key, entry in record.get("payment_methods", {}).items():
            source = entry["source"]
            self.methods[key] = {
                "paypal": "your PayPal account",
                "gift_card": "your gift card",
            }.get(source, f"your {entry.get('brand', '')} ending in {entry.get('last_four', '')}")

    def method(self, key: str) -> str:
        alike = [each for each in self.methods.values() if each == self.methods.get(key)]
        # Two gift cards are told apart by their ids alone.
        return (
            self.methods[key]
            if len(alike) == 1
            else key.replace("_", " ").rpartition(" ")[0] + f" ({key})"
        )

    def item(self, key: str, style: str = "brackets") -> str:
        name, options, _ = self.items[key]
        values = list(options.values())
        if style == "brackets":
            return f"{name} ({', '.join(values)})"
        if style == "labels":
            return f"{name} - {', '.join(f'{axis}: {value}' for axis, value in options.items())}"
        if style == "person":
            return f"the {name.split()[-1].lower()} with {', '.join(values[:-1])} and {values[-1]}"
        return f"{' '.join(values)} {name.lower()}"


class Wording(RetailScripted):
    """Says everything in the words of a subclass: `says[kind]` are templates over the fields of
    the scripted text."""

    says: Mapping[str, str]
    items = "brackets"
    joins = " and "
    # a proposal in two messages: what is said first, before the customer says anything to it
    parts: tuple[str, str] | None = None

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.shelf = Shelf()
        self.later: Action | None = None
        self.halves: set[int] = set()

    async def act(self, asked: Asked) -> Action:
        for message in asked.new:
            if message.sender == "tool":
                self.shelf.read(message.text)
        if self.later is not None:
            action, self.later = self.later, None
            # The first half and what was said to it: the script knows of one message.
            self.halves |= {len(asked.transcript) - 2, len(asked.transcript) - 1}
            return action
        talk = [each for at, each in enumerate(asked.transcript) if at not in self.halves]
        action = await super().act(replace(asked, transcript=talk))
        if not action.text:
            return action
        words = self.worded(action.text)
        first, mark, second = words.partition("||")
        if mark:
            self.later = Action(second.strip())
        return Action(first.strip())

    def worded(self, text: str) -> str:
        if text.startswith(_PLAN):
            body, _, rest = text.removeprefix(_PLAN).partition(". Do you confirm")
            once = "only once" in rest
            plan = self.told("plan", self.change(body))
            return f"{plan} {self.says.get('once', '')}".strip() if once else plan
        more = self.says["more"]
        lead = text.removesuffix(" Is there anything else I can do for you?")
        if lead.startswith(_DONE):
            return self.told("done", self.change(lead.removeprefix(_DONE).rstrip("."))) + more
        for kind, pattern in _ASKS:
            if found := pattern.match(text):
                fields = {name: value or "" for name, value in found.groupdict().items()}
                if "methods" in fields:
                    fields["methods"] = ", ".join(
                        map(self.shelf.method, fields["methods"].split(", "))
                    )
                return self.says[kind].format(**fields)
        return self.fact(lead) + more

    def change(self, text: str) -> Words:
        for kind, pattern in _CHANGES.items():
            found = pattern.fullmatch(text)
            if found is None:
                continue
            fields = dict(found.groupdict())
            name = self.named
            if "items" in fields:
                fields["items"] = self.joins.join(map(name, fields["items"].split(", ")))
            if "pairs" in fields:
                pairs = [pair.split(" for ") for pair in fields["pairs"].split(", ")]
                fields["pairs"] = self.joins.join(
                    self.says["pair"].format(old=name(old), new=name(new)) for old, new in pairs
                )
                fields["verb"] = "exchange" if text.startswith("exchange") else "change"
            if "pay" in fields:
                fields["pay"] = self.shelf.method(fields["pay"])
            if "address" in fields:
                parts = [part.partition(": ")[2] for part in fields["address"].split("; ")]
                fields["address"] = ", ".join(part for part in parts if part)
            return {"kind": kind, **fields}
        raise ValueError(text)

    def named(self, key: str) -> str:
        return self.shelf.item(key, self.items)

    def told(self, what: str, fields: Words) -> str:
        body = self.says[
            fields["kind"] + "_" + what
            if fields["kind"] + "_" + what in self.says
            else fields["kind"]
        ]
        return self.says[what].format(body=body.format(**fields))

    def fact(self, text: str) -> str:
        """An answer or a refusal."""
        for pattern, template in self.facts:
            if found := re.fullmatch(pattern, text):
                return template.format(*found.groups())
        return text

    facts: tuple[tuple[str, str], ...] = ()


STYLES = yaml.safe_load((Path(__file__).parent / "talks" / "wordings.yaml").read_text("utf-8"))
WORDINGS: dict[str, Callable[..., Wording]] = {
    name: type(name, (Wording,), {**words, "facts": tuple(words["facts"].items())})
    for name, words in STYLES.items()
}
GoneThrough: Any = WORDINGS["GoneThrough"]


class Split(GoneThrough):
    """A proposal in two messages, and a word before an answer."""

    says = {
        **GoneThrough.says,
        "plan": "Thanks, I have looked at everything. Here is what I understand: {body}. || If that is all in order, I'll put it through. Is that alright with you?",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "One second while I check. || It was {0}."),
        *GoneThrough.facts,
    )


WORDINGS["Split"] = Split
globals().update(WORDINGS)  # a seat names one as `tests.retail_wordings:NAME`
