"""docs/commands.md has every command, and every command has an example in its help."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest

from gem_ma.cli.export import FORMATS
from gem_ma.cli.main import COMMANDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def commands(name: str) -> list[tuple[str, click.Command]]:
    """A command, or those of a group, as they are typed."""
    command = import_module(f"gem_ma.cli.{name}").command
    if isinstance(command, click.Group):
        return [(f"{name} {inner}", command.commands[inner]) for inner in command.commands]
    return [(name, command)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_command_and_its_help_an_example(name: str) -> None:
    for words, command in commands(name):
        assert f"| `gem-ma {words}" in PAGE, words
        text = f"{command.help} {command.epilog}"
        assert f"gem-ma {words}" in text and "Example" in text, words


def test_the_page_has_every_format_of_an_export() -> None:
    assert all(f"`{form}`" in PAGE for form in FORMATS)
