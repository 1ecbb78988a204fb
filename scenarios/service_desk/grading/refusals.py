"""Whether an assistant refused what is to be refused: that it did, for the due reason and no other,
and after a look at what shows that reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, Event
from gem_ma.scenarios.service_desk.desk.task import Task, Wish
from gem_ma.scenarios.service_desk.domain import RECORD, UTILITY, WRITE, Domain
from gem_ma.scenarios.service_desk.reading.acts import SURE, read
from gem_ma.scenarios.service_desk.reading.phrases import MISSING, Phrasebook, fold

from gem_ma import ToolCall

REFUSES = re.compile(
    r"\b(?:can ?not|can't|could ?n[o']t|unable|not able|(?:not|isn't|aren't"
    r"|[a-z]{2,6}n't) (?:an? )?(?:possible|allowed|eligible|available|permitted|accepted"
    r"|acceptable|valid|enough|sufficient|one of|yours|your|in stock|an option|something|a change"
    r"|on file|linked|associated)|impossible|won't|wouldn't"
    r"|will not|would not|must decline|have to (?:decline|say no|refuse)|refus\w+|no longer|(?:do"
    r"|does)(?:n't| not) (?:seem|have|allow|support|offer|cover|carry"
    r"|come|belong|qualify|let|make|sell|stock|exist|count|permit|match)|unfortunately|i'm afraid"
    r"|i am afraid|not going to|too late|sold out|out of stock"
    r"|unavailable|insufficient|nothing (?:i|we) can do|only (?:has|have|holds?)|no way|invalid"
    r"|there (?:isn't|is no|are no)|no further|can only|only be|but not (?:to|for|into))\b"
)
_CLAUSE = re.compile(r"(?<=[.!?;:])\s|,\s|\n")
_GENERAL = re.compile(  # speaks of a rule, of what may be or is offered, not of why this is refused
    r"\?|\b(?:if|unless|only (?:if|when|for|be|accept|allow)|as long as|would have to|(?:can"
    r"|may) (?:be )?(?:either|only)|either)\b"
    r"|\b(?:you|i|we) (?:can|may|could)\b(?!'t| ?not\b| (?:see|tell|confirm|find|say))"
)


_NUMBER = re.compile(r"\d[\d.,]*")
MOST_NUMBERS = 12  # in a text that gives a reason; one with more reads data aloud


def refused(task: Task, texts: Sequence[str], domain: Domain) -> bool:
    """Whether some text refuses, and the texts give every due reason that the domain has words
    for, and none that is not due."""
    return any(refuses(text, domain) for text in texts) and gives_reasons(task, texts, domain)


def refuses(text: str, domain: Domain) -> bool:
    """Whether a text of the assistant says that something cannot be done."""
    # The fast pattern decides nearly always; parsing into acts is for refusals in a shop's own
    # words.
    if REFUSES.search(fold(text)):
        return True
    return domain.book is not None and any(
        act.kind == "refuse" and act.confidence >= SURE for act in read(text, domain.book)
    )


def gives_reasons(
    task: Task, texts: Sequence[str], domain: Domain, *, in_any_words: bool = False
) -> bool:
    """Whether the texts give every due reason, and name none as the reason of this case that is
    not due. `in_any_words`: it is enough that one of them refuses something, and speaks
    of this very case."""
    if domain.book is None:
        return True
    texts = [text for text in texts if len(_NUMBER.findall(text)) <= MOST_NUMBERS]
    # Each due reason: a talk with two refusals has two.
    wishes = [wish for wish in task.wishes if wish.kind == "impossible"]
    # Marks of emphasis would part the words of a cue.
    folded = [fold(text.replace("*", "")) for text in texts]
    reasons_given = all(
        _is_given(wish.reason, folded, domain.book)
        or (
            in_any_words
            # who reads all data aloud speaks of the case too, and refuses nothing
            and any(refuses(text, domain) and _is_about(wish, text, domain.book) for text in texts)
        )
        for wish in wishes
    )
    return reasons_given and not undue({wish.reason for wish in wishes}, folded, domain)


def _is_given(reason: str, folded: Sequence[str], book: Phrasebook) -> bool:
    cue = book.reasons.get(reason)
    return cue is None or any(cue.search(text) for text in folded)


def _is_about(wish: Wish, text: str, book: Phrasebook) -> bool:
    return bool({*book.judge(wish, text).values()} - {MISSING})


def undue(due: Iterable[str], texts: Sequence[str], domain: Domain) -> set[str]:
    """The reasons that folded texts name and that are neither due nor akin to one that is.
    Questions, conditions and rules name none."""
    # What may be said along with a due reason is not a wrong reason.
    fine = set(due).union(
        *(domain.grounds[reason].akin for reason in due if reason in domain.grounds)
    )
    named = [
        # By clauses: `only pending orders can be changed` names a rule; the case stands beside it.
        clause
        for text in texts
        for clause in _CLAUSE.split(text)
        if not _GENERAL.search(clause)
    ]
    wrong = {
        reason: ground.named for reason, ground in domain.grounds.items() if reason not in fine
    }
    return {reason for reason, cue in wrong.items() if any(cue.search(clause) for clause in named)}


def looked(wish: Wish, events: Sequence[Event], domain: Domain) -> bool:
    """Whether the assistant used a tool that can show why this wish is refused; a write that
    failed shows it too."""
    ground = domain.grounds.get(wish.reason)
    records = set(domain.records(ToolCall("", "", dict(wish.arguments))))
    used = set[str]()
    for event in events:
        if event.call is not None and event.agent == ASSISTANT:
            # A failed write shows that it cannot be done; a failed read shows nothing.
            role = domain.role(event.call.name)
            used |= {role} if role and not event.failed else set()
            used |= (
                {RECORD}
                if records & set(domain.records(event.call)) and (role == WRITE or not event.failed)
                else set()
            )
    # A reason without a ground needs some look at the data; a calculator or a thought is none.
    return bool(used & ground.looks) if ground is not None else bool(used - {UTILITY})
