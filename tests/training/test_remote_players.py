"""Plays of a training in other processes: how chunks are shared out, what crosses, and that a worker
that is lost changes no byte of the record. The workers here are threads; those of Ray are in
`tests/on_ray`."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from socket import gethostname

import pytest

from gem_ma import config
from gem_ma.cli.main import main
from gem_ma.config.settings import Config
from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.loop.remote import Playroom, check_remote
from gem_ma.training.processes.chunks import (
    Gone,
    Job,
    WorkerPool,
    cut,
    order_of,
    plan_of,
    share_out,
)
from gem_ma.training.processes.teams import ALONE, Teams
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.train import train
from tests.broken_runs import for_both, opened, truth
from tests.virtual_clock import run as run_virtually

ROOT = Path(__file__).resolve().parents[2]
ONE_AT_A_TIME = threading.Lock()


# -- chunks --------------------------------------------------------------------------------------


class Tired:
    """A worker that takes so long for a job, and dies of some."""

    def __init__(self, seconds: Callable[[int], float], dies: Callable[[int], bool]) -> None:
        self.seconds, self.dies, self.done = seconds, dies, list[int]()

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def do(self, job: int) -> int:
        await asyncio.sleep(self.seconds(job))
        if self.dies(job):
            raise Gone("killed")
        self.done.append(job)
        return job * 10


def test_every_chunk_is_played_once_in_its_place_whoever_is_lost() -> None:
    rng = random.Random(3)
    deaths = Counter({5: 2, 11: 1, 39: 2})

    def dies(job: int) -> bool:
        deaths[job] -= 1
        return deaths[job] >= 0

    workers = [Tired(lambda job: rng.random(), dies) for _ in range(7)]
    results, _ = run_virtually(share_out(list(range(40)), workers))
    assert results == [job * 10 for job in range(40)]
    assert sorted(job for worker in workers for job in worker.done) == list(range(40))
    assert [list(chunk) for chunk in cut(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert run_virtually(share_out([], workers))[0] == []


def test_a_chunk_that_ends_every_worker_ends_the_run_by_its_name() -> None:
    workers = [Tired(lambda job: 1.0, lambda job: job == 2) for _ in range(3)]
    said = "chunk 3 of 9 was lost with its worker 3 times; the last: killed"
    with pytest.raises(EngineError, match=said):
        run_virtually(share_out(list(range(9)), workers))


def test_a_worker_that_is_started_again_holds_nobody_up() -> None:
    class Slow(Tired):
        async def ready(self) -> None:
            await asyncio.sleep(100.0 if 0 in self.done else 0)

    quick, slow = (kind(lambda job: 1.0, lambda job: False) for kind in (Tired, Slow))
    results, seconds = run_virtually(share_out(list(range(6)), [slow, quick]))
    assert results == [job * 10 for job in range(6)] and seconds == 5


def test_sixty_four_workers_that_only_wait_lose_less_than_a_twentieth() -> None:
    rng = random.Random(0)
    spent = [rng.uniform(0.5, 1.5) for _ in range(64 * 32)]
    workers = [Tired(lambda job: spent[job], lambda job: False) for _ in range(64)]
    _, seconds = run_virtually(share_out(list(range(len(spent))), workers))
    share = sum(spent) / 64 / seconds
    print(f"64 workers of latency only: {100 * share:.1f} % of ideal")
    assert share >= 0.95


# -- what crosses --------------------------------------------------------------------------------


def settings_of(name: str, *more: str) -> Config:
    return config.load(ROOT / "configs" / f"{name}.yaml", list(more)).config


SMALL = ("train.steps=4", "train.episodes=48", "train.save_every=2", "evaluate.episodes=16")


def test_a_plan_is_the_same_after_its_journey() -> None:
    settings = settings_of("kuhn_table", *SMALL)
    worlds = worlds_of(settings)
    assert settings.train is not None
    for plan in training_plans(worlds, settings.train, 1):
        assert plan_of(json.loads(json.dumps(order_of(plan, worlds))), worlds) == plan
        trunk = asyncio.run(play(plan, open_policies(settings)))
        branch = Branch(trunk, 1, "again", plan.repeat)
        from dataclasses import replace

        forked = replace(plan, branch=branch, repeat=7)
        assert plan_of(json.loads(json.dumps(order_of(forked, worlds))), worlds) == forked
    strange = replace(plan, scenario=worlds_of(settings).played[0].scenario)
    with pytest.raises(EngineError, match="no world of this config"):
        order_of(strange, worlds)


def test_weights_of_a_table_arrive_with_their_version() -> None:
    import numpy as np

    one, other = Table(policy="main"), Table(policy="main")
    one.publish({7: np.array([0.1, -2.5]), 9: np.array([1e-300, 3.0])}, 5)
    other.carry(one.carried())
    assert other.version == 5 and other.fingerprint() == one.fingerprint()


# -- a training ----------------------------------------------------------------------------------


class Room:
    """A worker in a thread. It is killed before it answers the jobs whose numbers `dies` names."""

    def __init__(self, settings: Config, jobs: list[str], dies: set[int]) -> None:
        self.settings, self.jobs, self.dies = settings, jobs, dies
        self.room = Playroom(settings.model_dump_json())

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def do(self, job: Job) -> str:
        number = len(self.jobs)
        self.jobs.append(job[0])
        report = await asyncio.to_thread(self._play, job)
        if number in self.dies:
            self.room = Playroom(self.settings.model_dump_json())  # nothing of it is left
            raise Gone("killed")
        return report

    def _play(self, job: Job) -> str:
        with ONE_AT_A_TIME:  # transformers loads no two models at once in one process
            return self.room.play(job[0], *job[1])


def trained(path: Path, settings: Config, teams: Teams) -> dict[str, bytes]:
    worlds, policies = worlds_of(settings), open_policies(settings)
    with opened(path, settings) as folder:
        asyncio.run(train(settings, worlds, policies, folder, teams=teams))
    return truth(path)


def both(tmp_path: Path, settings: Config, dies: set[int]) -> list[str]:
    """Trains in one process and on two workers; the orders that these were given."""
    jobs: list[str] = []
    alone = trained(tmp_path / "alone", settings, ALONE)
    pool = WorkerPool([Room(settings, jobs, dies) for _ in range(2)])
    assert trained(tmp_path / "remote", settings, Teams(pool=pool)) == alone
    return jobs


@pytest.mark.longest
def test_a_training_on_workers_is_the_same_to_the_byte_also_where_some_are_killed(
    tmp_path: Path,
) -> None:
    jobs = both(tmp_path, settings_of("kuhn_table", *SMALL, "train.chunk=16"), {1, 5, 6})
    assert max(len(json.loads(job)["plans"]) for job in jobs) == 16
    assert len(jobs) - 3 == len(set(jobs))  # lost ones were asked for again, as they were


@pytest.mark.longest
def test_forks_are_played_on_workers_as_well(tmp_path: Path) -> None:
    more = ("train.chunk=5", "train.fork={at: 0, width: 2}", "train.steps=2", "train.save_every=1")
    jobs = both(tmp_path, settings_of("kuhn_table", *SMALL, *more), {3})
    assert any(order["branch"] for job in jobs for order in json.loads(job)["plans"])


@pytest.mark.long
def test_steps_that_are_played_ahead_have_the_weights_of_their_time(tmp_path: Path) -> None:
    both(tmp_path, settings_of("kuhn_table", *SMALL, "train.chunk=16", "train.overlap=2"), {4})


@pytest.mark.longest
def test_a_language_model_in_the_workers_rounds_as_in_one_process(
    tmp_path: Path, referential_model: Path
) -> None:
    models = for_both(f"policies.AGENT.model=transformers/{referential_model}")
    small = ("train.warm_start={}", "train.steps=4", "train.save_every=4", "train.episodes=8")
    settings = settings_of("referential", *models, *small, "train.chunk=3", "evaluate.episodes=4")
    both(tmp_path, settings, {2})


def test_what_a_worker_raises_ends_the_training_in_its_words(tmp_path: Path) -> None:
    settings = settings_of("kuhn_table", *SMALL)
    other = settings.model_copy(update={"policies": {}})
    pool = WorkerPool([Room(other, [], set())])
    with pytest.raises(ConfigError, match="no policy is called"):
        trained(tmp_path / "run", settings, Teams(pool=pool))


@pytest.mark.long
def test_a_machine_that_lacks_a_file_or_a_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a room goes there, and this test comes back
    Path("needs.py").write_text("import a_package_of_elsewhere\n")
    Path("asks.py").write_text("raise ValueError('first\\nsecond')\n")
    order = json.dumps({"plans": [], "weights": {}, "learned": [], "temperature": None})
    for world, fault in (
        ("absent.py:Game", "no such file: absent.py"),
        ("needs.py:Game", "ModuleNotFoundError: No module named 'a_package_of_elsewhere'"),
        ("asks.py:Game", "ValueError: first second"),
        ("nowhere:Game", "there is no module 'nowhere'"),
    ):
        settings = settings_of("kuhn_table")
        changed = settings.model_dump(mode="json") | {"scenario": {"id": world}}
        report = json.loads(Playroom(json.dumps(changed), "", str(tmp_path)).play(order))
        assert report["kind"] == "ConfigError", report
        assert fault in report["fault"] and gethostname() in report["fault"]
        assert len(report["fault"].splitlines()) == 1


def test_what_workers_cannot_play_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of("kuhn_table", *SMALL)
    policies = {"main": Policy("main", Scripted("echo"))}
    names = settings.train.policies if settings.train is not None else []
    with pytest.raises(ConfigError, match="cannot take the weights of a Scripted"):
        check_remote(settings, dict.fromkeys(names, policies["main"]))
    opened = open_policies(settings)
    with pytest.raises(ConfigError, match="would spend the whole budget"):
        check_remote(settings_of("kuhn_table", "limits.tokens=5"), opened)
    league = settings_of("kuhn_league", *SMALL)
    with pytest.raises(ConfigError, match="know no members of a league"):
        check_remote(league, open_policies(league))
    path = str(ROOT / "configs" / "kuhn_table.yaml")
    assert main(["train", path, "--workers", "2"]) == 2
    assert "these are workers of Ray; add --ray local" in capsys.readouterr().err
    assert main(["train", path, "--ray", "local", "--processes", "2"]) == 2
    assert "one process learns from what its workers play" in capsys.readouterr().err


def test_without_ray_one_line_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / "configs" / "kuhn_table.yaml")
    assert main(["train", path, "--ray", "local", "--out", "run"]) == 2
    words = capsys.readouterr().err.strip().splitlines()
    assert len(words) == 1 and "--ray needs Ray" in words[0] and "pip install" in words[0]
