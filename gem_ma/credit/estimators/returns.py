"""Estimators that compare returns: one number per turn (G) or per episode (R) against its group.

G = discounted return-to-go of a turn, R = undiscounted sum of the agent's rewards in the
episode; std is the population form, in two passes (E[x^2] - E[x]^2 goes negative in float32).
"""

from __future__ import annotations

from gem_ma.credit.estimators.groups import (
    Array,
    Key,
    TableLike,
    by_group,
    centred,
    groups,
    normalised,
    per_episode,
    values_of,
)


def reinforce(table: TableLike, key: Key = ()) -> Array:
    """No baseline:  A_n = G_n.  (Williams 1992.) [N] -> [N]; the scale is the user's problem, `key`
    groups nothing.

    >>> reinforce([1, -2]).tolist()
    [1.0, -2.0]
    """
    # a copy: a caller that scales its advantages in place must not change the table
    return values_of(table, "ret").copy()


def rebn(table: TableLike, key: Key = ("policy", "scenario", "agent")) -> Array:
    """Return batch normalisation:  A_n = (G_n - mean G) / (std G + 1e-8) in each group.  (GEM,
    arXiv 2510.01051.) [N] -> [N]

    The paper's form is `key="global"`: all turns of the policy, every agent together. In a zero-sum
    game that mean is 0 whatever the agents do, so the default takes each agent by itself.

    >>> rebn([1, 2, 3, 6]).round(4).tolist()
    [-1.069, -0.5345, 0.0, 1.6036]
    >>> rebn([.1, .1, .1]).tolist()
    [0.0, 0.0, 0.0]
    """
    values = values_of(table, "ret")
    return by_group(values, groups(table, key), normalised)


def grpo(table: TableLike, key: Key = ("group", "agent"), ddof: int = 0) -> Array:
    """Group-relative:  A = (R - mean R) / (std R + 1e-6), one value per episode and agent.
    (DeepSeekMath, arXiv 2402.03300, 4.1.2.) [N] -> [N]

    Statistics count each episode once, however many turns it has. `ddof=1` is the sample form,
    which verl and TRL use.

    >>> grpo([1, 0, 0, 1]).round(4).tolist(), grpo([1, 0, 0, 1], ddof=1).round(4).tolist()
    ([1.0, -1.0, -1.0, 1.0], [0.866, -0.866, -0.866, 0.866])
    """
    # the epsilon of verl; that of `rebn` and `agent_norm` is 1e-8, as their authors have it
    return per_episode(table, key, lambda values: normalised(values, 1e-6, ddof))


def dr_grpo(table: TableLike, key: Key = ("group", "agent")) -> Array:
    """Group-relative without the division:  A = R - mean R, one value per episode and agent.  (Dr.
    GRPO, arXiv 2503.20783.) [N] -> [N]

    >>> dr_grpo([1, 0, 0, 1]).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return per_episode(table, key, centred)


def rloo(table: TableLike, key: Key = ("group", "agent")) -> Array:
    """Leave one out:  A = (n R - sum R) / (n - 1), one value per episode and agent.  (RLOO, arXiv
    2402.14740.) [N] -> [N]

    >>> rloo([1, 0, 0, 1]).round(4).tolist()
    [0.6667, -0.6667, -0.6667, 0.6667]
    """
    # (n R - sum R) / (n - 1) = (R - mean R) n / (n - 1); alone (n = 1) the centred R is 0
    return per_episode(
        table, key, lambda values: centred(values) * (len(values) / max(1, len(values) - 1))
    )


def agent_norm(table: TableLike, key: Key = ("group", "agent"), ddof: int = 0) -> Array:
    """Each agent against itself:  A = (R - mean R) / (std R + 1e-8), over all turns of the agent in
    the group.  (Dr. MAS, arXiv 2602.08847.)

    [N] -> [N]. Unlike `grpo`, an episode counts once per turn in the statistics, as in the authors'
    code: long episodes weigh more. `ddof=1` is the sample form.

    >>> agent_norm([1, 0, 0, 1]).round(4).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    # over rows and not `per_episode`: see above, this is what sets it apart from `grpo`
    return by_group(
        values_of(table, "total"), groups(table, key), lambda values: normalised(values, ddof=ddof)
    )
