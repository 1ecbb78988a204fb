"""The first two trainings of a newcomer: the README's YAML as it stands there, and a game of
their own with nothing but defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main

pytestmark = pytest.mark.learning
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
GAME = '''
from gem_ma import Ask, Reward, Scenario


class Arrow(Scenario):
    """Says back which way an arrow points."""

    agents = ("player",)
    ends_within = 1

    def play(self, rng, task):
        shown = rng.choice(("left", "right"))
        said = yield Ask({"player": f"The arrow points {shown}. Where?"}, legal=("left", "right"))
        yield Reward({"player": float(said["player"].parsed == shown)}, why="direction")

    def success(self, episode):
        return episode.returns()["player"] > 0
'''
CONFIG = """
scenario: {id: my_game.py}
agents: {player: {policy: player}}
policies: {player: {model: transformers/models/mine}}
train: {policies: [player], steps: 40, episodes: 64}
"""


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(folder: Path, *arguments: str) -> tuple[float, float]:
    """Sampled success before and after a training from the command line."""
    assert main(["train", *arguments, "--out", "run", "--quiet"]) == 0
    summary: dict[str, Any] = json.loads(
        (folder / "run" / "summary.json").read_text(encoding="utf-8")
    )
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    print(f"{' '.join(arguments)}: sampled {before:.3f} -> {after:.3f}")
    return before, after


@pytest.mark.parametrize("seed", range(2))
def test_the_yaml_of_the_readme_learns_as_it_stands(seed: int, empty_folder: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    Path("language.yaml").write_text(block, encoding="utf-8")
    (made,) = re.findall(r"^gem-ma (new model \S+ --scenario referential)", README, re.MULTILINE)
    assert main(made.split()) == 0
    before, after = trained(empty_folder, "language.yaml", f"run.seed={seed}")
    assert before <= 0.3 and after >= 0.9


def test_a_game_of_ones_own_learns_with_the_defaults(empty_folder: Path) -> None:
    Path("my_game.py").write_text(GAME, encoding="utf-8")
    Path("mine.yaml").write_text(CONFIG, encoding="utf-8")
    assert main(["new", "model", "models/mine", "--scenario", "my_game.py"]) == 0
    before, after = trained(empty_folder, "mine.yaml")
    assert before <= 0.7 and after >= 0.95
