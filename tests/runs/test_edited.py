"""What a run began with is what it goes on with: code and data of the user's own, edited since,
under every command that plays, judges or shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command_line import gem_ma

GAME = """
import json
from pathlib import Path
from gem_ma import Ask, Reward, Scenario
from scores import worth

class Game(Scenario):
    agents = ("a", "b")
    def __init__(self, data="prices.json", bonus=0):
        self.prices = json.loads(Path(data).read_text())
    def tasks(self, split):
        return tuple(range(20))
    def play(self, rng, task):
        said = yield Ask({x: f"task {task}" for x in self.agents}, legal=("x", "y"))
        yield Reward({x: float(self.prices[said[x].text]) for x in self.agents})
    def success(self, episode):
        return episode.returns()["a"] > 0
    def measures(self, episode):
        return {"worth": worth(episode)}
"""
FILES = {
    "game.py": GAME,
    "scores.py": "def worth(episode): return 1.0\n",
    "prices.json": '{"x": 1, "y": 0}',
    "seat.py": """
from tactics import hints
from tactics.first import move
def play(messages, legal, rng):
    open("prompt.txt").read()
    import lazily
    return lazily.same(move(legal))
def other(messages, legal, rng):
    return legal[-1]
def summary(messages):
    return f"{len(messages)} messages"
""",
    "tactics/__init__.py": "",
    "tactics/hints.py": "",
    "tactics/first.py": "from .deeper import move\n",
    "tactics/deeper.py": "def move(legal): return legal[0]\n",
    "lazily.py": "def same(text): return text\n",
    "prompt.txt": "play well\n",
    "around.py": """
from gem_ma.wrappers.around import Around
class Same(Around):
    pass
""",
    "memo.py": "def summary(messages):\n    return f'{len(messages)} messages'\n",
    "rival.py": "def play(messages, legal, rng):\n    return legal[0]\n",
    "engine.py": """
from gem_ma.engines.small.scripted import Scripted
class Mine(Scripted):
    def __init__(self, name, *, policy="mine"):
        super().__init__("first_legal", policy=policy)
""",
    "server.py": "import tools_inside\n",
    "tools_inside.py": "",
    "corpus/one.txt": "a line of text\n",
}
PLAYED = """
scenario: {id: game.py, wrappers: ["around.py:Same"]}
agents:
  a: {behaviour: "seat.py:play"}
  b: {behaviour: direct, policy: mine, memory: {window: 2, summary: "memo.py:summary"},
      tools: [{search: {folder: corpus}}]}
policies: {mine: {model: "engine:Mine/x"}}
"""
TRAINED = """
scenario: {id: game.py}
agents: {a: {policy: learner}, b: {behaviour: "seat.py:play"}}
policies: {learner: {model: table/softmax}}
train:
  policies: [learner]
  steps: 1
  episodes: 4
  opponents: {latest: 0.5, anchors: {"rival.py:play": 0.5}}
  warm_start: {learner: {cast: {b: {behaviour: "warm.py:play"}, a: {behaviour: first_legal}},
    episodes: 2, steps: 1}}
evaluate: {episodes: 2}
"""
STUDY = """
scenario: {id: game.py, tasks: 2}
agents: {a: {behaviour: first_legal}, b: {behaviour: "rival.py:play"}}
grid: {agents.a: {one: {behaviour: "seat.py:play"}, two: {behaviour: first_legal}}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    for name, text in {**FILES, "warm.py": FILES["rival.py"]}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name, text in {"played": PLAYED, "trained": TRAINED, "study": STUDY}.items():
        (folder / f"{name}.yaml").write_text(text)
    for words in (RUN, TRAIN, STUDIED):
        done = gem_ma(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


RUN = ("run", "played.yaml", "-n", "3", "--out", "runs/run", "--quiet")
TRAIN = ("train", "trained.yaml", "--out", "runs/training", "--quiet")
STUDIED = ("study", "study.yaml", "--out", "runs/study", "--quiet")
PLAYED_FILES = (
    *("game.py", "scores.py", "prices.json", "seat.py", "tactics/hints.py", "tactics/deeper.py"),
    *("lazily.py", "prompt.txt", "around.py", "memo.py", "engine.py", "corpus/one.txt"),
)
GOING_ON = {
    "the same command": (RUN, PLAYED_FILES),
    "more tasks": ((*RUN, "-n", "6"), ("game.py",)),
    "resume": (("resume", "runs/run", "--quiet"), ("game.py", "prompt.txt")),
    "train": (TRAIN, ("scores.py", "tactics/deeper.py", "rival.py", "warm.py")),
    "more steps": (("resume", "runs/training", "train.steps=2", "--quiet"), ("rival.py",)),
    "study": (STUDIED, ("prices.json", "rival.py")),
}


def edited(made: Path, tmp_path: Path, file: str, change: str = "edited") -> Path:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    path = folder / file
    if change == "gone":
        path.unlink()
    elif path.suffix == ".json":
        path.write_text('{"x": 2, "y": 0}')
    else:
        path.write_text(path.read_text() + "# edited\n")
    return folder


def record(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (folder / "runs").rglob("*.jsonl")}


@pytest.mark.parametrize(
    ("how", "file"), [(how, file) for how, (_, files) in GOING_ON.items() for file in files]
)
def test_what_was_edited_is_refused_by_whatever_goes_on(
    how: str, file: str, made: Path, tmp_path: Path
) -> None:
    folder = edited(made, tmp_path, file)
    before = record(folder)
    done = gem_ma(*GOING_ON[how][0], cwd=folder)
    named = "corpus" if file.startswith("corpus") else file
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{named} changed since the run began" in done.stderr and "--fresh" in done.stderr
    assert not done.stdout and record(folder) == before


@pytest.mark.parametrize("how", GOING_ON)
def test_what_was_not_edited_goes_on_also_in_another_folder(
    how: str, made: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(made, folder)
    done = gem_ma(*GOING_ON[how][0], cwd=folder)
    assert done.returncode == 0, done.stderr


READING = {
    "show": ("show", "runs/run"),
    "an episode": ("show", "runs/run", "--episode", "test/1"),
    "score": ("score", "runs/run"),
    "report": ("report", "runs/run"),
    "export": ("export", "runs/run", "--to", "jsonl", "-o", "out.jsonl"),
    "compare": ("compare", "runs/run", "runs/run"),
    "list": ("list", "runs"),
    "a training": ("show", "runs/training"),
    "a trained episode": ("show", "runs/training", "--episode", "lost"),
}


@pytest.mark.parametrize(
    ("how", "change"),
    [*((how, "edited") for how in READING), ("show", "gone"), ("score", "gone")],
)
def test_what_was_edited_is_told_in_one_line_by_whatever_reads(
    how: str, change: str, made: Path, tmp_path: Path
) -> None:
    plain = gem_ma(*READING[how], cwd=made)
    (made / "out.jsonl").unlink(missing_ok=True)
    folder = edited(made, tmp_path, "scores.py", change)
    done = gem_ma(*READING[how], cwd=folder)
    words = {"edited": "changed since", "gone": "is gone"}[change]
    assert done.returncode == plain.returncode == 0, done.stderr
    assert f"scores.py {words}" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not plain.stderr and done.stdout == plain.stdout
