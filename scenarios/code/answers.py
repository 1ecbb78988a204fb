"""The program in what a model wrote: the last fenced block, or the whole text without one."""

from __future__ import annotations

import re

# The end of a block is looked for from its opening on, so that an open end costs nothing.
_FENCE = re.compile(r"^([ \t]*+)```[^\n`]*+\n", re.MULTILINE)
_CLOSE = re.compile(r"^[ \t]*+```[ \t]*+$", re.MULTILINE)


def blocks(text: str) -> list[str]:
    """What stands in the fenced blocks; the last one may be open, as where a text was cut."""
    parts: list[str] = []
    place = 0
    while opening := _FENCE.search(text, place):
        closing = _CLOSE.search(text, opening.end())
        part = text[opening.end() : closing.start() if closing else len(text)]
        if opening[1]:  # a block in a list stands as far in as its fence
            part = re.sub(rf"^{opening[1]}", "", part, flags=re.MULTILINE)
        parts.append(part)
        if closing is None:
            break
        place = closing.end()
    return parts


def program_of(text: str, prompt: str = "", entry: str = "") -> str:
    """The program of an answer; "" where there is none.

    With an `entry` that must be defined: the last block that defines it, after what stands in
    `prompt` before it; where no block does, the last block (or the text) goes on from the prompt.

    >>> program_of("def f(x):\\n    return x", "import math\\n\\ndef f(x):\\n", "f")
    'import math\\n\\ndef f(x):\\n    return x\\n'
    """
    parts = blocks(text) or [text]
    if not entry or not prompt:
        return parts[-1] if parts[-1].strip() else ""
    name = re.escape(entry)
    bound = rf"^(?:(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b|{name}[ \t]*=(?!=))"
    defines = re.compile(bound, re.MULTILINE)
    head = defines.search(prompt)
    before = prompt[: head.start()] if head else ""
    for part in reversed(parts):
        if defines.search(part):
            return f"{before}{part}\n"
    if not parts[-1].strip() or head is None:
        return parts[-1] if head is None else ""
    body = parts[-1].strip("\n")
    if not body[:1].isspace():  # a body that starts at the margin
        body = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"{prompt.rstrip()}\n{body}\n"
