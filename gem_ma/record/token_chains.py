"""The ids of prompts in a line of the record: what a conversation has said before stands there
once.

A prompt mostly begins with an earlier prompt of the same agent and what was sampled after it.
Written in full at every turn, a play of many turns would take room by the square of their
number. So a reply keeps the new ids alone, and `prompt_of: [back, count]`: the prompt begins
with the first `count` ids of the agent's reply so many `back` (its prompt, then its sampled
ids). Works on the plain values of `gem_ma.record.codec`, both ways.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

# replies of the agent that are looked at: an agent may hold several conversations side by side
BACK = 8
LEAST = 16  # ids that are worth a reference
Turns = Sequence[dict[str, Any]]


def thin(turns: Turns) -> None:
    """Takes out of these turns the ids that stand in earlier replies, in place."""
    ids_of: dict[str, deque[list[int]]] = {}
    for turn in turns:
        earlier = ids_of.setdefault(turn["agent"], deque(maxlen=BACK))
        for reply in turn.get("replies", ()):
            prompt = reply.get("prompt_ids", [])
            # each earlier reply is tried: a behaviour may talk to its model in several threads
            shared = (
                [(common(prompt, ids), -back) for back, ids in enumerate(earlier, 1)]
                if len(prompt) >= LEAST
                else []
            )
            earlier.appendleft([*prompt, *reply.get("token_ids", [])])
            # of equal lengths the latest reply, whose number is smallest
            count, back = max(shared, default=(0, 0))
            if count >= LEAST:
                reply["prompt_ids"] = prompt[count:]
                reply["prompt_of"] = [-back, count]


def whole(turns: Any) -> Any:
    """The turns with every prompt in full again. Raises ValueError naming the place where a
    reference leads nowhere; other damage stays as it is."""
    if not isinstance(turns, list):
        return turns
    ids_of: dict[Any, deque[list[Any]]] = {}
    result = []
    for index, turn in enumerate(turns):
        if (
            not isinstance(turn, dict)
            or not isinstance(turn.get("replies"), list)
            or not isinstance(turn.get("agent"), str)
        ):
            result.append(turn)
            continue
        earlier = ids_of.setdefault(turn["agent"], deque(maxlen=BACK))
        replies = []
        for number, reply in enumerate(turn["replies"]):
            if isinstance(reply, dict):
                reply = _full(reply, earlier, f"[{index}].replies[{number}].prompt_of")
                ids = [reply.get(name, []) for name in ("prompt_ids", "token_ids")]
                earlier.appendleft([one for part in ids if isinstance(part, list) for one in part])
            replies.append(reply)
        result.append({**turn, "replies": replies})
    return result


def _full(reply: dict[str, Any], earlier: deque[list[Any]], where: str) -> dict[str, Any]:
    if "prompt_of" not in reply:
        return reply
    place = reply["prompt_of"]
    new = reply.get("prompt_ids", [])
    if not (
        isinstance(place, list) and len(place) == 2 and all(type(number) is int for number in place)
    ):
        raise ValueError(f"{where}: expected [replies back, ids], got {place!r}")
    back, count = place
    if not (
        1 <= back <= len(earlier) and 0 <= count <= len(earlier[back - 1]) and isinstance(new, list)
    ):
        raise ValueError(f"{where}: {place} leads to no ids of an earlier reply")
    return {
        **{name: value for name, value in reply.items() if name != "prompt_of"},
        "prompt_ids": [*earlier[back - 1][:count], *new],
    }


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two sequences begin with in common; slices are compared, so that it takes no
    loop over ids.

    >>> common([1, 2, 3], [1, 2, 4, 5]), common([1, 2], [1, 2, 3]), common([], [1])
    (2, 2, 0)
    """
    low = 0
    high = min(len(first), len(second))
    if first[:high] == second[:high]:
        # the common case, a prompt that goes on: one comparison of slices
        return high
    while high - low > 1:  # the first `low` agree, the first `high` do not
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
