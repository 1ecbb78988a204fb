"""What an id of Gymnasium or PettingZoo makes: the environment without the library's own wrappers
for time limits and illegal moves, and in its own words where it has some."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import near
from gem_ma.worlds.guest import library, quiet

FAMILIES = ("classic", "butterfly")  # of PettingZoo


def key_of(kind: str, env: str, options: Mapping[str, Any]) -> str:
    """What states of this environment are remembered under."""
    return f"{kind} {json.dumps([env, options], sort_keys=True, default=repr)}"


def gymnasium_env(env: str, options: Mapping[str, Any]) -> Any:
    gymnasium = library("gymnasium", "gymnasium")
    if env.startswith(("MiniGrid-", "BabyAI-")):
        library("minigrid", "gymnasium")  # it registers its ids when it is imported
    with quiet():
        env = registered(env)
        spec = gymnasium.spec(env)
        maker = spec.entry_point  # a text, or what a user has registered itself
        if isinstance(maker, str):
            maker = gymnasium.envs.registration.load_env_creator(maker)
        words = _words(maker)
        # -1: without the wrapper that ends a play at the time limit; `limits` cuts it
        settings = {"max_episode_steps": -1, "disable_env_checker": True}
        return gymnasium.make(env, **settings, **words, **options)


def registered(env: str) -> str:
    """The id under which Gymnasium knows an environment. Of `module:id`, as `gymnasium.make` takes
    it, the module is imported, which registers its ids."""
    module, _, name = env.rpartition(":")
    if module:
        import_module(module)
    return name


def pettingzoo_env(env: str, options: Mapping[str, Any]) -> Any:
    """Raises ConfigError where there is none of this name."""
    library("pettingzoo", "pettingzoo")
    family, _, name = env.rpartition("/")
    known = [family] if family else FAMILIES
    family = next((each for each in known if _is_there(f"pettingzoo.{each}", name)), "")
    module = None
    if name.isidentifier() and family:
        # our extra brings what the classic ones need
        beside = f"pettingzoo[{family}]" if family != "classic" else ""
        module = library(f"pettingzoo.{family}.{name}", "pettingzoo", beside=beside)
    # without PettingZoo's wrappers: they end a play at an illegal move in words of their own
    maker = getattr(module, "raw_env", None) or getattr(module, "parallel_env", None)
    if maker is None:
        there = [found for each in FAMILIES for found in _names(f"pettingzoo.{each}")]
        close = near(name, there, 1) or ["tictactoe_v3"]
        raise ConfigError(f"pettingzoo: there is no environment {env!r}, as {close[0]}")
    return maker(**_words(maker), **options)


def _names(package: str) -> list[str]:
    """The environments of a family: what stands in its folder with a version."""
    modules = iter_modules(import_module(package).__path__)
    return [module.name for module in modules if "_v" in module.name]


def _words(maker: Any) -> dict[str, str]:
    """The option by which an environment draws itself in text, where it can."""
    modes = getattr(maker, "metadata", {}).get("render_modes", ())
    return {"render_mode": "ansi"} if "ansi" in modes else {}


def _is_there(place: str, name: str) -> bool:
    try:
        return find_spec(f"{place}.{name}") is not None
    except ModuleNotFoundError:  # an unknown family
        return False
