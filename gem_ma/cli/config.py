"""`gem-ma config schema`: what a config may say, as a JSON Schema that editors check and complete
by."""

from __future__ import annotations

import click

from gem_ma.cli.terminal import emit_json
from gem_ma.config.settings import config_schema

EXAMPLE = """\b
Example:
  gem-ma config schema > gem_ma.schema.json"""


@click.group(name="config", help="About configs: their schema.")
def command() -> None:
    pass


@command.command(name="schema", epilog=EXAMPLE)
@click.option("--json", "as_json", is_flag=True, hidden=True, help="It is JSON in any case.")
def schema(as_json: bool) -> int:
    """Print the JSON Schema of a config, made from the settings themselves.

    An editor that speaks YAML checks a file whose first line is
    `# yaml-language-server: $schema=gem_ma.schema.json`.
    """
    emit_json(config_schema())
    return 0
