"""A real model plays tasks of every family, beside players that need no model.

    python benchmarks/model_plays.py models/smollm2 [--tasks 20] [--only retail kuhn_poker]

Every scenario of the registry is played once for each of its agents: the model in that seat, the
others as the scenario casts them (at random where it casts nobody); the shop once more with the
model in both, and games of TextArena only so. Ids of other libraries (`FOREIGN`) are played where
this Python can import them, else the line says what to install. `ID+TOOL` is a world with a tool for the model, as `arithmetic+python`;
this model's template knows no tools, so they stand before the briefing as text.
`success` stands with a 95 % interval (Wilson), or else the agent's mean return with one of the
mean. The trivial columns are random legal answers and the best of the scenario's own
`baseline_casts` in that seat; "-" where it has none, or where no answer is listed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gem_ma import Episode, Scenario, play_many, registry
from gem_ma.config.loading import load
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.types import Sampling
from gem_ma.runs.plans import evaluation_plans, scenario_of
from gem_ma.scores.stats import skewed_t, wilson

FOREIGN = (
    "openspiel:kuhn_poker",
    "openspiel:leduc_poker",
    "openspiel:tic_tac_toe",
    "gymnasium:FrozenLake-v1",
    "gymnasium:Blackjack-v1",
    "gymnasium:CliffWalking-v1",
    "gymnasium:MiniGrid-Empty-5x5-v0",
    "gymnasium:BabyAI-GoToRedBallGrey-v0",
    "pettingzoo:connect_four_v3",
    "textarena:TicTacToe-v0",
    "textarena:KuhnPoker-v0",
    "gem:game:GuessTheNumber-v0-easy",
    "gem:game:Mastermind-v0-easy",
    "reasoning_gym:letter_counting",
    "reasoning_gym:chain_sum",
    "reasoning_gym:spell_backward",
    "textworld:tw-simple",
)
TOOLS = ("arithmetic+python",)
# how the model sits where a bare prompt is not enough: tools as text, and customers of the shop
SEATS = {
    ("retail", "assistant"): {"behaviour": "act"},
    ("retail", "user"): {"behaviour": "retail_user_llm"},
}
# what a world is asked for: prompts that a model of 135M reads, and twenty tasks
OVERRIDES = {"retail": ["scenario.data=own"], "textworld:tw-simple": ["scenario.games=20"]}
# steps; a small model never says goodbye, and scripts of the shop need 5 to 9; nor does it find out
# of a room in which it has turned on the spot for long
LONGEST = {
    "retail": 10,
    "gymnasium:MiniGrid-Empty-5x5-v0": 20,
    "gymnasium:BabyAI-GoToRedBallGrey-v0": 20,
    "textworld:tw-simple": 20,
}
STEPS = 60


def config_of(name: str, seats: Mapping[str, Any], tasks: int) -> tuple[Any, Scenario]:
    """A config that seats agents in a scenario, and its scenario."""
    named = (
        ["policies.main.model=transformers/."] if any("main" in s for s in seats.values()) else []
    )
    lines = [*named, *(f"agents.{agent}={seat}" for agent, seat in seats.items())]
    limits = [f"scenario.tasks={tasks}", f"run.max_steps={LONGEST.get(name, STEPS)}"]
    loaded = load(
        name.partition("+")[0], (*OVERRIDES.get(name, ()), *lines, *limits)
    ).without_training()
    return loaded.config, scenario_of(loaded.config)


def played(
    name: str, seats: Mapping[str, Any], tasks: int, policies: Mapping[str, Policy]
) -> tuple[Scenario, list[Episode]]:
    async def work() -> list[Episode]:
        plans = list(evaluation_plans(config, scenario))[:tasks]
        return [episode async for episode in play_many(plans, policies, concurrency=tasks)]

    config, scenario = config_of(name, seats, tasks)
    return scenario, asyncio.run(work())


def score(scenario: Scenario, agent: str, episodes: list[Episode]) -> str:
    """Success, or the agent's mean return, with an interval."""
    done = [episode for episode in episodes if episode.end.scored]
    judged = [scenario.success(episode) for episode in done]
    if done and None not in judged:
        low, high = wilson(sum(map(bool, judged)), len(judged))
        return f"success {sum(map(bool, judged)) / len(judged):.2f} [{low:.2f}, {high:.2f}]"
    returns = [episode.returns()[agent] for episode in done]
    if not returns:
        return f"none of {len(episodes)} ended"
    low, high = skewed_t(returns) if len(returns) > 1 else (returns[0], returns[0])
    return f"return {sum(returns) / len(returns):.2f} [{low:.2f}, {high:.2f}]"


def line(name: str, agents: Sequence[str], tasks: int, policies: Mapping[str, Policy]) -> str:
    """A row of the table: the model in these seats, then those who need no model."""
    start, agent = time.process_time(), agents[0]
    tool = name.partition("+")[2]
    belt = {"tools": f"[{tool}]"} if tool else {}
    mine = {
        seat: _yaml({**SEATS.get((name, seat), {}), **belt, "policy": "main"}) for seat in agents
    }
    scenario, episodes = played(name, mine, tasks, policies)
    failed = [episode for episode in episodes if episode.error]
    replies = [r for e in episodes for turn in e.turns for r in turn.replies if r.policy == "main"]
    seconds = time.process_time() - start
    cut = f", {LONGEST[name]} steps" if name in LONGEST else ""
    cells = [name + cut, " and ".join(agents), str(len(episodes))]
    cells.append(score(scenario, agent, episodes))
    # what fills one seat at random is no measure of a model in all of them
    cells += trivial(name, agent, scenario, tasks) if len(agents) == 1 else ["-", "-"]
    cells += [str(sum(len(reply.token_ids or ()) for reply in replies)), f"{seconds:.0f}"]
    if failed:
        print(f"  {name}: {len(failed)} failed: {failed[0].error}", file=sys.stderr)
    return f"| {' | '.join(cells)} |"


def trivial(name: str, agent: str, scenario: Scenario, tasks: int) -> Iterator[str]:
    """The score of random answers, and of the best of the scenario's baselines."""
    episodes = played(name, {agent: "{behaviour: random_legal}"}, tasks, {})[1]
    # where nothing is listed it says any word, which measures nothing
    listed = any(turn.legal for e in episodes for turn in e.turns if turn.agent == agent)
    yield score(scenario, agent, episodes) if listed else "-"
    best = []
    for label, cast in scenario.baseline_casts.items():
        seats = {seat: _yaml({"behaviour": who}) for seat, who in cast.items()}
        try:
            best.append((score(scenario, agent, played(name, seats, tasks, {})[1]), label))
        except GemMaError as error:
            print(f"  {name}, {label}: {error}", file=sys.stderr)
    top = max(best, key=lambda pair: float(pair[0].split()[1]), default=None)
    yield f"{top[1]}: {top[0]}" if top else "-"


def _yaml(seat: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in seat.items()) + "}"


def rows(names: list[str], tasks: int, policies: Mapping[str, Policy]) -> Iterator[str]:
    for name in names:
        try:
            agents = config_of(name, {}, 1)[1].agents
        except GemMaError as error:
            yield f"| {name} | - | 0 | not here: {error} | | | | |"
            continue
        alone = [(agent,) for agent in agents]
        # TextArena lists no answers, and who says any word at its first turn has lost
        apart = [] if name.startswith("textarena:") else alone
        for seats in [*apart, *([agents] if name == "retail" or not apart else [])]:
            try:
                yield line(name, seats, tasks, policies)
            except GemMaError as error:
                yield f"| {name} | {' and '.join(seats)} | 0 | {str(error).splitlines()[0]} | | | | |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32, help="of a reply, at most")
    parser.add_argument(
        "--only", nargs="+", help="ids; else every id of the registry, TOOLS and FOREIGN"
    )
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    engine = open_engine("main", f"transformers/{given.model}", dtype=given.dtype, constrain="auto")
    policies = {"main": Policy("main", engine, Sampling(max_tokens=given.tokens))}
    print("| id | agent | tasks | the model | random | best of its baselines | tokens | CPU s |")
    print("| --- | --- | ---: | --- | --- | --- | ---: | ---: |")
    names = given.only or [*registry.catalog("scenarios"), *TOOLS, *FOREIGN]
    for row in rows(names, given.tasks, policies):
        print(row, flush=True)


if __name__ == "__main__":
    main()
