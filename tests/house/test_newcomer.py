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
from gem_ma.training.schedule.checks import checked
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


@pytest.mark.longest
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


def test_who_learns_alone_begins_with_a_higher_rate(here: Path) -> None:
    for scenario, rate in (("hanoi", 0.5), ("kuhn_poker", 0.1)):
        typed(here, "new", "config", scenario, "--scenario", scenario, "--learns", "all")
        learning = load(here / f"{scenario}.yaml").config.train
        assert learning is not None and learning.lr == rate


@pytest.mark.long
def test_agents_of_any_name_learn_in_a_config_as_it_is_written(here: Path) -> None:
    # spaces, other alphabets, three that come to one name, and what YAML reads as something else
    names = ["a_b_2", "a b", "a_b", "élise", "3", "true", "null", 'x: "y"', "-x", ".x", "y" * 120]
    for agents in (names[:3], names):
        name = f"named{len(agents)}"
        source = f"""
from gem_ma import Ask, Scenario


class Named(Scenario):
    agents = {tuple(agents)}

    def play(self, rng, task):
        yield Ask(dict.fromkeys(self.agents, "Which?"), legal=("a", "b"))
"""
        (here / f"{name}.py").write_text(source, encoding="utf-8")
        typed(here, "new", "config", name, "--scenario", f"{name}.py", "--learns", "all")
        config = load(str(here / f"{name}.yaml")).config
        settings = checked(config, config.policies)
        assert list(config.agents) == agents and len(set(settings.policies)) == len(agents)
        assert [seat.policy for seat in config.agents.values()] == settings.policies
