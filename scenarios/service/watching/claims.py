"""Whether a change that the assistant reports was made, as far as its words say what changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gem_ma.scenarios.service.domain import Domain
from gem_ma.scenarios.service.reading import cues
from gem_ma.scenarios.service.reading.acts import Act
from gem_ma.scenarios.service.reading.phrases import plain

from gem_ma import ToolCall

_FOLLOWS = re.compile(r"refund|charg|credit|difference|e-?mail|pay")


def contradicted(act: Act, made: Sequence[ToolCall], fresh: bool, domain: Domain) -> bool:
    """Whether a report of certain writes does not fit those that were `made`; `fresh`: one of
    them was made since the customer spoke, so that its consequences may be told too."""
    calls = [call for call in made if call.name in act.writes]
    if _of_others(act, calls, domain):
        return True
    if not calls:
        # `You will get a refund` follows from a return that was just made, and is no report of its
        # own.
        return not (fresh and _FOLLOWS.search(act.text.casefold()))
    return _of_more(act, calls)


def _of_others(act: Act, calls: Sequence[ToolCall], domain: Domain) -> bool:
    """Whether a report names records of the changed tables, and none that was changed. Where no
    such change was made, any record that it names is another one."""
    book = domain.book
    mentions = book.mentions(act.text) if book is not None else ()
    named = {
        (domain.keys[mention.slot], mention.value)
        for mention in mentions
        if mention.slot in domain.keys
    }
    done = {slot for call in calls for slot in domain.records(call)}
    tables = {table for table, _ in done}
    # All tables of the change must be among those that are named: a product's id beside an order is
    # no other order.
    return bool(named) and not named & done and tables <= {table for table, _ in named}


def _of_more(act: Act, calls: Sequence[ToolCall]) -> bool:
    """Whether a report speaks of all or both, where a single thing was changed."""
    speaks_of_all = len(act.writes) > 1 and cues.ALL.search(plain(act.text)) is not None
    return speaks_of_all and sum(map(_things, calls)) < 2


def _things(call: ToolCall) -> int:
    """How many things a write changes: the entries of its longest list, or one."""
    values = call.arguments.values() if isinstance(call.arguments, Mapping) else ()
    return max((len(value) for value in values if isinstance(value, list)), default=1)
