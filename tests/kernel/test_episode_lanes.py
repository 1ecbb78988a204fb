"""`gem-ma show RUN --episode`: lanes are as wide as the terminal, lose no word, and what anybody
wrote stays in the lane of its agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import gem_ma
from gem_ma import Ask, Reward, Scenario, Tell
from gem_ma.cli.episode_lanes import LONG_BRIEFING, NARROWEST, STEP, Lanes
from gem_ma.cli.main import main
from gem_ma.cli.terminal import plain
from gem_ma.kernel.types import Malformed, ToolCall

WORDS = (
    "[red]bold[/red]",
    "\x1b[31mhidden\x1b[0m",
    "長い文章" * 20,
    "x" * 300,
    "a\tb\n\nc",
    "🙂" * 40,
)


class Told(Scenario):
    """Everybody is told everything, and answers at once."""

    agents = ("ann", "bob", "cleo")
    chance = False

    def play(self, rng: Any, task: Any) -> Any:
        for text in WORDS:
            yield Tell(dict.fromkeys(self.agents, text))
            yield Ask(dict.fromkeys(self.agents, "And you?"))
            yield Reward({"bob": 1.0}, why=text)


class Says:
    def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None) -> None:
        self.agent = agent

    async def act(self, asked: Any) -> gem_ma.Action:
        calls = (ToolCall("1", "look", {"at": "shelf"}), Malformed("{", "no JSON"))
        return gem_ma.Action(f"{self.agent} says {asked.new[0].text}", calls)


@pytest.fixture(scope="module")
def episode() -> gem_ma.Episode:
    seats = {agent: gem_ma.Seat("says") for agent in Told.agents}
    plan = gem_ma.Plan(Told(), seats)
    return asyncio.run(gem_ma.play(plan, {}, dict.fromkeys(Told.agents, Says)))


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_no_letter_is_lost(
    episode: gem_ma.Episode, width: int
) -> None:
    lines = list(Lanes(episode, width).lines())
    assert max(map(cell_len, lines)) <= max(width, NARROWEST + STEP)
    assert not any("\x1b" in line or "\t" in line for line in lines)
    text = "".join("".join(lines).split())
    for word in WORDS:
        for letter in set(plain(word)) - set(" \t\n"):
            # shown to three, said by three, and paid for
            assert text.count(letter) >= 7 * plain(word).count(letter), word
    assert text.count("unreadable") == len(episode.turns) == 18


def test_each_stands_in_a_lane_and_nobodys_words_are_printed_twice(episode: gem_ma.Episode) -> None:
    lines = list(Lanes(episode, 120).lines())
    head, first = lines[0], next(line for line in lines if "| ann" in line)
    starts = [head.index(agent) for agent in Told.agents]
    assert [first.index(f"| {agent}") for agent in Told.agents] == starts
    assert sum(line.count("says [red]") for line in lines) == 3


@pytest.mark.long
def test_a_briefing_is_folded_and_can_be_unfolded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ["run", "retail", "-n", "1", "run.baselines=false", "--out", "run", "--quiet"]
    assert main(typed) == 0
    capsys.readouterr()
    sizes = []
    for more in ([], ["--full"]):
        assert main(["show", "run", "--episode", "test/0", *more]) == 0
        text = capsys.readouterr().out
        sizes.append(len(text.split()))
        assert ("words: --full)" in text) is not bool(more)
    assert sizes[1] > sizes[0] + LONG_BRIEFING
