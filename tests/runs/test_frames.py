"""Three tables of many runs: the queries of docs/frames.md say what our own summaries say, and the
tables hold what the plays held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.cli.main import main
from gem_ma.kernel.episode import Episode
from gem_ma.record.codec import dump_episode
from gem_ma.runs.export import frames, tables
from gem_ma.runs.export.writing import Wish, export
from gem_ma.scores.judge import Judge
from tests.documents import ROOT, Page
from tests.drawn_plays import Drawn
from tests.fault_server import Answer, Asked, FaultServer, says

duckdb = pytest.importorskip("duckdb", reason="the extra frames has it")
parquet = pytest.importorskip("pyarrow.parquet", reason="the extra frames has it")

DESK = """
from gem_ma import Ask, Message, Reward, Scenario, Tool, ToolCall

ANIMAL = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
LOOK = Tool("look", "Looks for it.", ANIMAL)

class Desk(Scenario):
    agents = ("clerk", "guest")

    def tasks(self, split):
        return ("cat", "dog", "owl", "fox", "elk")

    def play(self, rng, task):
        shown = task
        for _ in range(2):
            said = (yield Ask({"clerk": shown}, tools=(LOOK,)))["clerk"]
            for call in said.tool_calls:
                isread = isinstance(call, ToolCall)
                told = "Error: nowhere" if task == "fox" or not isread else "at home"
                shown = Message.tool(call.id if isread else "", told)
            yield Reward({"clerk": 0.25})
            if task == "elk":
                raise RuntimeError("the elk broke the desk")
        yield Ask({"guest": "Well?"}, legal=("yes", "no"))
        yield Reward({"guest": float(task == "owl"), "clerk": float(len(task))})

    def role(self, episode, agent):
        return {"clerk": "staff", "guest": "visitor"}[agent]

    def success(self, episode):
        return episode.task != "test/3"

    def fault(self, episode):
        turn = episode.turns[0]
        return None if self.success(episode) else (turn.step, turn.agent, "FAULT")

    def measures(self, episode):
        return {"acts": len(episode.turns)}
"""
FAULT = "the fox was nowhere"


def answered(asked: Asked) -> Answer:
    """What the clerk says: a call, one that cannot be read of the dog, words once it knows."""
    if asked.body["messages"][-1]["role"] == "tool":
        return says("It is known.", usage=(30, 4))
    arguments = "{broken" if "dog" in asked.last else json.dumps({"of": asked.last})
    return says(None, calls=[(f"c{asked.number}", "look", arguments)], usage=(20, 7))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three runs and their exports: a desk with a priced clerk, a game of bots, a shop."""
    path = tmp_path_factory.mktemp("frames")
    with pytest.MonkeyPatch.context() as patch, FaultServer(answered) as server:
        patch.chdir(path)
        patch.setenv("OPENAI_API_KEY", "none")
        (path / "desk.py").write_text(DESK.replace("FAULT", FAULT))
        clerk = f"policies.clerk={{model: openai/m, base_url: '{server.url}', price: {{input: 2, output: 10}}}}"
        typed = {
            "desk": ["desk.py", clerk, "agents.clerk={policy: clerk}", "agents.guest=first_legal"],
            "cards": ["kuhn_poker", "-n", "12"],
            "shop": [
                "retail_scripted",
                "-n",
                "8",
                "run.seed=3",
                "agents.assistant=retail_forgets_to_confirm",
            ],
        }
        more = ["run.baselines=false", "run.max_failed=9", "--quiet"]
        for name, words in typed.items():
            assert main(["run", *words, *more, "--out", name]) == 0
            # the desk is code, which is asked where it is named
            judge = ["--scenario", "desk.py"] if name == "desk" else []
            assert main(["export", name, "--to", "parquet", "-o", f"exports/{name}", *judge]) == 0
        yield path


@pytest.fixture
def said(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """What each query of the page gives."""
    monkeypatch.chdir(place)
    queries = [text for _, text in Page(ROOT / "docs" / "frames.md").blocks("sql")]
    assert len(queries) == 5
    results = [duckdb.sql(query) for query in queries]
    return [[dict(zip(r.columns, row, strict=True)) for row in r.fetchall()] for r in results]


@pytest.mark.long
def test_the_queries_of_the_page_say_what_summaries_say(
    said: list[list[dict[str, Any]]], place: Path
) -> None:
    runs = {name: gem_ma.open_run(place / name) for name in ("cards", "desk", "shop")}
    assert runs["desk"]["failed"] == 1 and 0 < runs["desk"].success < 1  # else little is compared
    by_run, by_policy, by_agent, lost, tools = said
    for row in by_run:
        judged = runs[row["run"]]["success"] or {"mean": None, "n": 0}
        assert (row["success"], row["n"]) == (pytest.approx(judged["mean"]), judged["n"])
    assert [row["run"] for row in by_run] == list(runs)
    (spent,) = by_policy
    cost = runs["desk"]["costs"]["clerk"]
    assert (spent["policy"], spent["agent"], spent["replies"]) == ("clerk", "clerk", 9)
    assert [cost[name] for name in ("requests", "prompt", "completion", "usd")] == [
        spent[name] for name in ("replies", "prompt", "completion")
    ] + [pytest.approx(spent["usd"])]
    paid = {(row["run"], row["agent"]): (row["mean"], row["n"]) for row in by_agent}
    assert paid == {
        (name, agent): (pytest.approx(one["mean"]), one["n"])
        for name, run in runs.items()
        for agent, one in run["returns"].items()
    }
    assert [row["acts"] for row in lost] == sorted((row["acts"] for row in lost), reverse=True)
    for name, run in runs.items():
        mine = [row for row in lost if row["run"] == name]
        assert len(mine) == run["lost"]["count"]
        rows = list(run.rows())
        wanted = {
            (r["task"], r["seed"]): r.get("fault") or r.get("cause") or r["error"] for r in rows
        }
        assert all(row["why"] == (wanted[row["task"], row["seed"]] or FAULT) for row in mine)
    assert FAULT in {row["why"] for row in lost if row["run"] == "desk"}
    for name, run in runs.items():
        for agent, mean in run["tool_calls"].items():
            mine = [row for row in tools if (row["run"], row["agent"]) == (name, agent)]
            calls = sum(row["calls"] for row in mine)
            assert calls == pytest.approx(mean * run["returns"][agent]["n"])
            bad = sum(row["malformed"] for row in mine)
            assert (bad / calls if calls else None) == run["malformed"][agent]
    assert sum(row["refused"] for row in tools if row["run"] == "desk") == 1 + 1


def test_roles_measures_and_costs_stand_beside_a_play(place: Path) -> None:
    plays = parquet.read_table(place / "exports/desk/plays.parquet").to_pylist()
    for row, whole in zip(plays, gem_ma.open_run(place / "desk").rows(), strict=True):
        groups = {one["name"]: one["value"] for one in row["groups"]}
        wanted = {"role staff": whole["return clerk"], "role visitor": whole["return guest"]}
        assert {name: groups.get(name) for name in wanted} == wanted or not row["scored"]
        acts = [one["value"] for one in row["measures"]]
        assert acts == ([len(row["turns"])] if row["scored"] else [])
        assert row["cost"] == pytest.approx(whole["cost clerk"]) and row["cost"] > 0
        assert row["completion_tokens"] == whole["tokens clerk"]
        told = gem_ma.open_run(place / "desk").rows("turns")
        mine = [act["tokens"] for act in told if act["task"] == whole["task"]]
        assert sum(mine) == whole["tokens clerk"] > 0


class Silent:
    """A run that says nothing of its plays."""

    judge, prices, models = Judge(), {}, {}

    def findings(self, episode: Episode) -> Iterator[tuple[str, Any]]:
        return iter(())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_whatever_a_play_holds_is_in_the_tables_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tables, "ROWS", 7 + seed)  # many parts
    plays = Drawn(seed).run(30)
    source, out = tmp_path / "run.jsonl", tmp_path / "out"
    source.write_text("".join(dump_episode(one) + "\n" for one in plays), encoding="utf-8")
    export(source, out, Judge(), Wish("parquet", played=Silent()))
    assert parquet.ParquetFile(out / "turns.parquet").num_row_groups > 1
    export(source, tmp_path / "one.parquet", Judge(), Wish("parquet", played=Silent()))
    assert parquet.ParquetFile(tmp_path / "one.parquet").num_row_groups == -(
        -len(plays) // (7 + seed)
    )
    one, whole = (list(gem_ma.read_episodes(path)) for path in (tmp_path / "one.parquet", out))
    assert one == whole
    assert sorted(map(dump_episode, gem_ma.read_episodes(out))) == sorted(map(dump_episode, plays))
    made = {name: parquet.read_table(out / f"{name}.parquet").to_pylist() for name in frames.TABLES}
    acts = [turn for episode in gem_ma.read_episodes(out) for turn in episode.turns]
    assert [row["text"] for row in made["turns"]] == [turn.action.text for turn in acts]
    spoken = [reply.text for turn in acts for reply in turn.replies]
    assert [row["text"] for row in made["calls"] if row["kind"] == "reply"] == spoken
    called = [call.kind for turn in acts for call in turn.action.tool_calls]
    assert [row["kind"] for row in made["calls"] if row["kind"] != "reply"] == called
