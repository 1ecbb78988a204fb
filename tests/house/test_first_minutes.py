"""What a newcomer types first: short forms, a seat at the terminal, files to begin with, keys in a
file, a list in order. Each does what it says, and a slip is one line."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.cli.seats import seated
from gem_ma.config.document import read
from gem_ma.config.loading import load
from gem_ma.config.settings import config_schema
from gem_ma.config.sources import shipped_configs
from gem_ma.system.env_file import variable
from tests.cli.test_cli_human import typed
from tests.hostile import one_line

SMALL = ("train.steps=40", "evaluate.episodes=64", "run.baselines=false")
LEARNS = ("config", "y", "--scenario", "dilemma", "--learns", "all")
KEY = "sk-this-is-only-a-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resolved(run: str) -> Any:
    return read((Path(run) / "resolved.yaml").read_text(), run).value


# -- short forms ---------------------------------------------------------------------------------


def test_an_agent_is_seated_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    seats = ["--player-0", "table/softmax", "--player_1=first_legal"]
    assert main(["run", "kuhn_poker", *seats, "-n", "2", "--out", "run", "--quiet"]) == 0
    config = resolved("run")
    assert config["policies"]["player_0"]["model"] == "table/softmax"
    assert config["agents"]["player_1"]["behaviour"] == "first_legal"
    # the same words, in another order, are the same run
    again = ["run", seats[2], *seats[:2], "kuhn_poker", "-n", "2", "--out", "run"]
    assert main([*again, "--json"]) == 0
    assert capsys.readouterr().out.count('"episodes": 2') >= 1


def test_a_model_is_asked_in_the_way_its_seat_needs() -> None:
    # an override of a policy that only the short form makes, and a seat before the source
    server = "policies.user.base_url=http://127.0.0.1:9/v1"
    source, words = seated("--user=openai/a", ["retail", server, "--assistant", "openai/b"])
    config = load(source, words).config
    behaviours = {agent: seat.behaviour for agent, seat in config.agents.items()}
    assert behaviours == {"user": "retail_user_llm", "assistant": "direct"}
    assert config.policies["user"].options["base_url"] == "http://127.0.0.1:9/v1"
    # a seat that has a model keeps how it asks it
    source, words = seated("retail_user_llm", ["--user", "openai/other"])
    config = load(source, words).config
    assert config.agents["user"].behaviour == "user_llm"
    assert config.policies[str(config.agents["user"].policy)].model == "openai/other"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--player_O", "first_legal"], "--player_0"),
        (["--jsno", "3"], "--json"),
        (["--player_0"], "--player_0 ENGINE/NAME"),
        (["--player_0", "--json"], "--player_0 ENGINE/NAME"),
        (["-x"], "-x"),
        (["--player_0", "gpt-4o"], "openai/gpt-4o"),
        (["--player_0", "anthropic/claude"], "openai/claude with policies.NAME.base_url"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_slip_names_what_was_meant(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("run", "check", "play"):
        assert main([command, "kuhn_poker", *words]) == 2
        assert named in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["run", "stall"], "stall.yaml' or 'stall.py"),
        (["check", "bazaar"], "bazaar.py"),
        (["run", "bazar.py"], "bazaar.py"),
        (["play", "bazar.py:Bazaar", "--as", "caller"], "bazaar.py"),
        (["run", "bazaar.py", "--caller", "bazaar.py"], "bazaar.py:Bazaar"),
        (["show", "stall"], "runs/stall-01234567"),
        (["score", "stall.yaml"], "runs/stall-01234567"),
        (["show", "runs/fair"], "runs/fair-01234567"),
        (["report", "fair"], "runs/fair-01234567"),
        (["new", "scenario", "my-market"], "as in my_market"),
        (["new", "scenario", "3 Markets.py"], "is a word"),
        (["run", "bazaar.py:Bazar"], "did you mean 'Bazaar'?"),
        (["train", "kuhn_poker"], "gem-ma train kuhn_deaf or"),
        # a key that other tools have as an option
        (["run", "bazaar.py", "--seed", "3"], "run.seed=... or evaluate.seed=...?"),
        (["run", "bazaar.py", "--baselines=false"], "run.baselines=...?"),
        (["run", "bazaar.py", "agents.caller.options.text=two", "words"], "wants quotes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_name_without_its_ending_or_its_digest_names_what_is_here(
    typed: list[str], meant: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "scenario", "bazaar"]) == 0
    (here / "stall.py").write_text((here / "bazaar.py").read_text())
    (here / "stall.yaml").write_text("scenario: {id: stall.py}")
    (here / "runs/stall-01234567").mkdir(parents=True)
    (here / "runs/stall-01234567/manifest.json").write_text("{}")
    (here / "runs/fair-01234567").mkdir()
    (here / "runs/fair-01234567/study.json").write_text("{}")
    capsys.readouterr()
    assert main(typed) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("seed", "'run.seed' or 'evaluate.seed'"),
        ("tasks", "'scenario.tasks'"),
        ("lr", "'train.lr'"),
        ("runn", "'run'"),
    ],
)
def test_a_key_without_its_section_names_the_section(
    key: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_line(capsys, ["run", "kuhn_poker", f"{key}=3"]) == 2
    assert main(["run", "kuhn_poker", f"{key}=3"]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


# -- play ----------------------------------------------------------------------------------------


@pytest.mark.longest
def test_a_person_plays_a_seat_and_sees_the_end(here: Path) -> None:
    words = ["play", "dilemma", "scenario.rounds=1", "--as", "player_0", "--out", "run"]
    code, seen = typed(words, ["coperate", "1"], here)
    assert code == 0, seen
    assert "is none of the moves" in seen and "the play is over" in seen
    assert "your return (player_0)" in seen and "--seed " in seen
    again = seen.split("look at it")[1].split("gem-ma ")[1].splitlines()[0].split()
    assert main(again) == 0


def test_a_seat_is_named_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line(capsys, ["play", "kuhn_poker"]) == 2
    assert one_line(capsys, ["play", "kuhn_poker", "--as", "player_7"]) == 2
    # no terminal: nobody would answer
    assert one_line(capsys, ["play", "kuhn_poker", "--as", "player_0"]) == 2
    assert not Path("runs").exists()


def test_every_play_has_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_ma.cli import play as command

    seen: list[tuple[int, Any]] = []

    def play(loaded: Any, *_: Any, **__: Any) -> int:
        seen.append((loaded.config.run.seed, loaded.config.only.tasks))
        return 0

    monkeypatch.setattr(command, "play", play)
    for number in range(4):
        assert main(["play", "retail", "--as", "user", "--out", f"{number}", "--json"]) == 0
    assert len(set(map(str, seen))) == 4 and all(len(tasks) == 1 for _, tasks in seen)
    assert main(["play", "retail", "--as", "user", "--seed", "3", "--json"]) == 0
    assert main(["play", "retail", "--as", "user", "--seed", "3", "--json"]) == 0
    assert seen[-1] == seen[-2] and seen[-1][0] == 3


# -- files to begin with -------------------------------------------------------------------------


@pytest.mark.longest
@pytest.mark.parametrize("agents", [["one"], ["buyer", "seller"], ["a", "b", "c"]])
def test_a_new_scenario_keeps_the_rules_and_is_learned(
    agents: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for agent in agents for word in ("--agent", agent)]
    assert main(["new", "scenario", "own_game", *words]) == 0
    assert main(["check", "own_game.py"]) == 0
    if len(agents) != 2:
        return
    assert main(["new", "config", "learn", "--scenario", "own_game.py", "--learns", "all"]) == 0
    capsys.readouterr()
    assert main(["train", "learn.yaml", "--quiet", "--json", *SMALL]) == 0
    summary = json.loads(capsys.readouterr().out)
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    assert before < 0.6 and after > 0.9


@pytest.mark.long
def test_new_agents_and_configs_play_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "agent", "mine"]) == 0
    assert main(["run", "dilemma", "--player_0", "mine.py:Mine", "-n", "2", "--quiet"]) == 0
    assert main(["new", "agent", "talker", "--model"]) == 0
    seat = 'agents.player_0={behaviour: "talker.py:Talker", model: table/softmax}'
    assert main(["run", "dilemma", seat, "-n", "2", "--quiet"]) == 0
    for name in ("dilemma", "retail"):
        assert main(["new", "config", f"my-{name}", "--scenario", name]) == 0
        assert main(["run", f"my-{name}.yaml", "-n", "2", "--quiet", "run.baselines=false"]) == 0
    before = Path("mine.py").read_text()
    capsys.readouterr()
    for words in (
        ["agent", "mine"],
        ["agent", "a b"],
        ["agent", "class"],
        ["scenario", "json"],
        ["scenario", "x", "--agent", "a", "--agent", "a"],
        ["config", "../x", "--scenario", "dilemma"],
        ["config", "y", "--scenario", "dilemma", "--learns", "nobody"],
        ["config", "y", "--scenario", "dilemma", "--clone", "first_legal"],
        [*LEARNS, "--clone", "first_lega"],
        [*LEARNS, "--clone", "nobody=first_legal"],
        [*LEARNS, "--clone", "player_1=first_legal"],
        [*LEARNS, "--clone", "first_legal", "--clone", "random_legal"],
    ):
        assert one_line(capsys, ["new", *words]) == 2, words
    assert Path("mine.py").read_text() == before and not list(Path().glob("x*"))


@pytest.mark.long
@pytest.mark.parametrize("learns", ["all", "bob"])
@pytest.mark.parametrize("agents", [("ann", "bob"), ("ann", "bob", "cat", "dan", "eve")])
def test_who_learns_begins_as_a_copy_of_the_player_that_comes_with_a_new_game(
    learns: str, agents: tuple[str, ...]
) -> None:
    words = [word for agent in agents for word in ("--agent", agent)]
    assert main(["new", "scenario", "own_game", *words]) == 0
    typed = ["new", "config", "learn", "--scenario", "own_game.py", "--learns", learns]
    assert main([*typed, "--clone", "own_game.py:told"]) == 0
    # whoever reads what it is told wins
    assert main(["run", "own_game.py", "agents.*=own_game.py:told", "--out", "run", "--quiet"]) == 0
    assert json.loads(Path("run/summary.json").read_text())["success"]["mean"] == 1
    clones = load("learn.yaml", []).config.train.warm_start
    assert set(clones) == (set(agents) if learns == "all" else {"bob"})
    for clone in clones.values():
        assert {seat.behaviour for seat in clone.cast.values()} == {"own_game.py:told"}


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """What our schema uses of JSON Schema, and no more."""
    if "$ref" in schema:
        return fits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return any(fits(value, one, whole) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return type(value) is int or (kind == "number" and type(value) is float)
    if kind in kinds and not isinstance(value, kinds[kind]):
        return False
    if isinstance(value, list):
        return all(fits(one, schema.get("items", {}), whole) for one in value)
    if not isinstance(value, dict):
        return True
    others = schema.get("additionalProperties", True)
    known = schema.get("properties", {})
    return all(
        fits(inner, known[key], whole) if key in known
        else others if isinstance(others, bool) else fits(inner, others, whole)
        for key, inner in value.items()
    )  # fmt: skip


@pytest.mark.long
def test_the_schema_lets_every_shipped_config_pass_and_no_slip(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == config_schema()
    for path in shipped_configs():
        assert fits(read(path.read_text(), path.name).value, schema, schema), path.name
    short = {
        "scenario": "retail",
        "agents": {"user": "retail_user", "assistant": {"model": "openai/x"}},
    }
    assert fits(short, schema, schema)
    for slip in ({"scenari": "x"}, {"run": {"sed": 3}}, {"train": {"steps": "many"}}, {"run": 3}):
        assert not fits(slip, schema, schema), slip


# -- keys in a file ------------------------------------------------------------------------------


def test_a_key_in_the_file_is_used_and_stands_nowhere(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    lines = f"\ufeff# keys\nexport MY_KEY='{KEY}'  # mine\nOTHER = plain#1 # words\nnonsense\n"
    (here / ".env").write_text(lines, encoding="utf-8")
    assert (variable("MY_KEY"), variable("OTHER"), variable("NONE")) == (KEY, "plain#1", "")
    seat = ["--player_0", "openai/x", "policies.player_0.api_key_env=MY_KEY"]
    server = ["policies.player_0.base_url=http://127.0.0.1:9/v1", "policies.player_0.attempts=1"]
    # the endpoint is out of reach, which is said after the key was found
    assert main(["run", "dilemma", *seat, *server, "-n", "1", "--out", "run", "--quiet"]) == 3
    out, err = capsys.readouterr()
    written = "".join(path.read_text() for path in Path("run").iterdir() if path.is_file())
    assert KEY not in out + err + written and "MY_KEY" in written
    assert os.environ.get("MY_KEY") is None
    # a config that holds the key itself is refused, as with one of the environment
    assert one_line(capsys, ["run", "dilemma", *seat, f"policies.player_0.model=openai/{KEY}"]) == 2
    monkeypatch.setenv("MY_KEY", "sk-of-the-environment-0123456789")
    assert variable("MY_KEY") == "sk-of-the-environment-0123456789"
    # what is no file of ours says nothing
    (here / ".env").unlink()
    os.mkfifo(here / ".env")
    assert variable("OTHER") == "" and stat.S_ISFIFO((here / ".env").stat().st_mode)


# -- a list in order -----------------------------------------------------------------------------


@pytest.mark.long
def test_runs_are_listed_by_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name, players in (("a", "first_legal"), ("b", "random_legal"), ("c", "first_legal")):
        seats = [f"--{agent}={players}" for agent in ("player_0", "player_1")]
        words = [
            "run",
            "dilemma",
            *seats,
            "-n",
            "3" if name == "c" else "2",
            f"run.seed={ord(name)}",
        ]
        assert main([*words, "--out", f"runs/{name}", "--quiet"]) == 0
    (Path("runs") / "broken").mkdir()
    (Path("runs") / "broken" / "manifest.json").write_text("{")
    capsys.readouterr()

    def names(*words: str) -> list[str]:
        assert main(["list", "runs", *words, "--json"]) == 0
        return [run["name"] for run in json.loads(capsys.readouterr().out)]

    assert names("--sort", "name") == ["a", "b", "broken", "c"]
    assert names("--sort", "episodes")[0] == "c" and names("--sort", "episodes")[-1] == "broken"
    by_return = names("--sort", "return player_0")
    assert by_return.index("b") == 2 or by_return[0] == "b"
    assert one_line(capsys, ["list", "runs", "--sort", "sucess"]) == 2
    assert one_line(capsys, ["list", "agents", "--sort", "name"]) == 2
