"""Which words of a text are about the item that a customer has, and which about the one that is to
replace it.

Told by the order of the text and by words such as `for`, `to` and `instead of`. What the words
mean is `naming_items`' to say.
"""

from __future__ import annotations

import re

from gem_ma.scenarios.service_desk.reading.phrases import fold, pairs, places

# `for your order` or `with the gift card` turns to no new item; these words follow then.
_PAYS = (
    r"(?: (?:your|the|my|a|any))?(?: \w+)?"
    r" ?(?:order|#|difference|credit|debit|card|visa|master|paypal|gift|account|original|price"
    r"|refund|payment)"
)
# What follows these words is the new item: `the kite for a lantern`, `small -> large`.
_INTO = re.compile(
    r"->|=>|→|⇒|\b(?:in exchange for|exchanged? for|for|to|into|becomes?|replacement|desired|new(?:"
    r" item| variant| version| one| kind)?)\b:?"
    rf"(?!{_PAYS})"
)
# Weaker than the words above: `the kite with two lines` is one item, so it counts only where there
# is not another turn.
_WITH = re.compile(rf"\b(?:with|by|as)\b(?!{_PAYS})")
# These turn the other way: what follows is the old item.
_BACK = re.compile(
    r"\b(?:instead of|rather than|in place of|replacing|replaces|in exchange for your)\b"
)
_GIVES = r"\b(?:it|this|that|gets?|receives?|have|give|send|you'll)\b"
# what follows is the old one
_BACK_TO = re.compile(rf"(?:{_BACK.pattern})(?:(?!{_GIVES}).)*$", re.DOTALL)
_STOPS = r"\.(?!\d)|[;!?\n+]"  # `0.8 l` is one number
_PARTS, _LEADS = (
    re.compile(rf"{_STOPS}|\band\b"),
    re.compile(rf"{_STOPS}|\band\b(?= (?:the|your|an?)\b)"),
)
# After the turn there must be more than such words: `for a new one` names nothing.
_EMPTY = re.compile(r"\b(?:the|an?|your|one|another|new|this|item|of|order|#w\d+)\b")


def paired(old: list[str], new: list[str], seen: list[str], text: str) -> bool:
    """Whether ids stand in a text in an order that joins each old item with its own new one;
    where the order says nothing, they may not be joined."""
    wanted = sorted(zip(old, new, strict=True))
    # With an id on both sides, which is which hangs on the order alone.
    if set(old) & set(new):
        return sorted(zip(seen[::2], seen[1::2], strict=False)) == wanted
    marks = [
        (item, item in new)
        for number, item in enumerate(seen)
        # An id said twice is one mention, unless the wish itself holds it twice.
        if item not in seen[:number] or old.count(item) + new.count(item) > 1
    ]
    if len(wanted) == 1:
        marks = sorted({*marks}, key=lambda mark: seen.index(mark[0]))
    joined = pairs(marks)
    # The ids group as they should, but the words between may turn them round.
    if joined is None or sorted(joined) != wanted:
        return False
    in_turns = marks[0][1] != marks[1][1]
    turns = (
        # In turns each pair is checked; in two blocks it is enough to check where one ends.
        zip(marks[::2], marks[1::2], strict=True)
        if in_turns
        else [(marks[len(wanted) - 1], marks[len(wanted)])]
    )
    return all(_runs(*two, text) for two in turns)


# Far apart in the text `new` may stand before the first id, so the whole text is asked.
def _runs(first: tuple[str, bool], second: tuple[str, bool], text: str) -> bool:
    """Whether the words between two ids agree with which of them is the new one."""
    start = text.find(first[0])
    between = fold(text[start + len(first[0]) : text.find(second[0], start)])
    back = _BACK_TO.search(between) is not None
    if second[1]:
        return not back
    return back or (
        _INTO.search(_outside(between)) is None
        and ("new" in fold(text) or len(_BACK.findall(fold(text))) > 0)
    )


def sides_of(name: str, lines: str) -> list[tuple[str, str]]:
    """What a text says of each item of a name: (of the one there is, of the one that replaces
    it)."""
    marks, parted = places(name, lines), list[tuple[str, str]]()
    for number, (start, end) in enumerate(marks):
        stop = marks[number + 1][0] if number + 1 < len(marks) else len(lines)
        lead = _LEADS.split(lines[marks[number - 1][1] if number else 0 : start])[-1]
        about = lines[end:stop]
        if number + 1 < len(marks) and (parts := list(_PARTS.finditer(_outside(about)))):
            about = about[: parts[-1].start()]  # the words before the next name belong to that one
        turned, back = _turn(lead), _BACK.search(lead)
        # `instead of` before a name: this one is the old item of the swap that has just been read.
        if back and parted:
            parted[-1] = (f"{lead[back.end() :]} {about}", parted[-1][0])
        elif turned and parted:
            parted[-1] = (parted[-1][0], f"{lead[turned[1] :]} {about}")
        # The name stands on the new side first, and its old one follows: `a lantern replacing the
        # kite`.
        elif turned and number + 1 < len(marks) and _BACK.search(about):
            parted.append((f"{lead} {about}", ""))
        else:
            parted.append(_halves(lead, about))
    return parted


def _halves(lead: str, about: str) -> tuple[str, str]:
    """What is said around a name, parted into the old and the new."""
    back = _BACK.search(_outside(about))
    if back and re.search(r"\w", _EMPTY.sub(" ", about[back.end() :])):
        return about[back.end() :], f"{lead} {about[: back.start()]}"
    turn = _turn(about)
    if turn is None:
        return f"{lead} {about}", ""
    new = about[turn[1] :]
    return f"{lead} {about[: turn[0]]}", new if re.search(r"\w", _EMPTY.sub(" ", new)) else ""


# Brackets hold options, and an option may hold `with`.
def _turn(text: str) -> tuple[int, int] | None:
    """Where a text turns from the old to the new: at a word such as `for`, else at the only
    `with` or `by`."""
    outside = _outside(text)
    strong, weak = _INTO.search(outside), list(_WITH.finditer(outside))
    turn = strong or (weak[0] if len(weak) == 1 else None)
    return turn.span() if turn else None


def _outside(text: str) -> str:
    """The text with what stands in brackets blanked."""
    # As long as before, so that places in it are those of the text.
    return re.sub(r"\([^()]*\)", lambda hit: "\0" * len(hit.group()), text)
