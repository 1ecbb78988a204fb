"""What an assistant's message does, and what a customer's answer means, read from the text alone: dialogue acts with places and confidence.

The cues here are neutral English of service talks; what a domain's writes, slots and values sound like is asked of its phrasebook. A reading
is a pure function of text and phrasebook. It never guesses a yes: `answer` is "" where a message is neither clearly a yes nor a no.

Acts of an assistant: greet, ask (for `slot`; `request` = what is wanted), propose (a write, waiting for a yes), inform, claim_done, refuse,
transfer, offer_more, wait, and other where nothing was understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from gem_ma.scenarios.service.phrases import MISSING, RIGHT, WRONG, Phrasebook, fold, names, plain
from gem_ma.scenarios.service.task import Wish

SURE = 0.5  # an act below this confidence is asked about, never acted upon


@dataclass(frozen=True, slots=True)
class Act:
    """One dialogue act. `text` is what it speaks of: for a proposal all that belongs to one write; `writes` are the kinds it may mean."""

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
    writes: frozenset[str]
    asks: bool  # it wants an answer
    strong: bool = False  # it asks for a yes and nothing else
    weak: bool = False  # it may ask for a yes
    kind: str = ""
    orders: frozenset[str] = frozenset()
    listed: bool = False  # an entry of a list of what is asked for


_SENTENCE = re.compile(r"(?:[^.!?\n]|[.](?=\S)|[!?](?=[\w]))+(?:[.!?]+[\"')\]*_]*|\n|$)")
_WH = r"(?:which|what|where|when|who|whose|why|how)"
_REQUEST = re.compile(
    r"\?|\bplease (?:provide|tell|share|give|specify|send|let|enter|state|type|verify|confirm|supply|include|choose|select|describe|clarify)\b"
    r"|\b(?:could|can|would|will) you (?:please |kindly |also )*(?:provide|tell|share|give|specify|send|let|verify|confirm|describe|clarify|choose)\b"
    r"|\bmay i (?:please )?(?:have|get|ask|know)\b|\b(?:i|we)(?:'ll|'d| will| would)? (?:also |just |first "
    r"|still )*(?:need|require)\b(?! to (?:check|look|verify that))"
    r"|\blet me know (?:your|the|which|what|how|if|whether)\b|\bi(?:'d| would) (?:like|love) to know\b|\btell me\b|\bwhat i need\b"
)
_STRONG = re.compile(
    r"\b(?:do|can|could|will|would) you (?:please )?(?:agree|approve|consent|authori[sz]e|accept|okay|ok)\b|\bdo you (?:want to )?confirm\b"
    r"|\b(?:shall|should|may|can|could|might) (?:i|we)\b(?! (?:have|get|ask|help|know|assist|please|also (?:have|get)|see|help))"
    r"|\b(?:would you like|do you want|would you prefer|do you wish|want|are you (?:ok|okay|happy|fine) (?:with|for)) (?:me|us)\b(?: to)?"
    r"|\bwould you (?:still )?like to (?:proceed|go ahead|continue|confirm|move forward|go through|finali[sz]e|go with)\b"
    r"|\bdo you (?:want|wish) to (?:proceed|go ahead|continue|move forward|go through|go with)\b|\bwould (?:that"
    r"|this) (?:work|be (?:ok|okay|fine|all right|alright|good|acceptable|correct))\b"
    r"|\b(?:is|are|does|do|did) (?:that|this|these|it|everything|all(?: of)?(?: this| that| the)?|the (?:above"
    r"|details|information|following|summary)|i)\b[^.?!]{0,60}"
    r"\b(?:correct|right|ok(?:ay)?|accurate|good|fine|acceptable|work for you|as you want|what you want|look alright)\b"
    r"|\b(?:sounds?|looks?) (?:good|right|ok(?:ay)?|fine|correct)\b(?=[^.!]*\?)|\byes\b[\"'”]? ?(?:/|or"
    r"|to) ?[\"'“(]*(?:no|confirm|proceed|continue|go ahead|authori[sz]e|approve)\b"
    r"|\b(?:reply|respond|answer|say|type|write)(?: back)?(?: with)?(?: a(?: simple)?)? [\"'“(]*(?:yes"
    r"|confirm|ok)\b|\(yes\)|\bready (?:for me )?to (?:proceed|go ahead|submit|continue)\b(?=[^.!]*\?)"
    r"|\b(?:go ahead|proceed|move forward)\b(?=[^.!]*\?)|\bto confirm[, ]+you(?:'d| would|'re| want| wish)\b"
    r"|\bif (?:you agree|that's (?:ok|okay|fine|correct|right)|everything (?:is|looks))\b"
    r"|\b(?:i|we)(?:'ll| will)? need your (?:explicit |clear |final )?(?:confirmation|approval|consent|go-ahead|ok|okay|permission|yes)\b"
    r"|\b(?:ok|okay|all right|alright|good) (?:to|for me to|with you)\b|\bis it (?:ok|okay|all right|alright"
    r"|fine) (?:if|to)\b|\b(?:correct|right|ok|okay|agreed|yes)\s*\?"
    r"|\bdo i have your (?:ok|okay|permission|approval|consent|go-ahead|confirmation)\b|\bdoes (?:that"
    r"|this) (?:work|suit|match)\b|\bhappy (?:for me )?to (?:proceed|go ahead)\b"
    r"|\bgive me (?:the|a|your) (?:go-ahead|green light|ok|okay|yes)\b|\bwould you like this (?:done|changed|processed)\b"
)
_WEAK = re.compile(
    r"\bconfirm(?:ation|ed|ing)?\b|\blet me know if (?:you(?:'d| would)? (?:like|want|agree|wish)|this"
    r"|that|everything|it|i (?:should|can|may))\b|\b(?:your|explicit) (?:approval|consent)\b"
    r"|\bonce you(?:'ve)? (?:approve|agree|say yes|give)\b|\bauthori[sz]e\b"
)
_INTENDS = re.compile(
    r"\b(?:i|we)(?:'ll| will| am going to|'m going to|'m about to| am about to) (?:now |then |go ahead and "
    r"|proceed to |just )*(?!need|check|look|be able|transfer|help|have)\w+"
)
_MODAL = re.compile(
    r"\b(?:will|would|'ll|once|after|before|when|if|until|unless|to be|can|could|cannot|can't|not|haven't"
    r"|hasn't|isn't|aren't|wasn't|unable|shall|should|may|might|must|as soon as|whether|already been|never"
    r"|want)\b"
)
_DONE = re.compile(
    r"\b(?:i|we)(?:'ve| have) (?:(?:now|just|also|already|successfully|gone ahead and|gone ahead,? and) )*(?!found"
    r"|located|checked|looked|verified|reviewed|noted|received|seen|pulled|identified|confirmed|your|the"
    r"|a|to|been|got|gone)\w+"
    r"|\b(?:has|have|had)(?: (?:now|just|also|successfully|all|both))* been\b(?! (?:delivered|shipped"
    r"|sent|located|found|verified|identified|noted|placed|paid|charged|pending|received))"
    r"|\b(?:is|are) now\b(?! (?:pending|delivered|being|in))|\bsuccessfully\b|\bwent through\b|\btaken care of\b"
    r"|\b(?:is|are|was|were|'s)(?: (?:all|now|been|also))* (?:done|complete[d]?|finished|submitted|processed"
    r"|set|in place|finali[sz]ed|updated|cancel+ed|changed)\b"
    r"|^\W*(?:all |it's |that's |and |great, |perfect, )*(?:done|set|completed|complete)\b|\b(?:was|were) (?:successful"
    r"|cancel+ed|returned|exchanged|modified|updated|changed)\b"
    r"|\b(?:i|we) (?:just |have |now |already )*(?:cancel+ed|exchanged|changed|updated|modified|processed"
    r"|submitted|switched|replaced|swapped|returned)\b"
    r"|^\W*(?:(?:order|return|exchange|cancellation|address|payment|refund|request)\b[^.?!]{0,40})?\b(?:success"
    r"|cancel+ed|confirmed|submitted|completed|updated)\W*$"
)
_NOUN_DONE = re.compile(
    r"\b(?:return|exchange|cancellation|refund|change|update|modification)(?: request)? (?:is |was |has been |successfully )?"
    r"(?:submitted|processed|completed|complete|confirmed|done|requested)\b"
)
_GENERIC_DONE = re.compile(
    r"\b(?:done|complete[d]?|processed|submitted|updated|applied|finali[sz]ed|taken care|all set|set up"
    r"|made|changed|gone through|went through|finished|handled|requested|confirmed|success\w*|sorted)\b"
)
_REFUSE = re.compile(
    r"\b(?:can ?not|can't|could not|couldn't|unable to|not able to|(?:is|are|it's|that's|be) ?not (?:possible"
    r"|allowed|permitted|eligible|available|an option|something (?:i|we))"
    r"|isn't (?:possible|allowed|permitted|eligible|available|an option|something)|aren't (?:eligible"
    r"|available|possible|allowed|able)|not (?:possible|allowed|permitted)|impossible|won't be able"
    r"|will not be able|not eligible|ineligible|no way (?:to|for)|do(?:n't| not) have (?:the|an?) (?:ability"
    r"|option|way|tool|permission)|do(?:n't| not) (?:support|allow|offer|permit)|does(?:n't| not) (?:support"
    r"|allow|offer|permit)"
    r"|no longer (?:be )?(?:cancel\w*|possible|available|eligible|changed|modified|returned)|against (?:our"
    r"|the) policy|outside (?:of )?(?:our|the|my) (?:policy|scope)|must (?:refuse|decline)|have to (?:refuse"
    r"|decline)"
    r"|only (?:pending|delivered|be (?:cancel+ed|modified|returned|exchanged|changed))|can only (?:cancel"
    r"|modify|change|return|exchange|refund|process|be)|do(?:n't| not) (?:carry|sell|stock)|too late|out of stock"
    r"|there is no|there's no|there are no|i(?:'m| am) not (?:able|allowed)|prohibited|denied|declin\w+"
    r"|refus\w+)\b"
)
_NOT_FOUND = re.compile(
    r"\b(?:can ?not|can't|could not|couldn't|unable to|not able to|wasn't able to|was not able to|did(?:n't"
    r"| not)|do(?:n't| not)|don't) (?:seem to )?(?:find|locate|verify|see|identify|match|recogni[sz]e"
    r"|authenticate)\b"
    r"|\bnot found\b|\bno (?:account|user|order|record|match)\b"
)
_NOTE = re.compile(
    r"^\W*(?:once|after|please note|note|keep in mind|please keep|remember|please be aware|be aware|afterwards"
    r"|as a reminder|reminder|just so you know|important|you(?:'ll| will) (?:receive|get|be|then|have"
    r"|need|also)|"
    r"it (?:can|may|will|could|usually|typically|should) |the (?:order )?status (?:of|will)|this (?:action|change|can only|will|is a one)|if you)\b"
)
_TRANSFER = re.compile(
    r"\btransfer(?:ring|red|s)?\b(?=[^.?!]*\b(?:you|human|agent|specialist|representative|person|colleague"
    r"|team|department|support)\b)|\b(?:connect|put|pass) you (?:with|to|through|over)\b|\bhand(?:ing)?\b[^.?!]{0,20}\bover to\b"
    r"|\bescalat\w+\b|\bhuman agent\b"
)
_MORE = re.compile(
    r"\b(?:any|some)thing (?:else|more|further)\b|\bany (?:other|further|more|additional)\b[^.?!]{0,30}\b(?:help"
    r"|request|question|change|item|issue|concern|thing|order|detail)s?\b|\bfurther (?:assist|help|question"
    r"|change)\w*"
    r"|\b(?:what|how) else\b|\b(?:is|was|will) (?:that|this|it|these)(?: be)? (?:all|everything|it)\b"
    r"|\b(?:all|other) (?:the )?items\b[^.?!]{0,30}\b(?:include|listed|want|collected|change|exchange)\b(?=[^.]*\?)"
    r"|\beverything you\b[^.?!]{0,40}\?"
)
_GREET = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:day|morning|afternoon|evening)|welcome|greetings)\b|\b(?:happy|glad"
    r"|pleasure) to (?:help|assist|serve)\b|\bthank(?:s| you)\b|\byou're (?:very )?welcome\b|\b(?:goodbye"
    r"|bye|take care|have a (?:great|nice|good|wonderful|lovely))\b"
)
_OPEN = re.compile(
    r"\b(?:how|what) (?:can|may|could|should) (?:i|we) (?:help|assist|do)\b|\bwhat (?:would|do|did|will) you (?:like|want|need|wish)\b"
    rf"|\b{_WH} exactly\b|\bwhat (?:is|brings|seems)\b[^.?!]{{0,20}}\b(?:want|request|you here|issue|problem|matter)\b"
    r"|\bmore (?:details?|information|specific)\b|\bclarify\b|\brephrase\b|\bdescribe\b|\bdo(?:n't| not) (?:quite )?(?:understand"
    r"|follow)\b|\bwhat (?:it is )?you (?:want|need|would like)\b|\bhow (?:can|may) i (?:help|assist)\b"
)
_WAIT = re.compile(
    r"\b(?:one moment|just a (?:moment|second|minute|sec)|please (?:wait|hold|bear)|give me a (?:moment"
    r"|second|minute)|hold on|let me (?:check|look|find|see|pull|verify|get|take|review|fetch)|looking (?:that"
    r"|it|this|into)|i(?:'ll| will) (?:check|look)|checking|bear with me|while i)\b"
)
_ONCE = re.compile(r"\bonce\b|\bafter (?:that|this)\b|\bafterwards?\b")
_STATUS = re.compile(r"\bstatus\b[^.]{0,40}(?:\bis\b|\bwas\b|:)")
_NUMBERED = re.compile(r"^\s*\d{1,2}\.(?=\s)", re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s")
_CHOICE = re.compile(r"\bor\b(?! no\b| not\b)")
_WH_START = re.compile(
    r"(?:^|[,;:\-(]|\band\b|\bbut\b|\bso\b|\balso\b)\s*(?:please |could you (?:please )?|can you (?:please )?|would you )?"
    rf"(?:tell me |let me know |specify |confirm |share |clarify |explain )?{_WH}\b(?! i(?:'ll| will| would|'d)\b)"
)
_FACT = re.compile(r"\d|[$€£]")


@lru_cache(maxsize=1024)
def read(text: str, phrasebook: Phrasebook) -> tuple[Act, ...]:
    """The acts of an assistant's message, in the order of the text."""
    parts = _parts(text, phrasebook)
    acts: list[Act] = []
    for part in parts:
        acts += _of(part, phrasebook)
    proposed = _proposals(text, parts, acts)
    if any(act.kind == "transfer" for act in acts):
        acts = [act for act in acts if act.kind != "wait"]
    acts = [act for act in acts if not _covered(act, proposed)] + proposed
    if not acts:
        acts.append(Act("other", 0, len(text), 0.0, text))
    return tuple(sorted(acts, key=lambda act: (act.start, act.end, act.kind, act.slot)))


def _covered(act: Act, proposed: list[Act]) -> bool:
    """Whether an act is only a detail or a note of a proposal."""
    if act.kind == "inform" and act.slot == "":
        return any(each.start <= act.start and act.end <= each.end for each in proposed)
    return act.kind == "refuse" and any(each.confidence >= SURE for each in proposed) and _ONCE.search(plain(act.text)) is not None


def _parts(text: str, phrasebook: Phrasebook) -> list[_Part]:
    folded = _NUMBERED.sub(lambda mark: mark.group().replace(".", ")"), plain(text))
    orders = [mention for mention in phrasebook.mentions(text) if mention.slot in phrasebook.anchors]
    parts = []
    for found in _SENTENCE.finditer(folded):
        start, end = found.span()
        said = folded[start:end].strip()
        if not re.search(r"\w", said):
            continue
        held = frozenset(mention.value for mention in orders if start <= mention.start < end)
        part = _Part(start, end, text[start:end], said, phrasebook.writes(said), _REQUEST.search(said) is not None, orders=held)
        wh, strong = _WH_START.search(said), _STRONG.search(said)
        part.strong = strong is not None and (wh is None or wh.start() > strong.start() or ":" in said[wh.start() : strong.start()])
        part.weak = _WEAK.search(said) is not None
        listed = (
            bool(parts)
            and parts[-1].asks
            and not parts[-1].weak
            and (parts[-1].folded.endswith(":") or parts[-1].listed)
            and _ITEM.match(part.text) is not None
        )
        part.listed = listed
        part.asks |= listed
        parts.append(part)
    return parts


def _of(part: _Part, phrasebook: Phrasebook) -> list[Act]:
    """The acts of one sentence, proposals aside; notes in `part.kind` what it is, for those."""
    said, acts = part.folded, []

    def add(kind: str, confidence: float, slot: str = "") -> None:
        acts.append(Act(kind, part.start, part.end, confidence, part.text.strip(), slot, part.writes))
        part.kind = part.kind or kind

    note = _NOTE.search(said) is not None
    more = _MORE.search(said)
    if _TRANSFER.search(said):
        add("transfer", 0.6 if part.strong or part.asks else 0.9)
        return acts
    if _NOT_FOUND.search(said):
        add("inform", 0.8, "not_found")
    elif _REFUSE.search(said) and not (note and not said.startswith(("note", "please note"))) and not (part.strong and part.writes):
        add("refuse", 0.5 if note or part.asks else 0.9)
    elif (
        not part.strong
        and not _STATUS.search(said)
        and (done := _DONE.search(said) or _NOUN_DONE.search(said))
        and not _MODAL.search(said[: done.end()])
        and not said.endswith("?")
    ):
        if part.writes:
            add("claim_done", 0.9)
        elif _GENERIC_DONE.search(said):
            add("claim_done", 0.7)
    if more and not acts:
        add("offer_more", 0.9 if part.asks or "let me know" in said else 0.7)
    if part.asks and part.kind not in ("claim_done",):
        slots = [slot for slot, pattern in phrasebook.asked.items() if pattern.search(said)]
        named = _FACT.search(said) is not None
        either = _CHOICE.search(said) is not None
        if len(part.writes) > 1 and either and not part.strong and not named:
            add("ask", 0.8, "request")  # a choice of what to do
        elif slots and (not part.strong or (either and not part.writes)) and not (part.weak and named) and not more:
            for slot in slots:
                add("ask", 0.9 if not named else 0.6, slot)
            part.strong = part.weak = False
        elif not slots and not part.strong and _OPEN.search(said) and not more:
            add("ask", 0.8, "request")
    if not acts and _WAIT.search(said) and not part.writes and "transfer" not in said and not part.strong:
        add("wait", 0.7)
    if not acts and not part.asks and not part.strong and not part.weak and _FACT.search(said):
        acts.append(Act("inform", part.start, part.end, 0.6, part.text.strip(), "", part.writes))  # may be a detail of a proposal: no kind
    if not acts and _GREET.search(said) and not part.strong:
        add("greet", 0.8)
    return acts


_OUTSIDE = ("claim_done", "refuse", "transfer", "wait", "greet", "offer_more", "ask")


def _proposals(text: str, parts: list[_Part], acts: list[Act]) -> list[Act]:
    """The writes that a message proposes, one act each; their texts hold all that belongs to them."""
    strong, weak = any(part.strong for part in parts), any(part.weak for part in parts)
    asks = any(act.kind == "ask" for act in acts)
    intends = [part for part in parts if part.writes and not part.kind and _INTENDS.search(part.folded)]
    material = [part for part in parts if part.kind not in _OUTSIDE or (part.strong and part.writes and part.kind != "transfer")]
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
        if strong and not any(part.kind == "transfer" for part in parts):
            asked = next(part for part in parts if part.strong)
            return [Act("propose", asked.start, asked.end, 0.3, asked.text.strip())]
        return []
    return [
        Act("propose", chunk[0].start, chunk[-1].end, _sure(chunk, confidence), "\n".join(part.text.strip() for part in chunk), "", _writes(chunk))
        for chunk in chunks
    ]


def _chunks(material: list[_Part]) -> list[list[_Part]]:
    """Sentences grouped by the write they belong to; [] where none speaks of a write."""
    chunks: list[list[_Part]] = []
    head: list[_Part] = []
    for part in material:
        starts = bool(part.writes) and not _NOTE.search(part.folded)
        if not chunks:
            head.append(part)
            if starts:
                chunks.append(head)
            continue
        known, orders = _writes(chunks[-1]), frozenset[str]().union(*(before.orders for before in chunks[-1]))
        other = starts and (not (part.writes & known) or bool(part.orders and orders and not part.orders & orders))
        if other and not (part.strong and not part.orders and len(part.folded) < 60):
            chunks.append([part])
        else:
            chunks[-1].append(part)
    return chunks


def _writes(chunk: list[_Part]) -> frozenset[str]:
    """What all sentences that speak of a write can agree on, else all that they may mean."""
    kinds = [part.writes for part in chunk if part.writes and not _NOTE.search(part.folded)]
    common = frozenset.intersection(*kinds) if kinds else frozenset[str]()
    return common or frozenset[str]().union(*kinds)


def _sure(chunk: list[_Part], confidence: float) -> float:
    questions = [part for part in chunk if part.strong and part.writes]
    either = any(_CHOICE.search(part.folded) and len(part.writes) > 1 and not part.orders for part in questions)
    return min(confidence, 0.4) if either else confidence


# -- judging a proposal -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """How one proposal stands to one wish: a verdict for each argument that a customer can check."""

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
    """The best that can be said of a proposal for a wish, over all arguments that would serve; None where it is of another kind."""
    if not act.writes & phrasebook.kinds(wish):
        return None
    served = (wish, *(replace(wish, arguments={**wish.arguments, **other}, words={**wish.words, **other.get("words", {})}) for other in wish.choices))
    found = [Judgement(phrasebook.judge(each, act.text)) for each in served]
    return min(found, key=lambda judgement: (len(judgement.wrong), len(judgement.missing)))


# -- facts ------------------------------------------------------------------------------------------------------------------

_COUNTS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


_NUMBER = re.compile(r"(?<![\w#.,-])[$€£]?-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w%]|[.,-]\d)")
_MARK = re.compile(r"(?<!\S)\d{1,2}\)(?=\s)|^[ \t]*\d{1,2}\.(?=\s)", re.MULTILINE)


def tells(text: str, output: str) -> bool:
    """Whether a text holds a fact: a number by its value, up to twenty also as a word, and as no part of a longer one; words as they stand.

    >>> tells("That would be $1,625.6.", "1625.60"), tells("order #W10", "10"), tells("There are ten.", "10")
    (True, False, True)
    """
    output = output.strip()
    if _AMOUNT.fullmatch(output):
        number = _value(output.lstrip("$"))
        numbers, words = _numbers(text)
        return number in numbers or (number.isdigit() and int(number) < len(_COUNTS) and _COUNTS[int(number)] in words)
    return names(output, fold(text))


_AMOUNT = re.compile(r"\$?\d{1,9}(?:\.\d*)?")


@lru_cache(maxsize=256)
def _numbers(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The numbers of a text in one form each, and its words; marks of a list are no numbers."""
    unmarked = _MARK.sub(" ", text) if len(_MARK.findall(text)) > 1 else text
    numbers = frozenset(_value(whole.replace(",", "") + part) for whole, part in _NUMBER.findall(unmarked))
    return numbers, frozenset(re.findall(r"[a-z]+", text.casefold()))


def _value(number: str) -> str:
    """A number without zeros that say nothing."""
    whole, _, part = number.partition(".")
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{part}" if part else "")


# -- a customer's answers ---------------------------------------------------------------------------------------------------

_LEAD = (
    r"^\W*(?:(?:oh|well|great|perfect|wonderful|excellent|thanks?(?: you)?(?: so much| very much)?|hi"
    r"|hello|good|alright|all right|hm+|um+|ah|sorry|ok(?:ay)?)\b[,.!;: -]*)*"
)
_YES = re.compile(
    _LEAD + r"(?:yes|yep|yeah|yup|ya|sure|ok(?:ay)?|correct|that(?:'s| is| all)? (?:right|correct|fine|good|works"
    r"|sounds|looks|perfect|exactly)|confirm(?:ed)?|i (?:do )?(?:confirm|agree|approve)"
    r"|please (?:do|proceed|go ahead|go on|continue)|go (?:ahead|for it|on)|absolutely|of course|sounds? (?:good"
    r"|great|right|perfect)|looks? (?:good|right)|do (?:it|that|so)|exactly|right|proceed|definitely|certainly"
    r"|agreed|by all means)\b"
)
_BARE_YES = re.compile(_LEAD + r"(?:perfect|great|fine|wonderful|ok(?:ay)?|good|alright|all right)\W*$")
_BUT = re.compile(r"\b(?:but (?!that|thanks|thank)|however|except|only if|wait\b|hold on|not yet|actually|instead\b|on one condition|although)")
_NO = re.compile(
    _LEAD + r"(?:no(?! (?:problem|worries|need))\b|nope|nah|don't|do not|please (?:don't|do not)|stop|not\b|(?:that"
    r"|this|it)(?:'s| is| was)(?: all)? (?:not|wrong|incorrect)|(?:that|this|it) isn't|wrong|incorrect"
    r"|i (?:don't|do not|didn't|did not) (?:want|agree|confirm|ask))"
)
_MIND = re.compile(
    r"\b(?:changed? my mind|on second thou?ghts?|thinking about it|thought about it|scratch that|forget (?:that"
    r"|it|what i)|actually,? (?:i|let|can|could|please|make|no)|never ?mind|i(?:'d| would) rather)\b"
)
_CORRECT = re.compile(
    r"\b(?:sorry|apolog\w+|my mistake|i (?:meant|misspoke|mistyped|misread|got that wrong|gave you the wrong"
    r"|made a (?:mistake|typo))|correction|typo|rather than|should (?:be|have been)|wrong)\b|\bactually\b"
)


def answer(text: str) -> str:
    """Whether a customer's message begins with a clear `yes` or `no`; "" where it does neither, or where a yes has a but.

    >>> answer("Yes, please go ahead."), answer("No problem, yes"), answer("Yes, but use my other card."), answer("No, that is wrong.")
    ('yes', '', '', 'no')
    """
    said = plain(text)
    if _NO.search(said):
        return "no"
    found = _YES.search(said) or _BARE_YES.search(said)
    if found is None or _BUT.search(said[found.end() :].split("?")[0]):
        return ""
    return "" if said[found.end() :].lstrip().startswith("?") else "yes"


def changes_mind(text: str) -> bool:
    """Whether a customer takes back what it wanted."""
    return _MIND.search(plain(text)) is not None


def corrects(text: str) -> bool:
    """Whether a customer corrects itself or the other side."""
    return _CORRECT.search(plain(text)) is not None or changes_mind(text)
