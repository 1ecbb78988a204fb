"""The estimators by name: function, default group key, and what each declares about itself.
Every declaration is a property test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gem_ma.credit.estimators import moving, returns, trees, turnwise
from gem_ma.credit.estimators.groups import Array, Key, State, columns
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import near

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
    "reinforce": Estimator(returns.reinforce, silent=False),  # no baseline: it never falls silent
    "rebn": Estimator(
        returns.rebn, ("policy", "scenario", "agent"), "ret", offset=True, scale=True
    ),
    "grpo": Estimator(returns.grpo, ("group", "agent"), "total", offset=True, scale=True),
    # these two divide by no spread, so rewards twice as large give steps twice as large
    "dr_grpo": Estimator(returns.dr_grpo, ("group", "agent"), "total", offset=True),
    "rloo": Estimator(returns.rloo, ("group", "agent"), "total", offset=True),
    # the baseline is of earlier episodes, so what is paid on top in these stays
    "rae": Estimator(moving.rae, ("scenario", "agent"), silent=False, stateful=True),
    "agent_norm": Estimator(
        returns.agent_norm, ("group", "agent"), "rows", offset=True, scale=True
    ),
    # below lam = 1 it leans on the critic, whose errors are a bias
    "gae": Estimator(
        turnwise.turn_gae, ("policy", "scenario", "agent"), "gae", critic=True, unbiased=False
    ),
    "gigpo": Estimator(turnwise.gigpo, ("group", "agent"), offset=True, scale=True),
    # this and `at_grpo` are myopic: what a turn brings later is not in its advantage
    "mt_grpo": Estimator(
        turnwise.mt_grpo, ("group", "agent"), offset=True, scale=True, unbiased=False
    ),
    "turn_grpo": Estimator(
        turnwise.turn_grpo, ("group", "agent", "k"), "ret", offset=True, scale=True
    ),
    "at_grpo": Estimator(
        turnwise.at_grpo, ("group", "agent", "k"), "reward", scale=True, unbiased=False
    ),
    # no agent in the key: a joint action has one advantage, for all who took part in it
    "magrpo": Estimator(trees.magrpo, ("group",), ledger=True, tree=True),
    "team_grpo": Estimator(trees.team_grpo, ("group", "agent", "k"), ledger=True),
    "turn_credit": Estimator(turnwise.turn_credit, silent=False, unbiased=False),
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
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"it has {', '.join(chosen.options) or 'none'}"
            )
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
        raise ConfigError(
            f"no estimator is called {name!r}"
            f" ({f'did you mean {close[0]!r}?' if close else 'known: ' + ', '.join(ESTIMATORS)})"
        )
    return ESTIMATORS[name]
