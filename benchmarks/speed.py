"""Microseconds a step beside GEM, in one run, and what a straggler costs many environments.

    .venv-gem/bin/python benchmarks/speed.py     (make .venv-gem/world.done builds that)

In another environment the rows of GEM are left out. Single loops, resets included, of CPU time: the
median of rounds in which all take turns, so that what else the machine does falls on all alike.
`make_vec` is measured by the clock: eight environments whose steps sleep for 5 ms, one of them for
200 ms; ideal are threads that sleep as long and do nothing else, a barrier is the slowest of each
step.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gem_ma
from gem_ma import Action, Ask, Call, Game, Scenario
from gem_ma.registry import make

DRAWS, BATCH = 997, 16  # actions drawn beforehand; steps between two looks at the clock
SHORT, LONG = 0.005, 0.2  # seconds of a step, and of the straggler's
PAIRS = 9  # measurements of `make_vec` and of ideal threads; the median ratio counts
GAMES = {"easy": (10, 4), "hard": (50, 7)}  # numbers and turns of GuessTheNumber
TASKS = ("letter_counting", "arc_1d", "spell_backward", "chain_sum")  # of reasoning_gym
Loop = Callable[[], bool]  # plays one step; true where that ended an episode


def choices(numbers: int) -> list[str]:
    """Guesses as a model says them; GEM reads no others."""
    return [f"\\boxed{{{number}}}" for number in range(1, numbers + 1)]


def draws(among: Any) -> Iterator[Any]:
    """The same random choices for ever, drawn beforehand."""
    rng = random.Random(0)
    drawn = [rng.choice(list(among)) for _ in range(DRAWS)]
    while True:
        yield from drawn


def gem_loop(name: str, among: Any, wrap: Callable[[Any], Any] | None = None) -> Loop:
    """GEM's own loop, on its own environment."""
    import gem

    env = gem.make(name)
    env = wrap(env) if wrap else env
    actions, seeds = draws(among), iter(range(10**9))
    env.reset(seed=next(seeds))

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset(seed=next(seeds))

    return step  # type: ignore[return-value]


def bare(numbers: int, turns: int) -> Loop:
    """The author's generator alone, without the kernel."""
    scenario: Any = make("guess_number", numbers=numbers, turns=turns)
    said = [Action(choice, (), choice[7:-1]) for choice in choices(numbers)]
    actions, seeds = draws([{"player": action} for action in said]), iter(range(10**9))
    state: dict[str, Any] = {}

    def start() -> None:
        state["play"] = scenario.play(random.Random(next(seeds)), None)
        next(state["play"])

    def step() -> None:
        try:
            effect = state["play"].send(next(actions))
            while not isinstance(effect, Ask):
                effect = state["play"].send(None)
        except StopIteration:
            start()

    start()
    return step  # type: ignore[return-value]


def kernel(numbers: int, turns: int) -> Loop:
    """`Game`: transcripts, turns, ledger."""
    scenario = make("guess_number", numbers=numbers, turns=turns)
    actions, seeds = draws(choices(numbers)), iter(range(10**9))
    state = {"game": Game(scenario, None, next(seeds))}

    def step() -> None:
        game = state["game"]
        game.send({"player": next(actions)})
        if not game.pending:
            state["game"] = Game(scenario, None, next(seeds))

    return step  # type: ignore[return-value]


def view(numbers: int, turns: int) -> Loop:
    """The Gymnasium view."""
    env = gem_ma.gym_env("guess_number", agent="player", numbers=numbers, turns=turns)
    actions, seeds = draws(choices(numbers)), iter(range(10**9))
    env.reset(seed=next(seeds))

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset(seed=next(seeds))

    return step  # type: ignore[return-value]


def vector(numbers: int, turns: int) -> Loop:
    """One of eight environments of `make_vec`, which start anew by themselves."""
    many = gem_ma.make_vec("guess_number", 8, numbers=numbers, turns=turns, autoreset=True)
    actions = draws(choices(numbers))
    many.reset()
    state: dict[str, Any] = {"left": 0}

    def step() -> None:
        if not state["left"]:
            asked = many.asked
            many.step({number: next(actions) for number in asked})
            state["left"] = len(asked)
        state["left"] = max(0, state["left"] - 1)

    return step  # type: ignore[return-value]


def question(name: str) -> Loop:
    """A task of reasoning_gym in the kernel: a question and an answer, of 500 in turn."""
    scenario: Any = make(f"reasoning_gym:{name}")
    tasks, numbers = scenario.tasks("train"), iter(range(10**9))

    def step() -> None:
        number = next(numbers)
        Game(scenario, tasks[number % len(tasks)], number).send({"agent_0": "\\boxed{5}"})

    for _ in tasks:  # questions are made once, as GEM makes its 500 in the first rounds
        step()
    return step  # type: ignore[return-value]


def rows() -> dict[str, Loop]:
    """Every loop that can run here, by its name in the table."""
    found: dict[str, Loop] = {}
    for level, (numbers, turns) in GAMES.items():
        game = f"game:GuessTheNumber-v0-{level}"
        boxed = choices(numbers)
        where = f"{numbers} numbers, {turns} turns"
        try:
            found[f"GEM, {where}"] = gem_loop(game, boxed)
            found[f"GEM, {where}, concat wrapper"] = gem_loop(game, boxed, concatenated)
        except ImportError:
            pass
        found[f"bare generator, {where}"] = bare(numbers, turns)
        found[f"kernel, {where}"] = kernel(numbers, turns)
        found[f"Gymnasium view, {where}"] = view(numbers, turns)
        found[f"make_vec of 8, {where}"] = vector(numbers, turns)
    for name in TASKS if find_spec("gem") else ():
        found[f"GEM, rg:{name}"] = gem_loop(f"rg:{name}", ["\\boxed{5}"])
        found[f"kernel, rg:{name}"] = question(name)
    return found


def concatenated(env: Any) -> Any:
    """GEM's wrapper that shows all that was said until now, as our views do."""
    from gem.wrappers.observation_wrapper import ObservationWrapper

    return ObservationWrapper(env, include_action=True, include_chat_template=False)


def spent(step: Loop, seconds: float) -> float:
    """Microseconds of CPU a step."""
    steps, start = 0, time.process_time()
    while (used := time.process_time() - start) < seconds:
        for _ in range(BATCH):
            step()
        steps += BATCH
    return 1e6 * used / steps


class Sleeper(Scenario):
    """Each step waits for something outside."""

    agents = ("me",)
    chance = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def play(self, rng: random.Random, task: Any) -> Any:
        while True:
            yield Ask({"me": "next"}, ("on",))
            yield Call(time.sleep, self.seconds)


def straggler(seconds: float, latencies: list[float]) -> float:
    """Steps a second of environments that sleep so long."""
    with gem_ma.make_vec([Sleeper(latency) for latency in latencies]) as many:
        ready, steps, start = many.reset(), 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            ready = many.step(dict.fromkeys(many.asked, "on"))
            steps += len(ready)
        return steps / (time.perf_counter() - start)


def asleep(seconds: float, latencies: list[float]) -> float:
    """Steps a second of threads that do nothing else than sleep so long."""

    def sleep(latency: float) -> int:
        steps, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            time.sleep(latency)
            steps += 1
        return steps

    with ThreadPoolExecutor(len(latencies)) as pool:
        return sum(pool.map(sleep, latencies)) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.12, help="of a row in a round")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    options = parser.parse_args()
    loops = {name: loop for name, loop in rows().items() if options.only in name}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(options.rounds):
        for name, loop in loops.items():
            times[name].append(spent(loop, options.seconds))
    print("| loop | us a step | least | x GEM |\n| --- | ---: | ---: | ---: |")
    for name, values in times.items():
        beside = times.get(f"GEM, {name.split(', ', 1)[1].removesuffix(', concat wrapper')}")
        ratio = f"{statistics.median(values) / statistics.median(beside):.2f}" if beside else ""
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f} | {ratio} |")
    if options.only:
        return
    print("\n| 8 environments | steps/s | ideal | of ideal | with a barrier |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, latencies in {
        "5 ms each": [SHORT] * 8,
        "one of 200 ms": [LONG, *[SHORT] * 7],
    }.items():
        # in turn, in short pieces: what else the machine does falls on both
        pairs = [(straggler(1.0, latencies), asleep(1.0, latencies)) for _ in range(PAIRS)]
        rate, ideal = sorted(pairs, key=lambda pair: pair[0] / pair[1])[PAIRS // 2]
        barrier = len(latencies) / max(latencies) / ideal
        print(f"| {name} | {rate:.0f} | {ideal:.0f} | {rate / ideal:.1%} | {barrier:.1%} |")


if __name__ == "__main__":
    main()
