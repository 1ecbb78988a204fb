"""Tasks for a shell: one agent types commands until it says that it is done, then the task's check
runs in the same folder. `docs/terminal.md` has the options.

Type `gem-ma run terminal` for tasks of our own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.scenarios.rows import SPLITS, Data, OfRows, held_out, in_order
from gem_ma.scenarios.terminal.items import Chore, rows_of_folder, task_of_row
from gem_ma.scenarios.terminal.kinds import deal

from gem_ma import Action, Ask, Call, ConfigError, Episode, Message, Reward, ToolCall
from gem_ma.kernel.errors import CallError
from gem_ma.kernel.scenario import Play
from gem_ma.tools.shell import Session, Shell, require_bash
from gem_ma.tools.walls import MIB, Wall

BRIEFING = (
    "You have a shell. Do the task by calling `shell`, and answer without a call when it is done."
    " The files of the task are in your home, where you begin. You have {commands} commands."
)
NO_CALL = "Error: this is not a call of a tool: {reason}"
LIMITS = {"timeout_s": 5.0, "memory_mb": 512, "disk_mb": 16, "sandbox": "bubblewrap"}


class Terminal(OfRows):
    """Tasks for a shell, each with a script that checks what was done."""

    what, asked = "terminal", "instruction"
    agents = ("solver",)
    chance = False
    default_cast = {"solver": "terminal_random"}
    baseline_casts = {"does nothing": {"solver": "terminal_nothing"}}

    def __init__(
        self,
        data: Data = "",
        commands: int = 12,
        tasks: int = 240,
        held_out: float = 0.5,
        shuffle: int | None = 0,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        """`data`: a file, files by split, an id of the hub, or a folder of folders; else ours, of
        which `tasks` are to learn from and a quarter as many each in dev and test. `commands`: so
        many calls in a play. `limits`: `timeout_s` of a command and of the check, `memory_mb` of
        each process, `disk_mb`, `sandbox`. Raises ConfigError, DataError."""
        if commands < 1 or tasks < 4 or not 0 <= held_out <= 1:
            raise ConfigError(
                "scenario: commands is at least 1, tasks at least 4, held_out a share from 0 to 1;"
                f" got {commands}, {tasks}, {held_out:g}"
            )
        bounds = {**LIMITS, **(limits or {})}
        numbers = [bounds[key] for key in ("timeout_s", "memory_mb", "disk_mb")]
        plain = all(type(number) in (int, float) and 0 < number < math.inf for number in numbers)
        if len(bounds) > len(LIMITS) or not plain or numbers[1] < 64 or numbers[2] < 1:
            raise ConfigError(
                "scenario.limits: timeout_s above 0, memory_mb from 64, disk_mb from 1, sandbox;"
                f" got {', '.join(f'{key}: {value}' for key, value in bounds.items())}"
            )
        self.commands = self.ends_within = commands
        self.data = data
        self.share = held_out
        self.shuffle = shuffle
        self.number = tasks
        self.timeout_s = float(bounds["timeout_s"])
        memory = int(bounds["memory_mb"]) * MIB
        disk = int(bounds["disk_mb"] * MIB)
        self.wall = Wall(bounds["sandbox"], memory=memory, file=disk)
        require_bash(self.wall.tier)
        self.tasks("all")  # what is wrong with the data is said before anything is played

    # -- data -------------------------------------------------------------------------------------

    made_of = staticmethod(task_of_row)

    def options(self) -> tuple[Any, ...]:
        return (self.wall,)

    def splits(self) -> Mapping[str, Sequence[Chore]]:
        if not self.data:
            return _dealt(self.number)
        if folder := _folder(self.data):
            return _of_folder(folder, self.digest(), self.wall, self.share, self.shuffle)
        return super().splits()

    def digest(self) -> str:
        if not self.data:
            return str(self.number)
        folder = _folder(self.data)
        return rows_of_folder(folder, self.wall)[1] if folder else super().digest()

    # -- the play ---------------------------------------------------------------------------------

    def play(self, rng: random.Random, task: Chore) -> Play:
        session = Session(self.wall, self.timeout_s, task.files)
        try:
            message: Any = (
                Message.system(BRIEFING.format(commands=self.commands)),
                task.instruction,
            )
            left = self.commands
            while left > 0:
                actions = yield Ask({"solver": message}, tools=Shell.tools)
                action = actions["solver"]
                if not action.tool_calls:
                    break
                message = yield from _typed(session, action, left)
                left -= len(action.tool_calls)
            bare = Session(self.wall, self.timeout_s, task.files)
            pay, why = yield from _checked(session, task, bare)
            yield Reward({"solver": pay}, why=why)
        finally:
            session.close()

    # -- how its numbers are read -----------------------------------------------------------------

    more_is_better = ()

    def success(self, episode: Episode) -> bool | None:
        return any(p.why == "check" and p.value == 1 for p in episode.ledger) or (
            False if episode.end.scored else None
        )

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """How many commands were typed."""
        turns = [turn for turn in episode.turns if turn.agent == "solver"]
        return {"commands": float(sum(len(turn.action.tool_calls) for turn in turns))}


def _typed(session: Session, action: Action, left: int) -> Generator[Any, Any, tuple[Message, ...]]:
    """Types the commands of an action, one after another; gives what the agent is shown."""
    results = []
    for number, call in enumerate(action.tool_calls):
        if not isinstance(call, ToolCall):
            results.append(Message(NO_CALL.format(reason=call.reason)))
        elif call.name != "shell" or number >= left:
            why = "no command is left" if call.name == "shell" else "there is shell alone"
            results.append(Message.tool(call.id, f"Error: {call.name} was not called: {why}"))
        else:
            session.plan(call.name, call.arguments)
            try:
                text = session.text_of((yield Call(session.run)))
            except CallError as error:
                text = session.text_of(None) or f"Error: {error}"
            results.append(Message.tool(call.id, text))
    return tuple(results)


def _checked(
    session: Session, task: Chore, bare: Session
) -> Generator[Any, Any, tuple[float, str]]:
    """What the check pays, and why. What the solver wrote runs before it, if at all."""
    for script in (task.run, task.check) if task.run else (task.check,):
        session.plan_check(script)
        result = yield Call(_result, session, script, bare)
        if not _is_verdict(result):
            return 0.0, f"no verdict: {result.get('why') or result['status']}"
    return float(result["status"] == "ok"), "check"


def _result(session: Session, script: str, bare: Session) -> Any:
    """What came of a script, the last cell of a session. The solver is to blame for no verdict
    where none comes a second time, but one in the `bare` session, which holds nothing of it.
    Raises CallError where nobody is."""
    for _ in range(2):
        result = session.run()
        if _is_verdict(result):
            return result
    bare.plan_check(script)
    try:
        if _is_verdict(bare.run()):
            return result
    finally:
        bare.close()
    raise CallError(f"no verdict, nor one without the solver: {result['status']}")


def _is_verdict(result: Mapping[str, Any]) -> bool:
    """Nothing is paid without one, and the exit status of a script is one."""
    return result["status"] == "ok" or result.get("why", "").startswith("SystemExit: ")


# -- tasks ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _dealt(number: int) -> dict[str, list[Chore]]:
    """Our own, dealt anew for each place of each split; kinds take turns."""
    sizes = {"train": number, "dev": number // 4, "test": number // 4}
    return {split: [deal(split, index) for index in range(size)] for split, size in sizes.items()}


def _folder(data: Data) -> Path | None:
    """The folder of tasks that is named, if it is one."""
    folder = Path(data).expanduser() if isinstance(data, str) else None
    if folder is None or not folder.is_dir():
        return None
    return folder if any(folder.glob("*/check.sh")) else None


@lru_cache(maxsize=4)
def _of_folder(
    folder: Path, digest: str, wall: Wall, share: float, shuffle: int | None
) -> dict[str, list[Chore]]:
    rows, _ = rows_of_folder(folder, wall)
    tasks = [task_of_row(row, f"terminal: {folder / row['name']}", wall) for row in rows]
    places = held_out([task.instruction for task in tasks], share)
    return {split: in_order([tasks[at] for at in places[split]], shuffle) for split in SPLITS}
