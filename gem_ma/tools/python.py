"""The tool `python`: an interactive session behind the wall, one for each agent and play
(`gem_ma.tools.sessions`). It is built again with the same seed of `random` and of hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

from gem_ma.kernel.types import Tool
from gem_ma.tools import sessions
from gem_ma.tools.belt import Equipment
from gem_ma.tools.sandbox import TIMEOUT_S, require
from gem_ma.tools.walls import Wall, mounts

DESCRIPTION = (
    "Runs Python and gives what it prints, and the value of its last line. Variables stay for the"
    " next call. There are no files of yours and no network."
)
NO_CODE = "raise TypeError('code is a text')"
PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python source."}},
    "required": ["code"],
}


class Session(sessions.Session):
    """A session whose calls are Python."""

    def cell_of(self, arguments: Mapping[str, Any]) -> str:
        code = arguments.get("code")
        # Some templates put a space in front of a value, which Python would refuse.
        return dedent(code) if isinstance(code, str) else NO_CODE


class Python(Equipment):
    """`tools: [python]`."""

    tools = (Tool("python", DESCRIPTION, PARAMETERS),)

    def __init__(
        self,
        timeout_s: float = TIMEOUT_S,
        sandbox: str = "bubblewrap",
        packages: Sequence[str] = (),
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Raises ConfigError where this machine cannot build the wall."""
        require(sandbox)
        self.wall = Wall(sandbox, tuple(packages))
        self.timeout_s = timeout_s
        mounts(self.wall.packages)  # a package that is missing is named before anything is played
        self.uses = uses
        self.reward = reward

    def open(self) -> Session:
        return Session(self.wall, self.timeout_s)
