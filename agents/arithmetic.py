"""A player of `arithmetic` who asks `python`, more or less well: what a tiny model begins as."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Slipping

from gem_ma import Action, Asked, ToolCall

EXPRESSION = re.compile(r"(?<!\d)\d++(?: [+*-] \d++)++")


class Calculator(Slipping):
    """Copies the expression into a call of `python` and says what comes back. With probability
    `guesses` it answers at once with any number; with probability `slips` it changes a digit of the
    code, and with the same probability it says another number than it was told. Without the tool it
    can only guess."""

    async def act(self, asked: Asked) -> Action:
        results = [message.text for message in asked.new if message.sender == "tool"]
        slips = self.rng.random() < self.slips
        if results:
            number = results[-1].strip()
            return Action(self._number() if slips else number)
        code = EXPRESSION.search(asked.transcript[-1].text)
        offered = any(tool.name == "python" for tool in asked.tools)
        if code is None or not offered or self.rng.random() < self.guesses:
            return Action(self._number())
        text = self._changed(code[0]) if slips else code[0]
        return Action("", (ToolCall(f"call_{len(asked.transcript)}", "python", {"code": text}),))

    def _number(self) -> str:
        return str(self.rng.randint(0, 10 ** self.rng.randint(1, 4)))

    def _changed(self, code: str) -> str:
        places = [place for place, letter in enumerate(code) if letter.isdigit()]
        place = self.rng.choice(places)
        # never a zero: Python refuses numbers that begin with one
        return code[:place] + str(self.rng.randint(1, 9)) + code[place + 1 :]
