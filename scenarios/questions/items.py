"""A row of a data set as a question: its text, its right answers, its choices, its grader."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.scenarios.questions.calls import gold, read_calls, read_tools
from gem_ma.scenarios.questions.numbers import number

from gem_ma.kernel.errors import DataError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Item:
    """A question. `right`: every answer that is right; of a choice, its letter alone. `calls` and
    `functions` are JSON, of a question that is answered by calls (`calls.py`)."""

    question: str
    right: tuple[str, ...]
    choices: tuple[str, ...] = ()
    grader: str = ""
    kind: str = ""
    calls: str = ""
    functions: str = ""

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(LETTERS[: len(self.choices)])

    @property
    def text(self) -> str:
        """The question as it is shown."""
        lines = [f"{letter}) {text}" for letter, text in zip(LETTERS, self.choices, strict=False)]
        return "\n".join([self.question, *lines])


def item_of(row: Mapping[str, Any], columns: Mapping[str, str], grader: str, where: str) -> Item:
    """The question of a row. Without a grader the row decides: `letter` where it has choices,
    `number` where its answer is one, else `exact`. Raises DataError with `where`."""
    question = _asked(row.get(columns["question"]))
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: no text in the column {columns['question']!r}{_has(row)}")
    if columns["answer"] not in row:
        raise DataError(f"{where}: no column {columns['answer']!r}{_has(row)}")
    answer = row[columns["answer"]]
    kind = row.get(columns["kind"])
    kind = kind if isinstance(kind, str) else ""
    if grader == "calls":
        functions = row.get("tools")
        calls = read_calls(answer, where)
        read_tools(functions, where)
        text = functions if isinstance(functions, str) else json.dumps(functions)
        return Item(question.strip(), (gold(calls),), (), grader, kind, calls, text)
    choices, labels = _choices(row.get(columns["choices"]), where)
    if choices and grader in ("", "letter"):
        right: tuple[str, ...] = (LETTERS[_index(answer, choices, labels, where)],)
        grader = "letter"
    else:
        right = _texts(answer, where)
        numeric = all(number(text, question) is not None for text in right)
        grader = grader or ("number" if numeric else "exact")
        if grader == "letter":
            raise DataError(f"{where}: the grader `letter` wants choices in {columns['choices']!r}")
        if grader == "number" and not numeric:
            raise DataError(f"{where}: the grader `number` wants a number; got {right[0][:80]!r}")
    return Item(question.strip(), right, choices, grader, kind)


def _asked(value: Any) -> Any:
    """A question that is kept as messages, in words."""
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return "\n\n".join(map(_words, (part.get("content", "") for part in value)))
    return value


def _words(content: Any) -> str:
    """The text of a message, which may be kept in parts."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _has(row: Mapping[str, Any]) -> str:
    return f"; it has {', '.join(map(str, row))}"


def _texts(answer: Any, where: str) -> tuple[str, ...]:
    """One right answer, or several that are all right."""
    values = answer if isinstance(answer, (list, tuple)) else [answer]
    # the forms in which data sets keep aliases
    if isinstance(answer, dict):
        values = next((answer[key] for key in ("text", "aliases") if answer.get(key)), [])
        values = values if isinstance(values, list) else [values]
    texts = [
        str(value).strip()
        for value in values
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    ]
    truths = [value for value in values if isinstance(value, bool)]
    texts += [text for value in truths for text in (("no", "false"), ("yes", "true"))[value]]
    # GSM8K keeps its reasons before the answer
    texts = [text.rpartition("####")[2].strip() for text in texts]
    # what is missing in a table of numbers is NaN there
    numbers = (value for value in values if isinstance(value, float))
    if not texts or not all(texts) or not all(map(math.isfinite, numbers)):
        raise DataError(f"{where}: its answer is a text, a number or a list of these")
    return tuple(dict.fromkeys(texts))


def _choices(value: Any, where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(choices, their labels) out of a list, an object with `text` and `label`, a list of such
    objects, or a text that holds one of these."""
    if isinstance(value, str) and value.strip().startswith(("[", "{")):
        value = _list_in(value)
    labels: Any = ()
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        value = _columns(value)
    if isinstance(value, dict):
        labels = value.get("label") or ()
        value = value.get("text", [*value.values()])
        if not isinstance(labels, (list, tuple)):
            raise DataError(f"{where}: labels of choices are a list; got {str(labels)[:80]!r}")
    if value is None or value in ("", []):
        return (), ()
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= len(LETTERS):
        raise DataError(f"{where}: choices are a list of 2 to {len(LETTERS)}")
    # a choice of any other kind would be shown as Python writes it
    strange = [each for each in value if not isinstance(each, (str, int, float)) or each != each]
    if strange:
        raise DataError(f"{where}: a choice is a text or a number; got {str(strange[0])[:80]}")
    choices = tuple(str(choice).strip() for choice in value)
    if not all(choices):
        raise DataError(f"{where}: a choice is empty")
    return choices, tuple(map(str, labels))


def _columns(rows: list[Any]) -> Any:
    """One object of a list of them, which name their text and their label in a usual way."""
    for text, label in (("text", "label"), ("text", "key"), ("value", "key"), ("content", "label")):
        if all(text in row for row in rows):
            labels = [row.get(label) for row in rows]
            return {"text": [row[text] for row in rows], "label": [] if None in labels else labels}
    return rows


def _list_in(text: str) -> Any:
    """A list, or an object, that a table of plain text holds, in JSON or as Python writes it."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _index(answer: Any, choices: tuple[str, ...], labels: tuple[str, ...], where: str) -> int:
    """The place of the right choice. Read in this order: its text, its label, its letter, its
    place from 0; data that means a place from 1 has labels or is written anew."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    # a table with a gap somewhere holds whole numbers as floats
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    text = str(answer).strip()
    if not isinstance(answer, (int, bool)) and choices.count(text) == 1:
        return choices.index(text)
    if text in labels:
        return labels.index(text)
    letter = text.strip("().").upper()
    if len(letter) == 1 and letter in LETTERS[: len(choices)]:
        return LETTERS.index(letter)
    if text.isascii() and text.isdecimal() and int(text) < len(choices):
        return int(text)
    raise DataError(f"{where}: the answer {text[:80]!r} is not a choice, letter or place from 0")
