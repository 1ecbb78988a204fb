"""The page of a league: members, ratings, who beats whom and how far from an equilibrium, out of what
a run folder holds; and one line where it holds nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gem_ma.pages.live.leagues import facts_of, payoffs, read_league, standings
from gem_ma.pages.live.site import Site
from tests.command_line import gem_ma
from tests.hostile import TRAINING
from tests.payloads import PAYLOADS, held


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with a pool, and one without."""
    home = tmp_path_factory.mktemp("leagues")
    for name, config in (
        ("pool", TRAINING),
        ("none", re.sub("  (opponents|pool):.*\n", "", TRAINING)),
    ):
        (home / f"{name}.yaml").write_text(config, "utf-8")
        words = ("train.steps=6", "train.log=[]", "evaluate.every=2", "--quiet")
        done = gem_ma("train", f"{name}.yaml", *words, "--out", f"runs/{name}", cwd=home)
        assert done.returncode == 0, done.stderr
    return home / "runs"


def shown(runs: Path, path: str) -> str:
    answer = Site(runs).answer(path, {})
    assert (answer.status, answer.kind[:9]) == (200, "text/html")
    return answer.body.decode()


def test_the_page_shows_what_the_run_recorded(runs: Path) -> None:
    page, facts = shown(runs, "/league/pool"), read_league(runs / "pool")
    league = json.loads((runs / "pool" / "summary.json").read_text("utf-8"))["league"]
    assert facts.members and league["members"] == len(facts.members)
    assert {name: round(of, 1) for name, of in facts.ratings[-1][1].items()} == league["ratings"]
    for name, rating in league["ratings"].items():
        assert f'<th scope="row">{name}</th><td>{rating:+.0f}</td>' in page
    assert "<h3>exploitability</h3>" in page and "<h3>ratings</h3>" in page
    # every game is won by one of its two players, or half by each
    games = {pair: won + facts.wins[pair[::-1]] for pair, won in facts.wins.items()}
    assert games and all(total == int(total) for total in games.values())
    row, column = next(pair for pair, total in games.items() if total)
    share = facts.wins[row, column] / games[row, column]
    cells = f"<td>{column}</td><td>{games[row, column]:.0f}</td><td>{share:.3f}</td>"
    assert f'<th scope="row">{row}</th>{cells}' in page


@pytest.mark.long
def test_only_a_run_with_a_league_leads_to_one(runs: Path) -> None:
    assert 'href="/league/pool"' in shown(runs, "/run/pool")
    assert 'href="/league' not in shown(runs, "/run/none")
    for run in ("pool", "none"):
        assert f'href="/curves?run={run}"' in shown(runs, f"/run/{run}")
    (line,) = re.findall(r'<p class="warn">(.*?)</p>', shown(runs, "/league/none"))
    assert line == "none: this run had no league (train.opponents)"
    assert "no such run folder" in shown(runs, "/league/..")


def test_a_league_without_its_checkpoints_shows_what_is_left(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "pool", tmp_path / "pool")
    newest = max((tmp_path / "pool" / "checkpoints").iterdir())
    (newest / "trainer.json").write_text("torn", "utf-8")
    older = read_league(tmp_path / "pool")
    assert 0 < len(older.members) < len(read_league(runs / "pool").members)
    shutil.rmtree(tmp_path / "pool" / "checkpoints")
    page = shown(tmp_path, "/league/pool")
    assert "no checkpoint of this run tells of games yet" in page and "<h3>ratings</h3>" in page
    (tmp_path / "pool" / "metrics.jsonl").write_text('{"kind": "league", "step": []}\n', "utf-8")
    assert "damaged" in shown(tmp_path, "/league/pool")


def test_who_never_met_has_no_rating_and_the_page_says_why() -> None:
    rows = [{"step": 2, "ratings": "no chain of games compares 'a' with 'b'"}]
    facts = facts_of({"members": [["a", 0, 0, "x"]]}, rows, {})
    drawn = "".join(standings(facts))
    assert "no chain of games" in drawn and "a@0" in drawn and payoffs(facts) == ""


def test_names_of_players_are_texts_and_many_of_them_leave_the_busiest() -> None:
    names = [held(payload, "player") for payload in PAYLOADS]
    games = [[name, "main", 1.0 + at, 0.0] for at, name in enumerate(names)]
    rows = [{"step": step, "ratings": dict.fromkeys(names, 1.0 * step)} for step in (1, 2)]
    facts = facts_of({"games": games}, rows, {})
    table, matrix = "".join(standings(facts)), payoffs(facts)
    for drawn in (table, matrix):
        assert not re.search(r"<(script|img|iframe|base|meta|object|embed|a)\b", drawn)
    assert "hasOwnProperty @player" in table and "hasOwnProperty @player" in matrix
    assert f"{len(names) + 1 - 16} who played less are left out" in matrix
