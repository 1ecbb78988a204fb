"""Talks under tau2-bench's rules: what ends them, what they pay, and that every source can be
played by them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail import Retail

from gem_ma import Action, Game, Malformed, Plan, ToolCall, play
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.testing import check_scenario
from tests.retail_data import TAU, needs_tau, swap, tiny_tables, write_tables
from tests.tau2_folder import tau2_row, write_tau2

FIND = ("find_user_id_by_name_zip", {"first_name": "Ann", "last_name": "Lee", "zip": "04100"})
CANCEL = ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
SWAP = swap("#W1", ["I1", "I2"], ["I3", "I1"])


def desk(path: Path, *rows: dict[str, Any], **options: Any) -> Retail:
    write_tau2(path, tiny_tables(), list(rows) or [tau2_row("0", [FIND, CANCEL])], {"train": ["0"]})
    return Retail(data=str(path), **{"scoring": "tau2", **options})


def use(*calls: tuple[str, dict[str, Any]], text: str = "") -> Action:
    return Action(
        text,
        tuple(
            ToolCall(f"c{place}", name, arguments) for place, (name, arguments) in enumerate(calls)
        ),
    )


def end(text: str = "", reason: Any = "settled") -> Action:
    return Action(text, (ToolCall("u1", "end_conversation", {"reason": reason}),))


def begun(scenario: Retail, index: int = 0) -> Game:
    game = Game(scenario, scenario.tasks("base")[index])
    game.send({"user": "Hello"})
    return game


def outcome(game: Game) -> tuple[float, str]:
    """What was paid and why, once the talk is over."""
    assert game.over
    (paid,) = {entry.value for entry in game.ledger}
    (why,) = {entry.why for entry in game.ledger}
    return paid, why


def last(game: Game, agent: str) -> str:
    return game.view(agent)[-1].text


# -- sources -------------------------------------------------------------------------------------


def test_a_folder_is_known_by_its_content_and_the_variable_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAU_BENCH_PATH", raising=False)
    scenario = desk(tmp_path / "tau2", scoring="canonical")
    assert (scenario.semantics, scenario.policy) == ("tau2", "# The desk\n")
    assert scenario.provenance()["name"] == "tau2-bench retail"
    assert [task.id for task in scenario.tasks("train")] == ["tau2/0"]
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path / "tau2"))
    assert Retail().provenance() == scenario.provenance()
    assert Retail(data="own").provenance()["name"] == "generated shop"
    flat = write_tables(tmp_path / "flat")
    monkeypatch.setenv("TAU_BENCH_PATH", str(flat))
    assert Retail().semantics == "tau1"
    assert Retail(scoring="tau2").provenance()["name"] == "tau2-bench retail"
    assert Retail(semantics="tau1").provenance()["name"] == "tau-bench retail"
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"gone does not exist \(TAU2_DATA_DIR="):
        Retail(scoring="tau2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"semantics": "tau1"}, "scenario.semantics: the data of tau2-bench take 'tau2'"),
        ({"semantics": "fixed"}, "scenario.semantics: 'fixed' is for the generated shop"),
        (
            {"scoring": "tau2", "semantics": "tau1"},
            "scenario.scoring: 'tau2' goes with the semantics 'tau2'; got semantics 'tau1'",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        desk(tmp_path, **{"scoring": "canonical", **options})
    assert str(error.value).startswith(said)


def test_tables_that_cannot_be_typed_are_told_before_anything_is_played(tmp_path: Path) -> None:
    tables = tiny_tables()
    del tables["users"]["ann_lee_1"]["payment_methods"]["credit_card_1"]["brand"]
    write_tables(tmp_path, tables)
    assert Retail(data=str(tmp_path)).semantics == "tau1"
    with pytest.raises(DataError) as error:
        Retail(data=str(tmp_path), scoring="tau2")
    assert str(error.value).startswith(f"retail data: {tmp_path} (scenario.data={tmp_path}): users")
    assert "credit_card_1: the field brand is missing" in str(error.value)


def test_knobs_of_the_generated_shop_are_refused_for_a_folder_under_any_rules(
    tmp_path: Path,
) -> None:
    flat = write_tables(tmp_path / "flat")
    desk(tmp_path / "tau2")
    for folder, scoring in ((flat, "tau1"), (flat, "tau2"), (tmp_path / "tau2", "tau2")):
        with pytest.raises(ConfigError, match=r"^scenario.knobs: "):
            Retail(data=str(folder), scoring=scoring, knobs={})


# -- the talk ------------------------------------------------------------------------------------


def test_both_sides_see_the_greeting_and_the_tools_are_tau2s(tmp_path: Path) -> None:
    game = begun(desk(tmp_path))
    assert [message.text for message in game.view("assistant")] == [
        "# The desk\n",
        "Hi! How can I help you today?",
        "Hello",
    ]
    assert game.view("assistant")[1].sender == "assistant"
    names = [tool.name for tool in game.pending["assistant"].tools]
    assert "get_item_details" in names
    assert "think" not in names


def test_a_solved_task_is_paid_when_the_user_ends_the_talk_even_together_with_a_text(
    tmp_path: Path,
) -> None:
    for closing in (end(), end("Yes, thank you, goodbye")):
        game = begun(desk(tmp_path))
        game.send({"assistant": use(CANCEL)})
        game.send({"assistant": "Done."})
        game.send({"user": closing})
        assert outcome(game) == (1.0, "outcome")


def test_a_text_with_the_end_leaves_the_assistant_no_turn_as_in_the_benchmark(
    tmp_path: Path,
) -> None:
    game = begun(desk(tmp_path))
    game.send({"assistant": "Shall I cancel #W1?"})
    game.send({"user": end("Yes, please. Bye.")})
    assert outcome(game) == (0.0, "outcome")


def test_a_transfer_goes_on_until_the_user_ends_it(tmp_path: Path) -> None:
    game = begun(desk(tmp_path, tau2_row("0", [("transfer_to_human_agents", {"summary": "x"})])))
    game.send({"assistant": use(("transfer_to_human_agents", {"summary": "all of it"}))})
    assert not game.over
    assert last(game, "assistant") == "Transfer successful"
    game.send({"assistant": "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."})
    game.send({"user": end(reason="transferred")})
    assert outcome(game)[0] == 1.0


def test_all_calls_of_a_turn_are_run_in_their_order(tmp_path: Path) -> None:
    game = begun(desk(tmp_path))
    game.send(
        {
            "assistant": use(
                FIND,
                CANCEL,
                ("get_order_details", {"order_id": "#W1"}),
                ("think", {"thought": "x"}),
            )
        }
    )
    shown = [message.text for message in game.view("assistant")[-4:]]
    assert shown[0] == "ann_lee_1"
    assert '"status": "cancelled"' in shown[1]
    assert shown[2] == shown[1]
    assert shown[3] == "Error: Tool 'think' not found."
    game.send({"assistant": "Done."})
    game.send({"user": end()})
    assert outcome(game)[0] == 1.0


@pytest.mark.parametrize("side", ["assistant", "user"])
@pytest.mark.parametrize("text", ["", "  \n"])
@pytest.mark.parametrize("enforce", [False, True])
def test_an_empty_message_is_no_result_as_in_the_benchmark(
    tmp_path: Path, side: str, text: str, enforce: bool
) -> None:
    game = begun(desk(tmp_path, tau2_row("0", []), enforce_protocol=enforce))
    if side == "user":
        game.send({"assistant": "Hello"})
    game.send({side: Action(text)})
    assert outcome(game) == (0.0, "unscored: an empty message")


def test_text_beside_calls_is_heard_by_nobody_and_counts_as_told(tmp_path: Path) -> None:
    game = begun(desk(tmp_path, tau2_row("0", [FIND, CANCEL], communicate_info=["30.3"])))
    game.send({"assistant": use(FIND, CANCEL, text="That makes 30.3.")})
    assert "30.3." not in "".join(message.text for message in game.view("user"))
    game.send({"assistant": "Done."})
    game.send({"user": end()})
    assert outcome(game) == (1.0, "outcome")


def test_text_beside_a_call_ends_the_talk_unpaid_where_the_protocol_is_enforced(
    tmp_path: Path,
) -> None:
    game = begun(desk(tmp_path, tau2_row("0", []), enforce_protocol=True))
    game.send({"assistant": use(CANCEL, text="I cancel it now.")})
    assert outcome(game) == (0.0, "outcome")
    for wrong in ({"enforce_protocol": 1}, {"enforce_protocol": True, "scoring": "canonical"}):
        with pytest.raises(ConfigError, match=r"^scenario.enforce_protocol: "):
            desk(tmp_path, **wrong)


def test_calls_of_a_user_without_tools_are_errors_one_by_one(tmp_path: Path) -> None:
    for calls, paid in ((9, 1.0), (10, 0.0)):
        game = begun(desk(tmp_path, tau2_row("0", [])))
        game.send({"assistant": "Hello"})
        game.send({"user": use(*[CANCEL] * calls, text="I do it myself.")})
        if not game.over:
            assert last(game, "user") == "Error: User tools not available"
            game.send({"user": end()})
        assert outcome(game)[0] == paid


def test_ten_errors_end_the_talk_unpaid_and_nine_do_not(tmp_path: Path) -> None:
    wrong = ("get_order_details", {"order_id": "#W0"})
    for errors in (9, 10):
        game = begun(desk(tmp_path, tau2_row("0", [])))
        for _ in range(errors):
            assert not game.over
            game.send({"assistant": use(wrong)})
        assert game.over is (errors == 10)
        if errors == 9:
            game.send({"assistant": "Hm."})
            game.send({"user": end()})
        assert outcome(game)[0] == float(errors == 9)


def test_unreadable_calls_and_ends_without_a_reason_count_as_errors(tmp_path: Path) -> None:
    game = begun(desk(tmp_path, tau2_row("0", [])))
    for _ in range(5):
        game.send({"assistant": Action("", (Malformed("{", "no JSON"),))})
    game.send({"assistant": "Hello"})
    for _ in range(5):
        assert not game.over
        game.send({"user": end(reason="done")})
    assert outcome(game)[0] == 0.0


def test_errors_of_one_turn_are_all_counted(tmp_path: Path) -> None:
    game = begun(desk(tmp_path, tau2_row("0", [])))
    game.send({"assistant": use(*[("get_order_details", {"order_id": "#W0"})] * 10)})
    assert outcome(game)[0] == 0.0


def test_two_hundred_steps_end_the_talk_and_a_call_takes_two(tmp_path: Path) -> None:
    game = begun(desk(tmp_path, tau2_row("0", [])))
    for _ in range(99):
        game.send({"assistant": use(FIND)})
    assert not game.over  # 1 + 2 * 99 = 199 steps
    game.send({"assistant": use(FIND)})
    assert outcome(game)[0] == 0.0
    game = begun(desk(tmp_path, tau2_row("0", [])))
    for _ in range(99):
        game.send({"assistant": "Yes?"})
        game.send({"user": "No."})
    game.send({"assistant": "Yes?"})
    assert outcome(game)[0] == 0.0
    assert sum(turn.agent == "user" for turn in game.turns) == 100


def test_an_end_at_the_last_step_comes_too_late_as_in_the_benchmark(tmp_path: Path) -> None:
    for calls, paid in ((98, 1.0), (99, 0.0)):
        game = begun(desk(tmp_path, tau2_row("0", [])))
        for _ in range(calls):
            game.send({"assistant": use(FIND)})
        game.send({"assistant": "Done."})  # step 198, or 200
        if not game.over:
            game.send({"user": end()})
        assert outcome(game)[0] == paid
    for calls, paid in ((96, 1.0), (97, 0.0)):
        game = begun(desk(tmp_path, tau2_row("0", [])))
        for _ in range(calls):
            game.send({"assistant": use(FIND)})
        game.send({"assistant": "Done."})
        game.send({"user": end(reason="done")})  # an error is a step
        game.send({"user": "Sure?"})
        game.send({"assistant": "Yes."})
        assert not game.over
        game.send({"user": end()})  # step 198, or 200
        assert outcome(game)[0] == paid


# -- what is paid --------------------------------------------------------------------------------


def talked(
    scenario: Retail, *calls: tuple[str, dict[str, Any]], said: str = "Done.", index: int = 0
) -> Game:
    game = begun(scenario, index)
    for call in calls:
        game.send({"assistant": use(call)})
    game.send({"assistant": said})
    game.send({"user": end()})
    return game


def test_each_basis_pays_for_what_it_names(tmp_path: Path) -> None:
    rows = [
        tau2_row("0", [CANCEL], communicate_info=["30.3"]),
        tau2_row("1", [CANCEL], communicate_info=["30.3"], reward_basis=["DB"]),
        tau2_row("2", [CANCEL], communicate_info=["30.3"], reward_basis=["COMMUNICATE"]),
        tau2_row("3", [FIND], reward_basis=["ACTION"]),
        tau2_row(
            "4",
            [],
            reward_basis=["ENV_ASSERTION"],
            env_assertions=[{"env_type": "assistant", "func_name": "is_well", "arguments": {}}],
        ),
        {**tau2_row("5", []), "evaluation_criteria": None},
    ]
    scenario = desk(tmp_path, *rows)
    assert outcome(talked(scenario, CANCEL))[0] == 0.0
    assert outcome(talked(scenario, CANCEL, said="You get 30.30 back"))[0] == 1.0
    assert outcome(talked(scenario, CANCEL, index=1))[0] == 1.0
    assert outcome(talked(scenario, said="30.3", index=2))[0] == 1.0
    assert outcome(talked(scenario, index=3))[0] == 0.0
    assert outcome(talked(scenario, FIND, index=3))[0] == 1.0
    # a call without arguments matches anything
    assert outcome(talked(scenario, ("find_user_id_by_name_zip", {}), index=3))[0] == 1.0
    assert outcome(talked(scenario, index=4))[0] == 0.0
    assert outcome(talked(scenario, CANCEL, index=5))[0] == 1.0


def test_a_task_that_needs_a_judge_is_unscored_and_its_database_is_told(tmp_path: Path) -> None:
    scenario = desk(
        tmp_path,
        tau2_row(
            "0", [CANCEL], nl_assertions=["It was kind."], reward_basis=["DB", "NL_ASSERTION"]
        ),
    )
    assert scenario.tasks("base")[0].flags == ("needs_judge",)
    assert outcome(talked(scenario, CANCEL)) == (0.0, "unscored: needs judge; DB 1")
    assert outcome(talked(scenario)) == (0.0, "unscored: needs judge; DB 0")
    episode = asyncio.run(played(scenario, "retail_oracle", "base/0"))
    assert scenario.success(episode) is None
    assert scenario.measures(episode)["DB alone"] == 1.0
    nothing = asyncio.run(played(scenario, "retail_nothing", "base/0"))
    assert scenario.measures(nothing)["DB alone"] == 0.0


def test_the_multi_item_fault_makes_the_same_wish_in_another_order_fail(tmp_path: Path) -> None:
    scenario = desk(tmp_path, tau2_row("0", [("modify_pending_order_items", SWAP)]))
    turned = {**SWAP, "item_ids": ["I2", "I1"], "new_item_ids": ["I1", "I3"]}
    assert outcome(talked(scenario, ("modify_pending_order_items", SWAP)))[0] == 1.0
    assert outcome(talked(scenario, ("modify_pending_order_items", turned)))[0] == 0.0
    assert "order_sensitive" in scenario.tasks("base")[0].flags


def test_doing_nothing_is_paid_where_the_solution_changes_nothing_and_never_canonically(
    tmp_path: Path,
) -> None:
    row = tau2_row("0", [("get_order_details", {"order_id": "#W1"})])
    assert outcome(talked(desk(tmp_path, row)))[0] == 1.0
    assert outcome(talked(desk(tmp_path, row, scoring="canonical")))[1].startswith("unscored")


# -- whole plays ---------------------------------------------------------------------------------


async def played(scenario: Retail, assistant: str, task: str, user: str = "retail_user") -> Episode:
    return await play(Plan(scenario, {"assistant": Seat(assistant), "user": Seat(user)}, task))


@pytest.mark.parametrize(
    ("assistant", "user"), [("silent", "retail_user"), ("retail_oracle", "silent")]
)
def test_a_talk_with_an_empty_message_is_left_out_and_blamed_on_nobody(
    tmp_path: Path, assistant: str, user: str
) -> None:
    scenario = desk(tmp_path)
    episode = asyncio.run(played(scenario, assistant, "base/0", user))
    assert scenario.success(episode) is None
    assert "blame" not in scenario.labels(episode)
    assert scenario.measures(episode)["DB alone"] == 0.0


def solved(scenario: Retail, split: str, count: int) -> Counter[float]:
    """Plays the solutions of the first tasks, all outputs said at the end; how often each reward
    was paid."""
    found: Counter[float] = Counter()
    for task in scenario.tasks(split)[:count]:
        game = Game(scenario, task)
        game.send({"user": "Hello"})
        for call in task.actions:
            game.send({"assistant": use((call.name, dict(call.arguments)))})
        handed_over = "transfer_to_human_agents" in [call.name for call in task.actions]
        refusal = (
            "I am sorry, this cannot be done: the order is not pending. "
            if task.goal == "refused"
            else ""
        )
        game.send({"assistant": f"{refusal}Done. {'; '.join(task.outputs)}"})
        game.send(
            {
                "user": end(
                    reason=(
                        "transferred"
                        if handed_over
                        else "refused"
                        if task.goal == "refused"
                        else "settled"
                    )
                )
            }
        )
        found[outcome(game)[0]] += 1
    return found


@pytest.mark.long
def test_the_generated_shop_can_be_played_by_the_tau2_rules() -> None:
    assert solved(Retail(data="own", scoring="tau2"), "test", 20) == {1.0: 20}
    # canonically a fact needs its source, a refusal its reason
    assert solved(Retail(data="own", semantics="tau2"), "test", 20)[1.0] >= 15


@pytest.mark.long
@needs_tau
def test_the_solutions_solve_tau_benchs_tasks_by_the_tau2_rules_and_doing_nothing_earns_their_fault() -> (
    None
):
    scenario = Retail(data=str(TAU), scoring="tau2")
    tasks: list[Task] = list(scenario.tasks("test"))
    assert solved(scenario, "test", 115) == {1.0: 115}
    idle = [task for task in tasks if outcome(talked_nothing(scenario, task))[0]]
    assert idle == [task for task in tasks if "inaction_passes" in task.flags and not task.outputs]
    assert len(idle) == 7


def talked_nothing(scenario: Retail, task: Task) -> Game:
    game = Game(scenario, task)
    game.send({"user": end()})
    return game


@pytest.mark.longest
def test_the_conformance_kit_finds_nothing(tmp_path: Path) -> None:
    row = tau2_row("0", [FIND, CANCEL], communicate_info=["30.3"])
    check_scenario(desk(tmp_path, row, max_actions=6, max_user_actions=6))
