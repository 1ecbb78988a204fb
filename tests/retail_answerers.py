"""Assistants that know the answer to a question and tell it in a way of their own: beside what
they deny, among contradictions, or with other true values in the same message."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_moves import Form, Lookup, Move
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted

from gem_ma import Action, Asked

_KINDS = tuple(
    map(re.compile, (r"\$\d[\d,]*\.\d\d", r"(?<!\d)\d{12}(?!\d)", r"(?<![\w#$.])\d+(?!\w)"))
)


class Answering(RetailScripted):
    """Tells the value of its answer as `say` has it; `{}` is the value, `{0}` to `{2}` are three
    others of its kind."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        say: str = "It is {}.",
    ) -> None:
        super().__init__(agent, sample, rng)
        self.say_as, self.shown = say, list[str]()

    async def act(self, asked: Asked) -> Action:
        self.shown += [message.text for message in asked.new if message.sender == "tool"]
        return await super().act(asked)

    def carry_out(self, form: Form, move: Move) -> Lookup:
        if form.kind == "question" and move.how == "tell":
            found = next(filter(None, (kind.search(move.text) for kind in _KINDS)), None)
            if found is not None:
                move = replace(move, text=self.told(found[0]))
        yield from super().carry_out(form, move)

    def told(self, value: str) -> str:
        others = self.others(value)
        if "{*}" in self.say_as:
            # The four in a random order.
            four = [value, *others]
            self.rng.shuffle(four)
            return self.say_as.replace("{*}", "{}").format(*four)
        return (
            self.say_as.format(value, *others)
            if "{0}" in self.say_as
            else self.say_as.format(value)
        )

    def others(self, value: str) -> list[str]:
        """Three other values that the tools have shown, or that are near."""
        text = json.dumps(self.shown)
        if value.startswith("$"):
            seen = [f"${amount}" for amount in re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", text)]
        elif len(value) == 12:
            seen = [f"{int(value) + step}" for step in (11, 222, 3333)]
        else:
            seen = [str(int(value) + step) for step in (1, 2, 3, -1)]
        different = [each for each in dict.fromkeys(seen) if each != value]
        different += (
            [f"${float(value[1:].replace(',', '')) + step:.2f}" for step in (1, 2, 3)]
            if value.startswith("$")
            else []
        )
        return different[:3]
