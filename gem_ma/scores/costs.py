"""What each agent's model calls cost, read from the record. A price that is not known makes a cost
unknown (None), never 0.

The replies of all recorded episodes are counted, failed ones too; a reply out of a cache costs what
it cost when it was sampled. Attempts without a reply are counted but not priced: no server says
what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Reply, Usage

Pricing = Callable[[Usage], float | None]  # USD of one reply


def costs(episodes: Iterable[Episode], prices: Mapping[str, Pricing]) -> dict[str, dict[str, Any]]:
    """By agent: `requests`, `retries`, tokens `prompt`, `cached`, `completion` (None where a server
    did not count), and `usd`.

    `prices` are by policy. `usd` is None as soon as one reply has no price or no count. Agents
    without a model call are left out.
    """
    replies: dict[str, list[Reply]] = {}
    for episode in episodes:
        for turn in episode.turns:
            # a bot costs nothing and has no row
            if turn.replies:
                replies.setdefault(turn.agent, []).extend(turn.replies)
    return {agent: _cost(calls, prices) for agent, calls in sorted(replies.items())}


def _cost(replies: list[Reply], prices: Mapping[str, Pricing]) -> dict[str, Any]:
    usages = [reply.usage for reply in replies]
    paid = [
        prices[reply.policy](reply.usage) if reply.policy in prices else None for reply in replies
    ]
    return {
        "requests": len(replies),
        "retries": sum(len(reply.attempts) for reply in replies),
        "prompt": _sum([usage.prompt_tokens for usage in usages]),
        "cached": sum(usage.cached_tokens or 0 for usage in usages),
        "completion": _sum([usage.completion_tokens for usage in usages]),
        # a sum over the known ones alone would look like a cost
        "usd": None if None in paid else math.fsum(one for one in paid if one is not None),
    }


def _sum(counts: list[int | None]) -> int | None:
    # one reply without a count makes the whole unknown: a partial sum would look exact
    return None if None in counts else sum(count for count in counts if count is not None)


def cost_rows(costs_of: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(what, value) rows for printing; a line for all agents together where there are several."""
    rows = [
        (
            f"cost {agent}",
            f"{_usd(cost['usd'])} for {cost['requests']} requests, {cost['retries']} tried again",
        )
        for agent, cost in costs_of.items()
    ]
    # one agent is its own sum
    if len(costs_of) > 1:
        paid = [cost["usd"] for cost in costs_of.values()]
        rows.append(("cost", _usd(None if None in paid else math.fsum(paid))))
    return rows


def _usd(value: float | None) -> str:
    """
    >>> _usd(1.234), _usd(0.000123), _usd(0.0), _usd(None)
    ('$1.23', '$0.00012', '$0', 'n/a (no price)')
    """
    if value is None:
        return "n/a (no price)"
    # a reply may cost a ten-thousandth of a dollar, and $0.00 would read as free
    if value >= 0.1:
        return f"${value:.2f}"
    return f"${value:.2g}" if value >= 0.0001 or not value else f"${value:.6f}"
