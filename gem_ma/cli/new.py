"""`gem-ma new model PATH`: writes a tiny model folder, without a download."""

from __future__ import annotations

import click


@click.group(name="new", help="Make something new: a tiny model.")
def command() -> None:
    pass


@command.command(name="model")
@click.argument("path", type=click.Path())
@click.option("--scenario", default="referential", show_default=True, help="Whose words the tokenizer knows: an id, or package.module:Class.")
@click.option(
    "--size",
    type=click.Choice(["word", "nano", "tiny", "small"]),
    default="word",
    show_default=True,
    help="word: d64, 2 layers, one id per word. nano, tiny, small: byte-level, any text.",
)
@click.option("--seed", default=0, show_default=True, help="The same seed writes the same model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def model(path: str, scenario: str, size: str, seed: int, as_json: bool) -> None:
    """Write a tiny Qwen3-architecture language model with its own tokenizer to PATH, a folder that is new or empty."""
    from gem_ma.cli.terminal import emit, emit_json
    from gem_ma.engines.tiny import make_model

    made = make_model(path, scenario, size=size, seed=seed)
    if as_json:
        emit_json(made)
    else:
        emit(f"{made['path']}: {made['parameters']:,} parameters, {made['vocabulary']} tokens of {made['scenario']}")
