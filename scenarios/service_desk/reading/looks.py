"""What one sentence of an assistant is by itself: whether it asks for a yes, of which writes it
speaks, and the acts that it makes. Knows nothing of the sentences around it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from gem_ma.scenarios.service_desk.reading import cues
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook

CLAUSE = 300  # characters of a second question in a sentence that are looked at
Sketch = tuple[str, float, str]  # an act as kind, confidence, slot


@dataclass(frozen=True, slots=True)
class Look:
    """What a sentence is by itself; `kind`, the first of its acts, decides what it is for a
    proposal."""

    writes: frozenset[str]
    asks: bool  # it wants an answer
    strong: bool  # it asks for a yes and nothing else
    weak: bool  # it may ask for a yes
    note: bool
    acts: tuple[Sketch, ...] = ()
    kind: str = ""
    # it speaks of a write that is not to be made, of one of several ways, or of writes of two kinds
    twisted: bool = False


# a talk says the same sentences over and over
@lru_cache(maxsize=4096)
def look(sentence: str, phrasebook: Phrasebook, listed: bool) -> Look:
    """The look of a folded sentence; `listed`: it is an entry of a list of what is asked for."""
    strong, second = _asks_to_go_ahead(sentence)
    bare = Look(
        phrasebook.writes(sentence),
        listed or cues.REQUEST.search(sentence) is not None,
        strong,
        cues.WEAK.search(sentence) is not None,
        cues.NOTE.search(sentence) is not None,
    )
    if cues.TRANSFER.search(sentence):
        confidence = 0.6 if strong or bare.asks else 0.9
        return replace(bare, acts=(("transfer", confidence, ""),), kind="transfer")
    acts = _statement(sentence, phrasebook, bare)
    more = cues.MORE.search(sentence) is not None
    if more and not acts:
        sure = bare.asks or "let me know" in sentence
        acts.append(("offer_more", 0.9 if sure else 0.7, ""))
    # A report of what was made may hold a word that asks; it asks nothing of the customer.
    if bare.asks and not (acts and acts[0][0] == "claim_done"):
        questions, of_slots = _questions(sentence, phrasebook, bare, second, more)
        # Below certainty, since a sentence with two questions asks them both.
        acts += questions
        if of_slots:
            # the yes that it seemed to ask for was the answer to these
            bare = replace(bare, strong=second, weak=False)
    kind = acts[0][0] if acts else ""
    if not acts:
        acts, kind = _remark(sentence, bare)
    twisted = _twisted(sentence, bare.writes, phrasebook)
    return replace(bare, acts=tuple(acts), kind=kind, twisted=twisted)


def _asks_to_go_ahead(sentence: str) -> tuple[bool, bool]:
    """Whether a sentence asks for a yes, and whether it does so in a second question behind one
    of another kind: `How would you like to pay, and may I go ahead?`"""
    strong = cues.STRONG.search(sentence)
    if strong is None:
        return False, False
    # `which card shall I use?` holds the words of a yes and asks for a value.
    where = cues.WH_START.search(sentence)
    # behind a colon the question is over, and what is asked for a yes stands by itself
    first = (
        where is None
        or where.start() > strong.start()
        or ":" in sentence[where.start() : strong.start()]
    )
    if first:
        return True, False
    second = any(
        _asks_for_a_yes(sentence[joint.end() : joint.end() + CLAUSE])
        for joint in cues.AND_ASKS.finditer(sentence)
    )
    return second, second


def _statement(sentence: str, phrasebook: Phrasebook, bare: Look) -> list[Sketch]:
    """What a sentence states of records and writes, as one act at most: not found, refused, or
    made."""
    if cues.NOT_FOUND.search(sentence):
        return [("inform", 0.8, "not_found")]
    # A domain's own words for a refusal, apart from `once per order`, which is a rule.
    refuses = cues.REFUSE.search(sentence) or (
        phrasebook.refusing.search(sentence) and not cues.ONLY_ONCE.search(sentence)
    )
    # "You will not be able to change it later" warns, and refuses nothing
    warns = bare.note and not sentence.startswith(("note", "please note"))
    if refuses and not warns and not (bare.strong and bare.writes):
        # A note or a question that refuses is half sure: `if that isn't possible` refuses nothing
        # yet.
        return [("refuse", 0.5 if bare.note or bare.asks else 0.9, "")]
    if bare.strong or sentence.endswith("?") or not _reports(sentence, phrasebook):
        return []
    if bare.writes or cues.GENERIC_DONE.search(sentence):
        return [("claim_done", 0.9 if bare.writes else 0.7, "")]
    return []


def _questions(
    sentence: str, phrasebook: Phrasebook, bare: Look, second: bool, more: bool
) -> tuple[list[Sketch], bool]:
    """What a sentence that wants an answer asks for, and whether that is the values of slots."""
    slots = [slot for slot, pattern in phrasebook.asked.items() if pattern.search(sentence)]
    # A number in it makes it likelier that it repeats a detail than that it asks for one.
    named = cues.FACT.search(sentence) is not None
    either = cues.CHOICE.search(sentence) is not None
    if len(bare.writes) > 1 and either and not bare.strong and not named:
        return [("ask", 0.8, "request")], False  # a choice of what to do
    opens = not bare.strong or second or (either and not bare.writes)
    if slots and opens and not (bare.weak and named) and not more:
        return [("ask", 0.9 if not named else 0.6, slot) for slot in slots], True
    if not slots and not bare.strong and cues.OPEN.search(sentence) and not more:
        return [("ask", 0.8, "request")], False
    return [], False


def _remark(sentence: str, bare: Look) -> tuple[list[Sketch], str]:
    """The act of a sentence that does nothing else, and its kind for a proposal."""
    waits = cues.WAIT.search(sentence) and "transfer" not in sentence
    if waits and not bare.writes and not bare.strong:
        return [("wait", 0.7, "")], "wait"
    if not (bare.asks or bare.strong or bare.weak) and cues.FACT.search(sentence):
        # A greeting or a wait may hold numbers as well, so facts are looked for before.
        return [("inform", 0.6, "")], ""  # may be a detail of a proposal: no kind
    if cues.GREET.search(sentence) and not bare.strong:
        return [("greet", 0.8, "")], "greet"
    return [], ""


def _asks_for_a_yes(clause: str) -> bool:
    return cues.STRONG.search(clause) is not None and cues.WH_START.search(clause) is None


def _twisted(sentence: str, writes: frozenset[str], phrasebook: Phrasebook) -> bool:
    """Whether a yes to a sentence would leave it open what is to be done."""
    if not writes:
        return False
    if cues.OTHERWISE.search(sentence) or any(
        phrasebook.writes(_next(sentence, hit.end())) for hit in cues.NEGATES.finditer(sentence)
    ):
        return True
    kinds = [
        # Each joint: `stop it and start another` is of two kinds, and one yes would be for both.
        phrasebook.writes(_next(sentence, hit.end()))
        for hit in cues.JOINS.finditer(sentence)
    ]
    first = cues.JOINS.search(sentence)
    before = phrasebook.writes(sentence[: first.start()]) if first else frozenset[str]()
    return any(kind and before and not kind & before for kind in kinds)


def _next(sentence: str, start: int) -> str:
    """The next words of the same clause."""
    # Three words: what is denied or added follows at once, and a longer look would find other
    # verbs.
    return " ".join(re.split(r"[,;:(]", sentence[start:])[0].split()[:3])


def _reports(sentence: str, phrasebook: Phrasebook) -> bool:
    """Whether a sentence says that something has been done, not that it will or may be, nor in
    which state a thing is."""
    if cues.STATUS.search(sentence) or (
        cues.LOOKED.search(sentence) and not phrasebook.writes(sentence)
    ):
        return False
    # `has been paused` tells a state and would read as a report.
    sentence = phrasebook.states.sub(" ", sentence)
    done = cues.DONE.search(sentence) or phrasebook.finished.search(sentence)
    # A modal before the verb turns the report into a plan.
    return done is not None and not cues.MODAL.search(sentence[: done.end()])
