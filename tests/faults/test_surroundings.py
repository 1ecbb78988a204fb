"""What surrounds a command may be missing or wrong: the working folder, its streams, a user's
module, the files beside the record."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_ma.cli import demo, main
from gem_ma.engines.base import open_engine
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.errors import DataError, StoreError
from gem_ma.runs.store import RunFolder
from tests.command_line import environment, gem_ma

GAMES = '''
from gem_ma import Ask, Reward, Scenario

class Coin(Scenario):
    """Guess the coin; in every third play it is lost."""
    agents = ("guesser",)
    def play(self, rng, task):
        if rng.random() < 1 / 3:
            raise ValueError("the coin is lost")
        said = yield Ask({"guesser": "Heads or tails?"}, legal=("heads", "tails"))
        yield Reward({"guesser": float(said["guesser"].parsed == "heads")}, why="guess")

class Fair(Coin):
    """Never lost."""
    def play(self, rng, task):
        said = yield Ask({"guesser": "Heads or tails?"}, legal=("heads", "tails"))
        yield Reward({"guesser": float(said["guesser"].parsed == "heads")}, why="guess")

def heads(messages, legal, rng):
    return "heads"
'''
TRAINED = """
scenario: {id: "games:Fair"}
agents: {guesser: {policy: main}}
policies: {main: {model: table/softmax}}
train: {policies: [main], steps: 2, episodes: 8, lr: 5.0, save_every: 1}
evaluate: {episodes: 8}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "games.py").write_text(GAMES)
    (tmp_path / "trained.yaml").write_text(TRAINED)
    return tmp_path


def shell(line: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `gem-ma` is the command."""
    script = f'gem-ma() {{ "{sys.executable}" -m gem_ma "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.longest
def test_a_working_folder_that_is_gone_costs_only_what_needs_it(tmp_path: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; gem-ma list engines --json", tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)
    done = shell("mkdir gone; cd gone; rmdir ../gone; gem-ma run dilemma -n 2", tmp_path)
    assert done.returncode == 1 and "runs" in done.stderr.splitlines()[-1]


@pytest.mark.longest
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("gem-ma run dilemma -n 2 >&-", 0),
        ("gem-ma run dilemma -n 2 2>&-", 0),
        ("gem-ma run nonesuch 2>&- >&-", 2),
    ],
)
def test_a_closed_stream_is_no_fault_and_no_file_takes_its_place(
    tmp_path: Path, line: str, code: int
) -> None:
    assert shell(line, tmp_path).returncode == code
    for lines in tmp_path.glob("runs/*/episodes.jsonl"):
        assert [json.loads(line)["schema"] for line in lines.read_text().splitlines()] == [2, 2]


@pytest.mark.long
@pytest.mark.parametrize("command", ["--help", "new"])
def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path, command: str) -> None:
    done = shell(
        f"(sleep 0.1; gem-ma {command}; echo $? >code) | true; sleep 0.1; while [ ! -s code ]; do"
        " sleep 0.1; done; cat code >&2",
        tmp_path,
    )
    assert done.stderr.strip().splitlines()[-1] == ("2" if command == "new" else "0")


@pytest.mark.longest
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["list engines", "run dilemma -n 2 --json"])
def test_a_result_that_cannot_be_printed_is_one_line(tmp_path: Path, command: str) -> None:
    done = shell(f"gem-ma {command} >/dev/full", tmp_path)
    assert (
        done.returncode == 1
        and len(done.stderr.splitlines()) == 1
        and "could not be printed" in done.stderr
    )


def test_a_module_that_exits_while_it_is_imported_is_a_fault_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    for command in ("run", "check"):
        done = gem_ma(command, "script:Game", cwd=tmp_path)
        assert (
            done.returncode == 2
            and "SystemExit" in done.stderr
            and len(done.stderr.splitlines()) == 1
        )
    assert gem_ma("show", "scenario", "script:Game", cwd=tmp_path).returncode == 2


def test_a_plain_function_of_the_working_folder_plays_an_agent(folder: Path) -> None:
    done = gem_ma(
        "run", "games:Fair", "agents.guesser.behaviour=games:heads", "-n", 3, "--json", cwd=folder
    )
    assert done.returncode == 0 and json.loads(done.stdout)["returns"]["guesser"]["mean"] == 1.0


def test_failures_of_one_cause_are_one_line_whatever_their_seed(folder: Path) -> None:
    done = gem_ma("run", "games:Coin", "-n", 20, "--json", cwd=folder)
    summary = json.loads(done.stdout)
    assert (
        done.returncode == 1
        and list(summary["errors"].values()) == [summary["failed"]]
        and "the coin is lost" in next(iter(summary["errors"]))
    )


@pytest.mark.parametrize("text", ["{}", '{"steps": 2'])
def test_a_damaged_summary_of_training_is_made_again_and_shown_as_damaged(
    folder: Path, text: str
) -> None:
    command = ("train", "trained.yaml", "--out", "t", "--quiet", "--json")
    first = gem_ma(*command, cwd=folder)
    before = (folder / "t/summary.json").read_bytes()
    (folder / "t/summary.json").write_text(text)
    shown = gem_ma("show", "t", cwd=folder)
    assert (
        shown.returncode == 1
        and "t/summary.json" in shown.stderr
        and len(shown.stderr.splitlines()) == 1
    )
    again = gem_ma(*command, cwd=folder)
    assert (
        again.returncode == 0
        and again.stdout == first.stdout
        and (folder / "t/summary.json").read_bytes() == before
    )


def test_a_damaged_checkpoint_is_passed_over_in_plain_sight(folder: Path) -> None:
    assert gem_ma("train", "trained.yaml", "--out", "t", "--quiet", cwd=folder).returncode == 0
    before = (folder / "t/episodes.jsonl").read_bytes()
    (folder / "t/checkpoints/step-000002/trainer.json").write_text("{")
    (folder / "t/summary.json").unlink()
    again = gem_ma("train", "trained.yaml", "--out", "t", cwd=folder)
    assert again.returncode == 0 and "step-000002 was passed over: trainer.json" in again.stderr
    assert (folder / "t/episodes.jsonl").read_bytes() == before


def test_a_run_is_shown_where_its_scenario_is_no_longer_there(folder: Path) -> None:
    assert gem_ma("run", "games:Fair", "-n", 3, "--out", "r", cwd=folder).returncode == 0
    (folder / "games.py").unlink()
    done = gem_ma("show", "r", cwd=folder)
    assert done.returncode == 0 and "3 ok / 0 failed" in done.stdout and "games" in done.stderr


def test_many_changed_settings_are_told_shortly(folder: Path) -> None:
    assert gem_ma("run", "games:Fair", "-n", 1, "--out", "r", cwd=folder).returncode == 0
    done = gem_ma("train", "referential_table", "--out", "r", cwd=folder)
    assert (
        done.returncode == 2
        and "scenario.id" in done.stderr
        and len(done.stderr) < 700
        and " more" in done.stderr
    )


def test_options_of_a_model_named_at_its_agent_stand_beside_it(folder: Path) -> None:
    done = gem_ma(
        "run",
        "games:Fair",
        "agents.guesser.model=scripted/lines",
        "policies.guesser.replies=[tails]",
        "-n",
        2,
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["returns"]["guesser"]["mean"] == 0.0


@pytest.mark.long
def test_every_setting_of_the_demo_has_folders_of_its_own(tmp_path: Path) -> None:
    rows = [
        demo._retail(tmp_path, tasks, seed, quiet=True)[0]["rows"][0]
        for tasks, seed in ((1, 0), (2, 0), (1, 0), (1, 1))
    ]
    assert [row[2] for row in rows] == ["1", "2", "1", "1"]
    assert len(list(tmp_path.glob("retail-careful-*"))) == 3


@pytest.mark.longest
def test_a_demo_that_is_stopped_takes_its_trainings_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gem_ma", "demo", "--tasks", "2", "--quiet"]
    started = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while (
            not (
                found := [
                    f for f in tmp_path.glob("runs/demo/referential-*/.lock") if f.read_text()
                ]
            )
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 143 and "stopped" in err
    child = json.loads(found[0].read_text())["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    # it did not wait for the last one
    assert not list(tmp_path.glob("runs/demo/referential-table-both-*/summary.json"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "said"), [("tokenizer.json", "two models"), ("model.safetensors", "another shape")]
)
def test_parts_of_two_models_are_refused_by_name(tmp_path: Path, file: str, said: str) -> None:
    pytest.importorskip("transformers")
    for name, size in (("word", "word"), ("bytes", "nano")):
        make_model(str(tmp_path / name), "referential", size=size)
    open_engine("speaker", f"transformers/{tmp_path / 'word'}")
    (tmp_path / "word" / file).write_bytes((tmp_path / "bytes" / file).read_bytes())
    with pytest.raises(DataError, match=f"policy 'speaker'.*{said}"):
        open_engine("speaker", f"transformers/{tmp_path / 'word'}")


def test_a_missing_extra_is_told_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    for command in (("demo", "--learn"), ("new", "model", "m")):
        done = gem_ma(*command, cwd=tmp_path)  # this folder is the first on its path
        assert (
            done.returncode == 2
            and len(done.stderr.splitlines()) == 1
            and '[train]"' in done.stderr
            and "pip install" in done.stderr
        )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "train.estimator.name=rebm",
            "train.estimator.name: no estimator is called 'rebm' (did you mean 'rebn'?)",
        ),
        ("train.estimator.key=[policy,nope]", "train.estimator.key: no column is called 'nope'"),
        ("run.seed=007", "run.seed: the number 007 has a leading zero"),
        ("run.seed=1e400", "run.seed: 1e400 is not a finite number"),
    ],
)
def test_what_cannot_be_learned_with_is_one_line_and_leaves_nothing(
    folder: Path, override: str, said: str
) -> None:
    done = gem_ma("train", "trained.yaml", override, cwd=folder)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, (
        done.stderr
    )
    assert not (folder / "runs").exists()


def test_a_dilemma_without_rounds_is_no_scenario(tmp_path: Path) -> None:
    done = gem_ma("run", "dilemma", "scenario.rounds=0", cwd=tmp_path)
    assert (
        done.returncode == 2
        and "scenario.rounds: a whole number from 1" in done.stderr
        and not (tmp_path / "runs").exists()
    )


def test_wherever_a_disk_is_full_the_line_says_what_to_do() -> None:
    error = StoreError("runs/x/checkpoints/step-000006: No space left on device")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert main._message(error) == f"{error}; free some space, then type the same command again"


def test_changed_data_is_named_by_its_digests(tmp_path: Path) -> None:
    facts = [
        {"data": {"name": "shop", "folder": "d" * 200, "digest": digest}}
        for digest in ("aaa", "bbb")
    ]
    RunFolder.open(
        tmp_path / "r", config_text="", resolved={"scenario": {"id": "x"}}, manifest=facts[0]
    ).close()
    with pytest.raises(DataError, match=r"was shop \(aaa\), now shop \(bbb\)"):
        RunFolder.open(
            tmp_path / "r", config_text="", resolved={"scenario": {"id": "x"}}, manifest=facts[1]
        )
