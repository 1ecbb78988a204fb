"""Playing: isolation, limits, cancellation and independence from latency, on a virtual clock."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gem_ma.driver.behaviour import as_factory
from gem_ma.driver.rollout import YOUNG, Plan, play, play_many
from gem_ma.engines.base import Policy
from gem_ma.engines.batching import Batched
from gem_ma.kernel.episode import End, Episode, Limits, Seat
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.scenario import Ask, Call, Reward, Scenario, Tell
from gem_ma.kernel.types import Action, Asked, Reply, Request, Sampling, Usage
from gem_ma.registry import make
from tests.virtual_clock import Deadlock, run

DIRECT = Seat("direct", "main")


class Talk(Scenario):
    """Two agents say something in turn, `turns` times; then both together."""

    agents = ("a", "b")
    id = "talk"

    def __init__(self, turns: int = 3) -> None:
        self.turns, self.closed = turns, 0

    def play(self, rng: random.Random, task: Any) -> Any:
        try:
            for turn in range(self.turns):
                agent = self.agents[turn % 2]
                said = yield Ask(
                    {agent: f"turn {turn}, draw {rng.randrange(1000)}"}, legal=("left", "right")
                )
                yield Reward({agent: 1.0 if said[agent].parsed == "left" else 0.0})
            said = yield Ask(dict.fromkeys(self.agents, "together"), legal=("left", "right"))
            yield Tell({"a": said["b"].text, "b": said["a"].text})
        finally:
            self.closed += 1


class Latency:
    """An engine that answers left or right by the request's seed, after a delay of its own
    stream."""

    def __init__(self, delay: Callable[[Request], float] = lambda request: 0.01) -> None:
        self.delay, self.open, self.most, self.requests = delay, 0, 0, 0

    async def sample(self, request: Request) -> Reply:
        self.requests += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(self.delay(request))
        finally:
            self.open -= 1
        return answered(request)


def answered(request: Request) -> Reply:
    text = ("left", "right")[request.seed % 2]
    return Reply(
        text,
        token_ids=(request.seed % 7, 1),
        logprobs=(-0.5, -0.5),
        policy=request.policy,
        usage=Usage(10, 2),
    )


def plans(
    count: int, scenario: Scenario | None = None, cast: dict[str, Seat] | None = None, **fields: Any
) -> list[Plan]:
    scenario = scenario or Talk()
    return [
        Plan(scenario, cast or dict.fromkeys(scenario.agents, DIRECT), seed=seed, **fields)
        for seed in range(count)
    ]


async def collect(episodes: AsyncIterator[Episode]) -> list[Episode]:
    return [episode async for episode in episodes]


def played(given: Sequence[Plan], engine: Any, **options: Any) -> tuple[list[Episode], float]:
    episodes, seconds = run(collect(play_many(given, {"main": Policy("main", engine)}, **options)))
    return sorted(episodes, key=lambda episode: episode.id), seconds


# -- scheduling ----------------------------------------------------------------------------------


def test_a_straggler_costs_only_itself() -> None:
    engine = Latency(lambda request: 0.2 if "/7/" in request.conversation else 0.005)
    finished: list[tuple[int, float]] = []

    async def main() -> None:
        async for episode in play_many(plans(8), {"main": Policy("main", engine)}):
            finished.append((episode.seed, asyncio.get_running_loop().time()))

    _, seconds = run(main())
    # three turns and one step together
    assert finished[-1][0] == 7 and seconds == pytest.approx(4 * 0.2)
    assert all(at == pytest.approx(4 * 0.005) for _, at in finished[:-1])


def test_uniform_latency_is_hidden_by_concurrency() -> None:
    episodes, seconds = played(plans(64), Latency(), concurrency=64)
    assert len(episodes) == 64 and seconds == pytest.approx(4 * 0.01)


def test_the_agents_of_one_step_are_asked_together() -> None:
    scenario = make("dilemma", rounds=3)
    _, seconds = played(plans(1, scenario), Latency(lambda request: 1.0))
    assert seconds == pytest.approx(3.0)


@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_no_more_episodes_run_at_once_than_allowed(concurrency: int) -> None:
    engine = Latency()
    episodes, _ = played(
        plans(20, Talk(5), limits=Limits(max_steps=5)), engine, concurrency=concurrency
    )
    assert len(episodes) == 20 and engine.most == min(concurrency, 20)


def test_a_consumer_that_does_not_take_holds_the_next_episodes_back() -> None:
    started: list[int] = []

    async def main() -> None:
        episodes = play_many(
            plans(50),
            {"main": Policy("main", Latency())},
            concurrency=2,
            started=lambda plan: started.append(plan.seed),
        )
        await anext(episodes)
        await asyncio.sleep(100)
        await episodes.aclose()

    run(main())
    assert len(started) <= 6


def test_plans_are_taken_in_order_and_lazily() -> None:
    taken: list[int] = []

    def endless() -> Any:
        for plan in plans(1000):
            taken.append(plan.seed)
            yield plan

    async def main() -> None:
        episodes = play_many(endless(), {"main": Policy("main", Latency())}, concurrency=3)
        await anext(episodes)
        await episodes.aclose()

    run(main())
    assert taken == list(range(len(taken))) and len(taken) < 10


def test_no_concurrency_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run(collect(play_many([], concurrency=0)))


def test_no_plans_give_no_episodes() -> None:
    assert played([], Latency())[0] == []
    assert played([], Latency(), deterministic=True)[0] == []


@pytest.mark.long
@pytest.mark.parametrize("deterministic", [False, True])
def test_same_seeds_and_replies_give_same_episodes_whatever_the_latency_and_concurrency(
    deterministic: bool,
) -> None:
    scenario = make("dilemma", rounds=4)
    results = []
    for stream in range(2):
        for concurrency in (1, 7, 64):
            rng = random.Random(stream)
            engine = Latency(lambda request, rng=rng: rng.lognormvariate(0.0, 1.0))  # type: ignore[misc]
            mixed = [
                *plans(12),
                *[replace(plan, task="train/0", repeat=1) for plan in plans(12, scenario)],
            ]
            results.append(
                played(mixed, engine, concurrency=concurrency, deterministic=deterministic)[0]
            )
    assert all(result == results[0] for result in results[1:])
    assert len({episode.id for episode in results[0]}) == 24


def test_bots_draw_from_streams_of_their_own() -> None:
    cast = dict.fromkeys(Talk.agents, Seat("random_legal"))
    one = played(plans(5, cast=cast), Latency())[0]
    other = played(list(reversed(plans(5, cast=cast))), Latency(), concurrency=1)[0]
    assert one == other
    assert len({tuple(turn.action.text for turn in episode.turns) for episode in one}) > 1


# -- failures ------------------------------------------------------------------------------------


class Breaks(Talk):
    """Raises in mid-play where the seed is 13."""

    id = "breaks"

    def play(self, rng: random.Random, task: Any) -> Any:
        bad = rng.random() == random.Random(13).random()
        yield Ask({"a": "one"})
        if bad:
            raise SystemExit("no")
        yield Ask({"b": "two"})


class FailsAct:
    """A behaviour that raises where it is seated in episode 13; its message names the agent."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        error = (
            self.error if rng.random() == random.Random(f"train/0/13/0/{agent}").random() else None
        )

        class Player:
            async def act(self, asked: Asked) -> str:
                if error is not None:
                    raise error
                return "left"

        return Player()


def only_13_failed(episodes: list[Episode], words: str) -> None:
    assert len(episodes) == 64
    bad = [episode for episode in episodes if episode.end is not End.TERMINATED]
    assert [(episode.seed, episode.end) for episode in bad] == [(13, End.FAILED)]
    assert words in (bad[0].error or "")


def test_a_raising_scenario_fails_alone() -> None:
    only_13_failed(played(plans(64, Breaks()), Latency())[0], "SystemExit: no")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("oops"),
        SystemExit("oops"),
        asyncio.CancelledError("oops"),
        TimeoutError("oops"),
        StopAsyncIteration("oops"),
    ],
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_raising_behaviour_fails_alone(error: BaseException, deterministic: bool) -> None:
    async def main() -> list[Episode]:
        factory = lambda agent, sample, rng, task=None: FailsAct(error)(agent, sample, rng)  # noqa: E731
        return await collect(
            play_many(
                plans(64),
                {"main": Policy("main", Latency())},
                behaviours={"a": factory},
                deterministic=deterministic,
            )
        )

    episodes = sorted(run(main())[0], key=lambda episode: episode.id)
    only_13_failed(episodes, "oops")


def test_a_behaviour_that_cannot_be_made_fails_alone() -> None:
    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        if rng.random() == random.Random("train/0/13/0/a").random():
            raise OSError("no such persona")
        return as_factory("first_legal")(agent, sample, rng)

    only_13_failed(
        run(
            collect(
                play_many(plans(64), {"main": Policy("main", Latency())}, behaviours={"a": factory})
            )
        )[0],
        "no such persona",
    )


def test_tasks_that_cannot_be_read_fail_the_episode() -> None:
    class Torn(Talk):
        def tasks(self, split: str) -> Sequence[Any]:
            raise OSError("disk")

    (episode,) = played(plans(1, Torn()), Latency())[0]
    assert (episode.end, episode.error) == (End.FAILED, "OSError: disk")


class FailingEngine(Latency):
    async def sample(self, request: Request) -> Reply:
        if "/13/" in request.conversation:
            raise EngineError("503 from the server")
        return await super().sample(request)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_raising_engine_fails_alone(deterministic: bool) -> None:
    only_13_failed(
        played(plans(64), FailingEngine(), deterministic=deterministic)[0], "503 from the server"
    )


class Outside(Scenario):
    """Calls a function before its only question and after it."""

    agents = ("a",)
    id = "outside"

    def __init__(self, function: Callable[[int], Any]) -> None:
        self.function = function

    def play(self, rng: random.Random, task: Any) -> Any:
        number = rng.randrange(100)
        before = yield Call(self.function, number)
        yield Ask({"a": str(before)})
        after = yield Call(self.function, number + 1)
        yield Ask({"a": str(after)})


def test_results_of_calls_are_recorded_by_step() -> None:
    (episode,) = played(
        plans(1, Outside(lambda number: {"twice": 2 * number}), cast={"a": Seat("silent")}),
        Latency(),
    )[0]
    assert episode.end is End.TERMINATED
    assert [call.step for call in episode.calls] == [-1, 0]
    assert episode.calls[1].value["twice"] == episode.calls[0].value["twice"] + 2
    assert [turn.observed[0].text for turn in episode.turns] == [
        str(call.value) for call in episode.calls
    ]


@pytest.mark.parametrize(
    "error", [KeyError("k"), SystemExit("k"), StopIteration("k"), TimeoutError("k")]
)
def test_a_raising_call_fails_alone_and_names_its_error(error: BaseException) -> None:
    odd = random.Random(13).randrange(100)

    def function(number: int) -> int:
        if number == odd:
            raise error
        return number

    def far(seed: int) -> bool:
        return seed == 13 or abs(random.Random(seed).randrange(100) - odd) > 1

    given = [
        plan for plan in plans(64, Outside(function), cast={"a": Seat("silent")}) if far(plan.seed)
    ]
    episodes = played(given, Latency())[0]
    assert [episode.seed for episode in episodes if episode.end is End.FAILED] == [13]
    (failed,) = (episode for episode in episodes if episode.seed == 13)
    assert type(error).__name__ in (failed.error or "") and "k" in (failed.error or "")
    assert len(failed.turns) == 0 and "CallError" in (failed.error or "")


def test_a_hung_call_is_cut_by_its_time_limit_and_holds_no_other_episode() -> None:
    release = threading.Event()
    hung = random.Random(0).randrange(100)

    def function(number: int) -> int:
        if number == hung:
            release.wait(20)
        return number

    cast = {"a": Seat("silent")}
    given = [Plan(Outside(function), cast, seed=seed, call_timeout_s=0.2) for seed in (0, 1, 2)]
    start = time.monotonic()
    episodes = asyncio.run(collect(play_many(given)))
    release.set()
    assert time.monotonic() - start < 10
    ends = {episode.seed: (episode.end, episode.error) for episode in episodes}
    assert ends[0][0] is End.FAILED and "no result within 0.2 s" in (ends[0][1] or "")
    assert ends[1][0] is End.TERMINATED and ends[2][0] is End.TERMINATED


class Hangs:
    """A behaviour that never answers."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.cleaned = False

    async def act(self, asked: Asked) -> Action:
        await asyncio.Event().wait()
        return Action()


@pytest.mark.parametrize("name", ["talk", "dilemma"])
def test_a_hung_behaviour_is_cut_by_the_episodes_time_limit(name: str) -> None:
    scenario = Talk() if name == "talk" else make("dilemma")
    (plan,) = plans(1, scenario, limits=Limits(timeout_s=30.0))
    hanging = scenario.agents[1]
    episode, seconds = run(play(plan, {"main": Policy("main", Latency())}, {hanging: Hangs}))
    assert (episode.end, episode.error, seconds) == (End.TIMEOUT, None, pytest.approx(30.0))
    assert episode.end.bootstraps and episode.final[hanging][-1].text  # the unanswered Ask


def test_a_timeout_of_a_behaviour_is_a_failure_not_a_cut() -> None:
    async def late(asked: Asked) -> Action:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()
        return Action()

    class Late(Hangs):
        act = staticmethod(late)  # type: ignore[assignment]

    (plan,) = plans(1, limits=Limits(timeout_s=30.0))
    episode, _ = run(play(plan, {"main": Policy("main", Latency())}, {"a": Late}))
    assert episode.end is End.FAILED and "TimeoutError" in (episode.error or "")


def test_a_wrong_cast_ends_the_run_before_it_plays() -> None:
    for cast in (
        {"a": DIRECT},
        {"a": DIRECT, "b": DIRECT, "c": DIRECT},
        {"a": DIRECT, "b": Seat("direct", "nobody")},
        {"a": DIRECT, "b": Seat("no_such_bot")},
    ):
        with pytest.raises(ConfigError):
            played([Plan(Talk(), cast)], Latency())
    with pytest.raises(ConfigError, match="no task 'train/7'"):
        played(plans(1, task="train/7"), Latency())
    with pytest.raises(ConfigError, match="colour"):
        played([Plan(Talk(), {"a": Seat("silent", options={"colour": 1}), "b": DIRECT})], Latency())


def test_which_of_two_failures_is_told_does_not_depend_on_timing() -> None:
    def failing(after: float) -> Any:
        def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
            class Player:
                async def act(self, asked: Asked) -> str:
                    await asyncio.sleep(after)
                    raise ValueError(agent)

            return Player()

        return factory

    errors = set()
    for first, second in ((1.0, 2.0), (2.0, 1.0)):
        (plan,) = plans(1, make("dilemma"))
        episode, _ = run(
            play(
                plan,
                {"main": Policy("main", Latency())},
                {"player_0": failing(first), "player_1": failing(second)},
            )
        )
        errors.add(episode.error)
    assert errors == {"ValueError: player_0"}


def test_a_scenario_that_breaks_while_it_is_closed_is_failed() -> None:
    class Clings(Talk):
        def play(self, rng: random.Random, task: Any) -> Any:
            try:
                yield Ask({"a": "x"})
                yield Ask({"a": "y"})
            finally:
                raise RuntimeError("cannot let go")

    (episode,) = played(plans(1, Clings(), limits=Limits(max_steps=1)), Latency())[0]
    assert episode.end is End.FAILED and "cannot let go" in (episode.error or "")


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3])
def test_max_steps_is_exact(most: int) -> None:
    scenario = Talk(3)
    (episode,) = played(plans(1, scenario, limits=Limits(max_steps=most)), Latency())[0]
    assert (episode.end, len(episode.turns), scenario.closed) == (End.MAX_STEPS, most, 1)
    asked = scenario.agents[most % 2] if most < 3 else "a"
    assert episode.final[asked][-1].text == (
        f"turn {most}, draw " + episode.final[asked][-1].text.split()[-1]
        if most < 3
        else "together"
    )


def test_a_play_that_ends_on_the_last_allowed_step_is_terminated() -> None:
    for limits in (Limits(max_steps=4), Limits(max_turns=5), Limits(max_tokens=10)):
        (episode,) = played(plans(1, Talk(3), limits=limits), Latency())[0]
        assert (episode.end, len(episode.turns)) == (End.TERMINATED, 5)


def test_max_turns_counts_every_agent_of_a_step() -> None:
    scenario = make("dilemma", rounds=10)
    for most, turns in ((1, 2), (2, 2), (3, 4), (4, 4), (5, 6)):
        (episode,) = played(plans(1, scenario, limits=Limits(max_turns=most)), Latency())[0]
        assert (episode.end, len(episode.turns)) == (End.MAX_TURNS, turns)


def test_max_tokens_counts_sampled_tokens_and_takes_the_servers_word_without_ids() -> None:
    class Silent(Latency):
        async def sample(self, request: Request) -> Reply:
            return replace(await super().sample(request), token_ids=(), logprobs=())

    for engine in (Latency(), Silent()):
        for most, turns in ((1, 1), (2, 1), (3, 2), (4, 2)):
            (episode,) = played(plans(1, limits=Limits(max_tokens=most)), engine)[0]
            assert (episode.end, len(episode.turns)) == (End.MAX_TOKENS, turns)


@pytest.mark.parametrize("style", ["plain", "swallows", "group", "task group"])
def test_a_prompt_that_no_longer_fits_ends_the_play_as_context(style: str) -> None:
    class Full(Latency):
        async def sample(self, request: Request) -> Reply:
            return replace(
                await super().sample(request), finish="context_overflow" if request.turn else "stop"
            )

    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        class Player:
            async def act(self, asked: Asked) -> str:
                if style == "group":
                    return (
                        await asyncio.gather(sample(asked.transcript), sample(asked.transcript))
                    )[0].text
                if style == "task group":
                    async with asyncio.TaskGroup() as group:
                        one = group.create_task(sample(asked.transcript))
                    return one.result().text
                try:
                    return (await sample(asked.transcript)).text
                except Exception:
                    if style == "plain":
                        raise
                    return "left"

        return Player()

    (plan,) = plans(1)
    episode, _ = run(play(plan, {"main": Policy("main", Full())}, {"a": factory, "b": factory}))
    assert (episode.end, len(episode.turns), episode.error) == (End.CONTEXT, 2, None)


# -- cancellation --------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_closing_the_iterator_cancels_and_closes_every_play(
    after: int, deterministic: bool
) -> None:
    scenario = Talk(40)
    engine = Latency()
    started: list[int] = []

    async def main() -> int:
        episodes = play_many(
            plans(30, scenario),
            {"main": Policy("main", engine)},
            concurrency=8,
            deterministic=deterministic,
            started=lambda p: started.append(p.seed),
        )
        for _ in range(after):
            await anext(episodes)
        if not after:
            task = asyncio.ensure_future(anext(episodes))
            await asyncio.sleep(0.055)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await episodes.aclose()
        await asyncio.sleep(0)
        return len(asyncio.all_tasks()) - 1

    left, _ = run(main())
    assert (left, engine.open) == (0, 0)
    assert scenario.closed == len(started) > 0


def test_cancelling_one_play_closes_it() -> None:
    scenario = Talk(40)

    async def main() -> bool:
        task = asyncio.ensure_future(
            play(plans(1, scenario)[0], {"main": Policy("main", Latency())})
        )
        await asyncio.sleep(0.055)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert run(main())[0] and scenario.closed == 1


# -- what a behaviour asks its model -------------------------------------------------------------


def test_every_model_call_of_an_act_is_kept_in_order_of_request_with_a_seed_of_its_own() -> None:
    seen: list[Request] = []

    class Watched(Latency):
        async def sample(self, request: Request) -> Reply:
            seen.append(request)
            return replace(
                await super().sample(request),
                text=str(
                    len([r for r in seen if r.turn == request.turn and r.agent == request.agent])
                ),
            )

    # the later the request, the sooner its answer
    engine = Watched(lambda request: 1.0 / (1 + len(seen)))

    def best_of_three(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        class Player:
            async def act(self, asked: Asked) -> str:
                await asyncio.gather(
                    *(
                        sample(asked.transcript, legal=asked.legal, thread=str(n), temperature=0.5)
                        for n in range(3)
                    )
                )
                return "left"

        return Player()

    (plan,) = plans(1, Talk(1))
    episode, _ = run(
        play(plan, {"main": Policy("main", engine, Sampling(top_k=3))}, {"a": best_of_three})
    )
    assert [len(turn.replies) for turn in episode.turns] == [3, 3, 1]
    mine = [request for request in seen if request.agent == "a" and request.turn == 0]
    assert len({request.seed for request in mine}) == 3
    assert [request.conversation for request in mine] == [
        "train/0/0/0/a/0",
        "train/0/0/0/a/1",
        "train/0/0/0/a/2",
    ]
    assert {(request.sampling.temperature, request.sampling.top_k) for request in mine} == {
        (0.5, 3)
    }
    assert [reply.token_ids for reply in episode.turns[0].replies] == [
        (request.seed % 7, 1) for request in mine
    ]


def test_a_behaviour_may_sample_from_further_policies_of_its_seat_and_falls_back_to_its_own() -> (
    None
):
    class Asks:
        def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
            self.sample = sample

        async def act(self, asked: Asked) -> Action:
            for name in ("", "judge", "other"):
                await self.sample(asked.transcript, policy=name, thread=name)
            return Action("left", (), "left")

    policies = {
        "main": Policy("main", Latency(), Sampling(0.5)),
        "strict": Policy("strict", Latency(), Sampling(0.0)),
    }
    cast = {"a": Seat("direct", "main", policies={"judge": "strict"}), "b": DIRECT}
    episode = asyncio.run(play(plans(1, cast=cast)[0], policies, {"a": Asks}))
    assert [reply.policy for reply in episode.turns[0].replies] == ["main", "strict", "main"]
    assert episode.cast["a"].policies == {"judge": "strict"}
    with pytest.raises(ConfigError, match="agent 'a': no policy is called 'strict'"):
        asyncio.run(play(plans(1, cast=cast)[0], {"main": policies["main"]}))


def test_a_seat_without_policy_says_so_when_its_behaviour_samples() -> None:
    (episode,) = played(plans(1, cast={"a": Seat("direct"), "b": DIRECT}), Latency())[0]
    assert episode.end is End.FAILED and "its seat names none" in (episode.error or "")


def test_only_a_privileged_behaviour_is_given_the_task_and_the_cast_says_so() -> None:
    given: dict[str, Any] = {}

    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        given[agent] = task
        return as_factory("first_legal")(agent, sample, rng)

    def oracle(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        return factory(agent, sample, rng, task)

    oracle.privileged = True  # type: ignore[attr-defined]

    class Secret(Talk):
        def tasks(self, split: str) -> Sequence[Any]:
            return ("the answer",)

    (plan,) = plans(1, Secret(), cast={"a": Seat("first_legal"), "b": Seat("first_legal")})
    episode, _ = run(play(plan, {}, {"a": factory, "b": oracle}))
    assert given == {"a": None, "b": "the answer"}
    assert [episode.cast[agent].privileged for agent in ("a", "b")] == [False, True]


# -- the gate ------------------------------------------------------------------------------------


class Notes:
    """A batch engine that notes its batches; it may fail by a coin of its own."""

    def __init__(self, fails: float = 0.0, max_batch: int = 256) -> None:
        self.batches: list[list[tuple[str, int, int]]] = []
        self.fails, self.coin = fails, random.Random(5)

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply]:
        self.batches.append(
            [(request.conversation, request.turn, request.seed) for request in requests]
        )
        if self.coin.random() < self.fails:
            raise EngineError("out of memory")
        return [answered(request) for request in requests]


def gated(
    stream: int,
    given: Sequence[Plan],
    seats: dict[str, Any],
    fails: float = 0.0,
    concurrency: int = 64,
    max_batch: int = 256,
) -> Any:
    """Plays under the gate with a think time of random latency before every act; gives the
    batches and the episodes."""
    delays = random.Random(stream)
    engines = {name: Notes(fails) for name in ("main", "other")}
    policies = {
        name: Policy(name, Batched(engine, max_batch=max_batch)) for name, engine in engines.items()
    }
    behaviours = {agent: wrap(delays) for agent, wrap in seats.items()}
    episodes, _ = run(
        collect(
            play_many(
                given, policies, behaviours=behaviours, deterministic=True, concurrency=concurrency
            )
        )
    )
    return {name: engine.batches for name, engine in engines.items()}, sorted(
        episodes, key=lambda episode: episode.id
    )


def thinks(side_by_side: int = 1, fails: float = 0.0, gives_up: float | None = None) -> Any:
    """A behaviour that waits a random time, then samples; `fails` and `gives_up` are drawn from
    the agent's own stream."""

    def wrap(delays: random.Random) -> Any:
        def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
            class Player:
                async def act(self, asked: Asked) -> str:
                    await asyncio.sleep(delays.random())
                    if rng.random() < fails:
                        raise ValueError("mid-episode")
                    asks = [
                        sample(asked.transcript, legal=asked.legal)
                        for _ in range(rng.randrange(1, side_by_side + 1))
                    ]
                    if gives_up is not None and rng.random() < gives_up:
                        first = asyncio.ensure_future(asks.pop())
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                        first.cancel()
                        await asyncio.gather(first, return_exceptions=True)
                        if not asks:
                            return "left"
                    replies = await asyncio.gather(*asks)
                    await asyncio.sleep(delays.random())
                    return replies[-1].text

            return Player()

        return factory

    return wrap


def two_policies(count: int, **fields: Any) -> list[Plan]:
    shapes = [Talk(3), Talk(1), make("dilemma", rounds=2), Talk(6)]
    given = []
    for index in range(count):
        scenario = shapes[index % len(shapes)]
        first, second = scenario.agents
        given.append(
            Plan(
                scenario,
                {first: Seat("direct", "main"), second: Seat("direct", "other")},
                seed=index,
                **fields,
            )
        )
    return given


SAME_NAMES = {"a": "player_0", "b": "player_1"}


def seats(wrap: Any) -> dict[str, Any]:
    return {name: wrap for pair in SAME_NAMES.items() for name in pair}


@pytest.mark.parametrize("concurrency", [1, 3, 64])
@pytest.mark.parametrize("max_batch", [2, 256])
def test_under_the_gate_batches_do_not_depend_on_latency(concurrency: int, max_batch: int) -> None:
    results = [
        gated(
            stream, two_policies(10), seats(thinks(3)), concurrency=concurrency, max_batch=max_batch
        )
        for stream in range(4)
    ]
    assert all(result == results[0] for result in results[1:])
    assert all(batch == sorted(batch) for batch in results[0][0]["main"])
    if concurrency == 64 and max_batch == 256:
        assert len(results[0][0]["main"]) <= 8  # not one row at a time


def test_under_the_gate_failing_batches_fail_the_same_episodes() -> None:
    results = [
        gated(stream, two_policies(16), seats(thinks(2)), fails=0.3, concurrency=5)
        for stream in range(4)
    ]
    assert all(result == results[0] for result in results[1:])
    ends = {episode.end for episode in results[0][1]}
    assert ends == {End.TERMINATED, End.FAILED} and len(results[0][1]) == 16


def test_under_the_gate_failing_behaviours_change_no_batch_by_timing() -> None:
    results = [
        gated(stream, two_policies(16), seats(thinks(2, fails=0.15)), concurrency=6)
        for stream in range(4)
    ]
    assert all(result == results[0] for result in results[1:])
    assert {episode.end for episode in results[0][1]} == {End.TERMINATED, End.FAILED}


@pytest.mark.long
def test_the_gate_never_deadlocks() -> None:
    for stream in range(25):
        rng = random.Random(stream)
        given = two_policies(
            rng.randrange(1, 14),
            limits=Limits(timeout_s=rng.choice([None, 1.0, 3.0]), max_steps=rng.choice([None, 2])),
        )
        wrap = thinks(
            rng.randrange(1, 4), fails=rng.choice([0.0, 0.2]), gives_up=rng.choice([None, 0.5])
        )
        _, episodes = gated(
            stream,
            given,
            seats(wrap),
            fails=rng.choice([0.0, 0.4]),
            concurrency=rng.randrange(1, 9),
            max_batch=rng.choice([1, 3, 256]),
        )
        assert [episode.id for episode in episodes] == sorted(plan.id for plan in given)


def test_an_episode_cut_by_time_while_it_waits_at_the_gate_leaves_the_count_right() -> None:
    """Both agents of episode 0 wait; episode 1 thinks for long; 0 is cut and its worker takes
    episode 2, which must wait for episode 1."""
    engine = Notes()
    slow = {0: 0.0, 1: 50.0, 2: 0.0}

    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        class Player:
            async def act(self, asked: Asked) -> str:
                seed = next(index for index in slow if rng_of(index, agent) == first)
                await asyncio.sleep(slow[seed])
                return (await sample(asked.transcript)).text

        first = rng.random()
        return Player()

    def rng_of(seed: int, agent: str) -> float:
        return random.Random(f"train/0/{seed}/0/{agent}").random()

    scenario = make("dilemma", rounds=1)
    given = [
        replace(plan, limits=Limits(timeout_s=10.0 if plan.seed == 0 else None))
        for plan in plans(3, scenario)
    ]
    behaviours = dict.fromkeys(scenario.agents, factory)
    policies = {"main": Policy("main", Batched(engine))}
    episodes, seconds = run(
        collect(
            play_many(given, policies, behaviours=behaviours, deterministic=True, concurrency=2)
        )
    )
    assert {episode.seed: episode.end for episode in episodes} == {
        0: End.TIMEOUT,
        1: End.TERMINATED,
        2: End.TERMINATED,
    }
    assert [[row[0].split("/")[2] for row in batch] for batch in engine.batches] == [
        ["1", "1", "2", "2"]
    ]
    assert seconds == pytest.approx(50.0)


@pytest.mark.parametrize("most", [700, 0, 10**6])
def test_garbage_is_looked_for_less_often_while_many_play(most: int) -> None:
    before = gc.get_threshold()
    seen: list[int] = []

    async def main() -> None:
        policies = {"main": Policy("main", Latency())}
        async for _ in play_many(plans(2), policies):
            seen.append(gc.get_threshold()[0])

    try:
        gc.set_threshold(most, *before[1:])
        run(main())
        assert gc.get_threshold() == (most, *before[1:])
    finally:
        gc.set_threshold(*before)
    # who looks less often, or not at all, is left alone
    assert seen == [max(most, YOUNG) if most else 0] * 2


def test_calls_in_threads_count_as_running_at_the_gate() -> None:
    engine = Notes()
    waits = threading.Event()
    slow = random.Random(1).randrange(100)

    def function(number: int) -> int:
        if number == slow:
            waits.wait(0.2)
        return number

    scenario = Outside(function)
    episodes, _ = run(
        collect(
            play_many(
                plans(3, scenario), {"main": Policy("main", Batched(engine))}, deterministic=True
            )
        )
    )
    assert {episode.end for episode in episodes} == {End.TERMINATED}
    assert [len(batch) for batch in engine.batches] == [3, 3]


def test_a_coroutine_that_waits_for_nothing_is_reported_as_a_deadlock_by_the_clock() -> None:
    (plan,) = plans(1)
    with pytest.raises(Deadlock):
        run(play(plan, {"main": Policy("main", Latency())}, {"a": Hangs}))
