"""A play in lanes on a terminal: a column per agent, what it was shown above what it did.

Where the columns do not fit, the lanes of a step stand below each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gem_ma.cli.terminal import counted, one_line, plain
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Message, ToolCall, Turn
from gem_ma.pages.static.explained import Reason

MAX_TEXT = 4_000  # characters of one message on a terminal; --json has all
LONG_BRIEFING = 60  # words that a text before an agent's first act may have and be printed
NARROWEST = 26  # letters of a lane: below this words are torn more often than read
STEP = 4  # letters of the first column
BAR = "| "  # in front of what an agent did, so that it stands out without a colour


class Lanes:
    """The lines of one play, for a terminal that is `width` letters wide.

    `is_full` prints long instructions and long texts too. A wide letter (Chinese, an emoji)
    takes two places. `marks`: why the play was lost, told below the act that did it.
    """

    def __init__(
        self,
        episode: Episode,
        width: int,
        *,
        is_full: bool = False,
        marks: Sequence[Reason] = (),
    ) -> None:
        self.episode = episode
        self.is_full = is_full
        self.marks = marks
        self.agents = list(episode.cast)
        lane = (width - STEP) // max(len(self.agents), 1) - 2
        self.is_wide = lane >= NARROWEST and len(self.agents) > 1
        self.lane = lane if self.is_wide else max(width - STEP - 2, NARROWEST)
        self._spoken: dict[str, str] = {}  # agent -> its last words, which others see again

    def lines(self) -> Iterator[str]:
        """The whole play: the agents' names, a block per step, what came at the end."""
        names = [
            f"{agent} ({seat.policy or seat.behaviour})"
            for agent, seat in self.episode.cast.items()
        ]
        if self.is_wide:
            yield from self._beside("", [[one_line(name, self.lane)] for name in names])
            yield from self._beside("", [["-" * self.lane] for _ in names])
        # step -1 of the ledger is what was paid before anybody was asked
        yield from self._step("", [], -1)
        # agents of one step acted at once: none of them saw the others' words
        for step, turns in groupby(self.episode.turns, key=lambda turn: turn.step):
            yield from self._step(str(step), list(turns), step)
        shown = {agent: self._observed(messages) for agent, messages in self.episode.final.items()}
        yield from self._block("end", shown)

    def _step(self, name: str, turns: Iterable[Turn], step: int) -> Iterator[str]:
        cells: dict[str, list[str]] = {}
        words: dict[str, str] = {}
        for turn in turns:
            cells[turn.agent] = [*self._observed(turn.observed), *self._acted(turn)]
            for mark in self.marks:
                if mark.step == step and mark.agent in ("", turn.agent):
                    cells[turn.agent] += self._wrapped(f"^ {mark.head.partition(' ')[0]} here")
            words[turn.agent] = turn.action.text
        self._spoken |= words
        for entry in self.episode.ledger:
            if entry.step == step:
                why = f" {one_line(entry.why)}" if entry.why else ""
                cells.setdefault(entry.agent, []).extend(self._wrapped(f"{entry.value:+g}{why}"))
        yield from self._block(name, cells)

    def _block(self, name: str, cells: dict[str, list[str]]) -> Iterator[str]:
        """What happened to each agent in one step, and an empty line."""
        if not any(cells.values()):
            return
        if self.is_wide:
            yield from self._beside(name, [cells.get(agent, []) for agent in self.agents])
        else:
            for agent in self.agents:
                if cells.get(agent):
                    yield from self._beside(name, [[f"{one_line(agent)}:", *cells[agent]]])
                    name = ""
        yield ""

    def _beside(self, name: str, lanes: list[list[str]]) -> Iterator[str]:
        """Lines of several lanes next to each other; the first has the step's name."""
        for row in zip_longest(*lanes, fillvalue=""):
            padded = [text + " " * (self.lane - cell_len(text)) for text in row]
            yield f"{name:<{STEP}}{'  '.join(padded)}".rstrip()
            name = ""

    def _observed(self, messages: Iterable[Message]) -> list[str]:
        lines: list[str] = []
        for message in messages:
            text = message.text
            # what another agent said stands in its lane already
            if message.sender in self._spoken and self._spoken[message.sender] == text:
                continue
            words = len(text.split())
            # a briefing; of a scenario's first message the rules and the board are the play
            if message.sender == "system" and words > LONG_BRIEFING and not self.is_full:
                lines += self._wrapped(f"(briefing, {words} words: --full)")
            else:
                lines += self._wrapped(f"{message.sender}: {self._cut(text)}")
        return lines

    def _acted(self, turn: Turn) -> list[str]:
        acts: list[str] = []
        if turn.action.text or not turn.action.tool_calls:
            acts += [self._cut(turn.action.text) or "(said nothing)"]
        if turn.illegal:
            acts += ["(none of the legal moves)"]
        for call in turn.action.tool_calls:
            if isinstance(call, ToolCall):
                acts += [self._cut(f"{call.name} {_json(call.arguments)}")]
            else:
                acts += [self._cut(f"unreadable call ({call.reason}): {call.text}")]
        lines = self._thought(turn)
        lines += [BAR + line for act in acts for line in self._wrapped(act, len(BAR))]
        drafts = len(turn.replies) - 1
        if drafts > 0:
            # a behaviour may have asked its model several times before it acted
            more = "1 more reply" if drafts == 1 else f"{drafts} more replies"
            lines += self._wrapped(f"({more} of a model: --json)")
        return lines

    def _thought(self, turn: Turn) -> list[str]:
        """What the agent's model thought, which nobody else was shown: folded, as briefings are."""
        thought = "\n\n".join(reply.reasoning for reply in turn.replies if reply.reasoning)
        if not thought:
            return []
        folded = f"(thought, {counted(len(thought.split()), 'word')}: --full)"
        return self._wrapped(f"thought: {thought}" if self.is_full else folded)

    def _wrapped(self, text: str, taken: int = 0) -> list[str]:
        """The text in lines as wide as a lane, less what is `taken` at their start."""
        width = self.lane - taken
        # before the width is counted: what steers a terminal takes no place
        wrapped = Text(plain(text).strip("\n").expandtabs(2)).wrap(Console(width=width), width)
        return [line.plain.rstrip() for line in wrapped]

    def _cut(self, text: str) -> str:
        if len(text) <= MAX_TEXT or self.is_full:
            return text
        return f"{text[:MAX_TEXT]} ... [{len(text) - MAX_TEXT} more characters: --full]"


def _json(value: Any) -> str:

    return json.dumps(value, ensure_ascii=False)
