"""`gem-ma new model PATH`: writes a tiny model folder, without a download."""

from __future__ import annotations

from typing import Any

import click


@click.group(name="new", help="Make something new: a tiny model.")
def command() -> None:
    pass


@command.command(name="model")
@click.argument("path", type=click.Path())
@click.option(
    "--scenario",
    # small enough for the processor of a laptop to learn it
    default="referential",
    show_default=True,
    help="Whose words the tokenizer knows: an id, or package.module:Class.",
)
@click.option(
    "--size",
    type=click.Choice(["word", "nano", "tiny", "small", "medium"]),
    default="word",
    show_default=True,
    help=(
        "word: d64, 2 layers, one id per word. nano, tiny, small, medium (38M): byte-level, any"
        " text."
    ),
)
@click.option(
    "--arch",
    type=click.Choice(["qwen3", "llama"]),
    default="qwen3",
    show_default=True,
    help="Architecture.",
)
@click.option(
    "--untied", is_flag=True, help="A matrix of its own to read out, as large models have."
)
@click.option(
    "--positions",
    type=click.IntRange(min=1),
    help="The longest conversation, in tokens.  [default: twice that of scripted plays]",
)
@click.option(
    "--clone",
    "clones",
    # several, since each agent may have a teacher of its own
    multiple=True,
    metavar="[AGENT=]BEHAVIOUR",
    help="Clone scripted players: one for all agents, or one for each.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="AGENT",
    help="With --clone: learn this agent's part only. May be given again.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=400,
    show_default=True,
    help="With --clone: optimiser steps.",
)
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="With --clone: demonstrated plays.",
)
@click.option("--seed", default=0, show_default=True, help="The same seed writes the same model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def model(
    path: str,
    scenario: str,
    clones: tuple[str, ...],
    agents: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Write a tiny language model with its own tokenizer to PATH, a folder that is new or empty.

    With --clone it begins warm: it imitates scripted behaviours, and is then asked, on plays that
    it has not seen, whether what it does depends on what it is shown.

    \b
    Examples:
      gem-ma new model models/tiny --scenario retail --size nano
      gem-ma new model models/kuhn --scenario kuhn_poker --clone noisy_kuhn
      gem-ma new model models/speaker --scenario referential --clone speaker=noisy_speaker
        --clone listener=noisy_listener --agent speaker
    """
    from gem_ma import registry
    from gem_ma.cli.terminal import emit_json, progress_line

    # before the model library is imported, which takes seconds: is there such a scenario?
    registry.load("scenarios", scenario)
    from gem_ma.training.learner.positions import Measured

    # it plays: a scenario whose plays never end fails here, before a model is made
    positions = Measured(registry.as_scenario(scenario), options["positions"])
    shape = {
        "size": options["size"],
        "architecture": options["arch"],
        "seed": options["seed"],
        "tied": not options["untied"],
        "positions": positions,
    }
    if clones:
        counts = {"steps": options["steps"], "episodes": options["episodes"]}
        made = _clone(path, scenario, clones, agents, **counts, **shape)
    elif agents:
        raise click.UsageError("--agent needs --clone")
    else:
        # needs the train extra, and takes seconds to import
        from gem_ma.engines.local.tiny import make_model

        made = make_model(path, scenario, **shape)
    if positions.warning is not None:
        progress_line(f"warning: {positions.warning}")
    if as_json:
        emit_json({**made, "longest_talk": positions.need.longest})
    else:
        _show(made, positions.source)


def _clone(
    path: str, scenario: str, clones: tuple[str, ...], agents: tuple[str, ...], **options: Any
) -> dict[str, Any]:
    """A model that imitates scripted players; a warning where it has learned to ignore what it is
    shown."""
    from gem_ma.cli.terminal import progress_line
    from gem_ma.training.learner.warm_model import DEAF, make_warm_model

    made = make_warm_model(path, scenario, _cast(scenario, clones), agents, **options)
    # None: nothing that it was shown could be swapped for something else
    if made["listens"] is not None and made["listens"] < DEAF:
        progress_line(
            "warning: this model does not listen: what it is shown makes its answers only"
            f" {made['listens']:.3f} nats likelier than anything else would. It has learned that"
            " from players who ignore what they see; clone others"
        )
    return made


def _show(made: dict[str, Any], positions: str) -> None:
    from gem_ma.cli.terminal import emit

    emit(
        f"{made['path']}: {made['parameters']:,} parameters, {made['vocabulary']} tokens of"
        f" {made['scenario']}"
    )
    emit(f"{made['positions']} positions: {positions}")
    if "cloned" in made:
        gap = "nothing to compare" if made["listens"] is None else f"{made['listens']:.2f} nats"
        emit(
            f"cloned {', '.join(made['cloned'])}: loss {made['loss']:.3f}, depends on what it is"
            f" shown: {gap}"
        )


def _cast(scenario: str, clones: tuple[str, ...]) -> dict[str, str]:
    """AGENT=BEHAVIOUR of each, or one behaviour for all agents."""
    from gem_ma.registry import make

    # a behaviour's name holds no =, so the first one parts it from its agent
    named = dict(clone.split("=", 1) for clone in clones if "=" in clone)
    for_all = [clone for clone in clones if "=" not in clone]
    if len(for_all) > 1 or len(named) + len(for_all) != len(clones):
        raise click.UsageError(
            "--clone takes one behaviour for all agents, and at most one for each: --clone"
            " AGENT=BEHAVIOUR"
        )
    return {**dict.fromkeys(make(scenario).agents, for_all[0]), **named} if for_all else named
