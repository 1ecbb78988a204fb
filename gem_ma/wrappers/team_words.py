"""What teams of `teamwork` say: how an answer is told and counted, which quotes are in the facts,
and whether a hint says the answer. Pure functions of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.kernel.effects import as_messages
from gem_ma.kernel.parsing.text import boxed, fold
from gem_ma.kernel.types import TOOL, Action, Message, ToolCall

# whoever reads a view tells the team's own words from those of the rules by their sender
TEAM = "team"
FACTS = ("<facts>", "</facts>")
QUOTE = ("<quote>", "</quote>")
HELD = "[facts that the debaters hold]"
# what a debater types to look verified
_FORGED = re.compile(r"</?\s{0,9}(?:un)?verified\s{0,9}/?>", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_RUN = 30  # characters of a long answer that are said at a stretch to have said it
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty"
)


def told(action: Action) -> str:
    """An action as others are told of it: its choice, or its text and calls."""
    if action.parsed is not None:
        return action.parsed
    calls = [
        f"{call.name}({json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)})"
        if isinstance(call, ToolCall)
        else call.text
        for call in action.tool_calls
    ]
    return "\n".join(part for part in (action.text, *calls) if part)


def answer_key(action: Action) -> str:
    r"""What two actions share that answer alike: the choice; else the calls; else what stands in
    the last box or behind the last `Answer:`, folded, without a full stop.

    >>> answer_key(Action("2 and 2 is 4. Answer: 4")) == answer_key(Action(r"\boxed{4}")) == "4"
    True
    """
    if action.parsed is not None:
        return action.parsed
    if action.tool_calls:
        return told(Action("", action.tool_calls))
    return fold(boxed(action.text)).rpartition("answer:")[2].strip().rstrip(".")


def without_facts(content: Any) -> tuple[Any, list[str]]:
    """What is shown, as who may not see the facts sees it, and the facts: results of tools, and
    what stands between `<facts>` and `</facts>`. What cannot be shown stays as it is."""
    messages = as_messages(content)
    if messages is None:
        return content, []
    shown = []
    facts: list[str] = []
    for message in messages:
        if message.sender == TOOL:
            facts.append(message.text)
            shown.append(replace(message, content=HELD))
            continue
        parts = message.content if isinstance(message.content, tuple) else (message.content,)
        rest = tuple(_cut_out(part, facts) if isinstance(part, str) else part for part in parts)
        whole: Any = rest if isinstance(message.content, tuple) else rest[0]
        shown.append(replace(message, content=whole))
    return tuple(shown), facts


def _cut_out(text: str, facts: list[str]) -> str:
    """The text without its marked parts, which `facts` gets. One that is not closed goes on to
    the end: what was meant to be hidden is hidden."""
    first, *marked = text.split(FACTS[0])
    rest = [first]
    for part in marked:
        inside, _, behind = part.partition(FACTS[1])
        facts.append(inside)
        rest += [HELD, behind]
    return "".join(rest)


def verified(text: str, facts: Iterable[str]) -> tuple[str, int, int]:
    """(the text with its quotes marked, how many are verified, how many are not). A quote is
    verified where one of the facts holds it, whatever its case and spaces. Marks that a speaker
    typed are taken out.

    >>> verified("See <quote>the  Door</quote>.", ["He shut the door."])
    ('See <verified>the  Door</verified>.', 1, 0)
    """
    known = [fold(fact) for fact in facts]
    # a space: what is left on both sides may not join to a mark
    first, *quoted = _FORGED.sub(" ", text).split(QUOTE[0])
    out = [first]
    right = 0
    for part in quoted:
        inside, closed, behind = part.partition(QUOTE[1])
        wanted = fold(inside)
        is_right = bool(closed and wanted) and any(wanted in fact for fact in known)
        right += is_right
        name = "verified" if is_right else "unverified"
        out += [f"<{name}>{inside}</{name}>", behind]
    return "".join(out), right, len(quoted) - right


def leaks(text: str, answers: Sequence[str]) -> bool:
    """Whether a text says one of the answers: as whole words in any case, a whole number up to 20
    in letters too; with other signs between its letters, from 4 on; of a long one any 30 letters
    and digits at a stretch. A single letter counts as a capital, and `A` and `I` not as words.

    >>> leaks("Think of p-a-r-i-s", ["Paris"]), leaks("It is 17", ["7"]), leaks("A bird", ["A"])
    (True, False, False)
    """
    words = " ".join(_WORD.findall(fold(text)))
    squeezed = words.replace(" ", "")
    for answer in answers:
        tight = "".join(_WORD.findall(fold(answer)))
        if len(tight) == 1 and tight.isalpha():
            article = r"(?! [a-z])" if tight in "ai" else ""
            said = re.search(rf"(?<!\w){tight.upper()}(?!\w|['’]){article}", text) is not None
        else:
            forms = [answer]
            if tight.isdecimal() and len(tight) < 3 and int(tight) <= 20:
                forms.append(_NUMBERS.split()[int(tight)])
            said = any(_has_words(words, form) for form in forms)
            if len(tight) >= 4 and not said and tight.isdecimal():
                # part of a longer number is another number
                said = re.search(rf"(?<!\d){tight}(?!\d)", squeezed) is not None
            elif len(tight) >= 4 and not said:
                size = min(len(tight), _RUN)
                said = not _runs(tight, size).isdisjoint(_runs(squeezed, size))
        if said:
            return True
    return False


def _runs(text: str, size: int) -> set[str]:
    """Every stretch of so many characters."""
    return {text[start : start + size] for start in range(len(text) - size + 1)}


def _has_words(words: str, answer: str) -> bool:
    wanted = " ".join(_WORD.findall(fold(answer)))
    return bool(wanted) and f" {wanted} " in f" {words} "


def team(text: str) -> Message:
    """Words of the team's own."""
    return Message(text, TEAM)
