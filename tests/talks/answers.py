"""Answers to a proposal, by what they mean: a yes, a no, or neither. Written from the rule that
a yes is clear, unconditional and for now."""

from __future__ import annotations

from pathlib import Path


def meant(part: str = ".") -> dict[str, str]:
    """Each answer of a part (`.`, or the held-out `fresh`) with `yes`, `no`, or "" for neither."""
    found, meaning = {"": ""}, ""
    for line in (Path(__file__).parent / part / "answers.lst").read_text("utf-8").splitlines():
        if line.startswith("# "):
            meaning = line.removeprefix("# ").replace("neither", "")
        else:
            found[line] = meaning
    return found
