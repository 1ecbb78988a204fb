"""Estimators that compare returns: numbers worked by hand, state, refusals.
`test_estimators_slow.py` holds what is true of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from gem_ma.credit import turns
from gem_ma.credit.estimators import ESTIMATORS, dr_grpo, estimate, grpo, rae, rebn, reinforce, rloo
from gem_ma.credit.estimators.groups import by_group
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Reply, Turn
from tests.plays import recorded


def played(
    rewards: dict[str, list[float]], seed: int = 0, group: str | None = "g", task: str = "train/0"
) -> Episode:
    """Agents take their turns in rounds; turn k of an agent is paid rewards[agent][k]."""
    steps = [
        (agent, k)
        for k in range(max(map(len, rewards.values())))
        for agent in rewards
        if k < len(rewards[agent])
    ]
    made = tuple(
        Turn(step, agent, (), None, (), Action(""), (Reply(policy="main"),))
        for step, (agent, _) in enumerate(steps)
    )
    paid = tuple(Entry(step, agent, rewards[agent][k]) for step, (agent, k) in enumerate(steps))
    return recorded(
        {agent: Seat(policy="main") for agent in rewards},
        made,
        paid,
        scenario="game",
        seed=seed,
        task=task,
        group=group,
    )


def table_of(*episodes: Episode, gamma: float = 1.0) -> TurnTable:
    return turns(episodes, "main", gamma=gamma)


def test_rebn_by_hand():
    assert rebn([1, 2, 3, 6]) == pytest.approx([-1.0690, -0.5345, 0, 1.6036], abs=1e-4)


def test_each_agent_is_centred_by_itself_and_globally_only_on_request():
    table = table_of(played({"a": [3.0], "b": [-1.0]}, 0), played({"a": [1.0], "b": [-3.0]}, 1))
    assert rebn(table) == pytest.approx([1, 1, -1, -1])
    pooled = rebn(table, key="global")
    # a's worse play is reinforced: why the default is keyed
    assert pooled == pytest.approx(np.array([3, -1, 1, -3]) / np.sqrt(5))
    assert rebn(table, key=()) == pytest.approx(pooled)
    assert rebn(table, key="agent") == pytest.approx(rebn(table, key=["agent"]))


@pytest.mark.parametrize("value", [0.1, 0.729, 1 / 3])
@pytest.mark.parametrize("size", [1, 37, 256])
def test_constant_returns_give_exact_zeros(value, size):
    for function in (rebn, grpo, dr_grpo, rloo):
        assert function(np.full(size, value, np.float32)).tolist() == [0.0] * size


def test_a_spread_of_rounding_is_no_spread():
    for function in (rebn, grpo, dr_grpo, rloo):
        assert function([0.1 + 0.2, 0.3, 0.3]).tolist() == [0, 0, 0]


def test_single_turns_teach_nothing_where_a_mean_is_taken():
    assert [function([5.0]).tolist() for function in (rebn, grpo, dr_grpo, rloo, reinforce)] == [
        [0],
        [0],
        [0],
        [0],
        [5],
    ]


def test_group_estimators_by_hand():
    assert grpo([1, 0, 0, 1]) == pytest.approx([1, -1, -1, 1], abs=1e-5)
    assert grpo([1, 0, 0, 1], ddof=1) == pytest.approx(np.array([1, -1, -1, 1]) * 0.8660, abs=1e-4)
    assert dr_grpo([1, 0, 0, 1]).tolist() == [0.5, -0.5, -0.5, 0.5]
    assert rloo([1, 0, 0, 1]) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])


def test_group_estimators_count_an_episode_once_however_long_it_is():
    table = table_of(played({"a": [0, 0, 1]}, 0), played({"a": [0]}, 1))
    assert dr_grpo(table).tolist() == [0.5, 0.5, 0.5, -0.5]


def test_groups_are_apart():
    table = table_of(
        played({"a": [1]}, 0, "g"),
        played({"a": [3]}, 1, "g"),
        played({"a": [100]}, 2, "h"),
        played({"a": [102]}, 3, "h"),
    )
    assert rloo(table).tolist() == [-2, 2, -2, 2]


def test_role_baselines_move_after_they_are_subtracted():
    advantages, state = rae([1, 1, -1])
    assert advantages == pytest.approx([1, 0.95, -1.0975])
    assert state == {"": pytest.approx(0.042625)}
    assert rae([2.0], first=True)[0].tolist() == [0.0]


def test_role_baselines_go_on_from_their_state_and_leave_it_unchanged():
    first = table_of(played({"a": [1.0], "b": [-1.0]}, 0))
    second = table_of(played({"a": [1.0], "b": [-1.0]}, 1))
    _, state = rae(first)
    before = dict(state)
    advantages, _ = rae(second, state=state)
    whole, _ = rae(
        table_of(played({"a": [1.0], "b": [-1.0]}, 0), played({"a": [1.0], "b": [-1.0]}, 1))
    )
    assert state == before == {"game/a": pytest.approx(0.05), "game/b": pytest.approx(-0.05)}
    assert advantages.tolist() == whole[2:].tolist()


def test_a_faded_baseline_pays_the_last_turn_in_full():
    table = table_of(played({"a": [0.0, 0.0, 2.0]}), gamma=0.5)
    assert rae(table)[0].tolist() == [2.0, 2.0, 2.0]
    assert estimate("rae", table, gamma=0.5, faded=True)[0].tolist() == [0.5, 1.0, 2.0]
    assert estimate("rae", table, gamma=1.0, faded=True)[0].tolist() == [2.0, 2.0, 2.0]


def test_role_baselines_do_not_depend_on_the_order_of_completion():
    episodes = [played({"a": [float(seed % 3)]}, seed) for seed in range(12)]
    straight, _ = rae(table_of(*episodes))
    mixed = [episodes[i] for i in (5, 0, 11, 3, 8, 1, 2, 10, 4, 9, 7, 6)]
    shuffled, _ = rae(table_of(*mixed))
    assert {e.seed: a for e, a in zip(mixed, shuffled, strict=True)} == {
        e.seed: a for e, a in zip(episodes, straight, strict=True)
    }


def test_wrong_shapes_name_what_they_got():
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        rebn(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="3 and 2"):
        by_group(np.zeros(2), np.zeros(3, np.int64), lambda values: values)


def test_unknown_names_and_keys_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="did you mean 'rebn'"):
        estimate("rebnn", TurnTable())
    with pytest.raises(ConfigError, match="key columns are"):
        rebn(table_of(played({"a": [1.0]})), key=["colour"])


def test_the_registry_gives_a_function_and_its_default_key():
    found = ESTIMATORS["rebn"]
    assert (found.function, found.key) == (rebn, ("policy", "scenario", "agent"))
    assert [name for name, one in ESTIMATORS.items() if one.stateful] == ["rae"]
