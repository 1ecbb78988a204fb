"""Whether two LaTeX expressions are equal, by math-verify. The text of this file is run behind the
wall: the library hangs on towers of powers, and wants the main thread."""

from __future__ import annotations

import logging
import re
from typing import Any


def same(gold: str, answer: str) -> bool:
    """Whether math-verify finds the answer equal to the right one."""
    from math_verify import parse, verify

    def latex(text: str) -> str:
        # as Python writes powers, and `x^12`, which LaTeX reads as x^1 2
        powers = r"(?:\*\*|\^)\s*(?:\((-?\d+(?:/\d+)?)\)|(-?\d+))"
        for sign, written in {
            "²": "^2",
            "³": "^3",
            "×": "*",
            "·": "*",
            "−": "-",
            "π": "pi",
            "∞": r"\infty",
        }.items():
            text = text.replace(sign, written)
        text = re.sub(r"√\s*(\d+|[A-Za-z]|\([^()]*\))", r"\\sqrt{\1}", text)
        text = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi ", text)
        text = re.sub(powers, lambda power: f"^{{{power[1] or power[2]}}}", text)
        # a letter is a variable: after a number math-verify drops `m`, `d` and others as units; and
        # it reads no sum whose bracket ends with a space
        factor = r"(?<![\w.\\])(\d+(?:\.\d+)?)\s*(?!e[+-]?\d)(?=[A-Za-z](?![A-Za-z]))"
        text = re.sub(factor, r"\1*", text)
        # no expression, which would look at a run of spaces from each of them
        return "$" + ")".join(part.rstrip() for part in text.split(")")) + "$"

    # it warns that nothing bounds its time: the worker does
    logging.disable(logging.CRITICAL)
    expressions: list[Any] = [
        parse(latex(text), parsing_timeout=None, fallback_mode="no_fallback")
        for text in (gold, answer)
    ]
    return bool(all(expressions) and verify(*expressions, timeout_seconds=None))
