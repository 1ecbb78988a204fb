"""Every registered estimator against a second slow implementation, and what all of them must hold, over tables of 1-4 agents and 1-12 turns.

The slow ones read the plays as they were made up, in plain Python, and share nothing with `gem_ma.estimators`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.credit import TurnTable, turns
from gem_ma.estimators import ESTIMATORS, at_grpo, dr_grpo, estimate, groups, grpo, mt_grpo, raw_gae, rebn, reinforce, rloo
from gem_ma.estimators.groups import by_group, centred
from gem_ma.types import Action, End, Entry, Episode, Message, Reply, Seat, Turn

GAMMA, LAM = 0.9, 0.95
Moves = dict[str, list[tuple[str, float]]]  # by agent: what it says and is paid, turn by turn


@dataclass(frozen=True)
class Play:
    """One made-up episode: agents take their turns in rounds."""

    moves: Moves
    group: str
    task: str

    def steps(self) -> list[tuple[str, int]]:
        rounds = max(map(len, self.moves.values()))
        return [(agent, k) for k in range(rounds) for agent in self.moves if k < len(self.moves[agent])]

    def episode(self, seed: int) -> Episode:
        made, said = [], ""
        for step, (agent, k) in enumerate(self.steps()):
            made.append(Turn(step, agent, (Message(f"so far {said}"),), None, (), Action(self.moves[agent][k][0]), (Reply(policy="main"),)))
            said += self.moves[agent][k][0]
        paid = tuple(Entry(step, agent, self.moves[agent][k][1]) for step, (agent, k) in enumerate(self.steps()))
        cast = {agent: Seat(policy="main") for agent in self.moves}
        return Episode("game", 1, seed, self.task, 0, self.group, cast, tuple(made), (), (), {}, paid, End.TERMINATED)


REWARD = st.integers(-8, 8).map(lambda quarters: quarters / 4)  # two that differ do so by more than any rounding
MOVES = st.lists(st.tuples(st.sampled_from("xy"), REWARD), min_size=1, max_size=12)
PLAY = st.builds(
    Play, st.dictionaries(st.sampled_from("abcd"), MOVES, min_size=1, max_size=4), st.sampled_from("gh"), st.sampled_from(["t/0", "t/1"])
)
PLAYS = st.lists(PLAY, min_size=1, max_size=5)
some = settings(max_examples=12, deadline=None)


def table_of(plays: Sequence[Play], gamma: float = GAMMA) -> TurnTable:
    table = turns([play.episode(seed) for seed, play in enumerate(plays)], "main", gamma=gamma)
    return replace(table, value=np.random.default_rng(len(table)).normal(size=len(table)).round(2))


def advantages(name: str, table: TurnTable, **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return estimate(name, table, gamma=GAMMA, **options)[0]


# -- slow implementations: (plays, rows as (episode, agent, k), values) -> one number per row ---------------------------------

Row = tuple[int, str, int]


def rows_of(table: TurnTable) -> list[Row]:
    return list(zip(table.episode.tolist(), table.agent.tolist(), table.k.tolist(), strict=True))


def paid(plays: Sequence[Play], row: Row) -> list[float]:
    return [reward for _, reward in plays[row[0]].moves[row[1]]]


def gain(plays: Sequence[Play], row: Row) -> float:
    return sum(GAMMA**later * reward for later, reward in enumerate(paid(plays, row)[row[2] :]))


def total(plays: Sequence[Play], row: Row) -> float:
    return sum(paid(plays, row))


def normal(value: float, others: Sequence[float], epsilon: float = 1e-8) -> float:
    return 0.0 if max(others) - min(others) < 1e-8 else (value - fmean(others)) / (pstdev(others) + epsilon)


def per_row(rows: Sequence[Row], key: Callable[[Row], Hashable], value: Callable[[Row], float], epsilon: float) -> list[float]:
    """Normalised among the rows of one key."""
    return [normal(value(row), [value(other) for other in rows if key(other) == key(row)], epsilon) for row in rows]


def per_play(
    rows: Sequence[Row], key: Callable[[Row], Hashable], value: Callable[[Row], float], form: Callable[[float, list[float]], float]
) -> list[float]:
    """Each (episode, agent) counted once among those of one key."""
    return [form(value(row), [value(other) for other in rows if other[2] == 0 and key(other) == key(row)]) for row in rows]


def slow_rae(plays: Sequence[Play], rows: Sequence[Row]) -> list[float]:
    found: dict[tuple[int, str], float] = {}
    held: dict[str, float] = {}
    for episode in sorted(range(len(plays)), key=lambda seed: (plays[seed].task, seed)):
        for agent in plays[episode].moves:
            whole = total(plays, (episode, agent, 0))
            found[episode, agent] = whole - held.get(agent, 0.0)
            held[agent] = 0.95 * held.get(agent, 0.0) + 0.05 * whole
    return [found[episode, agent] for episode, agent, _ in rows]


def slow_gae(plays: Sequence[Play], rows: Sequence[Row], values: Sequence[float]) -> list[float]:
    """A_k = sum over l of (gamma lam)^l d_(k+l), written out, then normalised by agent."""
    value = dict(zip(rows, values, strict=True))

    def raw(row: Row) -> float:
        rewards, (episode, agent, k) = paid(plays, row), row
        after = [value.get((episode, agent, at + 1), 0.0) for at in range(len(rewards))]
        steps = [rewards[at] + GAMMA * after[at] - value[episode, agent, at] for at in range(len(rewards))]
        return sum((GAMMA * LAM) ** (at - k) * steps[at] for at in range(k, len(rewards)))

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


def slow_gigpo(plays: Sequence[Play], rows: Sequence[Row]) -> list[float]:
    def group(row: Row) -> Hashable:
        return plays[row[0]].group, row[1]

    whole = per_play(rows, group, lambda row: total(plays, row), lambda one, all_: normal(one, all_, 1e-6))
    views = {row: view(plays, row) for row in rows}
    parts = []
    for row in rows:
        same = [gain(plays, other) for other in rows if group(other) == group(row) and views[other] == views[row]]
        parts.append(0.0 if max(same) - min(same) < 1e-8 else gain(plays, row) - fmean(same))
    return [a + b for a, b in zip(whole, parts, strict=True)]


def slow_magrpo(plays: Sequence[Play], rows: Sequence[Row]) -> list[float]:
    """The mean of what the cast is still paid, over the plays that did the same up to and with this step, less that over those up to it."""
    result = []
    for episode, agent, k in rows:
        at = plays[episode].steps().index((agent, k))

        def did(play: Play, count: int) -> list[tuple[str, str]]:
            return [(who, play.moves[who][turn][0]) for who, turn in play.steps()[:count]]

        def rest(play: Play, at: int = at) -> float:
            return sum(play.moves[who][turn][1] for who, turn in play.steps()[at:])

        mine = plays[episode]
        node = [play for play in plays if play.group == mine.group and did(play, at) == did(mine, at)]
        branch = [play for play in node if did(play, at + 1) == did(mine, at + 1)]
        result.append(fmean(map(rest, branch)) - fmean(map(rest, node)))
    return result


def slow_credit(plays: Sequence[Play], rows: Sequence[Row]) -> list[float]:
    result = []
    for row in rows:
        rewards, k = paid(plays, row), row[2]
        result.append(sum(rewards[t] * 0.5 ** (t - k) / sum(0.5**d for d in range(t + 1)) for t in range(k, len(rewards))))
    return result


SLOW: dict[str, Callable[[Sequence[Play], list[Row], list[float]], list[float]]] = {
    "reinforce": lambda plays, rows, _: [gain(plays, row) for row in rows],
    "rebn": lambda plays, rows, _: per_row(rows, lambda row: row[1], lambda row: gain(plays, row), 1e-8),
    "grpo": lambda plays, rows, _: per_play(rows, _member(plays), lambda row: total(plays, row), lambda one, all_: normal(one, all_, 1e-6)),
    "dr_grpo": lambda plays, rows, _: per_play(rows, _member(plays), lambda row: total(plays, row), lambda one, all_: one - fmean(all_)),
    "rloo": lambda plays, rows, _: per_play(rows, _member(plays), lambda row: total(plays, row), _leave_one_out),
    "rae": lambda plays, rows, _: slow_rae(plays, rows),
    "agent_norm": lambda plays, rows, _: per_row(rows, _member(plays), lambda row: total(plays, row), 1e-8),
    "gae": slow_gae,
    "gigpo": lambda plays, rows, _: slow_gigpo(plays, rows),
    "mt_grpo": lambda plays, rows, _: per_row(rows, _member(plays, True), lambda row: gain(plays, row), 1e-6),
    "at_grpo": lambda plays, rows, _: per_row(rows, _member(plays, True), lambda row: paid(plays, row)[row[2]], 1e-6),
    "magrpo": lambda plays, rows, _: slow_magrpo(plays, rows),
    "turn_credit": lambda plays, rows, _: slow_credit(plays, rows),
}


def _member(plays: Sequence[Play], turn: bool = False) -> Callable[[Row], Hashable]:
    return lambda row: (plays[row[0]].group, row[1], row[2] if turn else None)


def _leave_one_out(one: float, all_: list[float]) -> float:
    return one - (sum(all_) - one) / (len(all_) - 1) if len(all_) > 1 else 0.0


def test_every_estimator_has_a_slow_one():
    assert set(SLOW) == set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
@some
@given(PLAYS)
def test_an_estimator_agrees_with_its_slow_one(name, plays):
    table = table_of(plays)
    assert advantages(name, table) == pytest.approx(SLOW[name](plays, rows_of(table), table.value.tolist()), abs=1e-7)


# -- what all of them hold ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
@some
@given(PLAYS, st.integers(0, 99))
def test_a_permutation_of_the_rows_permutes_bit_for_bit(name, plays, seed):
    table = table_of(plays)
    order = np.random.default_rng(seed).permutation(len(table))
    assert advantages(name, table.take(order)).tolist() == advantages(name, table)[order].tolist()


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("magrpo",)])
@some
@given(PLAYS, st.lists(REWARD, min_size=48, max_size=48))
def test_rewards_of_another_key_change_no_bit(name, plays, others):
    """What the rows of one key are paid is not seen by those of another. Estimators without a key look at one episode only."""
    table = table_of(plays)
    keys = ESTIMATORS[name].key or ("episode", "agent")
    named = list(zip(*(table.column(key).tolist() for key in keys if key not in ("k", "policy")), strict=True))
    mine = [one == named[0] for one in named]
    changed = []
    for seed, play in enumerate(plays):
        rows = {(agent, k) for (episode, agent, k), own in zip(rows_of(table), mine, strict=True) if episode == seed and own}
        moves = {
            agent: [(said, reward if (agent, k) in rows else others[(seed * 12 + k) % 48]) for k, (said, reward) in enumerate(acted)]
            for agent, acted in play.moves.items()
        }
        changed.append(replace(play, moves=moves))
    after = replace(table_of(changed), value=table.value)
    assert advantages(name, after)[mine].tolist() == advantages(name, table)[mine].tolist()


@pytest.mark.parametrize("name", ESTIMATORS)
@some
@given(PLAYS)
def test_float32_columns_are_computed_in_float64(name, plays):
    table = table_of(plays)
    narrow = replace(table, **{column: getattr(table, column).astype(np.float32) for column in ("reward", "ret", "total", "value")})
    wide = replace(table, **{column: getattr(narrow, column).astype(np.float64) for column in ("reward", "ret", "total", "value")})
    found = advantages(name, narrow)
    assert found.dtype == np.float64
    assert found.tolist() == advantages(name, wide).tolist()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_columns_of_another_length_are_named_with_both(name):
    table = table_of([Play({"a": [("x", 1.0), ("y", 2.0)]}, "g", "t/0"), Play({"a": [("x", 3.0)]}, "g", "t/0")])
    if not ESTIMATORS[name].ledger:
        short = replace(table, **{column: getattr(table, column)[:2] for column in ("reward", "ret", "total")})
        with pytest.raises(ValueError, match=r"column (reward|ret|total) has shape \(2,\), the table has 3 turns"):
            advantages(name, short)
    if ESTIMATORS[name].critic:
        with pytest.raises(ValueError, match=r"column value has shape \(4,\), the table has 3 turns"):
            advantages(name, replace(table, value=np.zeros(4)))
    if ESTIMATORS[name].key:
        with pytest.raises(ValueError, match=r"column \w+ has 2 entries, the table has 3 turns"):
            advantages(name, replace(table, **{key: getattr(table, key)[:2] for key in ("agent", "group", "policy", "scenario")}))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_empty_table_gives_an_empty_array_of_float64(name):
    found, state = estimate(name, TurnTable())
    assert found.shape == (0,) and found.dtype == np.float64 and state == {}


@pytest.mark.parametrize("function", [reinforce, rebn, grpo, dr_grpo, rloo, mt_grpo, at_grpo])
def test_bare_arrays_are_one_group_and_their_numbers_are_float64(function):
    found = function(np.array([1, 0, 0, 1], np.float32))
    assert found.dtype == np.float64
    assert function([]).shape == (0,)
    with pytest.raises(ValueError, match=r"got shape \(2, 2\)"):
        function(np.zeros((2, 2)))


# -- what some of them declare ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if one.centred])
@some
@given(PLAYS)
def test_centred_ones_sum_to_zero_in_each_key(name, plays):
    table, once = table_of(plays), ESTIMATORS[name].centred == "total"
    found = advantages(name, table)
    for number in set(groups(table, ESTIMATORS[name].key).tolist()):
        rows = (groups(table, ESTIMATORS[name].key) == number) & ((table.k == 0) | (not once))
        assert abs(math.fsum(found[rows])) < 1e-6


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if one.offset])
@some
@given(PLAYS, st.integers(-8, 8))
def test_those_that_declare_it_see_no_offset_of_an_agents_last_reward(name, plays, offset):
    """With gamma 1; under another discount the same offset moves every return by another amount."""

    def moved(play: Play) -> Play:
        acted = play.moves.get("a")
        return play if acted is None else replace(play, moves={**play.moves, "a": [*acted[:-1], (acted[-1][0], acted[-1][1] + offset)]})

    before, after = table_of(plays, 1.0), table_of([moved(play) for play in plays], 1.0)
    assert estimate(name, after)[0] == pytest.approx(estimate(name, before)[0], abs=1e-9)


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if one.scale])
@some
@given(PLAYS, st.sampled_from([0.5, 3.0, 1000.0]))
def test_those_that_declare_it_see_no_factor_on_all_rewards(name, plays, factor):
    """Up to the epsilon beside the deviation."""
    scaled = [replace(play, moves={a: [(said, factor * r) for said, r in acted] for a, acted in play.moves.items()}) for play in plays]
    before, after = table_of(plays), table_of(scaled)
    columns = [table_of(plays).ret, table_of(plays).total, table_of(plays).reward]
    keys = [groups(before, (*_listed(ESTIMATORS[name].key),)) for _ in columns]
    spreads = [values[key == number].std() for values, key in zip(columns, keys, strict=True) for number in set(key.tolist())]
    if all(spread < 1e-12 or spread > 1e-2 for spread in spreads):  # returns of equal rewards differ in the last bit under a discount
        assert advantages(name, after) == pytest.approx(advantages(name, before), abs=2e-3)


def _listed(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=15, deadline=None)
@given(st.sampled_from([0.1, 0.9, 0.729, -0.1, 1 / 3]), st.integers(1, 4), st.integers(1, 6))
def test_constant_and_single_groups_give_exact_zeros_where_declared(name, value, agents, count):
    same: Moves = {agent: [("x", value)] for agent in "abcd"[:agents]}
    table = table_of([Play(same, "g", "t/0")] * count)
    for one in (table, replace(table, value=np.zeros(len(table)))):
        found = estimate(name, replace(one, value=np.zeros(len(table))))[0]
        assert (found.tolist() == [0.0] * len(table)) is ESTIMATORS[name].silent


# -- the termination example --------------------------------------------------------------------------------------------------
# A policy goes on with p = 1/2 (the parameter of a sigmoid), each continuation pays 1, at most 6. 64 plays have its exact frequencies.

LENGTHS = [length for length in range(7) for _ in range(64 // 2 ** min(length + 1, 6))]


def exact_table() -> TurnTable:
    """Stopping is a turn of its own, paid 0; after six continuations there is nothing left to decide."""
    plays = [Play({"a": [("go", 1.0)] * length + [("stop", 0.0)] * (length < 6)}, "g", "t/0") for length in LENGTHS]
    return turns([play.episode(seed) for seed, play in enumerate(plays)], "main")


def gradient(table: TurnTable, values: Any) -> float:
    """Mean over plays of the sum over turns of d log p / d theta, +1/2 for going on and -1/2 for stopping, times the value."""
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
    assert gradient(table, _to_go(table, centred_rewards)) == pytest.approx(63 / 128)  # the stopping turn counted with reward 0
    absent = {k: table.reward[table.k == k].sum() / 64 for k in range(6)}  # absent turns counted as 0 up to the horizon
    horizon = [sum(-absent[later] for later in range(int(last) + 1, 6)) for last in table.K - 1]
    padded = _to_go(table, table.reward - np.array([absent[k] for k in table.k.tolist()])) + np.array(horizon)
    assert gradient(table, padded) == pytest.approx(TRUE)


def test_rewards_that_are_centred_by_turn_and_summed_teach_nothing_where_stopping_is_no_turn():
    """Every continuation is paid 1, the mean of its turn: what is left is 0, to go or in sum, and with it the gradient."""
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
    expected = {
        "reinforce": TRUE,
        "rebn": TRUE / (returns_std + 1e-8),
        "grpo": TRUE / (totals.std() + 1e-6),
        "dr_grpo": TRUE,
        "rloo": TRUE * 64 / 63,
        "agent_norm": TRUE / (table.total.std() + 1e-8),
        "magrpo": TRUE,
        "mt_grpo": sum(
            gradient(table, np.where(table.k == k, table.ret - table.ret[table.k == k].mean(), 0.0)) / (table.ret[table.k == k].std() + 1e-6)
            for k in range(6)
        ),
        "gigpo": TRUE / (totals.std() + 1e-6) + TRUE,  # the view tells the turn here, so its second part is centred by turn
        "rae": TRUE,
    }
    assert set(expected) == {name for name, one in ESTIMATORS.items() if one.unbiased}
    for name, value in expected.items():
        options = (
            {"decay": 1.0} if name == "rae" else {}
        )  # a baseline that stands still; one that moves is independent of the play, not of this sample
        state = {"game/a": 1.7} if name == "rae" else None
        assert gradient(table, estimate(name, table, state=state, **options)[0]) == pytest.approx(value), name
    assert gradient(table, at_grpo(table)) == pytest.approx(63 / 128 / (0.5 + 1e-6))  # declared myopic: its own reward alone


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_generalised_advantages_are_exact_with_exact_values_and_with_lambda_one(lam):
    table = exact_table()
    exact = replace(table, value=np.array([table.ret[table.k == k].mean() for k in table.k.tolist()]))
    assert gradient(table, raw_gae(exact, lam=lam)) == pytest.approx(TRUE)
    blind = gradient(table, raw_gae(table, lam=lam))  # the critic says 0 everywhere
    assert blind == pytest.approx(TRUE) if lam == 1.0 else blind < TRUE - 0.1
