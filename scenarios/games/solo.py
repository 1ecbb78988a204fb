"""What the games for one agent share: levels and sizes, how a move is read, what is paid, and the
loop of turns. A game adds a `Board`, and says nothing of any of these.

The rules, the sizes of the levels and the numbers of `rewards: gem` are facts of GEM (gem-llm
0.1.0, `gem.envs.game_env`); texts, boards and code are ours.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from gem_ma import Action, Ask, Episode, Reward, Scenario, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

REWARDS = ("win", "dense", "gem")
FOULS = ("end", "turn")
FOUL = -0.1  # GEM's price of an answer that names no move
LISTED = 512  # longest list of moves that an Ask offers; beyond it every move is still read
MOST_KNOWN = 10_000  # answers whose parts are remembered
LONGEST_KNOWN = 64  # characters of such an answer
UNREADABLE = "No move can be read in that."
OUT_OF_TURNS = "That was the last turn."


class Outcome(NamedTuple):
    """What a move led to: its answer in words, what GEM pays for it, and "win" or "loss" where it
    ends the game."""

    answer: str
    paid: float = 0.0
    end: str = ""


class Board(ABC):
    """The state of one play."""

    @abstractmethod
    def rules(self) -> str:
        """What the player must know before its first move."""

    @abstractmethod
    def text(self) -> str:
        """What stands on the board, shown before every move; "" where the answers say all."""

    @abstractmethod
    def moves(self) -> tuple[str, ...] | None:
        """The moves to choose from, those that do nothing left out where that costs little; None
        where they are too many to list."""

    @abstractmethod
    def move(self, *parts: str) -> Outcome:
        """Plays a well-formed move. One that cannot be made takes its turn and changes nothing."""

    def secret(self) -> str:
        """What was hidden, told to who has not won."""
        return ""

    def last(self, paid: float) -> float:
        """What GEM pays at the last turn of a game that is not won, in place of the move's
        `paid`."""
        return paid


class Form:
    r"""How the moves of a game are written: a pattern with a group for every part.

    The last `\boxed{}` that holds a move counts, as in GEM. Without one it is the legal string
    that the kernel has read, else the whole answer, else the only move in its last line.
    `boxed` is the wider pattern of GEM where that one also takes moves that are none.
    """

    def __init__(self, pattern: str, boxed: str = "") -> None:
        self._whole = re.compile(pattern, re.IGNORECASE)
        self._among = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)
        self._boxed = re.compile(rf"\\boxed\{{\s*(?:{boxed or pattern})\s*\}}", re.IGNORECASE)
        # (text, parsed) of short answers -> the parts that were read there
        self._known: dict[tuple[str, str | None], tuple[str, ...] | None] = {}

    def read(self, action: Action) -> tuple[str, ...] | None:
        """The parts of the move that an action names; None where it names none, or several."""
        text = action.text
        said = (text, action.parsed)
        if said in self._known:
            return self._known[said]
        if len(text) <= LONGEST_KNOWN:
            return self._remembered(said)
        # of a long answer that ends in a box with a move nothing else counts
        end = text[-LONGEST_KNOWN:]
        if (box := end.rfind("\\boxed{")) >= 0 and action.parsed != text:
            tail = (end[box:], None)
            parts = self._known[tail] if tail in self._known else self._remembered(tail)
            if parts is not None:
                return parts
        return self._read(*said)

    def _remembered(self, said: tuple[str, str | None]) -> tuple[str, ...] | None:
        parts = self._read(*said)
        if len(self._known) < MOST_KNOWN:
            self._known[said] = parts
        return parts

    def _read(self, text: str, parsed: str | None) -> tuple[str, ...] | None:
        match = None
        if parsed == text:
            match = self._whole.fullmatch(text)
        elif "\\boxed" in text:
            for match in self._boxed.finditer(text):  # noqa: B007
                pass
            # no move stands in a box: words around it are not an answer
            if match is None and parsed is not None:
                match = self._whole.fullmatch(parsed)
        else:
            match = self._whole.fullmatch((parsed or text).strip()) or self._only(text)
        return match.groups() if match else None

    def _only(self, text: str) -> re.Match[str] | None:
        """The only move in the last line: models argue first and decide last."""
        matches = list(self._among.finditer(text.strip().rsplit("\n", 1)[-1]))
        return matches[0] if len(matches) == 1 else None


def ladder(game: str, lowest: str = "random_legal") -> dict[str, dict[str, str]]:
    """The casts of a game's players, the weakest first."""
    players = {"random": lowest, "simple": f"{game}_simple", "strong": f"{game}_strong"}
    return {rung: {"player": player} for rung, player in players.items()}


class Solo(Scenario):
    """A game of a fixed number of turns for one agent."""

    agents = ("player",)
    rates = ("foul",)
    less_is_better = ("foul",)
    # level -> the sizes that it draws from; a size is a NamedTuple with `turns`
    levels: ClassVar[Mapping[str, Sequence[Any]]]
    form: ClassVar[Form]
    example: ClassVar[str]  # a move, as the rules write it

    def __init__(self, level: str, rewards: str, foul: str, **size: Any) -> None:
        r"""`level` is one of GEM's sizes: easy, hard, or random, which draws a size for every
        play; each part of a size may be set alone.

        `rewards`: `win` pays 1 for a win and nothing else; `dense` pays progress turn by turn and
        takes it back from who does not win; `gem` pays GEM's numbers, to losers too. `foul`: what
        an answer without a move does beside its price of .1: `end` the play, as in GEM, or take
        its `turn`; the default is `end` with `rewards: gem`, else `turn`.
        """
        self.rewards = self._one_of("rewards", rewards, REWARDS)
        self.level = self._one_of("level", level, tuple(self.levels))
        default = "end" if rewards == "gem" else "turn"
        self.foul = self._one_of("foul", foul or default, FOULS)
        parts = {name: value for name, value in size.items() if value is not None}
        for name, value in parts.items():
            if isinstance(value, bool) != isinstance(self.levels[level][0]._asdict()[name], bool):
                raise ConfigError(f"scenario: {name} cannot be {value!r}")
            if not isinstance(value, int) or value < 0:
                raise ConfigError(f"scenario: {name} is a whole number; got {value!r}")
        self.parts = parts
        for drawn in self.sizes:
            if drawn.turns < 1:
                raise ConfigError(f"scenario: there is at least 1 turn; got {drawn.turns}")
            if problem := self.problem(drawn):
                raise ConfigError(f"scenario: {problem}")
        self.ends_within = max(drawn.turns for drawn in self.sizes)

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The sizes that a play draws from."""
        sizes = self.levels[self.level]
        # made anew: attributes travel to fresh processes as JSON, which knows no NamedTuple
        return tuple([size._replace(**self.parts) for size in sizes] if self.parts else sizes)

    @staticmethod
    def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
        if value not in known:
            raise ConfigError(f"scenario: {name} is {', '.join(known)}; got {value!r}")
        return value

    def problem(self, size: Any) -> str:
        """Why there is no game of this size; "" where there is."""
        return ""

    def board(self, size: Any, rng: random.Random) -> Board:
        """A new board; it may keep `rng` for the chance of later moves."""
        raise NotImplementedError

    def play(self, rng: random.Random, task: Any) -> Play:
        sizes = self.sizes
        size = rng.choice(sizes) if len(sizes) > 1 else sizes[0]
        board = self.board(size, rng)
        how = f"Answer with a move in \\boxed{{}}, as in \\boxed{{{self.example}}}."
        text = f"{board.rules()} You have {size.turns} turns. {how}\n{board.text()}".rstrip()
        total = 0.0  # paid for progress so far
        for turns_left in range(size.turns - 1, -1, -1):
            actions = yield Ask({"player": text}, legal=board.moves())
            parts = self.form.read(actions["player"])
            if parts is None:
                yield Reward({"player": FOUL}, why="foul")
                outcome = Outcome(UNREADABLE, end="foul" if self.foul == "end" else "")
            else:
                outcome = board.move(*parts)
            if not turns_left and not outcome.end:
                answer = f"{outcome.answer} {OUT_OF_TURNS}"
                outcome = Outcome(answer, board.last(outcome.paid), "turns")
            end = outcome.end
            value = self._value(outcome, total) if outcome.paid or end else 0.0
            # a win is always in the ledger, whatever it is paid: `success` reads it there
            if value or end == "win":
                yield Reward({"player": value}, why=end or "progress")
                total += value
            if end:
                reveal = board.secret() if outcome.end != "win" else ""
                yield Tell({"player": f"{outcome.answer} {reveal}".rstrip()})
                return
            text = f"{outcome.answer}\n{board.text()}".rstrip()

    def _value(self, outcome: Outcome, total: float) -> float:
        """What an outcome is worth, after `total` for progress."""
        if self.rewards == "gem":
            return outcome.paid
        won = float(outcome.end == "win")
        if self.rewards == "win":
            return won
        # a potential that is 0 at the end: the sum of a play is that of `win`
        return won - total if outcome.end else outcome.paid

    def success(self, episode: Episode) -> bool | None:
        return any(entry.why == "win" for entry in episode.ledger) if episode.end.scored else None

    def measures(self, episode: Episode) -> dict[str, float | None]:
        return {"foul": float(any(entry.why == "foul" for entry in episode.ledger))}
