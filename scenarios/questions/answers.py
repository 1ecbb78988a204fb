r"""The answer in what a model wrote, by a declared rule.

`auto` takes the first of these that is there:
1. the last closed `\boxed{...}`;
2. what the last `<answer>...</answer>` holds;
3. what follows the last "Answer:", "the answer is", "the correct option is" or "####", on its line
   or the next, but for a "wrong answer";
4. the last line. Two different answers on one line or on neighbouring lines are a list, and a list
is not an answer; of answers that stand apart the last one counts, because whoever reasons may
correct itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gem_ma.kernel.parsing.reasoning import split_reasoning

RULES = ("auto", "boxed", "marked", "last", "whole")
_BOX = "\\boxed{"
_MARK = re.compile(
    # possessive: what is passed over is never looked at again
    r"(?:\b(?:answer|(?:correct|right|best)\s(?:option|choice))[*_]*+"
    r"(?:\s*+(?:(?:is|(?:would|must|should|will)\s++be)\b\s*+:?|[:=→]|->)|\s-(?=\s))|^[ \t]*+####"
    # a heading of that name
    r"|^[ \t]*+(?:#++[*_ \t]*+|[*_]++)(?:final\s)?answer[*_ \t]*+$)[*_\s]*+(?=[^*_\s])",
    re.IGNORECASE | re.MULTILINE,
)
# "The wrong answer is A" marks none
_DENIED = re.compile(
    r"\b(?:wrong|incorrect|false|not|isn't|no|never)\s++(?:(?:the|an?|my)\s++)?"
    r"(?:correct\s++|right\s++|best\s++)?$",
    re.IGNORECASE,
)
_DENIAL = 40  # characters before a mark in which one stands
_TAG = "<answer>"
_END = "</answer>"
_NESTED = 3  # marks in what follows a mark: "Answer: the answer is B"
_NEAR = 1  # newlines between two marks of which the second answers nothing new


def answer_of(text: str, rule: str = "auto") -> str:
    r"""The answer, "" where there is none.

    >>> answer_of("The sum is 12, so \\boxed{12}.")
    '12'
    >>> answer_of("I add both.\nAnswer: 12")
    '12'
    >>> answer_of("\\boxed{11} or \\boxed{12}")
    ''
    """
    text = split_reasoning(text)[1]  # of a record in which thoughts still stand
    if rule == "whole":
        return text.strip()
    if rule in ("auto", "boxed"):
        answer = _boxed(text)
        if answer is not None or rule == "boxed":
            return answer or ""
    if rule in ("auto", "marked"):
        answer = _tagged(text)
        answer = _marked(text) if answer is None else answer
        if answer is not None or rule == "marked":
            return answer or ""
    return _last(text)


def _boxed(text: str) -> str | None:
    start = text.rfind(_BOX)
    later = len(text)
    # from the end: a text full of boxes that are never closed costs no more than its length
    while start >= 0:
        content = _closed(text, start, later)
        if content is not None:
            earlier = text.rfind(_BOX, 0, start)
            before = _closed(text, earlier, start) if earlier >= 0 else None
            near = text.count("\n", earlier, start) <= _NEAR
            listed = before is not None and near and before != content
            return "" if listed else content
        start, later = text.rfind(_BOX, 0, start), start
    return None


def _closed(text: str, start: int, end: int) -> str | None:
    """What stands in the box that opens at `start`; None where it is not closed before `end`."""
    depth = 0
    for place in range(start + len(_BOX) - 1, end):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start + len(_BOX) : place].strip()
    return None


def _tagged(text: str) -> str | None:
    end = text.rfind(_END)
    start = text.rfind(_TAG, 0, max(end, 0))
    if start < 0:
        return None
    content = text[start + len(_TAG) : end].strip()
    before = text.rfind(_END, 0, start)
    if before >= 0 and text.count("\n", before, start) <= _NEAR:
        earlier = text[text.rfind(_TAG, 0, before) + len(_TAG) : before].strip()
        return content if earlier == content else ""
    return content


def _marked(text: str) -> str | None:
    marks = list(_marks(text))
    if not marks:
        return None
    content = _rest(text, marks[-1])
    for _ in range(_NESTED):
        if inner := next(_marks(content), None):
            content = _rest(content, inner)
    if len(marks) > 1:
        near = text.count("\n", marks[-2].end(), marks[-1].start()) <= _NEAR
        if near and _rest(text, marks[-2]) != content:
            return ""
    return content


def _marks(text: str) -> Iterator[re.Match[str]]:
    """The marks that nothing denies, at most one on a line."""
    place = 0
    while mark := _MARK.search(text, place):
        place = mark.end()
        if not _DENIED.search(text, max(mark.start() - _DENIAL, 0), mark.start()):
            yield mark
            place += len(_rest(text, mark))


def _rest(text: str, mark: re.Match[str]) -> str:
    """What follows a mark on its line."""
    end = text.find("\n", mark.end())
    return text[mark.end() : end if end >= 0 else len(text)].strip()


def _last(text: str) -> str:
    lines = text.strip().rsplit("\n", 1)
    last = lines[-1].strip()
    if len(lines) > 1:
        before = lines[0].rstrip().rsplit("\n", 1)[-1].split()
        # reasons are longer than their answer; lines that are as short are answers too
        if len(before) <= len(last.split()) + 1 and " ".join(before) != last:
            return ""
    return last
