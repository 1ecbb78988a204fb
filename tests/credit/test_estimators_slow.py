"""Every registered estimator against a second slow implementation, and what all of them must hold,
over tables of 1-4 agents and 1-12 turns.

The slow ones are written from the papers. They read the plays as they were made up, compute in
fractions (roots to 40 digits), and share nothing with `gem_ma.credit.estimators`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.credit import turns
from gem_ma.credit.estimators import (
    ESTIMATORS,
    at_grpo,
    dr_grpo,
    estimate,
    groups,
    grpo,
    raw_gae,
    rebn,
    reinforce,
    rloo,
    turn_grpo,
)
from gem_ma.credit.estimators.groups import by_group, centred
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Entry, Episode, Seat
from gem_ma.kernel.types import Action, Message, Reply, Turn
from tests.plays import recorded

GAMMA = 0.9
Moves = dict[str, list[tuple[str, float]]]  # by agent: what it says and is paid, turn by turn


@dataclass(frozen=True)
class Play:
    """One made-up episode: agents take their turns in rounds."""

    moves: Moves
    group: str
    task: str

    def steps(self) -> list[tuple[str, int]]:
        rounds = max(map(len, self.moves.values()))
        return [
            (agent, k) for k in range(rounds) for agent in self.moves if k < len(self.moves[agent])
        ]

    def episode(self, seed: int) -> Episode:
        made, said = [], ""
        for step, (agent, k) in enumerate(self.steps()):
            made.append(
                Turn(
                    step,
                    agent,
                    (Message(f"so far {said}"),),
                    None,
                    (),
                    Action(self.moves[agent][k][0]),
                    (Reply(policy="main"),),
                )
            )
            said += self.moves[agent][k][0]
        paid = tuple(
            Entry(step, agent, self.moves[agent][k][1])
            for step, (agent, k) in enumerate(self.steps())
        )
        cast = {agent: Seat(policy="main") for agent in self.moves}
        return recorded(
            cast, tuple(made), paid, scenario="game", seed=seed, task=self.task, group=self.group
        )


# two that differ do so by more than any rounding
REWARD = st.integers(-8, 8).map(lambda quarters: quarters / 4)
MOVES = st.lists(st.tuples(st.sampled_from("xy"), REWARD), min_size=1, max_size=12)
PLAY = st.builds(
    Play,
    st.dictionaries(st.sampled_from("abcd"), MOVES, min_size=1, max_size=4),
    st.sampled_from("gh"),
    st.sampled_from(["t/0", "t/1"]),
)
PLAYS = st.lists(PLAY, min_size=1, max_size=5)
MANY = settings.get_current_profile_name() == "many"
some = settings(max_examples=60 if MANY else 6, deadline=None)


def table_of(plays: Sequence[Play], gamma: float = GAMMA) -> TurnTable:
    table = turns([play.episode(seed) for seed, play in enumerate(plays)], "main", gamma=gamma)
    return replace(table, value=np.random.default_rng(len(table)).normal(size=len(table)).round(2))


def advantages(
    name: str, table: TurnTable, **options: Any
) -> np.ndarray[Any, np.dtype[np.float64]]:
    return estimate(name, table, gamma=GAMMA, **options)[0]


# -- slow implementations: (plays, rows as (episode, agent, k), values) -> one number per row ----

Row = tuple[int, str, int]
DISCOUNT, ONE = Fraction(9, 10), Fraction(1)
TINY = Fraction(1, 10**8)  # a spread below it is none


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def deviation(values: Sequence[Fraction], ddof: int = 0) -> Fraction:
    """The standard deviation, to 40 digits."""
    variance = sum(((value - mean(values)) ** 2 for value in values), Fraction(0)) / max(
        1, len(values) - ddof
    )
    return Fraction(isqrt(variance.numerator * 10**80 // variance.denominator), 10**40)


def rows_of(table: TurnTable) -> list[Row]:
    return list(zip(table.episode.tolist(), table.agent.tolist(), table.k.tolist(), strict=True))


def paid(plays: Sequence[Play], row: Row) -> list[Fraction]:
    return [Fraction(reward) for _, reward in plays[row[0]].moves[row[1]]]


def gain(plays: Sequence[Play], row: Row) -> Fraction:
    return sum(
        (DISCOUNT**later * reward for later, reward in enumerate(paid(plays, row)[row[2] :])),
        Fraction(0),
    )


def total(plays: Sequence[Play], row: Row) -> Fraction:
    return sum(paid(plays, row), Fraction(0))


def middled(value: Fraction, others: Sequence[Fraction]) -> Fraction:
    return Fraction(0) if max(others) - min(others) < TINY else value - mean(others)


def normal(
    value: Fraction, others: Sequence[Fraction], epsilon: float = 1e-8, ddof: int = 0
) -> Fraction:
    return (
        middled(value, others) / (deviation(others, ddof) + Fraction(epsilon))
        if max(others) - min(others) >= TINY
        else Fraction(0)
    )


def per_row(
    rows: Sequence[Row],
    key: Callable[[Row], Hashable],
    value: Callable[[Row], Fraction],
    epsilon: float,
) -> list[Fraction]:
    """Normalised among the rows of one key."""
    values = {row: value(row) for row in rows}
    return [
        normal(values[row], [values[other] for other in rows if key(other) == key(row)], epsilon)
        for row in rows
    ]


def per_play(
    rows: Sequence[Row],
    key: Callable[[Row], Hashable],
    value: Callable[[Row], Fraction],
    form: Callable[[Fraction, list[Fraction]], Fraction],
) -> list[Fraction]:
    """Each (episode, agent) counted once among those of one key."""
    values = {row: value(row) for row in rows}
    return [
        form(
            values[row],
            [values[other] for other in rows if other[2] == 0 and key(other) == key(row)],
        )
        for row in rows
    ]


def slow_rae(plays: Sequence[Play], rows: Sequence[Row]) -> list[Fraction]:
    found: dict[tuple[int, str], Fraction] = {}
    held: dict[str, Fraction] = {}
    decay = Fraction(95, 100)
    for episode in sorted(range(len(plays)), key=lambda seed: (plays[seed].task, seed)):
        for agent in plays[episode].moves:
            whole = total(plays, (episode, agent, 0))
            found[episode, agent] = whole - held.get(agent, Fraction(0))
            held[agent] = decay * held.get(agent, Fraction(0)) + (1 - decay) * whole
    return [found[episode, agent] for episode, agent, _ in rows]


def slow_gae(plays: Sequence[Play], rows: Sequence[Row], values: Sequence[float]) -> list[Fraction]:
    """A_k = sum over l of (gamma lam)^l d_(k+l), written out, then normalised by agent."""
    value = dict(zip(rows, map(Fraction, values), strict=True))
    fade = DISCOUNT * Fraction(95, 100)

    def raw(row: Row) -> Fraction:
        rewards, (episode, agent, k) = paid(plays, row), row
        after = [value.get((episode, agent, at + 1), Fraction(0)) for at in range(len(rewards))]
        steps = [
            rewards[at] + DISCOUNT * after[at] - value[episode, agent, at]
            for at in range(len(rewards))
        ]
        return sum((fade ** (at - k) * steps[at] for at in range(k, len(rewards))), Fraction(0))

    return per_row(rows, lambda row: row[1], raw, 1e-8)


def view(plays: Sequence[Play], row: Row) -> tuple[str, ...]:
    """All that the agent had been shown and had said when it took its turn."""
    episode, agent, k = row
    shown, said = [], ""
    for other, turn in plays[episode].steps():
        if other == agent:
            shown.append(said)
            if turn == k:
                return tuple(shown)
            shown.append(plays[episode].moves[agent][turn][0])
        said += plays[episode].moves[other][turn][0]
    raise AssertionError


def slow_gigpo(
    plays: Sequence[Play],
    rows: Sequence[Row],
    divide: bool = True,
    history: bool = False,
    ddof: int = 0,
) -> list[Fraction]:
    """A_E + A_S, each divided by the same kind of normaliser; states are last observations, or
    whole histories."""

    def group(row: Row) -> Hashable:
        return plays[row[0]].group, row[1]

    def norm(value: Fraction, others: Sequence[Fraction]) -> Fraction:
        return normal(value, others, 1e-6, ddof) if divide else middled(value, others)

    states = {row: view(plays, row) if history else view(plays, row)[-1] for row in rows}
    gains = {row: gain(plays, row) for row in rows}
    step = [
        norm(
            gains[row],
            [
                gains[other]
                for other in rows
                if group(other) == group(row) and states[other] == states[row]
            ],
        )
        for row in rows
    ]
    return [
        a + b
        for a, b in zip(
            per_play(rows, group, lambda row: total(plays, row), norm), step, strict=True
        )
    ]


def slow_mt_grpo(
    plays: Sequence[Play], rows: Sequence[Row], weight: Fraction = ONE, turn_weight: Fraction = ONE
) -> list[Fraction]:
    """Before the last turn the normalised reward of the turn and the normalised outcome, in the
    last turn the outcome alone."""

    def last(row: Row) -> bool:
        return row[2] == len(paid(plays, row)) - 1

    member, turn = _member(plays), _member(plays, True)
    of, ends = {row: paid(plays, row) for row in rows}, {row for row in rows if last(row)}
    result = []
    for row in rows:
        outcomes = [of[other][-1] for other in ends if member(other) == member(row)]
        outcome = normal(of[row][-1], outcomes, 1e-6)
        if row in ends:
            result.append(outcome)
            continue
        alike = [of[one][one[2]] for one in rows if one not in ends and turn(one) == turn(row)]
        mine = normal(of[row][row[2]], alike, 1e-6)
        result.append(turn_weight * mine + weight * outcome)
    return result


def rest(play: Play, at: int) -> Fraction:
    """What all are paid from a step on."""
    return sum((Fraction(play.moves[who][turn][1]) for who, turn in play.steps()[at:]), Fraction(0))


def slow_c3(plays: Sequence[Play], rows: Sequence[Row]) -> list[Fraction]:
    """Of plays that nobody forked: their first act against the first acts of the others."""
    begins = [row for row in rows if plays[row[0]].steps()[0] == (row[1], row[2])]
    mine = _member(plays)
    return [
        _leave_one_out(
            gain(plays, row), [gain(plays, one) for one in begins if mine(one) == mine(row)]
        )
        if row in begins
        else Fraction(0)
        for row in rows
    ]


def slow_magrpo(plays: Sequence[Play], rows: Sequence[Row]) -> list[Fraction]:
    """The mean of what the cast is still paid, over the plays that did the same up to and with
    this step, less that over those up to it."""
    result = []
    for episode, agent, k in rows:
        at = plays[episode].steps().index((agent, k))

        def did(play: Play, count: int) -> list[tuple[str, str]]:
            return [(who, play.moves[who][turn][0]) for who, turn in play.steps()[:count]]

        mine = plays[episode]
        node = [
            play for play in plays if play.group == mine.group and did(play, at) == did(mine, at)
        ]
        branch = [play for play in node if did(play, at + 1) == did(mine, at + 1)]
        result.append(
            mean([rest(play, at) for play in branch]) - mean([rest(play, at) for play in node])
        )
    return result


def slow_team(plays: Sequence[Play], rows: Sequence[Row]) -> list[Fraction]:
    """What the cast is still paid, less its mean over the k-th turns of the agent in the group."""
    still = {
        (episode, agent, k): rest(plays[episode], plays[episode].steps().index((agent, k)))
        for episode, agent, k in rows
    }
    turn = _member(plays, True)
    return [
        middled(still[row], [still[other] for other in rows if turn(other) == turn(row)])
        for row in rows
    ]


def slow_credit(plays: Sequence[Play], rows: Sequence[Row]) -> list[Fraction]:
    result, half = [], Fraction(1, 2)
    for row in rows:
        rewards, k = paid(plays, row), row[2]
        shares = (
            rewards[t] * half ** (t - k) / sum(half**d for d in range(t + 1))
            for t in range(k, len(rewards))
        )
        result.append(sum(shares, Fraction(0)))
    return result


SLOW: dict[str, Callable[[Sequence[Play], list[Row], list[float]], list[Fraction]]] = {
    "reinforce": lambda plays, rows, _: [gain(plays, row) for row in rows],
    "rebn": lambda plays, rows, _: per_row(
        rows, lambda row: row[1], lambda row: gain(plays, row), 1e-8
    ),
    "grpo": lambda plays, rows, _: per_play(
        rows,
        _member(plays),
        lambda row: total(plays, row),
        lambda one, all_: normal(one, all_, 1e-6),
    ),
    "dr_grpo": lambda plays, rows, _: per_play(
        rows, _member(plays), lambda row: total(plays, row), middled
    ),
    "rloo": lambda plays, rows, _: per_play(
        rows, _member(plays), lambda row: total(plays, row), _leave_one_out
    ),
    "rae": lambda plays, rows, _: slow_rae(plays, rows),
    "agent_norm": lambda plays, rows, _: per_row(
        rows, _member(plays), lambda row: total(plays, row), 1e-8
    ),
    "gae": slow_gae,
    "gigpo": lambda plays, rows, _: slow_gigpo(plays, rows),
    "mt_grpo": lambda plays, rows, _: slow_mt_grpo(plays, rows),
    "turn_grpo": lambda plays, rows, _: per_row(
        rows, _member(plays, True), lambda row: gain(plays, row), 1e-6
    ),
    "at_grpo": lambda plays, rows, _: per_row(
        rows, _member(plays, True), lambda row: paid(plays, row)[row[2]], 1e-6
    ),
    "c3": lambda plays, rows, _: slow_c3(plays, rows),
    "magrpo": lambda plays, rows, _: slow_magrpo(plays, rows),
    "team_grpo": lambda plays, rows, _: slow_team(plays, rows),
    "turn_credit": lambda plays, rows, _: slow_credit(plays, rows),
}


def _member(plays: Sequence[Play], turn: bool = False) -> Callable[[Row], Hashable]:
    return lambda row: (plays[row[0]].group, row[1], row[2] if turn else None)


def _leave_one_out(one: Fraction, all_: list[Fraction]) -> Fraction:
    return one - (sum(all_) - one) / (len(all_) - 1) if len(all_) > 1 else Fraction(0)


def test_every_estimator_has_a_slow_one():
    assert set(SLOW) == set(ESTIMATORS)


FORMS: dict[
    str, tuple[str, dict[str, Any], Callable[[Sequence[Play], list[Row]], list[Fraction]]]
] = {
    "gigpo, mean_norm": (
        "gigpo",
        {"divide": False},
        lambda plays, rows: slow_gigpo(plays, rows, divide=False),
    ),
    "gigpo, sample form": (
        "gigpo",
        {"ddof": 1},
        lambda plays, rows: slow_gigpo(plays, rows, ddof=1),
    ),
    "gigpo, histories": (
        "gigpo",
        {"history": True},
        lambda plays, rows: slow_gigpo(plays, rows, history=True),
    ),
    "mt_grpo, the paper's lambda": (
        "mt_grpo",
        {"weight": 0.5},
        lambda plays, rows: slow_mt_grpo(plays, rows, weight=Fraction(1, 2)),
    ),
    "mt_grpo, the code's coefficient": (
        "mt_grpo",
        {"turn_weight": 0.25},
        lambda plays, rows: slow_mt_grpo(plays, rows, turn_weight=Fraction(1, 4)),
    ),
    "grpo, sample form": (
        "grpo",
        {"ddof": 1},
        lambda plays, rows: per_play(
            rows,
            _member(plays),
            lambda row: total(plays, row),
            lambda one, all_: normal(one, all_, 1e-6, 1),
        ),
    ),
}


# making a table is most of what an example costs, so each one is for all estimators


@pytest.mark.longest
@some
@given(PLAYS)
def test_estimators_and_the_forms_that_options_choose_agree_with_their_slow_ones(plays):
    table = table_of(plays)
    rows, values = rows_of(table), table.value.tolist()
    for name, slow in SLOW.items():
        exact = [float(one) for one in slow(plays, rows, values)]
        assert advantages(name, table) == pytest.approx(exact, rel=1e-9, abs=1e-9), name
    for form, (name, options, of) in FORMS.items():
        exact = [float(one) for one in of(plays, rows)]
        assert advantages(name, table, **options) == pytest.approx(exact, rel=1e-9, abs=1e-9), form


def test_the_numbers_of_the_paper_of_turn_and_outcome():
    """Three plays of a tool turn and an answer: outcomes 1, 0, 0 and turn rewards 1, 0, 1 as the
    authors' code normalises them, each apart."""
    plays = [
        Play({"a": [("call", turn), ("answer", outcome)]}, "g", "t/0")
        for turn, outcome in ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0))
    ]
    table = table_of(plays)
    assert advantages("mt_grpo", table).round(3).tolist() == [
        2.121,
        1.414,
        -2.121,
        -0.707,
        0.0,
        -0.707,
    ]


# -- what all of them hold -----------------------------------------------------------------------


@pytest.mark.long
@some
@given(PLAYS, st.integers(0, 99))
def test_a_permutation_of_the_rows_permutes_bit_for_bit(plays, seed):
    table = table_of(plays)
    order = np.random.default_rng(seed).permutation(len(table))
    other = table.take(order)
    for name in ESTIMATORS:
        assert advantages(name, other).tolist() == advantages(name, table)[order].tolist(), name


# by what their rows are compared: those that are
KEYED: dict[tuple[str, ...], list[str]] = {}
for _name, _one in ESTIMATORS.items():
    if not _one.ledger:  # who reads the ledger reads the cast
        _keys = (_one.key,) if isinstance(_one.key, str) else _one.key or ("episode", "agent")
        KEYED.setdefault(tuple(k for k in _keys if k not in ("k", "policy")), []).append(_name)


@pytest.mark.long
@pytest.mark.parametrize("keys", KEYED, ids="-".join)
@some
@given(PLAYS, st.lists(REWARD, min_size=48, max_size=48))
def test_rewards_of_another_key_change_no_bit(keys, plays, others):
    """What the rows of one key are paid is not seen by those of another. Without a key an
    episode is one."""
    table = table_of(plays)
    named = list(zip(*(table.column(key).tolist() for key in keys), strict=True))
    mine = [one == named[0] for one in named]
    changed = []
    for seed, play in enumerate(plays):
        rows = {
            (agent, k)
            for (episode, agent, k), own in zip(rows_of(table), mine, strict=True)
            if episode == seed and own
        }
        moves = {
            agent: [
                (said, reward if (agent, k) in rows else others[(seed * 12 + k) % 48])
                for k, (said, reward) in enumerate(acted)
            ]
            for agent, acted in play.moves.items()
        }
        changed.append(replace(play, moves=moves))
    after = replace(table_of(changed), value=table.value)
    for name in KEYED[keys]:
        found, before = advantages(name, after), advantages(name, table)
        assert found[mine].tolist() == before[mine].tolist(), name


@some
@given(PLAYS)
def test_float32_columns_are_computed_in_float64(plays):
    table, columns = table_of(plays), ("reward", "ret", "total", "value")
    narrow = replace(table, **{one: getattr(table, one).astype(np.float32) for one in columns})
    wide = replace(table, **{one: getattr(narrow, one).astype(np.float64) for one in columns})
    for name in ESTIMATORS:
        found = advantages(name, narrow)
        assert found.dtype == np.float64, name
        assert found.tolist() == advantages(name, wide).tolist(), name


@pytest.mark.parametrize("name", ESTIMATORS)
def test_columns_of_another_length_are_named_with_both(name):
    table = table_of(
        [Play({"a": [("x", 1.0), ("y", 2.0)]}, "g", "t/0"), Play({"a": [("x", 3.0)]}, "g", "t/0")]
    )
    if not ESTIMATORS[name].ledger:
        short = replace(
            table, **{column: getattr(table, column)[:2] for column in ("reward", "ret", "total")}
        )
        with pytest.raises(
            ValueError, match=r"column (reward|ret|total) has shape \(2,\), the table has 3 turns"
        ):
            advantages(name, short)
    if ESTIMATORS[name].critic:
        with pytest.raises(
            ValueError, match=r"column value has shape \(4,\), the table has 3 turns"
        ):
            advantages(name, replace(table, value=np.zeros(4)))
    if ESTIMATORS[name].key:
        with pytest.raises(ValueError, match=r"column \w+ has 2 entries, the table has 3 turns"):
            advantages(
                name,
                replace(
                    table,
                    **{
                        key: getattr(table, key)[:2]
                        for key in ("agent", "group", "policy", "scenario")
                    },
                ),
            )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_empty_table_gives_an_empty_array_of_float64(name):
    found, state = estimate(name, TurnTable())
    assert found.shape == (0,) and found.dtype == np.float64 and state == {}


@pytest.mark.parametrize("function", [reinforce, rebn, grpo, dr_grpo, rloo, turn_grpo, at_grpo])
def test_bare_arrays_are_one_group_and_their_numbers_are_float64(function):
    found = function(np.array([1, 0, 0, 1], np.float32))
    assert found.dtype == np.float64
    assert function([]).shape == (0,)
    with pytest.raises(ValueError, match=r"got shape \(2, 2\)"):
        function(np.zeros((2, 2)))


# -- what some of them declare -------------------------------------------------------------------


@some
@given(PLAYS)
def test_centred_ones_sum_to_zero_in_each_key(plays):
    table = table_of(plays)
    for name, one in ESTIMATORS.items():
        if one.centred:
            found, key = advantages(name, table), groups(table, one.key)
            counted = (table.k == 0) | (one.centred != "total")
            sums = [math.fsum(found[(key == number) & counted]) for number in set(key.tolist())]
            assert max(map(abs, sums)) < 1e-6, name


@some
@given(PLAYS, st.integers(-8, 8))
def test_those_that_declare_it_see_no_offset_of_an_agents_last_reward(plays, offset):
    """With gamma 1; under another discount the same offset moves every return by another amount."""

    def moved(play: Play) -> Play:
        if "a" not in play.moves:
            return play
        *acted, (said, reward) = play.moves["a"]
        return replace(play, moves={**play.moves, "a": [*acted, (said, reward + offset)]})

    before, after = table_of(plays, 1.0), table_of([moved(play) for play in plays], 1.0)
    for name, one in ESTIMATORS.items():
        if one.offset:
            found = estimate(name, after)[0]
            assert found == pytest.approx(estimate(name, before)[0], abs=1e-9), name


@pytest.mark.long
@some
@given(PLAYS, st.sampled_from([0.5, 3.0, 1000.0]))
def test_those_that_declare_it_see_no_factor_on_all_rewards(plays, factor):
    """Up to the epsilon beside the deviation."""
    scaled = [
        replace(
            play,
            moves={a: [(said, factor * r) for said, r in acted] for a, acted in play.moves.items()},
        )
        for play in plays
    ]
    before, after = table_of(plays), table_of(scaled)
    for name in [name for name, one in ESTIMATORS.items() if one.scale]:
        parts = {"gigpo": ("observation",), "mt_grpo": ("k",)}.get(name, ())
        keys = [groups(before, (*_listed(ESTIMATORS[name].key), *more)) for more in {(), parts}]
        spreads = [
            values[key == number].std()
            for values in (before.ret, before.total, before.reward)
            for key in keys
            for number in set(key.tolist())
        ]
        # returns of equal rewards differ in the last bit under a discount
        if all(spread < 1e-12 or spread > 1e-2 for spread in spreads):
            assert advantages(name, after) == pytest.approx(advantages(name, before), abs=2e-3), (
                name
            )


def _listed(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


@some
@given(st.sampled_from([0.1, 0.9, 0.729, -0.1, 1 / 3]), st.integers(1, 4), st.integers(1, 6))
def test_constant_and_single_groups_give_exact_zeros_where_declared(value, agents, count):
    same: Moves = {agent: [("x", value)] for agent in "abcd"[:agents]}
    table = table_of([Play(same, "g", "t/0")] * count)
    table = replace(table, value=np.zeros(len(table)))
    for name, one in ESTIMATORS.items():
        found = estimate(name, table)[0]
        assert (found.tolist() == [0.0] * len(table)) is one.silent, name


# -- the termination example --------------------------------------------------------------------- A
# policy goes on with p = 1/2 (the parameter of a sigmoid), each continuation pays 1, at most 6. 64
# plays have its exact frequencies.

LENGTHS = [length for length in range(7) for _ in range(64 // 2 ** min(length + 1, 6))]


def exact_table() -> TurnTable:
    """Stopping is a turn of its own, paid 0; after six continuations there is nothing left to
    decide."""
    plays = [
        Play({"a": [("go", 1.0)] * length + [("stop", 0.0)] * (length < 6)}, "g", "t/0")
        for length in LENGTHS
    ]
    return turns([play.episode(seed) for seed, play in enumerate(plays)], "main")


def gradient(table: TurnTable, values: Any) -> float:
    """Mean over plays of the sum over turns of d log p / d theta, +1/2 for going on and -1/2 for
    stopping, times the value."""
    went = np.array([turn.action.text == "go" for turn in table.turns])
    return math.fsum(np.where(went, 0.5, -0.5) * values) / len(LENGTHS)


TRUE = 15 / 16


def test_the_exact_gradients_of_the_termination_example():
    assert len(LENGTHS) == 64
    table = exact_table()
    by_turn, everyone = groups(table, ("agent", "k")), groups(table, ("agent",))
    centred_rewards = by_group(table.reward, by_turn, lambda values: values - values.mean())
    assert gradient(table, table.ret) == pytest.approx(TRUE)
    assert gradient(table, table.ret - 3.7) == pytest.approx(TRUE)
    assert gradient(table, by_group(table.ret, everyone, centred)) == pytest.approx(TRUE)
    assert gradient(table, by_group(table.ret, by_turn, centred)) == pytest.approx(TRUE)
    assert gradient(table, table.total - table.total[table.k == 0].mean()) == pytest.approx(TRUE)
    assert gradient(table, centred_rewards) == pytest.approx(63 / 128)  # myopic
    # the stopping turn counted with reward 0
    assert gradient(table, _to_go(table, centred_rewards)) == pytest.approx(63 / 128)
    # absent turns counted as 0 up to the horizon
    absent = {k: table.reward[table.k == k].sum() / 64 for k in range(6)}
    horizon = [sum(-absent[later] for later in range(int(last) + 1, 6)) for last in table.K - 1]
    padded = _to_go(
        table, table.reward - np.array([absent[k] for k in table.k.tolist()])
    ) + np.array(horizon)
    assert gradient(table, padded) == pytest.approx(TRUE)


def test_rewards_that_are_centred_by_turn_and_summed_teach_nothing_where_stopping_is_no_turn():
    """Every continuation is paid 1, the mean of its turn: what is left is 0, to go or in sum,
    and with it the gradient."""
    plays = [Play({"a": [("go", 1.0)] * length}, "g", "t/0") for length in LENGTHS if length]
    table = turns([play.episode(seed) for seed, play in enumerate(plays)], "main")
    left = by_group(table.reward, groups(table, ("agent", "k")), centred)
    assert gradient(table, left) == gradient(table, _to_go(table, left)) == 0.0


def _to_go(table: TurnTable, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.zeros(len(table))
    for n in range(len(table)):
        result[n] = values[(table.episode == table.episode[n]) & (table.k >= table.k[n])].sum()
    return result


def test_estimators_that_are_declared_unbiased_give_the_true_gradient_up_to_their_scale():
    table = exact_table()
    returns_std, totals = table.ret.std(), table.total[table.k == 0]
    by_turn = sum(
        gradient(table, np.where(table.k == k, table.ret - table.ret[table.k == k].mean(), 0.0))
        / (table.ret[table.k == k].std() + 1e-6)
        for k in range(6)
    )
    expected = {
        "reinforce": TRUE,
        "rebn": TRUE / (returns_std + 1e-8),
        "grpo": TRUE / (totals.std() + 1e-6),
        "dr_grpo": TRUE,
        "rloo": TRUE * 64 / 63,
        "agent_norm": TRUE / (table.total.std() + 1e-8),
        "magrpo": TRUE,
        "turn_grpo": by_turn,
        "team_grpo": TRUE,
        "gigpo": TRUE / (totals.std() + 1e-6) + by_turn,  # the observation tells the turn here
        "rae": TRUE,
    }
    assert set(expected) == {name for name, one in ESTIMATORS.items() if one.unbiased}
    for name, value in expected.items():
        options = (
            {"decay": 1.0} if name == "rae" else {}
            # a baseline that stands still; one that moves is independent of the play, not of this
            # sample
        )
        state = {"game/a": 1.7} if name == "rae" else None
        assert gradient(table, estimate(name, table, state=state, **options)[0]) == pytest.approx(
            value
        ), name
    # declared myopic: its own reward alone
    assert gradient(table, at_grpo(table)) == pytest.approx(63 / 128 / (0.5 + 1e-6))


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_generalised_advantages_are_exact_with_exact_values_and_with_lambda_one(lam):
    table = exact_table()
    exact = replace(
        table, value=np.array([table.ret[table.k == k].mean() for k in table.k.tolist()])
    )
    assert gradient(table, raw_gae(exact, lam=lam)) == pytest.approx(TRUE)
    blind = gradient(table, raw_gae(table, lam=lam))  # the critic says 0 everywhere
    assert blind == pytest.approx(TRUE) if lam == 1.0 else blind < TRUE - 0.1
