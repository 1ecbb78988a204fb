"""The loaders: a flat folder and a checkout give the same tasks, nothing is imported, and damage
is told in one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.retail import Retail, RetailStore

from gem_ma.kernel.errors import ConfigError, DataError
from tests.retail_data import TAU, needs_tau, one_line, tiny, tiny_tables, write_tables

ROW = {
    "user_id": "ann_lee_1",
    "instruction": 'You are Ann Lee in 04100.\nYou say "it\'s late" and cancel #W1.',
    "actions": [
        {
            "name": "cancel_pending_order",
            "kwargs": {"order_id": "#W1", "reason": "no longer needed"},
        }
    ],
    "outputs": ["30.3"],
}
PYTHON = """\
from tau_bench.types import Action, Task

TASKS_TEST = [
    Task(
        annotator="0",
        user_id="ann_lee_1",
        instruction=("You are Ann Lee in 04100.\\n" "You say \\"it's late\\" and cancel #W1."),
        actions=[Action(name="cancel_pending_order", kwargs={"order_id": "#W1", "reason": "no longer needed"})],
        outputs=["30.3"],
    ),
]
"""


def flat(folder: Path, rows: Any = None) -> Path:
    write_tables(folder)
    (folder / "tasks_test.json").write_text(json.dumps([ROW] if rows is None else rows), "utf-8")
    return folder


def checkout(folder: Path, python: str = PYTHON) -> Path:
    retail = folder / "tau_bench/envs/retail"
    write_tables(retail / "data")
    (retail / "tasks_test.py").write_text(python, "utf-8")
    (retail / "tasks.py").write_text("raise SystemExit('never imported')\n", "utf-8")
    (retail / "wiki.md").write_text("# The shop's own policy\n", "utf-8")
    return folder


def test_a_flat_folder_and_a_checkout_give_the_same_tasks_and_tables(tmp_path: Path) -> None:
    one, two = (
        Retail(data=str(flat(tmp_path / "flat"))),
        Retail(data=str(checkout(tmp_path / "checkout"))),
    )
    ours, theirs = one.tasks("test")[0], two.tasks("test")[0]
    assert (ours.instruction, ours.actions, ours.outputs, ours.wishes, ours.flags) == (
        theirs.instruction,
        theirs.actions,
        theirs.outputs,
        theirs.wishes,
        theirs.flags,
    )
    assert (
        RetailStore.load(tmp_path / "flat").digest()
        == RetailStore.load(tmp_path / "checkout").digest()
        == tiny().digest()
    )
    assert two.policy == "# The shop's own policy\n"
    assert one.policy.startswith("You are the customer service assistant")


@pytest.mark.parametrize(
    "inner", ["tau_bench/envs/retail", "tau_bench/envs/retail/data", "tau_bench"]
)
def test_inner_folders_of_a_checkout_are_understood(tmp_path: Path, inner: str) -> None:
    scenario = Retail(data=str(checkout(tmp_path) / inner))
    assert len(scenario.tasks("test")) == 1
    assert scenario.policy == "# The shop's own policy\n"


def test_the_option_wins_over_the_variable_and_own_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_BENCH_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere does not exist \(TAU_BENCH_PATH="):
        Retail()
    assert Retail(data=str(flat(tmp_path / "flat"))).provenance()["name"] == "tau-bench retail"
    assert Retail(data="own").provenance()["name"] == "generated shop"
    monkeypatch.delenv("TAU_BENCH_PATH")
    assert Retail().provenance()["name"] == "generated shop"


def test_provenance_changes_with_the_data_and_only_with_them(tmp_path: Path) -> None:
    first = Retail(data=str(flat(tmp_path / "a"))).provenance()
    assert first["digest"] == Retail(data=str(flat(tmp_path / "b"))).provenance()["digest"]
    assert first["folder"] == str(tmp_path / "a")
    assert (
        first["digest"] != Retail(data=str(flat(tmp_path / "c", [ROW, ROW]))).provenance()["digest"]
    )
    assert (
        Retail(data="own").provenance()["digest"]
        != Retail(data="own", users=41).provenance()["digest"]
    )
    json.dumps(first)


def test_a_file_that_is_gone_when_the_digest_is_made_is_told(tmp_path: Path) -> None:
    scenario = Retail(data=str(flat(tmp_path)))
    (tmp_path / "tasks_test.json").unlink()
    with one_line("tasks_test.json cannot be read"):
        scenario.provenance()


def test_a_commit_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    scenario = Retail(data=str(flat(tmp_path)))
    (tmp_path / ".git").mkdir()
    for text, commit in (
        (b"\xff\xfe", None),
        (b"ref: refs/heads/none\n", None),
        (b"0123abcd\n", None),
        (b"0123abcd" * 5 + b"\n", "0123abcd" * 5),
    ):
        (tmp_path / ".git/HEAD").write_bytes(text)
        assert scenario.provenance()["commit"] == commit


def test_lines_of_a_policy_end_alike_whatever_wrote_it(tmp_path: Path) -> None:
    (checkout(tmp_path) / "tau_bench/envs/retail/wiki.md").write_bytes(b"# Policy\r\nBe kind.\r\n")
    assert Retail(data=str(tmp_path)).policy == "# Policy\nBe kind.\n"


def test_training_falls_back_to_dev_and_never_to_test(tmp_path: Path) -> None:
    folder = flat(tmp_path)
    with pytest.raises(DataError, match="no tasks_train"):
        Retail(data=str(folder)).tasks("train")
    (folder / "tasks_dev.json").write_text(json.dumps([ROW, ROW]), "utf-8")
    assert [task.id for task in Retail(data=str(folder)).tasks("train")] == [
        "tau1/dev/0",
        "tau1/dev/1",
    ]


# -- damage --------------------------------------------------------------------------------------


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with one_line(str(tmp_path / "no"), "does not exist", "scenario.data"):
        RetailStore.load(tmp_path / "no")
    with one_line(str(tmp_path), "users.json"):
        RetailStore.load(tmp_path)
    write_tables(tmp_path)
    (tmp_path / "orders.json").unlink()
    with one_line(str(tmp_path / "orders.json"), "missing"):
        RetailStore.load(tmp_path)
    with one_line("is not a folder"):
        RetailStore.load(tmp_path / "users.json")
    with one_line("does not exist"):
        RetailStore.load("x" * 5000)


@pytest.mark.parametrize("cut", [0, 1, 10, 200, -1])
def test_a_truncated_file_is_told_with_line_and_column(tmp_path: Path, cut: int) -> None:
    write_tables(tmp_path)
    text = (tmp_path / "users.json").read_text("utf-8")
    (tmp_path / "users.json").write_text(text[:cut], "utf-8")
    with one_line("users.json:1:", "cut short"):
        RetailStore.load(tmp_path)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    write_tables(tmp_path)
    (tmp_path / "users.json").write_bytes(b'{"a": "\xff\xfe"}')
    with one_line("users.json", "UTF-8"):
        RetailStore.load(tmp_path)


def damaged(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    tables = tiny_tables()
    change(tables)
    return tables


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            lambda t: t["users"]["ann_lee_1"].pop("email"),
            '["ann_lee_1"]: the field email is missing',
        ),
        (
            lambda t: t["users"]["ann_lee_1"]["name"].update(first_name=5),
            '["ann_lee_1"].name.first_name: expected a text, got a number',
        ),
        (
            lambda t: t["users"]["ann_lee_1"]["payment_methods"]["gift_card_1"].pop("balance"),
            "gift_card_1: the field balance is missing",
        ),
        (lambda t: t["users"].update(x=[]), '["x"]: expected an object, got a list'),
        (
            lambda t: t["orders"]["#W1"]["items"][1].update(price="free"),
            '["#W1"].items[1].price: expected a number, got a text',
        ),
        (
            lambda t: t["orders"]["#W1"]["items"][0].update(price=float("nan")),
            '["#W1"].items[0].price: expected a number, got nan',
        ),
        (
            lambda t: t["users"]["ann_lee_1"]["payment_methods"]["gift_card_1"].update(
                balance=float("inf")
            ),
            "balance: expected a number, got inf",
        ),
        (
            lambda t: t["orders"]["#W1"].update(payment_history=None),
            '["#W1"].payment_history: expected a list, got null',
        ),
        (
            lambda t: t["products"]["P1"]["variants"]["I1"].update(available="yes"),
            '["P1"].variants.I1.available: expected true or false',
        ),
        (lambda t: t.update(orders=[]), "the file: expected an object of orders by id, got a list"),
    ],
)
def test_a_wrong_shape_names_file_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], where: str
) -> None:
    write_tables(tmp_path, damaged(change))
    with one_line(str(tmp_path), where):
        RetailStore.load(tmp_path)


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ({}, "the file: expected a list of tasks"),
        ([], "the file: holds no task"),
        ([5], "[0]: expected an object"),
        ([ROW, {**ROW, "user_id": None}], "[1].user_id: expected str"),
        ([{**ROW, "actions": [{"name": "x"}]}], "[0].actions[0]"),
        (
            [ROW, {**ROW, "actions": [*ROW["actions"], {"name": "cancel_order", "kwargs": {}}]}],
            "[1].actions[1].name: there is no tool 'cancel_order'",
        ),
        ([{**ROW, "outputs": [5]}], "[0].outputs[0]"),
        ([{key: ROW[key] for key in ("user_id", "actions")}], "[0].instruction: is missing"),
    ],
)
def test_a_wrong_task_names_file_place_and_field(tmp_path: Path, rows: Any, where: str) -> None:
    scenario = Retail(data=str(flat(tmp_path, rows)))
    with one_line("tasks_test.json", where):
        scenario.tasks("test")


@pytest.mark.parametrize(
    ("python", "where"),
    [
        ("TASKS_TEST = [", "tasks_test.py:1"),
        ("x = 1", "no assignment to TASKS_TEST"),
        ("TASKS_TEST = load()", "is not a list"),
        (
            "import os\nTASKS_TEST = [\n    os.remove('x'),\n]",
            "tasks_test.py:3: expected Task(...)",
        ),
        (
            (
                "TASKS_TEST = [\n Task(user_id=open('x').read(), instruction='', actions=[],"
                " outputs=[])]"
            ),
            ":2: Task.user_id is not a literal",
        ),
        (
            (
                "TASKS_TEST = [Task(user_id='a', instruction='', actions=[Action(name='x',"
                " kwargs=f())], outputs=[])]"
            ),
            "Action.kwargs is not a literal",
        ),
        ("TASKS_TEST = [Task(**{})]", "is not a literal"),
        (
            (
                "TASKS_TEST = [\n Task(user_id='a', instruction='', actions=[Action(name='think',"
                " kwargs={'thought': {1}})], outputs=[])]"
            ),
            ":2: Action.kwargs is not a literal",
        ),
    ],
)
def test_a_task_file_that_is_not_literal_is_refused_with_its_line(
    tmp_path: Path, python: str, where: str
) -> None:
    scenario = Retail(data=str(checkout(tmp_path, python)))
    with one_line("tasks_test.py", where):
        scenario.tasks("test")


def test_damage_is_seen_at_the_next_load_even_in_the_same_process(tmp_path: Path) -> None:
    write_tables(tmp_path)
    RetailStore.load(tmp_path)
    (tmp_path / "users.json").write_text("{", "utf-8")
    with pytest.raises(DataError):
        RetailStore.load(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"scoring": "tau3"},
        {"scoring": "tau2", "semantics": "tau1"},
        {"scoring": None},
        {"semantics": "tau3"},
        {"semantics": ["tau2"]},
        {"scoring": {}},
        {"max_actions": 0},
        {"max_actions": True},
        {"max_user_actions": "40"},
        {"users": 0},
        {"orders": 1.5},
        {"products": 99},
        {"data": 5},
    ],
)
def test_a_wrong_option_is_a_config_error_of_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        Retail(**{"data": "own", **options})
    assert "\n" not in str(error.value)
    assert next(iter(options)) in str(error.value)


def test_fixed_rules_are_for_our_own_shop_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="generated shop"):
        Retail(data=str(flat(tmp_path)), semantics="fixed")
    assert Retail(data="own", semantics="tau1").semantics == "tau1"


# -- tau-bench itself ----------------------------------------------------------------------------


@pytest.mark.long
@needs_tau
def test_faults_of_the_benchmarks_tasks_are_counted_by_replay() -> None:
    scenario = Retail(data=str(TAU))
    test, dev = list(scenario.tasks("test")), list(scenario.tasks("dev"))
    assert (len(test), len(dev)) == (115, 20)
    flags = Counter(flag for task in test for flag in task.flags)
    assert flags["redundant_write"] == 2
    unpaid = [task for task in test if "inaction_passes" in task.flags and not task.outputs]
    assert len(unpaid) == 7  # what doing nothing earns under the strict rule
    assert [task.id for task in dev if "inaction_passes" in task.flags] == ["tau1/dev/17"]
    assert sum(bool(task.outputs) for task in test) == 37
    assert all(any(slot.name == "email" for slot in task.knowledge) for task in [*test, *dev])
