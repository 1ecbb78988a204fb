"""`gem-ma new scenario`, `new agent` and `new config`: files to begin with, which work as they
are. A file that exists is never replaced."""

from __future__ import annotations

import json
import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from string import Template
from typing import Any

import click

from gem_ma import registry
from gem_ma.cli.completion import sources
from gem_ma.cli.terminal import emit, emit_json
from gem_ma.config.check import single
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario

TEMPLATES = Path(__file__).parent / "templates"
TABLE = "table/softmax"
LARGE = 64_000_000  # bytes of weights; those of `new model --size small` are far below
LONGEST = 90  # characters of an agent's name that its policy's takes over
YAML_WORDS = ("true", "false", "null")  # which it reads as other values than texts
LISTED = 4  # agents that learn and are written one by one
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command(name="scenario")
@click.argument("name")
@click.option(
    "--agent", "agents", multiple=True, metavar="AGENT", help="An agent; may be given again."
)
@as_json_option
def scenario(name: str, agents: tuple[str, ...], as_json: bool) -> int:
    """Write NAME.py, the rules of a small game to change, and test_NAME.py, a test of them.

    \b
    Example:
      gem-ma new scenario market --agent buyer --agent seller
    """
    _check_name(name)
    cast = agents or ("caller", "listener")
    for agent in cast:
        if not agent.isidentifier() or keyword.iskeyword(agent):
            raise click.UsageError(f"--agent {agent}: the name of an agent is a word, as in buyer")
    if len(set(cast)) < len(cast):
        raise click.UsageError("--agent names one agent twice")
    title = _title(name)
    if title in ("Ask", "Reward", "Scenario", "Tell"):
        raise click.UsageError(f"{name}: a class {title} would hide the one that it builds on")
    listed = ", ".join(f'"{agent}"' for agent in cast) + "," * (len(cast) == 1)
    words = {"agents": f"({listed})", "ends": str(min(2, len(cast)))}
    texts = {
        f"{name}.py": _filled("scenario", name, words),
        f"test_{name}.py": _filled("scenario_test", name, words),
    }
    commands = [f"gem-ma check {name}.py", f"gem-ma play {name}.py --as {cast[0]}"]
    return _write(texts, [*commands, f"gem-ma new config {name} --scenario {name}.py"], as_json)


@click.command(name="agent")
@click.argument("name")
@click.option("--model", is_flag=True, help="One that asks a model, instead of a script.")
@as_json_option
def agent(name: str, model: bool, as_json: bool) -> int:
    """Write NAME.py, a behaviour to change: what turns what an agent is shown into what it does.

    \b
    Example:
      gem-ma new agent stubborn
    """
    _check_name(name)
    title = _title(name)
    player = f"{name}.py:{_title(name)}"
    if title in ("Action", "Message"):
        raise click.UsageError(f"{name}: a class {title} would hide the one that it builds on")
    text = _filled("agent_model" if model else "agent", name, {})
    seat = f'{{behaviour: "{player}", model: ENGINE/NAME}}' if model else player
    return _write({f"{name}.py": text}, [f"gem-ma run SCENARIO 'agents.AGENT={seat}'"], as_json)


@click.command(name="config")
@click.argument("name")
@click.option(
    "--scenario",
    "source",
    metavar="SOURCE",
    shell_complete=sources,
    required=True,
    help="A scenario, or game.py.",
)
@click.option(
    "--learns",
    multiple=True,
    metavar="AGENT",
    help="A config that trains this agent (or all); may be given again.",
)
@click.option(
    "--model", default=TABLE, show_default=True, help="With --learns: ENGINE/NAME of who learns."
)
@click.option(
    "--clone",
    "clones",
    multiple=True,
    metavar="[AGENT=]BEHAVIOUR",
    help="With --learns: who is copied before, one for all agents, or one for each.",
)
@as_json_option
def config(
    name: str,
    source: str,
    learns: tuple[str, ...],
    model: str,
    clones: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write NAME.yaml: who plays a scenario, or with --learns who learns it.

    With --clone those who learn begin as copies of scripted players. A game wants that where what
    pays is hardly ever met by chance: where a question costs and the answer means nothing yet.

    \b
    Examples:
      gem-ma new config market --scenario market.py --learns all
      gem-ma new config market --scenario market.py --learns all --clone market.py:told
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise click.UsageError(f"{name}: the name of a config has letters, digits, _ and -")
    file = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    made = registry.make(source)
    learners = list(made.agents) if learns == ("all",) else list(learns)
    if strange := [learner for learner in learners if learner not in made.agents]:
        names = ", ".join(made.agents)
        raise click.UsageError(f"--learns {strange[0]}: no such agent; its agents are {names}")
    if clones and not learners:
        raise click.UsageError("--clone says as whom they begin who learn: --learns AGENT, or all")
    called = _policies(learners)
    # `{agent}` is the agent's name as it is, which not every policy may have
    is_long = learns == ("all",) and len(learners) > LISTED and [*called] == [*called.values()]
    seats = '  "*": {policy: "{agent}"}' if is_long else _seats(made, called)
    words = {"scenario": _quoted(source), "file": file, "agents": seats}
    if learners:
        engine, how = _learning(model, len(learners))
        policies = ["{agent}"] if is_long else [*called.values()]
        words |= {
            "learners": f"all {len(learners)} agents" if is_long else " and ".join(learners),
            "learned": ", ".join(map(_quoted, policies)),
            "policies": "\n".join(
                f"  {_quoted(each)}: {{model: {_quoted(model)}{engine}}}" for each in policies
            ),
            "clones": _clones(made, learners, policies, clones),
            **how,
        }
    else:
        words["count"] = str(_plays(made))
    text = _filled("config_train" if learners else "config_run", name, words)
    command = f"gem-ma {'train' if learners else 'run'} {file}"
    return _write({file: text}, [f"gem-ma check {file}", command], as_json)


def _learning(model: str, learners: int) -> tuple[str, dict[str, str]]:
    """What learns a small game, by the kind and size of the model and the number of learners:
    further keys of the policy, and the words of the template. experiments/log.md has the
    measurements."""
    if model == TABLE:
        # a table takes a value per view and answer, so its steps are far larger
        return ", optimizer: adam", {
            "steps": "60",
            "every": "6",
            "episodes": "64",
            # several that learn from each other settle before they have met enough at such a rate
            "lr": "0.5" if learners == 1 else "0.1",
            "update": "",
        }
    if _is_large(model):
        # all weights would take three times the memory, and forget what they know at such rates
        keys = ", dtype: auto, lora: {rank: 8}"
        update = "\n  lr_final: 0.3\n  loss: {minibatches: 1, entropy: 0.05}"
        # an exam costs as much as four of its steps
        steps = {"steps": "20", "every": "5", "episodes": "64"}
        return keys, {**steps, "lr": "6.0e-4", "update": update}
    # random weights hardly read what they are shown: several passes over a step's plays at a high
    # rate wake them, target_kl and the entropy keep what they then learn
    update = (
        "\n  lr_final: 0.2            # share of lr that is left at the last step\n  lr_warmup: 5"
        "\n  loss: {epochs: 3, minibatches: 4, target_kl: 0.02, entropy: 0.03}"
    )
    steps = {"steps": "100", "every": "10", "episodes": "128"}
    return "", {**steps, "lr": "2.0e-3", "update": update}


def _is_large(model: str) -> bool:
    """Whether a model is one of the hub, or a folder of more weights than a tiny one has."""
    kind, _, name = model.partition("/")
    folder = Path(name)
    if kind not in ("transformers", "vision"):
        return True
    if folder.is_dir():
        return sum(file.stat().st_size for file in folder.glob("*.safetensors")) > LARGE
    return not name.startswith(("models/", "runs/", ".", "/"))


def _clones(
    made: Scenario, learners: list[str], policies: list[str], clones: tuple[str, ...]
) -> str:
    """The section of the template in which each policy copies scripted players, or nothing."""
    if not clones:
        return ""
    cast = cast_of(made, clones)
    if lacking := [learner for learner in learners if learner not in cast]:
        raise click.UsageError(f"--clone says nothing of {lacking[0]}: {lacking[0]}=BEHAVIOUR")
    for behaviour in cast.values():
        registry.load("agents", behaviour)
    # what is not named plays as it would in a run
    cast = {name: made.default_cast.get(name, "random_legal") for name in made.agents} | cast
    is_one = len(set(cast.values())) == 1
    seats = {"*": next(iter(cast.values()))} if is_one else cast
    words = ", ".join(
        f"{_quoted(name)}: {_flow({'behaviour': who})}" for name, who in seats.items()
    )
    lines = [f"    {_quoted(policy)}: {{cast: {{{words}}}}}" for policy in policies]
    return "\n".join(
        ["\n  warm_start:              # they begin as copies of these players", *lines]
    )


def cast_of(made: Scenario, clones: Sequence[str]) -> dict[str, str]:
    """AGENT=BEHAVIOUR of each, or one behaviour for all agents."""
    # a behaviour's name holds no =, so the first one parts it from its agent
    named = dict(clone.split("=", 1) for clone in clones if "=" in clone)
    for_all = [clone for clone in clones if "=" not in clone]
    if len(for_all) > 1 or len(named) + len(for_all) != len(clones):
        raise click.UsageError(
            "--clone takes one behaviour for all agents, and at most one for each: --clone"
            " AGENT=BEHAVIOUR"
        )
    if strange := [agent for agent in named if agent not in made.agents]:
        raise ConfigError(
            f"--clone {strange[0]}=: no such agent; its agents are {', '.join(made.agents)}"
        )
    return {**dict.fromkeys(made.agents, for_all[0]), **named} if for_all else named


def _policies(learners: Sequence[str]) -> dict[str, str]:
    """Agent -> its policy, which is called like it as far as a name of files may be."""
    names: dict[str, str] = {}
    for learner in learners:
        name = re.sub(r"^[.+-]|[^A-Za-z0-9_.+-]", "_", learner)[:LONGEST]
        # two names may come to one, and what is put behind it may be a third
        free = chain([name], (f"{name}_{number}" for number in count(2)))
        names[learner] = next(each for each in free if each not in names.values())
    return names


def _seats(made: Scenario, called: Mapping[str, str]) -> str:
    seats = []
    for name in made.agents:
        player = made.default_cast.get(name, "random_legal")
        seat = {"policy": called[name]} if name in called else {"behaviour": player}
        seats.append(f"  {_quoted(name)}: {_flow(seat)}")
    return "\n".join(seats)


def _plays(made: Scenario) -> int:

    tasks = made.tasks("test")
    return 50 if single(tasks) else min(50, len(tasks))


def _flow(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {_quoted(value)}" for key, value in values.items()) + "}"


def _quoted(text: str) -> str:
    # a colon or a brace in it would be YAML's; 3 is a number there, and true is not text
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) and text.lower() not in YAML_WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _check_name(name: str) -> None:
    """Raises UsageError for a name that Python cannot import."""
    if not name.isidentifier() or keyword.iskeyword(name):
        word = re.sub(r"\W+", "_", name.removesuffix(".py")).strip("_").lower()
        meant = f", as in {word}" if word.isidentifier() and word != name else ""
        raise click.UsageError(f"{name}: the name of a file that Python imports is a word{meant}")
    if name in sys.stdlib_module_names or name in ("gem_ma", "numpy", "pytest"):
        raise click.UsageError(f"{name}: a module is called so already; take another name")


def _title(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Mine"


def _filled(template: str, name: str, words: Mapping[str, str]) -> str:
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(name=name, title=_title(name), **words)


def _write(texts: Mapping[str, str], commands: list[str], as_json: bool) -> int:
    """Writes the files, all or none, and says what to type next."""
    for file in texts:
        if Path(file).exists():
            raise ConfigError(f"{file}: stands there already; take another name, or remove it")
    for file, text in texts.items():
        # x: a file that somebody has made meanwhile is not replaced
        with open(file, "x", encoding="utf-8") as opened:
            opened.write(text)
    facts: dict[str, Any] = {"files": list(texts), "next": commands}
    if as_json:
        emit_json(facts)
    else:
        emit("\n".join([*(f"wrote {file}" for file in texts), *(f"next: {c}" for c in commands)]))
    return 0
