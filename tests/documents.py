"""Reads README.md and docs/*.md for the test of them: commands, blocks by language, overrides,
paths and links, each with its line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
Words = tuple[str, ...]
HEADS = r"(?:gem-ma|make|pip|python3?|tensorboard|trackio|\.venv[\w-]*/bin/\w+)"
SHELLS = ("bash", "sh")
# an override begins with one of them
SECTIONS = "agents|policies|run|train|scenario|limits|evaluate|retry|study"


class Line(NamedTuple):
    """One command: where it stands, how it is written, its words without variables that are set
    before it."""

    number: int
    text: str
    words: Words


class Page:
    """One document."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text(encoding="utf-8")
        self.fenced = [
            (self._line(match.start()), match[1], match[2])
            for match in re.finditer(
                r"^ *```(\w*)\n(.*?)^ *```$", self.text, re.DOTALL | re.MULTILINE
            )
        ]
        self.prose = re.sub(
            r"^ *```\w*\n.*?^ *```$",
            lambda match: "\n" * match[0].count("\n"),
            self.text,
            flags=re.DOTALL | re.MULTILINE,
        )

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def _line(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def blocks(self, language: str) -> list[tuple[int, str]]:
        return [(number, text) for number, kind, text in self.fenced if kind == language]

    def files(self) -> list[tuple[str, str]]:
        """Blocks that begin with `# NAME.py` or `# NAME.yaml`: the name and the text."""
        return [
            (named[1], text)
            for _, _, text in self.fenced
            if (named := re.match(r"# (\w+\.(?:py|yaml))\b", text))
        ]

    def spans(self) -> Iterator[tuple[int, str]]:
        """What stands between backticks in the prose; a line break inside is a space."""
        for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", self.prose):
            yield self.prose.count("\n", 0, match.start()) + 1, " ".join(match[1].split())

    def commands(self) -> Iterator[Line]:
        """Of shell blocks every line; elsewhere what begins with a program that we know. `A &&
        B` is two."""
        for number, kind, text in self.fenced:
            if kind in ("", *SHELLS):
                for line in text.replace("\\\n", " ").splitlines():
                    if kind in SHELLS or re.match(rf"(?:[A-Z_]+=\S+ )*{HEADS} ", line):
                        yield from _commands(number, line)
        for number, span in [*self.spans(), *self._indented()]:
            if re.match(rf"(?:[A-Z_]+=\S+ )*{HEADS} ", span):
                yield from _commands(number, span)

    def _indented(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.prose.splitlines(), 1):
            if line.startswith("    "):
                yield number, line.strip()

    def overrides(self) -> Iterator[tuple[int, str]]:
        for number, span in self.spans():
            if re.match(rf"['\"]?(?:{SECTIONS})(?:\.[\w*-]+)*=", span) and "..." not in span:
                yield number, span

    def paths(self) -> Iterator[tuple[int, str]]:
        for number, span in self.spans():
            if re.fullmatch(r"(?:gem_ma|scenarios|agents|configs|docs|tests)/[\w./*-]*", span):
                yield number, span

    def links(self) -> Iterator[tuple[int, str]]:
        for match in re.finditer(r"\]\(([^)\s]+)\)", self.prose):
            yield self.prose.count("\n", 0, match.start()) + 1, match[1]


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def _commands(number: int, text: str) -> Iterator[Line]:
    words: list[str] = []
    for word in [*shlex.split(text, comments=True), "&&"]:
        if word != "&&":
            words.append(word)
        elif words:
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                yield Line(number, text.strip(), tuple(words))
            words = []


def leads(page: Page, target: str) -> bool:
    """Whether a link within the project leads somewhere, to a heading where it names one. Other
    addresses are not asked."""
    if re.match(r"[a-z]+:", target):
        return True
    name, _, anchor = target.partition("#")
    path = (page.path.parent / name) if name else page.path
    if not path.exists() or not anchor:
        return path.exists()
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
