"""Every scenario as an environment of Gymnasium's registry: `gem_ma/<id>-v<version>`.

    gymnasium.make("gem_ma/kuhn_poker-v1", agent="player_1")

Gymnasium asks no installed package what it has, so the ids are there once gem_ma was imported;
`gymnasium.make("gem_ma:gem_ma/kuhn_poker-v1")` imports it. Nothing of a scenario is imported before
it is made, so its version is written down here, and a test holds it against the class.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import builtin

if TYPE_CHECKING:
    import gymnasium

    from gem_ma.kernel.scenario import Scenario

NAMESPACE = "gem_ma"
FIRST = 1  # the version of a scenario that is not listed below
VERSIONS = {"arithmetic": 2, "retail": 5}
VIEWS = ("chat", "text", "discrete")


def register_all() -> None:
    """Puts the built-in scenarios into Gymnasium's registry; those that stand there stay."""
    from gymnasium.envs import registration

    for name in builtin("scenarios"):
        env_id = f"{NAMESPACE}/{name}-v{VERSIONS.get(name, FIRST)}"
        if env_id not in registration.registry:
            entry = "gem_ma.envs.registration:make_env"
            registration.register(env_id, entry_point=entry, kwargs={"scenario": name})


def make_env(
    scenario: str | Scenario | type[Scenario],
    agent: str | None = None,
    others: Mapping[str, Any] | None = None,
    obs: str = "chat",
    **options: Any,
) -> gymnasium.Env[Any, Any]:
    """What `gymnasium.make` makes. `agent`: yours, the first where absent; `others`: who plays the
    rest, each on the scenario's default where absent. `obs`: `chat` (messages), `text` (what is
    new, as one text) or `discrete` (`gem_ma.discrete`). Further arguments as in `gym_env`.
    """
    from gem_ma.envs.discrete import discrete
    from gem_ma.envs.gym import gym_env
    from gem_ma.envs.others import seated

    if obs not in VIEWS:
        raise ConfigError(f"obs is one of {', '.join(VIEWS)}; got {obs!r}")
    if obs == "discrete":
        return discrete(scenario, agent=agent, others=others, **options)
    return gym_env(scenario, obs=obs, **seated(scenario, agent, others, options), **options)


# Puts our scenarios into Gymnasium's registry as soon as both are imported, in whichever order.
# Gymnasium takes longer to import than gem_ma, which does without it until an environment is made.
# So where it is not there yet, a finder waits for its import, steps aside and registers behind it.


# the last module that `import gymnasium` runs; its registry is ready then
LAST = "gymnasium.envs"


def register_when_there() -> None:
    """Registers now where Gymnasium is imported, else when it is."""
    if LAST in sys.modules:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """Finds one module, once, as the other finders do, and registers after it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != LAST:
            return None
        # before asking the others: they are asked through the same list
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register()

            loader: Any = spec.loader
            loader.exec_module = run_and_register
        return spec


def _register() -> None:
    import_module("gem_ma.envs.registration").register_all()
