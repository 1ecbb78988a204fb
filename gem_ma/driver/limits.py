"""The driver's limits on one play: how long it may go on, and how much a model may say.

They are not rules of the scenario: a play that they cut is a truncation (`End.bootstraps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Reachable
from gem_ma.kernel.episode import End, Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.bounds import bounded
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Reply, Sampling

# What a play holds against a policy: sampled in another way than its config says, or silent from
# the beginning to the end.

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


NO_LIMITS = Limits()
REPLY_TIMES = 8  # a reply may hold so many times what may be said: its thinking too


class Cut(Exception):
    """The driver ends the play."""

    def __init__(self, end: End) -> None:
        self.end = end


class SampledTokens:
    """Tokens sampled so far in a play, by count of ids or else by the server's word; each turn
    is looked at once."""

    def __init__(self) -> None:
        self._turns = self._tokens = 0

    def count(self, game: Game) -> int:
        """All tokens until now."""
        for turn in game.turns[self._turns :]:
            for reply in turn.replies:
                # a server that tells no counts is not limited by them
                self._tokens += len(reply.token_ids) or reply.usage.completion_tokens or 0
        self._turns = len(game.turns)
        return self._tokens


def check_limits(game: Game, limits: Limits, sampled: SampledTokens) -> None:
    """Raises Cut where the play has reached a limit; a play that is over has kept to them."""
    if game.over or limits is NO_LIMITS:
        return
    if limits.max_steps is not None and game.step >= limits.max_steps:
        raise Cut(End.MAX_STEPS)
    if limits.max_turns is not None and len(game.turns) >= limits.max_turns:
        raise Cut(End.MAX_TURNS)
    # last: counting tokens is the one that costs
    if limits.max_tokens is not None and sampled.count(game) >= limits.max_tokens:
        raise Cut(End.MAX_TOKENS)


def bounded_reply(reply: Reply, max_said: int | None) -> Reply:
    """The reply with what the record keeps of it, thinking included; a server may send 32 MB."""
    limit = None if max_said is None else max_said * REPLY_TIMES
    text, calls, cut = bounded(reply.text, reply.tool_calls, limit)
    reasoning, _, more = bounded(reply.reasoning, (), limit)
    # the same object: most replies fit, and a copy costs
    if not cut and not more:
        return reply
    return replace(reply, text=text, tool_calls=calls, reasoning=reasoning, cut=cut + more)
