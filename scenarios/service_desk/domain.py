"""What the judges of a service talk must know of a domain: data and a few small functions, no rule.
Each domain fills one in.

A *record* is `(table, key)` in the store. Whose it is decides who may be served on it; which
argument names it decides what a call touches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import Facts, plain
from gem_ma.scenarios.service_desk.desk.overlay import Overlay, Slot
from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook

from gem_ma import ToolCall

FIND, PERSONAL, CATALOGUE, WRITE, UTILITY, TRANSFER = (
    "find",
    "personal",
    "catalogue",
    "write",
    "utility",
    "transfer",
)
ROLES = (FIND, PERSONAL, CATALOGUE, WRITE, UTILITY, TRANSFER)
RECORD = "record"  # the very record that a request is about
# Matches nowhere, not even the empty text.
NEVER = re.compile(r"(?!)")
Put = Callable[[ToolCall, Overlay], "Wish | None"]


def in_no_words(call: ToolCall, data: Overlay) -> Wish | None:
    """A write as a wish whose only words are its arguments."""
    # Arguments that are not an object can stand in no proposal.
    return Wish(call.name, call.arguments) if isinstance(call.arguments, dict) else None


# For find tools that answer with nothing but the id.
def result_itself(call: ToolCall, result: str) -> str:
    """The id that a find tool answered, where the answer is nothing but the id."""
    return result.strip()


def never_locked(table: str, key: str, record: Mapping[str, Any]) -> bool:
    return False


def nothing_same(call: ToolCall) -> Sequence[str]:
    return ()


def nothing_unnamed(call: ToolCall, data: Overlay, texts: Sequence[str]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Ground:
    """What a refusal for one reason rests on. `named`: words that give this reason, in folded
    text; `akin`: the reasons that may be given with it; `looks`: roles of tools, or RECORD, one
    of which must have been used."""

    named: re.Pattern[str]
    akin: frozenset[str]
    looks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain as its judges see it.

    `roles`: tool -> `find` (who is it), `personal` (reads of a customer's data), `catalogue` (reads
    that anybody may see), `write`, `utility`, `transfer`; the user's own tools stand here too.
    `keys`: argument -> table whose record it names. `owners`: table -> field that holds the
    customer's id, "" where the key is the id; tables without an entry are nobody's. `ids` finds ids
    in a text; `id_arguments` hold nothing but ids. `once`: write tool -> the kind of change that a
    record bears once. `topics`: write tool -> words of which a text that speaks of such a write
    holds one, searched in folded text; of a tool without an entry that is left to the book.
    `grounds`: the reasons to refuse. `book` reads texts; without one, what hangs on the meaning of
    a text is not looked at.

    `facts`: a record as facts. `identified`: the id that a find call found. `put`: a write as a
    customer would put it, before it is made. `unnamed`: the arguments of a write, made on these
    data, that none of these texts names in any way; () where it cannot be told. `same`: what a
    write changes into itself. `locked`:
    whether a record can be changed no more.
    """

    roles: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    ids: re.Pattern[str] = NEVER
    id_arguments: frozenset[str] = frozenset()
    once: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    grounds: Mapping[str, Ground] = field(default_factory=dict)
    book: Phrasebook | None = None
    facts: Facts = plain
    identified: Callable[[ToolCall, str], str] = result_itself
    put: Put = in_no_words
    same: Callable[[ToolCall], Sequence[str]] = nothing_same
    unnamed: Callable[[ToolCall, Overlay, Sequence[str]], Sequence[str]] = nothing_unnamed
    locked: Callable[[str, str, Mapping[str, Any]], bool] = never_locked

    def role(self, tool: Any) -> str:
        """The role of a tool, "" for one that is not known."""
        return self.roles.get(tool, "") if isinstance(tool, str) else ""

    def speaks_of(self, text: str) -> set[str]:
        """The write tools that a folded text may speak of, rather too many than too few."""
        # `topics` first: cheap, and wide on purpose. The book is asked for tools that have none.
        found = {tool for tool, words in self.topics.items() if words.search(text)}
        return found | (
            set(self.book.writes(text)) - set(self.topics) if self.book is not None else set()
        )

    def records(self, call: ToolCall) -> list[Slot]:
        """The records that the arguments of a call name; an id that is not text names none."""
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
        # Any id may be of another type where a model made it up.
        named = ((table, arguments.get(name)) for name, table in self.keys.items())
        return [(table, key) for table, key in named if isinstance(key, str)]

    def owner(self, data: Overlay, slot: Slot) -> str:
        """Whose record it is, "" where it is nobody's or there is none."""
        table, key = slot
        # A table without an owner holds what anybody may see, such as a catalogue.
        if table not in self.owners or not data.has(table, key):
            return ""
        name = self.owners[table]
        return str(data.record(table, key).get(name, "")) if name else key


def spoken(call: ToolCall) -> str:
    """A call on one line, for evidence."""
    # Not escaped: evidence is read by people.
    return f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
