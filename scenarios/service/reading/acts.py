"""What an assistant's message does, read from the text alone: dialogue acts with places and
confidence. `answers` reads the customer's.

The cues here are neutral English of service talks; what a domain's writes, slots and values sound
like is asked of its phrasebook. A reading is a pure function of text and phrasebook.

Acts of an assistant: greet, ask (for `slot`; `request` = what is wanted), propose (a write,
waiting for a yes), inform, claim_done, refuse, transfer, offer_more, wait, and other where
nothing was understood.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from gem_ma.scenarios.service.desk.task import Wish
from gem_ma.scenarios.service.reading import cues
from gem_ma.scenarios.service.reading.phrases import (
    MISSING,
    RIGHT,
    WRONG,
    Phrasebook,
    fold,
    names,
    plain,
)

SURE = 0.5  # an act below this confidence is asked about, never acted upon
# characters of a message that are read, its first and its last half of them; twice `run.max_said`
READ = 65_536
PROPOSED = 64  # proposals of one message that are looked at beyond what they say
CLAUSE = 300  # characters of a second question in a sentence that are looked at
# of a proposal that negates itself or leaves open what is to be done: even a yes to it says little
OPEN = 0.2


_WORD, _NONE = re.compile(r"\w"), frozenset[str]()


@dataclass(frozen=True, slots=True)
class Act:
    """One dialogue act. `text` is what it speaks of: for a proposal all that belongs to one
    write; `writes` are the kinds it may mean."""

    kind: str
    start: int
    end: int
    confidence: float
    text: str = ""
    slot: str = ""
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Look:
    """What a sentence is by itself: acts as (kind, confidence, slot), the first of them decides
    what it is for a proposal."""

    writes: frozenset[str]
    asks: bool  # it wants an answer
    strong: bool  # it asks for a yes and nothing else
    weak: bool  # it may ask for a yes
    note: bool
    acts: tuple[tuple[str, float, str], ...]
    kind: str
    # it speaks of a write that is not to be made, of one of several ways, or of writes of two kinds
    twisted: bool = False


@dataclass(slots=True)
class _Part:
    """One sentence or line of a message."""

    start: int
    end: int
    text: str
    folded: str
    look: _Look
    orders: frozenset[str]
    listed: bool  # an entry of a list of what is asked for


@lru_cache(maxsize=1024)
def read(text: str, phrasebook: Phrasebook) -> tuple[Act, ...]:
    """The acts of an assistant's message, in the order of the text."""
    parts = _parts(text, phrasebook) if len(text) <= READ else _ends(text, phrasebook)
    acts = [
        Act(kind, part.start, part.end, confidence, part.text.strip(), slot, part.look.writes)
        for part in parts
        for kind, confidence, slot in part.look.acts
    ]
    proposed = _proposals(parts, acts)
    if any(act.kind == "transfer" for act in acts):
        acts = [act for act in acts if act.kind != "wait"]
    acts = [act for act in acts if not _covered(act, proposed)] + proposed
    if not acts:
        acts.append(Act("other", 0, len(text), 0.0, text))
    return tuple(sorted(acts, key=lambda act: (act.start, act.end, act.kind, act.slot)))


def _covered(act: Act, proposed: list[Act]) -> bool:
    """Whether an act is only a detail or a note of a proposal."""
    if act.kind == "inform" and act.slot == "":
        return any(each.start <= act.start and act.end <= each.end for each in proposed[:PROPOSED])
    return (
        act.kind == "refuse"
        and any(each.confidence >= SURE for each in proposed)
        and cues.ONCE.search(plain(act.text)) is not None
    )


def _ends(text: str, phrasebook: Phrasebook) -> list[_Part]:
    """The parts of a text's beginning and of its end."""
    later = len(text) - READ // 2
    last = _parts(text[later:], phrasebook)
    for part in last:
        part.start, part.end = part.start + later, part.end + later
    return _parts(text[: READ // 2], phrasebook) + last


def _parts(text: str, phrasebook: Phrasebook) -> list[_Part]:
    folded = cues.NUMBERED.sub(lambda mark: mark.group().replace(".", ")"), plain(text))
    orders = sorted(
        (mention for mention in phrasebook.mentions(text) if mention.slot in phrasebook.anchors),
        key=lambda mention: mention.start,
    )
    starts = [mention.start for mention in orders]
    parts: list[_Part] = []
    for found in cues.SENTENCE.finditer(folded):
        start, end = found.span()
        said = folded[start:end].strip()
        if not _WORD.search(said):
            continue
        within = orders[bisect_left(starts, start) : bisect_left(starts, end)]
        held = frozenset(mention.value for mention in within) if within else _NONE
        before = parts[-1] if parts else None
        listed = (
            before is not None
            and before.look.asks
            and not before.look.weak
            and (before.folded.endswith(":") or before.listed)
        )
        listed = listed and cues.ITEM.match(text[start:end]) is not None
        parts.append(
            _Part(start, end, text[start:end], said, _look(said, phrasebook, listed), held, listed)
        )
    return parts


@lru_cache(maxsize=4096)
def _look(said: str, phrasebook: Phrasebook, listed: bool) -> _Look:
    """A sentence by itself; many are said again and again."""
    writes, asks = phrasebook.writes(said), listed or cues.REQUEST.search(said) is not None
    where, found = cues.WH_START.search(said), cues.STRONG.search(said)
    strong = found is not None and (
        where is None or where.start() > found.start() or ":" in said[where.start() : found.start()]
    )
    second = (
        not strong
        and found is not None
        and any(
            _asks_for_a_yes(said[joint.end() : joint.end() + CLAUSE])
            for joint in cues.AND_ASKS.finditer(said)
        )
    )
    # two questions in a sentence: "How would you like to pay, and may I go ahead?"
    strong |= second
    weak, note, more = (
        cues.WEAK.search(said) is not None,
        cues.NOTE.search(said) is not None,
        cues.MORE.search(said) is not None,
    )
    acts: list[tuple[str, float, str]] = []
    if cues.TRANSFER.search(said):
        return _Look(
            writes,
            asks,
            strong,
            weak,
            note,
            (("transfer", 0.6 if strong or asks else 0.9, ""),),
            "transfer",
        )
    refuses = cues.REFUSE.search(said) or (
        phrasebook.refusing.search(said) and not cues.ONLY_ONCE.search(said)
    )
    if cues.NOT_FOUND.search(said):
        acts.append(("inform", 0.8, "not_found"))
    elif (
        refuses
        and not (note and not said.startswith(("note", "please note")))
        and not (strong and writes)
    ):
        acts.append(("refuse", 0.5 if note or asks else 0.9, ""))
    elif (
        not strong
        and not said.endswith("?")
        and _reports(said, phrasebook)
        and (writes or cues.GENERIC_DONE.search(said))
    ):
        acts.append(("claim_done", 0.9 if writes else 0.7, ""))
    if more and not acts:
        acts.append(("offer_more", 0.9 if asks or "let me know" in said else 0.7, ""))
    if asks and not (acts and acts[0][0] == "claim_done"):
        slots = [slot for slot, pattern in phrasebook.asked.items() if pattern.search(said)]
        named, either = cues.FACT.search(said) is not None, cues.CHOICE.search(said) is not None
        if len(writes) > 1 and either and not strong and not named:
            acts.append(("ask", 0.8, "request"))  # a choice of what to do
        elif (
            slots
            and (not strong or second or (either and not writes))
            and not (weak and named)
            and not more
        ):
            acts += [("ask", 0.9 if not named else 0.6, slot) for slot in slots]
            strong, weak = second, False
        elif not slots and not strong and cues.OPEN.search(said) and not more:
            acts.append(("ask", 0.8, "request"))
    if not acts and cues.WAIT.search(said) and not writes and "transfer" not in said and not strong:
        acts.append(("wait", 0.7, ""))
    kind = acts[0][0] if acts else ""
    if not acts and not asks and not strong and not weak and cues.FACT.search(said):
        acts.append(("inform", 0.6, ""))  # may be a detail of a proposal: no kind
    if not acts and cues.GREET.search(said) and not strong:
        acts.append(("greet", 0.8, ""))
        kind = "greet"
    return _Look(
        writes, asks, strong, weak, note, tuple(acts), kind, _twisted(said, writes, phrasebook)
    )


def _asks_for_a_yes(clause: str) -> bool:
    return cues.STRONG.search(clause) is not None and cues.WH_START.search(clause) is None


def _twisted(said: str, writes: frozenset[str], phrasebook: Phrasebook) -> bool:
    """Whether a yes to a sentence would leave it open what is to be done."""
    if not writes:
        return False
    if cues.OTHERWISE.search(said) or any(
        phrasebook.writes(_next(said, found.end())) for found in cues.NEGATES.finditer(said)
    ):
        return True
    kinds = [phrasebook.writes(_next(said, found.end())) for found in cues.JOINS.finditer(said)]
    first = cues.JOINS.search(said)
    before = phrasebook.writes(said[: first.start()]) if first else frozenset[str]()
    return any(kind and before and not kind & before for kind in kinds)


def _next(said: str, at: int) -> str:
    """The next words of the same clause."""
    return " ".join(re.split(r"[,;:(]", said[at:])[0].split()[:3])


def _reports(said: str, phrasebook: Phrasebook) -> bool:
    """Whether a sentence says that something has been done, not that it will or may be, nor in
    which state a thing is."""
    if cues.STATUS.search(said) or (cues.LOOKED.search(said) and not phrasebook.writes(said)):
        return False
    said = phrasebook.states.sub(" ", said)
    done = cues.DONE.search(said) or phrasebook.finished.search(said)
    return done is not None and not cues.MODAL.search(said[: done.end()])


_OUTSIDE = ("claim_done", "refuse", "transfer", "wait", "greet", "offer_more", "ask")


def _proposals(parts: list[_Part], acts: list[Act]) -> list[Act]:
    """The writes that a message proposes, one act each; their texts hold all that belongs to
    them."""
    strong, weak = any(part.look.strong for part in parts), any(part.look.weak for part in parts)
    asks = any(act.kind == "ask" for act in acts)
    intends = [
        part
        for part in parts
        if part.look.writes and not part.look.kind and cues.INTENDS.search(part.folded)
    ]
    material = [
        part
        for part in parts
        if part.look.kind not in _OUTSIDE
        or (part.look.strong and part.look.writes and part.look.kind != "transfer")
    ]
    if strong or weak:
        confidence = 0.95 if strong else 0.75
    elif intends and not asks:
        confidence = 0.6
    else:
        return []
    if not strong and asks:
        confidence = 0.4
    chunks = _chunks(material)
    if not chunks:
        if strong and not any(part.look.kind == "transfer" for part in parts):
            asked = next(part for part in parts if part.look.strong)
            return [Act("propose", asked.start, asked.end, 0.3, asked.text.strip())]
        return []
    return [
        Act(
            "propose",
            chunk[0].start,
            chunk[-1].end,
            _sure(chunk, confidence),
            "\n".join(part.text.strip() for part in chunk),
            "",
            _writes(chunk),
        )
        for chunk in chunks
    ]


def _chunks(material: list[_Part]) -> list[list[_Part]]:
    """Sentences grouped by the write they belong to; [] where none speaks of a write."""
    chunks: list[list[_Part]] = []
    head: list[_Part] = []
    # the chunk that `orders` are of, and how many of its parts were looked at
    grown: list[_Part] | None = None
    seen, orders, kinds = 0, frozenset[str](), set[frozenset[str]]()
    for part in material:
        starts = bool(part.look.writes) and not part.look.note
        if not chunks:
            head.append(part)
            if starts:
                chunks.append(head)
            continue
        if grown is not chunks[-1]:
            grown, seen, orders, kinds = chunks[-1], 0, frozenset(), set()
        kinds |= _kinds(grown[seen:])
        known, orders = _agreed(kinds), orders.union(*(before.orders for before in grown[seen:]))
        seen = len(grown)
        other = starts and (
            not (part.look.writes & known)
            or bool(part.orders and orders and not part.orders & orders)
        )
        if other and not (part.look.strong and not part.orders and len(part.folded) < 60):
            chunks.append([part])
        else:
            chunks[-1].append(part)
    return chunks


def _writes(chunk: list[_Part]) -> frozenset[str]:
    """What all sentences that speak of a write can agree on, else all that they may mean."""
    return _agreed(_kinds(chunk))


def _kinds(chunk: list[_Part]) -> set[frozenset[str]]:
    return {part.look.writes for part in chunk if part.look.writes and not part.look.note}


def _agreed(kinds: set[frozenset[str]]) -> frozenset[str]:
    common = frozenset.intersection(*kinds) if kinds else frozenset[str]()
    return common or frozenset[str]().union(*kinds)


def _sure(chunk: list[_Part], confidence: float) -> float:
    questions = [part for part in chunk if part.look.strong and part.look.writes]
    either = any(
        cues.CHOICE.search(part.folded) and len(part.look.writes) > 1 and not part.orders
        for part in questions
    )
    if any(part.look.twisted and not part.look.note for part in chunk):
        return min(confidence, OPEN)
    return min(confidence, 0.4) if either else confidence


# -- judging a proposal --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one proposal stands to one wish: a verdict for each argument that a customer can
    check."""

    arguments: Mapping[str, str]

    @property
    def wrong(self) -> tuple[str, ...]:
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
    # what an order holds is no proposal, unless it says "all of them"
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
    found = [
        Judgement(phrasebook.judge(each, text))
        for each in served
        for text in sorted(texts, reverse=True)
    ]
    return min(found, key=lambda judgement: (len(judgement.wrong), len(judgement.missing)))


# -- facts ---------------------------------------------------------------------------------------

_COUNTS = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
    ),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


_NUMBER = re.compile(r"(?<![\w#.,-])[$€£]?-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w%]|[.,-]\d)")
_MARK = re.compile(r"(?<!\S)\d{1,2}\)(?=\s)|^[ \t]*\d{1,2}\.(?=\s)", re.MULTILINE)


def tells(text: str, output: str) -> bool:
    """Whether a text holds a fact: a number by its value, up to twenty also as a word, and as no
    part of a longer one; words as they stand.

    >>> tells("That would be $1,625.6.", "1625.60"), tells("order #W10", "10"), tells("There are ten.", "10")
    (True, False, True)
    """
    output = output.strip()
    if _AMOUNT.fullmatch(output):
        number = _value(output.lstrip("$"))
        numbers, words = _numbers(text)
        return number in numbers or (
            number.isdigit() and int(number) < len(_COUNTS) and _COUNTS[int(number)] in words
        )
    return names(output, fold(text))


_AMOUNT = re.compile(r"\$?\d{1,9}(?:\.\d*)?")


@lru_cache(maxsize=256)
def _numbers(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The numbers of a text in one form each, and its words; marks of a list are no numbers."""
    unmarked = _MARK.sub(" ", text) if len(_MARK.findall(text)) > 1 else text
    numbers = frozenset(
        _value(whole.replace(",", "") + part) for whole, part in _NUMBER.findall(unmarked)
    )
    return numbers, frozenset(re.findall(r"[a-z]+", text.casefold()))


def _value(number: str) -> str:
    """A number without zeros that say nothing."""
    whole, _, part = number.partition(".")
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{part}" if part else "")
