"""What a turn costs in the kernel and in the views, in microseconds of CPU, beside the least that
Python needs and beside other libraries.

    python tests/benchmarks/kernel.py [--rounds 50] [--seconds 0.4]

Every row is the fastest of nine passes, the rows taking turns, so that a busy machine slows all
alike: read ratios. Rows of libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections.abc import Callable

from gem_ma.registry import make
from gem_ma.scenario import Ask, Game, Scenario
from gem_ma.types import Action

Pass = Callable[[int], int]  # plays the episode of a seed to its end; gives the number of turns


def kernel(scenario: Scenario) -> Pass:
    def play(seed: int) -> int:
        game = Game(scenario, seed=seed)
        chooser = random.Random(seed)
        while game.pending:
            game.send(
                {
                    agent: chooser.choice(asked.legal or ("x",))
                    for agent, asked in game.pending.items()
                }
            )
        return len(game.turns)

    return play


def bare(scenario: Scenario) -> Pass:
    """The same generator with nothing around it: no transcript, no ledger, no check, no record."""

    def play(seed: int) -> int:
        effects, turns, said = scenario.play(random.Random(seed), None), 0, None
        chooser = random.Random(seed)
        try:
            while True:
                effect = effects.send(said)
                said = None
                if isinstance(effect, Ask):
                    legal = tuple(effect.legal or ("x",))
                    said = {}
                    for agent in effect.to:
                        choice = chooser.choice(legal)
                        said[agent] = Action(choice, (), choice)
                    turns += len(said)
        except StopIteration:
            return turns

    return play


def fork(scenario: Scenario, step: int) -> Pass:
    """One fork in the middle; counted as one."""
    game = Game(scenario, seed=1)
    while game.pending:
        game.send(
            {agent: asked.legal[0] if asked.legal else "x" for agent, asked in game.pending.items()}
        )

    def play(seed: int) -> int:
        game.fork(step)
        return 1

    return play


def aec(make_env: Callable[[], object], mask: Callable[[object, object], object]) -> Pass:
    """Any PettingZoo AEC environment under random legal play; dead steps are not counted as
    turns."""
    env = make_env()

    def play(seed: int) -> int:
        env.reset(seed=seed)  # type: ignore[attr-defined]
        turns = 0
        chooser = random.Random(seed)
        for _agent in env.agent_iter():  # type: ignore[attr-defined]
            observation, _, termination, truncation, info = env.last()  # type: ignore[attr-defined]
            if termination or truncation:
                env.step(None)  # type: ignore[attr-defined]
                continue
            env.step(chooser.choice(mask(observation, info)))  # type: ignore[attr-defined, call-overload]
            turns += 1
        return turns

    return play


def openspiel(name: str) -> Pass:
    import pyspiel

    game = pyspiel.load_game(name)

    def play(seed: int) -> int:
        state, chooser, turns = game.new_initial_state(), random.Random(seed), 0
        while not state.is_terminal():
            legal = state.legal_actions()
            if not state.is_chance_node():
                turns += 1
                player = state.current_player()
                _ = (
                    state.information_state_string(player),
                    [state.action_to_string(player, action) for action in legal],
                )
            state.apply_action(chooser.choice(legal))
        return turns

    return play


def rows(rounds: int) -> dict[str, Pass]:
    dilemma, kuhn = make("dilemma", rounds=rounds), make("kuhn_poker")
    found = {
        f"dilemma({rounds}), bare generator": bare(dilemma),
        f"dilemma({rounds}), kernel": kernel(dilemma),
        f"dilemma({rounds}), fork at the middle (per fork)": fork(dilemma, rounds // 2),
        "kuhn_poker, bare generator": bare(kuhn),
        "kuhn_poker, kernel": kernel(kuhn),
        "kuhn_poker, fork at step 1 (per fork)": fork(kuhn, 1),
    }
    optional: dict[str, Callable[[], Pass]] = {
        f"dilemma({rounds}), AEC environment": lambda: view("dilemma", rounds=rounds),
        "kuhn_poker, AEC environment": lambda: view("kuhn_poker"),
        "PettingZoo tic-tac-toe, env()": lambda: pettingzoo("tictactoe_v3"),
        "OpenSpiel kuhn_poker, with text and legal names": lambda: openspiel("kuhn_poker"),
    }
    for name, build in optional.items():
        try:
            found[name] = build()
        except ImportError as error:
            print(f"left out: {name} ({error})")
        except Exception as error:  # PettingZoo raises its own kind where an extra is missing
            print(f"left out: {name} ({type(error).__name__}: {error})")
    return found


def view(name: str, **options: object) -> Pass:
    from gem_ma.envs.aec import aec_env

    return aec(lambda: aec_env(name, **options), lambda observation, info: info["action_mask"])  # type: ignore[index, arg-type]


def pettingzoo(name: str) -> Pass:
    import sys
    from importlib import import_module
    from types import ModuleType

    # only windows need it, and none is opened
    sys.modules.setdefault("pygame", ModuleType("pygame"))
    module = import_module(f"pettingzoo.classic.{name}")

    def mask(observation: object, info: object) -> list[int]:
        legal = observation.get("action_mask") if isinstance(observation, dict) else None
        return (
            [index for index, allowed in enumerate(legal) if allowed]
            if legal is not None
            else [0, 1, 2]
        )

    return aec(module.env, mask)


def measure(play: Pass, seconds: float) -> float:
    """Microseconds of CPU per turn."""
    turns, seed = 0, 0
    start = time.process_time()
    while (spent := time.process_time() - start) < seconds:
        for _ in range(8):
            turns += play(seed)
            seed += 1
    return spent / turns * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.4, help="per row")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = rows(given.rounds)
    passes = 9
    best = dict.fromkeys(found, float("inf"))
    for _ in range(passes):
        for name, play in found.items():
            best[name] = min(best[name], measure(play, given.seconds / passes))
    print("| what | us a turn |\n| --- | ---: |")
    for name, value in best.items():
        print(f"| {name} | {value:.1f} |")


if __name__ == "__main__":
    main()
