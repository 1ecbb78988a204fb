"""The tool `shell`: bash behind the wall, a session for each agent and play
(`gem_ma.tools.sessions`). What keeps its state is `bash.py`."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Tool
from gem_ma.tools import sessions
from gem_ma.tools.belt import Equipment
from gem_ma.tools.sandbox import TIMEOUT_S, require
from gem_ma.tools.walls import MIB, Wall

DESCRIPTION = (
    "Runs a command in bash and gives what it prints. The working folder, files, variables,"
    " functions and aliases stay for the next call. A process in the background ends with its call."
    " There is no network."
)
NO_COMMAND = "echo 'bash: the command is not text without NUL' >&2; exit 2"
PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "description": "One or more lines for bash.",
            "examples": ["ls -l", "wc -l *.txt", "cd .. && pwd"],
        }
    },
    "required": ["command"],
}
MOST_FILES = 1_000  # that a session begins with
File = tuple[int, int, bytes]  # mode, time of its change, content


class Session(sessions.Session):
    """A session whose calls are commands for bash."""

    def __init__(self, wall: Wall, timeout_s: float, files: Mapping[str, File]) -> None:
        packed = {
            path: (*file[:2], base64.b64encode(file[2]).decode()) for path, file in files.items()
        }
        # in ASCII: the name of a file may be bytes that are not UTF-8
        begin = f"_bash = Bash(os.path.join(os.getcwd(), 'home'), {packed!a})"
        super().__init__(wall, timeout_s, (_driver(), begin))

    def cell_of(self, arguments: Mapping[str, Any]) -> str:
        command = arguments.get("command")
        typed = isinstance(command, str) and "\0" not in command
        return f"_bash.run({command if typed else NO_COMMAND!r})"

    def plan_check(self, script: str) -> None:
        """A script runs as the next call, in a bash that sees nothing of the session but its
        folder: no variable, function, alias or process."""
        self.cells.append(f"_bash.check({script!r})")

    def words(self, result: Any) -> str:
        text = str(result["out"])
        if result["status"] == "ok":
            return text
        status = result["why"].removeprefix("SystemExit: ")
        return (
            f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[exit status {status}]"
        )


@cache
def _driver() -> str:
    return Path(__file__).with_name("bash.py").read_text("utf-8")


class Shell(Equipment):
    """`tools: [shell]`, or `{shell: {folder: PATH}}`."""

    tools = (Tool("shell", DESCRIPTION, PARAMETERS),)

    def __init__(
        self,
        timeout_s: float = TIMEOUT_S,
        sandbox: str = "bubblewrap",
        folder: str | None = None,
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Reads the folder. Raises ConfigError where that cannot be done, or where this machine
        has no bash or cannot build the wall."""
        require_bash(sandbox)
        self.wall = Wall(sandbox)
        self.timeout_s = timeout_s
        self.files = {} if folder is None else files_of(Path(folder), self.wall)
        self.uses = uses
        self.reward = reward

    def open(self) -> Session:
        return Session(self.wall, self.timeout_s, self.files)


def require_bash(tier: str) -> None:
    """Raises ConfigError, in one line, where no shell can be had."""
    require(tier)
    if shutil.which("bash", path="/usr/bin:/bin") is None:
        raise ConfigError("shell: there is no bash in /usr/bin or /bin; `apt-get install bash`")


def files_of(folder: Path, wall: Wall) -> dict[str, File]:
    """The files below a folder, by path. Links are not followed, and not taken along."""
    if not folder.is_dir():
        raise ConfigError(f"shell: {folder} is not a folder")
    files: dict[str, File] = {}
    size = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(place, name) for name in sorted(names)):
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            size += status.st_size
            if size > wall.file // 2 or len(files) == MOST_FILES:
                raise ConfigError(
                    f"shell: {folder} holds more than {MOST_FILES} files or"
                    f" {wall.file // 2 // MIB} MiB, which is what a session may begin with"
                )
            mode = 0o755 if status.st_mode & 0o100 else 0o644
            files[str(path.relative_to(folder))] = (mode, int(status.st_mtime), path.read_bytes())
    return files
