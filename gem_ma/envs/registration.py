"""Every scenario as an environment of Gymnasium's registry: `gem_ma/<id>-v<version>`.

    gymnasium.make("gem_ma/kuhn_poker-v1", agent="player_1")

Gymnasium asks no installed package what it has, so the ids are there once gem_ma was imported;
`gymnasium.make("gem_ma:gem_ma/kuhn_poker-v1")` imports it. Nothing of a scenario is imported before
it is made, so its version is written down here, and a test holds it against the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import builtin

if TYPE_CHECKING:
    import gymnasium

    from gem_ma.kernel.scenario import Scenario

NAMESPACE = "gem_ma"
FIRST = 1  # the version of a scenario that is not listed below
VERSIONS = {"arithmetic": 2, "dilemma": 2, "matrix": 2, "retail": 5}
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
