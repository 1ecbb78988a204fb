"""Every command: help with an example, JSON, exit codes, speed of the start. `run` has a file of
its own."""

import json
import signal
from pathlib import Path

import pytest

from gem_ma.cli.main import main
from gem_ma.cli.stopping import exit_code
from gem_ma.kernel.errors import (
    ConfigError,
    ConformanceError,
    DataError,
    EngineError,
    ScenarioError,
    SchemaError,
    StoreError,
)
from tests.command_line import ROOT, SLOWLY, gem_ma, signalled

LEARN = (
    "train",
    ROOT / "configs" / "kuhn_table.yaml",
    "train.episodes=16",
    "evaluate.episodes=8",
    "evaluate.every=~",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slowly.py").write_text(SLOWLY)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "no command is called 'rnu' (did you mean 'run'?)"),
        (["run", "dilemma", "--fresch"], "No such option"),
        (["run", "dilemma", "-n", "0"], "0 is not in the range x>=1"),
        (
            ["show", "scenario", "dilema"],
            "no scenario is called 'dilema' (did you mean 'dilemma'",
        ),
        (["resume", "runs/none"], "runs/none: no such run folder"),
        (["show", "dilemma"], "; to see the scenario: gem-ma show scenario dilemma"),
        (["train", "dilemma"], "dilemma: no section `train:`"),
        (
            ["train", "kuhn_table", "train.policies=[mian]"],
            "command line: train.policies[0]: no policy is called 'mian' (did you mean 'main'?)",
        ),
        (
            ["check", "dilema"],
            "no scenario and no config file has this name (did you mean 'dilemma'",
        ),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_near(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.out == "" and not list(tmp_path.iterdir())


def test_a_scenario_that_has_runs_may_mean_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "dilemma-0123abcd").mkdir(parents=True)
    (tmp_path / "runs" / "dilemma-0123abcd" / "manifest.json").write_text("{}")
    assert main(["show", "dilemma"]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'runs/dilemma-0123abcd'?" in said and "show scenario dilemma" in said


def test_list_scenarios_is_a_list_of_objects(tmp_path: Path) -> None:
    done = gem_ma("list", "scenarios", "--json", cwd=tmp_path)
    found = {one["id"]: one for one in json.loads(done.stdout)}
    assert found["kuhn_poker"]["agents"] == ["player_0", "player_1"] and found["kuhn_poker"][
        "summary"
    ].startswith("Kuhn poker for two agents")
    assert (
        found["dilemma"]["options"] == ["rounds", "briefing"]
        and found["kuhn_poker"]["zero_sum"] is True
    )
    assert all({"id", "agents", "summary"} <= one.keys() for one in found.values())


@pytest.mark.long
def test_agents_engines_and_runs_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def listed(kind: str) -> dict[str, dict[str, object]]:
        assert main(["list", kind, "--json"]) == 0
        return {
            str(one.get("id") or one["run"]): one for one in json.loads(capsys.readouterr().out)
        }

    assert (
        listed("agents")["random_legal"]["privileged"] is False
        and listed("agents")["direct"]["needs_policy"] is True
    )
    assert listed("engines")["table"]["trainable"] is True
    assert listed("wrappers")["retry"]["options"] == ["times", "penalty"]
    assert listed("runs") == {}
    assert main(["run", "dilemma", "-n", "2", "--quiet", "--out", "runs/mine"]) == 0
    capsys.readouterr()
    assert listed("runs")["runs/mine"]["scenario"] == "dilemma"
    for kind in ("scenarios", "agents", "engines", "wrappers", "runs"):
        assert main(["list", kind]) == 0
    assert "runs/mine" in capsys.readouterr().out


def test_show_tells_what_a_scenario_declares_and_asks_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "scenario", "dilemma", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["options"] == {"rounds": "int = 5", "briefing": "bool = True"}
    assert shown["tasks"]["test"] == 1
    example = shown["example"]["player_0"]
    briefing, question = example.pop("shown")
    assert "cooperate, defect: 0, 5" in briefing and "Your aim is" in briefing
    assert question == "Round 1 of 5: cooperate or defect?"
    assert example == {"legal": ["cooperate", "defect"], "tools": []}
    assert main(["show", "scenario", "kuhn_poker"]) == 0
    assert "zero_sum, chance, ends within 3 decision points" in capsys.readouterr().out


@pytest.mark.longest
def test_check_takes_a_scenario_or_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads(
        gem_ma("check", ROOT / "configs" / "dilemma.yaml", "--json", cwd=tmp_path).stdout
    )
    assert (
        result["ok"] is True
        and result["episodes"] == 50
        and result["agents"] == {"player_0": "first_legal", "player_1": "random_legal"}
    )
    assert 6 in result["rules"]["passed"]
    monkeypatch.chdir(tmp_path)
    assert main(["check", "kuhn_poker"]) == 0
    assert "kuhn_poker: no rule is broken" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_scenario_that_breaks_its_word_is_1_with_every_finding(tmp_path: Path) -> None:
    (tmp_path / "cheat.py").write_text(
        "from gem_ma import Ask, Reward, Scenario\n\n"
        "class Cheat(Scenario):\n"
        '    """Pays one and calls it zero-sum."""\n'
        '    agents = ("a", "b")\n'
        "    zero_sum = True\n"
        "    chance = False\n"
        "    def play(self, rng, task):\n"
        '        yield Ask({"a": "?"}, legal=("x", "y"))\n'
        '        yield Reward({"a": 1.0})\n'
    )
    done = gem_ma("check", "cheat:Cheat", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (
        done.returncode == 1
        and result["ok"] is False
        and any("zero" in finding for finding in result["findings"])
    )


@pytest.mark.long
def test_training_prints_before_and_after_and_is_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*arguments: object, code: int = 0) -> str:
        assert main([*map(str, arguments)]) == code
        return capsys.readouterr().out

    done = said(*LEARN, "train.steps=3")
    assert "48 ok / 0 failed / 0 excluded" in done and "nash_conv" in done and "learned" in done
    (run,) = (tmp_path / "runs").iterdir()
    before = (run / "episodes.jsonl").read_bytes()
    assert (
        json.loads(said(*LEARN, "train.steps=3", "--json"))["ok"] == 48
        and (run / "episodes.jsonl").read_bytes() == before
    )
    assert said("resume", run.name) == done
    assert "48 ok / 0 failed / 0 excluded" in said("show", run)
    said("resume", run, "--retry-failed", code=2)
    said("run", ROOT / "configs" / "kuhn_table.yaml", "-n", "5")
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.long
def test_interrupted_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    arguments = (*LEARN, "train.steps=60", "train.save_every=20", "--quiet")
    got, _, _, err = signalled(
        *arguments,
        "--out",
        "cut",
        cwd=tmp_path,
        ready=tmp_path / "cut" / "episodes.jsonl",
        number=signal.SIGINT,
    )
    assert got == 130 and err.endswith("resume with: gem-ma resume cut\n")
    assert gem_ma("resume", "cut", cwd=tmp_path).returncode == 0
    assert gem_ma(*arguments, "--out", "whole", cwd=tmp_path).returncode == 0
    cut, whole = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("cut", "whole")
    )
    assert cut["weights"] == whole["weights"]
    assert (tmp_path / "cut" / "episodes.jsonl").read_bytes() == (
        tmp_path / "whole" / "episodes.jsonl"
    ).read_bytes()


def test_training_in_which_every_episode_fails_stops_with_the_cause(folder: Path) -> None:
    (folder / "slowly.py").write_text(SLOWLY.replace("rng.random() < 1 / 3", "True"))
    done = gem_ma(*LEARN, "agents.player_1={behaviour: slowly:Raising}", "--quiet", cwd=folder)
    assert (
        done.returncode == 1
        and "episodes failed" in done.stderr
        and "RuntimeError" in done.stderr
        and "\x1b" not in done.stderr
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (DataError("x"), 2),
        (SchemaError("x"), 2),
        (StoreError("x"), 1),
        (ConformanceError(("x",)), 1),
        (OSError(28, "No space left on device"), 1),
        (EngineError("no connection", retryable=True), 3),
        (EngineError("refused"), 1),
        (ScenarioError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_a_bug_is_70_with_the_traceback_in_a_file(folder: Path) -> None:
    (folder / "broken.py").write_text(
        SLOWLY + "\nclass Broken(Quiz):\n    def provenance(self):\n        raise KeyError('made"
        " \\x1b[31mbadly')\n"
    )
    done = gem_ma("run", "broken:Broken", cwd=folder, TMPDIR=str(folder))
    (file,) = folder.glob("gem-ma-*.traceback.txt")
    assert (
        done.returncode == 70
        and done.stderr.startswith("a bug of gem-ma: KeyError: ")
        and str(file) in done.stderr
    )
    assert (
        done.stderr.count("\n") == 1
        and "\x1b" not in done.stderr
        and "in provenance" in file.read_text()
    )


def test_options_can_be_environment_variables(tmp_path: Path) -> None:
    result = json.loads(
        gem_ma(
            "run",
            "dilemma",
            cwd=tmp_path,
            GEM_MA_RUN_TASKS="3",
            GEM_MA_JSON="1",
            GEM_MA_RUN_OUT="out",
        ).stdout
    )
    assert result["ok"] == 3 and result["run"] == "out"


def test_the_module_is_the_command(tmp_path: Path) -> None:
    assert gem_ma("--version", cwd=tmp_path).stdout.startswith("gem-ma, version ")
