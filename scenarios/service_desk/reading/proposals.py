"""How a proposal stands to what a customer wishes, argument by argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading import cues
from gem_ma.scenarios.service_desk.reading.acts import Act
from gem_ma.scenarios.service_desk.reading.phrases import (
    DOUBTFUL,
    MISSING,
    RIGHT,
    WRONG,
    Phrasebook,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one proposal stands to one wish: a verdict for each argument that a customer can
    check."""

    arguments: Mapping[str, str]

    @property
    def wrong(self) -> tuple[str, ...]:
        return tuple(
            name for name, verdict in self.arguments.items() if verdict in (WRONG, DOUBTFUL)
        )

    @property
    def certain(self) -> tuple[str, ...]:
        """Those of the wrong ones that no other reading makes right."""
        return tuple(name for name, verdict in self.arguments.items() if verdict == WRONG)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.arguments.items() if verdict == MISSING)

    @property
    def right(self) -> bool:
        """Whether every argument is named, and rightly."""
        return all(verdict == RIGHT for verdict in self.arguments.values())


def judge(act: Act, wish: Wish, phrasebook: Phrasebook) -> Judgement | None:
    """The best that can be said of a proposal for a wish, over all arguments that would serve;
    None where it is of another kind."""
    if not act.writes & phrasebook.kinds(wish):
        return None
    # what an order holds is not a proposal, unless it says "all of them"
    texts = {act.text, cues.CONTENTS.sub(r"\1", act.text)}
    served = (
        wish,
        *(
            replace(
                wish,
                arguments={**wish.arguments, **other},
                words={**wish.words, **other.get("words", {})},
            )
            for other in wish.choices
        ),
    )
    # Sorted, as sets of texts have no order; the first of equal judgements is taken.
    judgements = [
        Judgement(phrasebook.judge(each, text))
        for each in served
        for text in sorted(texts, reverse=True)
    ]
    # Wrong arguments weigh more than missing ones: those may stand elsewhere.
    return min(judgements, key=lambda judgement: (len(judgement.wrong), len(judgement.missing)))
