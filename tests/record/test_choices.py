"""Legal strings stand once in a line of the record, and come back exactly."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from gem_ma import Ask, Episode, Plan, Scenario, Seat, play
from gem_ma.kernel.errors import StoreError
from gem_ma.record.codec import dump_episode, load_episode, to_json


class Board(Scenario):
    """A board whose moves become fewer, come back, or are always the same."""

    agents = ("black", "white")

    def __init__(self, size: int, turns: int, moves: str = "fewer") -> None:
        self.size, self.turns, self.moves = size, turns, moves

    def play(self, rng: random.Random, task: Any) -> Any:
        choices = [f"move {number}" for number in range(self.size)]
        fixed = tuple(choices)
        for turn in range(self.turns):
            agent = self.agents[turn % 2]
            if self.moves == "shuffled":
                rng.shuffle(choices)
            said = yield Ask({agent: "?"}, legal=fixed if self.moves == "same" else tuple(choices))
            if self.moves == "fewer":
                choices.remove(said[agent].parsed)
                if turn % 5 == 4:  # a capture: stones come back, somewhere
                    choices.insert(rng.randrange(len(choices)), f"again {turn}")


def played(board: Board) -> Episode:
    return asyncio.run(play(Plan(board, dict.fromkeys(board.agents, Seat("random_legal")), seed=1)))


@pytest.mark.parametrize("moves", ["fewer", "same", "shuffled"])
@pytest.mark.parametrize("size", [2, 31, 32, 361])
def test_every_list_comes_back(size: int, moves: str) -> None:
    episode = played(Board(size, min(size - 1, 60), moves))
    assert load_episode(dump_episode(episode)) == episode


def test_a_long_list_costs_its_length_once() -> None:
    lines = [dump_episode(played(Board(10_000, turns, "same"))) for turns in (1, 200)]
    assert len(lines[1]) < 1.5 * len(lines[0])
    go = dump_episode(played(Board(361, 300)))
    assert len(go) < 2.5 * len(dump_episode(played(Board(361, 300, "same"))))
    turns = load_episode(lines[1]).turns
    assert all(turn.legal is turns[0].legal for turn in turns)  # and once in memory


def test_short_lists_stay_where_a_reader_looks_for_them() -> None:
    turns = to_json(played(Board(9, 4, "same")))["turns"]
    assert all(len(turn["legal"]) == 9 and "legal_of" not in turn for turn in turns)


@pytest.mark.parametrize(
    "reference",
    [
        *(None, 3, [], [0], [9, [], []], [-1, [], []], ["0", [], []], [0, [361], []]),
        *([0, 5, []], [0, [], [[999, "x"]]], [0, [], [["x", 0]]], [0, [], [[0]]], [0, [{}], []]),
        *([0, [-1], []], [1.5, [], []], [0, [], [[0, 7]]]),
    ],
)
def test_a_reference_that_leads_nowhere_is_told_by_its_place(reference: Any) -> None:
    data = json.loads(dump_episode(played(Board(361, 4))))
    data["turns"][1]["legal_of"] = reference
    with pytest.raises(StoreError, match=r"turns\[1\]\.legal"):
        load_episode(json.dumps(data))
