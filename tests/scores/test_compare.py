"""Two runs compared, and one scored anew: what was planted is found, nothing else is, no model is
called."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma import registry
from gem_ma.cli.main import main
from gem_ma.cli.study_tables import show_study
from gem_ma.kernel.episode import Seat
from gem_ma.scores.comparison import bounds_text, compare_cells, verdict_of
from gem_ma.scores.groups import ONE_PLAY, Kinds
from gem_ma.scores.judge import Judge
from gem_ma.scores.sides import not_told
from gem_ma.scores.studies import Cell, difference_text, study_summary
from tests.hostile import one_line
from tests.plays import recorded

TASKS = 40
FACTS: dict[str, Any] = {
    **dict.fromkeys(("episodes", "ok", "failed", "excluded", "tasks"), 0),
    **dict.fromkeys(("turns", "pass_hat_k", "success")),
    "returns": {},
    "measures": {},
}
NOISE = [f"measure {number}" for number in range(10)]
GAME = """
from gem_ma import Ask, Reward, Scenario

class Game(Scenario):
    agents = ("a",)

    def tasks(self, split):
        return tuple(range(6))

    def play(self, rng, task):
        said = yield Ask({"a": f"task {task}"}, legal=("x", "y"))
        yield Reward({"a": float(said["a"].parsed == "x")})

    def success(self, episode):
        return episode.returns()["a"] WIN

    def measures(self, episode):
        return {"turns taken": 1.0}
"""


def cell(values: dict[str, list[float]], tries: int = 1) -> Cell:
    ids = [
        (f"test/{task}", 1000 + task, repeat) for task in range(TASKS) for repeat in range(tries)
    ]
    return Cell({}, {name: dict(zip(ids, row, strict=False)) for name, row in values.items()})


def test_two_plays_that_are_copied_are_not_tested() -> None:
    """Thirty copies of one game gave p = .0001."""
    rows = {name: [value] * TASKS for name, value in (("success", 0.0), ("return a", -30.0))}
    more = {name: [value] * TASKS for name, value in (("success", 1.0), ("return a", 25.0))}
    first, second = (replace(cell(one), one_play=True) for one in (rows, more))
    found = compare_cells(first, second)
    for name, difference in (("success", 1.0), ("return a", 55.0)):
        row = found["scores"][name]
        assert (row["difference"], row["p"], row["p_adjusted"], row["tasks"]) == (
            difference,
            None,
            None,
            1,
        )
        assert bounds_text(row) == f"({ONE_PLAY})"
    assert found["differs"] == [] and ONE_PLAY in verdict_of(found)
    summary = study_summary(
        {"x": ("a", "b"), "y": ("c",)},
        {("a", "c"): replace(first, summary=FACTS), ("b", "c"): replace(second, summary=FACTS)},
        ("a", "c"),
    )
    (row,) = summary["comparisons"]["success"]
    assert row["p"] is None and difference_text(row) == f"+1.000 ({ONE_PLAY})"
    assert summary["margins"]["success"]["x"]["b"]["method"] == ONE_PLAY
    assert summary["interactions"]["success"][0]["cells"][0]["low"] is None
    # one of them alone is a constant that the other, drawn anew, is compared with
    drawn = compare_cells(first, cell(more))["scores"]["success"]
    assert drawn["p"] is not None and drawn["low"] is not None


def test_a_cell_without_a_play_is_why_nothing_is_told_of_rows_and_players(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paid = {f"return {agent}": [1.0, 2.0] * 20 for agent in "ab"}
    some, none = (replace(one, summary=FACTS) for one in (cell(paid), cell({})))
    some = replace(some, summary={**FACTS, "ok": 40})
    axes = {"agents.a": ("x", "y"), "agents.b": ("x", "y")}
    cells = {(a, b): none if (a, b) == ("y", "x") else some for a in "xy" for b in "xy"}
    summary = study_summary(axes, cells, ("x", "x"))
    show_study(summary, Path("s"), False)
    assert "no task has a score in every cell (none in y x x), so" in capsys.readouterr().out
    whole = study_summary(axes, {**cells, ("y", "x"): some}, ("x", "x"))
    assert summary["population"] is None and whole["population"] and not not_told(whole)


def test_the_seat_that_varies_is_compared_in_its_world_of_several() -> None:
    """It was the first return there is, of whoever plays in the first world."""
    paid = {f"return {name}": [1.0] * TASKS for name in ("one a", "one b", "two c")}
    kinds = Kinds(worlds={"one": Kinds(), "two": Kinds()})
    some = replace(cell(paid), summary=FACTS, kinds=kinds)
    for axis in ("agents.c", "scenarios.two.agents.c"):
        summary = study_summary({axis: ("x", "y")}, {("x",): some, ("y",): some}, ("x",))
        assert summary["compared"] == ["return two c"]


def of_two_worlds(won: float) -> Cell:
    """Thirty seeds of the one task of each of two worlds; half of a's are won at least."""
    ids = [(f"{world}/test/0", seed, 0) for world in "ab" for seed in range(30)]
    success = {id_: float(id_[1] % 2 or id_[1] < won) for id_ in ids}
    own = {id_: one for id_, one in success.items() if id_[0] == "a/test/0"}
    kinds = Judge.among({"a": Judge(kinds=Kinds(("told",), ("told",))), "b": Judge()}).kinds
    return Cell(FACTS, {"success": success, "success a": own, "a told": own}, kinds=kinds)


def test_seeds_of_worlds_with_one_task_each_are_what_is_compared() -> None:
    """Two tasks were told of, and p of sixty plays was .5."""
    first, second = of_two_worlds(0), of_two_worlds(24)
    row = compare_cells(first, second)["scores"]["success"]
    assert row["tasks"] == 60 and row["p"] < 0.001
    assert row["difference"] == pytest.approx(row["b"] - row["a"]) == pytest.approx(0.4)
    cells = {("x", "z"): first, ("y", "z"): second}
    summary = study_summary({"one": ("x", "y"), "other": ("z",)}, cells, ("x", "z"))
    assert summary["margins"]["success"]["one"]["y"]["n"] == 60


def test_a_world_of_several_declares_its_scores_as_it_does_alone() -> None:
    first = of_two_worlds(0)
    scores = compare_cells(first, first)["scores"]
    assert scores["a told"]["better"] == "more" and scores["success a"]["better"] == "more"
    # a rate that is equal in all plays may still differ
    assert all(scores[name]["low"] < 0 < scores[name]["high"] for name in scores)
    bad = Judge(lambda _: False, lambda _: {"told": 0.0}, kinds=Kinds(more=("told",)))
    summary = Judge.among({"a": bad}).summarise([recorded({"x": Seat()}, world="a")])
    assert summary["lost"]["episodes"][0]["measures"] == {"told": 0.0}


def test_copies_in_one_world_of_several_are_not_tested() -> None:
    """Thirty copies of one play of a gave p = .0001, beside b, whose plays differ."""
    copied = frozenset("a")
    first, second = (replace(of_two_worlds(won), copied=copied) for won in (0, 30))
    found = compare_cells(first, second)
    assert found["scores"]["success a"]["method"] == ONE_PLAY
    assert found["scores"]["success"]["p"] < 0.001 and found["differs"] == ["success"]
    assert verdict_of(found) == "B differs from A in success +0.500 (1 score tested)"
    cells = {("x",): first, ("y",): second}
    (row,) = study_summary({"one": ("x", "y")}, cells, ("x",), measures=["success a"])[
        "comparisons"
    ]["success a"]
    assert row["p"] is None and row["method"] == ONE_PLAY


def noise(rng: random.Random) -> dict[str, list[float]]:
    return {name: [rng.gauss(0, 1) for _ in range(TASKS)] for name in NOISE}


def test_the_planted_difference_is_found_and_no_other() -> None:
    rng = random.Random(3)
    won = [float(rng.random() < 0.6) for _ in range(TASKS)]
    planted = [*[1.0] * 20, *won[20:]]
    before = cell({**noise(rng), "success": won, "return a": won})
    after = cell({**noise(rng), "success": planted, "return a": won})
    result = compare_cells(before, after, resamples=2000)
    flipped = {f"test/{task}" for task in range(20) if not won[task]}
    assert result["differs"] == ["success"] and result["equal"] == ["return a"]
    assert {flip["task"] for flip in result["flips"]} == flipped
    assert result["flipped"] == {"to_lost": 0, "to_won": len(flipped)}
    row = result["scores"]["success"]
    assert row["difference"] == pytest.approx(len(flipped) / TASKS) and row["low"] > 0
    assert verdict_of(result).startswith("B differs from A in success +")


def test_intervals_of_success_stay_where_a_difference_can_lie_and_those_of_returns_do_not() -> None:
    zeros, ones = [0.0] * TASKS, [1.0] * (TASKS - 1) + [0.0]
    few = {"success": zeros[-3:], "return a": zeros[-3:]}
    before, after = cell(few), cell(dict.fromkeys(few, ones[-3:]))
    rows = compare_cells(before, after)["scores"]
    assert rows["success"]["high"] == rows["success"]["high_adjusted"] == 1.0
    assert rows["return a"]["high"] > 1 and rows["success"]["low"] >= -1 > rows["return a"]["low"]


@pytest.mark.long
def test_chance_is_called_a_difference_in_one_of_twenty_comparisons_at_most() -> None:
    rng = random.Random(0)
    false = sum(
        bool(compare_cells(cell(noise(rng)), cell(noise(rng)), resamples=400)["differs"])
        for _ in range(60)
    )
    # 3 are expected; 9 or more would come once in two hundred times
    assert false <= 8


def test_twelve_plays_that_turned_are_found_whatever_the_noise() -> None:
    others = 0
    for seed in range(8):
        rng = random.Random(seed)
        won = [0.0] * 12 + [float(rng.random() < 0.6) for _ in range(TASKS - 12)]
        planted = [1.0] * 12 + won[12:]
        before, after = (
            cell({**noise(rng), "success": won}),
            cell({**noise(rng), "success": planted}),
        )
        differs = compare_cells(before, after, resamples=400)["differs"]
        assert differs[:1] == ["success"]
        others += len(differs) > 1
    # measures are a family of their own: one of twenty is expected
    assert others <= 2


def test_returns_that_a_table_has_no_room_for_are_told() -> None:
    # one of ten agents plays otherwise, and it is one of those for which there is no room
    before = {f"return {name}": [0.0] * TASKS for name in "abcdefghij"}
    after = {**before, "return j": [1.0] * TASKS}
    result = compare_cells(cell(before), cell(after))
    assert result["left_out"] == ["return i", "return j"]
    assert verdict_of(result) == (
        "every score that is compared is the same in every play;"
        " 2 returns are not compared: gem-ma compare A B --score 'return i' compares one"
    )
    alone = compare_cells(cell(before), cell(after), ["return j"])
    assert alone["left_out"] == [] and verdict_of(alone).startswith("B differs from A in return j")


def test_only_plays_with_the_same_task_and_seed_are_compared() -> None:
    before, after = cell({"success": [1.0] * TASKS}), cell({"success": [0.0] * TASKS})
    others = {
        (task, seed + (seed > 1009), 0): value
        for (task, seed, _), value in after.values["success"].items()
    }
    result = compare_cells(before, Cell({}, {"success": others}))
    assert (result["pairs"], result["only_a"], result["only_b"]) == (10, 30, 30)
    assert len(result["flips"]) == 10 and result["scores"]["success"]["a"] == 1.0


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of a scenario that is a file, B with another player."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.py").write_text(GAME.replace("WIN", "> 0"))
    for name, player in (("a", "first_legal"), ("b", "random_legal")):
        typed = ["run", "game.py", f"agents.a={player}", "--out", f"runs/{name}", "--quiet"]
        assert main(typed) == 0
    return tmp_path / "runs"


def printed(capsys: pytest.CaptureFixture[str], *typed: str) -> Any:
    capsys.readouterr()
    assert main([*typed, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.long
def test_two_runs_are_compared_and_the_flips_can_be_opened(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = printed(capsys, "compare", "a", "b")
    lost = {
        row["task"] for row in json.loads((runs / "b/summary.json").read_text())["lost"]["episodes"]
    }
    assert {flip["task"] for flip in result["flips"]} == lost and lost
    assert result["settings"] == ['agents.a.behaviour (was "first_legal", now "random_legal")']
    assert main(["compare", "a", "b"]) == 0
    text = capsys.readouterr().out
    typed = text.split("one of them: gem-ma ")[1].splitlines()[0].split()
    assert main(typed) == 0 and "verdict      lost" in capsys.readouterr().out
    assert printed(capsys, "compare", "a", "a")["differs"] == []
    # what can be typed but is not a comparison
    assert main(["run", "game.py", "run.seed=9", "--out", "runs/c", "--quiet"]) == 0
    assert one_line(capsys, ["compare", "a", "c"]) == 2
    assert one_line(capsys, ["compare", "a", "b", "--score", "nonsense"]) == 2
    # both have the tasks and seeds that all have
    for name in ("kuhn_poker", "dilemma"):
        typed = ["agents.player_0=random_legal", "agents.player_1=first_legal", "-n", "2"]
        assert main(["run", name, *typed, "--out", f"runs/{name}", "--quiet"]) == 0
    assert one_line(capsys, ["compare", "kuhn_poker", "dilemma"]) == 2
    # the same game in another file
    (runs / "../moved.py").write_text((runs / "../game.py").read_text())
    assert main(["run", "moved.py", "agents.a=random_legal", "--out", "runs/e", "--quiet"]) == 0
    assert printed(capsys, "compare", "a", "e")["pairs"] == 6


SEVERAL = """
scenarios:
  d: {id: dilemma, tasks: 2}
  g: {id: guess_number, tasks: 2, agents: {player: random_legal}}
agents: {player_0: random_legal, player_1: random_legal}
run: {baselines: false}
"""


@pytest.mark.long
def test_more_tasks_and_other_seats_of_one_scenario_of_several_are_no_other_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.yaml").write_text(SEVERAL)
    seat = "scenarios.d.agents.player_1=first_legal"
    for name, *typed in (("a",), ("b", seat), ("a", "scenarios.d.tasks=3")):
        assert main(["run", "several.yaml", *typed, "--out", f"runs/{name}", "--quiet"]) == 0
    result = printed(capsys, "compare", "a", "b")
    assert result["same_tasks"] and result["pairs"] == 4 and result["only_a"] == 1
    # the run that went on with more tasks has them now
    more = next(line for line in result["settings"] if "tasks" in line)
    assert more == "scenarios.d.tasks (was 3, now 2)"
    # who plays is told by scenario, and may be named
    listed = {run["name"]: run["cast"] for run in printed(capsys, "list", "runs")}
    both = {"player_0": "random_legal", "player_1": "random_legal", "g player": "random_legal"}
    assert listed == {"a": both, "b": {**both, "d player_1": "first_legal"}}
    assert "d player_1: first_legal" in (tmp_path / "runs/b/report.html").read_text()
    typed = ["export", "b", "--to", "messages", "--agent", "player", "-o", "talk"]
    assert printed(capsys, *typed)["rows"] == 2


@pytest.mark.long
def test_another_number_of_agents_makes_other_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for count in ("3", "4"):
        typed = [f"scenario.agents={count}", "-n", "1", "--out", f"runs/{count}", "--quiet"]
        assert main(["run", "commons", *typed]) == 0
    assert not printed(capsys, "compare", "3", "4")["same_tasks"]


@pytest.mark.long
def test_a_run_of_failed_plays_is_not_said_to_have_other_tasks(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = GAME.replace("WIN", "> 0").replace("yield Reward", "raise OSError; yield Reward")
    (runs / "../broken.py").write_text(broken)
    assert main(["run", "broken.py", "agents.a=first_legal", "--out", "runs/f", "--quiet"]) == 1
    for typed, path in ((["a", "f"], "runs/f"), (["f", "a"], "runs/f")):
        capsys.readouterr()
        assert main(["compare", *typed]) == 2
        assert f"{path}: it has no play to compare: each failed" in capsys.readouterr().err


@pytest.mark.long
def test_a_score_equals_that_of_the_run_and_says_what_a_changed_rule_changes(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = json.loads((runs / "b/summary.json").read_text())
    scored = printed(capsys, "score", "b", "--scenario", "game.py")
    assert scored.pop("changed") == {}
    assert {key: scored[key] for key in stored if key != "baselines"} == {
        key: value for key, value in stored.items() if key != "baselines"
    }
    (runs.parent / "stricter.py").write_text(GAME.replace("WIN", "> 5"))
    changed = printed(capsys, "score", "b", "--scenario", "stricter.py")
    assert changed["success"]["mean"] == 0 and "success.mean" in changed["changed"]
    # nothing is written, and a folder's own code is not run
    assert json.loads((runs / "b/summary.json").read_text()) == stored
    (runs.parent / "game.py").write_text("raise SystemExit(3)")
    assert printed(capsys, "score", "b")["success"] is not None


@pytest.mark.long
def test_a_score_without_the_rules_calls_unequal_only_what_needs_none(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = """
    def labels(self, episode):
        if len(episode.turns) > 1:
            raise ValueError
        return {"cause": episode.turns[0].action.text if episode.turns else "none"}
"""
    failing = labelled + "\n    def tasks(self, split): return (0, 1, 2, 3, 'x')\n"
    rules = GAME.replace("WIN", "> 0").replace(
        "        said", "        1 / (task != 'x')\n        said"
    )
    (runs.parent / "odd.py").write_text(rules + failing)
    assert main(["run", "odd.py", "--out", "runs/odd", "--quiet"]) == 1
    assert printed(capsys, "score", "odd")["changed"] == {}
    assert main(["score", "odd"]) == 0
    assert "equal, as far as it needs no rules" in capsys.readouterr().out
    # what the record alone tells is still looked at
    path = runs / "odd/summary.json"
    stored = json.loads(path.read_text())
    stored["returns"]["a"]["mean"] += 1.0
    path.write_text(json.dumps(stored))
    assert "returns.a.mean" in printed(capsys, "score", "odd")["changed"]


def test_the_one_file_among_several_scenarios_is_named_and_judges_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was refused, though the line on such a run advised it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.py").write_text(GAME.replace("WIN", "> 0"))
    worlds = "{own: {id: game.py, tasks: 3}, other: {id: kuhn_poker, tasks: 2}}"
    seats = "{'*': {behaviour: random_legal}}"
    (tmp_path / "several.yaml").write_text(f"scenarios: {worlds}\nagents: {seats}\n")
    assert main(["run", "several.yaml", "run.baselines=false", "--out", "r", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["score", "r"]) == 0
    assert "as far as it needs no rules" in capsys.readouterr().out
    assert main(["score", "r", "--scenario", "game.py"]) == 0
    assert re.search(r"as recorded +equal$", capsys.readouterr().out, re.M)
    assert main(["score", "r", "--scenario", "x.py"]) == 2
    assert "the run has several, game.py, kuhn_poker; name one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (1, "(1 score tested): 1 task is too few for any; play 6 or more"),
        (5, "(1 score tested): 5 tasks are too few for any; play 6 or more"),
        (6, "B differs from A in success -1.000 (1 score tested)"),
        (7, "B differs from A in success -1.000 (1 score tested)"),
    ],
)
def test_few_tasks_are_named_where_they_cannot_show_anything(tasks: int, words: str) -> None:
    ids = [(f"test/{task}", 1, repeat) for task in range(tasks) for repeat in range(4)]
    first, second = (Cell({}, {"success": dict.fromkeys(ids, won)}) for won in (1.0, 0.0))
    assert verdict_of(compare_cells(first, second)).endswith(words)


@pytest.mark.long
def test_what_two_runs_have_in_common_is_told_once(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for changed in ("", "# a comment\n"):
        (runs.parent / "game.py").write_text(changed + GAME.replace("WIN", "> 0"))
        for typed in (["compare", "a", "b"], ["report", "runs/a", "runs/b", "--out", "x.html"]):
            assert main(typed) == 0
            assert capsys.readouterr().err.count("game.py changed") == bool(changed)


@pytest.mark.long
def test_a_shipped_run_is_scored_without_a_word_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            ["run", "retail_scripted", "-n", "3", "run.baselines=false", "--out", "run", "--quiet"]
        )
        == 0
    )
    assert printed(capsys, "score", "run")["changed"] == {}
    assert main(["score", "run"]) == 0
    out, err = capsys.readouterr()
    assert "as recorded" in out and "equal" in out and not err
    # forty measures are one row, and all of them by --all
    assert "part database" not in out and "--all" in out
    assert main(["show", "run", "--all"]) == 0 and "part database" in capsys.readouterr().out
    shutil.copytree("run", "other")
    page = printed(capsys, "report", "run", "other", "-o", "both.html")
    assert page["report"] == "both.html" and "test/2" in Path("both.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("scenario", sorted(registry.builtin("scenarios")))
def test_the_score_of_every_shipped_scenario_is_that_of_its_run(
    scenario: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["-n", "3", "run.baselines=false", "--out", "run", "--quiet"]
    assert main(["run", scenario, *small]) == 0
    stored = json.loads((tmp_path / "run/summary.json").read_text())
    scored = printed(capsys, "score", "run")
    assert scored["changed"] == {} and scored["episodes"] == stored["episodes"] == 3
    del stored["baselines"]  # played beside a run, and no part of its own score
    assert {key: scored[key] for key in stored} == stored


@pytest.mark.long
def test_a_training_has_no_plays_to_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["train.steps=1", "train.episodes=4", "evaluate.episodes=2"]
    assert main(["train", "kuhn_table", *small, "--out", "run", "--quiet"]) == 0
    for typed in (["score", "run"], ["compare", "run", "run"]):
        assert one_line(capsys, typed) == 2
    assert main(["report", "run"]) == 0
    # what the message says to type plays the model that was learned
    assert main(["score", "run"]) == 2
    advice = capsys.readouterr().err.split("gem-ma ")[1].split()
    assert main([*advice, "-n", "2", "--out", "learned", "--quiet"]) == 0
    capsys.readouterr()
    assert printed(capsys, "score", "learned")["episodes"] == 2


@pytest.mark.long
def test_show_lists_the_lost_plays_by_names_that_open_them(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["show", "b"]) == 0
    rows = [
        line.split()[1]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("lost test")
    ]
    stored = json.loads((runs / "b/summary.json").read_text())["lost"]
    assert [row.rpartition("/")[0] for row in rows] == [
        row["task"] for row in stored["episodes"][:5]
    ]
    assert main(["show", "b", "--episode", rows[-1]]) == 0
