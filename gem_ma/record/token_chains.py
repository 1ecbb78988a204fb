"""The ids of prompts in a line of the record: what a conversation has said before stands there
once.

A prompt mostly begins with an earlier prompt of the same agent and what was sampled after it.
Written in full at every turn, a play of many turns would take room by the square of their
number. So a reply keeps the new ids alone, and `prompt_of: [back, count]`: the prompt begins
with the first `count` ids of the agent's reply so many `back` (its prompt, then its sampled
ids). `thin` and `whole` work on the plain values of
`gem_ma.record.codec`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

# replies of the agent that are looked at: an agent may hold several conversations side by side
BACK = 8
LEAST = 16  # ids that are worth a reference
Turns = Sequence[dict[str, Any]]
Ids = Any  # lists, or tuples; one kind in a play


class Chains:
    """The ids of each agent's last replies: a prompt and what was sampled after it."""

    def __init__(self) -> None:
        self._replies: dict[Any, deque[tuple[Ids, Ids]]] = {}

    def add(self, agent: str, prompt: Ids, ids: Ids) -> None:
        """Keeps those of a reply, the prompt in full."""
        if agent not in self._replies:
            self._replies[agent] = deque(maxlen=BACK)
        self._replies[agent].appendleft((prompt, ids))

    def shared(self, agent: str, prompt: Ids) -> tuple[int, int] | None:
        """(replies back, ids) of the longest beginning that an earlier reply has, of equal ones
        the latest; None where no reference is worth it."""
        best = LEAST - 1
        found = None
        # each is tried: a behaviour may talk to its model in several threads
        for back, (before, ids) in enumerate(self._replies.get(agent, ()), 1):
            size = len(before) + len(ids)
            if min(size, len(prompt)) <= best:
                continue
            # the common case, a prompt that goes on: nothing is joined
            if prompt[: len(before)] == before and prompt[len(before) : size] == ids:
                count = size
            else:
                count = common(prompt, self._joined(agent, back))
            if count > best:
                best = count
                found = (back, count)
        return found

    def full(self, agent: str, new: Ids, reference: Any, where: str) -> Ids:
        """The whole prompt. Raises ValueError naming the place `where`."""
        if not (
            isinstance(reference, (list, tuple))
            and len(reference) == 2
            and all(type(number) is int for number in reference)
        ):
            raise ValueError(f"{where}: expected [replies back, ids], got {reference!r}")
        back, count = reference
        if 1 <= back <= len(self._replies.get(agent, ())) and isinstance(new, (list, tuple)):
            ids = self._joined(agent, back)
            if 0 <= count <= len(ids):
                return ids[:count] + new
        raise ValueError(f"{where}: {list(reference)} leads to no ids of an earlier reply")

    def _joined(self, agent: str, back: int) -> Ids:
        prompt, ids = self._replies[agent][back - 1]
        if ids:
            prompt = prompt + ids
            self._replies[agent][back - 1] = (prompt, prompt[:0])
        return prompt


def thin(turns: Turns) -> None:
    """Takes out of these turns the ids that stand in earlier replies, in place."""
    chains = Chains()
    for turn in turns:
        for reply in turn.get("replies", ()):
            prompt = reply.get("prompt_ids", [])
            reference = chains.shared(turn["agent"], prompt)
            chains.add(turn["agent"], prompt, reply.get("token_ids", []))
            if reference is not None:
                reply["prompt_ids"] = prompt[reference[1] :]
                reply["prompt_of"] = list(reference)


def whole(turns: Any) -> Any:
    """The turns with every prompt in full again. Raises ValueError naming the place where a
    reference leads nowhere; other damage stays as it is."""
    if not isinstance(turns, list):
        return turns
    chains = Chains()
    result = []
    for index, turn in enumerate(turns):
        agent = turn.get("agent") if isinstance(turn, dict) else None
        if isinstance(agent, str) and isinstance(turn.get("replies"), list):
            turn = dict(turn)
            turn["replies"] = [
                _full(chains, agent, reply, f"[{index}].replies[{number}].prompt_of")
                for number, reply in enumerate(turn["replies"])
            ]
        result.append(turn)
    return result


def _full(chains: Chains, agent: str, reply: Any, where: str) -> Any:
    if not isinstance(reply, dict):
        return reply
    if "prompt_of" in reply:
        reply = dict(reply)
        reference = reply.pop("prompt_of")
        new = reply.get("prompt_ids", [])
        reply["prompt_ids"] = chains.full(agent, new, reference, where)
    kept = [reply.get(name, []) for name in ("prompt_ids", "token_ids")]
    prompt, ids = (part if isinstance(part, list) else [] for part in kept)
    chains.add(agent, prompt, ids)
    return reply


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
