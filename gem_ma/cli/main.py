"""`gem-ma`: finds the command, turns what went wrong into one message and an exit code. Every
command is `gem_ma.cli.<name>.command`.

Exit codes: 0 done · 1 more episodes failed than allowed, findings, or the disk or the run folder
refused · 2 wrong usage, config or data · 3 a model could not be reached · 70 a bug of ours, its
traceback in a file · 129, 130, 143
stopped by a signal.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from gem_ma.cli.stopping import ENDING_SIGNALS, Interrupted, exit_code, is_ignored, is_too_long
from gem_ma.cli.terminal import progress_line
from gem_ma.kernel.errors import GemMaError
from gem_ma.system.import_folders import search_folder

COMMANDS = {  # in the order of help; no command is imported before it is asked for
    "demo": "Plays and learns something small, and writes a page about it.",
    "run": "Plays a config or a scenario, and scores it.",
    "play": "Seats you at the terminal as one of the agents.",
    "train": "Lets the policies of a config learn.",
    "serve": "Lets a program of yours play one of the agents.",
    "study": "Plays every cell of a grid, and compares them.",
    "bench": "Scores a model on a battery of short worlds.",
    "paper": "Repeats the paper's experiments, and writes a page of them.",
    "check": "Checks a config, or a scenario's rules; plays nothing that costs.",
    "list": "Lists scenarios, agents, engines, configs or runs.",
    "show": "Shows one scenario, one run, or one play of a run.",
    "explain": "Says which turn, message or agent made a play come out so.",
    "score": "Scores the stored plays of a run anew; calls no model.",
    "compare": "Compares two runs, play by play.",
    "report": "Writes the page of a run.",
    "export": "Writes a run's plays as data for other tools.",
    "view": "Shows runs in a browser.",
    "resume": "Continues a run where it stopped.",
    "new": "Makes a scenario, an agent, a config or a tiny model.",
    "config": "Prints the schema of a config, for editors.",
    "doctor": "Says what is installed, and what can run.",
    "completion": "Prints the completion script of a shell.",
}
# set by the completion script of a shell: click answers it, prints and leaves
COMPLETE = "_GEM_MA_COMPLETE"


# EEXIST and ENOTDIR: a file stands where a folder is wanted
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR}
# EFBIG: the limit of `ulimit -f`
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Terminated(BaseException):
    """A signal that ends the process came outside of a run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # an import makes much that stays and no garbage; looking for some took a tenth of its time
        gc.disable()
        try:
            return import_module(f"gem_ma.cli.{cmd_name}").command
        finally:
            gc.freeze()  # nor does anybody look through it later
            gc.enable()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # a shell that completes a word wants names, no advice
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from gem_ma.kernel.spelling import near

            close = near(args[0], COMMANDS, 2)
            hint = f"commands: {', '.join(COMMANDS)}"
            if close:
                hint = f"did you mean {' or '.join(map(repr, close))}?"
            raise click.UsageError(f"no command is called {args[0]!r} ({hint})", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GEM_MA"},
    epilog="Start with: gem-ma demo",
)
@click.version_option(
    package_name=None, version=import_module("gem_ma").__version__, prog_name="gem-ma"
)
def group() -> None:
    """A multi-agent gym for language-model agents, in which any subset of the agents learns."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    _prepare_streams()
    streams = sys.stdout, sys.stderr
    _find_modules_here()
    # Python sets signal handlers in its main thread only; tests call this from others
    alone = threading.current_thread() is threading.main_thread()
    caught = [number for number in ENDING_SIGNALS if alone and not is_ignored(number)]
    before = {number: signal.signal(number, _terminate) for number in caught}
    try:
        # not standalone, or click would end the process with codes of its own
        result: Any = group.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="gem-ma",
            standalone_mode=False,
        )
        code = result if isinstance(result, int) else 0
    except Interrupted as stopped:
        _flush(reported=False)
        _say(str(stopped))
        # a worker thread inside a model may take long to notice; everything is on the disk
        os._exit(stopped.code)
    except (click.Abort, KeyboardInterrupt):
        _say(_stopped())
        code = 128 + signal.SIGINT
    except _Terminated as ended:
        _say(_stopped())
        code = 128 + ended.number
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:  # `gem-ma list runs | head -1`: the reader has what it wants
        code = 0
    except SystemExit as left:
        # click's way out where the reader has gone (it wraps the streams then); any other came from
        # code that is not ours
        gone, sys.stdout, sys.stderr = sys.stdout is not streams[0], *streams
        if COMPLETE in os.environ:
            code = left.code if isinstance(left.code, int) else 1
        else:
            if not gone:
                _say(
                    f"a scenario, an agent or a library ended the process (SystemExit: {left.code})"
                )
            code = 0 if gone else 1
    except (GemMaError, OSError) as error:
        _say(_message(error))
        code = exit_code(error)
    except Exception as error:
        _say(_report(error))
        code = 70
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _flush(reported=code != 0) or code


def _prepare_streams() -> None:
    """Every standard stream can be used: one that is closed leads nowhere, so that no file of
    ours takes its number."""
    # the system hands out the lowest free number: 0, 1 or 2 means that this stream was closed
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (as long as the process)
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            # a terminal without UTF-8 costs letters, never the result
            stream.reconfigure(errors="backslashreplace")


def _find_modules_here() -> None:
    """`module:Class` of the working folder is found, as `python -m gem_ma` finds it."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder is gone; what needs it says so
        return
    if here not in sys.path:
        search_folder(Path(here))


def _message(error: Exception) -> str:
    if is_too_long(error):
        named = str(getattr(error, "filename", None) or error)
        return f"{named[:60]}...: too long for the name of a file; check what you typed"
    if isinstance(error, OSError) and not isinstance(error, GemMaError):
        where = f"{error.filename}: " if error.filename else ""
        what = f"{where}{error.strerror or error}"
        return f"{what}; nothing was lost: repair this, then type the same command again"
    # the store wraps what the system raised, whose number is in the cause
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_WRITABLE:
        return f"{error}; make it writable, or name another folder"
    if (
        isinstance(error.__cause__, OSError)
        and error.__cause__.errno in _FULL
        and "free some space" not in str(error)
    ):
        return f"{error}; free some space, then type the same command again"
    return str(error)


def _report(error: Exception) -> str:
    first = (str(error).strip().splitlines() or ["no message"])[0]
    what = f"a bug of gem-ma: {type(error).__name__}: {first}"
    try:
        # in a file, since it is long and may hold what its user wants to read before sending it
        handle, path = tempfile.mkstemp(prefix="gem-ma-", suffix=".traceback.txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(" ".join(sys.argv) + "\n" + "".join(traceback.format_exception(error)))
    except OSError:
        return f"{what}; its traceback could not be written"
    return f"{what}; please report it with {path}"


def _stopped() -> str:
    """What is said after a signal outside of play: of a run whose folder is made, how it goes
    on."""
    # not imported: the signal may have come in the middle of an import
    stopping = sys.modules.get("gem_ma.cli.stopping")
    resume = stopping.Stopping.latest if stopping is not None else ""
    return f"stopped; {resume}" if resume else "stopped"


def _terminate(number: int, frame: object) -> None:
    # a BaseException, so that no `except Exception` on the way swallows it
    raise _Terminated(number)


def _say(text: str) -> None:
    if text:
        progress_line(text)


def _flush(reported: bool) -> int:
    """Hands what is printed to its reader; a reader that has gone is not an error. Gives 1 where
    the output could not be written.

    `reported`: the user knows already that something went wrong, and gets no second line.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # else Python flushes once more at its exit, and says that it failed
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # ValueError is what Python raises for a stream that is closed
        except (OSError, ValueError) as error:
            if stream is sys.stdout:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                if not reported:
                    _say(f"the result could not be printed: {error}")
                return 1
    return 0
