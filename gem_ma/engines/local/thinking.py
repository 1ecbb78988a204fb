"""Thinking in front of a reply, `<think>...</think>`: where it ends, and the reply without it.

Knows texts. A thought of a model behind an endpoint never stands in the text: that is
`gem_ma.engines.http.thoughts`.
"""

from __future__ import annotations

THINK, THOUGHT = "<think>", "</think>"


def thought_of(text: str, opened: bool) -> str:
    """The thinking in front of a reply, its end tag included; all of it where the thinking never
    ended, "" where there is none. `opened`: the prompt has written the opening tag already.

    >>> thought_of("<think>no</think>yes", False), thought_of("no</think>yes", True)
    ('<think>no</think>', 'no</think>')
    """
    # behind an opened thought a model may as well answer at once, without an end tag
    if not (text.lstrip().startswith(THINK) or (opened and THOUGHT in text)):
        return ""
    end = text.find(THOUGHT)
    return text if end < 0 else text[: end + len(THOUGHT)]


def visible(text: str, opened: bool) -> str:
    """The reply behind its thinking."""
    return text[len(thought_of(text, opened)) :]
