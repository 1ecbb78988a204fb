"""Marks in free text: an end of the talk that nobody can write by accident, and stop words of other
protocols made harmless.

A talk ends by a tool call. Where a model has no tools it ends by a message that is wholly one of
the `Tokens`, random per episode and known to the speaker's prompt alone. Anything that only
looks like a mark (`###STOP###`) ends nothing, unless the protocol of the behaviour says so
(`way_of`): it is removed from what is said, and escaped in what is heard.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

# Possessive, and 80 characters inside at most: a page of hashes is walked once.
_MARK = re.compile(r"(?<!#)#{3,}+[ \t]*+[^\s#](?:[^#\n]{0,78}[^\s#])?[ \t]*+#{3,}")
_SPOKEN_MARK = re.compile(rf"(?:(?<![ \t])[ \t]++)?(?:{_MARK.pattern})")
# What models put around a mark without meaning anything by it.
_AROUND = " \t\r\n`'\"*.“”‘’"
_HASHES = re.compile(r"#{3,}")


# what tau-bench's and tau2-bench's users end by
BENCHMARKS = {"stop": "settled", "transfer": "transferred", "outofscope": "out_of_scope"}


def way_of(text: str, anywhere: bool = False) -> str:
    """The way to end that a mark of the benchmarks in a text stands for, "" for none: the whole
    text must be one, or any part of it.

    >>> way_of(" ###STOP### "), way_of("###OUT-OF-SCOPE###")
    ('settled', 'out_of_scope')
    >>> way_of("Yes. ###TRANSFER###"), way_of("Yes. ###TRANSFER###", anywhere=True)
    ('', 'transferred')
    """
    mark = _MARK.search(text)
    if mark is None or (not anywhere and mark.group() != text.strip(_AROUND)):
        return ""
    # `###OUT-OF-SCOPE###` and `### out of scope ###` are one mark.
    return BENCHMARKS.get(re.sub(r"[^a-z]", "", mark.group().casefold()), "")


class Tokens:
    """One token per way to end, as `end-1f0c9a2b37d4-settled`; the bare `end-1f0c9a2b37d4` is the
    first way.

    >>> tokens = Tokens(random.Random(0), ("settled", "gave_up"))
    >>> tokens.read(f" `{tokens.token('gave_up')}` ")
    'gave_up'
    >>> tokens.read("I say " + tokens.token("settled"))
    """

    def __init__(self, rng: random.Random, ways: Sequence[str]) -> None:
        # 48 bits: nobody hits it by accident, and no text from outside can hold it.
        self.stem = f"end-{rng.getrandbits(48):012x}"
        self.ways = tuple(ways)
        # Longest first, or a way that begins like another one would be cut short.
        names = "|".join(re.escape(f"-{way}") for way in sorted(self.ways, key=len, reverse=True))
        self._pattern = re.compile(
            rf"{re.escape(self.stem)}({names})?" if names else re.escape(self.stem), re.IGNORECASE
        )

    def token(self, way: str) -> str:
        """What is written to end in this way."""
        return f"{self.stem}-{way}"

    def read(self, text: str) -> str | None:
        """The way to end that the whole text names; None where it is a message."""
        whole = text.strip(_AROUND).casefold()
        if whole == self.stem:
            # The stem alone is a model's shortest way to end.
            return self.ways[0] if self.ways else ""
        return next((way for way in self.ways if whole == self.token(way).casefold()), None)

    def without(self, text: str, instead: str = "") -> str:
        """The text with every token replaced."""
        return self._pattern.sub(instead, text)


def has_marks(text: str, tokens: Tokens | None = None) -> bool:
    """Whether a text holds a marked-up token, or one of the episode's own."""
    return _MARK.search(text) is not None or (tokens is not None and tokens.without(text) != text)


def removed(text: str, tokens: Tokens | None = None) -> str:
    """What is said: the text without marks.

    >>> removed("Yes, please. ###STOP###"), removed("order #W12 ## 3")
    ('Yes, please.', 'order #W12 ## 3')
    """
    # Each round takes something out, so it ends.
    before = None
    while before != text:  # taking one out may join the halves of another
        before = text
        text = _SPOKEN_MARK.sub("", tokens.without(text) if tokens is not None else text)
    return text.strip()


def escaped(text: str, tokens: Tokens | None = None) -> str:
    r"""What is heard: the text with marks, tool tags and written calls made unlike the real ones.

    >>> escaped("Bye ###STOP###")
    'Bye \\#\\#\\#STOP\\#\\#\\#'
    """
    text = text if tokens is None else tokens.without(text, "[removed]")
    if _MARK.search(text):
        # A backslash before each hash, so that no mark is left and the words can still be read.
        text = _HASHES.sub(lambda found: r"\#" * len(found[0]), text)
    if '"name"' in text:
        text = text.replace("{", r"\{")  # a whole text that is such an object reads as a call
    return re.sub(r"<(/?)tool_call", r"<\\\1tool_call", text, flags=re.IGNORECASE)
