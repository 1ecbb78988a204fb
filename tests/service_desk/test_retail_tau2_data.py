"""The loader of a tau2-bench data folder: what is there is read, what may be missing may be
missing, what is wrong is named."""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.task import GoldCall
from gem_ma.scenarios.service_desk.retail import RetailStore, Task
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_data import Tau2Bench
from gem_ma.scenarios.service_desk.retail.benchmark.taubench import TauBench
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld
from gem_ma.scenarios.service_desk.retail.store.tau2 import as_tau2, tau2_hash
from gem_ma.scenarios.service_desk.retail.store.tau2_source import is_tau2

from gem_ma.kernel.errors import ConfigError, DataError
from tests.retail_data import ADDRESS, TAU, needs_tau, one_line, swap, tiny_tables, write_tables
from tests.tau2_folder import rows_of, tau2_row, write_tau2

CANCEL = ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
ROW = tau2_row(
    "0",
    [
        ("find_user_id_by_name_zip", {"first_name": "Ann", "last_name": "Lee", "zip": "04100"}),
        CANCEL,
    ],
    communicate_info=["30.3"],
)


def folder(path: Path, rows: Any = None, splits: Any = None) -> Path:
    return write_tau2(path, tiny_tables(), [ROW] if rows is None else rows, splits)


def only(path: Path, row: dict[str, Any]) -> Task:
    return Tau2Bench(folder(path, [row])).tasks("base")[0]


def changed(**changes: Any) -> dict[str, Any]:
    """The row with values at dotted paths."""
    row = copy.deepcopy(ROW)
    for path, value in changes.items():
        *way, name = path.split("__")
        at: Any = row
        for part in way:
            at = at[int(part)] if part.isdigit() else at[part]
        at[name] = value
    return row


# -- reading -------------------------------------------------------------------------------------


def test_a_task_is_read_with_all_that_graders_and_users_need(tmp_path: Path) -> None:
    task = only(tmp_path, ROW)
    assert (task.id, task.source, task.user_id, task.goal) == (
        "tau2/0",
        "tau2-bench",
        "ann_lee_1",
        "served",
    )
    assert task.actions[1] == GoldCall(*CANCEL)
    assert task.outputs == ("30.3",)
    assert [wish.kind for wish in task.wishes] == ["cancel_pending_order"]
    assert task.knows("first_name") == "Ann"
    assert task.knows("zip") == "04100"
    assert task.knows("email") == ""
    assert (
        task.instruction
        == "Instructions:\n\tDomain: retail\n\tReason for call:\n\t\tYou want help.\n\tKnown"
        " info:\n\t\tYou are Ann Lee and your zip code is 04100.\n\tTask instructions:\n\t\tBe"
        " brief."
    )
    assert task.flags == ()


def test_a_scenario_may_be_plain_text_and_have_a_persona(tmp_path: Path) -> None:
    row = changed(
        user_scenario={"persona": "Hasty.", "instructions": "You are Ann Lee.\nCancel #W1."}
    )
    assert (
        only(tmp_path, row).instruction
        == "Persona:\n\tHasty.\nInstructions:\n\tYou are Ann Lee.\n\tCancel #W1."
    )


@pytest.mark.parametrize("inner", ["", "tau2", "tau2/domains", "tau2/domains/retail"])
def test_the_folder_may_be_named_at_each_level(tmp_path: Path, inner: str) -> None:
    source = Tau2Bench(folder(tmp_path / "data") / inner)
    assert is_tau2(tmp_path / "data" / inner)
    assert (len(source.tasks("base")), source.policy()) == (1, "# The desk\n")
    assert len(Tau2Bench(tmp_path).tasks("base")) == 1  # the checkout around the data folder


def test_a_tau1_folder_is_not_taken_for_a_tau2_one(tmp_path: Path) -> None:
    assert not is_tau2(write_tables(tmp_path / "flat"))
    assert not is_tau2(tmp_path / "nowhere")
    assert not is_tau2("x" * 5000)


def test_splits_are_sets_of_ids_in_the_order_of_the_tasks_and_base_is_all_of_them(
    tmp_path: Path,
) -> None:
    rows = [tau2_row(task_id, [CANCEL]) for task_id in ("7", "b", "3")]
    source = Tau2Bench(folder(tmp_path, rows, {"train": ["3", "7", "3"], "test": ["b"]}))
    assert source.splits == ("train", "test", "base")
    assert [task.id for task in source.tasks("train")] == ["tau2/7", "tau2/3"]
    assert [task.id for task in source.tasks("base")] == ["tau2/7", "tau2/b", "tau2/3"]
    assert [task.id for task in source.tasks("base")[1:]] == ["tau2/b", "tau2/3"]
    with one_line("'val'", "train, test, base"):
        source.tasks("val")


def test_a_base_split_of_the_file_wins_and_no_file_means_base_alone(tmp_path: Path) -> None:
    rows = [tau2_row(str(number), [CANCEL]) for number in range(3)]
    assert [
        task.id
        for task in Tau2Bench(folder(tmp_path / "a", rows, {"base": ["2", 0]})).tasks("base")
    ] == ["tau2/0", "tau2/2"]
    assert Tau2Bench(folder(tmp_path / "b", rows)).splits == ("base",)


@pytest.mark.parametrize(
    "path",
    [
        "description",
        "initial_state",
        "evaluation_criteria",
        "user_scenario__persona",
        "user_scenario__instructions__domain",
        "user_scenario__instructions__known_info",
        "user_scenario__instructions__unknown_info",
        "user_scenario__instructions__task_instructions",
        "evaluation_criteria__communicate_info",
        "evaluation_criteria__nl_assertions",
        "evaluation_criteria__reward_basis",
        "evaluation_criteria__actions",
        "evaluation_criteria__actions__0__action_id",
        "evaluation_criteria__actions__0__info",
    ],
)
def test_what_is_optional_may_be_missing_or_null(tmp_path: Path, path: str) -> None:
    row = changed(**{path: None})
    assert only(tmp_path / "null", row).instruction
    *way, name = path.split("__")
    at: Any = row
    for part in way:
        at = at[int(part)] if part.isdigit() else at[part]
    del at[name]
    assert only(tmp_path / "missing", row).instruction


def test_keys_that_are_not_known_are_let_be(tmp_path: Path) -> None:
    row = changed(
        issues=[{"id": 1}], required_documents=["x"], user_tools=None, annotations={"a": 1}
    )
    row["evaluation_criteria"]["actions"][0]["extra"] = 5
    assert only(tmp_path, row) == only(tmp_path / "plain", ROW)
    # nothing reads these
    told = changed(
        description="a test of patience",
        ticket={"number": 5},
        evaluation_criteria__actions__0__info=["x"],
    )
    assert only(tmp_path / "told", told).actions == only(tmp_path / "plain", ROW).actions


def test_a_starting_state_is_the_tasks_own_world(tmp_path: Path) -> None:
    state = {
        "initialization_data": {"agent_data": {"orders": {"#W2": {"status": "processed"}}}},
        "initialization_actions": [
            {
                "env_type": "assistant",
                "func_name": "modify_user_address",
                "arguments": {"user_id": "bob_lee_2", **ADDRESS},
            }
        ],
        "message_history": None,
    }
    source = Tau2Bench(folder(tmp_path, [ROW, changed(id="1", initial_state=state)]))
    plain, started = source.tasks("base")
    there = source.world(started)
    assert source.world(plain) is source.base
    assert source.world(started) is there
    assert there.tables["orders"]["#W2"]["status"] == "processed"
    assert there.tables["orders"]["#W2"]["items"] == source.base.tables["orders"]["#W2"]["items"]
    assert there.tables["users"]["bob_lee_2"]["address"]["city"] == "Oak"
    assert source.base.tables["orders"]["#W2"]["status"] == "delivered"
    assert tau2_hash(source.base.tables) == tau2_hash(as_tau2(tiny_tables()))


def test_provenance_changes_with_the_data_and_only_with_them(tmp_path: Path) -> None:
    first = Tau2Bench(folder(tmp_path / "a")).provenance()
    assert first["name"] == "tau2-bench retail"
    assert first["folder"] == str(tmp_path / "a")
    assert first["digest"] == Tau2Bench(folder(tmp_path / "b")).provenance()["digest"]
    assert (
        first["digest"]
        != Tau2Bench(folder(tmp_path / "c", [ROW], {"test": ["0"]})).provenance()["digest"]
    )
    (tmp_path / "b/tau2/domains/retail/policy.md").write_text("# Other\n", "utf-8")
    assert first["digest"] != Tau2Bench(tmp_path / "b").provenance()["digest"]
    json.dumps(first)


def test_the_commit_of_the_checkout_around_the_data_is_told(tmp_path: Path) -> None:
    source = Tau2Bench(folder(tmp_path / "data"))
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n", "utf-8")
    assert source.provenance()["commit"] is None
    (git / "packed-refs").write_text(
        f"# pack-refs\n{'a0' * 20} refs/heads/other\n{'a1' * 20} refs/heads/main\n", "utf-8"
    )
    assert source.provenance()["commit"] == "a1" * 20
    (git / "refs/heads").mkdir(parents=True)
    (git / "refs/heads/main").write_text(f"{'a2' * 20}\n", "utf-8")
    assert source.provenance()["commit"] == "a2" * 20


def test_a_damaged_file_is_seen_at_the_next_load_in_the_same_process(tmp_path: Path) -> None:
    Tau2Bench(folder(tmp_path))
    (tmp_path / "tau2/domains/retail/db.json").write_text("{}", "utf-8")
    with pytest.raises(DataError):
        Tau2Bench(tmp_path)


# -- round trips ---------------------------------------------------------------------------------


@pytest.mark.long
def test_a_generated_shop_written_as_tau2_data_is_read_back(tmp_path: Path) -> None:
    shop = OwnWorld("tau1")
    tasks = [task for task in shop.tasks("test")[:40] if task.world == shop.tasks("test")[0].world]
    tables = shop.world(tasks[0]).tables
    source = Tau2Bench(write_tau2(tmp_path, tables, rows_of(tasks)))
    assert source.base.tables == as_tau2(tables)
    assert len(source.tasks("base")) == len(tasks) >= 20
    for ours, read in zip(tasks, source.tasks("base"), strict=True):
        assert [(call.name, call.arguments) for call in read.actions] == [
            (call.name, dict(call.arguments)) for call in ours.actions
        ]
        assert (read.user_id, read.outputs) == (ours.user_id, ours.outputs)
        assert all(line.strip() in read.instruction for line in ours.instruction.splitlines())
        for name in ("first_name", "last_name", "email", "zip"):
            if name != "zip" or ours.knows("zip"):
                assert read.knows(name) == (
                    ours.knows(name)
                    if name != "email" or ours.knows("email") in ours.instruction
                    else ""
                )


@pytest.mark.long
@needs_tau
def test_tau_benchs_tasks_written_as_tau2_data_show_their_faults_by_replay(tmp_path: Path) -> None:
    old = TauBench(TAU)
    tasks = list(old.tasks("test"))
    source = Tau2Bench(write_tau2(tmp_path, old.base.tables, rows_of(tasks)))
    assert (
        tau2_hash(source.base.tables)
        == "b25c9cb211f5efcaee5dd646054a73c4a9f43f4f5acc32c10713cd9f9ac20e9c"
    )
    read = list(source.tasks("base"))
    assert (
        sum(ours.user_id == theirs.user_id for ours, theirs in zip(tasks, read, strict=True)) >= 113
    )
    flags = Counter(flag for task in read for flag in task.flags)
    assert flags["order_sensitive"] == 5  # the multi-item fault; tau1's own rules have none
    assert flags["inaction_passes"] == 11
    assert sum("order_sensitive" in task.flags for task in tasks) == 0
    assert not any("needs_judge" in task.flags for task in read)


def test_the_store_loads_a_tau2_folder_by_its_content(tmp_path: Path) -> None:
    assert RetailStore.load(folder(tmp_path), "tau2").digest() == tau2_hash(as_tau2(tiny_tables()))
    with pytest.raises(ConfigError, match="tau2-bench's data takes 'tau2'"):
        RetailStore.load(tmp_path, "tau1")


# -- flags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "changes", "flags"),
    [
        ([CANCEL], {}, ()),
        ([], {}, ("inaction_passes",)),
        ([("get_order_details", {"order_id": "#W1"})], {}, ("inaction_passes",)),
        ([("get_order_details", {"order_id": "#W0"}), CANCEL], {}, ("gold_read_error",)),
        ([CANCEL, CANCEL], {}, ("gold_write_error", "redundant_write")),
        (
            [("modify_user_address", {"user_id": "ann_lee_1", **ADDRESS})] * 2,
            {},
            ("redundant_write",),
        ),
        ([CANCEL], {"nl_assertions": ["It was kind."]}, ()),
        (
            [CANCEL],
            {"nl_assertions": ["It was kind."], "reward_basis": ["DB", "NL_ASSERTION"]},
            ("needs_judge",),
        ),
        ([CANCEL], {"nl_assertions": [], "reward_basis": ["DB", "NL_ASSERTION"]}, ()),
        (
            [("modify_pending_order_items", swap("#W1", ["I1", "I2"], ["I3", "I1"]))],
            {},
            ("order_sensitive",),
        ),
        ([("modify_pending_order_items", swap("#W1", ["I1", "I2"], ["I3", "I3"]))], {}, ()),
        ([("exchange_delivered_order_items", swap("#W2", ["I1", "I7"], ["I3", "I8"]))], {}, ()),
    ],
)
def test_flags_come_from_replaying_the_solution(
    tmp_path: Path, actions: Any, changes: Any, flags: tuple[str, ...]
) -> None:
    found = only(tmp_path, tau2_row("0", actions, **changes)).flags
    if flags == ("gold_write_error", "redundant_write"):
        assert "gold_write_error" in found
    else:
        assert found == flags


# -- damage --------------------------------------------------------------------------------------


def tasks_of(path: Path, rows: Any, splits: Any = None) -> Callable[[], Any]:
    return lambda: list(Tau2Bench(folder(path, rows, splits)).tasks("base"))


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ({}, "the file: expected a list of tasks, got an object"),
        ([], "the file: expected a list of tasks, got an empty one"),
        ([5], "[0]: expected an object, got a number"),
        ([ROW, ROW], "[1].id: '0' is the id of an earlier task"),
        (
            [{key: value for key, value in ROW.items() if key != "id"}],
            "[0]: the field id is missing",
        ),
        (
            [{key: value for key, value in ROW.items() if key != "user_scenario"}],
            "[0]: the field user_scenario is missing",
        ),
        (
            [
                changed(
                    initial_state={
                        "initialization_data": {"agent_data": {"orders": {"#W1": {"items": 5}}}}
                    }
                )
            ],
            'task 0.initial_state: orders["#W1"].items: expected a list, got a number',
        ),
        (
            [
                changed(
                    initial_state={
                        "initialization_actions": [
                            {"func_name": "get_user_details", "arguments": {"user_id": "zed"}}
                        ]
                    }
                )
            ],
            "task 0.initial_state: initialization_actions[0]: Error: User not found",
        ),
    ],
)
def test_a_wrong_task_names_file_and_place(tmp_path: Path, rows: Any, where: str) -> None:
    with one_line(str(tmp_path / "tau2/domains/retail/tasks.json"), "scenario.data", where):
        tasks_of(tmp_path, rows)()


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        ("id", None, ": expected a text, got null"),
        ("user_scenario.instructions", 5, ": expected an object, got a number"),
        ("user_scenario.instructions.reason_for_call", ["x"], ": expected a text, got a list"),
        ("user_scenario.persona", 5, ": expected a text"),
        ("evaluation_criteria", "x", ": expected an object, got a text"),
        ("evaluation_criteria.actions", {}, ": expected a list, got an object"),
        ("evaluation_criteria.actions[1].name", 5, ": expected a text, got a number"),
        (
            "evaluation_criteria.actions[1].name",
            "cancel_order",
            ": there is no tool 'cancel_order'",
        ),
        ("evaluation_criteria.actions[1].name", "think", ": there is no tool 'think'"),
        ("evaluation_criteria.actions[0].arguments", [], ": expected an object, got a list"),
        ("evaluation_criteria.actions[0].compare_args", [5], "[0]: expected a text"),
        ("evaluation_criteria.actions[0].requestor", "robot", ": expected one of assistant, user"),
        ("evaluation_criteria.communicate_info", [5], "[0]: expected a text, got a number"),
        ("evaluation_criteria.nl_assertions", "x", ": expected a list, got a text"),
        (
            "evaluation_criteria.reward_basis",
            ["DB", "MOOD"],
            "[1]: expected one of DB, ENV_ASSERTION",
        ),
        ("evaluation_criteria.env_assertions", [{}], "[0]: the field func_name is missing"),
        (
            "initial_state",
            {"message_history": [{"role": "user"}]},
            ".message_history: expected null",
        ),
        (
            "initial_state",
            {"initialization_data": {"user_data": {"x": 1}}},
            ".initialization_data.user_data: expected null",
        ),
        (
            "initial_state",
            {"initialization_data": {"agent_data": {"flights": {}}}},
            ".initialization_data.agent_data.flights: expected one of users, orders, products",
        ),
        (
            "initial_state",
            {
                "initialization_actions": [
                    {"env_type": "user", "func_name": "get_user_details", "arguments": {}}
                ]
            },
            ".initialization_actions[0].env_type: the customer has no tools",
        ),
    ],
)
def test_a_wrong_field_of_a_task_is_named(
    tmp_path: Path, place: str, value: Any, what: str
) -> None:
    row = changed(**{"__".join(re.findall(r"\w+", place)): value})
    with one_line(str(tmp_path / "tau2/domains/retail/tasks.json"), f"[0].{place}{what}"):
        tasks_of(tmp_path, [row])()


@pytest.mark.parametrize(
    ("splits", "where"),
    [
        ([], "the file: expected an object of task ids by split, got a list"),
        ({"test": "0"}, "test: expected a list of task ids, got a text"),
        ({"test": ["0", "9"]}, 'test[1]: there is no task "9" in tasks.json'),
        ({"test": [None]}, "test[0]: there is no task null in tasks.json"),
        ({"test": [["0"]]}, 'test[0]: there is no task ["0"] in tasks.json'),
    ],
)
def test_a_wrong_split_names_file_and_place(tmp_path: Path, splits: Any, where: str) -> None:
    with one_line(str(tmp_path / "tau2/domains/retail/split_tasks.json"), where):
        tasks_of(tmp_path, [ROW], splits)()


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("db.json", b"[]", "the file: expected an object with users, orders, products, got a list"),
        ("db.json", b'{"users": {}, "orders": {}}', "the file: the table products is missing"),
        (
            "db.json",
            b'{"users": {}, "orders": {"#W1": {}}, "products": {}}',
            'orders["#W1"]: the field order_id is missing',
        ),
        (
            "db.json",
            b'{"users": {"a": {"user_id": 5}}, "orders": {}, "products": {}}',
            'users["a"]: the field name is missing',
        ),
        ("db.json", b'{"users": {', "db.json:1:12: not JSON"),
        ("db.json", b"\xff\xfe", "not UTF-8 at byte 0"),
        ("tasks.json", b"", "tasks.json:1:1: not JSON"),
        ("tasks.json", b"\xff", "not UTF-8"),
        ("tasks.json", b"[" * 100_000, "not JSON"),
        ("split_tasks.json", b"{", "split_tasks.json:1:2: not JSON"),
        ("tasks.json", None, "tasks.json is missing"),
        ("db.json", None, "db.json is missing"),
    ],
)
def test_a_file_that_is_no_data_is_told_in_one_line(
    tmp_path: Path, name: str, content: bytes | None, where: str
) -> None:
    path = folder(tmp_path, [ROW], {"test": ["0"]}) / "tau2/domains/retail" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with one_line(where):
        Tau2Bench(tmp_path).tasks("base")


def test_a_policy_that_is_no_text_is_told(tmp_path: Path) -> None:
    source = Tau2Bench(folder(tmp_path))
    (tmp_path / "tau2/domains/retail/policy.md").write_bytes(b"\xff")
    with one_line("policy.md", "UTF-8"):
        source.policy()
    (tmp_path / "tau2/domains/retail/policy.md").unlink()
    assert source.policy() is None


def test_the_variable_that_named_the_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path / "no"))
    with one_line(
        f"{tmp_path / 'no'} does not exist (TAU2_DATA_DIR={tmp_path / 'no'})",
        "tau2/domains/retail",
    ):
        Tau2Bench(tmp_path / "no")


def test_the_folder_of_the_wheel_is_read_with_its_own_names_and_packing(tmp_path: Path) -> None:
    plain = Tau2Bench(folder(tmp_path / "plain"))
    inner = Path(folder(tmp_path / "wheel"))
    place = next(inner.rglob("db.json")).parent
    packed = gzip.compress((place / "db.json").read_bytes())
    (place / "db.json").unlink()
    (place / "db.json.gz").write_bytes(packed)
    (place / "policy.txt").write_text("Be kind.", "utf-8")
    (place / "policy.md").unlink(missing_ok=True)
    (place / "split_tasks.json").unlink(missing_ok=True)
    assert is_tau2(inner)
    wheel = Tau2Bench(inner)
    assert wheel.base.tables == plain.base.tables and wheel.policy() == "Be kind."
    assert len(wheel.tasks("base")) == 1 and wheel.digest != plain.digest
    for damage in (b"no gzip", packed[:-20], b""):
        (place / "db.json.gz").write_bytes(damage)
        with one_line("db.json.gz"):
            Tau2Bench(inner)
