"""`gem-ma completion`, and what a shell offers at Tab: configs, scenarios, run folders.

Answering a Tab must be quick and must never fail: nothing of a user is imported, and a folder that cannot be read offers nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Text = click.ParamType[str]
else:
    Text = click.ParamType  # older releases of click have no such type arguments

SHELLS = ("bash", "zsh", "fish")
RUNS_OFFERED = 200
EXAMPLE = """\b
Example:
  eval "$(gem-ma completion bash)"    # in ~/.bashrc"""


@click.command(epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print what makes a shell complete commands, options, configs, scenarios and runs of gem-ma."""
    from click.shell_completion import get_completion_class

    from gem_ma.cli.main import COMPLETE, group
    from gem_ma.cli.terminal import emit

    script = get_completion_class(shell)
    assert script is not None  # the choice above names those that click has
    emit(script(group, {}, "gem-ma", COMPLETE).source())
    return 0


class Source(Text):
    """A config file, the name of a shipped config, or a scenario."""

    name = "source"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from gem_ma import registry
        from gem_ma.config import shipped_configs

        with contextlib.suppress(Exception):
            names = [*registry.catalog("scenarios"), *(path.stem for path in shipped_configs())]
            return [*_items(names, incomplete), *_files(incomplete)]
        return _files(incomplete)


class Run(Text):
    """A run folder, or the name of one below runs/."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from itertools import islice
        from pathlib import Path

        names: list[str] = []
        with contextlib.suppress(OSError):
            found = (path.parent for path in sorted(Path("runs").glob("*/manifest.json")))
            names = [name for path in islice(found, RUNS_OFFERED) for name in (path.name, str(path))]
        return [*_items(names, incomplete), *_files(incomplete)]


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


def _files(incomplete: str) -> list[CompletionItem]:
    """Tells the shell to offer paths of its own."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
