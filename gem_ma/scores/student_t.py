"""Student's t distribution: its quantiles, without a library of statistics.

By the continued fraction of the incomplete beta function; equal to the printed tables in all
their digits (tests/scores/test_stats.py).
"""

from __future__ import annotations

import math
from statistics import NormalDist

TINY = 1e-300  # in place of a zero that the fraction would divide by
SAME = 1e-15  # the fraction has settled: rounding changes more than its next term
SETTLED = 1e-12  # of the quantile
STEPS = 100  # at most; a step about doubles t far out in a heavy tail, and then there are few left


def t_quantile(p: float, degrees: float) -> float:
    """The value that Student's t with this many degrees of freedom stays below with probability p.

    >>> round(t_quantile(0.975, 10), 4)
    2.2281
    """
    if not 0 < p < 1 or not degrees > 0:
        raise ValueError(
            f"a quantile needs 0 < p < 1 and degrees > 0; got p = {p}, degrees = {degrees}"
        )
    if p < 0.5:
        return -t_quantile(1 - p, degrees)
    # Newton's way from the normal's quantile, which lies below: the distribution is concave above
    # 0, so no step goes too far
    norm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(norm) / math.sqrt(degrees * math.pi)
    t = NormalDist().inv_cdf(p)
    for _ in range(STEPS):
        density = scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = (p - _t_below(t, degrees)) / density
        t += step
        if abs(step) <= SETTLED * max(1.0, t):
            break
    return t


def _t_below(t: float, degrees: float) -> float:
    """P(T <= t) for t >= 0 = 1 - I_x(degrees / 2, 1 / 2) / 2 with x = degrees / (degrees + t^2)."""
    return 1 - 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised I_x(a, b) by its continued fraction (modified Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # the fraction settles fast on this side of the mean alone
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_scale + a * math.log(x) + b * math.log1p(-x)) / a
    c = 1.0
    d = 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        # the even and the odd coefficient of Numerical Recipes' `betacf`
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or TINY)
            c = (1 + term / c) or TINY
            fraction *= c * d
        if abs(c * d - 1) < SAME:
            break
    return front * fraction
