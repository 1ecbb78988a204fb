"""Players of `terminal`: one that knows the solution, one that does nothing, one that types
commands at random."""

from __future__ import annotations

from gem_ma.agents.bots import Bot

from gem_ma import Action, Asked, ToolCall

DONE = "It is done."
COMMANDS = (
    "ls -l",
    "cat *",
    "wc -l * > answer.txt",
    "ls | sort > sorted.txt",
    "sort *.txt > unique.txt",
    "echo {number} > answer.txt",
    "mkdir out; mv *.txt out",
    "chmod 600 *",
    "touch done",
    "tar -czf all.tar.gz *",
)


class _Player(Bot):
    async def act(self, asked: Asked) -> Action:
        typed = sum(message.sender == "tool" for message in asked.transcript)
        command = self.command(typed)
        if command is None or not any(tool.name == "shell" for tool in asked.tools):
            return Action(DONE)
        return Action("", (ToolCall(f"call_{typed}", "shell", {"command": command}),))

    def command(self, typed: int) -> str | None:
        """What it types next; None where it is done."""
        raise NotImplementedError


class Nothing(_Player):
    """Says that it is done."""

    def command(self, typed: int) -> str | None:
        return None


class Random(_Player):
    """Types up to three commands that look like work."""

    def command(self, typed: int) -> str | None:
        if typed >= 3:
            return None
        return self.rng.choice(COMMANDS).format(number=self.rng.randint(0, 99))


class Solution(_Player):
    """Types the solution that stands in the task."""

    privileged = True

    def command(self, typed: int) -> str | None:
        solution = self.task.solution
        return solution[typed] if typed < len(solution) else None
