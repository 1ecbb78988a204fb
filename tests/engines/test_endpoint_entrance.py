"""How a command line, a config and the environment say where a model is, and that a key goes to
the server alone that it was given for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.endpoint import endpoint
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import read_resolved
from tests.fault_server import Asked, FaultServer, says

KEY = "sk-canary-0c41f7"
Command = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable names an address or a key, and nothing was said before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(endpoint, "_WARNED", set())
    for name in (*endpoint.ADDRESSES, endpoint.OPENAI_KEY):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """(exit code, stderr) of a command in this process."""

    def run(*words: object) -> tuple[int, str]:
        code = main([str(word) for word in words])
        return code, capsys.readouterr().err

    return run


def key_of(asked: Asked) -> str:
    return asked.headers["authorization"].removeprefix("Bearer ")


RUN = ("run", "dilemma", "--player-0", "openai/m", "-n", 1, "--out", "out", "--quiet")


def policy_of(run: str = "out") -> dict[str, Any]:
    policy: dict[str, Any] = read_resolved(Path(run))["policies"]["player_0"]
    return policy


# -- the environment -----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name, key", [*zip(endpoint.ADDRESSES, ("", KEY), strict=True)])
def test_the_environment_says_where_openai_is_and_the_record_keeps_it(
    name: str,
    key: str,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FaultServer(lambda asked: says("cooperate")) as server:
        monkeypatch.setenv(name, f"{server.url}/")
        if key:
            monkeypatch.setenv(endpoint.OPENAI_KEY, key)
        assert command(*RUN)[0] == 0
        monkeypatch.delenv(name)
        told = [record.getMessage() for record in caplog.records]
        assert told == [f"policy 'player_0': its model is at {server.url} ({name})"]
        assert {key_of(asked) for asked in server.asked} == {key or "EMPTY"}
        before = len(server.asked)
        # where it was is on record: the variable is gone
        assert command("resume", "out", "scenario.tasks=2")[0] == 0 and len(server.asked) > before
    assert policy_of()["base_url"] == server.url
    assert policy_of().get("api_key_env") == (endpoint.OPENAI_KEY if key else None)


def test_an_address_of_the_config_goes_before_the_environment(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv(endpoint.OPENAI_KEY, KEY)
    with FaultServer(lambda asked: says("cooperate")) as server:
        assert command(*RUN, f"policies.player_0.base_url={server.url}")[0] == 0
    assert {key_of(asked) for asked in server.asked} == {"EMPTY"}


@pytest.mark.parametrize("option", [{"api_key_env": "MY_KEY"}, {"api_key": "a-key-of-sixteen"}])
def test_a_key_that_was_named_goes_to_no_host_that_only_the_environment_names(
    option: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is set, and the key of this policy"):
        OpenAI("m", policy="p", **option)
    OpenAI("m", policy="p", base_url="http://127.0.0.1:9/v1", **option)


def test_a_file_in_the_folder_cannot_send_a_key_of_the_environment_elsewhere(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultServer(lambda asked: says("cooperate")) as server:
        Path(".env").write_text(f"OPENAI_BASE_URL={server.url}\n", encoding="utf-8")
        monkeypatch.setenv(endpoint.OPENAI_KEY, KEY)
        code, told = command(*RUN)
        assert (code, len(server.asked)) == (2, 0) and "may be for another server" in told
        monkeypatch.delenv(endpoint.OPENAI_KEY)
        with open(".env", "a", encoding="utf-8") as file:
            file.write(f"OPENAI_API_KEY={KEY}\n")
        assert command(*RUN)[0] == 0
    assert {key_of(asked) for asked in server.asked} == {KEY}


@pytest.mark.parametrize("value", ["http://me:secret@h/v1", "h:8000", "http://h/v1?key=secret"])
def test_an_address_of_the_environment_that_is_none_is_a_line_without_it(
    value: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", value)
    code, told = command(*RUN)
    assert code == 2 and "OPENAI_BASE_URL: base_url" in told and value not in told


@pytest.mark.long
@pytest.mark.parametrize("value", ["http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/", "", None])
def test_the_address_is_the_one_that_openai_s_own_client_takes(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = pytest.importorskip("openai")
    monkeypatch.setenv(endpoint.OPENAI_KEY, KEY)
    if value is not None:
        monkeypatch.setenv("OPENAI_BASE_URL", value)
    theirs = str(openai.OpenAI().base_url).rstrip("/")
    assert OpenAI("m").base_url == (theirs or endpoint.OPENAI_URL)


# -- the command line ----------------------------------------------------------------------------

BOTH = ("run", "dilemma", "scenario.rounds=1", "-n", 1, "--quiet")
BOTH += ("--player-0", "openai/a", "--player-1", "openai/b")


def test_an_address_is_for_all_seats_or_for_one(command: Command) -> None:
    answer = says("cooperate")
    with FaultServer([answer]) as one, FaultServer([answer]) as other:
        assert command(*BOTH, "--out", "one", "--base-url", one.url)[0] == 0
        assert sorted(asked.body["model"] for asked in one.asked) == ["a", "b"]
        # the one of a seat goes before that of all, in whatever order, and by either spelling
        addresses = ("--base-url", f"player-1={other.url}", f"--base-url={one.url}")
        assert command(*BOTH, "--out", "two", *addresses)[0] == 0
        assert [asked.body["model"] for asked in (*one.asked[2:], *other.asked)] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--player-0", "openai/a", "--base-url", "player_1=http://h/v1"), "no seat of that name"),
        (("--player-0", "openai/a", "--base-url", "nobody=http://h/v1"), "seats: player_0"),
        (("--player-0", "first_legal", "--base-url", "http://h/v1"), "no seat has a model of"),
        (
            ("--player-0", "openai/a", "--base-url", "http://h/v1", "--base-url", "http://i/v1"),
            "one address is for all seats",
        ),
        (
            (
                *("policies.p.model=openai/a", "agents.player_0.policy=p"),
                *("agents.player_1.policy=p", "--base-url", "player_0=http://h/v1"),
            ),
            "its model is that of player_0 and player_1",
        ),
        (
            (
                *("--player-0", "openai/a", "policies.player_0.base_url=http://h/v1"),
                *("--base-url", "http://i/v1"),
            ),
            "typed twice",
        ),
    ],
)
def test_an_address_that_fits_no_seat_is_one_line(
    words: tuple[str, ...], said: str, command: Command
) -> None:
    code, told = command("check", "dilemma", *words)
    assert code == 2 and said in told


def test_every_refusal_is_said_at_once_with_its_place(command: Command) -> None:
    text = """
scenario: {id: dilemma, tasks: 1}
agents: {player_0: {policy: one}, player_1: {policy: two}}
limits: {usd: 1.0}
policies:
  one:
    model: openai/a
    extra_body: {model: c}
    api_key_env: NOT_SET
  two:
    model: openai/b
    base_url: nowhere
"""
    Path("run.yaml").write_text(text, encoding="utf-8")
    code, told = command("run", "run.yaml", "--out", "out")
    assert code == 2 and not Path("out").exists()
    for line, words in (
        (8, "policies.one.extra_body: extra_body may not hold 'model'"),
        (6, "policies.one: limits.usd cannot be kept without its price"),
        (6, "policies.one: the environment variable NOT_SET is not set"),
        (10, "policies.two: limits.usd cannot be kept"),
        (12, "policies.two.base_url: base_url is an address"),
    ):
        assert f"run.yaml:{line}: {words}" in told, told
    assert len(told.strip().splitlines()) == 5


def test_a_key_that_is_missing_names_the_way_to_a_server_of_one_s_own(command: Command) -> None:
    code, told = command(*RUN)
    assert code == 2 and "OPENAI_API_KEY is not set" in told and "--base-url" in told
