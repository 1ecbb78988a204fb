"""The answer in a LaTeX box, as models of mathematics give it."""

from __future__ import annotations

_OPENS = "\\boxed{"


def boxed(text: str) -> str:
    r"""What stands in the last box, braces matched; the whole text where no box is closed.

    >>> boxed(r"first \boxed{1}, but \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    >>> boxed(" 12 ")
    '12'
    """
    start = text.rfind(_OPENS)
    depth = 0
    # from the opening brace
    for place in range(start + len(_OPENS) - 1, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start + len(_OPENS) : place].strip()
    return text.strip()
