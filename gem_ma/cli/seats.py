"""Short forms of the command line: `--assistant openai/X` seats a model, a behaviour or a person
as that agent.

A word that begins with two dashes and is not an option of the command is taken for the name of an
agent. What follows it becomes an override of `agents:`, so that the run's digest and its record
know it as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from gem_ma import registry
from gem_ma.config.loading import Loaded, load
from gem_ma.config.schema import sections_of
from gem_ma.config.settings import Config
from gem_ma.engines.capabilities import Findable, declares
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import in_quotes, near
from gem_ma.runs.playing import places_of, seated_as
from gem_ma.runs.worlds import seats_by_name
from gem_ma.system.options import signature


def seated(
    source: str, words: Sequence[str], addresses: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """The source, and the overrides among these words, those of seats and addresses last.

    `addresses`: `URL` for all models at endpoints, `AGENT=URL` for that of one seat. Raises
    UsageError for a word that is neither an override nor an agent, ConfigError where the source
    cannot be loaded.
    """
    # a seat may stand in front of the source, and click takes the first word for it
    plain, seats = _split((source, *words))
    if not plain:
        raise click.UsageError("name a config or a scenario, as in retail")
    source = plain[0]
    overrides = plain[1:]
    if seats:
        loaded = _before(source, overrides)
        for name, who in seats:
            overrides = (*overrides, *_seat(loaded, name, who))
    return source, (*overrides, *_address_overrides(source, overrides, addresses))


def _address_overrides(
    source: str, overrides: Sequence[str], addresses: Sequence[str]
) -> list[str]:
    """The overrides that say where models are; an address of one seat goes before that of all."""
    if not addresses:
        return []
    loaded = load(source, overrides)
    config = loaded.config
    seats = seats_by_name(loaded.config, base=loaded.base)
    engines = {name: _engine_of(policy.model) for name, policy in config.policies.items()}
    # the address of one server is none of another vendor's
    alike = [name for name, engine in engines.items() if declares(engine, Findable)]
    # the address itself may hold an equals sign
    apart = [word.partition("=") for word in addresses if "/" not in word.partition("=")[0]]
    common = [word for word in addresses if "/" in word.partition("=")[0]]
    if len(common) > 1:
        raise click.UsageError("--base-url: one address is for all seats; type AGENT=URL for one")
    if common and not alike:
        raise click.UsageError("--base-url: no seat has a model of openai/NAME")
    by_policy = dict.fromkeys(alike, common[0]) if common else {}
    for agent, _, url in apart:
        name = agent if agent in seats else agent.replace("-", "_")
        policy = seats[name].policy if name in seats else None
        if policy is None or "base_url" not in (signature(engines[policy]) or {}):
            raise click.UsageError(
                f"--base-url {agent}=...: no seat of that name has a model at an endpoint (seats:"
                f" {', '.join(seats)})"
            )
        others = [one for one, seat in seats.items() if seat.policy == policy]
        if len(others) > 1:
            raise click.UsageError(
                f"--base-url {agent}=...: its model is that of {' and '.join(others)}; give it one"
                f" of its own with --{agent} ENGINE/NAME"
            )
        by_policy[policy] = url
    return [f"policies.{in_quotes(name)}.base_url={url}" for name, url in by_policy.items()]


def _engine_of(model: str) -> Any:
    return registry.load("engines", model.partition("/")[0])


def _before(source: str, overrides: Sequence[str]) -> Loaded:
    """The config before anybody is seated."""
    try:
        return load(source, overrides)
    except ConfigError as error:
        # `policies.user.base_url=...` is of the policy that `--user openai/X` will make
        others = [override for override in overrides if not override.startswith("policies.")]
        if len(others) == len(overrides):
            raise
        try:
            return load(source, others)
        except ConfigError:
            raise error from None


def _split(words: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Plain overrides, and (name as typed, who) of each seat."""
    overrides: list[str] = []
    seats: list[tuple[str, str]] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            overrides.append(word)
        elif not word.startswith("--") or len(word) == 2:
            raise click.UsageError(f"No such option: {word}")
        else:
            name, equals, who = word[2:].partition("=")
            seats.append((name, who if equals else _next(name, left)))
    return tuple(overrides), seats


def _next(name: str, left: Iterator[str]) -> str:
    who = next(left, "")
    # `--asistant --json`: a typing error is not an agent that is played by an option
    if not who or who.startswith("-"):
        raise click.UsageError(f"{_unknown(name)}; an agent wants a player: --{name} ENGINE/NAME")
    return who


def _seat(loaded: Loaded, name: str, who: str) -> list[str]:
    """The overrides that seat somebody as an agent of a config."""
    agents = [*seats_by_name(loaded.config, base=loaded.base)]
    # as most shells' users type it: player-0 for player_0
    agent = next((a for a in (name, name.replace("-", "_")) if a in agents), None)
    if agent is None:
        raise click.UsageError(_unknown(name, agents))
    places = places_of(agent, loaded)
    engine, slash, _ = who.partition("/")
    is_model = engine in registry.catalog("engines") and (slash or who == "human")
    if not is_model:
        return [seated_as(key, seat, behaviour=who) for key, seat in places.items()]
    model = who if slash else f"{who}/me"
    behaviour = _behaviour(loaded.config, agent, model)
    return [
        # a seat that a model has already keeps how it asks that model
        seated_as(key, seat, model=model, **behaviour)
        if seat.policy is None
        else f"{key}.model={model}"
        for key, seat in places.items()
    ]


def _behaviour(config: Config, agent: str, model: str) -> dict[str, str]:
    """How this scenario wants a model to be asked in this seat; {} = shown what the agent sees.
    A person is shown just that."""
    if config.scenario is None or model.startswith("human/"):
        return {}
    factory = registry.load("scenarios", config.scenario.id)
    named = getattr(factory, "model_cast", {}).get(agent)
    return {"behaviour": named} if named else {}


def _unknown(name: str, agents: Sequence[str] | dict[str, Any] = ()) -> str:
    """That no option and no agent is called so, with the nearest of both."""
    context = click.get_current_context()
    options = [long[2:] for option in context.command.params for long in option.opts]
    known = [*agents, *filter(None, options)]
    close = near(name, known, 2)
    hint = f"agents: {', '.join(agents)}" if agents else f"see gem-ma {context.info_name} --help"
    if keys := sections_of(name.replace("-", "_"), Config):
        hint = f"did you mean {' or '.join(f'{key}=...' for key in keys)}?"
    if close:
        hint = f"did you mean {' or '.join(f'--{other}' for other in close)}?"
    return f"No such option or agent: --{name} ({hint})"
