"""A study: every cell is a config of its own, an ordinary run folder, and a row of one
comparison."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gem_ma.cli.main import main
from gem_ma.config.loading import load, load_study
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
from gem_ma.kernel.types import Action, Turn
from gem_ma.pages.live.answers import Asked
from gem_ma.pages.live.site import Site
from gem_ma.pages.live.studied import study_page
from gem_ma.pages.static.study import write_study
from gem_ma.runs.cells import Policies, check_measures, open_cells
from gem_ma.runs.store import hold_folder
from gem_ma.scores.groups import Kinds
from gem_ma.scores.judge import Judge
from gem_ma.scores.sides import two_returns
from gem_ma.scores.stats import paired
from gem_ma.scores.studies import Cell, _passed, cell_of, score_of, study_summary
from tests.command_line import SLOWLY, gem_ma, signalled
from tests.plays import recorded

STUDY = """\
# Who exploits whom.
study: {repeats: 2}
scenario: {id: dilemma, rounds: 3, tasks: 12}
run: {seed: 7}
grid:
  agents.player_0: [first_legal, random_legal]
  agents.player_1: {kind: first_legal, random: {behaviour: random_legal}}
"""


def written(folder: Path, text: str, name: str = "who.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_study(written(folder, text), overrides)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


# -- cells ---------------------------------------------------------------------------------------


def test_every_combination_is_a_config_of_its_own(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, STUDY))
    assert study.axes == {
        "agents.player_0": ("first_legal", "random_legal"),
        "agents.player_1": ("kind", "random"),
    }
    assert list(study.cells) == [
        ("first_legal", "kind"),
        ("first_legal", "random"),
        ("random_legal", "kind"),
        ("random_legal", "random"),
    ]
    assert study.reference == ("first_legal", "kind")
    config = study.cells["random_legal", "kind"].config
    assert (config.agents["player_0"].behaviour, config.agents["player_1"].behaviour) == (
        "random_legal",
        "first_legal",
    )
    assert config.run.episodes_per_task == 2
    assert len({cell.config.model_dump_json() for cell in study.cells.values()}) == 4


def test_a_cell_replaces_the_whole_value_and_merges_nothing(tmp_path: Path) -> None:
    text = """\
scenario: {id: dilemma}
agents: {player_0: {policy: main}, player_1: {behaviour: silent}}
policies: {main: {model: table/softmax, temperature: 0.5, max_tokens: 7}}
grid: {policies.main: {cold: {model: table/softmax, temperature: 0.1}}}
"""
    (cell,) = load_study(written(tmp_path, text)).cells.values()
    assert (cell.config.policies["main"].temperature, cell.config.policies["main"].max_tokens) == (
        0.1,
        256,
    )


def test_loading_a_study_as_a_config_gives_its_reference_cell(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        STUDY.replace(
            "{repeats: 2}", "{reference: {player_0: random_legal, agents.player_1: random}}"
        ),
    )
    loaded = load(path)
    assert loaded.study and loaded.config == load_study(path).cells["random_legal", "random"].config
    assert not load("kuhn_random").study


@pytest.mark.parametrize(
    ("axis", "value", "name"),
    [
        ("scenario.rounds", "3", "3"),
        ("run.max_steps", "null", "null"),
        ("run.zstd", "true", "true"),
    ],
)
def test_a_reference_is_written_as_the_value_of_its_cell(
    tmp_path: Path, axis: str, value: str, name: str
) -> None:
    other = "false" if name == "true" else "2"
    text = "scenario: {id: dilemma}\nagents: {'*': random_legal}\n"
    reference = f"study: {{reference: {{{axis.split('.')[1]}: {value}}}}}\n"
    path = written(tmp_path, f"{reference}{text}grid: {{{axis}: [{other}, {value}]}}\n")
    assert load_study(path).reference == (name,)


def test_cross_play_seats_every_population_with_every_other(tmp_path: Path) -> None:
    text = """\
scenario: {id: dilemma}
cross_play:
  population:
    player_0: [first_legal, random_legal]
    player_1: {kind: {behaviour: first_legal}, silent: silent, random: random_legal}
"""
    study = load_study(written(tmp_path, text))
    assert list(study.axes) == ["agents.player_0", "agents.player_1"] and len(study.cells) == 6


def test_an_axis_and_a_reference_may_be_an_agent_with_a_dot(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        'from gem_ma import Scenario\n\n\nclass Two(Scenario):\n    agents = ("Ann B.", "b=c")\n'
    )
    text = """\
study: {reference: {Ann B.: silent}}
scenario: {id: two.py}
agents: {b=c: silent}
grid: {'agents."Ann B."': [first_legal, silent]}
"""
    study = load_study(written(tmp_path, text))
    assert study.reference == ("silent",) and list(study.axes) == ['agents."Ann B."']
    assert study.cells["first_legal",].config.agents["Ann B."].behaviour == "first_legal"


def test_an_axis_may_be_an_option_of_the_scenario_and_its_values_name_themselves(
    tmp_path: Path,
) -> None:
    study = load_study(
        written(
            tmp_path,
            "scenario: {id: dilemma}\nagents: {player_0: {behaviour: silent}, player_1: {behaviour:"
            " silent}}\ngrid: {scenario.rounds: [2, 5]}\n",
        )
    )
    assert {
        names: cell.config.scenario.options["rounds"] for names, cell in study.cells.items()
    } == {("2",): 2, ("5",): 5}


def test_a_study_extends_one_config_of_its_folder(tmp_path: Path) -> None:
    written(
        tmp_path,
        "scenario: {id: dilemma, tasks: 3}\nagents: {player_0: {behaviour: silent}, player_1:"
        " {behaviour: silent}}\n",
        "base.yaml",
    )
    study = load_study(
        written(tmp_path, "extends: base.yaml\ngrid: {agents.player_1: [first_legal]}\n")
    )
    (cell,) = study.cells.values()
    assert (
        cell.config.agents["player_0"].behaviour == "silent"
        and cell.config.agents["player_1"].behaviour == "first_legal"
    )
    assert refused(tmp_path, "extends: ../base.yaml\ngrid: {agents.player_1: [silent]}\n")[
        0
    ].startswith("who.yaml:1: extends: ")


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("[first_legal, random_legal]", "[first_legl]"),
            "who.yaml:6: agents.player_0.behaviour: no behaviour is called 'first_legl'",
        ),
        (
            ("{behaviour: random_legal}", "{behavior: random_legal}"),
            "who.yaml:7: agents.player_1.behavior: unknown key (did you mean 'behaviour'?)",
        ),
        (
            ("agents.player_1:", "agents.player_2:"),
            "who.yaml:7: agents.player_2: no agent of dilemma has this name",
        ),
        (
            ("agents.player_1:", "agnts.player_1:"),
            'who.yaml:7: grid."agnts.player_1": an axis is a dotted path into a section',
        ),
        (
            ("agents.player_1:", "scenario:"),
            "who.yaml:7: grid.scenario: an axis is a dotted path such as",
        ),
        (
            ("agents.player_1:", "agents:"),
            'who.yaml:6: grid."agents.player_0": another axis replaces the section',
        ),
        (
            ("agents.player_1:", "agents.player_0.options:"),
            'who.yaml:7: grid."agents.player_0.options": another axis replaces the section',
        ),
        (
            ("{repeats: 2}", "{repets: 2}"),
            "who.yaml:2: study.repets: unknown key (did you mean 'repeats'?)",
        ),
        (
            ("{repeats: 2}", "{repeats: 0}"),
            "who.yaml:2: study.repeats: should be greater than or equal to 1; got 0",
        ),
        (
            ("{repeats: 2}", "{design: gird}"),
            "who.yaml:2: study.design: wants 'grid', 'cross_play', 'mix', 'focal', 'tournament' or null; got 'gird'",
        ),
        (
            ("{repeats: 2}", "{design: cross_play}"),
            "who.yaml:2: study.design: no section `cross_play:`",
        ),
        (
            ("{repeats: 2}", "{paired_by: [seed]}"),
            "who.yaml:2: study.paired_by: must hold `task`",
        ),
        (
            ("{repeats: 2}", "{reference: {player_0: nobody}}"),
            "who.yaml:2: study.reference.player_0: no cell of agents.player_0 is called 'nobody'",
        ),
        (
            ("{repeats: 2}", "{reference: {player_9: kind}}"),
            "who.yaml:2: study.reference.player_9: no axis has this name",
        ),
        (
            ("[first_legal, random_legal]", "[]"),
            'who.yaml:6: grid."agents.player_0": names no cell',
        ),
        (
            ("[first_legal, random_legal]", "[silent, silent]"),
            "who.yaml:6: grid.\"agents.player_0\"[1]: the cell 'silent' stands there twice",
        ),
        (
            ("[first_legal, random_legal]", "[{behaviour: silent}]"),
            'who.yaml:6: grid."agents.player_0"[0]: a cell of several keys wants a name',
        ),
        (
            ("[first_legal, random_legal]", "3"),
            'who.yaml:6: grid."agents.player_0": wants keys with values or a list',
        ),
    ],
)
def test_a_fault_of_a_study_names_file_line_and_key(
    tmp_path: Path, change: tuple[str, str], line: str
) -> None:
    lines = refused(tmp_path, STUDY.replace(*change))
    assert any(one.startswith(line) for one in lines), lines
    assert len(lines) == len(set(lines))  # a fault that many cells share is told once


def test_an_override_may_set_what_cells_share_and_never_what_an_axis_sets(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, STUDY), ["scenario.tasks=3", "study.repeats=1"])
    assert all(
        cell.config.scenario.tasks == 3 and cell.config.run.episodes_per_task == 1
        for cell in study.cells.values()
    )
    (line,) = refused(tmp_path, STUDY, "agents.player_0.behaviour=silent")
    assert 'grid."agents.player_0": the axis sets this in every cell, and so does the ' in line


def test_one_axis_may_set_several_seats_together_and_leaves_the_others(tmp_path: Path) -> None:
    text = """scenario: {id: kuhn_poker}
agents: {player_0: random_legal}
grid:
  agents:
    naive: {player_0: first_legal, player_1: first_legal}
    clever: {player_1: {behaviour: random_legal}}
"""
    study = load_study(written(tmp_path, text))
    casts = {
        names: {agent: seat.behaviour for agent, seat in cell.config.agents.items()}
        for names, cell in study.cells.items()
    }
    assert casts == {
        ("naive",): {"player_0": "first_legal", "player_1": "first_legal"},
        ("clever",): {"player_0": "random_legal", "player_1": "random_legal"},
    }
    for change, line in (
        (
            ("player_1: first_legal", "player_1: first_legl"),
            "who.yaml:5: agents.player_1.behaviour: no behaviour is called 'first_legl'",
        ),
        (
            ("player_1: first_legal", "player_7: first_legal"),
            "who.yaml:5: agents.player_7: no agent of kuhn_poker has this name",
        ),
        (
            ("{player_1: {behaviour: random_legal}}", "random_legal"),
            "who.yaml:4: grid.agents: a cell of the axis `agents` names seats",
        ),
    ):
        assert any(one.startswith(line) for one in refused(tmp_path, text.replace(*change))), line
    (line,) = refused(tmp_path, text, "agents.player_1=silent")
    assert "grid.agents: the axis sets agents.player_1, and so does the command line" in line


@pytest.mark.parametrize(
    "cells", ["[first_legal, silent]", "{first_legal: first_legal, silent: silent}"]
)
def test_an_axis_below_a_seat_is_taken_as_it_stands(tmp_path: Path, cells: str) -> None:
    seats = "{player_0: random_legal, player_1: random_legal}"
    axis = f"  agents.player_0.behaviour: {cells}\n"
    text = f"scenario: {{id: dilemma}}\nagents: {seats}\ngrid:\n{axis}"
    study = load_study(written(tmp_path, text))
    assert [cell.config.agents["player_0"].behaviour for cell in study.cells.values()] == [
        "first_legal",
        "silent",
    ]


def test_a_seat_in_short_form_takes_single_keys_from_the_command_line(tmp_path: Path) -> None:
    """What is short for a seat is spelled out before a key of it is set."""
    text = "scenario: {id: dilemma}\nagents: {player_0: random_legal, player_1: random_legal}\n"
    typed = [
        "agents.player_0.behaviour=silent",
        "agents.player_1=human",
        "agents.player_1.behaviour=react",
    ]
    seats = load(written(tmp_path, text), typed).config.agents
    assert seats["player_0"].behaviour == "silent" and (
        seats["player_1"].behaviour,
        seats["player_1"].policy,
    ) == ("react", "player_1")


def test_a_grid_that_explodes_is_refused_before_a_cell_is_made(tmp_path: Path) -> None:
    axes = "".join(f"  run.x{n}: [{', '.join(map(str, range(30)))}]\n" for n in range(4))
    (line,) = refused(tmp_path, f"scenario: {{id: dilemma}}\ngrid:\n{axes}")
    assert "810000 cells; a study has at most 500" in line


def test_a_config_that_is_no_study_says_how_to_play_it(tmp_path: Path) -> None:
    assert (
        "play it with: gem-ma run"
        in refused(
            tmp_path,
            "scenario: {id: dilemma, tasks: 3}\nagents: {player_0: silent, player_1: silent}\n",
        )[0]
    )


@pytest.mark.parametrize("command", ["run", "train"])
def test_a_study_is_not_played_as_one_run(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(written(tmp_path, STUDY))]) == 2
    assert "gem-ma study" in capsys.readouterr().err


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["silent", "kind", "grid", "${env:X}"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
_PLACES = (
    "study study.repeats study.design study.paired_by study.reference study.reference.player_0 grid"
    " grid.agents/player_0 grid.agents/player_1/options grid.scenario/rounds grid.run grid./"
    " cross_play cross_play.population cross_play.population.player_0 report report.tests"
    " report.measures extends"
)


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(key=st.sampled_from(_PLACES.split()), value=_VALUES)
def test_a_mutated_study_is_read_or_refused_by_line_never_anything_else(
    tmp_path: Path, key: str, value: object
) -> None:
    tree = yaml.safe_load(STUDY)
    *way, last = (part.replace("/", ".") for part in key.split("."))
    target = tree
    for part in way:
        target = target.setdefault(part, {})
    target[last] = value
    path = tmp_path / "who.yaml"
    path.write_bytes(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))
    for loader in (load_study, load):
        try:
            loader(path)
        except GemMaError as error:
            assert all(line.startswith(str(path)) for line in str(error).split("\n")), str(error)


# -- the comparison ------------------------------------------------------------------------------


def cell(values: dict[str, dict[tuple[str, int, int], float]], world: str = "") -> Cell:
    first, *_ = values.values()
    score = {
        "mean": sum(first.values()) / len(first),
        "low": 0.0,
        "high": 1.0,
        "n": len(first),
        "method": "by hand",
    }
    summary = {
        "episodes": 0,
        "ok": 0,
        "failed": 0,
        "excluded": 0,
        "tasks": 0,
        "turns": None,
        "pass_hat_k": [],
        "success": score,
        "returns": {},
    }
    return Cell({**summary, "measures": {}}, values, world)


def drawn(
    rate: float, seed: int, tasks: int = 12, repeats: int = 2
) -> dict[tuple[str, int, int], float]:
    rng = random.Random(seed)
    return {
        (f"test/{task}", 10 + task, repeat): float(rng.random() < rate)
        for task in range(tasks)
        for repeat in range(repeats)
    }


def test_differences_are_taken_within_task_and_seed_and_adjusted_over_all_cells() -> None:
    values = {("a",): drawn(0.9, 1), ("b",): drawn(0.5, 2), ("c",): drawn(0.1, 3)}
    summary = study_summary(
        {"x": ("a", "b", "c")},
        {names: cell({"success": one}) for names, one in values.items()},
        ("a",),
    )
    by_hand = []
    for name in ("b", "c"):
        keys = sorted({(task, seed) for task, seed, _ in values[name,]})
        means = [
            [sum(v for (t, s, _), v in values[one,].items() if (t, s) == key) / 2 for key in keys]
            for one in ("a", name)
        ]
        by_hand.append(paired(*means, [task for task, _ in keys], rate=True))
    rows = summary["comparisons"]["success"]
    assert [(row["difference"], row["low"], row["high"], row["p"]) for row in rows] == [
        (b.difference, b.low, b.high, b.p) for b in by_hand
    ]
    smaller, larger = sorted(row["p"] for row in rows)
    assert sorted(row["p_adjusted"] for row in rows) == pytest.approx(
        sorted([min(1, 2 * smaller), max(min(1, 2 * smaller), larger)])
    )
    assert [row["pairs"] for row in rows] == [12, 12]


def test_what_one_cell_lacks_is_left_out_of_the_pairs_and_counted() -> None:
    whole, part = drawn(0.5, 1), drawn(0.5, 2)
    for key in [key for key in part if key[0] == "test/3"]:
        del part[key]
    summary = study_summary(
        {"x": ("a", "b")},
        {("a",): cell({"success": whole}), ("b",): cell({"success": part})},
        ("a",),
    )
    (row,) = summary["comparisons"]["success"]
    assert (row["pairs"], row["unpaired"], row["tasks"]) == (11, 1, 11)


def test_cells_without_a_shared_play_have_no_difference_and_other_tasks_are_told() -> None:
    other = {(f"dev/{n}", 1, 0): 1.0 for n in range(5)}
    cells = {
        ("a",): cell({"success": drawn(0.5, 1)}, "one world"),
        ("b",): cell({"success": other}, "another"),
    }
    summary = study_summary({"x": ("a", "b")}, cells, ("a",))
    (row,) = summary["comparisons"]["success"]
    assert row["difference"] is None and row["p_adjusted"] is None and not row["same_tasks"]
    assert summary["margins"]["success"] == {} and summary["interactions"]["success"] == []


def test_seeds_are_the_units_where_a_study_has_one_task() -> None:
    values = {
        name: {("test/0", seed, 0): float(seed % 2 if name == "a" else 1) for seed in range(30)}
        for name in ("a", "b")
    }
    summary = study_summary(
        {"x": ("a", "b")}, {(name,): cell({"success": one}) for name, one in values.items()}, ("a",)
    )
    (row,) = summary["comparisons"]["success"]
    assert (row["difference"], row["tasks"]) == (0.5, 30)


def test_an_interaction_is_what_row_and_column_do_not_explain() -> None:
    means = {("a", "x"): 0.9, ("a", "y"): 0.5, ("b", "x"): 0.3, ("b", "y"): 0.3}
    tasks = range(40)
    cells = {
        names: cell({"m": {(f"t/{task}", 0, 0): mean + (task % 5) / 100 for task in tasks}})
        for names, mean in means.items()
    }
    summary = study_summary({"r": ("a", "b"), "c": ("x", "y")}, cells, ("a", "x"))
    (one,) = summary["interactions"]["m"]
    effects = {tuple(entry["names"].values()): entry["effect"] for entry in one["cells"]}
    grand = sum(means.values()) / 4
    for (row, column), mean in means.items():
        rows = sum(means[row, other] for other in "xy") / 2
        columns = sum(means[other, column] for other in "ab") / 2
        assert effects[row, column] == pytest.approx(mean - rows - columns + grand)
    assert summary["margins"]["m"]["r"]["a"]["mean"] == pytest.approx(0.7 + 0.02)
    assert one["units"] == 40


def test_additive_cells_have_no_interaction_at_all() -> None:
    means = {
        names: 0.1 + 0.2 * i + 0.3 * j
        for names, (i, j) in zip(
            itertools.product("ab", "xy"), itertools.product((0, 1), (0, 1)), strict=True
        )
    }
    cells = {
        names: cell({"m": {(f"t/{task}", 0, 0): mean for task in range(30)}})
        for names, mean in means.items()
    }
    (one,) = study_summary({"r": ("a", "b"), "c": ("x", "y")}, cells, ("a", "x"))["interactions"][
        "m"
    ]
    assert [entry["effect"] for entry in one["cells"]] == [0.0, 0.0, 0.0, 0.0]


def test_a_null_study_is_seldom_significant_after_adjustment() -> None:
    found = 0
    for seed in range(20):
        cells = {
            (str(n),): cell({"success": drawn(0.5, 100 * seed + n, tasks=25, repeats=1)})
            for n in range(5)
        }
        summary = study_summary({"x": tuple("01234")}, cells, ("0",), resamples=1000)
        found += any(row["p_adjusted"] < 0.05 for row in summary["comparisons"]["success"])
    assert found <= 4  # 1 of 20 is expected; 4 have a chance below 2 %


def test_scores_of_a_cell_are_success_returns_and_measures_of_the_scored_episodes() -> None:
    def episode(task: int, end: End = End.TERMINATED) -> Episode:
        turn = Turn(0, "a", (), None, (), Action("x"))
        return recorded(
            {"a": Seat("silent")},
            (turn,),
            (Entry(0, "a", float(task)),),
            seed=5,
            task=f"test/{task}",
            end=end,
        )

    judge = Judge(
        lambda one: one.returns()["a"] > 0,
        lambda one: {"odd": None if one.task == "test/0" else 1.0},
    )
    found = cell_of(
        [*map(judge.rows().of, (episode(0), episode(1), episode(2, End.FAILED)))], judge
    )
    assert found.values["success"] == {("test/0", 5, 0): 0.0, ("test/1", 5, 0): 1.0}
    assert found.values["return a"] == {("test/0", 5, 0): 0.0, ("test/1", 5, 0): 1.0}
    assert found.values["odd"] == {("test/1", 5, 0): 1.0}
    assert found.summary["failed"] == 1
    lean = cell_of([*map(judge.rows().of, (episode(0), episode(1)))], judge, measures=())
    assert (
        lean.values["odd"] == {}
        and lean.values["success"] == found.values["success"]
        and lean.summary["measures"]["odd"]["n"] == 1
    )


def test_a_measure_that_no_cell_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="no cell has a score called 'speed'; there are success"):
        study_summary(
            {"x": ("a",)}, {("a",): cell({"success": drawn(0.5, 1)})}, ("a",), measures=["speed"]
        )


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slowly.py").write_text(SLOWLY)
    written(tmp_path, STUDY)
    return tmp_path


def episodes_below(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("*/episodes.jsonl"))}


def test_a_study_plays_its_cells_once_and_prints_intervals_and_differences(folder: Path) -> None:
    first = gem_ma("study", "who.yaml", "--out", "out", cwd=folder)
    assert first.returncode == 0, first.stderr
    assert (
        "return player_0, against first_legal x kind" in first.stdout
        and re.search(r" p +p \(Holm\)\n", first.stdout)
        and "reference" in first.stdout
    )
    played = episodes_below(folder / "out")
    assert len(played) == 4 and all(one.count(b"\n") == 24 for one in played.values())
    assert {path.name for path in (folder / "out").iterdir() if path.is_file()} == {
        "config.yaml",
        "study.json",
        "report.html",
        ".lock",
    }
    again = gem_ma(
        "study", "who.yaml", "--out", "out", "--measure", "return player_1", "--json", cwd=folder
    )
    assert episodes_below(folder / "out") == played
    found = json.loads(again.stdout)
    assert found["compared"] == ["return player_0", "return player_1"] and len(found["cells"]) == 4
    assert found == {
        "study": "out",
        "report": "out/report.html",
        **json.loads((folder / "out" / "study.json").read_text()),
    }
    whole = {
        tuple(one["names"].values()): one["scores"]["return player_0"]["mean"]
        for one in found["cells"]
    }
    assert whole["first_legal", "kind"] == 9.0  # three rounds of mutual cooperation at 3 each


def test_the_returns_of_who_is_studied_come_first(tmp_path: Path) -> None:
    axis = "  agents.player_1: [first_legal, random_legal]\n"
    text = f"scenario: {{id: dilemma}}\nagents: {{player_0: random_legal}}\ngrid:\n{axis}"
    written(tmp_path, text)
    done = gem_ma("study", "who.yaml", "-n", "6", "--out", "out", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["compared"] == ["return player_1"] and found["scores"][:4] == [
        "return player_1",
        "return player_0",
        "welfare",
        "equality",
    ]
    fewer = json.loads(
        gem_ma("study", "who.yaml", "-n", "2", "--out", "out", "--json", cwd=tmp_path).stdout
    )
    assert (
        fewer["planned"] == sum(cell["episodes"] for cell in fewer["cells"]) == 12
    )  # what an earlier command played is counted too
    more = ("study", "who.yaml", "-n", "2", "--measure", "welfare", "--out", "out")
    found = json.loads(gem_ma(*more, "--json", cwd=tmp_path).stdout)
    assert found["command"] == " ".join(("gem-ma", *more))


def test_a_cell_is_an_ordinary_run_folder(folder: Path) -> None:
    gem_ma("study", "who.yaml", "--out", "out", "-n", "3", cwd=folder)
    (run,) = (folder / "out").glob("random_legal-x-kind-*")
    assert {
        "config.yaml",
        "resolved.yaml",
        "manifest.json",
        "episodes.jsonl",
        "summary.json",
        "report.html",
    } <= {one.name for one in run.iterdir()}
    assert "6 ok / 0 failed" in gem_ma("show", run, cwd=folder).stdout
    alone = gem_ma("run", run / "resolved.yaml", "--out", "alone", cwd=folder)
    assert alone.returncode == 0
    assert sorted((folder / "alone" / "episodes.jsonl").read_bytes().splitlines()) == sorted(
        (run / "episodes.jsonl").read_bytes().splitlines()
    )


def test_a_grid_that_grows_plays_the_new_cells_only(folder: Path) -> None:
    gem_ma("study", "who.yaml", cwd=folder)
    (out,) = (folder / "runs").iterdir()
    before = episodes_below(out)
    written(
        folder, STUDY.replace("[first_legal, random_legal]", "[first_legal, random_legal, silent]")
    )
    assert gem_ma("study", "who.yaml", cwd=folder).returncode == 0
    assert [path.name for path in (folder / "runs").iterdir()] == [out.name]
    after = episodes_below(out)
    assert len(after) == 6 and {name: after[name] for name in before} == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_or_killed_study_resumes_to_the_same_result(
    folder: Path, number: int, code: int
) -> None:
    slow = "kind: {behaviour: slowly:Slow, options: {seconds: 0.02}}"
    written(folder, STUDY.replace("kind: first_legal", slow).replace("tasks: 12", "tasks: 6"))
    started = ("study", "who.yaml", "--out", "out", "-j", "1")
    got, _, _, err = signalled(
        *started, cwd=folder, number=number, ready=folder / "out" / "config.yaml"
    )
    assert got == code and (
        code < 0 or err.endswith("resume with: gem-ma study who.yaml --out out\n")
    ), err
    assert not (folder / "out" / "study.json").exists()
    assert gem_ma(*started, cwd=folder).returncode == 0
    assert gem_ma("study", "who.yaml", "--out", "whole", cwd=folder).returncode == 0
    first, second = (
        json.loads((folder / name / "study.json").read_text()) for name in ("out", "whole")
    )
    assert first["comparisons"] == second["comparisons"] and first["cells"] == second["cells"]


def test_a_study_of_seats_says_who_is_good_in_its_population(folder: Path) -> None:
    text = """\
scenario: {id: kuhn_poker, tasks: 30}
cross_play:
  population:
    player_0: [random_legal, noisy_kuhn]
    player_1: [noisy_kuhn, random_legal]
"""
    written(folder, text)
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "out" / "study.json").read_text())
    found = summary["population"]
    assert found["players"][0]["name"] == "noisy_kuhn" and found["units"] == 30
    page = (folder / "out" / "report.html").read_text()
    for text in (done.stdout, page):
        assert "Nash weight" in text and "rating (points)" in text
        assert "player_0 is paid" in text
    older = {key: value for key, value in summary.items() if key != "population"}
    kept = write_study(folder / "out", older, tables=[], plots=[]).read_text()
    assert "Nash weight" not in kept


def test_a_population_and_two_returns_are_told_of_agents_with_dots() -> None:
    axes = {'agents."Ann B."': ("x", "y"), 'agents."b=c"': ("x", "y")}
    paid = {names: float(names == ("y", "x")) for names in itertools.product(*axes.values())}
    cells = {
        names: cell({"return Ann B.": {("t/0", 0, 0): one}, "return b=c": {("t/0", 0, 0): 0.5}})
        for names, one in paid.items()
    }
    summary = study_summary(axes, cells, ("x", "x"), resamples=10)
    assert [row["name"] for row in summary["population"]["players"]] == ["y", "x"]
    assert summary["population"]["seats"]["agents"] == ["Ann B.", "b=c"]
    assert summary["compared"] == ["return Ann B."]
    for one in summary["cells"]:
        one["scores"] = {"return Ann B.": {"mean": 1.0}, "return b=c": {"mean": 0.5}}
    assert two_returns(summary) == ("return Ann B.", "return b=c")


def test_pass_hat_k_is_a_score_of_a_study_where_every_task_has_the_tries(folder: Path) -> None:
    text = """\
study: {repeats: 4}
scenario: {id: retail, data: own, split: test, tasks: 6}
grid: {agents.assistant: [retail_scripted, retail_wrong_item]}
agents: {user: retail_user}
"""
    written(folder, text)
    asked = ("study", "who.yaml", "--out", "out", "--measure")
    done = gem_ma(*asked, "pass^3", "--measure", "pass^1", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "out" / "study.json").read_text())
    means = {}
    for one in found["cells"]:
        summary = json.loads((folder / "out" / one["run"] / "summary.json").read_text())
        assert one["scores"]["pass^3"]["mean"] == summary["pass_hat_k"][2]
        means[one["names"]["agents.assistant"]] = summary["pass_hat_k"]
    assert 0 < means["retail_wrong_item"][0] < 1
    for score, k in (("pass^1", 0), ("pass^3", 2)):
        assert score in found["rates"]
        for row in found["comparisons"][score]:
            mine = means[row["names"]["agents.assistant"]][k]
            assert row["difference"] == pytest.approx(mine - means["retail_scripted"][k])
            assert row["tasks"] == 6
    refused = gem_ma(*asked, "pass^5", cwd=folder)
    assert refused.returncode == 2 and "set study.repeats=5 or more" in refused.stderr
    assert "no cell will have" in gem_ma(*asked, "pass^0", cwd=folder).stderr


def test_a_measure_that_applies_to_some_plays_alone_may_be_compared(folder: Path) -> None:
    rules = "{id: market, tasks: 2, buyers: 1, sellers: 1, rounds: 1}"
    world = f'scenario: {rules}\nagents: {{"*": random_legal}}\nrun: {{baselines: false}}\n'
    written(folder, f"{world}grid: {{run.seed: [1, 2]}}\n")
    opened = open_cells(load_study(folder / "who.yaml"))
    check_measures(["price"], opened)  # of silent buyers and sellers there is none
    with pytest.raises(ConfigError, match="did you mean 'price'"):
        check_measures(["prise"], opened)
    # of plays in which nobody trades it is a score without a number, and the others are told
    asked = ("study", "who.yaml", "agents.*=silent", "--out", "out", "--measure", "price")
    done = gem_ma(*asked, cwd=folder)
    assert done.returncode == 0 and "price, against 1" in done.stdout, done.stderr
    found = json.loads((folder / "out" / "study.json").read_text())
    assert [cell["scores"]["price"] for cell in found["cells"]] == [None, None]


def test_a_task_that_lost_a_try_leaves_its_cell_without_a_number() -> None:
    rows = [
        SimpleNamespace(id=(task, 5, n), task=task, success=n > 0, is_scored=n > 0 or task == "a")
        for task in "ab"
        for n in range(3)
    ]
    assert _passed(rows, 3) == {}
    assert _passed(rows, 2) == {("a", 5, 0): pytest.approx(1 / 3), ("b", 5, 0): 1.0}
    # one task says nothing of others, as in the summary of a run
    assert _passed(rows[:3], 2) == {}
    curve = {"pass_hat_k_intervals": [{"mean": 2 / 3}, {"mean": 1 / 3}], "measures": {}}
    assert score_of(curve, "pass^2") == {"mean": 1 / 3} and score_of(curve, "pass^3") is None


def test_a_fresh_study_puts_the_old_cells_aside(folder: Path) -> None:
    gem_ma("study", "who.yaml", "--out", "out", "-n", "2", cwd=folder)
    assert (
        gem_ma("study", "who.yaml", "--out", "out", "-n", "2", "--fresh", cwd=folder).returncode
        == 0
    )
    names = [path.name for path in (folder / "out").iterdir() if path.is_dir()]
    assert len(names) == 8 and sum(name.endswith(".old-1") for name in names) == 4


def test_failed_episodes_of_a_cell_are_counted_and_cost_the_exit_code(folder: Path) -> None:
    written(folder, STUDY.replace("kind: first_legal", "kind: slowly:Raising"))
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 1 and "--retry-failed" in done.stderr
    found = json.loads((folder / "out" / "study.json").read_text())
    lost = {tuple(one["names"].values()): one["failed"] for one in found["cells"]}
    assert lost["first_legal", "kind"] > 0 and lost["first_legal", "random"] == 0
    assert f" {24 - lost['first_legal', 'kind']} / {lost['first_legal', 'kind']} / 0" in done.stdout


def test_a_cell_that_was_played_on_is_told_beside_the_numbers_of_then(folder: Path) -> None:
    written(folder, STUDY.replace("kind: first_legal", "kind: slowly:Raising"))
    study = ("study", "who.yaml", "--out", "out", "-n", "6", "--quiet")
    gem_ma(*study, cwd=folder)
    looks = ("export", "out", "--to", "csv", "-o", "out.csv"), ("report", "out")

    def told() -> list[bool]:
        site = Site(folder)
        pages = [gem_ma(*words, cwd=folder).stderr for words in looks]
        pages.append(study_page(site, Asked(["out"], {}, [])).body.decode())
        site.close()
        shutil.rmtree(folder / "copy", ignore_errors=True)
        shutil.copytree(folder / "out", folder / "copy")
        pages.append(gem_ma("report", "copy", cwd=folder).stderr)
        pages.append(gem_ma("view", ".", "--bundle", "../pages", cwd=folder).stderr)
        pages.append(gem_ma("list", "studies", "--root", ".", cwd=folder).stderr)
        return ["played on since the cells were compared" in page for page in pages]

    assert told() == [False] * 6
    found = json.loads((folder / "out" / "study.json").read_text())
    (cell, *_) = (one["run"] for one in found["cells"] if one["failed"])
    gem_ma("resume", f"out/{cell}", "--retry-failed", cwd=folder, REPAIRED="1")
    assert told() == [True] * 6
    assert cell in gem_ma(*looks[1], cwd=folder).stderr
    # compared anew, without a play
    gem_ma(*study, cwd=folder)
    assert told() == [False] * 6


def test_two_studies_do_not_write_into_one_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        hold_folder(folder / "out"),
        pytest.raises(StoreError, match="in use by process"),
        hold_folder(folder / "out"),
    ):
        pass
    with hold_folder(folder / "out"):
        done = gem_ma("study", "who.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 1 and "in use by process" in done.stderr


def test_a_study_and_a_run_do_not_write_into_one_folder(folder: Path) -> None:
    def files() -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    def typed(command: str, *words: str, out: str) -> tuple[int, str]:
        done = gem_ma(command, *words, "-n", "2", "--out", out, "--quiet", cwd=folder)
        return done.returncode, done.stderr

    assert typed("run", "kuhn_poker", out="run")[0] == 0
    assert typed("study", "who.yaml", out="study")[0] == 0
    before = files()
    code, told = typed("study", "who.yaml", out="run")
    assert code == 2 and "run: the folder of a run" in told
    code, told = typed("run", "kuhn_poker", out="study")
    assert code == 2 and "study: the folder of a study" in told
    assert files() == before
    # each goes on in its own
    assert (
        typed("run", "kuhn_poker", out="run") == typed("study", "who.yaml", out="study") == (0, "")
    )


def test_a_learner_s_table_may_sit_in_several_cells(folder: Path) -> None:
    text = """\
scenario: {id: kuhn_poker, tasks: 6}
agents: {player_0: {policy: main}, player_1: {behaviour: first_legal}}
policies: {main: {model: table/softmax}}
grid: {agents.player_1: [first_legal, random_legal]}
"""
    written(folder, text)
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(episodes_below(folder / "out")) == 2


def test_the_folder_of_a_study_is_no_run_and_says_so(folder: Path) -> None:
    gem_ma("study", "who.yaml", "--out", "out", "-n", "2", cwd=folder)
    done = gem_ma("resume", "out", cwd=folder)
    assert done.returncode == 2 and "type its `gem-ma study` command again" in done.stderr


def test_a_model_is_opened_once_and_kept_while_a_later_cell_needs_it(tmp_path: Path) -> None:
    text = """\
scenario: {id: kuhn_poker, tasks: 2}
agents: {player_0: {policy: a, memory: {window: 1, summary: c}}, player_1: {policy: b}}
policies: {c: {model: scripted/echo}}
grid:
  policies.a: {one: {model: table/softmax}, two: {model: table/softmax, temperature: 0.5}}
  policies.b: {x: {model: table/softmax}, y: {model: table/softmax, temperature: 0.1}}
"""
    study = load_study(written(tmp_path, text))
    policies = Policies(list(study.cells.values()))
    seen = [policies.of(cell) for cell in open_cells(study).values()]
    assert (
        seen[0]["a"] is seen[1]["a"]
        and seen[0]["b"] is seen[2]["b"]
        and seen[1]["b"] is seen[3]["b"]
    )
    assert all(one["c"] is seen[0]["c"] for one in seen)
    # what no later cell needs is gone
    assert seen[0]["a"] is not seen[2]["a"] and len(policies.open) == 3


@pytest.mark.long
def test_check_looks_at_every_cell_and_plays_none(folder: Path) -> None:
    done = gem_ma("check", "who.yaml", cwd=folder)
    assert done.returncode == 0 and "4 cells, 96 episodes" in done.stdout
    written(folder, STUDY.replace("{behaviour: random_legal}", "{behaviour: random_leagl}"))
    wrong = gem_ma("check", "who.yaml", cwd=folder)
    assert wrong.returncode == 2 and wrong.stderr.startswith(
        "who.yaml:7: agents.player_1.behaviour: no behaviour is called 'random_leagl'"
    )
    assert not (folder / "runs").exists()


# -- the page ------------------------------------------------------------------------------------


def summary_of(
    names: tuple[str, ...] = ("a", "b"), others: tuple[str, ...] = ("x", "y")
) -> dict[str, Any]:
    cells = {
        pair: cell(
            {"success": drawn(0.3 + 0.4 * (pair[0] == names[0]), n)}
            | {f"return {agent}": drawn(0.5, n + 9) for agent in ("one", "two")}
        )
        for n, pair in enumerate(itertools.product(names, others))
    }
    made = study_summary(
        {"agents.one": names, "agents.two": others}, cells, (names[0], others[0]), resamples=200
    )
    return {"schema": 1, "name": "test", "command": "gem-ma study test.yaml", "planned": 0, **made}


def test_the_page_has_a_heatmap_an_interaction_and_their_numbers(tmp_path: Path) -> None:
    page = write_study(
        tmp_path, summary_of(), tables=["paired_diff"], plots=["heatmap", "interaction"]
    ).read_text()
    assert (
        page.count('<svg class="heatmap"') >= 1
        and "What a cell has beyond its row and its column" in page
    )
    assert "gem-ma study test.yaml" in page and "every cell against a x x" in page
    assert (
        '<svg class="heatmap"'
        not in write_study(tmp_path, summary_of(), tables=[], plots=[]).read_text()
    )


def test_a_mean_over_axes_says_on_which_tasks_and_axes_of_one_name_are_told_apart(
    tmp_path: Path,
) -> None:
    axes = {"scenario.seed": ("1", "2"), "run.seed": ("3", "4"), "agents.one": ("a", "b")}
    whole = drawn(0.5, 1)
    part = {key: value for key, value in whole.items() if key[0] != "test/3"}
    listed = [*itertools.product(*axes.values())]
    cells = {at: cell({"success": part if at == listed[-1] else whole}) for at in listed}
    made = study_summary(axes, cells, listed[0], resamples=100)
    made |= {"schema": 1, "name": "test", "command": "gem-ma study test.yaml", "planned": 0}
    page = write_study(tmp_path, made, tables=["paired_diff"], plots=["heatmap", "interaction"])
    units = {id_[0] for id_ in part}
    title = f"mean over the other axes, on {len(units)} tasks (or seeds) that all cells played"
    words = page.read_text()
    assert f"success: scenario.seed (rows) x run.seed (columns), {title}" in words
    assert f"success: run.seed (rows) x one (columns), {title}" in words
    # the mean of a cell is of what it has itself
    ours = sum(whole.values()) / len(whole)
    assert f"{ours:.3f} [" in words


def test_the_page_says_which_interval_and_which_p_are_adjusted(tmp_path: Path) -> None:
    """An interval that leaves 0 out beside a p of .47 used to stand without a word on why both
    are right."""
    made = summary_of()
    rows = made["comparisons"]["success"]
    for row in rows:
        assert (
            row["low_adjusted"] <= row["low"]
            and row["high"] <= row["high_adjusted"]
            and row["p"] <= row["p_adjusted"]
        )
    page = write_study(tmp_path, made, tables=["paired_diff"], plots=[]).read_text()
    heads = re.findall(r'<th scope="col">([^<]*)', page)
    for head in (
        "difference [95 %]",
        "p",
        "adjusted p",
        "adjusted interval",
    ):
        assert head in heads
    assert "right for all 3 comparisons at once" in page
    for row in rows:
        assert (
            f"[{row['low_adjusted']:+.3f}, {row['high_adjusted']:+.3f}]" in page
            and f">{row['p']:.4f}<" in page
        )
    plain = {**made, "correct": "none"}
    assert (
        "Bonferroni"
        not in write_study(tmp_path, plain, tables=["paired_diff"], plots=[]).read_text()
    )
    for row in rows:  # a study of an older version has none
        del row["low_adjusted"], row["high_adjusted"]
    assert "n/a" in write_study(tmp_path, made, tables=["paired_diff"], plots=[]).read_text()


@pytest.mark.parametrize(
    ("kinds", "rate", "better"),
    [(Kinds(), False, ""), (Kinds(("faults",), (), ("faults",)), True, "less")],
)
def test_a_study_shades_and_bounds_a_measure_as_its_scenario_declares_it(
    tmp_path: Path, kinds: Kinds, rate: bool, better: str
) -> None:
    names = list(itertools.product("ab", "xy"))
    ones = {(f"t/{n}", 0, 0): 1.0 for n in range(30)}
    cells = {pair: replace(cell({"faults": dict(ones)}), kinds=kinds) for pair in names}
    for one in cells.values():
        one.summary["measures"]["faults"] = {
            "mean": 1.0,
            "low": 1.0,
            "high": 1.0,
            "n": 30,
            "method": "by hand",
        }  # type: ignore[index]
    made = study_summary(
        {"agents.one": ("a", "b"), "agents.two": ("x", "y")}, cells, ("a", "x"), resamples=200
    )
    assert ("faults" in made["rates"]) is rate and made["better"].get("faults", "") == better
    margin = made["margins"]["faults"]["agents.one"]["a"]
    # thirty payoffs of 1 are no rate, unless that is said
    assert margin["rate"] is rate and (margin["low"] < 1.0) is rate
    page = write_study(
        tmp_path, {"name": "t", "command": "c", **made}, tables=[], plots=["heatmap"]
    ).read_text()
    assert ('class="heat neutral"' in page) is not rate and (
        "darker is less, which is better" in page
    ) is rate


def test_names_of_cells_cannot_write_markup(tmp_path: Path) -> None:
    hostile = ('<img src=x onerror="alert(1)">', "</script><script>alert(2)</script>")
    page = write_study(
        tmp_path,
        summary_of(hostile, hostile[::-1]),
        tables=["paired_diff"],
        plots=["heatmap", "interaction"],
    ).read_text()
    assert (
        "<img" not in page
        and "alert(2)</script>" not in page.replace("&lt;", "").split("<script", 1)[0]
    )
