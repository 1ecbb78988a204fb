"""Equilibria of matrix games, and how far a profile is from one.

>>> from gem_ma.scenarios.parties.payoffs import PAIRS
>>> chicken = PAIRS["chicken"](2)
>>> pure(chicken)
[('swerve', 'straight'), ('straight', 'swerve')]
>>> mixed(chicken)[0]["straight"]
0.1
>>> nash_conv(chicken, mixed(chicken)) < 1e-12
True
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from gem_ma.scenarios.parties.payoffs import Payoff

from gem_ma.kernel.errors import ConfigError

Mixture = Mapping[str, float]  # choice -> probability
LARGEST = 5_000_000  # payments that are looked up at most


def certain(moves: Sequence[str]) -> list[Mixture]:
    """The profile in which each seat does one thing."""
    return [{move: 1.0} for move in moves]


def nash_conv(payoff: Payoff, profile: Sequence[Mixture]) -> float:
    """What the seats could gain by leaving the profile, each alone, summed; points a round, 0 in
    an equilibrium. Raises ConfigError where too many combinations would be looked up."""
    return sum(max(0.0, gain) for gain in gains(payoff, profile))


def gains(payoff: Payoff, profile: Sequence[Mixture]) -> list[float]:
    """What each seat gains by its best reply to the others."""
    _bounded(payoff, math.prod(len(mixture) for mixture in profile))
    found = []
    for seat, own in enumerate(profile):
        others = [list(mixture.items()) for mixture in profile]
        # its mass is left out: every reply is tried
        others[seat] = [("", 1.0)]
        value = dict.fromkeys(payoff.choices[seat], 0.0)
        for drawn in itertools.product(*others):
            weight = math.prod(mass for _, mass in drawn)
            moves = [move for move, _ in drawn]
            for reply in value:
                moves[seat] = reply
                value[reply] += weight * payoff.pays(tuple(moves))[seat]
        found.append(max(value.values()) - sum(mass * value[move] for move, mass in own.items()))
    return found


def pure(payoff: Payoff) -> list[tuple[str, ...]]:
    """All equilibria in which each seat does one thing, by enumeration; two or three agents.
    Raises ConfigError for more."""
    if len(payoff.choices) > 3:
        raise ConfigError(f"pure equilibria: of 2 or 3 agents; got {len(payoff.choices)}")
    _bounded(payoff, math.prod(map(len, payoff.choices)) // max(map(len, payoff.choices)))
    found = set(payoff.profiles())
    for seat, choices in enumerate(payoff.choices):
        rest = payoff.choices[:seat] + payoff.choices[seat + 1 :]
        best: set[tuple[str, ...]] = set()
        for others in itertools.product(*rest):
            moves = [(*others[:seat], reply, *others[seat:]) for reply in choices]
            points = [payoff.pays(profile)[seat] for profile in moves]
            most = max(points)
            best |= {profile for profile, own in zip(moves, points, strict=True) if own == most}
        found &= best
    order = [{name: place for place, name in enumerate(names)} for names in payoff.choices]
    return sorted(found, key=lambda moves: [order[seat][name] for seat, name in enumerate(moves)])


def mixed(payoff: Payoff) -> list[Mixture] | None:
    """The equilibrium of a game of two with two choices each in which both draw, computed in
    fractions: each makes the other indifferent. None where there is none, or more than one."""
    if [len(names) for names in payoff.choices] != [2, 2]:
        raise ConfigError("mixed equilibrium: of two agents with two choices each")
    profile: list[Mixture] = []
    for seat, (first, second) in enumerate(payoff.choices):
        other = 1 - seat
        # what the other gains by its first choice, where this seat plays its first, and its second
        apart = []
        for own in (first, second):
            pair = [(own, reply) if seat == 0 else (reply, own) for reply in payoff.choices[other]]
            paid = [Fraction(payoff.pays(moves)[other]) for moves in pair]
            apart.append(paid[0] - paid[1])
        if apart[0] == apart[1]:
            return None
        share = apart[1] / (apart[1] - apart[0])
        if not 0 < share < 1:
            return None
        profile.append({first: float(share), second: float(1 - share)})
    return profile


def symmetric(payoff: Payoff) -> list[Mixture]:
    """The equilibria in which all seats draw alike, of a game with two choices that pays all seats
    by the same rule, for any number of agents: probabilities of each choice, found by bisection
    between places where the gain of the first choice changes its sign."""
    first, second = payoff.choices[0]
    if set(payoff.choices) != {(first, second)}:
        raise ConfigError("symmetric equilibria: the same two choices for all agents")
    others = len(payoff.choices) - 1
    # gain of the first choice where so many of the others make it too
    apart = []
    for count in range(others + 1):
        rest = (first,) * count + (second,) * (others - count)
        apart.append(payoff.pays((first, *rest))[0] - payoff.pays((second, *rest))[0])

    def gain(share: float) -> float:
        return math.fsum(
            math.comb(others, count) * share**count * (1 - share) ** (others - count) * apart[count]
            for count in range(others + 1)
        )

    grid = [place / 257 for place in range(258)]
    found: list[Mixture] = []
    for low, high in itertools.pairwise(grid):
        if gain(low) * gain(high) < 0:
            while low < (middle := (low + high) / 2) < high:
                same = gain(middle) * gain(low) > 0
                low, high = (middle, high) if same else (low, middle)
            found.append({first: high, second: 1 - high})
    return found


def _bounded(payoff: Payoff, profiles: int) -> None:
    payments = profiles * sum(map(len, payoff.choices))
    if payments > LARGEST:
        raise ConfigError(f"equilibria: {payments} payments to look up; at most {LARGEST}")
