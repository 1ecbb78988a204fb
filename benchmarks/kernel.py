"""What a turn costs in the kernel and in the views, in microseconds of CPU, beside the least that
Python needs and beside other libraries.

    python benchmarks/kernel.py [--rounds 50] [--seconds 0.4]

Every row is the median of nine rounds in which all rows take turns, so that a busy machine slows
all alike: read ratios. PettingZoo's games stand beside ours of the same kind, with the wrappers
that they come in and without: ours checks order and legality itself. Rows of libraries that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

from gem_ma.driver.rollout import Plan
from gem_ma.driver.rollout import play as rollout
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.scenario import Ask, Game, Play, Scenario, Tell
from gem_ma.kernel.types import Action
from gem_ma.registry import make

Pass = Callable[[int], int]  # plays the episode of a seed to its end; gives the number of turns


class Talk(Scenario):
    """Each of many agents speaks in turn, and all others hear it."""

    id = "talk"
    version = 1

    def __init__(self, agents: int) -> None:
        self.agents = tuple(f"a{number}" for number in range(agents))

    def play(self, rng: random.Random, task: Any) -> Play:
        for turn in range(300):
            who = self.agents[turn % len(self.agents)]
            said = yield Ask({who: "your turn"}, ("hello",))
            line = f"{who}: {said[who].text}"
            yield Tell({agent: line for agent in self.agents if agent != who})


def driver(scenario: Scenario) -> Pass:
    """The driver with a bot in each seat, each play on a loop of its own."""
    cast = {agent: Seat(behaviour="random_legal") for agent in scenario.agents}

    def play(seed: int) -> int:
        return len(asyncio.run(rollout(Plan(scenario, cast, seed=seed))).turns)

    return play


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


def textarena(name: str, **options: object) -> Pass:
    """A game of TextArena without its wrappers, which would write the whole history at each look:
    an agent gets the messages that are new to it, as our turns hold them."""
    import textarena

    env = textarena.make(name, **options)
    while hasattr(env, "env"):
        env = env.env

    def moves() -> list[str]:
        state = env.state.game_state
        if "board" not in state:
            return list(state["current_legal_action_tree"])
        marks = [mark for row in state["board"] for mark in row]
        return [str(square) for square, mark in enumerate(marks) if not mark]

    def play(seed: int) -> int:
        env.reset(num_players=2, seed=seed)
        chooser, turns, done = random.Random(seed), 0, False
        while not done:
            env.get_observation()
            done = env.step(f"[{chooser.choice(moves())}]")[0]
            turns += 1
        return turns

    return play


def rows(rounds: int) -> dict[str, Pass]:
    bare_form: dict[str, Any] = {"rounds": rounds, "briefing": False}
    dilemma, kuhn = make("dilemma", **bare_form), make("kuhn_poker")
    found = {
        f"dilemma({rounds}), bare generator": bare(dilemma),
        f"dilemma({rounds}), kernel": kernel(dilemma),
        f"dilemma({rounds}), two bots under the driver": driver(dilemma),
        f"dilemma({rounds}), fork at the middle (per fork)": fork(dilemma, rounds // 2),
        "kuhn_poker, bare generator": bare(kuhn),
        "kuhn_poker, kernel": kernel(kuhn),
        "kuhn_poker, fork at step 1 (per fork)": fork(kuhn, 1),
    }
    found |= {f"one of {number} speaks, kernel": kernel(Talk(number)) for number in (8, 64)}
    optional: dict[str, Callable[[], Pass]] = {
        "one of 8 speaks, AEC environment": lambda: view(Talk(8)),
        "one of 8 speaks, Parallel environment": lambda: parallel(Talk(8)),
        "one of 64 speaks, AEC environment": lambda: view(Talk(64)),
        "one of 64 speaks, Parallel environment": lambda: parallel(Talk(64)),
        f"dilemma({rounds}), AEC environment": lambda: view("dilemma", **bare_form),
        f"dilemma({rounds}), Parallel environment": lambda: parallel("dilemma", **bare_form),
        f"dilemma({rounds}), Gymnasium environment": lambda: gym("dilemma", **bare_form),
        f"PettingZoo rps({rounds}), env()": lambda: pettingzoo("rps_v2", "env", max_cycles=rounds),
        f"PettingZoo rps({rounds}), raw_env()": lambda: pettingzoo(
            "rps_v2", "raw_env", max_cycles=rounds
        ),
        "kuhn_poker, AEC environment": lambda: view("kuhn_poker"),
        "tic_tac_toe, AEC environment": lambda: view("tic_tac_toe"),
        "PettingZoo tic-tac-toe, env()": lambda: pettingzoo("tictactoe_v3", "env"),
        "PettingZoo tic-tac-toe, raw_env()": lambda: pettingzoo("tictactoe_v3", "raw_env"),
        "tic_tac_toe, kernel": lambda: kernel(make("tic_tac_toe")),
        "TextArena TicTacToe-v0": lambda: textarena("TicTacToe-v0"),
        "TextArena KuhnPoker-v0 of one hand": lambda: textarena("KuhnPoker-v0", max_rounds=1),
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


def view(name: str | Scenario, **options: object) -> Pass:
    from gem_ma.envs.aec import aec_env

    return aec(lambda: aec_env(name, **options), lambda observation, info: info["action_mask"])  # type: ignore[index, arg-type]


def parallel(name: str | Scenario, **options: object) -> Pass:
    from gem_ma.envs.parallel import parallel_env

    env = parallel_env(name, **options)  # type: ignore[arg-type]

    def play(seed: int) -> int:
        chooser, turns = random.Random(seed), 0
        infos = env.reset(seed=seed)[1]
        while env.agents:
            active = infos[env.agents[0]]["active_agents"]
            turns += len(active)
            moves = {agent: chooser.choice(infos[agent]["action_mask"]) for agent in active}
            infos = env.step(moves)[4]
        return turns

    return play


def gym(name: str, **options: object) -> Pass:
    """One agent's environment; the other's turns count too."""
    from gem_ma.envs.gym import gym_env

    others = {"player_1": "random_legal"}
    env = gym_env(name, agent="player_0", others=others, **options)  # type: ignore[arg-type]

    def play(seed: int) -> int:
        chooser, over = random.Random(seed), False
        info = env.reset(seed=seed)[1]
        while not over:
            move = chooser.choice(info["action_mask"]) if info["active"] else ""
            _, _, terminated, truncated, info = env.step(move)
            over = terminated or truncated
        return len(env.game.turns)

    return play


def pettingzoo(name: str, make_env: str, **options: object) -> Pass:
    import sys
    from importlib import import_module
    from types import ModuleType

    # only windows need it, and none is opened; rps draws up one at each reset
    blank = ModuleType("pygame")
    vars(blank)["Surface"] = lambda *_: None
    sys.modules.setdefault("pygame", blank)
    module = import_module(f"pettingzoo.classic.{name}")

    def mask(observation: object, info: object) -> list[int]:
        legal = observation.get("action_mask") if isinstance(observation, dict) else None
        return (
            [index for index, allowed in enumerate(legal) if allowed]
            if legal is not None
            else [0, 1, 2]
        )

    return aec(lambda: getattr(module, make_env)(**options), mask)


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
    parser.add_argument("--only", nargs="+", default=[""], help="rows with one of these texts")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    every = rows(given.rounds)
    found = {name: every[name] for name in every if any(text in name for text in given.only)}
    passes = 9
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(passes):
        for name, play in found.items():
            times[name].append(measure(play, given.seconds / passes))
    print("| what | us a turn |\n| --- | ---: |")
    for name, values in times.items():
        print(f"| {name} | {statistics.median(values):.1f} |")


if __name__ == "__main__":
    main()
