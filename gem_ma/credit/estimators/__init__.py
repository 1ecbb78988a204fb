"""Estimators: returns of turns -> advantages. Pure numpy functions; no torch, no I/O, no
randomness, no dependence on the order of rows.

Axes: N turns that train one policy in a batch. Every function takes a `TurnTable` (those of
`returns` also a bare array [N] that forms one group) and gives float64 [N]: one advantage per
turn, for all its tokens. `ESTIMATORS` names them with their group key and declared properties.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gem_ma.credit.estimators.groups import Array, Key, State, columns, groups
from gem_ma.credit.estimators.moving import mean_return, rae, shaped
from gem_ma.credit.estimators.returns import (
    agent_norm,
    dr_grpo,
    grpo,
    magrpo,
    rebn,
    reinforce,
    rloo,
    team_grpo,
)
from gem_ma.credit.estimators.turnwise import (
    at_grpo,
    c3,
    gae,
    gigpo,
    mt_grpo,
    raw_gae,
    spread,
    turn_credit,
    turn_gae,
    turn_grpo,
)
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import near

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "agent_norm",
    "at_grpo",
    "c3",
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


SHARES = ("decay", "lam")  # options that lie in 0..1


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator.

    `centred`: advantages sum to zero in each group ("ret": over turns, "total": over episodes;
    "" = no). `offset`: what one agent is paid on top at its last turn changes nothing. `scale`:
    nor does a positive factor on all rewards, as long as the spread of a group stays far above
    1e-8, below which it counts as none. `unbiased`: at most a positive factor away from the
    gradient in expectation, for turns of any number. `silent`: a constant group, or a single one,
    gives exact zeros (of `gigpo` the part by episode). `critic`: reads `table.value`. `stateful`:
    takes `state` and gives (advantages, state). `ledger`: reads what the episodes paid, not the
    columns of the table. `tree`: compares continuations of one state, so it wants forks.
    """

    function: Callable[..., Any]
    key: Key = ()
    centred: str = ""
    offset: bool = False
    scale: bool = False
    unbiased: bool = True
    silent: bool = True
    critic: bool = False
    stateful: bool = False
    ledger: bool = False
    tree: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its parameters that a config may set."""
        # the others come from the loop: an option with their name would be set twice
        loops = ("table", "key", "state", "gamma", "scores")
        names = inspect.signature(self.function).parameters
        return tuple(name for name in names if name not in loops)

    def problem(self, option: str, value: float | bool) -> str:
        """What is wrong with the value of an option, in words; "" where nothing is."""
        # in Python `true` is a number too, so the default says which kind is meant
        switch = isinstance(inspect.signature(self.function).parameters[option].default, bool)
        if switch != isinstance(value, bool):
            return "true or false" if switch else "a number"
        if option in SHARES and not 0 <= value <= 1:
            return "a number in 0..1"
        if option == "ddof" and value not in (0, 1):
            return "0 (population) or 1 (sample)"
        return "0 or more" if option in ("weight", "turn_weight") and value < 0 else ""


ESTIMATORS: dict[str, Estimator] = {
    "reinforce": Estimator(reinforce, silent=False),  # no baseline: it never falls silent
    "rebn": Estimator(rebn, ("policy", "scenario", "agent"), "ret", offset=True, scale=True),
    "grpo": Estimator(grpo, ("group", "agent"), "total", offset=True, scale=True),
    # these two divide by no spread, so rewards twice as large give steps twice as large
    "dr_grpo": Estimator(dr_grpo, ("group", "agent"), "total", offset=True),
    "rloo": Estimator(rloo, ("group", "agent"), "total", offset=True),
    # the baseline is of earlier episodes, so what is paid on top in these stays
    "rae": Estimator(rae, ("scenario", "agent"), silent=False, stateful=True),
    "agent_norm": Estimator(agent_norm, ("group", "agent"), "rows", offset=True, scale=True),
    # below lam = 1 it leans on the critic, whose errors are a bias
    "gae": Estimator(turn_gae, ("policy", "scenario", "agent"), "gae", critic=True, unbiased=False),
    "gigpo": Estimator(gigpo, ("group", "agent"), offset=True, scale=True),
    # this and `at_grpo` are myopic: what a turn brings later is not in its advantage
    "mt_grpo": Estimator(mt_grpo, ("group", "agent"), offset=True, scale=True, unbiased=False),
    "turn_grpo": Estimator(turn_grpo, ("group", "agent", "k"), "ret", offset=True, scale=True),
    "at_grpo": Estimator(at_grpo, ("group", "agent", "k"), "reward", scale=True, unbiased=False),
    # not the whole gradient: the turns behind a forked one only tell what it was worth
    "c3": Estimator(c3, ("group", "agent"), "ret", offset=True, unbiased=False, tree=True),
    # no agent in the key: a joint action has one advantage, for all who took part in it
    "magrpo": Estimator(magrpo, ("group",), ledger=True, tree=True),
    "team_grpo": Estimator(team_grpo, ("group", "agent", "k"), ledger=True),
    "turn_credit": Estimator(turn_credit, silent=False, unbiased=False),
}


def estimate(
    name: str,
    table: TurnTable,
    key: Key | None = None,
    state: Mapping[str, float] | None = None,
    *,
    gamma: Any = 1.0,
    cut: str = "learn",
    **options: Any,
) -> tuple[Array, State]:
    """The advantages of a named estimator, and its state ({} for those that keep none). `key` None
    = the estimator's own.

    `gamma` is the discount that made `table.ret`, for those that need it. `cut` "skip": turns that
    a token limit cut get 0. Raises ConfigError for a name or an option that there is not.
    """
    chosen = estimator(name)
    for option in options:
        if option not in chosen.options:
            close = near(option, chosen.options, 1)
            known = f"it has {', '.join(chosen.options) or 'none'}"
            hint = f"did you mean {close[0]!r}?" if close else known
            raise ConfigError(f"estimator {name!r} has no option {option!r} ({hint})")
    # asked of the signature, so that an estimator without a discount need not take one
    if "gamma" in inspect.signature(chosen.function).parameters:
        options["gamma"] = gamma
    if key is None:
        key = chosen.key
    after: State = {}
    if chosen.stateful:
        advantages, after = chosen.function(table, key, state=state, **options)
    else:
        advantages = chosen.function(table, key, **options)
    # after the estimator: the mean of a group knows the turns that were cut
    return np.where(table.cut, 0.0, advantages) if cut == "skip" else advantages, after


def key_among_worlds(name: str, key: Key | None, groups: str) -> tuple[str, ...]:
    """The columns that form a group where several scenarios are played. Returns of two have two
    units, so each group is of one; with `groups` "all" the key does without the scenario.

    >>> key_among_worlds("rebn", ["agent"], "scenario"), key_among_worlds("rebn", None, "all")
    (('scenario', 'agent'), ('policy', 'agent'))
    """
    names = columns(estimator(name).key if key is None else key)
    others = tuple(column for column in names if column != "scenario")
    return others if groups == "all" else ("scenario", *others)


def estimator(name: str) -> Estimator:
    """The estimator of a name. Raises ConfigError with the nearest names."""
    if name not in ESTIMATORS:
        close = near(name, ESTIMATORS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(ESTIMATORS)}"
        raise ConfigError(f"no estimator is called {name!r} ({hint})")
    return ESTIMATORS[name]
