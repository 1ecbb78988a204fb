"""Studies in which players share the seats of one world: mixes, visitors among residents."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gem_ma.cli.study_tables import matrix, show_study
from gem_ma.config.loading import load, load_study
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import read_episodes
from gem_ma.scores.groups import Kinds
from gem_ma.scores.sides import mix_table, two_means, two_returns, with_sides
from gem_ma.scores.studies import Cell, study_summary
from tests.command_line import environment, gem_ma, text_of
from tests.documents import ROOT, Page
from tests.warm import start

MIX = """\
scenario: {id: public_goods, tasks: 3}
mix: {players: {giver: goods_giver, selfish: {behaviour: goods_selfish}}}
"""
FOCAL = """\
scenario: {id: commons, tasks: 4}
focal:
  focal: [commons_half, commons_all]
  background: {half: commons_half, all: commons_all}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "who.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_study(written(folder, text))
    return str(caught.value).replace(f"{folder}/", "")


def behaviours(study: Any, *names: str) -> list[str]:
    return [study.cells[names].config.agents[f"player_{n}"].behaviour for n in range(4)]


def test_a_mix_of_n_seats_has_n_and_one_cells(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, MIX))
    assert [*study.axes] == ["mix"] and len(study.cells) == 5
    assert study.reference == ("0 giver + 4 selfish",)
    assert behaviours(study, "1 giver + 3 selfish") == ["goods_giver", *["goods_selfish"] * 3]
    assert behaviours(study, "4 giver + 0 selfish") == ["goods_giver"] * 4
    assert study.sides["3 giver + 1 selfish",] == {
        "giver": ["player_0", "player_1", "player_2"],
        "selfish": ["player_3"],
    }
    assert load(written(tmp_path, MIX)).study


def test_an_option_says_how_many_seats_there_are_and_others_keep_their_players(
    tmp_path: Path,
) -> None:
    text = MIX.replace("tasks: 3", "tasks: 3, agents: 6").replace(
        "mix: {", "agents: {player_5: goods_half}\nmix: {seats: ['player_[1-4]', player_0], "
    )
    said = refused(tmp_path, text)
    # only * and ? make a pattern
    assert said.startswith("who.yaml:3: mix.seats[0]: no agent has this name")
    text = text.replace("'player_[1-4]'", "player_1, player_3")
    text = text.replace("player_5: goods_half", "'*': goods_half")
    study = load_study(written(tmp_path, text))
    assert len(study.cells) == 4
    seats = study.cells["1 giver + 2 selfish",].config.agents
    assert [seats[f"player_{n}"].behaviour for n in (0, 1, 3)] == [
        "goods_giver",
        "goods_selfish",
        "goods_selfish",
    ]


def test_visitors_sit_among_residents(tmp_path: Path) -> None:
    study = load_study(
        written(tmp_path, FOCAL.replace("focal:\n  f", "focal:\n  visitors: 2\n  f"))
    )
    assert study.axes == {
        "focal": ("commons_half", "commons_all"),
        "background": ("half", "all"),
    }
    assert behaviours(study, "commons_all", "half") == [
        *["commons_all"] * 2,
        *["commons_half"] * 2,
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("giver: goods_giver, ", "", "who.yaml:2: mix.players: wants two players; got 1"),
        ("goods_giver", "goods_givr", "who.yaml:2: agents.player_0.behaviour: no behaviour is"),
        ("selfish:", "player_1:", "who.yaml:2: mix: an agent is called 'player_1', too; take"),
        ("mix: {", "grid: {run.seed: [1]}\nmix: {", "who.yaml:3: mix: a study has a grid or a mix"),
        ("id: public_goods", "id: public_godos", "no scenario is called 'public_godos'"),
        ("public_goods, tasks", "public_goods, player: 2, tasks", "scenario.player: unknown"),
        ("id: public_goods, tasks: 3", "id: arithmetic", "mix: wants two seats or more to share"),
        ("mix: {", "mix: {seats: [judge], ", "who.yaml:2: mix.seats[0]: no agent has this name"),
        ("scenario: {id: public_goods, tasks: 3}", "scenarios: [dilemma, kuhn_poker]", "several"),
        ("mix: {", "study: {design: focal}\nmix: {", "study.design: no section `focal:`"),
    ],
)
def test_a_mix_that_cannot_be_is_refused_by_line(
    tmp_path: Path, old: str, new: str, line: str
) -> None:
    assert old in MIX
    assert line in refused(tmp_path, MIX.replace(old, new))


def test_a_focal_player_that_takes_all_seats_is_refused(tmp_path: Path) -> None:
    text = FOCAL.replace("focal:\n  f", "focal:\n  visitors: 5\n  f")
    assert "focal.visitors: leaves no seat of 5 to the background; got 5" in refused(tmp_path, text)


def test_a_typed_seat_that_the_mix_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the axis sets agents\.player_2, and so does the"):
        load_study(written(tmp_path, MIX), ["agents.player_2=random_legal"])


def test_who_gives_earns_less_than_who_does_not_however_many_give(tmp_path: Path) -> None:
    written(tmp_path, MIX)
    done = gem_ma("study", "who.yaml", "--out", "out", "--measure", "return giver", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["compared"] == ["return selfish", "return giver"]
    rows = found["mix"]["rows"]
    # 10 rounds, 20 tokens, factor 1.6 of 4: each giver brings each 80, and pays 200
    assert [row["first"]["mean"] for row in rows[1:]] == [80.0, 160.0, 240.0, 320.0]
    assert [row["second"]["mean"] for row in rows[:-1]] == [200.0, 280.0, 360.0, 440.0]
    assert rows[0]["first"] is None and rows[-1]["second"] is None and rows[-1]["change"] is None
    assert [row["change"]["difference"] for row in rows[:-1]] == [-120.0] * 4
    assert [row["stable"] for row in rows] == [True, False, False, False, False]
    # copies of one play test nothing
    assert {row["change"]["p"] for row in rows[:-1]} == {None}
    assert (
        "-120.000 (deterministic: 1 play)" in done.stdout and "one more giver gains" in done.stdout
    )


def test_a_mix_tells_what_a_seat_is_worth_where_all_are_of_one_player(tmp_path: Path) -> None:
    text = "scenario: {id: kuhn_poker, tasks: 40}\nmix: {players: [first_legal, random_legal]}\n"
    written(tmp_path, text)
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    paid: dict[str, list[float]] = {}
    for cell in found["cells"]:
        plays = read_episodes(tmp_path / "out" / cell["run"])
        returns = [play.returns() for play in plays]
        paid[cell["names"]["mix"]] = [one["player_0"] - one["player_1"] for one in returns]
    alike = paid["0 first_legal + 2 random_legal"] + paid["2 first_legal + 0 random_legal"]
    gap = found["mix"]["halves"]
    assert len(alike) == 80 and gap["mean"] == pytest.approx(sum(alike) / 80)
    assert gap["low"] < gap["mean"] < gap["high"]
    assert abs(gap["mean"] - sum(paid["1 first_legal + 1 random_legal"]) / 40) > 0.1
    other = ("--out", "out", "study.reference={mix: 1 first_legal + 1 random_legal}")
    assert gem_ma("study", "who.yaml", *other, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "out" / "study.json").read_text())["mix"]["halves"] == gap
    told = "more, a head, where all are of one player"
    assert told in done.stdout and told in (tmp_path / "out" / "report.html").read_text()


def test_a_focal_return_stands_beside_that_of_its_background(tmp_path: Path) -> None:
    written(tmp_path, FOCAL)
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    # commons judges success, too: a focal study asks for the return of the focal player
    assert found["compared"] == ["return focal"] and "success" in found["scores"]
    assert two_returns(found) == ("return focal", "return background")
    (cell,) = [one for one in found["cells"] if [*one["names"].values()] == ["commons_all", "half"]]
    paid = [cell["scores"][f"return player_{n}"]["mean"] for n in range(5)]
    assert cell["scores"]["return focal"]["mean"] == paid[0] > max(paid[1:])
    assert cell["scores"]["return background"]["mean"] == pytest.approx(sum(paid[1:]) / 4)
    assert f"{paid[0]:.3f} / {paid[1]:.3f}" in done.stdout
    unknown = gem_ma("study", "who.yaml", "--out", "out", "--measure", "return focl", cwd=tmp_path)
    assert unknown.returncode == 2 and "did you mean 'return focal'" in unknown.stderr


def drawn(returns: dict[str, list[float]], one_play: bool = False) -> Cell:
    """A cell whose play n of task n pays agent X `returns[X][n]`."""
    values = {
        f"return {agent}": {(f"test/{n}", 7, 0): value for n, value in enumerate(paid)}
        for agent, paid in returns.items()
    }
    return Cell({}, values, kinds=Kinds(), one_play=one_play)


def test_a_play_that_lacks_an_agent_of_a_side_is_left_out_of_its_return() -> None:
    cell = drawn({"a": [1.0, 3.0], "b": [5.0], "c": [2.0, 4.0]})
    made = with_sides(cell, {"one": ["a", "b"], "other": ["c"], "nobody": [], "lost": ["d"]})
    assert made.values["return one"] == {("test/0", 7, 0): 3.0}
    assert {side: told["mean"] for side, told in made.summary["sides"].items()} == {
        "one": 3.0,
        "other": 3.0,
    }


def test_what_a_change_of_sides_gains_is_paired_and_says_what_it_does_not_know() -> None:
    # the luck of a play is 100 times what a change gains: only pairs see it
    luck = [100.0 * (n % 7) for n in range(40)]
    pay = {
        0: {"a": [x + 1.0 for x in luck], "b": [x + 1.0 + n % 2 for n, x in enumerate(luck)]},
        1: {"a": [x + 3.0 for x in luck], "b": luck},
        2: {"a": [x - 1.0 for x in luck], "b": [x - 1.0 - n % 2 for n, x in enumerate(luck)]},
    }
    sides = {0: ([], ["a", "b"]), 1: (["a"], ["b"]), 2: (["a", "b"], [])}
    cells = {
        (str(k),): with_sides(drawn(pay[k]), dict(zip(("x", "y"), sides[k], strict=True)))
        for k in pay
    }
    first, middle, last = mix_table(cells, ["x", "y"], resamples=200)["rows"]
    assert first["change"]["low"] > 1 and middle["change"]["high"] < -0.5
    assert (first["stable"], middle["stable"], last["stable"]) == (False, True, False)
    noise = {k: {"a": [(-1.0) ** (n + k) for n in range(40)], "b": [0.0] * 40} for k in pay}
    unsure = {
        (str(k),): with_sides(drawn(noise[k]), dict(zip(("x", "y"), sides[k], strict=True)))
        for k in pay
    }
    assert {row["stable"] for row in mix_table(unsure, ["x", "y"], resamples=200)["rows"]} == {None}


def test_two_seats_have_a_bimatrix_unless_one_return_follows_from_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def study(second: float, sign: float) -> dict[str, Any]:
        cells = {}
        for row, column in (("=row", "x"), ("=row", "y")):
            paid = [1.0 + (column == "y"), 3.0]
            cell = drawn({"one": paid, "two": [second + sign * value for value in paid]})
            estimates = {
                agent: {"mean": sum(v.values()) / 2, "low": 0.0, "high": 9.0}
                for agent, v in ((name.split(" ")[1], v) for name, v in cell.values.items())
            }
            counts = dict.fromkeys(("episodes", "ok", "failed", "excluded", "tasks"), 2)
            kept = {
                "returns": estimates,
                "measures": {},
                "success": None,
                "pass_hat_k": [],
                "turns": None,
            }
            cells[row, column] = Cell({**counts, **kept}, cell.values)
        axes = {"agents.one": ("=row",), "agents.two": ("x", "y")}
        return study_summary(axes, cells, ("=row", "x"), resamples=100)

    made = study(20.0, 1.0)
    assert two_returns(made) == ("return one", "return two")
    assert two_means(made["cells"][0], ("return one", "return two")) == "2.000 / 22.000"
    show_study(made, tmp_path, as_json=False)
    assert "return one / return two: one (rows) x two (columns)" in capsys.readouterr().out
    assert matrix(made, "return one")[0] == [
        ["=row", "2.000 [0.000, 9.000]", "2.500 [0.000, 9.000]"]
    ]
    assert two_returns(study(0.0, -1.0)) is None and two_returns(study(0.0, 1.0)) is None


# -- tournaments -----------------------------------------------------------------------------------

TOURNAMENT = """\
scenario: {id: werewolf, talk: signals, tasks: 40}
tournament: {players: [werewolf_strong, werewolf_simple, random_legal], plays: 40, batch: 3}
"""


def test_everybody_plays_everybody_from_both_halves_and_nobody_itself(tmp_path: Path) -> None:
    text = "scenario: {id: dilemma}\ntournament: {players: [first_legal, random_legal]}\n"
    study = load_study(written(tmp_path, text))
    assert study.axes["player"] == study.axes["opponent"] == ("first_legal", "random_legal")
    assert [*study.cells] == [("first_legal", "random_legal"), ("random_legal", "first_legal")]
    assert study.reference == ("first_legal", "random_legal")
    seats = study.cells["random_legal", "first_legal"].config.agents
    assert [seat.behaviour for seat in seats.values()] == ["random_legal", "first_legal"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("werewolf_strong, werewolf_simple, ", "", "tournament.players: wants two players or more"),
        ("plays: 40", "plays: 1", "tournament.plays: should be greater than or equal to 2; got 1"),
        (
            "tournament",
            "study: {reference: {player: random_legal, opponent: random_legal}}\ntournament",
            "study.reference: 'random_legal' does not play against itself",
        ),
    ],
)
def test_a_tournament_that_cannot_be_is_refused(
    tmp_path: Path, old: str, new: str, line: str
) -> None:
    assert line in refused(tmp_path, TOURNAMENT.replace(old, new, 1))


def test_a_pair_that_has_not_met_leaves_copies_what_they_are(tmp_path: Path) -> None:
    players = "{a: always_cooperate, b: always_defect, c: always_defect}"
    world = "study: {repeats: 2}\nscenario: {id: dilemma, tasks: 4}\nrun: {baselines: false}\n"
    written(tmp_path, f"{world}tournament: {{players: {players}, plays: 8, batch: 1}}\n")
    done = gem_ma("study", "who.yaml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "out" / "study.json").read_text())
    found = study["tournament"]
    assert study["planned"] == 8 and [pair["plays"] for pair in found["pairs"]].count(0) == 2
    assert {one["rating"]["method"] for one in found["players"]} == {"deterministic: 1 play"}


@pytest.mark.long
def test_a_tournament_that_is_taken_up_chooses_the_same_pairs(tmp_path: Path) -> None:
    written(tmp_path, TOURNAMENT)

    def study(out: str, *more: str) -> dict[str, Any]:
        done = gem_ma("study", "who.yaml", "--out", out, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Plackett-Luce" in done.stdout and "the first half of the seats is" in done.stdout
        assert "Who is strongest" in (tmp_path / out / "report.html").read_text()
        return json.loads((tmp_path / out / "study.json").read_text())

    whole = study("whole")
    assert whole["tournament"]["plays"] == 40
    first = study("parts", "tournament.plays=20")
    assert first["tournament"]["plays"] == 20
    assert {pair["plays"] for pair in first["tournament"]["pairs"]} <= {3, 4, 6}
    later = study("parts")
    assert later["tournament"] == whole["tournament"] and later["cells"] == whole["cells"]
    lines = [*(tmp_path / "parts").glob("*/episodes.jsonl")]
    assert len(lines) == 6 and sum(len(one.read_text().splitlines()) for one in lines) == 40
    for cell in later["cells"]:
        kept = json.loads((tmp_path / "parts" / cell["run"] / "summary.json").read_text())
        assert kept["episodes"] == cell["episodes"] == kept["planned"]
    assert study("parts")["tournament"] == whole["tournament"]
    again = study("parts", "--fresh")
    assert again["tournament"] == whole["tournament"]


@pytest.mark.long
def test_bots_runs_checkpoints_endpoints_and_people_play_one_tournament(tmp_path: Path) -> None:
    short = ("train.steps=1", "train.episodes=8", "evaluate.episodes=4")
    assert gem_ma("train", "kuhn_table", *short, "--out", "runs/t", cwd=tmp_path).returncode == 0
    text = """\
scenario: {id: kuhn_poker, tasks: 1}
run: {concurrency: 1}
policies:
  me: {model: human/me, force: true}
  server: {model: openai/small, base_url: "http://127.0.0.1:9/v1"}
tournament:
  players:
    bot: noisy_kuhn
    run: {model: table/runs/t/models/main}
    checkpoint: {model: table/runs/t/checkpoints/step-000000/main.table.json}
    person: {policy: me}
"""
    written(tmp_path, text)
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out:
        typed.write(b"1\n" * 60)
        typed.seek(0)
        asked = ("study", "who.yaml", "--out", "out")
        started = start(*asked, cwd=tmp_path, env=environment(), streams=(typed, out, out))
        assert started.wait(timeout=120) == 0, text_of(out)
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert {one["name"]: one["plays"] for one in found["tournament"]["players"]} == dict.fromkeys(
        ("bot", "run", "checkpoint", "person"), 6
    )
    # nobody answers at this address, which only a play can tell
    study = load_study(
        written(tmp_path, text.replace("person: {policy: me}", "api: {policy: server}"))
    )
    assert study.cells["bot", "api"].config.agents["player_1"].policy == "server"
    for model, line in (
        (
            "table/runs/t",
            "who.yaml:9: policies.player_1: table/runs/t: runs/t: is not a regular file",
        ),
        ("human/me", "the human engine needs a terminal to ask at"),
    ):
        written(tmp_path, text.replace("table/runs/t/models/main", model))
        wrong = gem_ma("study", "who.yaml", "--out", "wrong", cwd=tmp_path)
        assert wrong.returncode == 2 and line in wrong.stderr
        assert len(wrong.stderr.strip().split("\n")) == 1


@pytest.mark.long
def test_two_trained_runs_a_checkpoint_a_bot_and_chance_meet_in_every_design(
    tmp_path: Path,
) -> None:
    short = ("train.steps=2", "train.episodes=16", "evaluate.episodes=2", "--quiet")
    for seed, run in enumerate(("one", "other")):
        asked = ("train", "kuhn_table", *short, f"run.seed={seed}", "--out", f"runs/{run}")
        assert gem_ma(*asked, cwd=tmp_path).returncode == 0
    ((_, text),) = Page(ROOT / "docs" / "studies.md").files()
    config = yaml.safe_load(text)
    config["scenario"]["tasks"] = 6
    players = config.pop("tournament")["players"]
    some = {name: players[name] for name in ("one", "bot")}
    designs: dict[str, Any] = {
        "tournament": {"players": players},
        "focal": {"focal": some, "background": players},
        "cross_play": {"population": {"player_0": some, "player_1": players}},
        "mix": {"players": some},
    }
    cells = dict(zip(designs, (20, 10, 10, 3), strict=True))
    for design, section in designs.items():
        written(tmp_path, json.dumps({**config, design: section}))
        done = gem_ma("study", "who.yaml", "--out", design, "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / design / "study.json").read_text())
        assert [cell["ok"] for cell in found["cells"]] == [6] * cells[design]
    (cell,) = (tmp_path / "tournament").glob("one-x-other-*")
    models = json.loads((cell / "manifest.json").read_text())["models"]
    assert len({one["digest"] for one in models.values()}) == 2
    written(tmp_path, json.dumps({**config, "mix": designs["mix"]}).replace("/models/main", ""))
    wrong = gem_ma("study", "who.yaml", "--out", "wrong", cwd=tmp_path)
    assert wrong.returncode == 2 and len(wrong.stderr.strip().split("\n")) == 1
    assert "a model of it is table/runs/one/models/main or " in wrong.stderr
