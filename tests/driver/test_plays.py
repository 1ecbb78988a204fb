"""Play in the browser: what a person is shown, what their answers do, how a play ends."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gem_ma.agents.bots import RandomLegal

from gem_ma import registry
from gem_ma.driver import rollout
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.small.human import Human
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Asked
from gem_ma.pages.live.site import Site
from gem_ma.registry import make
from gem_ma.runs.store import read_episodes
from tests.browser import Browser
from tests.served import served

SECRET, MINE = "b alone knows tiger-7731", "a alone knows heron-4402"
# b is told a secret, acts twice between the turns of a, and has a tool that a has not
WHISPERS = f"""
from gem_ma import Ask, Reward, Scenario, Tell, Tool

X = {{"type": "object", "properties": {{"x": {{"type": "integer"}}}}}}

class Whispers(Scenario):
    agents = ("a", "b")

    def play(self, rng, task):
        yield Tell({{"a": "{MINE}", "b": "{SECRET}"}})
        yield Ask({{"a": "Your word?"}}, tools={{"a": (Tool("note", "keeps a number", X),)}})
        for turn in range(2):
            yield Ask({{"b": f"{SECRET}: move {{turn}}"}}, legal={{"b": ("{SECRET} left",)}})
            yield Reward({{"b": 1.0}}, "{SECRET}")
            yield Tell({{"a": f"b made move {{turn}}"}})
        yield Ask({{"a": "Guess."}}, legal={{"a": ("left", "right")}})
        yield Tell({{"a": "It is over."}})
        yield Reward({{"a": 2.0}})
"""


class Client:
    """A site as a page of it asks."""

    def __init__(self, site: Site) -> None:
        self.site, self.bytes = site, b""

    def get(self, path: str, **query: str) -> Any:
        return self._read(self.site.answer(path, query))

    def post(self, path: str, **wish: Any) -> Any:
        return self._read(self.site.change(path, wish))

    def _read(self, answer: Any) -> Any:
        self.bytes += answer.body
        if answer.kind == "application/json":
            return json.loads(answer.body)
        return (answer.status, answer.body.decode())

    def begin(self, scenario: str, agent: str, seed: str = "3", **who: str) -> str:
        begun = self.post("/play/begin", scenario=scenario, agent=agent, seed=seed, who=who)
        assert isinstance(begun, dict), begun
        return f"/play/{begun['name']}"

    def act(self, play: str, turn: int, text: str) -> Any:
        return self.post(f"{play}/answer", **{"turn": turn, "text": text, "from": 0})

    def until(self, play: str, done: Callable[[Any], object]) -> Any:
        """The first state of a play of which this is true."""
        until = time.monotonic() + 30
        while not done(state := self.get(f"{play}/state")):
            assert time.monotonic() < until, state
            time.sleep(0.005)
        return state


def asked(state: Any) -> bool:
    return state["asked"] is not None


def over(state: Any) -> bool:
    return state["end"] is not None


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "whispers.py"
    path.write_text(WHISPERS)
    return str(path)


@pytest.fixture
def client(tmp_path: Path, file: str) -> Iterator[Client]:
    site = Site(tmp_path / "runs", scenario=file)
    yield Client(site)
    site.close()


def record(tmp_path: Path, play: str) -> Episode:
    (episode,) = read_episodes(tmp_path / "runs" / play.rpartition("/")[2])
    return episode


@pytest.mark.long
def test_a_play_shows_one_view_and_nothing_of_another(
    client: Client, file: str, tmp_path: Path
) -> None:
    play = client.begin(file, "a", b="random_legal")
    state = client.until(play, asked)
    assert [one["sender"] for one in state["messages"]] == ["scenario", "scenario"]
    assert state["asked"]["turn"] == 1 and state["asked"]["tools"][0][0] == "note"
    for path in ("/", "/play", "/play/scenario", play, "/run" + play.removeprefix("/play")):
        client.get(path, name=file)
    # b acts, and earns, between the two turns of a
    state = client.act(play, 1, "hello")
    assert state["asked"] == {"turn": 2, "legal": ["left", "right"], "tools": []}
    assert "b made move 1" in json.dumps(state["messages"])
    for path in ("/", "/play", play, "/run" + play.removeprefix("/play")):
        client.get(path)
    assert MINE.encode() in client.bytes
    assert b"tiger" not in client.bytes
    state = client.act(play, 2, "left")
    assert state["end"]["totals"] == [["a", "2"], ["b", "2"]] and state["end"]["error"] is None
    assert "It is over." in json.dumps(state["messages"])
    # what a sees at the end is still the view of a
    assert b"tiger" not in client.bytes
    # and the whole play opens as any other
    opened = client.get(f"/run{play.removeprefix('/play')}/episode", key=state["end"]["key"])
    assert SECRET in json.dumps(opened)
    assert record(tmp_path, play).cast["a"].policy == "a"


@pytest.mark.long
def test_what_the_others_do_comes_as_they_do_it(
    client: Client, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    allowed = [1]

    async def act(self: RandomLegal, asked: Asked) -> str:
        moves.append(asked.step)
        while len(moves) > allowed[0]:
            await asyncio.sleep(0.002)
        return asked.legal[0] if asked.legal else ""

    monkeypatch.setattr(RandomLegal, "act", act)
    monkeypatch.setattr("gem_ma.pages.live.plays.ANSWER_S", 0.0)
    play = client.begin(file, "a", b="random_legal")
    client.until(play, asked)
    # b has moved once and thinks about its second move
    client.act(play, 1, "hello")
    state = client.until(play, lambda state: "move 0" in json.dumps(state["messages"]))
    assert "move 1" not in json.dumps(state["messages"]) and not asked(state)
    assert b"tiger" not in client.bytes
    allowed[0] = 2
    assert "move 1" in json.dumps(client.until(play, asked)["messages"])
    # who leaves while the others play is not asked again
    moves.clear()
    monkeypatch.setattr("gem_ma.pages.live.plays.END_S", 0.0)
    play = client.begin(file, "a", b="random_legal")
    allowed[0] = 0
    client.until(play, asked)
    client.act(play, 1, "hello")
    assert not over(client.post(f"{play}/end"))
    allowed[0] = 2
    assert "who played it left" in client.until(play, over)["end"]["error"]


def test_a_record_is_that_of_the_terminal(client: Client, tmp_path: Path) -> None:
    play = client.begin("tic_tac_toe", "x", o="first_legal")
    client.until(play, asked)
    for turn, square in enumerate(("9", "8", "7"), start=1):
        client.act(play, turn, square)
    here = record(tmp_path, play)
    asks = Human("me", force=True, input=io.StringIO("9\n8\n7\n"), output=io.StringIO())
    plan = Plan(make("tic_tac_toe"), here.cast, here.task, here.seed)
    assert here == asyncio.run(rollout.play(plan, {"x": Policy("x", asks)}))


def test_a_turn_counts_once_and_a_typing_error_is_no_move(
    client: Client, file: str, tmp_path: Path
) -> None:
    play = client.begin(file, "a", b="random_legal")
    client.until(play, asked)
    for wrong, words in (("/nte 1", "did you mean /note"), ("/note 1 2", "too many")):
        state = client.act(play, 1, wrong)
        assert words in state["said"] and state["asked"]["turn"] == 1
    assert client.act(play, 1, "/note 7")["said"] == ""
    again = client.act(play, 1, "/note 7")
    assert again["said"] == "this turn is over already" and again["asked"]["turn"] == 2
    assert client.act(play, 7, "left")["said"] == "this turn is over already"
    assert "none of the moves" in client.act(play, 2, "up")["said"]
    assert over(client.act(play, 2, "2"))
    assert client.act(play, 2, "left")["said"] == "this turn is over already"
    mine = [turn.action for turn in record(tmp_path, play).turns if turn.agent == "a"]
    assert [action.parsed for action in mine] == [None, "right"]
    assert mine[0].tool_calls[0].arguments == {"x": 7}


@pytest.mark.long
def test_several_plays_of_one_start_stand_apart_and_are_there_again(client: Client) -> None:
    first, second = (client.begin("tic_tac_toe", "x") for _ in range(2))
    assert first != second
    for play in (first, second):
        client.until(play, asked)
    state = client.act(first, 1, "1")
    assert client.get(f"{second}/state")["asked"]["turn"] == 1
    # another tab, or the same one later: all of it from the beginning
    assert client.get(f"{first}/state")["messages"] == state["messages"]
    page = client.get("/play")[1]
    assert f'href="{first}"' in page and f'href="{second}"' in page


def test_a_page_asked_for_what_it_does_not_offer_says_so_with_scripts_too(client: Client) -> None:
    page = client.get("/play", scenario="openspiel:chess")[1]
    assert 0 < page.index("is offered here") < page.index("<noscript>")


@pytest.mark.parametrize("name", sorted(registry.builtin("scenarios")))
def test_every_shipped_scenario_is_played(client: Client, name: str, tmp_path: Path) -> None:
    agents = client.get("/play/scenario", name=name)["agents"]
    play = client.begin(name, agents[-1][0])
    state = client.until(play, lambda state: asked(state) or over(state))
    for _ in range(3):
        if over(state):
            break
        legal = state["asked"]["legal"] or ["a word"]
        state = client.act(play, state["asked"]["turn"], legal[0])
        state = client.until(play, lambda state: asked(state) or over(state))
    client.site.close()
    assert record(tmp_path, play).turns
    assert {"summary.json", "report.html"} <= {
        one.name for one in (tmp_path / "runs" / play[6:]).iterdir()
    }


WISH = {"scenario": "tic_tac_toe", "agent": "x", "seed": "", "who": {}}


@pytest.mark.parametrize(
    ("wish", "status", "words"),
    [
        ({"scenario": "os:system"}, 409, "is offered here"),
        ({"scenario": "evil.py"}, 409, "is offered here"),
        ({"scenario": "openspiel:chess"}, 409, "is offered here"),
        ({"scenario": ["x"]}, 409, "is offered here"),
        ({"agent": "nobody"}, 409, "no agent is called"),
        ({"agent": "x=human"}, 409, "no agent is called"),
        ({"seed": "-1"}, 409, "whole number"),
        ({"seed": "1e9"}, 409, "whole number"),
        ({"seed": "9" * 99}, 409, "whole number"),
        ({"who": {"x": "silent"}}, 409, "no other agent"),
        ({"who": {"o": "os:system"}}, 409, "no behaviour that is built in"),
        ({"who": {"o": "human"}}, 409, "no behaviour that is built in"),
        ({"who": {"o": "direct"}}, 409, "needs a model"),
        ({"who": ["x"]}, 400, "missing or wrong"),
        ({"who": None}, 400, "missing or wrong"),
    ],
)
def test_what_cannot_be_played_is_told_and_leaves_nothing(
    client: Client, wish: dict[str, Any], status: int, words: str, tmp_path: Path
) -> None:
    answer = client.post("/play/begin", **{**WISH, **wish})
    assert (answer[0], words in answer[1], answer[1].count("\n") <= 1) == (status, True, True), (
        answer
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "broken",
    ["    agents = property(len)", "    def tasks(self, split): raise ValueError('no data')"],
)
def test_a_scenario_that_cannot_be_made_is_told_in_one_line(
    client: Client, file: str, broken: str, tmp_path: Path
) -> None:
    Path(file).write_text(
        WHISPERS.replace('    agents = ("a", "b")', f'    agents = ("a", "b")\n{broken}')
    )
    for answer in (
        client.get("/play/scenario", name=file),
        client.post("/play/begin", **{**WISH, "scenario": file, "agent": "a"}),
    ):
        assert answer[0] in (404, 409) and answer[1].count("\n") == 1 and file in answer[1]
    assert not (tmp_path / "runs").exists()


def test_hostile_answers_change_nothing(client: Client) -> None:
    play = client.begin("tic_tac_toe", "x")
    client.until(play, asked)
    for wish in (
        {},
        {"turn": "1", "text": "1", "from": 0},
        {"turn": True, "text": "1", "from": 0},
        {"turn": 1, "text": 1, "from": 0},
        {"turn": 1, "text": "1", "from": "x"},
    ):
        assert client.post(f"{play}/answer", **wish)[0] == 400, wish
    for path in ("/play/none/answer", "/play/../answer", f"{play}/state", f"{play}/answer/x"):
        assert client.post(path, **{"turn": 1, "text": "1", "from": 0})[0] == 409, path
    for path in ("/play/none", "/play/none/state", f"{play}/x", f"{play}/state/x", "/play/begin"):
        assert client.get(path)[0] == 404, path
    assert client.get(f"{play}/state", **{"from": "-1"})["asked"]["turn"] == 1
    body: Any = ["no", "object"]
    assert client.site.change(f"{play}/answer", body).status == 400


def test_a_play_that_nobody_answers_ends_and_is_kept(tmp_path: Path) -> None:
    client = Client(Site(tmp_path / "runs"))
    client.site.plays.patience_s = 0.05
    play = client.begin("tic_tac_toe", "x")
    end = client.until(play, over)["end"]
    assert "nobody answered agent 'x'" in end["error"]
    assert client.act(play, 1, "1")["said"] == "this turn is over already"
    assert record(tmp_path, play).end.value == "failed"


def test_the_end_of_the_server_ends_its_plays_and_keeps_what_was_played(
    client: Client, tmp_path: Path
) -> None:
    play = client.begin("tic_tac_toe", "x")
    client.until(play, asked)
    client.act(play, 1, "1")
    client.site.close()
    episode = record(tmp_path, play)
    assert "the viewer ended" in str(episode.error) and episode.turns[0].action.parsed == "1"


def test_of_many_answers_at_once_one_counts(client: Client, tmp_path: Path) -> None:
    play = client.begin("tic_tac_toe", "x", o="first_legal")
    client.until(play, asked)
    with ThreadPoolExecutor(8) as many:
        told = list(many.map(lambda square: client.act(play, 1, str(square))["said"], range(2, 10)))
    assert sorted(told) == ["", *["this turn is over already"] * 7]
    client.post(f"{play}/end")
    assert sum(turn.agent == "x" for turn in record(tmp_path, play).turns) == 1


def test_a_viewer_of_one_run_opens_the_plays_that_it_began(tmp_path: Path) -> None:
    client = Client(Site(tmp_path / "runs", ("other",)))
    play = client.begin("tic_tac_toe", "x")
    client.site.close()
    assert client.get("/run" + play.removeprefix("/play"))[0] == 200
    assert client.get("/run/x")[0] == 404


def test_who_gives_up_ends_the_play(client: Client, tmp_path: Path) -> None:
    play = client.begin("tic_tac_toe", "x")
    client.until(play, asked)
    end = client.post(f"{play}/end")["end"]
    assert "who played it left" in end["error"] and record(tmp_path, play).end.value == "failed"
    assert client.post(f"{play}/end")["end"] == end


def test_who_plays_reads_all_of_a_long_text(client: Client, file: str) -> None:
    Path(file).write_text(WHISPERS.replace(MINE, "word " * 5_000 + MINE))
    state = client.until(client.begin(file, "a", b="silent"), asked)
    assert MINE in json.dumps(state["messages"])


def test_so_many_plays_at_once_and_no_more(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_ma.pages.live.plays.MOST_OPEN", 1)
    client.begin("tic_tac_toe", "x")
    assert "1 plays are open" in client.post("/play/begin", **WISH)[1]


def test_a_foreign_page_begins_no_play(tmp_path: Path) -> None:
    site = Site(tmp_path / "runs")
    with served(site) as port:
        ours = f"http://127.0.0.1:{port}"
        good = {"origin": ours, "x-gem-ma-token": site.token, "content-type": "application/json"}

        def begun(**headers: str) -> int:
            asks = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            asks.request("POST", "/play/begin", json.dumps(WISH), {**good, **headers})
            return asks.getresponse().status

        for foreign in (
            {"origin": "http://evil.example"},
            {"host": f"evil.example:{port}"},
            {"x-gem-ma-token": "x"},
            {"sec-fetch-site": "cross-site"},
            {"content-type": "text/plain"},
        ):
            assert begun(**foreign) == 403, foreign
        assert not (tmp_path / "runs").exists()
        assert begun() == 200
    site.close()


@pytest.mark.longest
def test_a_play_by_keys_in_the_browser(browser: Browser, tmp_path: Path, file: str) -> None:
    site = Site(tmp_path / "runs", scenario=file)
    with served(site) as port:
        here = f"http://127.0.0.1:{port}"
        browser.size(390)
        browser.scheme("dark")
        browser.visit(f"{here}/play?scenario={quote(file, safe='')}&agent=a")
        browser.until("!!document.querySelector('#cast input')")
        browser.run("document.querySelector('#cast input').focus()")
        browser.type("random_legal")
        browser.press("Enter")
        browser.until("document.activeElement?.localName === 'textarea'")
        browser.type("a <b>word</b>")
        browser.press("Enter")
        browser.until("!!document.querySelector('.moves button')")
        assert browser.text("#talk").count("a <b>word</b>") == 1
        assert SECRET not in browser.text("body")
        # Enter plays no move that nobody has chosen
        assert browser.run("document.activeElement.localName") == "textarea"
        browser.press("Enter")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        # the tab is loaded again, and the play is there
        browser.visit(browser.run("location.href"))
        browser.until("!!document.querySelector('.moves button')")
        browser.type("right")
        browser.press("Enter")
        browser.until("!!document.querySelector('#end a')")
        assert browser.text("#end").startswith("a (you)2b2")
        browser.press("Enter")
        browser.until("location.pathname.startsWith('/run/') && !!document.querySelector('.lanes')")
        assert SECRET in browser.text("#episode") and "right" in browser.text("#episode")
        assert [one for one in browser.faults() if not one.startswith(here)] == []
    site.close()
