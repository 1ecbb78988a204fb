"""The adapter of reasoning_gym, on a small module of ours in its place."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_ma import Game, make
from gem_ma.config import load
from gem_ma.kernel.errors import ConfigError

FACTORY = """
import random
class Base:
    def __init__(self, size, seed, digits=1): self.size, self.seed, self.digits = size, seed, digits
    def __getitem__(self, index):
        print("noise"); random.random()
        number = random.Random(self.seed + index).randrange(10 ** self.digits)
        return {"question": f"say {number}", "answer": str(number), "metadata": {"n": {number}}}
    def score_answer(self, answer, item):
        return float(answer) / max(1, int(item["answer"]))
"""
TEXT = """
from reasoning_gym.factory import Base
class Text(Base):
    def score_answer(self, answer, item):
        value = eval(answer)
        return 1.0 if value == int(item["answer"]) else value
"""
INIT = """
from reasoning_gym import factory, text
factory.DATASETS = {"plain": (factory.Base, None), "text": (text.Text, None), "composite": ()}
def create_dataset(name, **options): return factory.DATASETS[name][0](**options)
"""


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "reasoning_gym"
    folder.mkdir()
    for name, text in (("__init__", INIT), ("factory", FACTORY), ("text", TEXT)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    yield
    from gem_ma.worlds import graders as adapter

    adapter.data_of.cache_clear()
    adapter.item_of.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        del sys.modules[name]


def paid(name: str, said: str, task: str = "train:0") -> float:
    game = Game(make(name), task, seed=0)
    game.send({"agent_0": said})
    again = game.fork()
    assert again.ledger == game.ledger
    return game.ledger[0].value


def gold(name: str, task: str = "train:0") -> str:
    return Game(make(name), task, seed=0).view("agent_0")[-1].text.split()[-1]


@pytest.mark.parametrize("name", ["reasoning_gym:plain", "reasoning_gym:text"])
def test_an_answer_is_read_in_its_box_or_whole_and_scored(name: str) -> None:
    right = gold(name)
    assert paid(name, f"I think \\boxed{{ {right} }}.") == paid(name, f" {right}\n") == 1
    assert paid(name, "\\boxed{-3}") == 0


@pytest.mark.parametrize("said", ["nan", "inf", "-1", "1e9", "", "x", "float('nan')", "[]", "\0"])
@pytest.mark.parametrize("name", ["reasoning_gym:plain", "reasoning_gym:text"])
def test_no_score_but_a_share_of_one(name: str, said: str) -> None:
    assert paid(name, f"\\boxed{{{said}}}") == 0


@pytest.mark.parametrize(
    "said",
    [
        "open({mark!r}, 'w').write('x')",
        "__import__('os')._exit(0)",
        "__import__('os').system('touch {mark}')",
        "[__import__('os').write(end, b'[1]') for end in range(3, 9)]",
        "exec('while True: pass')",
    ],
)
def test_an_answer_that_is_evaluated_reaches_nothing(said: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    said = said.replace("{mark!r}", repr(str(mark))).replace("{mark}", str(mark))
    assert paid("reasoning_gym:text", said) == 0
    assert not mark.exists()


def test_splits_share_no_seed_and_draws_of_others_stay_the_same() -> None:
    scenario = make("reasoning_gym:plain", size=40, digits=9)
    random.seed(5)
    expected = random.Random(5).random()
    shown = {
        split: [
            Game(scenario, task, seed=0).view("agent_0")[-1].text for task in scenario.tasks(split)
        ]
        for split in ("train", "dev", "test")
    }
    assert random.random() == expected
    assert len({text for texts in shown.values() for text in texts}) == 120


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    paid("reasoning_gym:plain", "3")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("plane", {}, r"no task is called 'plane' \(did you mean plain"),
        ("composite", {}, "no task is called 'composite'"),
        ("plain", {"digit": 2}, "digit"),
        ("text", {"sandbox": "docker"}, "bubblewrap or none"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(f"reasoning_gym:{name}", **options)


def test_without_the_library_a_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.delitem(sys.modules, "reasoning_gym.factory", raising=False)
    with pytest.raises(ConfigError, match=r"pip install .*\[reasoning-gym\]"):
        make("reasoning_gym:plain")


def test_a_config_takes_its_id_and_options(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    text = "scenario: {id: 'reasoning_gym:plain', digits: 3}\nagents: {agent_0: silent}\n"
    file.write_text(text)
    assert load(file).config.scenario.options == {"digits": 3}
    file.write_text(text.replace("digits", "digit"))
    with pytest.raises(ConfigError, match="digit"):
        load(file)
