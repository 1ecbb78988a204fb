"""Examples of docstrings (`>>>`) as code on the page of the API; Markdown would take them for
quotations. An extension of griffe, which mkdocs.yml names."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts a fence around each example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for everything that is documented."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    lines, inside = [], False
    for line in text.splitlines():
        begins = line.lstrip().startswith(">>>")
        # an example ends with an empty line, as doctest has it
        if begins and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
