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
from typing import Any

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


class Headings(Wording):
    says = {
        "plan": "### Summary of your request\n\n{body}\n\n---\n**Would you like me to go ahead with this?** (yes/no)",
        "done": "### ✅ Request completed\n\n{body}\n\n",
        "more": "\n\nIs there anything else I can help you with today?",
        "once": "\n\n> Note: items of an order can be modified only once, so let me know if anything should be added.",
        "cancel": "| Field | Value |\n| --- | --- |\n| **Action** | Cancel order |\n| **Order** | {order} |\n| **Reason** | {reason} |",
        "return": "- **Order:** {order}\n- **Items to return:** {items}\n- **Refund to:** {pay}",
        "swap": "- **Order:** {order}\n- **Action:** {verb} items\n{pairs}\n- **Price difference:** settled with {pay}",
        "pair": "- **{old}** → **{new}**",
        "payment": "- **Order:** {order}\n- **New payment method:** {pay}",
        "ship": "- **Order:** {order}\n- **New shipping address:** {address}",
        "home": "- **New default address on your profile:** {address}",
        "who": "To get started, I need to **verify your identity**. Please share **one** of the following:\n\n1. The email address on your account\n2. Your first name, last name and zip code",
        "hello": "How can I help you today?",
        "order": "I see several orders on your account:\n\n**{orders}**\n\nWhich one would you like me to look at?",
        "unknown": "I wasn't able to locate order **{order}**. Could you double-check the number?",
        "items": "Could you specify **which items** you're referring to (including their options)?",
        "options": "What options would you like for the new **{name}**?",
        "why": "Could you tell me the reason for the cancellation?\n\n- No longer needed\n- Ordered by mistake",
        "method": "Which **payment method** would you like to use?\n\nOn file: {methods}",
        "address": "Please provide the complete new address, including: **{parts}**.",
    }
    joins = "\n"
    facts = (
        (r"You paid (\S+) for this order\.", "**Order total:** {0}"),
        (r"The tracking number is (.*)\.", "**Tracking number:** `{0}`"),
        (r"The difference in price is (\S+)\.", "**Price difference:** {0}"),
        (r"The balance of your gift card (\S+) is (\S+)\.", "**Gift card balance:** {1}"),
        (
            r"There are (\d+) variants of the (.*) available\.",
            "We currently have **{0}** {1} options available.",
        ),
        (r"That is (\S+) for (.*)\.", "**Total for {1}:** {0}"),
    )


class Emoji(Wording):
    says = {
        "plan": "Awesome, here's the plan 👇\n{body}\nGood to go? 🙂",
        "done": "All set! 🎉 {body} 📦",
        "more": " Anything else on your mind? 😊",
        "once": "(Heads-up: one shot per order! ⚠️)",
        "cancel": "❌ Cancel {order} — reason: {reason}",
        "cancel_done": "{order} is off the books",
        "return": "↩️ Send back {items} from {order}, money back to {pay}",
        "return_done": "Your return for {order} is in the system",
        "swap": "🔁 {order}: {pairs}, difference on {pay}",
        "swap_done": "Your {order} has its new goodies lined up",
        "pair": "{old} ➡️ {new}",
        "payment": "💳 Pay {order} with {pay} instead",
        "payment_done": "Payment for {order} switched over to {pay} ✅",
        "ship": "🏠 Ship {order} to {address}",
        "ship_done": "{order} is heading to {address}",
        "home": "🏠 Default address → {address}",
        "home_done": "Your profile shows {address}",
        "who": "Hey there! 👋 First things first: what email did you sign up with? (Or name + zip works too!)",
        "hello": "What can I do for ya? 😄",
        "order": "Hmm, which order are we talking about? 🤔 I see {orders}",
        "unknown": "Oops, {order} doesn't ring a bell 🔍 Mind checking the number?",
        "items": "Which goodies exactly? 🧐 Tell me their options too!",
        "options": "Ooh, a new {name}! Which options? 🎨",
        "why": "Sad to see it go 😢 What's the reason: no longer needed, or ordered by mistake?",
        "method": "How would you like to pay? 💳 You've got {methods}",
        "address": "Where to? 🗺️ I need {parts}",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "That one set you back {0} 💸"),
        (r"The tracking number is (.*)\.", "Here's your tracking 📍 {0}"),
        (r"The difference in price is (\S+)\.", "You're looking at a {0} difference 💰"),
        (r"The balance of your gift card (\S+) is (\S+)\.", "You've got {1} on there 🎁"),
        (
            r"There are (\d+) variants of the (.*) available\.",
            "We've got {0} kinds of {1} right now 🛍️",
        ),
        (r"That is (\S+) for (.*)\.", "That comes to {0} altogether 🧾"),
        (r"I am sorry, (.*)", "Aw, sorry 😔 {0}"),
    )


class GoneThrough(Wording):
    says = {
        "plan": "So that we're on the same page: {body}. May I proceed?",
        "done": "{body}",
        "more": " Is there anything else you need?",
        "once": "Please note that this can only be done once.",
        "cancel": "I'd cancel order {order}, giving '{reason}' as the reason",
        "cancel_done": "The cancellation of order {order} has gone through.",
        "return": "from order {order} you'd be returning {items}, with the refund going to {pay}",
        "return_done": "The return for order {order} has gone through.",
        "swap": "in order {order} I'd {verb} {pairs}, and {pay} covers any difference",
        "swap_done": "The change for order {order} has gone through.",
        "pair": "the {old} for the {new}",
        "payment": "I'd switch the payment for order {order} to {pay}",
        "payment_done": "The new payment for order {order} has gone through.",
        "ship": "I'd update the shipping address of order {order} to {address}",
        "ship_done": "Order {order} will now ship to {address}.",
        "home": "I'd update your default address to {address}",
        "home_done": "The update to your profile has gone through.",
        "who": "Before we begin, could you give me the email address on file, or else your name and zip code?",
        "hello": "How may I help?",
        "order": "Which of your orders is this about? I can see {orders}",
        "unknown": "I can't seem to find order {order}. Would you mind checking that number?",
        "items": "Could you let me know which items you have in mind, along with their options?",
        "options": "Which options would you like on the new {name}?",
        "why": "May I ask why you'd like to cancel - is it no longer needed, or was it ordered by mistake?",
        "method": "Which payment method should this go on? You have {methods}.",
        "address": "Could you give me the full new address ({parts})?",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "The order came to {0}."),
        (r"The tracking number is (.*)\.", "It's travelling under number {0}."),
        (r"The difference in price is (\S+)\.", "The two are {0} apart in price."),
        (r"The balance of your gift card (\S+) is (\S+)\.", "There's {1} left on your gift card."),
        (r"I am sorry, (.*)", "I'm afraid {0}"),
    )


class British(Wording):
    items = "flat"
    says = {
        "plan": "Right then, {body}. Happy for me to crack on?",
        "done": "Lovely, that's you sorted. {body}",
        "more": " Was there anything else at all?",
        "once": "Bear in mind we can only do this the once.",
        "cancel": "I'll call off order {order} as '{reason}'",
        "cancel_done": "Order {order} won't be coming.",
        "return": "you'll pop the {items} from {order} back in the post and we'll refund {pay}",
        "return_done": "Pop them in the post whenever suits.",
        "swap": "on order {order} I'll swap {pairs}, squaring up with {pay}",
        "swap_done": "The replacements will be on their way in due course.",
        "pair": "the {old} for the {new}",
        "payment": "I'll move the payment for {order} over to {pay}",
        "payment_done": "It'll come out of {pay}.",
        "ship": "I'll have {order} sent to {address}",
        "ship_done": "It'll turn up at {address}.",
        "home": "I'll put your home address down as {address}",
        "home_done": "We've got you down at {address}.",
        "who": "Let's find you first, shall we? What's your email, or your full name and postcode (zip)?",
        "hello": "What can I do for you, then?",
        "order": "Which order would that be? I've {orders} here.",
        "unknown": "Hm, {order} isn't coming up. Could you have another look at the number?",
        "items": "Which bits exactly? Their options would help.",
        "options": "And the new {name}, which options are you after?",
        "why": "What's the reason, if you don't mind: no longer needed, or ordered by mistake?",
        "method": "What shall we put it on? There's {methods}.",
        "address": "What's the full address, please? That's {parts}.",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "You were charged {0} for it."),
        (r"The tracking number is (.*)\.", "{0} is the one to track it by."),
        (r"The difference in price is (\S+)\.", "There's {0} in it."),
        (r"The balance of your gift card (\S+) is (\S+)\.", "You've {1} to your name on it."),
        (r"There are (\d+) variants of the (.*) available\.", "We've {0} sorts of {1} in."),
        (r"I am sorry, (.*)", "Ever so sorry, but {0}"),
    )


class Terse(Wording):
    says = {
        "plan": "{body}. ok?",
        "done": "{body}",
        "more": " next?",
        "once": "one time only.",
        "cancel": "cancel {order}, {reason}",
        "cancel_done": "gone.",
        "return": "return {items} from {order}, refund {pay}",
        "return_done": "return open.",
        "swap": "{verb} {pairs} in {order}, difference {pay}",
        "swap_done": "swapped.",
        "pair": "{old} -> {new}",
        "payment": "{order} paid by {pay}",
        "payment_done": "switched.",
        "ship": "ship {order} to {address}",
        "ship_done": "address in.",
        "home": "default address {address}",
        "home_done": "saved.",
        "who": "email? or name + zip.",
        "hello": "yes?",
        "order": "which order? {orders}",
        "unknown": "no {order} here. number again?",
        "items": "which items, which options?",
        "options": "new {name}: which options?",
        "why": "reason? no longer needed / ordered by mistake",
        "method": "pay how? {methods}",
        "address": "full address: {parts}?",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "{0}."),
        (r"The tracking number is (.*)\.", "{0}"),
        (r"The difference in price is (\S+)\.", "{0}"),
        (r"The balance of your gift card (\S+) is (\S+)\.", "{1}."),
        (r"There are (\d+) variants of the (.*) available\.", "{0}."),
        (r"I am sorry, (.*)", "no. {0}"),
    )


class Chatty(Wording):
    items = "labels"
    says = {
        "plan": "Thank you so much for your patience while I looked into this! I completely understand, and I'm more than happy to take care of it. Just to make sure I've got everything right, {body}. I want to be certain before anything is touched, so if all of that sounds right to you, just say the word and I'll get it moving!",
        "done": "Wonderful news! {body} Thank you again for being such a valued customer, it really means a lot to us.",
        "more": " If there's anything further I can assist you with, I'm all ears!",
        "once": "Oh, and one small thing: this is a one-time change for the order, so now's the moment to mention anything else.",
        "cancel": "you'd like me to cancel order {order} because it's '{reason}'",
        "cancel_done": "I went ahead and took care of order {order} for you, so you won't be receiving it.",
        "return": "you'd like to return {items} from order {order} and get the money back on {pay}",
        "return_done": "I've got the return for order {order} on its way, and you'll get an email about how to send things back.",
        "swap": "for order {order} you'd like to {verb} {pairs}, with {pay} taking care of any difference in price",
        "swap_done": "Everything about the new items in order {order} is in place, and you'll hear from us by email.",
        "pair": "the {old} for the {new}",
        "payment": "you'd like order {order} to be paid with {pay} instead",
        "payment_done": "Order {order} is being charged to {pay} from here on.",
        "ship": "order {order} should go to {address}",
        "ship_done": "Your order {order} knows its new way home: {address}.",
        "home": "the default address on your profile should be {address}",
        "home_done": "Your profile carries the new address now: {address}.",
        "who": "Hello and a very warm welcome! I'd be absolutely delighted to help you with that today. So that I can pull up your profile, would you be so kind as to share the email address you use with us? If you don't have it handy, your full name together with your zip code will do just as nicely!",
        "hello": "So, tell me, what brings you here today?",
        "order": "I'd love to help with that! I had a look and there's more than one order under your name: {orders}. Which of them did you have in mind?",
        "unknown": "I'm having a little trouble finding {order} on my end. Would you be able to double-check that for me?",
        "items": "I'd love to get this right for you! Would you mind telling me which of the items you mean, and what they look like?",
        "options": "How exciting! What would you like the new {name} to be like, option by option?",
        "why": "I'm sorry to hear you'd like to let this one go! For our records, is that because it is no longer needed, or because it was ordered by mistake?",
        "method": "Last little detail: what would you like to pay with? On your profile there's {methods}.",
        "address": "Perfect! Could you spell out the complete new address for me, with {parts}?",
    }
    facts = (
        (
            r"You paid (\S+) for this order\.",
            "I've just had a look for you, and what you paid for this order was {0}.",
        ),
        (
            r"The tracking number is (.*)\.",
            "Here's the number you can follow your parcel with: {0}. Fingers crossed it gets there soon!",
        ),
        (
            r"The difference in price is (\S+)\.",
            "I did the sums for you, and you'd be looking at {0} between the two.",
        ),
        (
            r"The balance of your gift card (\S+) is (\S+)\.",
            "Good news, your gift card still has {1} for you to spend!",
        ),
        (
            r"There are (\d+) variants of the (.*) available\.",
            "I counted them for you: you can pick from {0} versions of our {1} at the moment.",
        ),
        (r"I am sorry, (.*)", "I truly wish I had better news for you. I'm really sorry, but {0}"),
    )


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


class Bundle(Wording):
    """Several things in one message, as models like to tell."""

    says = {
        "plan": "I've verified your account and checked the details. {body}. The confirmation will be sent to the email on file. Do I have your approval to move forward?",
        "done": "{body} A confirmation email is on its way.",
        "more": " What else can I do for you today?",
        "once": "Since this is a one-time action, please make sure all items are included.",
        "cancel": "Cancelling order {order} ({reason}) stops it from being shipped, and the refund follows",
        "cancel_done": "I've cancelled order {order}; the amount goes back to the way it was paid.",
        "return": "Here's what happens: {items} from order {order} come back to us and the refund lands on {pay}",
        "return_done": "The return of {items} from order {order} is registered, and {pay} will see the refund once we have them.",
        "swap": "In order {order}: {pairs}. Any difference is settled through {pay}",
        "swap_done": "Order {order} now contains what you picked: {pairs}.",
        "pair": "{old} becomes {new}",
        "payment": "Order {order} would be paid with {pay}, and the earlier method gets its money back",
        "payment_done": "{pay} is now behind order {order}.",
        "ship": "Order {order} would be delivered to {address}; nothing else about it changes",
        "ship_done": "Delivery of order {order} is set for {address}; nothing else changed.",
        "home": "Your profile's default address would be {address}; pending orders keep theirs",
        "home_done": "Your default address reads {address}; pending orders keep theirs.",
        "who": "Welcome! For your security I verify every customer first. What email address is on the account? Alternatively: first name, last name, zip code.",
        "hello": "Thanks for reaching out. What do you need help with?",
        "order": "You're verified, thank you. There are several orders ({orders}). Which one do you mean?",
        "unknown": "You're verified, thank you. However, {order} doesn't exist in our system. What's the right number?",
        "items": "I have the order open. Which of its items do you mean, with which options?",
        "options": "I have the {name} page open. Which options do you want?",
        "why": "The order is still pending, so cancelling works. What's the reason: no longer needed or ordered by mistake?",
        "method": "Nearly there. Your profile lists {methods}. Which one should be used?",
        "address": "Nearly there. What's the complete new address - {parts}?",
    }
    facts = (
        (r"I am sorry, (.*)", "I've checked the details. I apologise, but {0}"),
        (
            r"You paid (\S+) for this order\.",
            "I've opened the order: it is in your name, and its total is {0}.",
        ),
    )


class Person(Wording):
    """Items as a person says them."""

    items = "person"
    says = {
        "plan": "OK so {body}, yeah?",
        "done": "Cool, {body}",
        "more": " What else?",
        "once": "You only get one go at this per order.",
        "cancel": "I'm scrapping {order} since it's {reason}",
        "cancel_done": "{order} is history.",
        "return": "we take back {items} out of {order} and you get the money on {pay}",
        "return_done": "we'll take those back.",
        "swap": "out of {order}, {pairs}, and {pay} picks up whatever's left over",
        "swap_done": "your new stuff's coming.",
        "pair": "{old} goes and {new} comes instead",
        "payment": "{order} gets paid off {pay}",
        "payment_done": "{pay} it is.",
        "ship": "{order} goes to {address}",
        "ship_done": "off to {address} it goes.",
        "home": "your address from now on is {address}",
        "home_done": "I have your new address in there.",
        "who": "Who am I talking to? Your email would do, or name and zip.",
        "hello": "What's up?",
        "order": "Which order? You have {orders}",
        "unknown": "There's no {order}. Typo maybe?",
        "items": "Which things, though? What are they like?",
        "options": "What should the new {name} be like?",
        "why": "How come? No longer needed, ordered by mistake?",
        "method": "What do you want to use for the money? There's {methods}",
        "address": "Where exactly? Give me {parts}",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "{0} is what you paid."),
        (r"The tracking number is (.*)\.", "Track it with {0}."),
        (r"I am sorry, (.*)", "Nope, can't do it, sorry: {0}"),
    )


class Letter(Wording):
    """A formal letter."""

    items = "flat"
    says = {
        "plan": "Dear customer,\n\nfurther to your request we intend the following: {body}. We await your consent before anything is undertaken.\n\nKind regards",
        "done": "Dear customer,\n\nwe are pleased to inform you of the completion of your request. {body}",
        "more": " Should you require further assistance, kindly let us know.\n\nKind regards",
        "once": "Kindly note that a further amendment of this order will not be possible.",
        "cancel": "annulment of order {order} on the ground '{reason}' (cancel)",
        "return": "acceptance of the return of {items} belonging to order {order}, and reimbursement by way of {pay}",
        "swap": "with regard to order {order}, substitution of {pairs}; {pay} serves to settle the balance",
        "pair": "{old} by {new}",
        "payment": "settlement of order {order} by means of {pay} henceforth",
        "ship": "dispatch of order {order} to {address}",
        "home": "registration of {address} as your default address",
        "cancel_done": "Order {order} has ceased to exist.",
        "who": "Dear customer,\n\nkindly state the electronic mail address (e-mail) registered with us, or your full name and zip code, in order that your account may be found.",
        "hello": "Dear customer,\n\nhow may we be of service?",
        "order": "Kindly indicate the order concerned ({orders}).",
        "unknown": "No order {order} is known to us. Kindly verify the number.",
        "items": "Kindly specify the items concerned together with their options.",
        "options": "Kindly indicate the desired options of the new {name}.",
        "why": "Kindly state the ground for the cancellation: no longer needed, or ordered by mistake.",
        "method": "Kindly indicate the method of payment: {methods}.",
        "address": "Kindly state the new address in full ({parts}).",
    }
    facts = (
        (r"You paid (\S+) for this order\.", "The sum paid for the said order amounts to {0}."),
        (r"I am sorry, (.*)", "It is with regret that we must inform you that {0}"),
    )


WORDINGS: dict[str, Callable[..., Wording]] = {
    cls.__name__: cls
    for cls in (Headings, Emoji, GoneThrough, British, Terse, Chatty, Split, Bundle, Person, Letter)
}
