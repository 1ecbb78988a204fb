"""A browser as an agent's tool: Playwright's own MCP server drives a headless Chromium."""

from __future__ import annotations

import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from gem_ma import Action, Game, ToolCall
from gem_ma.config import load
from gem_ma.runs.plans import scenario_of
from tests.browser import Browser
from tests.worlds.shop_pages import shop

SERVER = Path(sys.prefix, "node_modules/.bin/playwright-mcp")
CHROMIUM = Browser.find()
pytestmark = [
    pytest.mark.worlds,
    pytest.mark.skipif(
        not (find_spec("mcp") and SERVER.exists() and CHROMIUM),
        reason="needs mcp, Playwright's server and a Chromium",
    ),
]
# as in docs/tools.md
CONFIG = """
scenario: {{id: guess_number, tasks: 1}}
agents:
  player:
    behaviour: random_legal
    tools:
      - mcp:
          command: [{server}, --headless, --isolated, --no-sandbox, --snapshot-mode, none,
                    --codegen, none, --output-dir, {folder}, --executable-path, {chromium}]
          only: [browser_navigate, browser_snapshot, browser_click, browser_type]
          uses: 20
          timeout_s: 60
"""


def called(game: Game, name: str, **arguments: object) -> str:
    game.send({"player": Action("", (ToolCall("1", f"browser_{name}", arguments),))})
    return game.view("player")[-1].text


def place(game: Game, what: str) -> str:
    """Where something stands on the page, as a snapshot names it."""
    page = called(game, "snapshot")
    found = re.search(rf"{what}.*?\[ref=(\w+)\]", page)
    assert found, page
    return found[1]


def below(process: int) -> set[int]:
    """The processes that descend from one."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set[int](), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def test_a_browser_shops_forks_and_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(server=SERVER, chromium=CHROMIUM, folder=tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    loaded = load(config)
    scenario = scenario_of(loaded.config, base=loaded.base)
    before = below(os.getpid())
    with shop() as address:
        game, other = Game(scenario), Game(scenario)
        assert len(game.pending["player"].tools) == 4
        called(game, "navigate", url=address)
        called(game, "click", element="Lamp", target=place(game, 'link "Lamp"'))
        put = place(game, 'button "Put')
        for _ in range(2):
            called(game, "click", element="Put into the basket", target=put)
        # a play beside it has a browser of its own
        called(other, "navigate", url=f"{address}/lamp")
        assert "In the basket: 0" in called(other, "snapshot")
        fork = game.fork()
        pages = [called(each, "snapshot") for each in (game, fork)]
        assert "In the basket: 2" in pages[0]
        assert pages[0] == pages[1]
        for each, who in ((game, "Ada"), (fork, "Bo")):
            called(each, "click", element="Order", target=place(each, 'link "Order"'))
            field = place(each, 'textbox "Name"')
            called(each, "type", element="Name", target=field, text=who, submit=True)
            assert f"Thank you, {who}: 2 lamps" in called(each, "snapshot")
        started = below(os.getpid()) - before
        assert len(started) > 6  # three servers, three browsers
        for each in (game, fork, other):
            each.close()
    for _ in range(1_200):
        if not any(Path("/proc", str(process)).exists() for process in started):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("processes are left")
    assert list((tmp_path / "here").iterdir()) == []
