"""What a person sees: the result on stdout, progress on stderr. Everything passes through
`plain`, since agents and data wrote part of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

import click

from gem_ma.kernel.errors import StoreError

# Options that several commands have, each written once.

# options that are unknown to click come as plain words, with what follows them: names of agents
OPEN: dict[str, Any] = {"ignore_unknown_options": True}

json_option = click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
quiet_option = click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")


def processes_option(told: str) -> Any:
    """The option, with what its command says of it."""
    return click.option("--processes", type=click.IntRange(min=1), help=told)


concurrency_option = click.option(
    "-j", "--concurrency", type=click.IntRange(min=1), help="Episodes at once."
)
tasks_option = click.option(
    "-n",
    "--tasks",
    type=click.IntRange(min=1),
    help="How many tasks (or seeds, where the scenario has one task).",
)
tag_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="WORD",
    help="Written into the run, for lists to find it; may be given several times.",
)
base_url_option = click.option(
    "--base-url",
    "base_urls",
    multiple=True,
    metavar="[AGENT=]URL",
    help=(
        "Where models of openai/ are, as http://127.0.0.1:8000/v1: in all seats, or in one."
        "  [default: OPENAI_BASE_URL, else OpenAI itself]"
    ),
)
out_option = click.option(
    "--out", type=click.Path(), help="The run folder.  [default: runs/<config>-<digest>]"
)
fresh_option = click.option(
    "--fresh", is_flag=True, help="Put an old run folder aside and start anew."
)


LINE_EVERY_S = 10.0
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC, DCS and their kin, up to their end
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
    r"|\x1b[ -/]*[0-~]?",  # the rest
    re.DOTALL,
)
# they can make a command look like another one ("Trojan Source", CVE-2021-42574)
_BIDI = dict.fromkeys(
    map(ord, "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
)


def plain(text: str) -> str:
    r"""The text without what could steer a terminal or reorder letters: escape sequences, control
    and bidirectional characters.

    >>> plain("\x1b[31mred\x1b[0m\a, two\tlines\n")
    'red, two\tlines\n'
    """
    # nearly every text, and the pattern is slow
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_harmless, _ESCAPE.sub("", text).translate(_BIDI)))


def _harmless(letter: str) -> str:
    if letter in "\n\t":
        return letter
    # line breaks beyond ASCII: some terminals obey them, and they would tear a table
    if letter in "\u2028\u2029\x85":
        return " "
    # Cc: controls; Cs: halves of surrogate pairs, which no stream can encode
    return "" if unicodedata.category(letter) in ("Cc", "Cs") else letter


def one_line(text: str, width: int = 0) -> str:
    """Plain text on one line, cut to a width where one is given."""
    line = " ".join(plain(text).split())
    return line if not width or len(line) <= width else line[: width - 3] + "..."


def emit(text: str) -> None:
    """Prints the result. A closed pipe or terminal swallows it in silence and costs no exit code.
    Raises StoreError where it cannot be written."""
    try:
        sys.stdout.write(plain(text) + "\n")
        sys.stdout.flush()
    except OSError as error:
        if _has_gone(sys.stdout, error):
            # else Python tries once more at its exit, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        raise StoreError(f"the result could not be printed: {error.strerror or error}") from error


def _has_gone(stream: TextIO, error: OSError) -> bool:
    """Whether nobody reads a stream any more: the pipe or the terminal was closed."""
    if isinstance(error, BrokenPipeError):
        return True
    # of a file this error is a broken disk
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)


def emit_json(value: Any) -> None:
    """Prints strict JSON, ASCII only, so that nothing in it can steer a terminal."""
    emit(json.dumps(value, indent=2, allow_nan=False))


def stderr() -> TextIO:
    """The stderr that people see. While foreign code has its turn, `sys.stderr` is thrown away
    (`gem_ma.worlds.guest`), but a signal has something to say at any time."""
    stream: TextIO = getattr(sys.stderr, "beyond", sys.stderr)
    return stream


def progress_line(text: str) -> None:
    """One message on stderr."""
    # A message that nobody can see stops no run. ValueError: the stream is closed.
    with contextlib.suppress(OSError, ValueError):
        stream = stderr()
        stream.write(plain(text) + "\n")
        stream.flush()


class Screen:
    """stderr for what redraws itself: a terminal that is closed meanwhile stops no run."""

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def tagged(tags: Sequence[str]) -> list[str]:
    """`--tag` as an override of a config."""
    return [f"run.tags={json.dumps(list(tags))}"] if tags else []


def once() -> Callable[[str], None]:
    """`progress_line` for lines that several runs have in common: each is printed once."""
    printed: set[str] = set()

    def say(line: str) -> None:
        if line not in printed:
            printed.add(line)
            progress_line(line)

    return say


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def counted(number: int, what: str) -> str:
    """`1 play`, `2 plays`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def columns(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Rows as aligned columns, never cut."""
    cells = [[one_line(cell) for cell in row] for row in ([head] if head else [])]
    cells += [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def is_live() -> bool:
    """True where stderr can show a bar that redraws itself."""
    return (
        sys.stderr.isatty()
        # logs of a CI keep every redraw as a line
        and not os.environ.get("CI")
        # https://no-color.org
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )


class Progress:
    """How far a run is: a bar on a terminal, one line every 10 s elsewhere, nothing where quiet."""

    def __init__(
        self, total: int, done: int = 0, *, quiet: bool = False, unit: str = "episodes"
    ) -> None:
        self.total = total
        self.done = done
        self.started = 0
        self.unit = unit
        self.ends: Counter[str] = Counter()
        self._quiet = quiet
        self._began = time.monotonic()
        self._last_line = time.monotonic()
        # what earlier commands played is not part of this one's speed
        self._before = done
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if not self._quiet and is_live():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            parts = (
                BarColumn(),
                MofNCompleteColumn(),
                # ends and agents' names may hold [brackets], which are not markup
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            console = Console(file=Screen())  # type: ignore[arg-type]
            self._bar = Bar(*parts, console=console, refresh_per_second=8, transient=True)
            self._task = self._bar.add_task("", total=self.total, completed=self.done)
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def hide(self) -> None:
        """Takes the bar off the terminal and says nothing more: somebody types there."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None
        self._quiet = True

    def start(self, started: object = None) -> None:
        """One more is being played."""
        self.started += 1
        self._draw()

    def skip(self, count: int) -> None:
        """So many were done before."""
        self.done = self.done + count
        self._before = self._before + count
        self._draw()

    def end(self, kind: str) -> None:
        """One has ended."""
        self.done += 1
        self.ends[kind] += 1
        self._draw()

    def tick(self) -> None:
        """Prints the line that is due, if one is."""
        now = time.monotonic()
        if not self._quiet and self._bar is None and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            progress_line(self.line())

    def line(self) -> str:
        """How far it is, in words."""
        new = self.done - self._before
        rate = new / max(time.monotonic() - self._began, 1e-9)
        state = self._state() or "none has ended"
        parts = [f"{self.done}/{self.total} {self.unit}", state, f"{rate:.1f} a second"]
        if new and self.done < self.total:
            parts.append(f"about {clock((self.total - self.done) / rate)} left")
        return ", ".join(parts)

    def _state(self) -> str:
        state = [f"{count} {end}" for end, count in sorted(self.ends.items())]
        if self.started:  # of forks nobody is told when one begins
            state.append(f"{self.started - (self.done - self._before)} running")
        return ", ".join(state)

    def _draw(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self._state())
        self.tick()
