"""The first minutes of somebody who has just installed the package: the demo, one line edited, run,
compared and looked at, in a folder with a blank and a letter beyond ASCII in its name."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gem_ma.config import load
from tests.command_line import environment, gem_ma


def typed(here: Path, *words: str) -> str:
    done = gem_ma(*words, cwd=here)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "first try, naïve"
    folder.mkdir()
    return folder


@pytest.mark.long
def test_from_the_demo_to_a_compared_run_in_a_browser(here: Path) -> None:
    shown = typed(here, "demo", "--tasks", "4", "--quiet")
    # both lessons of it: who does nothing is paid nothing, and who learns gets better
    assert "do-nothing  0.000" in shown and (here / "runs/demo/report.html").is_file()
    again = json.loads(typed(here, "demo", "--tasks", "4", "--json", "--quiet"))
    sampled = {row[0]: float(row[1].split()[0]) for row in again["referential_table"]["rows"]}
    assert sampled["both"] > 0.9 > 0.6 > sampled["speaker only"] > sampled["none"]

    typed(here, "new", "config", "mine", "--scenario", "dilemma")
    before = json.loads(typed(here, "run", "mine.yaml", "--json", "--quiet"))
    text = (here / "mine.yaml").read_text(encoding="utf-8")
    edited = text.replace("random_legal", "first_legal", 1)
    assert edited != text
    (here / "mine.yaml").write_text(edited, encoding="utf-8")
    # the same command: what was changed is another run, and what was not is taken up
    runs = [json.loads(typed(here, "run", "mine.yaml", "--json", "--quiet")) for _ in range(2)]
    assert runs[0] == runs[1] and runs[0]["run"] != before["run"]
    compared = json.loads(typed(here, "compare", before["run"], runs[0]["run"], "--json"))
    assert compared["pairs"] == 50 and compared["differs"]
    names = [Path(run["run"]).name for run in (before, runs[0])]
    assert all(name in typed(here, "list", "runs") for name in names)

    command = [sys.executable, "-m", "gem_ma", "view"]
    viewer = subprocess.Popen(
        command, cwd=here, env=environment(), stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert viewer.stdout is not None
        address = viewer.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=30) as answer:
            page = answer.read().decode()
        assert all(name in page for name in names)
    finally:
        viewer.send_signal(signal.SIGINT)
    assert viewer.wait(timeout=30) in (0, 130)


POTLUCK = '''
from gem_ma import Ask, Reward, Scenario, Tell

DISHES = ("bread", "soup", "cake")


class Potluck(Scenario):
    """Five friends bring a dish each, one after the other; all eat well where the dishes differ."""

    agents = ("ann", "bob", "cat", "dan", "eve")
    ends_within = 5

    def deal(self, rng, task):
        return {agent: rng.choice(DISHES) for agent in self.agents}

    def play(self, rng, task):
        likes = self.deal(rng, task)
        yield Tell({agent: f"You like {likes[agent]} best." for agent in self.agents})
        brought = []
        for agent in self.agents:
            table = ", ".join(brought) or "nothing"
            ask = {agent: f"On the table: {table}. What do you bring?"}
            said = yield Ask(ask, legal=DISHES)
            brought.append(said[agent].parsed or "nothing")
        for agent in self.agents:
            paid = len(set(brought)) / 3 + float(likes[agent] in brought)
            yield Reward({agent: paid}, why="dinner")
'''


def test_who_learns_alone_begins_with_a_higher_rate(here: Path) -> None:
    for scenario, rate in (("hanoi", 0.5), ("kuhn_poker", 0.1)):
        typed(here, "new", "config", scenario, "--scenario", scenario, "--learns", "all")
        learning = load(here / f"{scenario}.yaml").config.train
        assert learning is not None and learning.lr == rate


@pytest.mark.long
def test_a_world_of_five_agents_is_checked_and_learned_in_three_commands(here: Path) -> None:
    (here / "potluck.py").write_text(POTLUCK, encoding="utf-8")
    assert "13 of 13 rules kept" in typed(here, "check", "potluck.py")
    typed(here, "new", "config", "potluck", "--scenario", "potluck.py", "--learns", "all")
    text = (here / "potluck.yaml").read_text(encoding="utf-8")
    # one line for all five, as for 64
    assert "all 5 agents of potluck.py learn" in text and "ann" not in text
    ends = ("train.steps=20", "run.baselines=false", "--json", "--quiet")
    learned = json.loads(typed(here, "train", "potluck.yaml", *ends))
    assert learned["changed"] == ["ann", "bob", "cat", "dan", "eve"]
    paid = [learned[when]["sampled"]["return"] for when in ("before", "after")]
    assert all(paid[1][agent] > paid[0][agent] + 0.1 for agent in paid[0])
