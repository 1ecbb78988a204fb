"""Every environment of a library: does it play, and what do trivial answers score there? Writes
the library's table into docs/worlds.md: `python benchmarks/worlds.py openspiel`. The answers
of reasoning_gym's questions are in `tests/worlds/trivial_answers.py`.

The score is the mean return of the first agent; the others play at random. A constant is the first
legal string, or the first of a library's usual answers; an echo says what it was shown last.
"""

from __future__ import annotations

import pkgutil
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gem_ma import registry
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.worlds import line

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "worlds.md"
PLAYS, LONGEST = 6, 100  # plays of each policy, and their decision points
PATIENCE_S = 10  # of CPU for an environment
TEXTS = {  # where the library reads an answer itself
    "textarena": ("[0]", "[1]", "[2]", "[3]", "[4]", "[A1]", "[pass]"),
    "gem": tuple(f"\\boxed{{{text}}}" for text in ("1", "5", "7", "up", "1 1 1", "A B")),
}
GEM_ANSWERS = {
    "Sudoku": ("1 1 1", "2 3 4", "4 4 2", "3 1 2"),
    "Hanoi": ("A B", "A C", "B C", "C A"),
    "Fifteen": ("up", "down", "left", "right"),
    "2048": ("up", "down", "left", "right"),
    "Sokoban": ("up", "down", "left", "right"),
    "Guess": ("1", "5", "7", "3"),
    "Mastermind-v0-easy": ("12", "34"),
    "Mastermind": ("1234", "4321", "1122"),
    "Minesweeper": ("reveal 1 1", "flag 2 2", "reveal 3 0"),
    "Crosswords": ("1 1 A", "2 3 E"),
    "Hangman": ("e", "a", "s", "t"),
    "WordSearch": ("1 1 1 4", "2 1 2 5"),
    "Wordle": ("cat", "dog", "house", "bread"),
}
POLICIES = ("random", "constant", "echo")
NUMBERS = ("0", "0.5", "-1", "1 0 0")
VERSION = re.compile(r".*_v\d+").fullmatch
Answer = Callable[[Game, str, random.Random], str]


def ids(library: str) -> list[str]:
    """What the library lists; of TextArena one game of each kind."""
    if library == "openspiel":
        import pyspiel

        return list(pyspiel.registered_names())
    if library == "gymnasium":
        import gymnasium
        import minigrid

        assert minigrid  # it registers its ids when it is imported
        wanted = ("toy_text", "classic_control", "minigrid")
        specs = gymnasium.registry.values()
        return [spec.id for spec in specs if any(home in str(spec.entry_point) for home in wanted)]
    if library == "textworld":
        from textworld.challenges import CHALLENGES

        return sorted(CHALLENGES)
    if library == "pettingzoo":
        import pettingzoo.classic

        return [
            part.name
            for part in pkgutil.iter_modules(pettingzoo.classic.__path__)
            if VERSION(part.name)
        ]
    if library == "textarena":
        from textarena.envs.registration import ENV_REGISTRY

        shortest: dict[str, str] = {}
        for name, spec in ENV_REGISTRY.items():
            known = shortest.get(str(spec.entry_point), name)
            shortest[str(spec.entry_point)] = min(name, known, key=lambda text: (len(text), text))
        return sorted(shortest.values())
    from gem.envs.registration import ENV_REGISTRY as GEM

    return sorted(name for name in GEM if name.startswith("game:"))


def policies(library: str, name: str) -> dict[str, Answer]:
    texts = TEXTS.get(library, NUMBERS)
    for game, answers in GEM_ANSWERS.items():
        if library == "gem" and game in name:
            texts = tuple(f"\\boxed{{{answer}}}" for answer in answers)
    return {
        "random": lambda game, agent, rng: rng.choice(game.pending[agent].legal or texts),
        "constant": lambda game, agent, rng: (game.pending[agent].legal or texts)[0],
        "echo": lambda game, agent, rng: (game.new(agent) or game.view(agent))[-1].text,
    }


def score(scenario: Scenario, library: str, policy: str) -> float:
    """The mean return of the first agent."""
    known = policies(library, scenario.id)
    total, first = 0.0, scenario.agents[0]
    limit = scenario.limits.max_steps if scenario.limits else None
    longest = min(LONGEST, limit or LONGEST)  # beyond its own limit a world says nothing true
    tasks = scenario.tasks("train")
    for seed in range(PLAYS):
        game, rng = Game(scenario, tasks[seed % len(tasks)], seed), random.Random(seed)
        while game.pending and game.step < longest:
            game.send(
                {
                    agent: known[policy if agent == first else "random"](game, agent, rng)
                    for agent in game.pending
                }
            )
        total += sum(entry.value for entry in game.ledger if entry.agent == first)
        game.close()
    return total / PLAYS


def rows(library: str) -> Iterator[str]:
    """A line of the table for each environment."""
    signal.signal(signal.SIGVTALRM, _too_long)
    for name in ids(library):
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
        try:
            scenario = registry.make(f"{library}:{name}")
            scores = [score(scenario, library, policy) for policy in POLICIES]
            yield (
                f"| `{name}` | {len(scenario.agents)} | " + " | ".join(map(_number, scores)) + " |"
            )
        except (GemMaError, TooLong) as error:
            if "TooLong" in str(error) or isinstance(error, TooLong):
                yield f"| `{name}` | slow: over {PATIENCE_S} CPU seconds | | | |"
                continue
            words = str(error).replace(f"{library}:{name}", "").replace("|", "/").strip(": ")
            words = re.sub(r"(/[\w.-]+){2,}", "...", words)  # a path says which machine it was
            yield f"| `{name}` | refused: {words.splitlines()[0][:110]} | | | |"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            line.forget()


class TooLong(BaseException):
    """No Exception: what an adapter catches of its library it takes for a fault of that."""


def _too_long(number: int, frame: object) -> None:
    raise TooLong


def _number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def main(library: str) -> None:
    table = list(rows(library))
    refused, slow = (sum(f"| {word}:" in row for row in table) for word in ("refused", "slow"))
    head = f"""## {library}: every world
{len(table) - refused} open, {slow} of them too slow for this table; {refused} are refused. The mean return of the first agent over {PLAYS} plays of at most {LONGEST}
decision points.

| id | agents | random | constant | echo |
| --- | --- | ---: | ---: | ---: |
"""
    write(rf"## {library}: every world\n.*?(?=\n## |\Z)", head + "\n".join(table) + "\n")


def write(pattern: str, text: str) -> None:
    """Puts a text in the place of what the pattern matches in the page, or at its end."""
    page = PAGE.read_text(encoding="utf-8")
    changed, count = re.subn(pattern, lambda match: text, page, flags=re.DOTALL)
    PAGE.write_text(changed if count else f"{page.rstrip()}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
