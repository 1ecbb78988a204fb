"""A customer without a model: it knows the task's wishes, tells them one by one, and says yes only to what it wants.

It reads the assistant's texts by patterns. A proposal is a question for a yes; it is accepted where it names every argument of an open wish
(ids, or the words that describe them) and nothing foreign, never blindly. It ends by the tool `end_conversation`, when all is settled or when
its patience is over. Privileged: it is given the task.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.agents.retail_talk import ADDRESS, EXCHANGE, ITEM, METHOD, MODIFY, ORDER, Script, Scripted, labelled, need_task, say, use

from gem_ma import Action
from gem_ma.errors import ConfigError

_ASKS_YES = re.compile(r"\b(confirm|proceed|go ahead|shall i|should i|do you agree|is (this|that) (right|correct|ok|okay)|yes or no|yes/no)\b")
_DONE = re.compile(r"\b(done|completed?|successful(ly)?|has been|have been|was|were|is now|are now|processed|requested|updated)\b")
_REFUSES = re.compile(r"\b(cannot|can't|can not|could not|couldn't|unable|not able|not possible|not allowed|impossible|won't be able|refuse)\b")
_ASKS_WHO = re.compile(r"\b(e-?mail|your (full )?name|zip|postal|post ?code|identif\w*|verif\w*|who (are|am))\b")
_VERB = {
    "cancel_pending_order": "cancel",
    "return_delivered_order_items": "return|refund",
    EXCHANGE: "exchang|swap|replac",
    MODIFY: "chang|modif|exchang|swap|replac|updat",
    "modify_pending_order_address": "address",
    "modify_user_address": "address",
    "modify_pending_order_payment": "pay",
}
_COUNTS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


@dataclass(slots=True)
class _Open:
    """A wish that is not final yet."""

    wish: Any  # a Wish of the retail scenario
    approved: bool = False


class RetailUser(Scripted):
    """The scripted customer; `patience` is how many unhelpful messages in a row it bears."""

    privileged = True

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None, patience: int = 4) -> None:
        super().__init__()
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ConfigError(f"agent {agent!r}: patience is a whole number of at least 1; got {patience!r}")
        self.rng, self.task, self.patience = rng, need_task(agent, task), patience
        self.open = [_Open(wish) for wish in task.wishes]
        self.untold = list(task.outputs)
        self.refused = 0
        self.annoyed = 0

    def script(self, heard: str) -> Script:
        heard = yield say(f"{self._pick('Hello', 'Hi', 'Good day')}. {self._identity()} {self._request()}".strip())
        while True:
            heard = yield self._react(heard)

    # -- reacting -----------------------------------------------------------------------------------------------------------

    def _react(self, heard: str) -> Action:
        text = heard.casefold()
        if _ASKS_YES.search(text) and "?" in text:
            answer = self._judge(heard)
            if answer is not None:
                return answer
        self.untold = [output for output in self.untold if not _tells(text, output)]
        progress = self._settle(text)
        if not self.open and not self.untold:
            return use("end_conversation", reason="refused" if self.refused and self.refused == len(self.task.wishes) else "settled")
        self.annoyed = 0 if progress else self.annoyed + 1
        if self.annoyed >= self.patience:
            return use("end_conversation", reason="gave_up")
        if _ASKS_WHO.search(text) and "?" in text and not progress:
            return say(f"{self._identity()} {self._request()}")
        return say(f"{self._pick('Thank you.', 'Thanks.', 'Great.') if progress else self._pick('Hm.', 'Well.', 'Sorry?')} {self._request()}")

    def _judge(self, heard: str) -> Action | None:
        """Yes to a proposal of open wishes, no to any other; None where the question proposes nothing."""
        matched = [entry for entry in self.open if not entry.approved and names_all(entry.wish, heard)]
        known = {token for entry in matched for token in _tokens(entry.wish)}
        said = set(ORDER.findall(heard)) | set(ITEM.findall(heard)) | set(METHOD.findall(heard))
        if matched and said <= known:
            for entry in matched:
                entry.approved = True
            self.annoyed = 0
            return say(self._pick("Yes, please go ahead.", "Yes, do that please.", "Yes, that is right."))
        if not said and not matched:
            return None
        self.annoyed += 1
        if self.annoyed >= self.patience:
            return use("end_conversation", reason="gave_up")
        return say(f"No, that is not what I want. {self._request()}")

    def _settle(self, text: str) -> bool:
        """Closes the wishes that this text settles; tells whether there was one."""
        before = len(self.open)
        if _DONE.search(text):
            self.open = [entry for entry in self.open if not entry.approved]
        if self.open:
            wish = self.open[0].wish
            if wish.kind == "impossible" and _REFUSES.search(text):
                self.refused += 1
                del self.open[0]
            elif wish.kind == "question" and not self._lacks_answer():
                del self.open[0]
        return len(self.open) < before

    def _lacks_answer(self) -> bool:
        later = sum(entry.wish.kind == "question" for entry in self.open[1:])
        return len(self.untold) > later if later else bool(self.untold)

    # -- saying -------------------------------------------------------------------------------------------------------------

    def _pick(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def _identity(self) -> str:
        knows = self.task.knows
        if not knows("first_name"):
            return ""
        email = f" My e-mail address is {knows('email')}." if knows("email") else ""
        postcode = f" My zip code is {knows('zip')}." if knows("zip") else ""
        return f"My name is {knows('first_name')} {knows('last_name')}.{email}{postcode}"

    def _request(self) -> str:
        """The first open wish in words."""
        waiting = next((entry.wish for entry in self.open if not entry.approved), self.open[0].wish if self.open else None)
        return request(waiting) if waiting is not None else "You have not told me everything that I asked for yet."


def request(wish: Any) -> str:
    """A wish as the customer says it."""
    arguments, method = wish.arguments, wish.words.get("method", "")
    order_id = arguments.get("order_id", "")
    if wish.kind == "cancel_pending_order":
        return f"Please cancel order {order_id}. The reason: {arguments['reason']}."
    if wish.kind == "return_delivered_order_items":
        return f"I want to return from order {order_id}: {_items(wish)}. Please refund it to {method}."
    if wish.kind == EXCHANGE:
        return f"I want to exchange from order {order_id}: {_items(wish)}. Please use {method} for the difference."
    if wish.kind == MODIFY:
        return f"I want to change items of order {order_id}: {_items(wish)}. Please use {method} for the difference."
    if wish.kind == "modify_pending_order_payment":
        return f"Please let me pay order {order_id} with {method} instead."
    if wish.kind == "modify_pending_order_address":
        return f"Please change the address of order {order_id} to: {labelled(arguments)}."
    if wish.kind == "modify_user_address":
        return f"Please change my default address to: {labelled(arguments)}."
    return str(wish.text)


def _items(wish: Any) -> str:
    return " + ".join(
        f"{item.name} ({_options(item.options)})" + (f" for one with ({_options(item.wanted)})" if item.wanted is not None else "")
        for item in wish.words["items"]
    )


def _options(options: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in options.items())


def _tells(text: str, output: str) -> bool:
    """Whether a text holds a fact: a number by its value, up to twenty also as a word, and as no part of a longer one; words as they stand."""
    meant = re.escape(output.casefold())
    if number := re.fullmatch(r"(\d{1,9})(?:\.(\d*?)0*)?", output):
        whole, cents = number.groups()
        meant = rf"{whole}\.{cents}0*" if cents else rf"{whole}(?:\.0+)?"
        if not cents and int(whole) < len(_COUNTS):
            meant += f"|{_COUNTS[int(whole)]}"
    return re.search(rf"(?<![\w#.])(?:{meant})(?!\w|\.\d)", text.replace(",", "")) is not None


# -- checking ---------------------------------------------------------------------------------------------------------------


def names_all(wish: Any, text: str) -> bool:
    """Whether a text names a wish with all of its arguments, each as a word of its own."""
    folded = text.casefold()
    if wish.kind not in _VERB or not re.search(_VERB[wish.kind], folded):
        return False
    for name, value in wish.arguments.items():
        if name in ("item_ids", "new_item_ids"):
            if not _names_items(wish, name, folded):
                return False
        elif name == "payment_method_id":
            if not _times(value, folded) and not _names_method(wish.words.get("method", ""), folded):
                return False
        elif name in (*ADDRESS, "order_id", "reason") and value != "" and not _times(value, folded):
            return False
    return True


def _names_items(wish: Any, name: str, text: str) -> bool:
    ids = wish.arguments[name]
    if all(_times(item_id, text) >= ids.count(item_id) for item_id in ids):
        return True
    described = [item.options if name == "item_ids" else item.wanted for item in wish.words["items"]]
    return all(_times(value, text) for options in described for value in options.values())


def _names_method(words: str, text: str) -> bool:
    digits = re.search(r"\d{4}$", words)
    mark = digits.group() if digits else words.casefold().removeprefix("my ").removesuffix(" account")
    return bool(mark) and _times(mark, text) > 0


def _times(value: Any, text: str) -> int:
    """How often a folded text holds a value that is no part of a longer word or number."""
    return len(re.findall(rf"(?<!\w){re.escape(str(value).casefold())}(?!\w)", text))


def _tokens(wish: Any) -> set[str]:
    arguments = wish.arguments
    return {arguments.get("order_id", ""), arguments.get("payment_method_id", ""), *arguments.get("item_ids", ()), *arguments.get("new_item_ids", ())}
