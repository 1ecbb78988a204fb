"""Players of `code` that solve nothing, and one that knows the solutions."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Bot

from gem_ma import Action, Asked

_DEFINES = re.compile(r"^def (\w+)\(", re.MULTILINE)


class _Player(Bot):
    async def act(self, asked: Asked) -> Action:
        return Action(f"```python\n{self.program(asked)}\n```")

    def program(self, asked: Asked) -> str:
        raise NotImplementedError


def _entry(asked: Asked) -> str:
    """The function that is asked for: the last one that the question begins."""
    names = [name for message in asked.transcript for name in _DEFINES.findall(message.text)]
    return names[-1] if names else ""


class Stub(_Player):
    """Writes a function without a body; a program that does nothing."""

    def program(self, asked: Asked) -> str:
        entry = _entry(asked)
        return f"def {entry}(*args, **named):\n    pass" if entry else "pass"


class Echo(_Player):
    """Writes a function that gives its first argument back; a program that prints its input."""

    def program(self, asked: Asked) -> str:
        entry = _entry(asked)
        if entry:
            return f"def {entry}(first=None, *args, **named):\n    return first"
        return "import sys\nprint(sys.stdin.read())"


class Oracle(_Player):
    """Knows the solution that stands in the data."""

    privileged = True

    async def act(self, asked: Asked) -> Action:
        # HumanEval's goes on from its question, so it stands in no block
        return Action(self.task.solution)
