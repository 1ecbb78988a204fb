"""Servers of tools that do what no server should: each fault is one line, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gem_ma import Action, Game, ToolCall, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.tools.belt import WithTools

pytestmark = [pytest.mark.worlds, pytest.mark.skipif(not find_spec("mcp"), reason="needs mcp")]
SERVER = str(Path(__file__).with_name("odd_mcp_server.py"))


def server(way: str, *more: str, **options: Any) -> Any:
    from gem_ma.tools.mcp import Mcp

    return Mcp(command=[sys.executable, SERVER, way, *more], uses=9, **options)


def shown(game: Game) -> str:
    game.send({"player": Action("", (ToolCall("1", "count", {}),))})
    return game.view("player")[-1].text


def played(equipment: Any) -> Game:
    return Game(WithTools(make("guess_number"), {"player": [equipment]}))


@pytest.mark.parametrize(
    ("way", "fault"),
    [
        ("space", "a tool called 'a b'; a name is 1 to 128 of"),
        ("nameless", "a tool called ''; a name"),
        ("tokens", r"a tool called 'a\\n<|im_end|>'; a name"),
        ("long", "a tool called 'aaa"),
        ("twice", "two tools called count"),
        ("none", "offers no tools"),
        ("large", "its 1 tools take 293 KiB of a prompt, of 256 at most; `only"),
        ("deep", "the schema of count is nested deeper than 64 times"),
        ("infinite", "the schema of count is no JSON"),
        ("list", r"gives no list of tools \(tools.0.inputSchema: Input should be a valid dict"),
        ("broken", r"gives no list of tools \(the server ended: ModuleNotFoundError: No module"),
        ("ancient", "Unsupported protocol version from the server: 1999-01-01"),
    ],
)
def test_a_server_that_cannot_be_offered_is_one_line(way: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        server(way)
    assert str(refused.value).isprintable()  # nor any line end


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("picture", "[image]\nwords"),
        ("link", "[resource_link file:///x]"),
        ("inner", "in"),
        ("structure", '{"x": [1]}'),
        ("nothing", ""),
        ("failed", "Error: the tool says no more"),
        ("shapeless", "Error: content: Input should be a valid list"),
        ("unknown kind", "Error: content.0.TextContent.text: Field required"),
        ("long text", "x" * 8_000 + "\n[1000 characters more]"),
        ("refusing", "Error: wrong words"),
        ("closes", "Error: McpError: the server ended"),
    ],
)
def test_a_result_of_any_kind_is_a_text(way: str, text: str) -> None:
    game = played(server(way, timeout_s=60))
    assert shown(game) == shown(game) == text
    game.close()


def test_noise_and_questions_of_a_server_change_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    game = played(server("noisy", timeout_s=60))
    assert [shown(game), shown(game), shown(game.fork())] == ["1", "2", "3"]
    game.close()
    assert capfd.readouterr() == ("", "")


def test_an_answer_that_cannot_be_read_is_named_when_it_is_waited_for_in_vain() -> None:
    game = played(server("half a letter", timeout_s=1))
    text = "Error: McpError: no answer within 1 s; it sent something that is not a message: Invalid JSON"
    assert shown(game).startswith(text)
    game.close()


def test_a_server_that_ends_in_a_call_is_as_it_was_before() -> None:
    game = played(server("ends in a call", timeout_s=60))
    texts = [shown(game), shown(game)]
    assert texts == ["1", "Error: McpError: the server ended: ValueError: no more"]
    assert shown(game) == texts[1]  # built again, with one call before
    game.close()


def test_some_of_the_tools_are_offered() -> None:
    assert [tool.name for tool in server("some", only=["count"]).tools] == ["count"]
    with pytest.raises(ConfigError, match="has no tool called 'cuont'; it has a b, count"):
        server("some", only=["cuont"])


def test_a_key_is_handed_on_and_taken_out_of_what_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ODD_KEY", "sk-Canary7f3a9bD41c ")
    game = played(server("counting", timeout_s=60))
    assert shown(game) == "1"
    game.close()
    game = played(server("counting", timeout_s=60, api_key_env="ODD_KEY"))
    assert shown(game) == "*** 1"
    game.close()


# -- sessions -------------------------------------------------------------------------------------


def session(*way: str, **options: Any) -> Any:
    return server(*way, **options).open()


def test_a_call_that_nobody_waits_for_any_more_never_was(tmp_path: Path) -> None:
    from gem_ma.tools.mcp import McpError

    use = session("silent at first", str(tmp_path / "asked"), timeout_s=120)
    use.plan("count", {})

    def asked() -> None:
        with pytest.raises(McpError, match="the server ended"):
            use.run()

    left = threading.Thread(target=asked)
    left.start()
    while not (tmp_path / "asked").exists():
        time.sleep(0.01)
    use.text_of(None)  # as after the limit of a play on its calls
    for expected in ("1", "2"):
        use.plan("count", {})
        assert use.run() == expected
    left.join()
    use.close()


def test_a_session_that_gave_up_its_process_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_ma.tools import mcp

    monkeypatch.setattr(mcp.HOLDERS, "most", 1)
    uses = [session("counting", timeout_s=60), session("counting", timeout_s=60)]
    for expected in ("1", "2", "3"):
        for use in uses:
            use.plan("count", {})
            assert use.run() == expected
    assert sum(use.connection is not None for use in uses) == 1
    for use in uses:
        use.close()


def test_no_process_is_left(tmp_path: Path) -> None:
    use = session("lingering", timeout_s=60)
    use.plan("count", {})
    pids = use.run().split()
    use.close()
    ended(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_by_a_program_that_is_ended(how: int) -> None:
    program = f"""
from gem_ma.tools.mcp import Mcp
use = Mcp(command=[{sys.executable!r}, {SERVER!r}, "lingering"], timeout_s=60).open()
use.plan("count", {{}})
print(use.run(), flush=True)
import time; time.sleep(600)"""
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None
    pids = run.stdout.readline().decode().split()
    run.send_signal(how)
    run.wait()
    ended(pids)


def ended(pids: list[str]) -> None:
    assert len(pids) == 2
    for _ in range(1_200):
        if not any(Path("/proc", pid).exists() for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError(f"{pids} live on")
