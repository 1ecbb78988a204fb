"""Small correct scenarios of many shapes: the bases of the kit's mutants. All of them keep every
rule."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gem_ma import (
    Ask,
    Call,
    Image,
    Leave,
    Limits,
    Message,
    Reward,
    Scenario,
    Tell,
    Tool,
    ToolCall,
)
from gem_ma.kernel.errors import CallError

OFFERS = tuple(f"offer {price}" for price in (10, 20, 30))


class Haggle(Scenario):
    """Seller and buyer with secret numbers: four offers in turn, then both accept or not, at
    once."""

    agents = ("seller", "buyer")
    ends_within = 5

    def deal(self, rng, task):
        return {agent: rng.choice((10, 20, 30)) for agent in self.agents}

    def opening(self, agent, secret):
        return f"You are {agent}. Your number is {secret[agent]}."

    def legal(self, agent, secret):
        return OFFERS

    def read(self, action):
        return int(action.parsed.split()[1]) if action.parsed else 0

    def price(self, rng):
        return rng.choice((10, 20, 30))

    def pay(self, values):
        return values

    def play(self, rng, task):
        secret = self.deal(rng, task)
        yield Tell({agent: self.opening(agent, secret) for agent in self.agents})
        for number in range(4):
            agent, other = self.agents[number % 2], self.agents[(number + 1) % 2]
            said = yield Ask(
                {agent: f"Offer {number + 1}: name a price."}, legal=self.legal(agent, secret)
            )
            price = self.read(said[agent])
            yield Tell({other: f"The {agent} offers {price}."})
            yield Reward(self.pay({agent: 0.1}), why="offer")
        price = self.price(rng)
        said = yield Ask(
            dict.fromkeys(self.agents, f"The price is {price}. Deal?"), legal=("yes", "no")
        )
        if all(said[agent].parsed == "yes" for agent in self.agents):
            yield Reward(
                {"seller": price - secret["seller"], "buyer": secret["buyer"] - price}, why="deal"
            )


class Wolves(Scenario):
    """Four agents: talk in turn, a secret vote at once, deaths, and a reward before anybody is
    asked."""

    agents = ("ann", "bob", "cat", "dan")
    ends_within = 10

    def fall(self, rng, alive):
        return rng.choice(alive)

    def play(self, rng, task):
        alive = list(self.agents)
        yield Reward(dict.fromkeys(self.agents, 0.5), why="joined")
        while len(alive) > 2:
            for agent in alive:
                said = yield Ask({agent: f"{len(alive)} are left. Speak."})
                yield Tell(
                    {
                        other: Message(said[agent].text[:200], agent)
                        for other in alive
                        if other != agent
                    }
                )
            votes = yield Ask(
                dict.fromkeys(alive, "Whom do you send away?"),
                legal={agent: tuple(x for x in alive if x != agent) for agent in alive},
            )
            counts = {
                agent: sum(vote.parsed == agent for vote in votes.values()) for agent in alive
            }
            most = max(counts.values())
            gone = self.fall(rng, [agent for agent in alive if counts[agent] == most])
            yield Tell(dict.fromkeys(alive, f"{gone} goes."))
            yield Reward({gone: -1.0}, why="out")
            yield Leave(gone)
            alive.remove(gone)
        yield Reward(dict.fromkeys(alive, 1.0), why="stayed")


class Alone(Scenario):
    """One agent guesses a number; open text, no legal list."""

    agents = ("solver",)
    ends_within = 4

    def play(self, rng, task):
        goal, hint = rng.randint(1, 9), ""
        for number in range(4):
            said = yield Ask(
                {
                    "solver": (
                        (Message.system("Guess a number from 1 to 9."), hint)
                        if not number
                        else hint
                    )
                }
            )
            text = said["solver"].text.strip()
            guess = int(text) if text.isdecimal() and text.isascii() and len(text) < 5 else 0
            if guess == goal:
                yield Reward({"solver": 1.0})
                return
            hint = "higher" if guess < goal else "lower"


class Ticketed(Scenario):
    """A desk with a tool and outside work, tasks that are dicts, image parts, rewards only at
    the end."""

    agents = ("clerk", "user")
    chance = False
    ends_within = 7
    tools = (
        Tool(
            "close",
            "Closes the ticket.",
            {
                "type": "object",
                "properties": {"reason": {"type": "string"}},
                "required": ["reason"],
            },
        ),
    )

    def tasks(self, split):
        return [{"wish": wish, "steps": [wish]} for wish in ("refund", "exchange", "advice")]

    def ticket(self):
        return {"number": next(_tickets)}

    def play(self, rng, task):
        # another one in every play, as outside work may
        number = (yield Call(self.ticket))["number"]
        said = yield Ask(
            {
                "user": (
                    Message(("You want this.", Image.of(b"picture"))),
                    f"You want: {task['wish']}. Ticket {number}.",
                )
            }
        )
        for _ in range(3):
            reply = yield Ask({"clerk": Message(said["user"].text[:500], "user")}, tools=self.tools)
            calls = reply["clerk"].tool_calls
            if calls:
                yield Tell({"clerk": Message.tool(getattr(calls[0], "id", ""), "closed")})
                yield Reward(dict.fromkeys(self.agents, 1), why="closed")
                return
            said = yield Ask({"user": Message(reply["clerk"].text[:500], "clerk")})


_tickets = itertools.count(1)


@dataclass(frozen=True)
class Quiz:
    question: str
    answer: str


class Exam(Scenario):
    """Both answer at once with different legal lists, then one comments; tasks are records, one
    field is the examiner's."""

    agents = ("pupil", "examiner")
    chance = False
    private = {"examiner": ("answer",)}
    ends_within = 2

    def tasks(self, split):
        return (Quiz("2 + 2", "4"), Quiz("3 + 3", "6"))

    def play(self, rng, task):
        shown = {
            "pupil": task.question,
            "examiner": f"{task.question}: the answer is {task.answer}",
        }
        said = yield Ask(shown, legal={"pupil": ("4", "6"), "examiner": ("easy", "hard")})
        yield Ask({"examiner": f"The pupil says {said['pupil'].parsed}."})
        yield Reward({"pupil": float(said["pupil"].parsed == task.answer)})


class Endless(Scenario):
    """Never ends by itself: only the driver's limit cuts it."""

    agents = ("a_0", "b_0")
    chance = False

    def play(self, rng, task):
        for number in itertools.count():
            yield Ask({self.agents[number % 2]: f"Turn {number}"}, legal=("go", "stay"))


class Early(Scenario):
    """The play may be over before the second agent is ever asked, and retries an illegal answer
    in private."""

    agents = ("player_0", "player_1")
    zero_sum = True
    ends_within = 6

    def play(self, rng, task):
        yield Reward({"player_1": 1.0, "player_0": -1.0}, why="ante")
        if rng.random() < 0.5:
            yield Ask({"player_0": "Say anything."})
            return
        for agent in self.agents:
            for attempt in range(3):
                said = yield Ask(
                    {
                        agent: (
                            "Left or right?" if not attempt else "That is not legal. Left or right?"
                        )
                    },
                    legal=("left", "right"),
                )
                if said[agent].parsed:
                    break


class Mailbox(Scenario):
    """Chance that shows only after some moves, a tool and a legal list at once, an agent that is
    never asked."""

    agents = ("reader", "writer", "observer_0")

    def play(self, rng, task):
        for _ in range(2):
            said = yield Ask(
                {"writer": "roll or stay"}, legal=("stay", "roll"), tools=(Tool("look"),)
            )
            if said["writer"].parsed == "roll":
                number = rng.randint(1, 1000)
                yield Tell(dict.fromkeys(self.agents, f"A {number} is rolled."))
        yield Ask({"reader": "Good bye."})
        yield Reward({"observer_0": 2.5}, why="watched")


class Numbered(Scenario):
    """Tasks are numbers, legal strings a list, both act at once."""

    agents = ("a_0", "b_0")
    chance = False

    def tasks(self, split):
        return [10, 20, 30]

    def play(self, rng, task):
        for number in range(3):
            yield Ask(dict.fromkeys(self.agents, f"{task} {number}"), legal=[str(task), "other"])
        yield Reward({"a_0": task})


class ShowsHands(Scenario):
    """Secrets are shown to all after the second step, as declared."""

    agents = ("a_0", "b_0")
    reveals_after = 2

    def deal(self, rng, task):
        return {agent: rng.choice("xyz") for agent in self.agents}

    def play(self, rng, task):
        hands = self.deal(rng, task)
        for shown in (hands, dict(zip(self.agents, reversed(hands.values()), strict=True))):
            yield Tell(shown)
            for agent in self.agents:
                yield Ask({agent: "?"}, legal=("1", "2"))


class Offline(Scenario):
    """Outside work that fails, and one that gives an object."""

    agents = ("a_0",)
    chance = False

    def work(self):
        raise OSError("down")

    def play(self, rng, task):
        try:
            state = yield Call(self.work)
        except CallError as error:
            state = str(error)
        yield Ask({"a_0": state})
        yield Call(lambda given: {"got": given}, 3)
        yield Ask({"a_0": state})


class Subsets(Scenario):
    """Some of the agents act together, in an order that is drawn."""

    agents = ("ann", "bob", "cat")
    ends_within = 4

    def play(self, rng, task):
        for number in range(4):
            asked = rng.sample(self.agents, rng.randint(1, 3))
            said = yield Ask(
                dict.fromkeys(asked, f"Round {number}: {asked}"),
                legal={"ann": ("up", "down")} if "ann" in asked else None,
            )
            yield Reward({agent: float(said[agent].parsed == "up") for agent in asked})


class RarelyLucky(Scenario):
    """Chance is seen in few plays only."""

    agents = ("ann",)
    ends_within = 2

    def play(self, rng, task):
        lucky = rng.random() < 0.2
        yield Ask({"ann": "Go."})
        yield Ask({"ann": "You are lucky." if lucky else "Go again."})
        yield Reward({"ann": float(lucky)})


class Toolbox(Scenario):
    """Tools whose arguments are read with care."""

    agents = ("client", "clerk")
    ends_within = 4
    chance = False
    private = {"client": ("wish",)}

    def tasks(self, split):
        return ({"wish": "map", "stock": ["pen", "map"]}, {"wish": "pen", "stock": ["pen", "map"]})

    def name_of(self, call):
        return str(call.arguments.get("name"))

    def stock(self, task):
        return task["stock"]

    def play(self, rng, task):
        tool = Tool(
            "look",
            "Whether it is here.",
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        )
        stock, found = self.stock(task), False
        yield Tell({"client": f"You want a {task['wish']}."})
        said = yield Ask({"client": "What do you say?"})
        for _ in range(3):
            said = yield Ask(
                {
                    "clerk": (
                        Message(said["client"].text[:100], "client")
                        if "client" in said
                        else "Go on."
                    )
                },
                tools=(tool,),
            )
            for call in said["clerk"].tool_calls:
                if isinstance(call, ToolCall):
                    name = self.name_of(call)
                    found = found or name == task["wish"]
                    yield Tell({"clerk": Message.tool(call.id, str(name in stock))})
        yield Reward({"client": float(found), "clerk": float(found)})


class Counter(Scenario):
    """Legal strings and a tool in one Ask: what was done with the tool decides who is asked what
    next."""

    agents = ("clerk",)
    ends_within = 6
    chance = False

    def play(self, rng, task):
        tool = Tool("look", "What is in stock.", {"type": "object", "properties": {}})
        looked = 0
        for number in range(3):
            choices = ("sell", "refuse") if looked else ("sell", "refuse", "wait")
            said = yield Ask(
                {"clerk": f"Customer {number}, stock seen {looked} times."},
                legal=choices,
                tools=(tool,),
            )
            action = said["clerk"]
            for call in action.tool_calls:
                looked += 1
                if isinstance(call, ToolCall):
                    yield Tell({"clerk": Message.tool(call.id, "5 pens")})
            if action.tool_calls:
                said = yield Ask({"clerk": f"You looked {looked} times. And now?"}, legal=choices)
                action = said["clerk"]
            yield Reward({"clerk": float(action.parsed == "sell")})


class MixedTasks(Scenario):
    """Tasks of many types, None among them."""

    agents = ("solver",)
    ends_within = 1
    chance = False

    def tasks(self, split):
        return (5, "some/1", None, 2.5, True)

    def play(self, rng, task):
        yield Ask({"solver": f"The task is {task!r}."})
        yield Reward({"solver": 1.0})


class Bracketed(Scenario):
    """A secret number, and guesses in a form that no player of the kit knows."""

    agents = ("ann",)

    def play(self, rng, task):
        secret = rng.randrange(10)
        for _ in range(3):
            answer = yield Ask({"ann": "guess, as in [7]"})
            if answer["ann"].text == f"[{secret}]":
                yield Reward({"ann": 1.0})
                return
        yield Tell({"ann": "over"})


class CutAtOnce(Scenario):
    """Its own limit cuts bob at his first turn."""

    agents = ("ann", "bob")
    chance = False
    limits = Limits(max_steps=3)

    def play(self, rng, task):
        while True:
            yield Ask({"ann": "go"}, ("on", "off"))
            yield Ask({"ann": "go"}, ("on", "off"))
            yield Ask({"bob": "go"}, ("on", "off"))


SHAPES = (
    Counter,
    Haggle,
    Wolves,
    Alone,
    Ticketed,
    Exam,
    Endless,
    Early,
    Mailbox,
    Numbered,
    ShowsHands,
    Offline,
    Subsets,
    RarelyLucky,
    Toolbox,
    MixedTasks,
    Bracketed,
    CutAtOnce,
)
# every way to act and to leave: these meet the suites and fresh processes too, which cost most
WHOLE = (Wolves, Ticketed, Endless, Mailbox, Subsets)
