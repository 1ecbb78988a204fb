"""gem_ma: a multi-agent gym for language-model agents, in which any subset of the agents learns."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ != "gem_ma":  # the checkout on __path__ would otherwise offer gem_ma.gem_ma
    raise ImportError(f"import this package as gem_ma, not {__name__}")
# in a checkout scenarios/, agents/ and configs/ lie beside the package, in a wheel inside of it
_checkout = Path(__file__).resolve().parents[1]
if (_checkout / "pyproject.toml").is_file() and (_checkout / "scenarios" / "__init__.py").is_file():
    __path__.append(str(_checkout))

__version__ = "0.1.0"

# what a user types; tests/test_layers.py reads it too, to know which room a name comes from
_PUBLIC = {
    **dict.fromkeys(
        ("Ask", "Call", "Game", "Leave", "Reward", "Scenario", "Tell", "replay"),
        "gem_ma.kernel.scenario",
    ),
    **dict.fromkeys(
        ("Action", "Asked", "Image", "Malformed", "Message", "Reply", "Request", "Sampling"),
        "gem_ma.kernel.types",
    ),
    **dict.fromkeys(("Tool", "ToolCall", "Turn"), "gem_ma.kernel.types"),
    **dict.fromkeys(("End", "Entry", "Episode", "Limits", "Seat"), "gem_ma.kernel.episode"),
    **dict.fromkeys(("Play",), "gem_ma.kernel.scenario"),
    **dict.fromkeys(("ConfigError",), "gem_ma.kernel.errors"),
    **dict.fromkeys(("list_scenarios", "make", "task_of"), "gem_ma.registry"),
    **dict.fromkeys(("aec_env",), "gem_ma.envs.aec"),
    **dict.fromkeys(("parallel_env",), "gem_ma.envs.parallel"),
    **dict.fromkeys(("gym_env",), "gem_ma.envs.gym"),
    **dict.fromkeys(("discrete",), "gem_ma.envs.discrete"),
    **dict.fromkeys(("make_vec",), "gem_ma.envs.vector"),
    **dict.fromkeys(("Plan", "play"), "gem_ma.driver.rollout"),
    **dict.fromkeys(("play_many",), "gem_ma.driver.many"),
    **dict.fromkeys(("read_episodes",), "gem_ma.runs.store.lines"),
    **dict.fromkeys(("check_scenario",), "gem_ma.testing"),
    **dict.fromkeys(
        ("compare", "load_config", "open_policies", "open_run", "run", "study", "train"),
        "gem_ma.api",
    ),
    **dict.fromkeys(("Run",), "gem_ma.runs.run"),
}
_MODULES = ("adapters", "gym_like")
__all__ = list(_PUBLIC)


# lazy, so that `import gem_ma` loads neither pettingzoo nor numpy
def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"gem_ma.{name}")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'gem_ma' has no attribute {name!r}")


def __dir__() -> list[str]:
    # what is imported here for its own needs is left out; modules of ours are not
    ours = (getattr(value, "__name__", "").startswith("gem_ma.") for value in globals().values())
    named = [
        name for name, own in zip(globals(), ours, strict=True) if own or name.startswith("__")
    ]
    return sorted({*__all__, *_MODULES, *named})


# last: Gymnasium's registry names modules of ours
import_module("gem_ma.envs.gymnasium_ids").register_when_there()
