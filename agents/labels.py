"""Reading labelled answers: what follows `Response:` or `Action:`, and a verdict.

A label opens a line, in any case, with or without Markdown around it: `Response:`, `**User
Response:**`, `## Response:`. Nothing here guesses: an answer without its label is None.
"""

from __future__ import annotations

import re

from gem_ma import Malformed, ToolCall
from gem_ma.kernel.parsing.formats import parse_tool_calls
from gem_ma.kernel.parsing.strict_json import MAX_CALLS

# `not true` is false only where the speaker means it so; nothing here guesses.
_NEGATED = re.compile(
    r"\b(?:not|isn['’]t|never|neither|nor)\s+(?:\w+\s+)?(?:true|false)\b", re.IGNORECASE
)


def _label(*names: str) -> re.Pattern[str]:
    return re.compile(
        r"^[ \t>#*_`\[]*(?:(?:final|user|agent|assistant|customer|my)["
        rf" \t]+)?(?:{'|'.join(names)})[ \t*_`\]]*:[ \t]*[*_]*",
        re.IGNORECASE | re.MULTILINE,
    )


_RESPONSE_LABEL = _label("response", "reply")
_THOUGHT_LABEL = _label("thoughts?", "reflection")
_ACTION_LABEL = _label("action")
# where no line opens with the label
_RESPONSE_INSIDE = re.compile(r"\b(?:User |Final )?Response: *")
_VERDICT_LABEL = _label("verdict", "classification", "judg(?:e)?ment")
_REASON_LABEL = _label("reason", "reasoning")


def response(text: str) -> str | None:
    """What follows the last response label; None where there is none, or nothing follows it.

    >>> response("Thought: he asks who I am.\\nResponse: I am Ann.")
    'I am Ann.'
    """
    # In the middle of a line only where no line opens with one: prose may mention the word.
    labels = list(_RESPONSE_LABEL.finditer(text)) or list(_RESPONSE_INSIDE.finditer(text))
    if not labels:
        return None
    # The last one: models repeat the format before they use it.
    said = text[labels[-1].end() :]
    thought = _THOUGHT_LABEL.search(said)  # a thought after the response is still a thought
    return (said[: thought.start()] if thought else said).strip() or None


def verdict(text: str) -> bool | None:
    """True or false by whole words: behind the last verdict label, or else the only one of the two
    in the text. None where that is not a verdict.

    >>> verdict("Reason: all right.\\nVerdict: true"), verdict("untrue"), verdict("true or false?")
    (True, None, None)
    """
    labels = list(_VERDICT_LABEL.finditer(text))
    answers = text[labels[-1].end() :] if labels else text
    if labels:
        # The verdict's own line; what follows it may weigh both sides.
        answers = answers.strip().split("\n", 1)[0]
    if _NEGATED.search(answers):
        return None
    words = {
        word.casefold()
        for word in re.findall(r"(?<![\w-])(?:true|false)(?![\w-])", answers, re.IGNORECASE)
    }
    # Both words are none.
    return words.pop() == "true" if len(words) == 1 else None


def reason(text: str) -> str:
    """What a judge gives as its reason, in one line of at most 300 characters; "" where it gives
    none."""
    labels = list(_REASON_LABEL.finditer(text))
    if not labels:
        return ""
    said = text[labels[-1].end() :]
    end = _VERDICT_LABEL.search(said)
    return " ".join((said[: end.start()] if end else said).split())[:300]


def action(text: str) -> tuple[ToolCall | Malformed | None, str]:
    """(call, the text up to its end) of the first `Action:` line whose JSON can be read, or of a
    text that is a call and nothing else.

    The call is a Malformed where there is a label and no readable call behind any, None where
    a label is missing.
    """
    labels = list(_ACTION_LABEL.finditer(text))
    fault: Malformed | None = None
    # each looks at the rest of the text
    for at in [found.end() for found in labels[:MAX_CALLS]] or [0]:
        # Fences and tags around a call are habits of models, and mean nothing.
        behind = re.sub(r"\A\s*(?:`+(?:\w+[ \t]*\n)?)?\s*(?:<tool_call>)?\s*", "", text[at:])
        # Without a label only a text that is nothing but a call counts as one.
        if not labels and not behind.startswith("{"):
            break
        rest, calls = parse_tool_calls(f"<tool_call>{behind}")
        call = calls[0]
        if isinstance(call, ToolCall):
            # What stands behind the call, such as an invented observation, is cut off.
            before = (
                text.rstrip().removesuffix(rest).rstrip()
                if rest and text.rstrip().endswith(rest)
                else text
            )
            return call, before if rest.strip("`\n ") else text
        fault = call
    return fault, text


def action_text(text: str) -> str | None:
    """The line behind the last `Action:` label, for choices that are not calls; None where there
    is not a label."""
    labels = list(_ACTION_LABEL.finditer(text))
    if not labels:
        return None
    return text[labels[-1].end() :].strip().split("\n", 1)[0].strip()
