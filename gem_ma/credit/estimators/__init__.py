"""Estimators: returns of turns -> advantages. Pure numpy functions; no torch, no I/O, no
randomness, no dependence on the order of rows.

Axes: N turns that train one policy in a batch. Every function takes a `TurnTable` (those of
`returns` also a bare array [N] that forms one group) and gives float64 [N]: one advantage per
turn, for all its tokens. `ESTIMATORS` names them with their group key and declared properties.
"""

from gem_ma.credit.estimators.groups import columns, groups
from gem_ma.credit.estimators.moving import mean_return, rae, shaped
from gem_ma.credit.estimators.registry import (
    ESTIMATORS,
    Estimator,
    estimate,
    estimator,
    key_among_worlds,
)
from gem_ma.credit.estimators.returns import agent_norm, dr_grpo, grpo, rebn, reinforce, rloo
from gem_ma.credit.estimators.trees import magrpo, team_grpo
from gem_ma.credit.estimators.turnwise import (
    at_grpo,
    gae,
    gigpo,
    mt_grpo,
    raw_gae,
    spread,
    turn_credit,
    turn_gae,
    turn_grpo,
)

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "agent_norm",
    "at_grpo",
    "columns",
    "dr_grpo",
    "estimate",
    "estimator",
    "gae",
    "gigpo",
    "groups",
    "grpo",
    "key_among_worlds",
    "magrpo",
    "mean_return",
    "mt_grpo",
    "rae",
    "raw_gae",
    "rebn",
    "reinforce",
    "rloo",
    "shaped",
    "spread",
    "team_grpo",
    "turn_credit",
    "turn_gae",
    "turn_grpo",
]
