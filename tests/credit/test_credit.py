"""Ledger -> per-turn rewards -> returns: the edge rules, by hand and against a slow second
implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_ma.config.learning import CreditSettings
from gem_ma.credit import credit, returns, turns
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Image, Malformed, Message, Reply, ToolCall, Turn
from tests.plays import recorded

REPLY = (Reply(policy="main", version=3),)


def turn(step: int, agent: str, replies: tuple[Reply, ...] = REPLY) -> Turn:
    return Turn(step, agent, (Message(f"step {step}"),), None, (), Action("x"), replies)


def episode(
    acted: str,
    ledger: list[tuple[int, str, float]],
    end: End = End.TERMINATED,
    policies: str = "main",
    seed: int = 0,
    **seats: str,
) -> Episode:
    """Agents named by one letter act one after the other: "abab"."""
    agents = sorted({*acted, *(agent for _, agent, _ in ledger)})
    cast = {agent: Seat(policy="main") for agent in agents}
    played = tuple(turn(step, agent) for step, agent in enumerate(acted))
    paid = tuple(Entry(step, agent, value) for step, agent, value in ledger)
    return recorded(cast, played, paid, scenario="game", seed=seed, end=end)


EXAMPLE = episode("abab", [(-1, "a", 0.5), (1, "a", 1), (1, "b", -1), (3, "a", -2), (3, "b", 2)])


def test_each_turn_receives_what_is_paid_until_the_agents_next_turn():
    table = turns([EXAMPLE], "main")
    assert table.agent.tolist() == ["a", "b", "a", "b"]
    assert table.reward.tolist() == [1, -1, -2, 2]
    assert table.ret.tolist() == [-1, 1, -2, 2]
    assert table.total.tolist() == [-0.5, 1, -0.5, 1]
    assert (table.k.tolist(), table.K.tolist(), table.step.tolist()) == (
        [0, 0, 1, 1],
        [2, 2, 2, 2],
        [0, 1, 2, 3],
    )
    assert table.version.tolist() == [3, 3, 3, 3]


def test_what_is_paid_before_the_first_turn_belongs_to_no_turn_and_to_the_total():
    table = turns([EXAMPLE], "main")
    assert table.before == {(0, "a"): 0.5, (0, "b"): 0.0}
    # b is paid by a's move before it acts at all
    late = turns([episode("ab", [(0, "b", 7.0), (1, "b", 1.0)])], "main")
    assert late.before[0, "b"] == 7.0
    assert late.reward[late.agent == "b"].tolist() == [1.0]
    assert late.total[late.agent == "b"].tolist() == [8.0]


def test_an_agent_that_never_acts_has_a_total_and_no_rows():
    played = episode("a", [(0, "a", 1.0), (0, "z", 5.0)])
    table = turns([played], "main")
    assert table.agent.tolist() == ["a"]
    assert table.before[0, "z"] == 5.0
    assert credit(played, "z").rewards.tolist() == []


def test_turns_of_a_simultaneous_step_share_what_is_paid_after_it():
    cast = {agent: Seat(policy="main") for agent in "ab"}
    played = tuple(turn(step, agent) for step in (0, 1) for agent in "ab")
    paid = (Entry(0, "a", 3.0), Entry(0, "b", 4.0), Entry(1, "a", 5.0), Entry(1, "b", 6.0))
    table = turns([recorded(cast, played, paid)], "main")
    assert table.step.tolist() == [0, 0, 1, 1]
    assert table.agent.tolist() == ["a", "b", "a", "b"]
    assert table.reward.tolist() == [3.0, 4.0, 5.0, 6.0]


def test_the_terminal_loss_reaches_the_player_that_did_not_move_last():
    table = turns([episode("ab", [(1, "a", -1.0), (1, "b", 1.0)])], "main")
    assert table.reward.tolist() == [-1.0, 1.0]


def test_own_step_counts_what_it_leaves_out():
    table = turns(
        [episode("ab", [(0, "a", 1.0), (1, "a", 10.0), (1, "b", 2.0)])], "main", rule="own_step"
    )
    assert table.reward.tolist() == [1.0, 2.0]
    assert table.elsewhere == {(0, "a"): 10.0, (0, "b"): 0.0}
    assert table.total.tolist() == [11.0, 2.0]


def test_terminal_to_last_pays_the_whole_sum_on_the_last_turn():
    table = turns([EXAMPLE], "main", rule="terminal_to_last")
    assert table.reward.tolist() == [0, 0, -1, 1]
    assert table.before[0, "a"] == 0.5


def test_team_mix_shares_each_entry_and_keeps_the_teams_sum():
    played = episode("ab", [(0, "a", 4.0), (1, "b", 2.0)])
    table = turns([played], "main", rule="team_mix(0.5)")
    # a: .5*4 + .5*mean(4, 0) = 3 at step 0, .5*mean(0, 2) = .5 at step 1; b: 1 before its turn,
    # then .5*2 + .5*1 = 1.5
    assert table.reward.tolist() == [3.5, 1.5]
    assert table.before[0, "b"] == 1.0
    assert sum(table.reward) + sum(table.before.values()) == pytest.approx(6.0, abs=1e-12)
    assert (
        turns([played], "main", rule="team_mix(0)").reward.tolist()
        == turns([played], "main").reward.tolist()
    )


def test_a_team_may_be_a_part_of_the_cast_and_no_stranger():
    played = episode("abc", [(0, "a", 4.0), (2, "c", 9.0)])
    table = turns([played], "main", rule="team_mix(1)", team=("a", "b"))
    assert table.reward.tolist() == [2.0, 0.0, 9.0]
    assert table.before[0, "b"] == 2.0
    with pytest.raises(ConfigError, match="ghost"):
        turns([played], "main", rule="team_mix(1)", team=("a", "ghost"))


def test_all_teams_share_at_once_and_who_has_none_keeps_its_own():
    played = episode("abcde", [(0, "a", 4.0), (1, "c", 6.0), (2, "e", 9.0), (3, "d", 2.0)])

    def team(one, agent):
        return {"a": "red", "b": "red", "c": "blue", "d": "blue"}.get(agent, "")

    for rule, wanted in (
        ("team_mix(1)", {"a": 2.0, "b": 2.0, "c": 4.0, "d": 4.0, "e": 9.0}),
        ("team_mix(0.5)", {"a": 3.0, "b": 1.0, "c": 5.0, "d": 3.0, "e": 9.0}),
    ):
        credited = {agent: credit(played, agent, rule, team) for agent in "abcde"}
        paid = {agent: sum(part.rewards) + part.before for agent, part in credited.items()}
        assert paid == pytest.approx(wanted)
    # each team by itself is what that team alone would be
    both, one = (
        turns([played], "main", rule="team_mix(0.5)", team=of) for of in (team, ("a", "b"))
    )
    assert both.reward[:2].tolist() == one.reward[:2].tolist()


def test_returns_are_discounted_over_own_turns_only():
    assert returns([-0.1, -0.1, 1.0], 0.9).tolist() == pytest.approx([0.62, 0.8, 1.0])
    table = turns([episode("abbbba", [(5, "a", 1.0)])], "main", gamma=0.5)
    # four turns of b in between cost nothing
    assert table.ret[table.agent == "a"].tolist() == [0.5, 1.0]


def test_gamma_may_differ_by_agent():
    table = turns(
        [episode("abab", [(3, "a", 1.0), (3, "b", 1.0)])], "main", gamma={"a": 0.5, "b": 1.0}
    )
    assert table.ret.tolist() == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("gamma", [1.5, -0.1, {"a": 0.9}, float("nan")])
def test_an_unusable_gamma_is_refused_by_agent(gamma):
    with pytest.raises(ConfigError, match=r"gamma .*agent '[ab]'"):
        turns([EXAMPLE], "main", gamma=gamma)


def test_a_tail_value_continues_a_cut_play_and_never_an_ended_one():
    tails = {(0, "a"): 2.0, (1, "a"): 2.0}
    table = turns(
        [episode("a", [(0, "a", 1.0)], End.MAX_STEPS), episode("a", [(0, "a", 1.0)], seed=1)],
        "main",
        gamma=0.5,
        tails=tails,
    )
    assert table.ret.tolist() == [2.0, 1.0]
    assert table.tail_value.tolist() == [2.0, 0.0]
    assert turns([episode("a", [(0, "a", 1.0)], End.MAX_STEPS)], "main").ret.tolist() == [1.0]


def test_cut_episodes_can_be_dropped_and_are_counted():
    table = turns([episode("a", [], End.TIMEOUT), episode("a", [])], "main", truncated="drop")
    assert table.episode.tolist() == [1]
    assert table.excluded == {"timeout": 1}


@pytest.mark.parametrize("end", [End.FAILED, End.INTERRUPTED])
def test_failed_and_interrupted_episodes_give_no_rows_and_are_counted(end):
    table = turns([episode("ab", [(0, "a", 9.0)], end), EXAMPLE], "main")
    assert table.excluded == {end.value: 1}
    assert set(table.episode.tolist()) == {1}
    # a policy loses nothing by plays in which it has no seat, as those of another world
    assert turns([episode("ab", [], end)], "nobody").excluded == {}


def test_only_turns_that_the_policy_sampled_are_rows_and_all_turns_count_for_credit():
    cast = {"a": Seat(policy="main"), "b": Seat(policy="other")}
    other = (Reply(policy="other"),)
    played = (turn(0, "a"), turn(1, "b", other), turn(2, "a", ()), turn(3, "a", other))
    paid = (Entry(0, "a", 1.0), Entry(2, "a", 2.0), Entry(3, "a", 4.0))
    scripted = recorded(cast, played, paid)
    table = turns([scripted], "main")
    assert table.step.tolist() == [0]
    assert (table.ret.tolist(), table.K.tolist()) == ([7.0], [3])
    # a's seat is not of the policy that happened to answer
    assert turns([scripted], "other").agent.tolist() == ["b"]
    assert len(turns([scripted], "nobody")) == 0


def test_a_turn_cut_by_length_is_an_ordinary_action_with_a_flag():
    cut = Reply(policy="main", finish="length")
    played = recorded({"a": Seat(policy="main")}, (turn(0, "a", (cut,)),), scenario="game")
    assert turns([played], "main").cut.tolist() == [True]


def test_the_group_is_the_episodes_own_or_its_start():
    named = recorded({"a": Seat(policy="main")}, (turn(0, "a"),), group="g7")
    assert turns([named], "main").group.tolist() == ["g7"]
    table = turns(
        [episode("a", [], seed=5), episode("a", [], seed=5), episode("a", [], seed=6)], "main"
    )
    assert len(set(table.group.tolist())) == 2


def test_no_episodes_make_an_empty_table():
    assert len(turns([], "main")) == len(TurnTable()) == 0
    assert turns([], "main").ret.dtype == np.float64


def test_rows_can_be_taken_by_index_or_mask():
    table = turns([EXAMPLE], "main")
    assert table.take([3, 0]).reward.tolist() == [2, 1]
    assert table.take(table.agent == "a").turns == (EXAMPLE.turns[0], EXAMPLE.turns[2])
    assert len(table.take([])) == 0


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (
            Action(tool_calls=(ToolCall("1", "look", {"order": 7}),)),
            Action(tool_calls=(ToolCall("1", "look", {"order": 8}),)),
            False,
        ),
        (
            Action(tool_calls=(ToolCall("1", "look", {"order": 7}),)),
            Action(tool_calls=(ToolCall("1", "cancel", {"order": 7}),)),
            False,
        ),
        (
            Action(tool_calls=(ToolCall("1", "look", {"a": 1, "b": 2}),)),
            Action(tool_calls=(ToolCall("9", "look", {"b": 2, "a": 1}),)),
            True,
        ),
        (Action(tool_calls=(Malformed("{", "no JSON"),)), Action(), False),
    ],
)
def test_what_an_agent_called_is_part_of_its_view(one, other, alike):
    def key(said: Action) -> str:
        acted = tuple(
            Turn(step, "a", (Message("done"),), None, (), said, REPLY) for step in range(2)
        )
        play = recorded({"a": Seat(policy="main")}, acted, scenario="game", task="t/0")
        return turns([play], "main").column("state_key").tolist()[1]

    assert (key(one) == key(other)) is alike


def test_an_image_is_part_of_a_view():
    def key(data: bytes) -> str:
        acted = (Turn(0, "a", (Message(("look", Image.of(data))),), None, (), Action("x"), REPLY),)
        play = recorded({"a": Seat(policy="main")}, acted, scenario="game", task="t/0")
        return turns([play], "main").column("state_key").tolist()[0]

    assert key(b"one") == key(b"one") != key(b"two")


def test_a_state_key_is_the_whole_view_of_the_agent():
    same = turns([EXAMPLE, EXAMPLE], "main").column("state_key")
    assert same[:4].tolist() == same[4:].tolist()
    assert len(set(same.tolist())) == 4


def test_unknown_rules_and_columns_name_the_known_ones():
    for rule in ("until", "team_mix", "team_mix(2)", "team_mix(x)"):
        with pytest.raises(ConfigError):
            turns([EXAMPLE], "main", rule=rule)
    with pytest.raises(ConfigError, match="until_next_turn"):
        turns([EXAMPLE], "main", rule="until")
    with pytest.raises(ConfigError, match="key columns are"):
        turns([EXAMPLE], "main").column("reward")


@pytest.mark.parametrize(
    "rule",
    [
        *("until_next_turn", "own_step", "terminal_to_last", "team_mix(0)", "team_mix( .5 )"),
        *("team_mix(+.5)", "team_mix(-0)", "team_mix(1e-3)", "team_mix(1.1)", "team_mix", "own"),
    ],
)
def test_a_config_and_the_record_know_the_same_rules(rule):
    try:
        CreditSettings(rule=rule)
    except ValueError:
        with pytest.raises(ConfigError):
            turns([EXAMPLE], "main", rule=rule)
    else:
        assert len(turns([EXAMPLE], "main", rule=rule))


VALUES = st.sampled_from([0.1, -0.3, 1 / 3, 1e6, -7.0, 0.0])


@pytest.mark.long
@given(
    st.text("abc", min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(-1, 11), st.sampled_from("abc"), VALUES), max_size=20),
)
def test_credit_agrees_with_a_slow_second_implementation(acted, paid):
    ledger = sorted((min(step, len(acted) - 1), agent, value) for step, agent, value in paid)
    played = episode(acted, ledger)
    table = turns([played], "main")
    for row in range(len(table)):
        later = [
            step
            for step in range(table.step[row] + 1, len(acted))
            if acted[step] == table.agent[row]
        ]
        until = later[0] if later else len(acted)
        mine = [
            value
            for step, agent, value in ledger
            if agent == table.agent[row] and table.step[row] <= step < until
        ]
        assert table.reward[row] == pytest.approx(sum(mine), abs=1e-6)
    # each checks its own sum
    for rule in ("until_next_turn", "own_step", "terminal_to_last", "team_mix(0.3)"):
        assert len(turns([played], "main", rule=rule)) == len(acted)


def test_lost_reward_is_an_error_and_not_a_wrong_number(monkeypatch):
    monkeypatch.setattr("gem_ma.credit._paid", lambda *_: [(0, 1.0)])
    with pytest.raises(ArithmeticError, match="was paid"):
        turns([EXAMPLE], "main")


@pytest.mark.long
def test_every_batch_of_a_training_is_checked_for_lost_reward(monkeypatch):
    from gem_ma import config
    from gem_ma.training.train import run_training

    small = ("train.steps=3", "train.episodes=8", "evaluate.episodes=8", "train.warm_start={}")
    run_training(config.load("referential_table", small).config)
    import gem_ma.credit as module

    honest, batches = module.credit, []

    def lossy(episode, agent, *rest):
        batches.append(agent)
        found = honest(episode, agent, *rest)
        # the second step is played by then
        return found if len(batches) < 30 else found._replace(rewards=found.rewards + 1e-6)

    monkeypatch.setattr(module, "credit", lossy)
    with pytest.raises(
        ArithmeticError, match=r"referential, episode .*: (speaker|listener) was paid"
    ):
        run_training(config.load("referential_table", small).config)
    assert len(batches) == 30
