"""Every task of the real reasoning_gym: made, played, forked; graders that evaluate reach nothing."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest

from gem_ma import Game, make
from tests.worlds.playing import WORKS, keeps_the_rules

if find_spec("reasoning_gym"):
    from reasoning_gym.factory import DATASETS

    NAMES = sorted(set(DATASETS) - {"composite"})
else:
    NAMES = []
pytestmark = [pytest.mark.worlds, pytest.mark.skipif(not NAMES, reason="needs reasoning_gym")]
# proved with a file that an answer made, in version 0.1.25
NINE = (
    "string_insertion spiral_matrix binary_matrix n_queens puzzle24 countdown"
    " polynomial_multiplication simple_integration intermediate_integration"
)
JUNK = (
    "",
    "NaN",
    "-1",
    "1e309",
    "[]",
    "[[]]",
    '{"a": 1}',
    "\ud800",
    "x" * 20_000,
    "\0",
    "9" * 5_000,
)


def test_there_are_105_tasks() -> None:
    assert len(NAMES) >= 105


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_played_and_forked(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    scenario = make(f"reasoning_gym:{name}", size=20)
    random.seed(7)
    expected = random.Random(7).random()
    numpy.random.seed(7)
    numpy.random.randn()  # of a pair: the second is kept in the state
    kept = numpy.random.get_state(legacy=False)
    task = scenario.tasks("test")[3]
    junk = JUNK if not scenario.tier else JUNK[:3]  # type: ignore[attr-defined]
    for said in junk:
        game = Game(scenario, task, seed=0)
        asked = game.fork()
        assert asked.view("agent_0") == game.view("agent_0")
        game.send({"agent_0": said})
        assert game.over and 0 <= game.ledger[0].value <= 1
        assert game.fork().ledger == game.ledger
    assert random.random() == expected
    assert repr(numpy.random.get_state(legacy=False)) == repr(kept)
    assert capfd.readouterr() == ("", "")
    WORKS.add(scenario.id)


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_rules_of_the_kit(name: str) -> None:
    keeps_the_rules(f"reasoning_gym:{name}", size=20)


@pytest.mark.parametrize("name", NINE.split())
def test_an_answer_that_writes_a_file_writes_none(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for said in (
        f"open({str(mark)!r}, 'w').write('x')",
        f"__import__('os').system('touch {mark}')",
    ):
        scenario = make(f"reasoning_gym:{name}", size=5)
        game = Game(scenario, "test:0", seed=0)
        game.send({"agent_0": f"\\boxed{{{said}}}"})
        assert game.over
    assert not mark.exists()
