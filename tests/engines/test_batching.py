"""Batched: one answer for each asker, whatever fails, is cancelled or comes late. The gate's own
cases are in test_rollout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gem_ma.engines.base import open_engine, stable_seed
from gem_ma.engines.batching import GATE, Batched, Gate
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Reply, Request
from tests.asking import at_once
from tests.virtual_clock import run


def request(number: int) -> Request:
    return Request("a", (), conversation=f"{number:03}", policy="main")


class Numbers:
    """Answers with the conversation's name; `sabotage` may raise or spoil the batch."""

    def __init__(
        self, sabotage: Callable[[Sequence[Request]], Any] = lambda requests: None
    ) -> None:
        self.batches: list[list[str]] = []
        self.sabotage = sabotage
        self.threads: set[str] = set()

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply]:
        self.batches.append([one.conversation for one in requests])
        self.threads.add(threading.current_thread().name)
        spoiled = self.sabotage(requests)
        return spoiled if spoiled is not None else [Reply(one.conversation) for one in requests]


async def ask_all(engine: Batched, count: int) -> list[Any]:
    return await asyncio.gather(
        *(engine.sample(request(number)) for number in range(count)), return_exceptions=True
    )


def test_many_askers_share_a_batch_and_each_gets_its_own_reply() -> None:
    numbers = Numbers()
    replies = run(ask_all(Batched(numbers), 64))[0]
    assert [reply.text for reply in replies] == [f"{number:03}" for number in range(64)]
    assert len(numbers.batches) == 1


def test_a_batch_is_capped() -> None:
    numbers = Numbers()
    run(ask_all(Batched(numbers, max_batch=10), 25))
    assert [len(batch) for batch in numbers.batches] == [10, 10, 5]


def test_batches_run_in_a_worker_thread_and_what_arrives_meanwhile_is_the_next() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def sabotage(requests: Sequence[Request]) -> None:
        inside.set()
        go_on.wait(10)

    numbers = Numbers(sabotage)
    engine = Batched(numbers)

    async def main() -> None:
        first = asyncio.ensure_future(engine.sample(request(0)))
        while not inside.is_set():
            await asyncio.sleep(0.001)
        rest = [asyncio.ensure_future(engine.sample(request(number))) for number in (1, 2)]
        await asyncio.sleep(0.01)
        go_on.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    assert numbers.batches == [["000"], ["001", "002"]]
    assert threading.main_thread().name not in numbers.threads


@pytest.mark.parametrize(
    "error",
    [EngineError("out of memory"), StopIteration("out of memory"), SystemExit("out of memory")],
)
def test_a_failing_batch_gives_its_error_to_all_its_askers_and_the_next_batch_runs(
    error: BaseException,
) -> None:
    def sabotage(requests: Sequence[Request]) -> None:
        if requests[0].conversation == "000":
            raise error

    outcomes = run(ask_all(Batched(Numbers(sabotage), max_batch=3), 6))[0]
    assert all(
        isinstance(outcome, Exception) and "out of memory" in str(outcome)
        for outcome in outcomes[:3]
    )
    assert [outcome.text for outcome in outcomes[3:]] == ["003", "004", "005"]


@pytest.mark.parametrize(
    ("given", "words"),
    [([Reply("x")], "gave 1 replies to 2 requests"), (3, "not iterable"), ([], "gave 0 replies")],
)
def test_an_engine_that_answers_nonsense_is_an_error_not_a_hang(given: Any, words: str) -> None:
    outcomes = run(ask_all(Batched(Numbers(lambda requests: given)), 2))[0]
    assert all(words in str(outcome) for outcome in outcomes)


def test_a_cancelled_asker_is_skipped() -> None:
    numbers = Numbers()
    engine = Batched(numbers)

    async def main() -> list[Any]:
        asks = [asyncio.ensure_future(engine.sample(request(number))) for number in range(3)]
        await asyncio.sleep(0)
        asks[1].cancel()
        return await asyncio.gather(*asks, return_exceptions=True)

    outcomes = run(main())[0]
    assert numbers.batches == [["000", "002"]] and isinstance(outcomes[1], asyncio.CancelledError)


def test_it_serves_one_event_loop_after_another() -> None:
    engine = Batched(Numbers())
    for _ in range(3):
        assert [reply.text for reply in asyncio.run(ask_all(engine, 2))] == ["000", "001"]


def test_it_serves_again_after_a_loop_was_stopped_in_mid_batch() -> None:
    engine = Batched(Numbers(), wait_s=0.5)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.sample(request(0)), 0.01)

    asyncio.run(give_up())
    engine.wait_s = 0.001
    assert [reply.text for reply in asyncio.run(ask_all(engine, 2))] == ["000", "001"]


def test_a_closed_gate_releases_nothing() -> None:
    numbers = Numbers()
    engine = Batched(numbers)

    async def main() -> None:
        gate = Gate()
        GATE.set(gate)
        gate.start()
        ask = asyncio.ensure_future(engine.sample(request(0)))
        await asyncio.sleep(0)
        gate.close()
        await asyncio.sleep(1)
        ask.cancel()
        await asyncio.gather(ask, return_exceptions=True)
        assert gate.running == 1

    run(main())
    assert numbers.batches == []


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"no engine is called 'scriptd' \(did you mean 'scripted'\?\)"
    ):
        open_engine("main", "scriptd/x")
    with pytest.raises(ConfigError, match="no engine"):
        open_engine("main", "")


def test_a_stable_seed_is_the_same_in_every_process() -> None:
    # pinned: recorded runs are replayed by it
    assert stable_seed("train/0", 7, 0, "a", 1, 0) == 9083214647504222526
    assert (
        len(
            {
                stable_seed("train/0", seed, 0, "a", turn, 0)
                for seed in range(50)
                for turn in range(50)
            }
        )
        == 2500
    )


class Streaming:
    """An engine that answers one request per look, the shortest name first; what comes meanwhile
    joins."""

    def __init__(self, fail_at: int = -1, pace_s: float = 0.02) -> None:
        self.looks: list[list[str]] = []
        self.pace_s = pace_s
        self.fail_at, self.left = fail_at, 0
        self.slow = threading.Event()

    def stream(
        self,
        pull: Callable[[], Sequence[tuple[Any, Request]]],
        give: Callable[[int, Reply | Exception], None],
    ) -> None:
        running: dict[int, str] = {}
        asked = 0
        while True:
            new = pull()
            self.looks.append([one.conversation for _, one in new])
            for _, one in new:
                running[asked] = one.conversation
                asked += 1
            if not running:
                return
            if len(self.looks) == self.fail_at:
                raise EngineError("out of memory")
            if len(running) == self.left:  # leaves these unanswered
                return
            self.slow.wait(self.pace_s)
            number = min(running, key=lambda at: (len(running[at]), at))
            give(number, Reply(running.pop(number)))


def named(name: str) -> Request:
    return Request("a", (), conversation=name, policy="main")


def test_a_request_that_comes_while_others_run_joins_them_and_is_answered_before_the_longest() -> (
    None
):
    streaming, order = Streaming(pace_s=0.2), list[str]()
    engine = Batched(streaming)  # type: ignore[arg-type]

    async def ask(name: str, after: float) -> None:
        await asyncio.sleep(after)
        order.append((await engine.sample(named(name))).text)

    async def main() -> None:
        await asyncio.gather(
            ask("the longest of all", 0),
            ask("the second longest", 0),
            ask("middle", 0),
            ask("late", 0.03),
        )

    asyncio.run(main())
    assert set(order[:2]) == {"middle", "late"} and len(order) == 4
    assert sorted(map(len, streaming.looks))[-2:] == [1, 3]


def test_no_more_than_the_cap_run_together_in_a_stream() -> None:
    streaming = Streaming()
    engine = Batched(streaming, max_batch=3)  # type: ignore[arg-type]
    replies = at_once(*((engine, named(f"{number}")) for number in range(8)))
    assert [reply.text for reply in replies] == list("01234567")
    assert [len(look) for look in streaming.looks if look] == [3, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("streaming", "words"), [(Streaming(fail_at=2), "out of memory"), (Streaming(), "unanswered")]
)
def test_a_stream_that_fails_tells_all_that_run_and_the_next_one_serves(
    streaming: Streaming, words: str
) -> None:
    streaming.left = 2 if words == "unanswered" else 0
    engine = Batched(streaming)  # type: ignore[arg-type]

    async def main() -> list[Any]:
        first = await asyncio.gather(
            *(engine.sample(named(name)) for name in ("a", "bb", "ccc")), return_exceptions=True
        )
        streaming.left = 0
        return [*first, await engine.sample(named("d"))]

    a, bb, ccc, d = asyncio.run(main())
    assert (a.text, d.text) == ("a", "d")
    assert all(words in str(error) for error in (bb, ccc))


def test_a_stream_ends_when_nobody_waits_for_it_any_more() -> None:
    streaming = Streaming()
    engine = Batched(streaming)  # type: ignore[arg-type]

    async def main() -> None:
        asks = [
            asyncio.ensure_future(engine.sample(named(name)))
            for name in ("a", "bb", "cc", "dd", "ee")
        ]
        await asks[0]
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)

    asyncio.run(main())
    assert len(streaming.looks) <= 4
    assert asyncio.run(engine.sample(named("again"))).text == "again"
