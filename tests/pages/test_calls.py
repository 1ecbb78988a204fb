"""The model calls of a turn in the viewer: what a server was really sent, what came back, and what
may not be rebuilt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gem_ma.cli.main import main
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Message
from gem_ma.pages.live import calls as live_calls
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.transcript import key_of
from gem_ma.record.codec import dump_episode
from gem_ma.runs.store import read_episodes
from tests.browser import Browser
from tests.fault_server import FaultServer, says
from tests.served import served

KEY = "sk-canary-0123456789abcdef"
CONFIG = """
scenario: {{id: dilemma, rounds: 4}}
agents:
  player_0: {{policy: main, behaviour: "{behaviour}"{memory}}}
  player_1: tit_for_tat
policies:
  main: {{model: openai/m, base_url: "{url}", api_key_env: MY_KEY, temperature: 0.25}}
"""
# it thinks before it acts, and draws what it thinks of
THINKER = """
from dataclasses import replace

from gem_ma import Action, Message

class Thinker:
    needs_policy = True
    def __init__(self, agent, sample, rng, task=None):
        self.agent, self.sample, self.rng = agent, sample, rng
    async def act(self, asked):
        word = self.rng.choice(["apples", "pears", "plums", "figs", "nuts", "limes"])
        thought = await self.sample((*asked.transcript, Message(f"Think of {word}.")), thread="a")
        reply = await self.sample((Message(thought.text),), legal=asked.legal, temperature=0.75)
        return reply.text
"""


def play(
    folder: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str = "direct", memory: str = ""
) -> list[Any]:
    """Plays four rounds at a server of ours, and gives the JSON that it was sent."""
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.chdir(folder)
    with FaultServer([says(f"cooperate, says {KEY}", model="m-2")]) as server:
        text = CONFIG.format(behaviour=behaviour, memory=memory, url=server.url)
        Path("talk.yaml").write_text(text, encoding="utf-8")
        assert main(["run", "talk.yaml", "-n", "2", "--out", "runs/one", "--quiet"]) == 0
        return [asked.body for asked in server.asked]


def found(site: Site, episode: Episode, step: int, agent: str = "player_0") -> dict[str, Any]:
    query = {"key": key_of(*episode.id), "step": str(step), "agent": agent}
    answer = site.answer("/run/one/calls", query)
    assert answer.status == 200, answer.body
    return dict(json.loads(answer.body))


def address(episode: Episode) -> str:
    return quote(key_of(*episode.id), safe="")


@pytest.mark.long
def test_what_is_shown_as_sent_is_what_the_server_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = play(tmp_path, monkeypatch, memory=", memory: {window: 2}")
    site = Site(tmp_path / "runs")
    shown = []
    for episode in read_episodes(tmp_path / "runs/one"):
        for step in range(4):
            told = found(site, episode, step)
            assert told["note"].startswith("Rebuilt from the record")
            (call,) = told["calls"]
            assert call["title"] == "call 1, main, openai/m"
            shown.append(json.loads(call["parts"][0][1]))
            assert KEY not in json.dumps(told)
            came = json.loads(call["parts"][1][1])
            assert (came["text"], came["model"]) == ("cooperate, says ***", "m-2")
    # a window of two messages, which the transcript does not have
    assert len(shown[3]["messages"]) < 5 and shown[3]["temperature"] == 0.25
    assert sorted(shown, key=str) == sorted(bodies, key=str) and len(bodies) == 8


@pytest.mark.long
def test_code_of_the_user_acts_again_only_where_the_folder_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thinker.py").write_text(THINKER)
    bodies = play(tmp_path, monkeypatch, "thinker.py:Thinker")
    episodes = [*read_episodes(tmp_path / "runs/one")]
    told = found(Site(tmp_path / "runs"), episodes[0], 2)
    assert "gem-ma view RUN --trust" in told["note"] and len(told["calls"]) == 2
    heading, text = told["calls"][0]["parts"][0]
    view = json.loads(text)
    assert heading == "what the agent was shown" and view["legal"] == ["cooperate", "defect"]
    assert [one["role"] for one in view["messages"][-2:]] == ["user", "user"]
    assert "pears" not in text and "sampling" not in view
    trusting = Site(tmp_path / "runs", trusted=True)
    shown = [
        json.loads(call["parts"][0][1])
        for episode in episodes
        for step in range(4)
        for call in found(trusting, episode, step)["calls"]
    ]
    assert sorted(shown, key=str) == sorted(bodies, key=str) and len(bodies) == 16


@pytest.mark.long
def test_what_does_not_repeat_itself_is_said_and_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, monkeypatch)
    folder = tmp_path / "runs/one"
    episode, other = read_episodes(folder)
    turns = list(episode.turns)
    turns[0] = replace(turns[0], action=replace(turns[0].action, text="I say another word"))
    lines = [dump_episode(replace(episode, turns=tuple(turns))), dump_episode(other)]
    (folder / "episodes.jsonl").write_text("\n".join([*lines, ""]))
    site = Site(tmp_path / "runs", trusted=True)
    note = found(site, episode, 3)["note"]
    assert "Not rebuilt" in note and "does not repeat what it did" in note
    assert "Rebuilt" in found(site, other, 3)["note"]
    for query in ({"step": "77", "agent": "player_0"}, {"step": "x", "agent": "nobody"}, {}):
        assert site.answer("/run/one/calls", {"key": key_of(*other.id), **query}).status == 404


@pytest.mark.long
def test_a_table_tells_its_tokens_and_how_it_sampled(tmp_path: Path) -> None:
    out = tmp_path / "runs/one"
    learn = ["train.steps=1", "train.episodes=8", "evaluate.episodes=2", "--quiet"]
    assert main(["train", "kuhn_table", *learn, "--out", str(out)]) == 0
    episode = next(iter(read_episodes(out)))
    turn = episode.turns[0]
    (call,) = found(Site(tmp_path / "runs"), episode, turn.step, turn.agent)["calls"]
    parts = dict(call["parts"])
    sent = json.loads(parts["sent"])
    assert sent["sampling"]["temperature"] == 1.0 and sent["legal"] == list(turn.legal or ())
    assert sent["messages"][0]["content"] == turn.observed[0].content
    ids = " ".join(map(str, turn.replies[0].token_ids))
    assert parts["sampled, 1 token ids from the record"] == ids


@pytest.mark.longest
def test_one_click_shows_a_request_of_many_messages_that_the_page_did_not_hold(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, monkeypatch)
    folder = tmp_path / "runs/one"
    episode, other = read_episodes(folder)
    many = tuple(Message(f"<b>{number}</b> " + "word " * 30) for number in range(300))
    turns = (replace(episode.turns[0], observed=many), *episode.turns[1:])
    lines = [dump_episode(replace(episode, turns=turns)), dump_episode(other)]
    (folder / "episodes.jsonl").write_text("\n".join([*lines, ""]))
    monkeypatch.setattr(live_calls, "MOST", 30_000)
    with served(Site(tmp_path / "runs")) as port:
        here = f"http://127.0.0.1:{port}"
        browser.visit(f"{here}/run/one#/r/one/e/{quote(key_of(*other.id), safe='')}")
        browser.until("!!document.querySelector('details.calls')")
        count = "document.querySelectorAll('details.calls').length"
        assert browser.run(count) == 4  # the bot asks no model
        assert browser.run("document.querySelectorAll('.calls pre').length") == 0
        browser.click(".calls summary", "request and reply of the model")
        browser.until("!!document.querySelector('.calls pre')")
        assert '"temperature": 0.25' in browser.text(".calls pre")
        browser.visit(f"{here}/run/one#/r/one/e/{quote(key_of(*episode.id), safe='')}")
        browser.until("!!document.querySelector('details.calls')")
        browser.click(".calls summary", "request and reply of the model")
        browser.until("!!document.querySelector('.calls pre')")
        text = browser.run("document.querySelector('.calls pre').textContent")
        assert len(text) < 31_000 and text.endswith("more characters are left out]")
        browser.size(390)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert [fault for fault in browser.faults() if not fault.startswith(here)] == []
