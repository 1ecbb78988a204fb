"""Programs that sit in seats of plays in this process, over a real loopback socket."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.episode import Episode, Limits, Seat
from gem_ma.kernel.scenario import Ask, Reward, Scenario, Tell
from gem_ma.kernel.types import Message, Sampling, Tool, ToolCall
from gem_ma.serving.desk import DESK, Desk
from gem_ma.serving.door import Door
from gem_ma.trainers.seat import Play, plays
from tests.plays import played_all

LOOK = Tool(
    "look", "Looks a word up.", {"type": "object", "properties": {"word": {"type": "string"}}}
)


class Counter(Scenario):
    """A clerk with a tool answers a guest who speaks twice; a pair of legal words ends it."""

    agents = ("clerk", "guest")

    def play(self, rng: Any, task: Any) -> Any:
        yield Tell(
            {"clerk": Message.system(f"Serve the guest. Your number is {rng.random():.6f}.")}
        )
        for _ in range(2):
            said = yield Ask({"guest": "What do you want?"})
            new: list[Message] = [Message(said["guest"].text, "guest")]
            while True:
                acted = (yield Ask({"clerk": new}, tools=(LOOK,)))["clerk"]
                calls = [call for call in acted.tool_calls if isinstance(call, ToolCall)]
                if not calls:
                    break
                new = [Message.tool(call.id, f"{call.arguments} is in stock") for call in calls]
            yield Tell({"guest": Message(acted.text or "(nothing)", "clerk")})
            yield Reward({"clerk": 0.25}, why="a guest was served")
        last = (yield Ask({"clerk": "Again?"}, legal=("yes", "no")))["clerk"]
        yield Reward({"clerk": 0.5 if last.parsed == "yes" else 0.0}, why="again")


def plans(count: int, **more: Any) -> list[Plan]:
    cast = {"clerk": Seat("program", "clerk"), "guest": Seat("direct", "guest")}
    return [
        Plan(Counter(), cast, seed=seed, **{"limits": Limits(max_steps=40), **more})
        for seed in range(count)
    ]


def policies(clerk: Any, **sampling: Any) -> dict[str, Policy]:
    guest = Scripted("guest", replies=["A chair, please.", "And a table."])
    return {
        "clerk": Policy("clerk", clerk, Sampling(**sampling)),
        "guest": Policy("guest", guest),
    }


@contextmanager
def served(desk: Desk, *programs: Callable[[str], None], **door: Any) -> Iterator[Door]:
    """A server, and programs that begin with its address, each in a thread. What one of them
    raises is raised here."""
    faults: list[BaseException] = []

    def guarded(program: Callable[[str], None]) -> None:
        try:
            program(opened.address)
        except BaseException as fault:
            faults.append(fault)
            desk.close()

    token = DESK.set(desk)
    try:
        with Door(desk, **door) as opened:
            threads = [threading.Thread(target=guarded, args=(program,)) for program in programs]
            for thread in threads:
                thread.start()
            yield opened
        for thread in threads:
            thread.join(20)
    finally:
        DESK.reset(token)
    if faults:
        raise faults[0]


def episodes(
    planned: Sequence[Plan],
    players: dict[str, Policy],
    *programs: Callable[[str], None],
    **desk: Any,
) -> list[Episode]:
    """The plays of these plans with these programs in the seat, in the order of the plans."""

    # a program that ends by a fault of its own would be waited for
    with served(Desk(**{"patience_s": 4.0, **desk}), *programs):
        return played_all(planned, players, concurrency=4)


class Client:
    """One connection to the server, which says what it was answered."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        self.connection.request(method, path, text, headers)
        response = self.connection.getresponse()
        said = response.read()
        if response.headers.get("Content-Type") == "text/event-stream":
            return response.status, said
        return response.status, json.loads(said or b"null")


def completions(
    play: Play, messages: Sequence[Any], change: dict[str, Any] | None = None, **more: Any
) -> tuple[int, Any]:
    client = Client("http://" + play.address.split("/")[2])
    path = "/" + play.base_url.split("/", 3)[3] + "/chat/completions"
    body = {"model": "any", "messages": list(messages), "tools": play.tools or None}
    return client.ask("POST", path, body | (change or {}) | more)


def passes_on(
    address: str, change: Callable[[dict[str, Any]], dict[str, Any]] = dict, **more: Any
) -> None:
    """A program that shows its model all that it is shown, and does what the model says."""
    for play in plays(address):
        history: list[Any] = []

        def answer(messages: list[Any], play: Play = play, history: list[Any] = history) -> Any:
            history.extend(messages)
            choice = {"structured_outputs": {"choice": play.legal}} if play.legal else {}
            status, whole = completions(play, history, **choice, **more)
            assert status == 200, whole
            history.append(change(whole["choices"][0]["message"]))
            return history[-1]

        play.run(answer)
