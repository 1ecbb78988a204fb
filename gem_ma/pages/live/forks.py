"""Forks: a recorded play that goes on otherwise from a step, where somebody types another action.

What was played before the step is replayed (`gem_ma.driver.forks`); at the step the other agents do
what they did; then the same players play on, or those who are named. Forks lie in forks.jsonl
beside the record, and are never part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.settings import Config
from gem_ma.driver.behaviour import as_factory, needs_policy
from gem_ma.driver.forks import Branch, scripted
from gem_ma.driver.rollout import Plan, play
from gem_ma.driver.seats import policies_of
from gem_ma.engines.base import stable_seed
from gem_ma.engines.small.human import typed_call
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.types import Action, Turn
from gem_ma.pages.static.notes import add_row, read_rows
from gem_ma.record.codec import from_json, to_json
from gem_ma.runs.open import Opened
from gem_ma.runs.worlds import World, Worlds

FILE = "forks.jsonl"
REPEATS = 1_000  # repeats from this number on are forks: no run tries a task so often
MOST = 500  # of one run
TIMEOUT_S = 120.0  # of a fork whose run sets no limit: somebody waits for it


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as it was played. `typed`: the steps at which somebody typed, in this play and in
    those that it goes back to; `seated`: agent -> the behaviour that was chosen for it;
    `first`: the repeat whose random numbers the behaviours drew."""

    episode: Episode
    of: tuple[str, int, int]
    step: int
    agent: str
    typed: tuple[int, ...]
    seated: Mapping[str, str]
    first: int


def forked(base: Fork, worlds: Worlds, number: int, wish: Mapping[str, Any], trusted: bool) -> Fork:
    """Plays a fork of a play. `wish`: `step`, `agent`, `text`, and `who` (agent -> behaviour).
    Raises ConfigError for what cannot be played."""
    step = int(wish["step"])
    agent = str(wish["agent"])
    text = str(wish["text"])
    of = base.episode
    turn = next((act for act in of.turns if (act.step, act.agent) == (step, agent)), None)
    if turn is None:
        raise ConfigError(f"agent {agent!r} did nothing at step {step}")
    world = worlds.of_episode(of)
    chosen = {name: str(who) for name, who in dict(wish.get("who") or {}).items() if who}
    seated = {**base.seated, **chosen}
    _check(world, of.cast, seated, trusted)
    cast = {
        name: Seat(seated[name]) if name in seated else world.config.agents[name].seat
        for name in of.cast
    }
    script = {name: _script(base, name, step, name in seated) for name in of.cast}
    script[agent][step] = _typed(text, turn)
    seed = str(stable_seed(*of.id, step, agent, text, number))
    limits = world.config.run.limits
    plan = Plan(
        world.scenario,
        cast,
        of.task,
        of.seed,
        REPEATS + number,
        limits=replace(limits, timeout_s=limits.timeout_s or TIMEOUT_S),
        call_timeout_s=world.config.run.call_timeout_s,
        options=of.options,
        branch=Branch(of, step, seed, base.first),
        world=of.world,
    )
    names = set().union(*map(policies_of, cast.values()))
    alone = _only(world.config, cast)
    policies = Opened.of(alone).of_policies(alone, tuple(names)) if names else {}
    behaviours = {name: scripted(taken.behaviour, script[name]) for name, taken in cast.items()}
    played = asyncio.run(play(plan, policies, behaviours))
    steps = tuple(sorted({*(known for known in base.typed if known < step), step}))
    return Fork(played, of.id, step, agent, steps, seated, base.first)


def _script(base: Fork, agent: str, step: int, replaced: bool) -> dict[int, Any]:
    """What an agent does again without being asked: at the step of the fork, at steps where
    somebody typed before, and, if somebody else plays on for it, at all until then."""
    return {
        turn.step: turn.action
        for turn in base.episode.turns
        if turn.agent == agent
        and turn.step <= step
        and (replaced or turn.step == step or turn.step in base.typed)
    }


def _only(config: Config, cast: Mapping[str, Seat]) -> Config:
    """The config without the seats that somebody else took: their models are not opened."""
    agents = {name: seat for name, seat in config.agents.items() if cast[name] == seat.seat}
    return config.model_copy(update={"agents": agents, "train": None})


def _typed(text: str, turn: Turn) -> Any:
    """What was typed as what the agent does: a call where it opens with a slash and the agent had
    tools, as at a terminal; else its words."""
    if turn.tools and text.startswith("/"):
        call = typed_call(text, turn.tools)
        if isinstance(call, str):
            raise ConfigError(call)
        return Action("", (call,))
    return text


def check_player(agent: str, who: str) -> None:
    """Raises ConfigError where a page may not seat this behaviour as an agent: nothing that it
    sends imports code or asks a model."""
    if not registry.known("agents", who):
        raise ConfigError(f"agent {agent!r}: no behaviour that is built in is called {who!r}")
    if needs_policy(who, as_factory(who)):
        raise ConfigError(f"agent {agent!r}: the behaviour {who!r} needs a model")


def _check(
    world: World, cast: Mapping[str, Seat], seated: Mapping[str, str], trusted: bool
) -> None:
    """Whether these players may be asked. A run folder may be a stranger's: unless the user trusts
    it, no model, tool or code that it names is used."""
    learned = world.config.train.policies if world.config.train is not None else ()
    for agent, who in seated.items():
        if agent not in cast:
            raise ConfigError(f"no agent is called {agent!r}")
        check_player(agent, who)
    for agent in cast:
        if agent in seated:
            continue
        settings = world.config.agents[agent]
        if settings.policy in learned:
            raise ConfigError(
                f"agent {agent!r} learned: the weights of that moment are gone; choose who plays it"
            )
        foreign = settings.policy or settings.tools or settings.policies or settings.memory
        if not trusted and (foreign or not registry.known("agents", settings.behaviour)):
            raise ConfigError(
                f"agent {agent!r} plays with a model, tools or code that the run folder names;"
                " choose who plays it, or trust the folder: gem-ma view RUN --trust"
            )


def base_of(episode: Episode) -> Fork:
    """A play of the record, as what a fork goes back to."""
    return Fork(episode, episode.id, 0, "", (), {}, episode.repeat)


# -- the file --------------------------------------------------------------------------------------


def read_forks(folder: Path, warn: Callable[[str], None]) -> dict[tuple[str, int, int], Fork]:
    """The forks of a run folder by their ids; `warn` is told of damage."""
    return {fork.episode.id: fork for fork in read_rows(folder / FILE, _of_row, warn)}


def _of_row(row: Any) -> Fork:
    task, seed, repeat = row["of"]
    return Fork(
        from_json(row["episode"]),
        (task, seed, repeat),
        row["step"],
        row["agent"],
        tuple(row["typed"]),
        dict(row["seated"]),
        row["first"],
    )


def write_fork(folder: Path, fork: Fork) -> None:
    """Adds a fork to those of a run folder. Raises StoreError."""
    row = {
        "of": list(fork.of),
        "step": fork.step,
        "agent": fork.agent,
        "typed": list(fork.typed),
        "seated": dict(fork.seated),
        "first": fork.first,
        "episode": to_json(fork.episode),
    }
    add_row(folder / FILE, row)


def room(forks: Mapping[tuple[str, int, int], Fork]) -> int:
    """The number of the next fork. Raises StoreError where there are too many."""
    if len(forks) >= MOST:
        raise StoreError(f"{FILE} holds {MOST} forks already; move the file away to go on")
    # not how many: of one whose line is damaged the number is taken
    return max((repeat - REPEATS + 1 for _, _, repeat in forks), default=0)
