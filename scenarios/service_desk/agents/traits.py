"""Traits of a person who is played by a model: the same names, ranges and presets as those of the
scripted `customer`.

They decide per turn, drawn from the episode's own generator, since a trait that stands in a
prompt alone fades: `patience` ends the talk, and `front_load`, `cooperation`, `mistakes`,
`scepticism` and `mind_change` give the model a stage direction for one message. `verbosity`,
`register`, `order` and `persona` stand in the briefing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.scenarios.service_desk.agents.customer_traits import Character, traits_of

VERBOSITY = (
    # Middle verbosity needs no words: it is how a model writes anyhow.
    "Be terse: a few words, no greeting, no thanks.",
    "",
    "Be talkative: three or four sentences, with small talk around what matters.",
)
REGISTER = {
    "casual": "Write casually, as in a chat with a friend.",
    "formal": "Write formally and politely.",
}
ORDER = {
    "reversed": "Of several wishes bring the last one up first.",
    "shuffled": "Bring your wishes up in any order.",
}
DIRECTIONS = {  # trait -> what is to be done in this turn
    "front_load": (
        "For now say only what it is about; keep every detail until you are asked for it."
    ),
    "mind_change": (
        "This time waver: say that you may want something else after all. Next time come back to"
        " what you want."
    ),
    "cooperation": (
        "This time do not answer what you were asked; say something else that is on your mind."
    ),
    "mistakes": (
        "This time get one detail slightly wrong by mistake. In your next message correct it."
    ),
    "scepticism": (
        "If you are asked to agree to something, first ask for every detail that is missing, the"
        " price included."
    ),
}
# Cheap signs that a message did not help; a person that waits for more is patient enough.
_REFUSED = re.compile(
    r"\b(?:cannot|can['’]?t|unable|not able|not possible|impossible|not"
    r" allowed|won['’]?t|sorry|unfortunately|try again)\b",
    re.IGNORECASE,
)


class PlayedTraits:
    """The traits of one person in one episode. Raises ConfigError for a value out of range, or an
    unknown preset.

    Patience has no limit where neither it, nor a preset, nor the task says one.
    """

    def __init__(
        self,
        agent: str,
        rng: random.Random,
        persona: str,
        character: Character,
        task_traits: Mapping[str, Any] | None = None,
    ) -> None:
        self.traits = traits_of(agent, rng, character, task_traits or {})
        # Only where somebody asked for it: a played person talks as long as its briefing says.
        limited = character.preset is not None or character.patience is not None or task_traits
        self.patience = self.traits.patience if limited else None
        self.rng = rng
        parts = (
            persona.strip(),
            VERBOSITY[self.traits.verbosity],
            REGISTER.get(self.traits.register, ""),
            ORDER.get(self.traits.order, ""),
        )
        self.persona = " ".join(part for part in parts if part)
        # Drawn at the start, so that the turns before it are the same whatever the trait is.
        self._wavers_at = rng.randint(1, 3) if rng.random() < self.traits.mind_change else 0

    def direction(self, turn: int) -> str:
        """How the person's own message number `turn`, from 0, is to be played; "" for as it
        comes. Draws as often whatever the traits are."""
        traits = self.traits
        draws = (self.rng.random(), self.rng.random(), self.rng.random())
        hits = {
            # In the order of weight: one direction a turn, or the model follows none of them.
            "front_load": turn == 0 and draws[0] >= traits.front_load,
            "mind_change": turn > 0 and turn == self._wavers_at,
            "cooperation": turn > 0 and draws[1] >= traits.cooperation,
            "mistakes": draws[2] < traits.mistakes,
            "scepticism": turn > 0 and traits.scepticism == 2,
        }
        return next((DIRECTIONS[name] for name, hit in hits.items() if hit), "")

    def is_out_of_patience(self, heard: Sequence[str]) -> bool:
        """Whether the last `patience` messages were all unhelpful: refusals, or said before word
        by word."""
        if self.patience is None or len(heard) < self.patience:
            return False
        folded = [" ".join(text.casefold().split()) for text in heard]
        last = range(len(folded) - self.patience, len(folded))
        # Also what was said before, word by word: it brings nothing new.
        return all(_REFUSED.search(folded[at]) or folded[at] in folded[:at] for at in last)
