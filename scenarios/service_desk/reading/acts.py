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
from dataclasses import dataclass
from functools import lru_cache

from gem_ma.scenarios.service_desk.reading import cues
from gem_ma.scenarios.service_desk.reading.looks import Look, look
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook, plain

SURE = 0.5  # an act below this confidence is asked about, never acted upon
# characters of a message that are read, its first and its last half of them; twice `run.max_said`
READ = 65_536
PROPOSED = 64  # proposals of one message that are looked at beyond what they say
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


@dataclass(slots=True)
class _Part:
    """One sentence or line of a message."""

    start: int
    end: int
    text: str
    folded: str
    look: Look
    orders: frozenset[str]
    listed: bool  # an entry of a list of what is asked for


@lru_cache(maxsize=1024)
def read(text: str, phrasebook: Phrasebook) -> tuple[Act, ...]:
    """The acts of an assistant's message, in the order of the text."""
    # Of an endless message both ends are read: what is asked stands last, who is meant first.
    parts = _parts(text, phrasebook) if len(text) <= READ else _ends(text, phrasebook)
    acts = [
        Act(kind, part.start, part.end, confidence, part.text.strip(), slot, part.look.writes)
        for part in parts
        for kind, confidence, slot in part.look.acts
    ]
    proposed = _proposals(parts, acts)
    # `I'll transfer you, one moment please` hands over and does not wait.
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
        # `This can be done once` is a note where something is proposed, and no refusal.
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
    # `1. Cancel the order` is one entry: its point would end a sentence.
    folded = cues.NUMBERED.sub(lambda mark: mark.group().replace(".", ")"), plain(text))
    orders = sorted(
        (mention for mention in phrasebook.mentions(text) if mention.slot in phrasebook.anchors),
        key=lambda mention: mention.start,
    )
    starts = [mention.start for mention in orders]
    parts: list[_Part] = []
    for match in cues.SENTENCE.finditer(folded):
        start, end = match.span()
        sentence = folded[start:end].strip()
        if not _WORD.search(sentence):
            continue
        # By bisection: a message may name thousands of orders.
        within = orders[bisect_left(starts, start) : bisect_left(starts, end)]
        held = frozenset(mention.value for mention in within) if within else _NONE
        before = parts[-1] if parts else None
        listed = (
            before is not None
            # Entries behind `Could you tell me:` are asked for too, as long as the list goes on.
            and before.look.asks
            and not before.look.weak
            and (before.folded.endswith(":") or before.listed)
        )
        listed = listed and cues.ITEM.match(text[start:end]) is not None
        seen = look(sentence, phrasebook, listed)
        parts.append(_Part(start, end, text[start:end], sentence, seen, held, listed))
    return parts


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
        # Sentences that do something else are not part of a proposal, unless they ask for the yes
        # itself.
        if part.look.kind not in _OUTSIDE
        or (part.look.strong and part.look.writes and part.look.kind != "transfer")
    ]
    if strong or weak:
        # `Shall I?` is nearly certain; a plain `please confirm` could be about anything.
        confidence = 0.95 if strong else 0.75
    elif intends and not asks:
        # `I will cancel it now.` asks nothing, and customers still answer it with a yes.
        confidence = 0.6
    else:
        return []
    if not strong and asks:
        # With a question of another kind beside it, the yes may be an answer to that.
        confidence = 0.4
    chunks = _chunks(material)
    if not chunks:
        if strong and not any(part.look.kind == "transfer" for part in parts):
            # It asks for a yes and names no write: what was said before is meant. Too unsure to act
            # on.
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
    # What stands before the first write is about it, greetings aside.
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
            # Another order is another write, though the verb is the same.
            or bool(part.orders and orders and not part.orders & orders)
        )
        # `Shall I cancel it?` behind the details belongs to them.
        if other and not (part.look.strong and not part.orders and len(part.folded) < 60):
            chunks.append([part])
        else:
            chunks[-1].append(part)
    return chunks


def _writes(chunk: list[_Part]) -> frozenset[str]:
    """What all sentences that speak of a write can agree on, else all that they may mean."""
    return _agreed(_kinds(chunk))


def _kinds(chunk: list[_Part]) -> set[frozenset[str]]:
    # Notes speak of what may follow the write, and not of another one.
    return {part.look.writes for part in chunk if part.look.writes and not part.look.note}


def _agreed(kinds: set[frozenset[str]]) -> frozenset[str]:
    common = frozenset.intersection(*kinds) if kinds else frozenset[str]()
    return common or frozenset[str]().union(*kinds)


def _sure(chunk: list[_Part], confidence: float) -> float:
    questions = [part for part in chunk if part.look.strong and part.look.writes]
    either = any(
        # `Cancel it or return it?` leaves open which; a yes to it says nothing.
        cues.CHOICE.search(part.folded) and len(part.look.writes) > 1 and not part.orders
        for part in questions
    )
    if any(part.look.twisted and not part.look.note for part in chunk):
        return min(confidence, OPEN)
    return min(confidence, 0.4) if either else confidence
