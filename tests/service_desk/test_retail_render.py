"""Generated tasks in the forms of tau-bench, of tau2-bench and our own: round trips, and folders
that the loaders read and score."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gem_ma.scenarios.service_desk.desk.log import Outcome
from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.__main__ import main
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_data import Tau2Bench
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_grading import tau2
from gem_ma.scenarios.service_desk.retail.benchmark.taubench import TauBench
from gem_ma.scenarios.service_desk.retail.domain.grading import GRADERS, changes, gold_of
from gem_ma.scenarios.service_desk.retail.shop.describe import every
from gem_ma.scenarios.service_desk.retail.shop.render import (
    own_row,
    read_own,
    tau1_row,
    tau2_row,
    write_world,
)
from gem_ma.scenarios.service_desk.retail.store.tasks import replay_gold

from gem_ma.kernel.errors import ConfigError, DataError
from tests.service_desk.test_retail_world import ALL, RICH

WORLD = RICH[:20]  # a world holds twenty


def test_our_own_json_gives_the_task_back() -> None:
    for task in RICH[:40]:
        text = json.dumps(own_row(task))
        assert read_own(json.loads(text)) == task


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda row: row.pop("wishes"), r"'wishes' is missing"),
        (lambda row: row.update(form=99), r"form 99; this version reads form 1"),
        (lambda row: row.update(actions=[1]), r"task 'own/"),
        (lambda row: row["wishes"][0].pop("kind"), r"'kind' is missing"),
        (lambda row: row.update(knowledge=[{"name": "zip"}]), r"task 'own/"),
    ],
)
def test_damaged_json_is_told_with_the_task(spoil: Any, said: str) -> None:
    row = json.loads(json.dumps(own_row(RICH[0])))
    spoil(row)
    with pytest.raises(DataError, match=said):
        read_own(row)
    with pytest.raises(DataError, match=r"expected an object, got list"):
        read_own([])


def test_a_folder_of_tau1s_form_loads_and_its_solutions_score_1(tmp_path: Path) -> None:
    (folder,) = write_world(tmp_path / "shop", "tau1", WORLD)
    loaded = TauBench(folder).tasks("test")
    assert len(loaded) == len(WORLD) == 20
    for task, ours in zip(loaded, WORLD, strict=True):
        base = TauBench(folder).world(task)
        assert (task.user_id, task.instruction, task.outputs) == (
            ours.user_id,
            ours.instruction,
            ours.outputs,
        )
        assert [call.arguments for call in task.actions] == [
            call.arguments for call in ours.actions
        ]
        end, answers = replay_gold(base, "tau1", task.actions)
        assert not [answer for answer in answers if answer.startswith("Error")]
        said = tuple(ours.outputs) or ("Done.",)
        assert (
            GRADERS["tau1"](
                task,
                end.overlay,
                gold_of(base, "tau1", task).state,
                Outcome("user", "settled", said),
            ).reward
            == 1
        )
        assert set(task.flags) <= {"inaction_passes", "order_sensitive"}
        assert ("inaction_passes" in task.flags) == (not changes(end.overlay))
    assert Retail(data=str(folder)).policy == Retail(data="own").policy


def test_a_folder_of_tau2s_form_loads_and_its_solutions_score_1(tmp_path: Path) -> None:
    write_world(tmp_path / "data", "tau2", WORLD)
    source = Tau2Bench(tmp_path / "data")
    loaded = source.tasks("test")
    assert len(loaded) == len(WORLD)
    for task, ours in zip(loaded, WORLD, strict=True):
        assert task.user_id == ours.user_id
        assert task.outputs == ours.outputs
        assert not {"gold_write_error", "gold_read_error", "redundant_write"} & set(task.flags), (
            task.id,
            task.flags,
        )
        scene = task.raw["user_scenario"]["instructions"]
        parts = [scene["known_info"], scene["unknown_info"], scene["reason_for_call"]]
        sentences = sorted(word for part in parts if part for word in part.split())
        assert sentences == sorted(ours.instruction.split())
        for slot in ours.knowledge:
            if slot.known and slot.name != "order_id":
                assert slot.value in scene["known_info"]
        store, _ = replay_gold(source.world(task), "tau2", task.actions)
        gold = gold_of(source.world(task), "tau2", task).state
        right, wrong = (
            Outcome("user", "settled", (" and ".join(task.outputs) or "Done.",)),
            Outcome("limit"),
        )
        assert tau2(task, store.overlay, gold, right).reward == 1
        assert tau2(task, store.overlay, gold, wrong).reward == 0
        if changes(store.overlay):
            assert tau2(task, Overlay(source.world(task)), gold, right).reward == 0


def test_tasks_of_several_worlds_make_several_folders(tmp_path: Path) -> None:
    tasks = [RICH[0], RICH[25], RICH[1]]
    folders = write_world(tmp_path, "own", tasks)
    assert [folder.name for folder in folders] == [
        f"world-{RICH[0].world}",
        f"world-{RICH[25].world}",
    ]
    back = [
        read_own(row)
        for folder in folders
        for row in json.loads((folder / "tasks.json").read_text())
    ]
    assert back == [RICH[0], RICH[1], RICH[25]]
    for folder, task in zip(folders, (RICH[0], RICH[25]), strict=True):
        for table in ("users", "orders", "products"):
            assert (
                json.loads((folder / f"{table}.json").read_text()) == ALL.world(task).tables[table]
            )


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is tau1, tau2, own; got 'tau3'"):
        write_world(tmp_path, "tau3", RICH[:1])
    with pytest.raises(ConfigError, match=r"there is none to write"):
        write_world(tmp_path, "own", [])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file"):
        write_world(tmp_path / "file" / "inner", "own", RICH[:1])


def test_the_benchmarks_forms_hold_no_field_of_ours() -> None:
    for task in RICH[:20]:
        assert list(tau1_row(task)) == ["user_id", "instruction", "actions", "outputs"]
        row = tau2_row(task)
        assert not [name for name in ("wishes", "knowledge", "proof") if name in json.dumps(row)]
        assert all(call["name"] != "think" for call in row["evaluation_criteria"]["actions"])
        assert len(list(every(task.wishes))) >= len(task.wishes)


# -- the command ---------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


def test_the_command_proves_a_split_once_more_and_tells_what_was_thrown_away() -> None:
    done = command("prove", "--split", "shift", "--tasks", "12", "--knobs", '{"requests": 4}')
    assert done.exit_code == 0
    assert "12 of 12 tasks of shift hold all proofs" in done.output
    assert re.search(r"unique +0\.\d% of \d+ drawn", done.output)


def test_the_command_writes_folders_that_can_be_read(tmp_path: Path) -> None:
    done = command(
        "write", str(tmp_path / "shop"), "--form", "own", "--split", "val", "--tasks", "3"
    )
    assert done.exit_code == 0
    rows = json.loads((tmp_path / "shop" / "tasks.json").read_text())
    assert [read_own(row) for row in rows] == list(Retail(data="own").tasks("val")[:3])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prove", "--knobs", "{"), "--knobs: not JSON"),
        (("prove", "--knobs", '{"requsts": 1}'), "did you mean 'requests'"),
        (("prove", "--split", "dev"), "'dev' is not one of"),
        (("write", "x", "--form", "tau9"), "tau9"),
    ],
)
def test_what_the_command_cannot_do_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str
) -> None:
    done = command(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output
