"""A tiny model that is warm: made for a scenario, then cloned from scripted behaviours, and asked
whether it listens.

The tokenizer has heard the demonstrated plays, so it knows their words. What was cloned and what
is asked afterwards are different demonstrations.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.behaviour import needs_policy
from gem_ma.config.settings import Config
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.local.untrained import MARK, NOTE
from gem_ma.errors import ConfigError, StoreError
from gem_ma.training.learner.rows import Demonstration
from gem_ma.training.loop.roles import LocalPlayers
from gem_ma.training.schedule.plans import demonstrations

ASKED = 5  # one demonstration in so many is not cloned
DEAF = 0.05  # nats


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

    `listens`: see `gem_ma.training.learner.cloning.listens`; below .05 nats the model ignores what it is
    shown, as do those that it learned from. `made`: further arguments of `make_model`; its
    `seed` draws the plays too. Raises ConfigError for agents and behaviours that do not fit.
    """
    from gem_ma.engines.local.tiny import make_model
    from gem_ma.training.learner.cloning import clone, listens
    from gem_ma.training.learner.torch_learner import TorchLearner

    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(
            f"{target}: exists already and is left as it is; name a new folder, or remove this one"
            " first"
        )
    played = registry.make(scenario)
    cloned = list(agents) or list(played.agents)
    _check(played.id, played.agents, cast, cloned)
    seed = int(made.get("seed", 0))
    seats = {agent: {"behaviour": behaviour} for agent, behaviour in cast.items()}
    warm = WarmStartSettings.model_validate(
        {"cast": seats, "episodes": episodes, "steps": steps, "seed": seed}
    )
    learned = {"policies": [], "warm_start": {"main": warm.model_dump()}}
    owners = {
        agent: {"policy": "main"} if agent in cloned else seats[agent] for agent in played.agents
    }
    config = Config.model_validate(
        {
            "scenario": {"id": scenario},
            "agents": owners,
            "policies": {"main": {"model": "transformers/"}},
            "train": learned,
        }
    )
    unheard: Any = None  # scripted plays sample from nothing
    main = Policy("main", unheard)
    players = LocalPlayers(config, {"main": main})
    shown = asyncio.run(demonstrations(config, played, players, main, warm))
    asked = shown[::ASKED] if len(shown) > ASKED else []
    cloning = [one for at, one in enumerate(shown) if not asked or at % ASKED]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # renamed when whole
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise StoreError(f"{target}: the model could not be written: {error}") from error
    try:
        facts = make_model(scratch / "model", played, heard=dict.fromkeys(_heard(shown)), **made)
        engine: Any = open_engine("main", f"transformers/{scratch / 'model'}")
        learner = TorchLearner(engine.engine)
        told = clone(learner, cloning, warm)
        learner.publish()
        facts |= {
            "path": str(target),
            "cloned": cloned,
            "loss": told["loss"],
            "listens": listens(learner, asked),
        }
        note = json.loads((scratch / "model" / NOTE).read_text(encoding="utf-8"))
        del note[MARK]  # it has learned
        note |= {
            "cast": dict(cast),
            "episodes": episodes,
            "steps": steps,
            **{key: facts[key] for key in ("cloned", "loss", "listens")},
        }
        try:
            engine.engine.save(scratch / "model")
            (scratch / "model" / NOTE).write_text(
                json.dumps(note, indent=2) + "\n", encoding="utf-8"
            )
            os.replace(scratch / "model", target)
        except OSError as error:
            raise StoreError(f"{target}: the model could not be written: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return facts


def _check(
    scenario: str, known: Sequence[str], cast: Mapping[str, str], cloned: Sequence[str]
) -> None:
    for agent in (*cast, *cloned):
        if agent not in known:
            raise ConfigError(
                f"{scenario} has no agent {agent!r}; its agents are {', '.join(known)}"
            )
    empty = [agent for agent in known if agent not in cast]
    if empty:
        raise ConfigError(
            f"nobody plays {empty[0]!r} of {scenario} in the demonstrations; name a behaviour for"
            f" every agent: {', '.join(known)}"
        )
    for agent, behaviour in cast.items():
        if needs_policy(behaviour, registry.load("agents", behaviour)):
            raise ConfigError(
                f"agent {agent!r}: {behaviour} samples from a policy, and demonstrations are"
                " scripted; see: gem-ma list agents"
            )


def _heard(shown: Sequence[Demonstration]) -> Iterator[str]:
    for one in shown:
        yield from (message.text for message in one.request.messages)
        yield one.text
        yield from (json.dumps(call.arguments) for call in one.calls if hasattr(call, "arguments"))
