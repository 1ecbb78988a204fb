"""Estimators that look at single turns: hand numbers and slow loops. `test_estimators_slow.py`
holds what is true of all."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.credit import turns
from gem_ma.credit.estimators import (
    agent_norm,
    at_grpo,
    c3,
    estimate,
    gae,
    gigpo,
    magrpo,
    raw_gae,
    shaped,
    spread,
    turn_credit,
    turn_grpo,
)
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Message, Reply, Turn
from tests.plays import recorded

REWARD = st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3))
MOVES = st.lists(st.tuples(st.sampled_from("xy"), REWARD), min_size=1, max_size=4)
PLAYS = st.lists(
    st.dictionaries(st.sampled_from("ab"), MOVES, min_size=1, max_size=2), min_size=1, max_size=5
)


def played(
    moves: dict[str, list[tuple[str, float]]],
    seed: int = 0,
    group: str = "g",
    end: End = End.TERMINATED,
    scenario: str = "game",
) -> Episode:
    """Agents take their turns in rounds; turn k of an agent says moves[agent][k][0], is paid
    [1], and sees what was said before."""
    steps = [
        (agent, k)
        for k in range(max(map(len, moves.values())))
        for agent in moves
        if k < len(moves[agent])
    ]
    made, said = [], ""
    for step, (agent, k) in enumerate(steps):
        made.append(
            Turn(
                step,
                agent,
                (Message(f"so far {said}"),),
                None,
                (),
                Action(moves[agent][k][0]),
                (Reply(policy="main"),),
            )
        )
        said += moves[agent][k][0]
    paid = tuple(Entry(step, agent, moves[agent][k][1]) for step, (agent, k) in enumerate(steps))
    return recorded(
        {a: Seat(policy="main") for a in moves},
        tuple(made),
        paid,
        scenario=scenario,
        seed=seed,
        group=group,
        end=end,
    )


def table_of(
    *episodes: Episode, gamma: float = 1.0, tails: dict[tuple[int, str], float] | None = None
) -> TurnTable:
    return turns(episodes, "main", gamma=gamma, tails=tails)


def random_table(
    plays: list[dict[str, list[tuple[str, float]]]], gamma: float = 1.0, valued: bool = False
) -> TurnTable:
    table = table_of(*(played(moves, seed) for seed, moves in enumerate(plays)), gamma=gamma)
    return (
        replace(table, value=np.random.default_rng(len(table)).normal(size=len(table)))
        if valued
        else table
    )


# -- value baselines -----------------------------------------------------------------------------


def test_generalised_advantages_by_hand_ended_and_cut():
    assert gae([0, 0, 1], [0.5, 0.5, 0.5, 0], lam=0.5) == pytest.approx([0.125, 0.25, 0.5])
    assert gae([0, 0, 1], [0.5, 0.5, 0.5, 0.8], lam=0.5) == pytest.approx([0.325, 0.65, 1.3])
    assert gae([], [0.7]).shape == (0,)


def test_lengths_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="values need one entry more than rewards; got 3 and 3"):
        gae([1, 2, 3], [1, 2, 3])


@pytest.mark.long
@settings(max_examples=30)
@given(PLAYS, st.sampled_from([1.0, 0.9]), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_the_table_gives_what_the_arrays_give(plays, gamma, lam):
    table = random_table(plays, gamma, valued=True)
    found = raw_gae(table, gamma=gamma, lam=lam)
    for episode, agent in {
        (int(e), str(a)) for e, a in zip(table.episode, table.agent, strict=True)
    }:
        rows = (table.episode == episode) & (table.agent == agent)
        expected = gae(table.reward[rows], [*table.value[rows], 0.0], gamma, lam)
        assert found[rows] == pytest.approx(expected, abs=1e-9)


def test_a_cut_play_bootstraps_from_its_tail():
    moves = {"a": [("x", 0.0), ("x", 0.0), ("x", 1.0)]}
    table = replace(
        table_of(played(moves, end=End.MAX_STEPS), tails={(0, "a"): 0.8}), value=np.full(3, 0.5)
    )
    assert raw_gae(table, lam=0.5) == pytest.approx([0.325, 0.65, 1.3])


def test_a_turn_of_another_policy_is_bridged():
    """Rewards 1, 2, 4 at gamma .5; the turn in the middle is not in the table. V = 1 before turn
    0 and 3 before turn 2."""
    table = replace(
        table_of(played({"a": [("x", 1.0), ("x", 2.0), ("x", 4.0)]}), gamma=0.5),
        value=np.array([1.0, 9.0, 3.0]),
    )
    last = 4 - 3
    first = (1 + 0.5 * 2) + 0.25 * 3 - 1 + (0.5 * 0.8) ** 2 * last
    assert raw_gae(table.take([0, 2]), gamma=0.5, lam=0.8) == pytest.approx([first, last])


@pytest.mark.long
@settings(max_examples=30)
@given(PLAYS)
def test_lambda_one_without_values_is_the_return_and_lambda_zero_the_reward(plays):
    table = random_table(plays)
    assert raw_gae(table, lam=1.0) == pytest.approx(table.ret, abs=1e-9)
    assert raw_gae(table, lam=0.0) == pytest.approx(table.reward, abs=1e-9)


# -- groups --------------------------------------------------------------------------------------


def test_agent_norm_counts_an_episode_once_per_turn():
    table = table_of(
        played({"a": [("x", 0.0), ("x", 0.0), ("x", 1.0)]}, 0), played({"a": [("x", 0.0)]}, 1)
    )
    values = [1, 1, 1, 0]
    assert agent_norm(table) == pytest.approx(
        [(v - fmean(values)) / pstdev(values) for v in values]
    )


@pytest.mark.long
@given(PLAYS)
def test_turn_index_groups_against_a_slow_loop(plays):
    table = random_table(plays)
    for function, column in ((turn_grpo, table.ret), (at_grpo, table.reward)):
        found = function(table)
        for n in range(len(table)):
            mine = [
                column[m]
                for m in range(len(table))
                if (table.agent[m], table.k[m]) == (table.agent[n], table.k[n])
            ]
            spread_of = pstdev(mine)
            expected = (
                (column[n] - fmean(mine)) / (spread_of + 1e-6)
                if max(mine) - min(mine) >= 1e-8 and spread_of >= 1e-8
                else 0.0
            )
            assert found[n] == pytest.approx(expected, abs=1e-6)


def test_two_turns_of_one_episode_get_different_advantages():
    table = table_of(
        played({"a": [("x", 1.0), ("x", 0.0)]}, 0), played({"a": [("y", 0.0), ("x", 0.0)]}, 1)
    )
    assert turn_grpo(table).round(3).tolist() == [1, 0, -1, 0]


def test_anchor_states_compare_turns_from_the_same_view_and_are_silent_where_there_is_one():
    same = (
        played({"a": [("x", 0.0), ("x", 1.0)]}, 0),
        played({"a": [("x", 0.0), ("y", 0.0)]}, 1),
        played({"a": [("y", 0.0), ("x", 0.5)]}, 2),
    )
    table = table_of(*same)
    step_part = gigpo(table, divide=False, history=True) - gigpo(table, weight=0.0, divide=False)
    # turn 0 was taken from one view by all: G = 1, 0, .5; turn 1 of episodes 0 and 1 from one view:
    # G = 1, 0; that of episode 2 stands alone
    assert step_part == pytest.approx([0.5, 0.5, -0.5, -0.5, 0.0, 0.0])
    assert gigpo(table, weight=0.0, divide=False) == pytest.approx([0.5, 0.5, -0.5, -0.5, 0, 0])


# -- trees ---------------------------------------------------------------------------------------


def test_siblings_of_a_tree_by_hand():
    """x first, then x pays 4 or y pays 0; y first pays 1 and x follows for 0. Return of the
    first x = mean(4, 0) = 2, of the first y = 1."""
    plays = (
        {"a": [("x", 0.0), ("x", 4.0)]},
        {"a": [("x", 0.0), ("y", 0.0)]},
        {"a": [("y", 1.0), ("x", 0.0)]},
    )
    table = table_of(*(played(moves, seed) for seed, moves in enumerate(plays)))
    # x was sampled twice, so the mean of the first step is (2 + 2 + 1) / 3 and its deviation sqrt(2
    # / 9)
    assert magrpo(table) == pytest.approx([1 / 3, 2.0, 1 / 3, -2.0, -2 / 3, 0.0])
    assert magrpo(table, divide=True) == pytest.approx(
        [0.5**0.5, 1.0, 0.5**0.5, -1.0, -(2**0.5), 0.0]
    )


def test_a_prefix_that_a_fork_took_over_was_not_sampled_again():
    """The same three plays, the second one a fork of the first: the first x was sampled once, so
    its siblings' mean is (2 + 1) / 2."""
    plays = (
        {"a": [("x", 0.0), ("x", 4.0)]},
        {"a": [("x", 0.0), ("y", 0.0)]},
        {"a": [("y", 1.0), ("x", 0.0)]},
    )
    trunk, branch, other = (played(moves, seed) for seed, moves in enumerate(plays))
    table = table_of(trunk, replace(branch, forks=((1, 7),)), other)
    assert table.step.tolist() == [0, 1, 1, 0, 1]
    assert magrpo(table) == pytest.approx([0.5, 2.0, -2.0, -0.5, 0.0])


def test_only_the_forked_turn_is_told_what_its_forks_came_to():
    """Two forks of the second turn: x and then 3, y and then 1; the play that was forked has no
    other of its start."""
    plays = (
        {"a": [("x", 0.0), ("x", 0.0), ("x", 2.0)]},
        {"a": [("x", 5.0), ("x", 0.0), ("x", 3.0)]},
        {"a": [("x", 5.0), ("y", 0.0), ("x", 1.0)]},
    )
    trunk, *branches = (played(moves, seed) for seed, moves in enumerate(plays))
    forks = [replace(branch, forks=((1, n),), group="g@1") for n, branch in enumerate(branches)]
    table = table_of(trunk, *forks)
    assert table.step.tolist() == [0, 1, 2, 1, 2, 1, 2]
    assert c3(table).tolist() == [0, 0, 0, 2, 0, -2, 0]
    # a fork of a fork is compared where it was forked last
    again = [replace(fork, forks=((1, 0), (2, n)), group="g@2") for n, fork in enumerate(branches)]
    assert c3(table_of(*again)).tolist() == [2, -2]


def test_all_agents_of_a_joint_action_share_its_advantage():
    def joint(seed: int, said: str, pay: float) -> Episode:
        made = tuple(
            Turn(0, agent, (), None, (), Action(said), (Reply(policy="main"),)) for agent in "ab"
        )
        cast = {agent: Seat(policy="main") for agent in "ab"}
        return recorded(
            cast,
            made,
            (Entry(0, "a", pay), Entry(0, "b", 0.0)),
            scenario="game",
            seed=seed,
            group="g",
        )

    assert magrpo(table_of(joint(0, "x", 3.0), joint(1, "y", 1.0))).tolist() == [1, 1, -1, -1]


# -- spread credit -------------------------------------------------------------------------------


@pytest.mark.long
def test_a_tree_may_be_deeper_than_python_has_frames():
    long = [
        played({"a": [("x", 0.0)] * 1200 + [(last, paid)]}, seed)
        for seed, (last, paid) in enumerate((("x", 1.0), ("y", 3.0)))
    ]
    assert magrpo(table_of(*long)).tolist() == [0.0] * 1200 + [-1.0] + [0.0] * 1200 + [1.0]


def test_spread_by_hand_and_its_sum():
    assert spread([0.5, 0, 0.5], 0.5) == pytest.approx([4 / 7, 1 / 7, 2 / 7])
    assert math.fsum(spread([0.5, -1.0, 0.5, 3.0], 0.3)) == pytest.approx(3.0)


@pytest.mark.long
@given(st.lists(REWARD, min_size=1, max_size=6), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_spread_against_a_slow_loop(steps, decay):
    expected = [0.0] * len(steps)
    for t, step in enumerate(steps):
        weights = [decay ** (t - earlier) for earlier in range(t + 1)]
        for earlier, weight in enumerate(weights):
            expected[earlier] += step * weight / sum(weights)
    assert spread(steps, decay) == pytest.approx(expected, abs=1e-9)


def test_scores_telescope_and_a_turn_without_one_passes_on():
    table = table_of(played({"a": [("x", 0.0), ("x", 0.0), ("x", 0.0)]}))
    assert turn_credit(table, scores=[0.5, 0.5, 1.0]) == pytest.approx([4 / 7, 1 / 7, 2 / 7])
    assert math.fsum(turn_credit(table, scores=[0.5, math.nan, 1.0])) == pytest.approx(1.0)
    assert turn_credit(table, scores=[math.nan, math.nan, 1.0], decay=0.0).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="one entry per turn"):
        turn_credit(table, scores=[1.0])


# -- shaping -------------------------------------------------------------------------------------


def test_shaping_knows_the_past_only_and_keeps_the_table_consistent():
    table = table_of(played({"a": [("x", 0.0), ("x", 1.0)]}, 0), gamma=0.5)
    first, state = shaped(table, "margin", 0.5)
    assert first.total.tolist() == [1, 1] and state == {"game/a#mean": 1.0, "game/a#n": 1}
    worse = table_of(played({"a": [("x", 0.0), ("x", 0.0)]}, 1), gamma=0.5)
    second, after = shaped(worse, "margin", 0.5, gamma=0.5, state=state)
    assert (second.reward.tolist(), second.ret.tolist(), second.total.tolist()) == (
        [0, -0.5],
        [-0.25, -0.5],
        [-0.5, -0.5],
    )
    # the raw rewards stay
    assert after == {"game/a#mean": 0.5, "game/a#n": 2} and worse.total.tolist() == [0, 0]
    quality, _ = shaped(table, "quality", 1.0, state={"game/a#mean": 0.25, "game/a#n": 4})
    assert quality.total.tolist() == pytest.approx([1.25, 1.25])
    with pytest.raises(ConfigError, match="shapings are margin, quality"):
        shaped(table, "bold", 1.0)


# -- what the registry declares ------------------------------------------------------------------


def test_options_reach_their_estimator_and_unknown_ones_are_named():
    table = table_of(played({"a": [("x", 1.0)]}, 0), played({"a": [("x", 0.0)]}, 1))
    assert estimate("grpo", table, ddof=1)[0] == pytest.approx(
        [math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5
    )
    with pytest.raises(ConfigError, match="estimator 'gigpo' has no option 'wieght'"):
        estimate("gigpo", table, wieght=2.0)
    with pytest.raises(ConfigError, match="it has none"):
        estimate("reinforce", table, decay=0.5)
