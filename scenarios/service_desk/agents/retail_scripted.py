"""A careful assistant without a model that works only from the conversation: patterns on what the
customer says, and the tools.

It identifies the customer first, reads the order before it acts, collects what is missing, asks
for a yes before every change, tells what was done, and refuses what the policy forbids. It sees
neither task nor solution. What it does about a request stands in `retail_moves`; `retail_weaker`
holds assistants that lack one of its cares.
"""

from __future__ import annotations

import json
import random
from typing import Any

from gem_ma.scenarios.service_desk.agents import retail_answers as answers
from gem_ma.scenarios.service_desk.agents import retail_reading as reading
from gem_ma.scenarios.service_desk.agents.retail_moves import (
    ANYTHING_ELSE,
    Account,
    Form,
    Lookup,
    Move,
    next_move,
)
from gem_ma.scenarios.service_desk.agents.retail_talk import (
    EMAIL,
    Script,
    Scripted,
    change,
    proposal,
    say,
    use,
)
from gem_ma.scenarios.service_desk.reading.answers import answer
from gem_ma.scenarios.service_desk.retail.store.tasks import INTENTS

from gem_ma import Action, Message, ToolCall

ONCE = "This can be done only once for an order, so tell me if more of its items should change."
TRIES = 5  # questions about one request before it is put aside
_ALIKE = {"exchange": "swap", "modify": "swap", "default_address": "address"}
KINDS = {tool: _ALIKE.get(intent, intent) for tool, intent in INTENTS.items()}  # of a request
LONG = 12  # words; a message with more, that asks for a human, is about something


class RetailScripted(Scripted):
    """The careful scripted assistant."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent)
        self.rng = rng
        self.account = Account()
        self.forms: list[Form] = []
        self.last, self.human = "", 0  # the newest message, and how often a human was asked for
        self.words = ""  # all that was said until the account was found, the newest first
        self.unknown = set[tuple[str, ...]]()  # ways that found nobody
        self.untold: list[str] = []  # changes that were made and not told

    def asks_human(self) -> bool:
        """Whether the customer asked for a human, about something that no tool does; a bare wish
        for one has to be said twice."""
        if not reading.wants_human(self.last):
            # A bare wish is often a reflex; the second time it is meant.
            return False
        self.human += 1
        return self.human > 1 or len(self.last.split()) > LONG

    def script(self, heard: str) -> Script:
        if self.account.user_id:
            self.hear(heard, self.next_form() if heard and self.forms else None)
        else:
            yield from self.identify(heard)
        if self.untold:
            self.hear((yield from self.tell_changes()))
        while True:
            if not self.forms:
                if self.asks_human():
                    yield use(
                        "transfer_to_human_agents",
                        summary=f"The customer asks for what the tools cannot do: {self.last}",
                    )
                self.hear((yield say(f"What can I do for you? {answers.HINT}")))
                continue
            form = self.next_form()
            # Planned anew each time: what the customer adds may change everything.
            yield from self.carry_out(form, (yield from next_move(form, self.account)))

    # -- who it is --------------------------------------------------------------------------------

    def identify(self, heard: str) -> Lookup:
        """Finds the account; what the customer said until then is taken as requests."""
        while True:
            self.hear(heard)
            self.words = f"{heard} {self.words}"  # the newest is found first
            # Each way once: the same data would find nobody again.
            for way in _ways(self.words):
                if way in self.unknown:
                    continue
                user_id = yield _look_up(way)
                if not user_id.startswith("Error"):
                    user = json.loads((yield use("get_user_details", user_id=user_id)))
                    self.account.user_id, self.account.user = user_id, user
                    return
                self.unknown.add(way)
            heard = yield say(
                "I could not find your account yet. What is your e-mail address, or your full name"
                " and zip code?"
            )

    def overruled(self, act: Message, answer: str) -> None:
        """A change that somebody made in its place is told to the customer, and not made again."""
        for call in act.tool_calls:
            kind = KINDS.get(call.name, "") if isinstance(call, ToolCall) else ""
            if kind and isinstance(call, ToolCall) and not answer.startswith("Error"):
                order_id = str(call.arguments.get("order_id", ""))
                self.forms = [
                    form
                    for form in self.forms
                    if form.kind != kind or form.order_id not in ("", order_id)
                ]
                self.untold.append(change(call.name, call.arguments))

    # -- what is wanted ---------------------------------------------------------------------------

    def hear(self, heard: str, form: Form | None = None) -> None:
        """Takes a message as details of the form under way and as further requests."""
        self.last = heard
        requests = reading.requests(heard)
        if form is not None:
            mine = [request for request in requests if _is_about(request, form)]
            if not requests or mine:
                form.texts.append(mine[0].text if mine and len(requests) > 1 else heard)
                # What else the message holds are requests of their own.
                requests = [request for request in requests if request not in mine]
            elif reading.changes_mind(heard) and form in self.forms:
                # A change of mind with another request: the old form is dropped.
                self.forms.remove(form)
        for request in requests:
            same = next((form for form in self.forms if _repeats(request, form)), None)
            if same is None:
                self.forms.append(Form(request.kind, [request.text], request.order_id))
            # The same text twice is not a further detail.
            elif request.text not in same.texts:
                same.texts.append(request.text)

    def next_form(self) -> Form:
        """The first form, but changes of items last within an order: they close it for
        everything else."""
        for form in self.forms:
            later = any(
                other.kind != "swap"
                and other.kind != "question"
                and other.order_id == form.order_id
                for other in self.forms
            )
            if form.kind != "swap" or not form.order_id or not later:
                return form
        # All wait for each other: then the first one.
        return self.forms[0]

    # -- acting -----------------------------------------------------------------------------------

    def carry_out(self, form: Form, move: Move) -> Lookup:
        """Asks, tells, or proposes and writes; takes in what the customer answers."""
        if move.how == "ask":
            form.asked += 1
            if form.asked > TRIES:
                self.forms.remove(form)
                # Better to let go than to ask forever; the customer may ask again.
                self.hear(
                    (yield say(f"I am sorry, I could not find out what you want. {ANYTHING_ELSE}"))
                )
                return
            self.hear((yield say(move.text)), form)
        elif move.how == "tell":
            # A question that could not be planned further waits for its answer, and offers nothing
            # more.
            question = move.text.endswith("?")
            heard = yield say(move.text if question else f"{move.text} {ANYTHING_ELSE}")
            self.forms.remove(form)
            self.hear(heard)
        else:
            yield from self.propose(form, move)

    def propose(self, form: Form, move: Move) -> Lookup:
        """Asks for a yes to one write and makes it."""
        once = f" {ONCE}" if form.kind == "swap" else ""
        heard = yield say(f"{proposal([change(move.tool, move.arguments)])}{once}")
        if answer(heard) != "yes":
            # Neither yes nor no counts as a try: the same proposal cannot be made for ever.
            form.asked += 1
            if form.asked > TRIES:
                self.forms.remove(form)
            self.hear(heard, form)
            return
        yield from self.write(form, move, heard)

    def write(self, form: Form, move: Move, heard: str) -> Lookup:
        """Makes an agreed write and tells what came of it."""
        self.hear_more(heard)
        result = yield use(move.tool, **move.arguments)
        self.forms.remove(form)
        if result.startswith("Error"):
            why = result.removeprefix("Error: ")
            heard = yield say(f"I am sorry, this is not possible: {why}. {ANYTHING_ELSE}")
        else:
            self.untold.append(change(move.tool, move.arguments))
            # The account is shown in later answers.
            if move.tool == "modify_user_address":
                self.account.user = json.loads(result)
            heard = yield from self.tell_changes()
        self.hear(heard)

    def tell_changes(self) -> Lookup:
        """Tells what was changed. Gives what the customer says to it."""
        told = " ".join(f"This has been done: {made}." for made in self.untold)
        heard = yield say(f"{told} {ANYTHING_ELSE}")
        self.untold.clear()
        return heard

    def hear_more(self, heard: str) -> None:
        """Requests that come with a yes; what repeats the agreed one is none."""
        # The first request of the message is the yes itself.
        for request in reading.requests(heard)[1:]:
            self.forms.append(Form(request.kind, [request.text], request.order_id))


def _ways(words: str) -> list[tuple[str, ...]]:
    """The ways to find an account that a text gives: by e-mail, or by name and zip code."""
    # E-mail first: it finds one account, a name may find several.
    email, name = EMAIL.search(words), reading.NAME.search(words)
    postcode = reading.POSTCODE.search(words)
    ways: list[tuple[str, ...]] = [("email", email.group())] if email else []
    if name and postcode:
        ways.append(("zip", name.group(1), name.group(2), postcode.group()))
    return ways


def _look_up(way: tuple[str, ...]) -> Action:
    if way[0] == "email":
        return use("find_user_id_by_email", email=way[1])
    _, first, last, postcode = way
    return use("find_user_id_by_name_zip", first_name=first, last_name=last, zip=postcode)


def _is_about(request: reading.Errand, form: Form) -> bool:
    """Whether a request is more of the form under way; one that names no order may be."""
    if request.kind != form.kind:
        return False
    return not request.order_id or not form.order_id or request.order_id == form.order_id


def _repeats(request: reading.Errand, form: Form) -> bool:
    """Whether a request is one that the assistant has noted already; questions are never one."""
    alike = form.kind == request.kind and form.order_id == request.order_id
    return alike and form.kind != "question"
