"""Verdicts: pure functions of (task, end state, what the assistant said, how it ended). They look at a copy and change nothing.

`tau1` is tau-bench's own rule with its faults, for comparable numbers. `canonical`, the default, compares what changed, in cents and without
regard to orders that mean nothing; it gives nothing for inaction, and wants the right typed outcome.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gem_ma.scenarios.retail.store import RetailStore
from gem_ma.scenarios.service.overlay import Base, Overlay
from gem_ma.scenarios.service.talk import Outcome
from gem_ma.scenarios.service.task import Task


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reward` is 1 or 0; `parts` say why; `scored` is False where the grader has nothing to go by."""

    reward: float
    parts: Mapping[str, bool] = field(default_factory=dict)
    scored: bool = True


Grader = Callable[[Task, Overlay, Overlay, Outcome], Verdict]  # (task, end state, state after the solution, outcome)


def gold_state(base: Base, semantics: str, task: Task) -> Overlay:
    """The database after the task's solution; what only reads is not repeated."""
    store = RetailStore(base, semantics)
    for call in task.actions:
        if store.mutates(call.name):
            store.call(call.name, dict(call.arguments))
    return store.overlay


# -- tau1 -------------------------------------------------------------------------------------------------------------------


def tau1(task: Task, end: Overlay, gold: Overlay, outcome: Outcome) -> Verdict:
    """Equal databases, and each output a substring of some text without its commas; nothing where the talk ran into its limit."""
    texts = [text.lower().replace(",", "") for text in outcome.said]
    parts = {
        "ended": outcome.by != "limit",
        "database": end.equals(gold),
        "outputs": all(any(output.lower() in text for text in texts) for output in task.outputs),
    }
    return Verdict(float(all(parts.values())), parts)


# -- canonical --------------------------------------------------------------------------------------------------------------


def canonical(task: Task, end: Overlay, gold: Overlay, outcome: Outcome) -> Verdict:
    """The same changes as the solution makes, every wanted fact told, and the goal's own outcome."""
    done, wanted = changes(end), changes(gold)
    parts = {
        "database": done == wanted,
        "facts": all(told(output, outcome.said) for output in task.outputs) and not (task.outputs and sprays(task.outputs, outcome)),
        "outcome": _outcome_fits(task.goal, outcome),
    }
    return Verdict(float(task.scorable and all(parts.values())), parts, task.scorable)


def _outcome_fits(goal: str, outcome: Outcome) -> bool:
    if goal == "transferred":
        return outcome.by == "transfer"
    if goal == "refused":
        return outcome.by == "user" and outcome.reason == "refused" and bool(outcome.said)
    return outcome.by == "user" and outcome.reason != "gave_up"


Fact = tuple[Any, ...]  # (table, record, field, ..., value)


def changes(data: Overlay) -> Counter[Fact]:
    """The facts that hold now and did not at the start, less those that held and do not, as a signed multiset."""
    found: Counter[Fact] = Counter()
    for table, key in data.touched():
        now, before = facts(table, key, data.record(table, key)), facts(table, key, data.base.tables[table][key])
        found.update(now)
        found.subtract(before)
    return Counter({fact: count for fact, count in found.items() if count})


def facts(table: str, key: str, record: Mapping[str, Any]) -> Counter[Fact]:
    """A record as a multiset of normalised facts: money in cents, addresses folded, payments net by method, lists without their order."""
    found: list[Fact] = []
    pairs = record.get("exchange_pairs")
    for name, value in record.items():
        at = (table, key, name)
        if name == "payment_history":
            found += [(*at, method, amount) for method, amount in _net(value).items() if amount]
        elif name == "items":
            found += [(*at, item["product_id"], item["item_id"], cents(item["price"])) for item in value]
        elif name == "payment_methods":
            found += [(*at, method, cents(entry["balance"])) for method, entry in value.items() if "balance" in entry]
        elif name == "address":
            found += [(*at, part, _folded(text)) for part, text in value.items()]
        elif name == "exchange_price_difference":
            found.append((*at, cents(value)))
        elif name == "exchange_pairs":
            found += [(*at, old, new) for old, new in value]
        elif name in ("exchange_items", "exchange_new_items") and pairs is not None:
            continue  # the pairs say it, and more
        elif name in ("exchange_items", "exchange_new_items", "return_items"):
            found += [(*at, item_id) for item_id in value]
        elif isinstance(value, str):
            found.append((*at, value))
    return Counter(found)


def cents(amount: Any) -> int:
    """Money in whole cents."""
    return round(amount * 100)


def _net(history: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    net: dict[str, int] = {}
    for row in history:
        sign = -1 if row["transaction_type"] == "refund" else 1
        net[row["payment_method_id"]] = net.get(row["payment_method_id"], 0) + sign * cents(row["amount"])
    return net


def _folded(text: Any) -> str:
    return " ".join(str(text).split()).casefold()


# -- facts in texts ---------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w#.,])-?\$?-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w%]|[.,]\d)")
_MARK = re.compile(r"(?<!\S)\d{1,2}\)(?=\s)|^[ \t]*\d{1,2}\.(?=\s)", re.MULTILINE)
GUESSES = 3  # numbers that an assistant may tell out of its head, such as its own sums
# fmt: off
_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)
# fmt: on


def told(output: str, texts: Sequence[str]) -> bool:
    """Whether some text tells this value: a number by its value, an id exactly, words on their boundaries. Marks of a list are no numbers.

    >>> told("625.60", ["It costs $625.6."]), told("10", ["order #W1002345, 10.99"]), told("10", ["there are ten"])
    (True, False, True)
    """
    wanted, texts = output.strip(), [_unmarked(text) for text in texts]
    if re.fullmatch(r"\$?\d{1,9}(\.\d+)?", wanted):
        number = Decimal(wanted.lstrip("$"))
        word = _WORDS[int(number)] if number == number.to_integral_value() and number <= 20 else None
        return any(number in _numbers(text) or (word is not None and _has_phrase(text, word)) for text in texts)
    return any(_has_phrase(text, wanted) for text in texts)


def sprays(outputs: Sequence[str], outcome: Outcome) -> bool:
    """Whether the assistant told many numbers that it was never shown, wanted ones aside: who says every number there is tells none."""
    found = {number for text in outcome.said for number in _numbers(_unmarked(text)) | _worded(text)}
    found -= {number for output in outputs for number in _numbers(output)}
    if len(found) > GUESSES:  # seldom; what was shown is long
        found -= {number for text in outcome.shown for number in _numbers(text)}
    return len(found) > GUESSES


def _worded(text: str) -> set[Decimal]:
    words = set(re.findall(r"[a-z]+", text.casefold()))
    return {Decimal(number) for number, word in enumerate(_WORDS) if number > 1 and word in words}  # "one" is seldom a number


def _unmarked(text: str) -> str:
    """The text without the marks `1)` and, before a line, `1.` where there are several."""
    return _MARK.sub(" ", text) if len(_MARK.findall(text)) > 1 else text


def _numbers(text: str) -> set[Decimal]:
    return {Decimal(whole.replace(",", "") + part) for whole, part in _NUMBER.findall(text)}


def _has_phrase(text: str, phrase: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(_folded(phrase))}(?!\w)", _folded(text)) is not None


GRADERS: dict[str, Grader] = {"canonical": canonical, "tau1": tau1}
