"""What a play holds against a policy: sampled in another way than its config says, or silent from
the beginning to the end."""

from __future__ import annotations

from collections.abc import Mapping

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Reachable
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Sampling

# the sampling options that change a token's probability; the others only end a reply
DRAWS = ("temperature", "top_p", "top_k")


def drawn_otherwise(agent: str, policy: Policy, sampling: Sampling) -> ConfigError | None:
    """What is wrong with a behaviour's own sampling of a policy that learns: its update would
    take the tokens for drawn as the config says."""
    if not policy.learns:
        return None
    for key in DRAWS:
        asked = getattr(sampling, key)
        configured = getattr(policy.sampling, key)
        if asked != configured:
            return ConfigError(
                f"agent {agent!r}: its behaviour samples policy {policy.name!r} with {key} {asked},"
                f" and the config says {configured}; a policy that learns is sampled as its config"
                f" says: leave {key} out of sample(...), set policies.{policy.name}.{key}, or take"
                " it out of train.policies"
            )
    return None


def silence(game: Game, policies: Mapping[str, Policy]) -> str:
    """What is wrong where a policy gave nothing but empty replies and its engine takes that for a
    failure of the server; "" where nothing is."""
    spoke: dict[str, bool] = {}
    for turn in game.turns:
        for reply in turn.replies:
            spoke[reply.policy] = spoke.get(reply.policy, False) or not reply.silent
    for name, heard in spoke.items():
        if heard or name not in policies:
            continue
        # a bot may well say nothing; a server that does has lost its model
        core = policies[name].core
        if isinstance(core, Reachable) and core.silence_fails:
            return f"EngineError: policy {name!r} said nothing in this play: every reply was empty"
    return ""
