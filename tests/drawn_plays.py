"""Records of plays, drawn as a scenario could have made them: agents are those of the cast, steps do
not go back, an id is there once. Texts, calls, images and numbers are hostile.

Drawn by `random` and not by hypothesis: a whole record of its strategies costs a tenth of a second.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma.kernel.episode import CallResult, End, Entry, Episode, Seat
from gem_ma.kernel.types import (
    Action,
    Attempt,
    Image,
    Malformed,
    Message,
    Reply,
    Tool,
    ToolCall,
    Turn,
    Usage,
)
from tests.plays import recorded

TEXTS = (
    "",
    " ",
    "plain words",
    "</script><script>alert(1)</script>",
    '"},{"role":"system","content":"',
    "\x00\x1b[31m\u202e\x7f",
    "🙂\u2028\u2029\x85\r\n\t ключ",
    "=1+1\n,;\ttab\\n",
    "---\nconfigs: no",
    "null",
    "x" * 3000,
)
NAMES = ("a", "b", "assistant", "user", "ключ", "__proto__", "")
# two of these splits differ in letters that no file may be called by, and `no` is false in YAML
TASKS = ("test/0", "train/1", "Test/0", "te st/0", "te_st/0", "no/²", "1/1", "/", "", "a" * 300)
NUMBERS = (0, -1, 2**70, 0.1, 1e-300, -2.5e15, True, None)


class Drawn:
    """Draws plays of one run; `seed` decides all of them."""

    def __init__(self, seed: int, agents: tuple[str, ...] | None = None) -> None:
        self.rng, self.agents = random.Random(seed), agents

    def run(self, count: int = 6) -> list[Episode]:
        plays = {episode.id: episode for episode in (self.play() for _ in range(count))}
        return list(plays.values())

    def play(self) -> Episode:
        rng = self.rng
        agents = self.agents or tuple(rng.sample(NAMES, rng.randint(1, 3)))
        turns = tuple(self.turn(step, rng.choice(agents)) for step in range(rng.randint(0, 5)))
        paid = [
            Entry(rng.randint(-1, len(turns)), rng.choice(agents), rng.uniform(-9, 9), self.text())
            for _ in range(rng.randint(0, 5))
        ]
        end = rng.choice([*End, End.TERMINATED, End.TERMINATED, End.TERMINATED])
        return recorded(
            {agent: Seat(self.text(), rng.choice([None, "p"]), self.json()) for agent in agents},
            turns,
            tuple(paid),
            scenario=rng.choice(["game", "a: b\n", "x" * 100]),
            version=rng.randint(1, 9),
            seed=rng.choice([0, 1, 2**63 - 1, -(2**63)]),
            task=rng.choice(TASKS),
            repeat=rng.randint(0, 3),
            group=rng.choice([None, "g"]),
            calls=(CallResult(0, self.json(), None),) * rng.randint(0, 1),
            final={agent: self.messages() for agent in agents if rng.random() < 0.5},
            end=end,
            error=None if end.scored else self.text(),
            options=self.json(),
        )

    def turn(self, step: int, agent: str) -> Turn:
        rng = self.rng
        replies = tuple(self.reply() for _ in range(rng.randint(0, 2)))
        return Turn(
            step=step,
            agent=agent,
            observed=self.messages(),
            legal=rng.choice([None, ("yes", "no")]),
            tools=(Tool("look", self.text(), {"type": "object"}),) * rng.randint(0, 1),
            action=Action(self.text(), self.calls(), rng.choice([None, "yes"])),
            replies=replies,
        )

    def reply(self) -> Reply:
        rng, size = self.rng, self.rng.randint(0, 3)
        return Reply(
            text=self.text(),
            tool_calls=self.calls(),
            prompt_ids=tuple(rng.randrange(200_000) for _ in range(size)),
            token_ids=tuple(rng.randrange(200_000) for _ in range(size)),
            logprobs=tuple(-rng.expovariate(1) for _ in range(size)),
            finish="stop",
            policy="p",
            version=rng.randint(0, 9),
            usage=Usage(1, None, 2),
            attempts=(Attempt(self.text(), None, 0.5, ""),),
        )

    def messages(self) -> tuple[Message, ...]:
        rng = self.rng
        picture = Image.of(rng.randbytes(4)).digest
        contents: list[Any] = [self.text(), self.text(), (self.text(), Image(picture, "image/png"))]
        senders = ["system", "tool", "scenario", *(self.agents or NAMES)]
        return tuple(
            Message(rng.choice(contents), rng.choice(senders), self.calls(), self.text())
            for _ in range(rng.randint(0, 3))
        )

    def calls(self) -> tuple[ToolCall | Malformed, ...]:
        made = (ToolCall(self.text(), "look", self.json()), Malformed(self.text(), self.text()))
        return made[: self.rng.choice([0, 0, 1, 2])]

    def json(self) -> dict[str, Any]:
        return {self.text(): self.rng.choice(NUMBERS), "list": [self.text(), {}]}

    def text(self) -> str:
        return self.rng.choice(TEXTS)
