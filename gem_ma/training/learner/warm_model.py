"""A tiny model with a warm start: made for a scenario, cloned from scripted behaviours, then tested
for whether it listens.

The tokenizer is made from the demonstrated plays, so it knows their words. Other demonstrations
are cloned than are used for the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.settings import Config
from gem_ma.config.training import WarmStartSettings
from gem_ma.driver.behaviour import needs_policy
from gem_ma.engines.base import Policy
from gem_ma.engines.local.tiny import check_new, make_model, place_new
from gem_ma.engines.local.untrained import MARK, NOTE
from gem_ma.engines.opening import open_engine
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import ToolCall
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner.cloning import clone, listens
from gem_ma.training.learner.rows import Demonstration
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.demonstrations import demonstrations

ASKED = 5  # one demonstration in so many is not cloned, but used to test the clone
DEAF = 0.05  # nats; a clone below it answers about alike whatever it is shown


def make_warm_model(
    path: str | Path,
    scenario: str,
    cast: Mapping[str, str],
    agents: Sequence[str] = (),
    *,
    steps: int = 400,
    episodes: int = 1024,
    **made: Any,
) -> dict[str, Any]:
    """`make_model`, then behaviour cloning of `agents` (all) from plays of `cast`, agent ->
    behaviour; adds {cloned, loss, listens} to what it gives.

    `listens`: see `gem_ma.training.learner.cloning.listens`; below .05 nats the model ignores what
    it is shown, as do those that it learned from. `made`: further arguments of `make_model`; its
    `seed` draws the plays too. Raises ConfigError for agents and behaviours that do not fit.
    """
    target = Path(path)
    check_new(target)  # before minutes of cloning
    game = registry.make(scenario)
    cloned = list(agents) or list(game.agents)
    _check(game.id, game.agents, cast, cloned)
    seats = {agent: {"behaviour": behaviour} for agent, behaviour in cast.items()}
    numbers = {"episodes": episodes, "steps": steps, "seed": int(made.get("seed", 0))}
    warm = WarmStartSettings.model_validate({"cast": seats, **numbers})
    examples = _examples(scenario, game, warm, cloned)
    # what is asked afterwards was not cloned, or memory would pass for listening
    asked = examples[::ASKED] if len(examples) > ASKED else []
    lessons = [one for number, one in enumerate(examples) if not asked or number % ASKED]

    def write(folder: Path) -> dict[str, Any]:
        facts = make_model(folder, game, heard=dict.fromkeys(_texts(examples)), **made)
        # opened from the folder, as any run will, so that what is cloned is what is written
        engine: Any = open_engine("main", f"{facts['engine']}/{folder}")
        learner = TorchLearner(engine.engine)
        loss = clone(learner, lessons, warm)["loss"]
        learner.publish()  # checks the clone, and lifts the mark that its weights are in doubt
        result = {"cloned": cloned, "loss": loss, "listens": listens(learner, asked)}
        plays = {"cast": dict(cast), "episodes": episodes, "steps": steps}
        engine.engine.save(folder)
        _write_note(folder / NOTE, {**plays, **result})
        return {**facts, "path": str(target), **result}

    return place_new(target, write)


def _examples(
    scenario: str, game: Scenario, warm: WarmStartSettings, cloned: Sequence[str]
) -> list[Demonstration]:
    """What these agents were asked and answered in the scripted plays of a warm start."""
    seats = {agent: seat.model_dump(exclude_unset=True) for agent, seat in warm.cast.items()}
    owners = {
        agent: {"policy": "main"} if agent in cloned else seats[agent] for agent in game.agents
    }
    config = Config.model_validate(
        {
            "scenario": {"id": scenario},
            "agents": owners,
            "policies": {"main": {"model": "transformers/"}},
            "train": {"policies": [], "warm_start": {"main": warm.model_dump()}},
        }
    )
    nothing: Any = None  # scripted plays sample from nothing, and the model is not made yet
    main = Policy("main", nothing)
    players = LocalPlayers(config, {"main": main})
    return asyncio.run(demonstrations(Worlds.of(config, game), players, main, warm))


def _write_note(path: Path, facts: Mapping[str, Any]) -> None:
    """Adds facts to the note of a made model, and takes the mark away that it has not learned."""
    note = json.loads(path.read_text(encoding="utf-8"))
    del note[MARK]
    path.write_text(json.dumps({**note, **facts}, indent=2) + "\n", encoding="utf-8")


def _check(
    scenario: str, known: Sequence[str], cast: Mapping[str, str], cloned: Sequence[str]
) -> None:
    for agent in (*cast, *cloned):
        if agent not in known:
            raise ConfigError(
                f"{scenario} has no agent {agent!r}; its agents are {', '.join(known)}"
            )
    # the agents that are not cloned play too, and a demonstration has no defaults
    empty = [agent for agent in known if agent not in cast]
    if empty:
        raise ConfigError(
            f"nobody plays {empty[0]!r} of {scenario} in the demonstrations; name a behaviour for"
            f" every agent: {', '.join(known)}"
        )
    # no policy is open here: the model that could play is being made
    for agent, behaviour in cast.items():
        if needs_policy(behaviour, registry.load("agents", behaviour)):
            raise ConfigError(
                f"agent {agent!r}: {behaviour} samples from a policy, and demonstrations are"
                " scripted; see: gem-ma list agents"
            )


def _texts(examples: Sequence[Demonstration]) -> Iterator[str]:
    """All words of the plays, so that the tokenizer knows them."""
    for example in examples:
        yield from (message.text for message in example.request.messages)
        yield example.text
        calls = (call for call in example.calls if isinstance(call, ToolCall))
        yield from (json.dumps(call.arguments) for call in calls)
