"""Names -> objects, with errors that say what to type instead."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.text import first_sentence
from gem_ma.kernel.scenario import Ask, Scenario
from gem_ma.registry import KINDS, as_scenario, builtin, catalog, construct, load, make, task_of


class Mine(Scenario):
    """Mine."""

    agents = ("a",)

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def play(self, rng: random.Random, task: Any) -> Any:
        yield Ask({"a": "?"})

    def tasks(self, split: str) -> Sequence[Any]:
        return {"test": ("x", "y"), "train": ("z",)}.get(split, ())


class Picky(Mine):
    def __init__(self, size: int) -> None:
        super().__init__(size + "no number")  # type: ignore[operator]


HERE = __name__


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules.get(HERE) or sys.modules[Mine.__module__])


@pytest.mark.parametrize("kind", KINDS)
def test_every_builtin_is_there_and_the_catalog_holds_it(kind: str) -> None:
    assert builtin(kind).items() <= catalog(kind).items()
    if kind != "engines":  # an engine's module may need an extra
        for name in builtin(kind):
            assert callable(load(kind, name))


def test_a_scenario_by_id_knows_its_id_and_takes_options() -> None:
    scenario = make("dilemma", rounds=7)
    assert (scenario.id, scenario.ends_within) == ("dilemma", 7)


def test_a_scenario_by_module_and_class() -> None:
    scenario = make(f"{HERE}:Mine", size=3)
    assert isinstance(scenario, Mine) and (scenario.id, scenario.size) == (f"{HERE}:Mine", 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kuhn_pokr", r"no scenario is called 'kuhn_pokr' \(did you mean 'kuhn_poker'\?\)"),
        ("zzz", r"known: .*dilemma.*package\.module:Class or file\.py"),
        ("", "no scenario is called ''"),
        *((name, "a name of code is package.module:Class") for name in (":X", "a..b:X", "a:")),
        ("no.such.module:X", "there is no module 'no"),
        ("json:NoScenario", "module json has no 'NoScenario'"),
        ("json:JSONDecoder", "is no Scenario but a JSONDecoder"),
    ],
)
def test_a_wrong_name_is_one_line_that_helps(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make(name)
    assert "\n" not in str(caught.value)


def test_an_unknown_behaviour_is_told_where_all_are_named_and_who_a_person_is() -> None:
    with pytest.raises(ConfigError, match=r"gem-ma list agents .*human: you type") as caught:
        load("agents", "zzz")
    assert len(str(caught.value)) < 250


def test_an_import_that_fails_inside_a_module_keeps_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_room.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"'broken_room:X' .*'no_such_library'"):
        load("scenarios", "broken_room:X")


def test_wrong_options_are_config_errors_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"scenario 'dilemma': .*'round'.*did you mean 'rounds'"):
        make("dilemma", round=3)
    with pytest.raises(ConfigError, match=r"scenario 'kuhn_poker': .*'cards'"):
        make("kuhn_poker", cards=3)
    with pytest.raises(ConfigError, match="missing a required argument: 'size'"):
        make(f"{HERE}:Picky")
    with pytest.raises(ConfigError, match="Picky"):
        as_scenario(Picky)
    with pytest.raises(ConfigError, match="'name'"):
        make("dilemma", name="x")


def test_a_type_error_inside_a_constructor_is_not_taken_for_a_wrong_option() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        make(f"{HERE}:Picky", size=1)
    assert construct("x", int, "7") == 7


def test_a_scenario_from_a_class_or_an_instance() -> None:
    assert as_scenario(Mine, size=2).id == f"{HERE}:Mine"
    instance = Mine()
    assert as_scenario(instance) is instance and as_scenario("dilemma").id == "dilemma"
    with pytest.raises(ConfigError, match="takes no options; got size"):
        as_scenario(instance, size=3)
    for wrong in (3, int):
        with pytest.raises(ConfigError, match="a name, a class or an instance"):
            as_scenario(wrong)  # type: ignore[arg-type]


def test_a_scenario_may_be_a_frozen_dataclass() -> None:
    @dataclass(frozen=True)
    class Frozen(Mine):
        size: int = 4

    assert as_scenario(Frozen).id.endswith("Frozen")


def test_tasks_by_split_and_index() -> None:
    assert [task_of(Mine(), key) for key in ("test/0", "test/1", "train/0")] == ["x", "y", "z"]
    assert task_of(make("dilemma"), "anything/0") is None


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("test/2", "no task 'test/2' in split 'test'; it has 2, from test/0 to test/1"),
        ("test/-1", "no task 'test/-1'"),
        ("test/x", "no task 'test/x'"),
        ("dev/0", "split 'dev'; it is empty"),
        ("0", "a task is <split>/<index>"),
        ("", "a task is <split>/<index>"),
    ],
)
def test_a_task_that_is_not_there_is_named_with_the_range(key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        task_of(Mine(), key)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "One agent asks; the other\n    answers. More.\n\n    Last.",
            "One agent asks; the other answers.",
        ),
        ("A name such as a.b or 0.5 ends nothing", "A name such as a.b or 0.5 ends nothing"),
        ("`x/<name>`. Says what\nit reads. Not this.", "`x/<name>`. Says what it reads."),
        ("  \n", ""),
    ],
)
def test_a_first_sentence_is_whole_however_its_lines_break(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


@pytest.mark.parametrize("kind", ["scenarios", "agents", "engines"])
def test_no_summary_ends_in_the_middle_of_a_sentence(kind: str) -> None:
    from gem_ma.cli.list import objects

    listed = {entry["id"]: entry["summary"] for entry in objects(kind)}
    assert {id_: text for id_, text in listed.items() if not text.endswith(".")} == {}
