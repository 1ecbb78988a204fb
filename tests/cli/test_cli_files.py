"""A scenario or a behaviour in a file of one's own, named on the command line or in a config."""

import json
import os
import sys
from pathlib import Path

import pytest

from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import file_of, load, make, names_code
from gem_ma.system.import_folders import search_folder
from tests.command_line import gem_ma

GAME = """
from gem_ma import Ask, Reward, Scenario
from helper import PRIZE

class Base(Scenario):
    agents = ("ann", "bob")

class Guess(Base):
    \"\"\"Two guess at once.\"\"\"
    ends_within = 1
    def __init__(self, prize: float = PRIZE):
        self.prize = prize
    def play(self, rng, task):
        said = yield Ask(dict.fromkeys(self.agents, "0 or 1?"), legal=("0", "1"))
        yield Reward({agent: self.prize for agent in self.agents if said[agent].parsed == "1"}, why="right")

def always(messages, legal, rng):
    return "1"

if __name__ == "__main__":
    raise SystemExit("this is no script")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "my games"
    home.mkdir()
    (home / "game.py").write_text(GAME)
    (home / "helper.py").write_text("PRIZE = 2.0\n")
    (home / "one.py").write_text(
        "from gem_ma import Scenario\nfrom game import Base\nclass Only(Base):\n    def play(self,"
        " rng, task):\n        yield\n"
    )
    (home / "none.py").write_text("from gem_ma import Scenario\n")
    (home / "broken.py").write_text("def (:\n")
    (home / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (home / "raising.py").write_text("1 / 0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.py", "a.py"),
        ("b/a.py:X", "b/a.py"),
        ("a.py:", "a.py"),
        ("a:X", None),
        ("a.pyc", None),
        ("a.py:b/c", None),
        ("retail", None),
    ],
)
def test_which_names_are_files(name: str, file: str | None) -> None:
    assert file_of(name) == (None if file is None else Path(file))
    assert names_code(name) == (":" in name or file is not None)


def test_a_file_is_imported_once_with_what_lies_beside_it(folder: Path) -> None:
    path = f"{folder}/my games/game.py:Guess"
    assert load("scenarios", path) is load("scenarios", path)
    scenario = make(path, prize=3)
    assert scenario.id == path and scenario.agents == ("ann", "bob")
    # a class that is imported is not one that the file defines
    assert make(f"{folder}/my games/one.py").agents == ("ann", "bob")


@pytest.mark.long
def test_each_file_imports_what_lies_in_its_own_folder(folder: Path, tmp_path: Path) -> None:
    prizes = {"first": 1.0, "second": 3.0, "third": 5.0}
    for name, prize in prizes.items():
        home = tmp_path / name
        home.mkdir()
        (home / "game.py").write_text(GAME)
        (home / "helper.py").write_text(f"PRIZE = {prize}\n")
        (home / "json.py").write_text("1 / 0  # hides nothing of Python's\n")
        (home / "late.py").write_text("from gem_ma import Scenario\nfrom game import Guess\n"
                                      "class Late(Guess):\n    pass\n")  # fmt: skip
    search_folder(tmp_path / "first")  # as the command line does with the working folder
    paths = {name: make(f"{tmp_path}/{name}/game.py:Guess").prize for name in reversed(prizes)}
    assert paths == prizes
    assert {name: make(f"{tmp_path}/{name}/late.py").prize for name in prizes} == prizes
    assert sys.path.index(str(tmp_path / "third")) > sys.path.index(
        json.__path__[0][: -len("/json")]
    )


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("scenarios", "game.py", "defines several scenarios, type one: "),
        ("scenarios", "none.py", "defines no Scenario"),
        ("scenarios", "game.py:Gues", "has no 'Gues'"),
        ("scenarios", "nowhere.py", "no such file"),
        ("scenarios", "leaving.py", "ends the process while it is imported (SystemExit: 3)"),
        ("agents", "game.py", "say which one of the file"),
    ],
)
def test_what_cannot_be_meant_is_told(kind: str, name: str, said: str, folder: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(kind, f"{folder}/my games/{name}")
    assert said in str(error.value)


def test_a_folder_may_have_a_name_that_is_no_text(folder: Path) -> None:
    odd = Path(os.fsdecode(bytes(folder) + b"/\xff\xfe"))
    (folder / "my games").rename(odd)
    assert load("scenarios", f"{odd}/game.py:Guess").__name__ == "Guess"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.py").mkdir()
    with pytest.raises(ConfigError, match="a folder, not a file"):
        load("scenarios", str(tmp_path / "x.py"))


@pytest.mark.parametrize("name", ["broken.py", "leaving.py", "game.py"])
def test_the_command_line_says_it_in_one_line(name: str, folder: Path) -> None:
    done = gem_ma("run", f"my games/{name}", cwd=folder)
    assert (
        done.returncode == 2
        and len(done.stderr.splitlines()) == 1
        and not (folder / "runs").exists()
    )


def test_a_file_runs_from_the_command_line_and_from_a_config(folder: Path) -> None:
    done = gem_ma(
        "run",
        "my games/game.py:Guess",
        "agents.ann.behaviour=my games/game.py:always",
        "-n",
        3,
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["returns"]["ann"]["mean"] == 2.0 and Path(summary["run"]).name.startswith(
        "game-Guess-"
    )
    config = (
        "scenario: {id: 'game.py:Guess', prize: 5, tasks: 3}\nagents: {ann: {behaviour:"
        " 'game.py:always'}, bob: {behaviour: 'game.py:always'}}\n"
    )
    (folder / "my games" / "c.yaml").write_text(config)
    done = gem_ma("run", "my games/c.yaml", "--json", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["returns"]["bob"]["mean"] == 5.0
    assert gem_ma("resume", "run", cwd=folder).returncode == 0


def test_rules_that_were_edited_are_not_mixed_with_the_old_ones(folder: Path) -> None:
    command = ("run", "my games/game.py:Guess", "-n", 2, "--out", "run")
    assert gem_ma(*command, cwd=folder).returncode == 0
    with (folder / "my games" / "game.py").open("a") as file:
        file.write("# another rule\n")
    done = gem_ma(*command, cwd=folder)
    assert (
        done.returncode == 2
        and "my games/game.py changed" in done.stderr
        and "--fresh" in done.stderr
    )
    assert gem_ma(*command, "--fresh", cwd=folder).returncode == 0


def test_train_prefers_the_config_and_run_the_scenario(tmp_path: Path) -> None:
    trained = gem_ma("train", "stop_or_go", "train.steps=1", "--json", cwd=tmp_path)
    assert trained.returncode == 0 and "learned" in json.loads(trained.stdout), trained.stderr
    played = gem_ma("run", "dilemma", "-n", 1, "--json", cwd=tmp_path)
    assert played.returncode == 0 and json.loads(played.stdout)["planned"] == 1


def test_every_shipped_config_is_listed_with_the_command_that_it_is_for(tmp_path: Path) -> None:
    listed = {
        config["id"]: config
        for config in json.loads(gem_ma("list", "configs", "--json", cwd=tmp_path).stdout)
    }
    assert {"retail_scripted", "kuhn_table", "retail_matrix"} <= listed.keys()
    assert (
        listed["kuhn_table"]["command"] == "gem-ma train kuhn_table"
        and listed["retail_matrix"]["command"] == "gem-ma study retail_matrix"
    )
    assert all(len(config["summary"]) > 10 for config in listed.values())
