"""Which episodes a page holds and what it says of each, from the record and the summary alone:
no browser, no scenario."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ScenarioError, StoreError
from gem_ma.kernel.types import Action, Message, Reply, ToolCall, Turn, Usage
from gem_ma.pages.static.folder import EPISODES, MOST, REST, choose, kinds_of
from gem_ma.pages.static.report import Section, write_report
from gem_ma.pages.static.transcript import transcript
from gem_ma.runs.store import RunFolder
from gem_ma.runs.store.places import Places
from gem_ma.scores.groups import Kinds
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Head

SAID = {"kinds": ["won"], "causes": {}, "labels": {}, "measures": {}}


def episode(task: int, won: bool = True, end: End = End.TERMINATED, **more: Any) -> Episode:
    turn = Turn(0, "a", (Message.system("Rules."),), None, (), Action("x"))
    ledger = (
        Entry(0, "a", 0.25, "tip"),
        Entry(0, "a", 0.75 * won, "outcome"),
        Entry(0, "b", -1.0, "tax"),
    )
    error = "EngineError: gone\nin detail" if end is End.FAILED else None
    made = {"turns": (turn,), "ledger": ledger, "end": end, "error": error, **more}
    return Episode(
        "toy",
        1,
        7,
        f"test/{task}",
        0,
        None,
        {"a": Seat("direct"), "b": Seat()},
        calls=(),
        forks=(),
        final={},
        **made,
    )


def success(one: Episode) -> bool:
    return one.returns()["a"] == 1.0


JUDGE = Judge(
    success,
    lambda one: {
        "faults": 0.0 if success(one) else 2.0,
        "score": float(success(one)),
        "turns": 3.0,
        "idle": 0.0,
    },
    lambda one: {
        "intent": ("cancel", "return"),
        **({} if success(one) else {"blame": "a", "cause": f"a: {one.end.value}"}),
    },
    Kinds(rates=("score",), more=("score",), less=("faults",)),
)


def places_of(ends: dict[tuple[str, int, int], End]) -> Places:
    return Places.of([Head(1, "", end.value, *id_) for id_, end in ends.items()])


def page_of(
    folder: Path,
    episodes: Sequence[Episode],
    judge: Judge = JUDGE,
    *,
    summary: bool = True,
    **facts: Any,
) -> tuple[str, dict[str, Any]]:
    """The page of a run and the data of its script."""
    with RunFolder.open(
        folder,
        config_text="",
        resolved={"scenario": {"id": "toy"}},
        manifest={"command": "run"} | facts,
    ) as run:
        run.append(episodes)
        if summary:
            run.write_summary(judge.summarise(episodes))
    html = write_report(folder, judge=judge).read_text("utf-8")
    island = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert island is not None
    return html, json.loads(island[1])["runs"][0]


@pytest.mark.parametrize(("place", "summary"), [(0, True), (3, False), (153, True), (199, False)])
def test_one_lost_episode_of_200_is_the_first_with_its_reason_wherever_it_lies(
    tmp_path: Path, place: int, summary: bool
) -> None:
    html, run = page_of(
        tmp_path / "run", [episode(n, n != place) for n in range(200)], summary=summary
    )
    first = run["episodes"][0]
    assert first["task"] == f"test/{place}" and first["kinds"] == ["lost"]
    assert first["causes"] == ["blame: a", "cause: a: terminated"] and first["labels"] == [
        "intent: cancel, return"
    ]
    # what speaks against it first; an idle 0 says nothing
    assert first["measures"] == [["faults", "2"], ["score", "0"], ["turns", "3"]]
    assert (
        first["agents"][0]["paid"] == [["tip", "0.25"], ["outcome", "0"]]
        and first["agents"][0]["total"] == "0.25"
    )
    assert len(run["episodes"]) == EPISODES and run["note"].startswith(
        "50 of 200 episodes: all 1 lost; the others spread"
    )
    # readable without scripts
    table = html[html.index("Lost episodes") : html.index("</table>", html.index("Lost episodes"))]
    assert (
        f"test/{place}" in table
        and "blame: a<br>cause: a: terminated" in table
        and "faults 2, score 0" in table
    )


def test_lost_failed_cut_and_the_rest_stand_in_this_order() -> None:
    ends = {(f"t/{n}", 0, 0): End.TERMINATED for n in range(100)}
    ends |= {
        ("t/40", 0, 0): End.FAILED,
        ("t/7", 0, 0): End.MAX_STEPS,
        ("t/99", 0, 0): End.INTERRUPTED,
        ("t/50", 0, 0): End.TIMEOUT,
    }
    rows = [{"task": task, "seed": 0, "repeat": 0} for task in ("t/90", "t/9", "t/50", "t/40")]
    chosen = choose(places_of(ends), {"lost": {"count": 4, "episodes": rows}})
    assert [[*ends][play][0] for play in chosen.plays[:7]] == [
        "t/9",
        "t/50",
        "t/90",
        "t/40",
        "t/7",
        "t/99",
        "t/0",
    ]
    assert chosen.totals == {"lost": 3, "failed": 1, "cut": 2, "excluded": 1} and len(
        chosen.plays
    ) == EPISODES == len(set(chosen.plays))


@pytest.mark.parametrize("lost", [0, 1, EPISODES, MOST, MOST + 1, 1_000])
@pytest.mark.parametrize("others", [0, 1, 500])
def test_all_lost_ones_up_to_the_cap_and_some_others_stand_in_it_and_the_rest_is_counted(
    lost: int, others: int
) -> None:
    ends = {(f"t/{n}", 0, 0): End.TERMINATED for n in range(lost + others)}
    rows = [{"task": f"t/{n}", "seed": 0, "repeat": 0} for n in range(lost)]
    chosen = choose(places_of(ends), {"lost": {"count": lost, "episodes": rows}})
    held = sum([*ends][play] in chosen.rows for play in chosen.plays)
    assert (
        held == min(lost, MOST if lost + others > EPISODES else lost)
        and chosen.totals["lost"] == lost
    )
    assert len(chosen.plays) - held >= min(others, REST) and len(chosen.plays) <= max(
        EPISODES, MOST + REST
    )


@pytest.mark.long
def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    html, run = page_of(tmp_path / "run", [episode(n, n >= 300) for n in range(400)])
    assert run["note"].startswith(
        f"{MOST + REST} of 400 episodes: {MOST} of 300 lost, 100 left out; "
    )
    assert "100 of them are not in this page" in html


def test_of_a_training_run_the_lost_ones_that_are_shown_stand_first_too(tmp_path: Path) -> None:
    played = [episode(n, n % 3 > 0, End.FAILED if n == 41 else End.TERMINATED) for n in range(120)]
    _, run = page_of(tmp_path / "run", played, summary=False, command="train")
    kinds = [one["kinds"][0] for one in run["episodes"]]
    assert (
        kinds == sorted(kinds, key=["lost", "failed", "won"].index)
        and kinds.count("failed") == 1
        and kinds.count("lost") > 5
    )
    assert run["episodes"][0]["causes"] == ["blame: a", "cause: a: terminated"]


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("verdict", [True, False, None])
def test_every_end_has_a_chip(end: End, verdict: bool | None) -> None:
    kinds = kinds_of(end, verdict)
    assert (
        kinds and ("cut" in kinds) == end.bootstraps and ("failed" in kinds) == (end is End.FAILED)
    )
    assert ("lost" in kinds) == (verdict is False and end.scored)


def test_a_page_without_its_scenario_says_the_same_of_the_lost_ones(tmp_path: Path) -> None:
    played = [episode(n, n % 9 > 0, End.FAILED if n == 4 else End.TERMINATED) for n in range(30)]
    _, known = page_of(tmp_path / "run", played)
    # nobody judges: what summary.json tells is all there is
    write_report(tmp_path / "run", tmp_path / "later.html")
    later = json.loads(
        re.search(r'id="data">(.*?)</script>', (tmp_path / "later.html").read_text(), re.DOTALL)[1]
    )["runs"][0]  # type: ignore[index]
    for one, other in zip(known["episodes"], later["episodes"], strict=True):
        assert (one["id"], one["kinds"], one["causes"]) == (
            other["id"],
            other["kinds"],
            other["causes"],
        )
    assert known["episodes"][0]["measures"] == later["episodes"][0]["measures"]


def test_a_summary_of_an_older_version_is_judged_anew_and_keeps_its_baselines(
    tmp_path: Path,
) -> None:
    played = [episode(n, n != 77) for n in range(100)]
    page_of(tmp_path / "run", played)
    file = tmp_path / "run" / "summary.json"
    stored = {key: value for key, value in json.loads(file.read_text()).items() if key != "lost"}
    rate = {"mean": 0.25, "low": 0.1, "high": 0.5, "n": 8, "method": "wilson"}
    stored["baselines"] = {
        "idle": {
            "cast": {"a": "silent"},
            "ok": 8,
            "failed": 0,
            "excluded": 0,
            "success": rate,
            "returns": {},
            "tasks": 8,
            "of": 8,
        }
    }
    file.write_text(json.dumps(stored))
    html = write_report(tmp_path / "run", judge=JUDGE).read_text()
    assert (
        "test/77" in html[html.index("Lost episodes") :][:2000]
        and "trivial players beside it" in html
    )


def test_the_scenario_is_asked_once_of_each_episode_for_the_whole_summary() -> None:
    asked: list[str] = []

    def labels(one: Episode) -> dict[str, str]:
        asked.append(one.task)
        return {"blame": "a"}

    Judge(success, None, labels).summarise([episode(n, n > 4) for n in range(10)])
    assert len(asked) == len(set(asked)) == 10


def test_a_fault_of_the_scenarios_hooks_is_still_told_by_episode() -> None:
    with pytest.raises(ScenarioError, match="test/3"):
        Judge(success, lambda one: {"x": 1 / (one.task != "test/3")}).summarise(
            [episode(n) for n in range(5)]
        )


# -- word for word -------------------------------------------------------------------------------

VERBATIM = [
    12345678901234567890,
    -(2**70),
    1.0,
    1e-30,
    0,
    True,
    None,
    "12345678901234567890",
    {"a": [1.0, {"b": 2**64}]},
    "é\u2028 \\n",
]


@pytest.mark.parametrize("value", VERBATIM)
def test_arguments_reach_the_page_as_the_record_holds_them(value: Any) -> None:
    turn = Turn(0, "a", (), None, (), Action("", (ToolCall("c", "f", {"x": value}),)))
    ((name, text),) = transcript(episode(0, turns=(turn,)), SAID)["turns"][0]["calls"][0][
        "arguments"
    ]
    assert name == "x" and (text == value if isinstance(value, str) else json.loads(text) == value)
    assert isinstance(value, str) or text == json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("value", [12345678901234567890.0, 1e15 + 1, -0.0, 0.1, 1e-12, 123456.789])
def test_rewards_are_written_by_python_and_not_by_the_browser(value: float) -> None:
    told = transcript(episode(0, ledger=(Entry(0, "a", value, "w"),)), SAID)
    assert float(told["ledger"][0]["value"]) == pytest.approx(value, rel=1e-5) and told["agents"][
        0
    ]["paid"] == [["w", told["ledger"][0]["value"]]]


def test_drafts_and_thoughts_of_a_turn_are_in_the_page_and_the_act_is_not_told_twice() -> None:
    replies = (
        Reply("a draft", policy="main"),
        Reply("score: 3", policy="judge"),
        Reply("said", policy="main", usage=Usage(1, 2)),
    )
    turn, plain = (
        Turn(0, "a", (), None, (), Action("said"), given) for given in (replies, replies[2:])
    )
    first, second = transcript(episode(0, turns=(turn, plain)), SAID)["turns"]
    assert [reply.get("text") for reply in first["replies"]] == ["a draft", "score: 3", "said"]
    assert [reply.get("text") for reply in second["replies"]] == [None]


# -- the head ------------------------------------------------------------------------------------

RESOLVED = {
    "scenario": {"id": "toy", "split": "test", "tasks": 30, "size": 4},
    "agents": {
        "a": {
            "behaviour": "user_llm",
            "policy": "main",
            "options": {"gate": "audit"},
            "policies": {"judge": "other"},
            "tools": ["python", {"search": {"folder": "texts"}}],
            "memory": {"window": 4},
        }
    },
    "policies": {
        "main": {
            "model": "openai/gpt-5",
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 300,
            "base_url": "http://secret.example:8000",
            "effort": "low",
        },
        "other": {"model": "transformers/small", "temperature": 1.0, "api_key_env": "MY_KEY"},
    },
    "run": {"seed": 11, "episodes_per_task": 2},
}
SETTINGS = "sizes Sizes(users=40, held_out=False, repeats=0.05), knobs Knobs(intents=(), ties=0)"
MANIFEST = {
    "command": "run",
    "overrides": [
        "run.seed=11",
        "policies.main.api_key=sk-0123456789abcdef",
        'policies."b=c".api_key=sk-0123456789abcdef',
    ],
    "seeds": {"run": 11, "evaluate": 1000000},
    "scenario": {"id": "toy", "version": 3},
    "data": {"name": "shop", "folder": None, "digest": "a" * 64, "knobs": SETTINGS},
    "models": {"other": {"model": "transformers/small", "digest": "b" * 64}},
}
TOLD = (
    "openai/gpt-5",
    "temperature 0.7",
    "top p 0.9",
    "max tokens 300",
    "effort low",
    "user_llm, policy main, judge other, tools python, search, memory ",
    ": 4} (gate audit)",
)
TOLD += (
    "toy version 3 (size 4)",
    "digest aaaaaaaaaaaa",
    "weights bbbbbbbbbbbb",
    "run 11, evaluate 1000000",
    "run.seed=11",
    "$1.25",
    "900 sampled",
)
TOLD += ("30 tasks of split test, 2 tries each", "1 failed", "; 1 lost;", "served gpt-5-2025")


def test_the_head_says_what_was_run_and_neither_key_nor_address(tmp_path: Path) -> None:
    played = [episode(0), episode(1, False), episode(2, end=End.FAILED)]
    with RunFolder.open(
        tmp_path / "run", config_text="", resolved=RESOLVED, manifest=MANIFEST
    ) as run:
        run.append(played)
        cost = {
            "requests": 3,
            "retries": 0,
            "prompt": 5000,
            "cached": 0,
            "completion": 900,
            "usd": 1.25,
        }
        more = {
            "costs": {"a": cost},
            "tokens": {"a": {"sampled": 900, "prompt": 5000}},
            "served": "gpt-5-2025",
        }
        run.write_summary({**JUDGE.summarise(played), **more})
    html = write_report(tmp_path / "run", judge=JUDGE).read_text()
    head = re.sub("<[^>]+>", " ", html[html.index('<section id="facts">') :])
    head = re.sub(r"\s+", " ", head)
    assert not [told for told in TOLD if told not in head]
    for hidden in ("secret.example", "MY_KEY", "sk-0123456789abcdef", "base_url"):
        assert hidden not in html
    assert "Sizes(" not in head and "sizes users 40, repeats 0.05, knobs none" in head
    both = write_report(
        out=tmp_path / "both.html",
        sections=[Section("two", runs={"x": tmp_path / "run", "y": tmp_path / "run"})],
    ).read_text()
    assert both.count("What was run: ") == 2 and both.count("openai/gpt-5") >= 2


@pytest.mark.parametrize("name", ["manifest.json", "resolved.yaml", "summary.json"])
@pytest.mark.parametrize(
    "damage",
    [
        None,
        "",
        "[1",
        "[]",
        '{"schema": 1, "git": 3, "data": [], "models": 7, "overrides": {}}',
        "a: [",
        "\x00",
    ],
)
def test_a_folder_that_tells_less_has_a_page_that_tells_less(
    tmp_path: Path, name: str, damage: str | None
) -> None:
    run = tmp_path / "run"
    page_of(run, [episode(0), episode(1, False)])
    if damage is None:
        (run / name).unlink()
    else:
        (run / name).write_text(damage)
    if name == "manifest.json" and damage is not None and not damage.startswith('{"schema"'):
        # nothing is sure of such a folder
        with pytest.raises(StoreError, match=r"manifest\.json") as caught:
            write_report(run, judge=JUDGE)
        assert "\n" not in str(caught.value)
        return
    html = write_report(run, judge=JUDGE).read_text()
    assert "Lost episodes" in html and "test/1" in html


def test_a_run_of_the_oldest_schema_has_a_page(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "run-schema-1", tmp_path / "run")
    html = write_report(tmp_path / "run").read_text()
    assert 'id="transcripts"' in html and 'class="facts"' in html
