"""Microseconds per turn of the kernel and of the three views, beside an environment of PettingZoo's
own, in one run.

Type `python tests/benchmarks/views.py`.

Legal play, every agent observes before it acts. Each figure is the best of several repetitions,
the columns in turn, so that what else the machine does falls on all alike; read them as ratios.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import gem_ma
from gem_ma import Game
from gem_ma.registry import make

REPEATS = 9
SCENARIOS = {
    "dilemma, 50 rounds": ("dilemma", {"rounds": 50}, 10),
    "kuhn_poker": ("kuhn_poker", {}, 200),
}


def kernel(name: str, options: dict[str, Any], episodes: int) -> int:
    scenario, turns = make(name, **options), 0
    for seed in range(episodes):
        game = Game(scenario, None, seed)
        while game.pending:
            game.send({agent: asked.legal[0] for agent, asked in game.pending.items()})
        turns += len(game.turns)
    return turns


def play_aec(env: Any, episodes: int, action: Callable[[Any, Any, Any], Any]) -> int:
    """Turns of so many AEC episodes; `action(env, observation, info)` chooses."""
    turns = 0
    for seed in range(episodes):
        env.reset(seed=seed)
        for _ in env.agent_iter():
            observation, _, terminated, truncated, info = env.last()
            dead = terminated or truncated
            env.step(None if dead else action(env, observation, info))
            turns += not dead
    return turns


def aec(name: str, options: dict[str, Any], episodes: int) -> int:
    return play_aec(
        gem_ma.aec_env(name, **options),
        episodes,
        lambda env, observation, info: info["action_mask"][0],
    )


def parallel(name: str, options: dict[str, Any], episodes: int) -> int:
    env, turns = gem_ma.parallel_env(name, **options), 0
    for seed in range(episodes):
        _, infos = env.reset(seed=seed)
        while env.agents:
            active = infos[env.agents[0]]["active_agents"]
            turns += len(active)
            infos = env.step({agent: infos[agent]["action_mask"][0] for agent in active})[4]
    return turns


def gym(name: str, options: dict[str, Any], episodes: int) -> int:
    env, turns = (
        gem_ma.gym_env(name, agent="player_0", others={"player_1": "first_legal"}, **options),
        0,
    )
    for seed in range(episodes):
        _, info = env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(
                info["action_mask"][0] if info["active"] else ""
            )
            done = terminated or truncated
        turns += len(env.game.turns)
    return turns


def pettingzoo() -> tuple[str, Callable[[], int]]:
    """(name, one repetition) of the first of PettingZoo's own environments that can be imported
    here."""
    try:
        from pettingzoo.classic import tictactoe_v3

        def first_free(env: Any, observation: Any, info: Any) -> int:
            return int(observation["action_mask"].argmax())

        return "tictactoe_v3.env()", lambda: play_aec(tictactoe_v3.env(), 20, first_free)
    except ImportError:
        from pettingzoo.test.example_envs import generated_agents_env_v0

        name = (
            "generated_agents_env_v0.env() (its own tic-tac-toe needs pygame, which is not"
            " installed)"
        )
        return name, lambda: play_aec(
            generated_agents_env_v0.env(),
            1,
            lambda env, o, i: env.action_space(env.agent_selection).sample(),
        )


def main() -> None:
    name, other = pettingzoo()
    columns = {"kernel": kernel, "AEC": aec, "Parallel": parallel, "Gym": gym}
    print(
        f"{'us per turn':22}"
        + "".join(f"{column:>10}" for column in columns)
        + f"{'PettingZoo':>12}"
    )
    for title, arguments in SCENARIOS.items():
        best = dict.fromkeys([*columns, "other"], float("inf"))
        for _ in range(REPEATS):
            for column, play in columns.items():
                best[column] = min(best[column], _timed(functools.partial(play, *arguments)))
            best["other"] = min(best["other"], _timed(other))
        print(
            f"{title:22}"
            + "".join(f"{best[column]:10.1f}" for column in columns)
            + f"{best['other']:12.1f}"
        )
    print(f"PettingZoo: {name}, through its default wrappers, same loop")


def _timed(play: Callable[[], int]) -> float:
    started = time.perf_counter()
    turns = play()
    return (time.perf_counter() - started) / turns * 1e6


if __name__ == "__main__":
    main()
