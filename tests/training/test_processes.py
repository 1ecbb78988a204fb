"""Several processes train as one: the same episodes, the same update to 1e-5, one folder; what
fails in one ends all with one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.store import read_episodes, read_metrics
from gem_ma.training.learner.packing import packs
from gem_ma.training.learner.rows import Row
from gem_ma.training.processes import teams
from gem_ma.training.processes.teams import SOLO, Team, launched
from tests.broken_runs import for_both
from tests.training_process import LOOPBACK, heard, work

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
REFERENTIAL = str(ROOT / "configs" / "referential.yaml")
SMALL = (
    "train.steps=2",
    "train.episodes=16",
    "train.save_every=2",
    "evaluate.episodes=4",
    "train.loss.minibatches=2",
    "train.lr=0.001",
)
WARM = for_both(
    "train.warm_start.AGENT.episodes=128",
    "train.warm_start.AGENT.steps=40",
    "train.warm_start.AGENT.batch=16",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_processes(jobs: list[Any], size: int = 2) -> None:
    script = str(ROOT / "tests" / "training_process.py")
    done = subprocess.run(
        [sys.executable, script, str(size), str(free_port()), json.dumps(jobs)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def models(tmp: Path) -> tuple[str, ...]:
    """Two models that have been shown how to play: where nothing is ever paid, an optimiser
    makes much of the last bits."""
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp / "new"), "referential")
    new = for_both(f"policies.AGENT.model=transformers/{tmp / 'new'}")
    work(
        [
            [
                REFERENTIAL,
                [*new, *WARM, "train.policies=[]", "evaluate.episodes=8"],
                str(tmp / "cloned"),
            ]
        ]
    )
    return tuple(for_both(f"policies.AGENT.model=transformers/{tmp / 'cloned'}/models/AGENT"))


LANGUAGE = {
    "a critic": ("train.estimator.name=gae", "train.loss.entropy=0.01"),
    "adapters of whole turns, stopped": (
        "policies.speaker.lora={rank: 4}",
        "train.loss={ratio: turn_sum, kl: 0.1, target_kl: 1e-6, epochs: 3}",
    ),
    "groups, forks, overlap": (
        "train.estimator.name=grpo",
        "train.group_size=4",
        "train.fork={width: 2}",
        "train.overlap=true",
    ),
}
TABLES = {
    "a league": (
        "kuhn_table",
        ("train.opponents={latest: 0.5, uniform: 0.5}", "train.pool={every: 1, loaded: 2}"),
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Every shape trained by one process (here) and by two, in `<shape>/1` and `<shape>/2`."""
    tmp = tmp_path_factory.mktemp("runs")
    own = models(tmp)
    shapes = {
        name: (REFERENTIAL, [*own, "train.warm_start={}", *SMALL, *extra])
        for name, extra in LANGUAGE.items()
    }
    shapes |= {name: (source, [*SMALL, *extra]) for name, (source, extra) in TABLES.items()}
    for name in shapes:
        (tmp / name).mkdir()
    in_processes(
        [[source, overrides, str(tmp / name / "2")] for name, (source, overrides) in shapes.items()]
    )
    work(
        [[source, overrides, str(tmp / name / "1")] for name, (source, overrides) in shapes.items()]
    )
    return tmp


def said(episode: Episode) -> list[Any]:
    """What was played, without the last bits of log-probabilities."""
    return [
        episode.id,
        episode.cast,
        episode.returns(),
        [[reply.token_ids for reply in turn.replies] for turn in episode.turns],
    ]


@pytest.mark.sharded
@pytest.mark.parametrize("shape", [*LANGUAGE, *TABLES])
def test_two_processes_play_the_same_episodes_and_make_the_same_update(runs, shape):
    one, two = (runs / shape / number for number in "12")
    assert list(map(said, read_episodes(one))) == list(map(said, read_episodes(two)))
    steps = [
        [line for line in read_metrics(path) if line["kind"] == "train"] for path in (one, two)
    ]
    for a, b in zip(*steps, strict=True):
        for name in a["policies"]:
            mine, theirs = a["policies"][name], b["policies"][name]
            assert mine.keys() == theirs.keys()
            for key in (
                "loss",
                "entropy",
                "kl",
                "grad_norm",
                "clip_fraction",
                "optimizer_steps",
                "stopped",
                "tokens",
                "version",
                "value_loss",
            ):
                if key in mine:
                    assert mine[key] == pytest.approx(theirs[key], rel=1e-4, abs=1e-5), (key, name)
    from safetensors.numpy import load_file

    for file in sorted((one / "checkpoints" / "step-000002").glob("*.safetensors")):
        if "optimizer" in file.name:  # moments follow from the gradients
            continue
        ours, others = load_file(file), load_file(two / "checkpoints" / "step-000002" / file.name)
        assert ours.keys() == others.keys()
        for key, weight in ours.items():
            assert np.abs(np.asarray(weight) - np.asarray(others[key])).max() < 1e-5, (
                file.name,
                key,
            )
    for file in (one / "checkpoints" / "step-000002").glob("*table.json"):
        assert file.read_bytes() == (two / "checkpoints" / "step-000002" / file.name).read_bytes()


@pytest.mark.sharded
def test_the_stop_by_divergence_and_the_league_were_really_there(runs):
    stopped = [
        line["policies"]["speaker"]["stopped"]
        for line in read_metrics(runs / "adapters of whole turns, stopped" / "2")
        if "policies" in line
    ]
    assert max(stopped) == 1
    assert any(
        "@" in (seat.policy or "")
        for e in read_episodes(runs / "a league" / "2")
        for seat in e.cast.values()
    )


# -- shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_the_parts_of_all_are_all_in_their_order(size, count):
    parts = [Team(rank, size).share(range(count)) for rank in range(size)]
    assert Team(0, size).merge(parts) == list(range(count))


def test_alone_every_share_is_the_whole():
    values = np.array([1.0, 2.0])
    assert SOLO.first and SOLO.gather(b"x") == [b"x"] and SOLO.agree({"a": 1}) == {"a": 1}
    assert SOLO.sum(values) is values
    led = [Team(rank, 3, led=True).share(range(4)) for rank in range(3)]
    assert Team(0, 3, led=True).merge(led) == [0, 1, 2, 3]
    SOLO.same(lambda: pytest.fail("nobody to compare with"), "weights")


@pytest.mark.parametrize("share", [True, False])
def test_the_passes_of_all_parts_hold_every_trained_token_once(share):
    rows = []
    for number in range(9):
        ids = np.array([1, 2, 3 + number // 3, *range(5, 6 + number)], np.int64)
        zeros, mask = np.zeros(len(ids)), np.arange(len(ids)) >= 3
        rows.append(
            Row(
                ("e", number, 0),
                ids,
                mask,
                zeros,
                zeros,
                np.where(mask, number, -1),
                np.zeros(len(ids), np.int64),
            )
        )
    total = sum(int(row.mask.sum()) for row in rows)
    for size in (1, 2, 3, 40):
        held = np.concatenate(
            [
                pack.order
                for rank in range(size)
                for pack in packs(rows, tokens=32, share=share, part=(rank, size))
            ]
        )
        assert sorted(held.tolist()) == list(range(total))


def test_who_was_launched_knows_it(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched() == 1  # half of a launcher is none
    monkeypatch.setenv("RANK", "0")
    assert launched() == 2


# -- the command ---------------------------------------------------------------------------------

TABLE = (
    "referential_table",
    "train.steps=400",
    "train.episodes=8",
    "train.save_every=1",
    "evaluate.episodes=8",
    "run.baselines=false",
)


def command(path: Path, *words: str, resume: bool = False) -> subprocess.Popen[str]:
    line = [
        sys.executable,
        "-m",
        "gem_ma",
        *(["resume", str(path)] if resume else ["train", *TABLE, "--out", str(path)]),
        "--quiet",
        *words,
    ]
    own = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    } | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        line, env=own, cwd=path.parent, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def child(parent: int, rank: int) -> int:
    """The process of this rank that the command started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inside = (folder / "environ").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if above == parent and f"RANK={rank}".encode() in inside:
            return int(folder.name)
    raise AssertionError(f"no process {rank} below {parent}")


def newest(path: Path) -> int:
    # one that is being written has another ending until it is whole
    saved = [done.parent.name.removeprefix("step-") for done in path.glob("checkpoints/*/DONE")]
    return max((int(step) for step in saved if step.isdecimal()), default=0)


def until_saved(path: Path, step: int) -> None:
    end = time.monotonic() + 120
    while newest(path) < step:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.sharded
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in /proc")
def test_a_process_that_is_killed_ends_all_with_one_line_and_the_same_command_goes_on(tmp_path):
    started = command(tmp_path / "run", "--processes", "2")
    until_saved(tmp_path / "run", 2)
    first, second = (child(started.pid, rank) for rank in (0, 1))
    assert all(address in LOOPBACK for number in (first, second) for address in heard(number))
    os.kill(second, signal.SIGKILL)
    _, told = started.communicate(timeout=60)
    lines = [
        line
        for line in told.splitlines()
        if "alarm" not in line and "train.on_collapse" not in line and "train as one" not in line
    ]
    assert started.returncode == 1
    assert lines == [
        "process 1 of 2 was ended by signal 9; all have ended with it, type the same command again"
        " to go on from the last checkpoint"
    ]
    for number in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    for resume in (False, True):
        # a run that was told to stop may have ended steps meanwhile
        before = newest(tmp_path / "run")
        again = command(tmp_path / "run", "--processes", "2", resume=resume)
        until_saved(tmp_path / "run", before + 2)
        assert child(again.pid, 1)
        again.send_signal(signal.SIGINT)
        _, told = again.communicate(timeout=60)
        assert again.returncode == 130
        assert f"resume with: gem-ma resume {tmp_path / 'run'} --processes 2" in told


def test_what_several_processes_cannot_share_is_refused():
    from gem_ma import config
    from gem_ma.engines.base import Policy
    from gem_ma.training.train import check_processes

    class Elsewhere:
        name, base_url, silence_fails = "model", "http://127.0.0.1:1/v1", False

        async def ping(self):
            raise NotImplementedError

    settings = config.load("kuhn_table").config
    check_processes(settings, 2, {"main": Policy("main", object())})
    check_processes(settings, 1, {"main": Policy("main", Elsewhere())})
    with pytest.raises(
        ConfigError,
        match=(
            r"policies.main: only one process can publish to its server; train with one process"
        ),
    ):
        check_processes(settings, 2, {"main": Policy("main", Elsewhere())})
    with pytest.raises(
        ConfigError, match="limits: each of 2 processes would spend the whole budget"
    ):
        check_processes(
            config.load("kuhn_table", ["limits.tokens=1000"]).config,
            2,
            {"main": Policy("main", object())},
        )


def test_a_launcher_and_the_option_together_are_refused(monkeypatch, tmp_path):
    from gem_ma.cli.main import main

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "referential_table", "--processes", "2"]) == 2


def test_weights_that_drift_apart_are_told_by_name():
    class Two(Team):
        def gather(self, data):
            return [data, json.dumps({"main": "other", "user": "same"}).encode()]

    with pytest.raises(EngineError, match="the weights of main differ between the processes"):
        Two(0, 2).same(lambda: {"main": "mine", "user": "same"}, "the weights")


def test_an_error_of_another_process_is_raised_as_what_it_was():
    from gem_ma.training.processes.chunks import error_of

    assert isinstance(error_of({"kind": "ConfigError", "fault": "no such task"}), ConfigError)
    assert str(error_of({"kind": "KeyError", "fault": "'x'"})) == "KeyError: 'x'"


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            "train.opponents={latest: 0.5, anchors: {main: 0.5}}",
            "train.opponents.anchors.main: an anchor stands still, and this policy learns",
        ),
        ("train.estimator={name: grpo}", "centres within groups of episodes that share a start"),
        (
            "train.alternate={nobody: 2}",
            "train.alternate.nobody: no policy of train.policies has this name",
        ),
    ],
)
def test_check_finds_what_training_would_refuse(fault, said, capsys, tmp_path, monkeypatch):
    from gem_ma.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["check", "kuhn_table", fault]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("RANK", "MASTER_PORT") for value in ("", "one", "-1")),
        ("MASTER_PORT", None),  # without a RANK there is no launcher
        ("MASTER_PORT", "65536"),
    ],
)
def test_a_launcher_that_says_too_little_is_told_in_one_line(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate", reason="needs the train extra")
    around = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "RANK": "0", "MASTER_PORT": "1"}
    for key, number in (around | {name: value}).items():
        if number is None:
            monkeypatch.delenv(key, raising=False)
        else:
            monkeypatch.setenv(key, number)
    # it sets them for what it starts
    for key in teams.at_home():
        monkeypatch.setenv(key, "lo")
    with pytest.raises(EngineError, match=f"did not meet .{name} is") as caught:
        teams.join()
    assert len(str(caught.value).splitlines()) == 1
