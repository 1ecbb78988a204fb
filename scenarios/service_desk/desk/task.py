"""One task of a service desk: who asks for what, and what the right end is. A task holds the
solution, so it never reaches a view as a whole.

The user is meant to know `instruction`; `knowledge` and `wishes` say the same as data, for users
without a model and for the ledger. `actions`, `outputs`, `ends` and `goal` are for graders and
for privileged behaviours only. Domain words stand in values, never in field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GoldCall:
    """One call of the solution; `agent` makes it."""

    name: str
    arguments: Mapping[str, Any]
    agent: str = "assistant"

    def serves(self, wish: Wish) -> bool:
        """Whether this is the write that a wish asks for."""
        return wish.kind == self.name and dict(wish.arguments) == dict(self.arguments)


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing that the user knows. `reveal`: told in the `opening`, told when asked for
    (`on_ask`), or `never` told.

    `known` is False for what the user ought to know and has forgotten: asked for it, it says so.
    What has no slot does not exist for the user.
    """

    name: str
    value: str
    reveal: str = "on_ask"
    known: bool = True


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that the user wants.

    `kind`: the name of a write tool, `question` (the `outputs` must be told), or `impossible`
    (has to be refused for `reason`). `arguments` are those of the write, to check proposals by;
    `choices` are other arguments that serve the wish as well. `text` is a question or an
    impossible request in the user's words; `words` describe the arguments in words a customer
    has (the domain's phrasebook reads them). `after`: places in `Task.wishes` that must be
    settled before. `instead`: what is asked for once this wish is refused. `before_change`: what
    the user asks for first and then takes back, for this wish.
    """

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    intent: str = ""
    outputs: tuple[str, ...] = ()
    reason: str = ""
    choices: tuple[Mapping[str, Any], ...] = ()
    after: tuple[int, ...] = ()
    instead: Wish | None = None
    before_change: Wish | None = None

    @property
    def writes(self) -> bool:
        """Whether the wish is served by a write."""
        return self.kind not in ("question", "impossible")


@dataclass(frozen=True, slots=True)
class Task:
    """A task of any source. `goal`: that the user is served, refused or transferred. `ends` are
    other acceptable sets of writes beside the writes of `actions`; `flags` name what is wrong with
    it as a test; `world` is the seed of its world, None for a data folder; `proof` says which
    proofs it passed and with what."""

    id: str
    source: str
    user_id: str
    instruction: str
    actions: tuple[GoldCall, ...]
    outputs: tuple[str, ...] = ()
    goal: str = "served"
    knowledge: tuple[Slot, ...] = ()
    wishes: tuple[Wish, ...] = ()
    ends: tuple[tuple[GoldCall, ...], ...] = ()
    flags: tuple[str, ...] = ()
    traits: Mapping[str, Any] = field(default_factory=dict)
    difficulty: Mapping[str, int] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)
    world: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scorable(self) -> bool:
        """False where the canonical grader has nothing to go by: inaction is right and nothing
        to be told, or the solution fails with no stand-in."""
        # A solution that fails says nothing of the right end.
        if "gold_write_error" in self.flags:
            # they stand in for it; the other flags are about the solution that fails
            return bool(self.ends)
        return "inaction_passes" not in self.flags or bool(self.outputs) or self.goal != "served"

    def knows(self, name: str) -> str:
        """The value of a slot that the user knows, "" where it knows none of that name."""
        return next((slot.value for slot in self.knowledge if slot.name == name and slot.known), "")
