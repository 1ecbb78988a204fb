"""The loaders beside each other and under damage of every kind: the same tasks from every
layout, and never more than one line about a fault."""

from __future__ import annotations

import copy
import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_data import Tau2Bench
from gem_ma.scenarios.service_desk.retail.benchmark.taubench import TauBench

from gem_ma.kernel.errors import DataError
from tests.retail_data import TAU, needs_tau, swap, tiny_tables, write_tables
from tests.tau2_folder import tau2_row, write_tau2

SWAP = swap("#W1", ["I1", "I2"], ["I3", "I1"])
BACK = {"order_id": "#W2", "item_ids": ["I7"], "payment_method_id": "gift_card_1"}
ROW = {
    "user_id": "ann_lee_1",
    "instruction": 'You are Ann Lee in 04100.\nYou say "it\'s late".',
    "actions": [
        {"name": "modify_pending_order_items", "kwargs": SWAP},
        {"name": "return_delivered_order_items", "kwargs": BACK},
    ],
    "outputs": ["30.3"],
}
STATE = {
    "initialization_data": {
        "agent_data": {"orders": {"#W4": {"status": "delivered"}}},
        "user_data": None,
    },
    "initialization_actions": [
        {
            "env_type": "assistant",
            "func_name": "cancel_pending_order",
            "arguments": {"order_id": "#W3", "reason": "no longer needed"},
        }
    ],
    "message_history": None,
}
ROW2 = {
    **tau2_row(
        "0", [(call["name"], call["kwargs"]) for call in ROW["actions"]], communicate_info=["30.3"]
    ),
    "initial_state": STATE,
}  # type: ignore[attr-defined,index]


def python(rows: list[dict[str, Any]], name: str = "TASKS_TEST") -> str:
    """The rows as the benchmark's own kind of file."""
    tasks = []
    for row in rows:
        calls = ", ".join(
            f"Action(name={call['name']!r}, kwargs={call['kwargs']!r})" for call in row["actions"]
        )
        tasks.append(
            f"    Task(\n        annotator='0',\n        user_id={row['user_id']!r},\n       "
            f" instruction={row['instruction']!r},\n        actions=[{calls}],\n       "
            f" outputs={row['outputs']!r},\n    ),\n"
        )
    return f"from tau_bench.types import Task, Action\n\n{name} = [\n{''.join(tasks)}]\n"


def checkout(folder: Path, tables: dict[str, Any], **files: str) -> Path:
    retail = folder / "tau_bench/envs/retail"
    write_tables(retail / "data", tables)
    for split, text in files.items():
        (retail / f"tasks_{split}.py").write_text(text, "utf-8")
    return folder


# -- beside each other ---------------------------------------------------------------------------


@pytest.mark.long
@needs_tau
def test_every_public_task_is_the_same_from_a_flat_folder_and_from_a_checkout(
    tmp_path: Path,
) -> None:
    rows = {
        split: json.loads((TAU / f"tasks_{split}.json").read_text("utf-8"))
        for split in ("test", "dev")
    }
    tables = {
        name: json.loads((TAU / f"{name}.json").read_text("utf-8"))
        for name in ("users", "orders", "products")
    }
    files = {
        "test": python(rows["test"]),
        "dev": python(rows["dev"], "TASKS_DEV"),
        "train": python(rows["dev"][:5], "TASKS_TRAIN"),
    }
    flat, cloned = TauBench(TAU), TauBench(checkout(tmp_path, tables, **files))
    assert (
        cloned.base.digest({})
        == flat.base.digest({})
        == "5a4b2cb59f4d12dea7e4adff24a7f8fada510ead49372ea4a729a82bbb5f49b5"
    )
    for split in ("test", "dev"):
        assert list(cloned.tasks(split)) == list(flat.tasks(split))
    assert cloned.splits == ("test", "train", "dev")
    assert [task.id for task in cloned.tasks("train")] == [
        f"tau1/train/{place}" for place in range(5)
    ]
    assert [task.id for task in flat.tasks("train")][:1] == ["tau1/dev/0"]


def test_a_mark_of_the_encoding_and_other_line_ends_say_nothing(tmp_path: Path) -> None:
    plain = TauBench(checkout(tmp_path / "a", tiny_tables(), test=python([ROW])))
    checkout(tmp_path / "b", tiny_tables())
    inner = tmp_path / "b/tau_bench/envs/retail"
    (inner / "tasks_test.py").write_bytes(
        b"\xef\xbb\xbf" + python([ROW]).replace("\n", "\r\n").encode()
    )
    (inner / "data/users.json").write_bytes(
        b"\xef\xbb\xbf" + (inner / "data/users.json").read_bytes()
    )
    marked = TauBench(tmp_path / "b")
    assert list(marked.tasks("test")) == list(plain.tasks("test"))


def test_a_task_file_that_python_warns_of_is_read_without_a_word(tmp_path: Path) -> None:
    text = python([ROW]).replace("'0'", "'\\d'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(TauBench(checkout(tmp_path, tiny_tables(), test=text)).tasks("test")) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"user_id": 5}, "[1].user_id: expected str, got int"),
        (
            {"actions": [{"name": "cancel_order", "kwargs": {}}]},
            "[1].actions[0].name: there is no tool 'cancel_order'",
        ),
        (
            {"actions": [{"name": 5, "kwargs": {}}]},
            "[1].actions[0]: expected an object with name (text) and kwargs (object)",
        ),
        ({"outputs": [5]}, "[1].outputs[0]: expected a text, got 5"),
        ({"outputs": None}, "[1].outputs: expected list, got NoneType"),
    ],
)
def test_a_wrong_task_of_a_checkout_is_told_with_its_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = (
        checkout(tmp_path, tiny_tables(), test=python([ROW, {**ROW, **change}]))
        / "tau_bench/envs/retail/tasks_test.py"
    )
    with pytest.raises(DataError) as error:
        TauBench(tmp_path).tasks("test")
    assert str(error.value) == f"retail data: {path}:11 (scenario.data={tmp_path}): {said}"


# -- damage --------------------------------------------------------------------------------------

ODD = (
    None,
    True,
    0,
    5,
    -1.5,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "x",
    "a\nb",
    "\ud800",
    [],
    ["x"],
    [None],
    [[]],
    {},
    {"a": 1},
    {"": None},
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield from paths(value[key], (*at, key))


def damaged(rng: random.Random, value: Any) -> Any:
    """The value with one or two places dropped, renamed or filled with something odd."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 2)):
        way = rng.choice(list(paths(value)))
        if not way:
            continue
        at = value
        for key in way[:-1]:
            at = at[key]
        luck = rng.random()
        if luck < 0.3:
            del at[way[-1]]
        elif luck < 0.4 and isinstance(at, dict):
            at[rng.choice(("zz", "", "a\nb"))] = at.pop(way[-1])
        else:
            at[way[-1]] = copy.deepcopy(rng.choice(ODD))
    return value


def all_of(source: TauBench | Tau2Bench) -> None:
    for split in source.splits:
        for task in source.tasks(split):
            source.world(task)


Case = tuple[Path, Callable[[], Any]]


def cases(rng: random.Random, folder: Path) -> Iterator[Case]:
    """The damaged file, and what reads it."""
    tables, name = tiny_tables(), rng.choice(("users", "orders", "products"))
    write_tables(folder / "table", {**tables, name: damaged(rng, tables[name])})
    (folder / "table/tasks_test.json").write_text(json.dumps([ROW]), "utf-8")
    yield folder / f"table/{name}.json", lambda: all_of(TauBench(folder / "table"))
    write_tables(folder / "tasks", tables)
    (folder / "tasks/tasks_test.json").write_text(json.dumps(damaged(rng, [ROW])), "utf-8")
    yield folder / "tasks/tasks_test.json", lambda: all_of(TauBench(folder / "tasks"))
    inner = write_tau2(folder / "db", tables, [ROW2], {"test": ["0"]}) / "tau2/domains/retail"
    (inner / "db.json").write_text(
        json.dumps(damaged(rng, json.loads((inner / "db.json").read_text("utf-8")))), "utf-8"
    )
    # a table that is well-formed may still not fit the task's starting state
    yield inner, lambda: all_of(Tau2Bench(folder / "db"))
    write_tau2(folder / "rows", tables, damaged(rng, [ROW2]))
    yield folder / "rows/tau2/domains/retail/tasks.json", lambda: all_of(Tau2Bench(folder / "rows"))
    write_tau2(folder / "splits", tables, [ROW2], damaged(rng, {"test": ["0"], "train": ["0"]}))
    yield (
        folder / "splits/tau2/domains/retail/split_tasks.json",
        lambda: all_of(Tau2Bench(folder / "splits")),
    )
    text, at = python([ROW]), rng.randrange(40, 600)
    bits = rng.choice(
        ("(", "]", "'", "*", "f()", "\x00", "\n", "1e999", "{1}", "lambda: 0", "kwargs=", "\\")
    )
    text = rng.choice(
        (text[:at] + bits + text[at:], text[:at] + text[at + rng.randint(1, 20) :], text[:at])
    )
    encoding = rng.choice(("utf-8", "utf-8", "utf-16", "utf-32"))
    inner = checkout(folder / "python", tables) / "tau_bench/envs/retail"
    (inner / "tasks_test.py").write_bytes(text.encode(encoding))
    yield inner / "tasks_test.py", lambda: all_of(TauBench(folder / "python"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_damage_of_any_kind_is_one_line_that_names_the_file(tmp_path: Path, seed: int) -> None:
    rng, told = random.Random(seed), 0
    for number in range(15):
        for path, read in cases(rng, tmp_path / str(number)):
            try:
                read()
            except DataError as error:
                told += 1
                text = str(error)
                assert "\n" not in text
                assert str(path) in text
        shutil.rmtree(tmp_path / str(number))
    assert told > 36


def test_a_folder_of_several_worlds_is_told_to_be_named_by_one_of_them(tmp_path: Path) -> None:
    write_tables(tmp_path / "world-1", tiny_tables())
    with pytest.raises(DataError, match=r"holds no users.json .*did you mean .*world-1\?$"):
        TauBench(str(tmp_path))
