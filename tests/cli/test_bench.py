"""Scorecards: who is meant, chance and oracle beside a model, a skill that is planted, what is kept
after a kill, and which scorecards are not compared."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from gem_ma.agents.direct import Choices

import gem_ma.cli.bench as bench_command
from gem_ma import Asked, Message, Reply
from gem_ma.cli.main import main
from gem_ma.config.battery import load_battery, shipped_battery
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.pages.static.bench import bench_markdown, row_facts
from gem_ma.runs.bench import player_of, read_card
from gem_ma.runs.open import open_config
from gem_ma.scores.scorecard import differences, row_score
from tests import fault_server
from tests.command_line import gem_ma
from tests.fault_server import FaultServer, says, status

DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALL = """
title: Three skills
seed: 5
chance_plays: 2
rows:
  deal:
    skill: makes a deal
    scenario: {id: negotiation}
    seat: party_1
    others: {party_2: negotiation_simple}
    oracle: negotiation_strong
    score: return party_1
    tasks: 60
  ring:
    skill: agrees
    scenario: {id: network, agents: 3, rounds: 2}
    seat: node_0
    others: {"node_*": network_strong}
    oracle: network_strong
    tasks: 60
  teach:
    skill: teaches
    scenario:
      id: guess_number
      turns: 2
      wrappers: [{teamwork: {pattern: teach, every: 0, talk: signals, signals: [lowest, low, middle, high, highest]}}]
    seat: teacher
    others: {pupil: number_taught}
    oracle: number_taught
    tasks: 60
"""
RUBBISH = ["--set", "replies=[what]", "--set", "repeat=true"]


@pytest.fixture
def battery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(bench_command, "shipped_battery", lambda: path)
    monkeypatch.chdir(tmp_path)
    return path


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["bench", *words, "--json", "--quiet"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.longest
def test_random_is_at_chance_and_the_oracle_at_its_reference(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = bench(capsys, "random", "oracle")
    blind, best = (model["rows"] for model in told["models"])
    assert [*blind] == ["deal", "ring", "teach"]
    for row in blind:
        gap = blind[row]["from_chance"]
        assert gap["low"] <= 0 <= gap["high"] and blind[row]["verdict"] == "chance"
        assert blind[row]["mean"] != 0
        assert best[row]["mean"] == best[row]["oracle"]["mean"]
        assert best[row]["share"] == 1 and best[row]["verdict"] == "oracle"
        assert told["differences"][row]["low"] > 0
    assert best["teach"]["mean"] == 1
    assert "Three skills" in Path(told["report"]).read_text()


@pytest.mark.longest
def test_a_skill_that_is_planted_moves_its_row_alone(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bench(capsys, "random", "random,ring=oracle")["differences"]
    assert found["ring"]["low"] > 0 and found["ring"]["p_adjusted"] < 0.01
    for row in ("deal", "teach"):
        assert found[row]["low"] <= 0 <= found[row]["high"]


@pytest.mark.longest
def test_rubbish_scores_low_and_failed_plays_are_counted(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = bench(capsys, "scripted/x", *RUBBISH)
    (rows,) = (model["rows"] for model in told["models"])
    assert rows["ring"]["mean"] == 0 and rows["ring"]["unread"] == 1
    assert rows["ring"]["calls"] == 180 and rows["ring"]["failed"] == 0
    assert rows["deal"]["verdict"] != "oracle" and rows["teach"]["verdict"] == "chance"
    # a script of one line has no second answer
    (rows,) = (m["rows"] for m in bench(capsys, "scripted/x", *RUBBISH[:2])["models"])
    assert rows["ring"]["failed"] == rows["ring"]["tasks"] == 60 and rows["ring"]["mean"] == 0


@pytest.mark.longest
def test_a_server_that_is_away_is_no_score(
    battery: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    answers: Iterator[fault_server.Answer] = iter(())  # is away

    def script(asked: fault_server.Asked) -> fault_server.Answer:
        return next(answers, status(500))

    with FaultServer(script) as server:
        at = ["openai/m", "--base-url", server.url, "--set", "attempts=1", "--only", "ring"]
        assert main(["bench", *at, "--quiet"]) == 1
        assert "never spoke" in capsys.readouterr().err
        card = Path("runs/bench/openai-m/scorecard.jsonl")
        assert not card.exists()
        # goes away after a while
        answers = iter([says("north")] * 150)  # of 180
        assert main(["bench", *at, "--quiet"]) == 0
        told = re.search(r"ring, model: (\d+) plays failed by no fault", capsys.readouterr().err)
        assert told is not None and 0 < int(told[1]) < 60
        before = json.loads(card.read_text().splitlines()[1])
        # is back
        answers = repeat(says("north"))
        assert bench(capsys, *at)["models"][0]["rows"]["ring"]["failed"] == 0
        assert before["faults"] == before["failed"] == int(told[1])
        asked = len(server.asked)
        assert bench(capsys, *at)["models"][0]["rows"]["ring"]["failed"] == 0
        assert len(server.asked) == asked


@pytest.mark.long
def test_a_name_that_means_another_player_by_now_has_no_old_score(
    battery: Path, tmp_path: Path
) -> None:
    config = """
scenario: {id: dilemma}
agents: {player_*: {policy: main}}
policies: {main: {model: table/softmax}}
train: {policies: [main], steps: 1, episodes: 8, estimator: {name: reinforce}}
"""
    Path("learns.yaml").write_text(config)

    # in processes of their own: this one keeps the code that it has imported
    def typed(*words: str) -> tuple[int, str]:
        done = gem_ma(*words, "--quiet", cwd=tmp_path)
        return done.returncode, done.stderr

    for seed in (0, 1):
        source = f"def Mine(messages, legal, rng):\n    return legal[{seed}]\n"
        Path("mine.py").write_text(source)
        assert typed("train", "learns.yaml", f"run.seed={seed}", "--out", f"learned{seed}")[0] == 0
        shutil.copy(f"learned{seed}/models/main", "weights")
        for name in ("mine.py:Mine", "table/weights"):
            asked = ("bench", name, "--battery", "small.yaml", "--only")
            code, told = typed(*asked, "ring")
            if not seed:
                assert code == 0, told
                continue
            assert code == 2 and "another --out" in told
            # neither does a row of now stand beside rows of then
            code, told = typed(*asked, "teach")
            assert code == 2 and "is another one in row 'teach'" in told
            assert typed(*asked, "ring", "--out", "anew")[0] == 0


@pytest.mark.longest
def test_the_same_command_goes_on_where_it_stopped(
    battery: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = bench(capsys, "random", "--out", "whole")
    real = bench_command.play
    played: list[str] = []

    def stops(loaded: Any, path: Path, **more: Any) -> int:
        played.append(path.parent.name + path.name[:4])
        if len(played) == 5:
            raise KeyboardInterrupt
        return real(loaded, path, **more)

    monkeypatch.setattr(bench_command, "play", stops)
    assert main(["bench", "random", "--out", "cut", "--quiet"]) != 0
    # a play of the cell that was under way is on record, and the next one was torn
    cut = next((tmp_path / "cut" / "oracle").glob("deal*")) / "episodes.jsonl"
    lines = cut.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:7]) + lines[7][:40])
    monkeypatch.setattr(bench_command, "play", real)
    capsys.readouterr()
    again = bench(capsys, "random", "--out", "cut")
    assert again["models"][0]["rows"] == whole["models"][0]["rows"]
    capsys.readouterr()
    assert main(["bench", "random", "--out", "cut", "--quiet"]) == 0
    assert "..." not in capsys.readouterr().err


@pytest.mark.longest
def test_scorecards_of_another_battery_are_not_compared(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "random", "--out", "a", "--quiet"]) == 0
    assert main(["bench", "oracle", "--out", "b", "--seed", "6", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["bench", "a/random", "b/oracle"]) == 2
    told = capsys.readouterr().err
    assert "b/oracle: a scorecard of battery" in told and "not compared" in told
    assert main(["bench", "b/oracle", "oracle", "--out", "b", "--seed", "6"]) == 0
    battery.write_text(SMALL.replace("tasks: 60", "tasks: 59", 1))
    for words in (["random", "--out", "a"], ["a/random"], ["a/random/scorecard.jsonl"]):
        assert main(["bench", *words]) == 2
    # words change nothing
    battery.write_text(SMALL.replace("makes a deal", "deals"))
    assert main(["bench", "a/random"]) == 0


COIN = """
from gem_ma import Ask, Reward, Scenario


class Coin(Scenario):
    \"\"\"Calls out a side of a coin.\"\"\"

    agents = ("me",)

    def play(self, rng, task):
        said = yield Ask({"me": "Which?"}, legal=("heads", "tails"))
        yield Reward({"me": 1.0 * (said["me"].parsed == "heads")}, why="coin")
"""
COINS = """
title: A world in a file
seed: 5
rows:
  coin:
    skill: calls
    scenario: {id: coin.py}
    seat: me
    oracle: first_legal
    score: return me
    tasks: 4
"""


@pytest.mark.long
def test_scorecards_of_one_file_that_changed_meanwhile_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "coins.yaml").write_text(COINS)

    # in processes of their own: this one keeps the code that it has imported
    def typed(*words: str) -> tuple[int, str]:
        named = ("--battery", "coins.yaml", "--quiet")
        done = gem_ma("bench", *words, *named, cwd=tmp_path)
        return done.returncode, done.stderr

    for out, paid in (("a", "1.0"), ("b", "5.0")):
        (tmp_path / "coin.py").write_text(COIN.replace("1.0", paid))
        assert typed("random", "--out", out)[0] == 0
    code, told = typed("a/random", "b/random")
    assert code == 2 and "row 'coin': coin.py was another file" in told
    assert typed("a/random", "a/random")[0] == 0


@pytest.mark.longest
def test_rows_that_were_not_asked_for_stay(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in ("ring", "deal"):
        assert [*bench(capsys, "random", "--only", row)["models"][0]["rows"]] == [row]
    assert [*bench(capsys, "runs/bench/random")["models"][0]["rows"]] == ["deal", "ring"]
    assert main(["bench", "runs/bench/random", "--set", "max_tokens=3"]) == 2
    assert "these are scorecards" in capsys.readouterr().err


@pytest.mark.longest
def test_models_whose_folders_are_called_alike_share_no_scorecard(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(capsys, "scripted/a:b", *RUBBISH, "--only", "ring")
    (card,) = Path("runs/bench").glob("*/scorecard.jsonl")
    before = card.read_bytes()
    for words in (["--only", "deal"], []):
        assert main(["bench", "scripted/a-b", *RUBBISH, *words, "--quiet", "--yes"]) == 2
        told = capsys.readouterr().err
        assert "scripted/a:b" in told and "this model is scripted/a-b" in told
    assert card.read_bytes() == before
    # the same model, written otherwise
    bench(capsys, "scripted/a:b/", *RUBBISH, "--only", "deal")


@pytest.mark.longest
def test_a_trained_run_is_scored_as_it_ended(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = """
scenario: {id: network, agents: 3, rounds: 2}
agents: {node_0: {policy: main}, node_*: network_strong}
policies: {main: {model: table/softmax}}
train: {policies: [main], steps: 1, episodes: 8, estimator: {name: rebn}}
evaluate: {episodes: 4}
"""
    Path("learns.yaml").write_text(config)
    assert main(["train", "learns.yaml", "--out", "trained", "--quiet"]) == 0
    capsys.readouterr()
    (rows,) = (m["rows"] for m in bench(capsys, "trained", "--only", "ring")["models"])
    assert rows["ring"]["calls"] == 180 and rows["ring"]["failed"] == 0
    (resolved,) = Path("runs/bench/trained").glob("ring-*/resolved.yaml")
    assert "model: table/trained/models/main\n" in resolved.read_text()
    # trained anew in place: no longer what the run says of itself
    assert main(["train", "learns.yaml", "run.seed=1", "--out", "other", "--quiet"]) == 0
    shutil.copy("other/models/main", "trained/models/main")
    capsys.readouterr()
    assert main(["bench", "trained", "--only", "ring", "--out", "new", "--quiet"]) == 2
    assert "not the weights that the run wrote down" in capsys.readouterr().err
    assert not Path("new").exists()
    bench(capsys, "table/trained/models/main", "--only", "ring")
    Path("mine.py").write_text("def Mine(messages, legal, rng):\n    return legal[0]\n")
    (rows,) = (m["rows"] for m in bench(capsys, "mine.py:Mine", "--only", "ring")["models"])
    assert rows["ring"]["calls"] == 0


def test_an_adapter_is_asked_with_the_options_that_it_was_trained_with(battery: Path) -> None:
    options = {"max_tokens": 7, "temperature": 0.5, "constrain": "legal"}
    main = {"model": "transformers/base", "lora": {"rank": 2}, "top_p": None, **options}
    Path("tuned").mkdir()
    Path("tuned/manifest.json").write_text("{}")
    resolved = {"policies": {"main": main}, "train": {"policies": ["main"]}}
    Path("tuned/resolved.yaml").write_text(json.dumps(resolved))
    summary = {"models": {"main": {"engine": "transformers", "path": "models/main"}}}
    Path("tuned/summary.json").write_text(json.dumps({**summary, "weights": {"main": "ab"}}))
    shipped = load_battery(battery)
    part = player_of("tuned", shipped, {"temperature": 1}).parts["ring"]
    assert part.policy == {
        "model": "transformers/tuned/models/main",
        **options,
        "temperature": 1,
    }
    assert part.asks == "direct" and part.weights == "ab"
    # other digests belong to another type
    assert player_of("tuned", shipped, {"dtype": "float16"}).parts["ring"].weights is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rndom"], "did you mean 'random'"),
        (["direct"], "name the model"),
        (["transformers/nowhere", "--yes"], "no model folder 'nowhere'"),
        (["opnai/x"], "a model is ENGINE/NAME"),
        (["random,rnig=oracle"], "did you mean 'ring'"),
        (["random,ring=oracle,ring=random"], "one row twice"),
        (["openai/x", "--set", "top_k=1", "--set", "top_k=2"], "set before"),
        (["openai/x", "--set", "price=1", "--set", "price.input=2"], "set before"),
        (["openai/x", "--set", "price.input=1", "--set", "price.input.x=2"], "set before"),
        (["openai/x", "--set", "price.input=1", "--set", "price=2"], "set before"),
        (["random", "--only", "rnig"], "did you mean 'ring'"),
        (["random", "--set", "max_tokens=3"], "nothing to set"),
        (["a", "b", "c"], "one model or two"),
        (["nowhere.py:Mine"], "no such file"),
        (["runs/nowhere"], "no model, run folder or behaviour"),
        (["scripted/x", *RUBBISH, "--battery", "large.yaml"], "--yes"),
    ],
)
def test_what_cannot_be_played_is_one_line(
    battery: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    Path("large.yaml").write_text(SMALL.replace("tasks: 60", "tasks: 900"))
    assert main(["bench", *words]) == 2
    assert told in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_wrong_battery_is_refused_with_its_line(battery: Path) -> None:
    battery.write_text(SMALL.replace("seat: node_0", "saet: node_0"))
    with pytest.raises(ConfigError, match=r"small.yaml:\d+: rows.ring.saet: unknown key"):
        load_battery(battery)
    battery.write_text(SMALL.replace("id: negotiation", "di: negotiation"))
    with pytest.raises(ConfigError, match=r"rows\.deal\.scenario: wants the id"):
        load_battery(battery)


@pytest.mark.long
def test_a_score_that_is_not_there_is_named(
    battery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    battery.write_text(SMALL.replace("return party_1", "return party_3"))
    assert main(["bench", "random", "--quiet", "--only", "deal"]) == 2
    assert "rows.deal.score: its plays have no 'return party_3'" in capsys.readouterr().err


def test_a_damaged_scorecard_is_named(tmp_path: Path) -> None:
    file = tmp_path / "scorecard.jsonl"
    for text in ("", '{"bench": 1}\n', "no\n"):
        file.write_text(text)
        with pytest.raises(StoreError, match=r"scorecard\.jsonl.*no scorecard"):
            read_card(file)


@pytest.mark.parametrize("hostile", ["x", None, {}, 10**400, ["x"], [0.5], "absent"])
def test_whatever_stands_in_a_scorecard_is_told_in_a_line(
    hostile: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, first, *others = (DOCS / "bench" / "random.jsonl").read_text().splitlines()
    file = tmp_path / "scorecard.jsonl"
    for number, line in enumerate((head, first)):
        for key in json.loads(line):
            changed = {**json.loads(line), key: hostile}
            if hostile == "absent":
                del changed[key]
            lines = [head, first]
            lines[number] = json.dumps(changed)
            file.write_text("\n".join([*lines, *others]) + "\n")
            code = main(["bench", str(file), "--out", str(tmp_path)])
            told = capsys.readouterr()
            assert "Traceback" not in told.err
            # names may be any text, and numbers that only counts are of may be any number
            assert code in (0, 1, 2) and not (code == 0 and key == "values")
            assert code == 0 or (told.out == "" and str(file) in told.err), (key, told.err)


def test_choices_stand_behind_their_questions_and_stay_there() -> None:
    shown: list[list[str]] = []

    async def sample(messages: Any, **more: Any) -> Reply:
        shown.append([message.text for message in messages])
        return Reply("b")

    async def plays() -> None:
        behaviour = Choices("me", sample, random.Random(0))
        said = (Message("first?", "scenario"),)
        for legal, question in ((("a", "b"), "then?"), (None, "last?"), (("c",), "")):
            asked = Asked(said[-1:], said, legal, (), 0)
            await behaviour.act(asked)
            said = (*said, Message("b", "me"), Message(question, "scenario"))

    asyncio.run(plays())
    one, two, three = shown
    assert one == ["first?", "Answer with one of these, and nothing else: a | b"]
    assert two == [*one, "b", "then?"]
    assert three[: len(two)] == two and three[-1].endswith(": c")


def test_scores_hold_together() -> None:
    blind, best = [0.0, 1.0] * 20, [1.0] * 20
    one = row_score([0.0, 1.0] * 10, blind, best, plays=2, rows=1, rate=True)
    many = row_score([0.0, 1.0] * 10, blind, best, plays=2, rows=12, rate=True)
    assert many.score.low < one.score.low and many.from_chance.low < one.from_chance.low
    assert one.verdict == "chance" and one.share == 0
    assert row_score([0.0] * 40, blind, best, plays=2, rows=1, rate=True).verdict == "below chance"
    equal = differences({"a": ([1.0] * 9, [1.0] * 9, False), "b": ([0.0] * 9, [0.0] * 9, True)})
    assert equal["a"]["low"] == equal["a"]["high"] == 0 and equal["b"]["low"] < 0


@pytest.mark.long
def test_the_shipped_battery_opens() -> None:
    battery = load_battery(shipped_battery())
    assert len(battery.rows) == 12 and re.fullmatch("[0-9a-f]{12}", battery.digest)
    model = player_of("scripted/echo", battery, {})
    for row in battery.rows:
        for player in (model, *battery.beside().values()):
            assert open_config(battery.load(row, player)).worlds.played


def test_the_page_of_the_docs_is_made_of_its_scorecards() -> None:
    battery = load_battery(shipped_battery())
    cards = [read_card(file) for file in sorted((DOCS / "bench").glob("*.jsonl"))]
    for card in cards:
        card.check(battery, card.model)
    assert bench_markdown(battery, cards) in (DOCS / "bench.md").read_text("utf-8")
    # what is committed is at chance, all rows together
    (blind,) = (card for card in cards if card.model == "random")
    for one in row_facts(battery, blind).values():
        assert one["from_chance"]["low"] <= 0 <= one["from_chance"]["high"]
