"""Text that can be written, and the form in which legal strings must stay distinct."""

from __future__ import annotations


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def fold(text: str) -> str:
    """The form in which legal strings must stay distinct: case folded, white space collapsed."""
    return " ".join(text.casefold().split())
