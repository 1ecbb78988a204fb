"""`gem-ma completion`, and what a shell offers at Tab: configs, scenarios, run folders.

Answering a Tab must be quick and must never fail: nothing of a user is imported, and a folder
that cannot be read offers nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from gem_ma.cli.terminal import emit

SHELLS = ("bash", "zsh", "fish")
# nobody reads a longer list, and each name costs the Tab some time
RUNS_OFFERED = 200
ENDINGS = (".yaml", ".yml", ".py")
EXAMPLE = """\b
Example:
  eval "$(gem-ma completion bash)"    # in ~/.bashrc"""


@click.command(epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print what makes a shell complete commands, options, configs, scenarios and runs of
    gem-ma."""
    from gem_ma.cli.main import COMPLETE, group

    script = get_completion_class(shell)
    assert script is not None  # the choice above names those that click has
    emit(script(group, {}, "gem-ma", COMPLETE).source())
    return 0


def sources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Config files, names of shipped configs, and scenarios."""
    from gem_ma import registry
    from gem_ma.config.sources import shipped_configs

    # an error would be printed into the line that is being typed
    with contextlib.suppress(Exception):
        names = [*registry.catalog("scenarios"), *(path.stem for path in shipped_configs())]
        return _offers(names, incomplete)
    return _offers((), incomplete)


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Run folders, and the names of those below runs/."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        folders = (path.parent for path in sorted(Path("runs").glob("*/manifest.json")))
        # both forms can be typed: the name below runs/, and the path
        names = [name for path in islice(folders, RUNS_OFFERED) for name in (path.name, str(path))]
    return _offers(names, incomplete)


def _offers(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that begin so, and the paths; where no name does, the shell's own completion of
    paths.

    The two are never mixed: at the type `file` the script for bash drops all that was offered
    before it.
    """
    fitting = {name for name in names if name.startswith(incomplete)}
    if not fitting:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in sorted(fitting | _paths(incomplete))]


def _paths(incomplete: str) -> set[str]:
    """Configs, files of scenarios and folders whose path begins so, folders with a slash at
    their end."""
    above, start = os.path.split(incomplete)
    paths: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(above or ".") as entries:
        for entry in entries:
            # as shells do: hidden files are offered once a dot is typed
            hidden = entry.name.startswith(".") and not start.startswith(".")
            if (
                entry.name.startswith(start)
                and not hidden
                and (entry.is_dir() or entry.name.endswith(ENDINGS))
            ):
                # the slash lets the next Tab go on inside of the folder
                paths.add(os.path.join(above, entry.name) + "/" * entry.is_dir())
    return paths
