"""Plays of several steps at once: places are shared, older steps come first, nothing of the record
depends on when a play began, and long plays cost less time."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.driver.rollout import ADMITTED, Admission, Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import Batched
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.train import Trainer, train
from tests.broken_runs import Killed, broken_and_whole, steps_of, trained, truth
from tests.driver.test_rollout import DIRECT, Latency, Talk, answered
from tests.training.test_overlap import small
from tests.virtual_clock import run

MIXED = ("train.admission=continuous", "run.concurrency=4")

# -- places --------------------------------------------------------------------------------------


LENGTHS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=24)


def begun(places: int, lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(second, number) of each beginning, by a slow loop over seconds."""
    waiting = sorted((rank, number) for number, (rank, _) in enumerate(lengths))
    # the first take what is free, whatever their rank
    now = list(range(len(lengths)))[:places]
    answer, ends, second = [], [], 0
    while waiting:
        for number in now or [waiting[0][1]]:
            waiting.remove((lengths[number][0], number))
            answer.append((second, number))
            ends.append(second + lengths[number][1])
        now = []
        if len(ends) == places and waiting:
            second = min(ends)
            ends.remove(second)
    return answer


@pytest.mark.long
@given(places=st.integers(1, 5), lengths=LENGTHS)
def test_the_oldest_that_waits_is_next(places, lengths):
    admission, answer = Admission(places), []

    async def one(number: int, rank: int, length: int) -> None:
        async with admission.place(rank, None):
            answer.append((asyncio.get_running_loop().time(), number))
            await asyncio.sleep(length)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number, *each) for number, each in enumerate(lengths)))

    run(all_of_them())
    assert sorted(answer) == sorted(begun(places, lengths)) and admission.free == places


@pytest.mark.long
@given(places=st.integers(1, 5), lengths=LENGTHS, ended=st.sets(st.integers(0, 23)))
def test_whoever_is_cancelled_no_place_is_lost_or_empty(places, lengths, ended):
    admission, inside, waiting = Admission(places), set(), set()

    async def one(number: int, rank: int, length: int) -> None:
        waiting.add(number)
        try:
            async with admission.place(rank, None):
                waiting.remove(number)
                inside.add(number)
                assert len(inside) <= places
                await asyncio.sleep(length)
        finally:
            waiting.discard(number)
            inside.discard(number)

    async def all_of_them() -> None:
        tasks = [asyncio.ensure_future(one(n, *each)) for n, each in enumerate(lengths)]
        for second in range(30):
            await asyncio.sleep(second + 0.25 - asyncio.get_running_loop().time())
            assert not waiting or len(inside) == places
            # on a whole second: some end, hand their place on, and are cancelled at once
            await asyncio.sleep(0.75)
            for number in ended if second == 1 else ():
                if number < len(tasks):
                    tasks[number].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(a is None or isinstance(a, asyncio.CancelledError) for a in answers)

    run(all_of_them())
    assert admission.free == places


class Batches:
    """Answers batches at once, and notes their sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def sample_batch(self, requests):
        self.sizes.append(len(requests))
        return [answered(request) for request in requests]


@pytest.mark.parametrize("batched", [False, True])
def test_rollouts_share_their_places_and_a_gate_waits_for_nobody_who_has_none(batched):
    engine = Batches() if batched else Latency(lambda request: 1.0 + request.seed % 5)
    policy = Policy("main", Batched(engine) if batched else engine)
    admission, order = Admission(3), []

    async def rollout(rank: int) -> int:
        ADMITTED.set((admission, rank))
        plans = [Plan(Talk(), {"a": DIRECT, "b": DIRECT}, seed=n) for n in range(8)]
        played = 0
        stream = play_many(
            plans,
            {"main": policy},
            concurrency=8,
            deterministic=True,
            started=lambda plan: order.append(rank),
        )
        async for episode in stream:
            assert episode.end.scored
            played += 1
        return played

    async def both() -> list[int]:
        first, second = asyncio.ensure_future(rollout(0)), asyncio.ensure_future(rollout(1))
        return await asyncio.gather(first, second)

    assert run(both())[0] == [8, 8]
    # three had places before the other rollout asked; then all of the older one
    assert order == [0] * 8 + [1] * 8 and admission.free == 3
    if not batched:
        assert engine.most <= 6  # two agents speak at once at the end of a talk


# -- a training ----------------------------------------------------------------------------------

SHAPES = {
    "one step ahead": ("train.overlap=1",),
    "more than there are": ("train.overlap=9",),
    "forks": (
        "train.overlap=2",
        "train.estimator.name=grpo",
        "train.group_size=4",
        "train.fork={width: 2}",
    ),
    "refills": (
        "train.overlap=2",
        "train.estimator.name=grpo",
        "train.group_size=4",
        "train.refill=2",
    ),
}


@pytest.mark.longest
@pytest.mark.parametrize("shape", SHAPES)
def test_with_tables_the_record_is_that_of_steps_that_wait_for_each_other(tmp_path, shape):
    trained(tmp_path / "steps", small(*SHAPES[shape]))
    broken_and_whole(tmp_path, small(*SHAPES[shape], *MIXED), 2, 5)
    assert truth(tmp_path / "whole") == truth(tmp_path / "steps")


@pytest.mark.long
def test_with_a_league_a_killed_run_ends_bit_for_bit_as_an_unbroken_one(tmp_path):
    settings = small(
        *MIXED,
        "train.overlap=2",
        "train.opponents={latest: 0.5, prioritised: 0.5}",
        "train.pool={every: 2, loaded: 2}",
        name="kuhn_table",
    )
    broken_and_whole(tmp_path, settings)
    lags = [step["policies"]["main"]["lag"] for step in steps_of(tmp_path / "whole")]
    assert lags == [min(number, 2) for number in range(6)]


@pytest.mark.long
def test_a_kill_between_publish_and_record_changes_nothing(tmp_path, monkeypatch):
    settings, record = small("train.overlap=2", *MIXED), Trainer.record
    trained(tmp_path / "whole", settings)

    async def killed(self, step):
        if step.number == 4:
            raise Killed
        await record(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "record", killed)
        with pytest.raises(Killed):
            trained(tmp_path / "broken", settings)
    trained(tmp_path / "broken", settings)
    assert truth(tmp_path / "broken") == truth(tmp_path / "whole")


def seconds(monkeypatch, *words: str) -> float:
    """Virtual seconds of a training whose plays wait: one in eight for ten times as long."""
    table = Table.sample

    async def waits(self, request):
        await asyncio.sleep(10.0 if random.Random(request.conversation).random() < 1 / 8 else 1.0)
        return await table(self, request)

    monkeypatch.setattr(Table, "sample", waits)
    loaded = config.load(
        "kuhn_table",
        [
            "train.steps=8",
            "train.episodes=16",
            "train.save_every=8",
            "train.on_collapse=off",
            "evaluate.every=null",
            "evaluate.episodes=1",
            "run.concurrency=16",
            *words,
        ],
    ).config
    return run(train(loaded, worlds_of(loaded), open_policies(loaded), None))[1]


@pytest.mark.longest
def test_the_last_long_plays_of_a_step_hold_up_no_other(monkeypatch):
    spent = {}
    for name, words in {
        "alone": (),
        "steps": ("train.overlap=1",),
        "mixed": ("train.overlap=1", "train.admission=continuous"),
        "two steps": ("train.overlap=2",),
        "two mixed": ("train.overlap=2", "train.admission=continuous"),
    }.items():
        with monkeypatch.context() as patched:
            spent[name] = seconds(patched, *words)
    print(spent)
    assert spent["mixed"] < 0.8 * spent["steps"] and spent["two mixed"] < 0.6 * spent["two steps"]


def test_a_play_that_fails_beside_others_ends_the_run_with_its_error(tmp_path, monkeypatch):
    from gem_ma.training.loop import collector

    async def broken(*given, **options):
        raise LookupError("grow")

    monkeypatch.setattr(collector, "grow", broken)
    with pytest.raises(LookupError, match="grow"):
        trained(tmp_path / "run", small(*SHAPES["forks"], *MIXED))


# -- what is refused -----------------------------------------------------------------------------


def loaded(*words: str) -> Config:
    return config.load("kuhn_table", [*words, "train.admission=continuous"]).config


def test_without_steps_ahead_there_is_nothing_to_mix():
    with pytest.raises(ConfigError, match=r"train\.admission: continuous .*overlap: 1"):
        loaded()


def test_a_policy_whose_publish_waits_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"train.admission: a publish of 'main' waits .*'vllm'"):
        loaded("train.overlap=1", "policies.main.model=vllm/somewhere")


def test_several_processes_and_workers_are_refused():
    from gem_ma.training.loop.remote import check_remote
    from gem_ma.training.train import check_processes

    settings = loaded("train.overlap=1")
    for check in (
        lambda: check_processes(settings, 2, {}),
        lambda: check_remote(settings, {}),
    ):
        with pytest.raises(ConfigError, match=r"train.admission: "):
            check()
