"""Situations in words that can be read back: a bank of sentences with typed fields, written by a
seed and parsed without one.

A unit is (key, fields). Every sentence of a bank ends with a full stop, holds none before, and
begins with two words that are not fields. So a text splits into sentences, and each is matched
whole. A domain brings the sentences and the kinds of their fields.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Unit = tuple[str, Mapping[str, Any]]
_FIELD = re.compile(r"\{(\w+)\}")
# A capital behind the full stop: values with points have none.
_SPLIT = re.compile(r"(?<=\.) (?=[A-Z])")


@dataclass(frozen=True)
class Kind:
    """A kind of field: the pattern of its text (without named groups), and both ways between
    value and text."""

    pattern: str
    write: Callable[[Any], str] = str
    read: Callable[[str], Any] = str


def split(text: str) -> list[str]:
    """The sentences of a text that a bank has written."""
    return _SPLIT.split(text)


class Bank:
    """Sentences by key. `kinds` are the fields by name; `links` may open a sentence that begins
    with `opener`."""

    def __init__(
        self,
        sentences: Mapping[str, Sequence[str]],
        kinds: Mapping[str, Kind],
        links: Sequence[str],
        opener: str = "You",
    ) -> None:
        self.sentences, self.kinds, self.links, self.opener = sentences, kinds, tuple(links), opener

    def write(
        self,
        units: Sequence[Unit],
        rng: random.Random,
        starts: Sequence[str],
        held_out: bool = False,
    ) -> str:
        """The units as a text. Keys in `starts` begin a topic and may be linked to the one
        before. The last sentence of each key is held out: it is written only where `held_out`
        says so, and then no other."""
        text: list[str] = []
        topics = 0
        for key, fields in units:
            choices = self.sentences[key]
            sentence = self._filled(choices[-1] if held_out else rng.choice(choices[:-1]), fields)
            topics += key in starts
            # The first topic has nothing to be linked to. Drawn last: only a sentence that could be
            # linked uses up a number of the seed.
            if (
                key in starts
                and topics > 1
                and sentence.startswith(f"{self.opener} ")
                and rng.random() < 0.5
            ):
                sentence = f"{rng.choice(self.links)}, {sentence[0].lower()}{sentence[1:]}"
            text.append(sentence)
        return " ".join(text)

    def _filled(self, sentence: str, fields: Mapping[str, Any]) -> str:
        return _FIELD.sub(
            lambda found: self.kinds[found.group(1)].write(fields[found.group(1)]), sentence
        )

    def read(self, text: str) -> list[Unit] | str:
        """The units of a text, or the first sentence that is none of the bank's."""
        units: list[Unit] = []
        for sentence in split(text):
            unit = self._unit(self._unlinked(sentence))
            if unit is None:
                return sentence
            units.append(unit)
        return units

    def _unlinked(self, sentence: str) -> str:
        for link in self.links:
            if sentence.startswith(f"{link}, "):
                rest = sentence[len(link) + 2 :]
                # The link had taken the capital.
                return rest[:1].upper() + rest[1:]
        return sentence

    def _unit(self, sentence: str) -> Unit | None:
        # One of a few: sentences of a bank share their first two words at most with some others.
        for key, pattern in self._patterns.get(_head(sentence), ()):
            if found := pattern.fullmatch(sentence):
                return key, {
                    name: self.kinds[name].read(text) for name, text in found.groupdict().items()
                }
        return None

    @cached_property
    def _patterns(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
        """The sentences as patterns, by their first words: most of a bank need not be tried."""
        patterns: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
        for key, sentences in self.sentences.items():
            for sentence in sentences:
                parts = _FIELD.split(sentence)
                text = "".join(
                    f"(?P<{part}>{self.kinds[part].pattern})" if place % 2 else re.escape(part)
                    # `split` by a group alternates text and field.
                    for place, part in enumerate(parts)
                )
                patterns.setdefault(_head(sentence), []).append((key, re.compile(text)))
        return patterns


def _head(sentence: str) -> str:
    return " ".join(sentence.split(" ", 2)[:2])
