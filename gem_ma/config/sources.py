"""Where the text of a config comes from, and where the files lie that it names.

A source is a file, a shipped config or a scenario's name; a file may extend another. A path that a
config names is looked up in its folder first, then in the working folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import gem_ma
from gem_ma import registry
from gem_ma.config.document import Document, Fault, read, write
from gem_ma.config.playing import AgentSettings, ExamSettings, ScenarioSettings, ToolSettings
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest
from gem_ma.system.files import MOST_JSON
from gem_ma.system.folders import read_named


def source_of(source: str | Path, configs_first: bool) -> tuple[Path | None, str, str]:
    """(path, text, name in messages) of a source; the path is None for a scenario."""
    path = Path(source)
    name = str(source)
    # a .py file is asked for first: `game.py` may not be looked for among configs
    if registry.file_of(name) is not None:
        return None, _scenario_text(name), name
    if path.is_file():
        return path, _text(path), name
    # the likeliest slip: `gem-ma run runs/x` for `gem-ma resume runs/x`
    if path.is_dir() and (path / "resolved.yaml").is_file():
        raise ConfigError(
            f"{name}: this is a run folder; continue it with `gem-ma resume {name}`, repeat it with"
            f" {name}/resolved.yaml"
        )
    shipped = {found.name: found for found in shipped_configs()}
    # a wheel has no configs/ to type
    if path.suffix == ".yaml" and str(path.parent) in (".", "configs") and path.name in shipped:
        return shipped[path.name], _text(shipped[path.name]), name
    if (
        path.suffix in (".yaml", ".yml")
        or isinstance(source, Path)
        or ("/" in name and ":" not in name)
    ):
        # a glob over a folder that is not there gives nothing
        there = [str(path.parent / other.name) for other in path.parent.glob("*.y*ml")]
        fault = "a folder, not a config" if path.is_dir() else "no such file"
        raise ConfigError(f"{name}: {fault}{nearest(name, there, listed=False)}")
    is_scenario = ":" in name or name in registry.catalog("scenarios")
    config = shipped.get(f"{name}.yaml")
    if config is not None and (configs_first or not is_scenario):
        return config, _text(config), str(locate(config.name, config.parent))
    if not is_scenario:
        raise ConfigError(
            f"{name}: no scenario and no config file has this name{_hint(name, shipped)}"
        )
    return None, _scenario_text(name), name


def _hint(name: str, shipped: Iterable[str]) -> str:
    """What was meant by a name: a file of this folder, else a scenario or a shipped config."""
    # what `gem-ma new config NAME` and `new scenario NAME` wrote, typed without its ending
    files = [f"{name}{end}" for end in (".yaml", ".yml", ".py")]
    if there := [file for file in files if Path(file).is_file()]:
        return f" (did you mean {' or '.join(map(repr, there))}?)"
    known = [*registry.catalog("scenarios"), *(Path(file).stem for file in shipped)]
    own = [str(file) for end in ("*.y*ml", "*.py") for file in Path().glob(end)]
    # a typing error in the name of one's own file; a list of all that is known would not name it
    near = nearest(name, [*known, *own], listed=False)
    libraries = ", ".join(registry.builtin("worlds"))
    # `FrozenLake-v1` is what a user of its library types first
    foreign = f"; an environment of a library is LIBRARY:{name}, with {libraries}"
    return near or f"{nearest(name, known)}{foreign}"


def _scenario_text(name: str) -> str:
    opening = f"# {name} as it comes: every agent on its default behaviour.\n"
    return opening + write({"scenario": {"id": name}})


def shipped_configs() -> Iterator[Path]:

    for folder in gem_ma.__path__:
        yield from sorted(Path(folder, "configs").glob("*.yaml"))


def trained_by(scenario: str) -> str:
    """Which shipped configs train a scenario: the end of a message, empty where none does."""
    # read as text: a list is not a place to check every config
    ours = re.compile(rf"^scenario:.*\bid: {re.escape(scenario)}\b", re.MULTILINE)
    texts = {path.stem: _text(path) for path in shipped_configs()}
    named = [stem for stem, text in texts.items() if ours.search(text) and "\ntrain:" in text]
    return f"; it is trained by: gem-ma train {' or '.join(named)}" if named else ""


def _text(path: Path) -> str:
    try:
        # -sig: editors on Windows put a mark before the first letter, which YAML would read as a
        # key's
        return read_named(path, MOST_JSON).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error


def extend(document: Document, path: Path | None, file: str) -> None:
    """Puts the file named by `extends:` below this one: `section.key` of the child replaces that
    of the base whole, so no policy is merged."""
    place = document.place(("extends",))
    base = document.value.pop("extends", None)
    if base is None:
        return
    if not isinstance(base, str):
        document.faults.append(
            Fault(place, ("extends",), "wants the name of one config file in this folder")
        )
        return
    folder = path.parent if path is not None else Path()
    target = folder / base
    # a config that came with a folder may read nothing outside of it
    if os.path.isabs(base) or folder.resolve() not in target.resolve().parents:
        document.faults.append(Fault(place, ("extends",), f"{base!r} leaves the config's folder"))
        return
    if not target.is_file():
        others = [str(p.relative_to(folder)) for p in folder.glob("*.y*ml")]
        fault = f"no such file: {base!r}{nearest(base, others, listed=False)}"
        if target.exists():
            fault = f"{base!r} is a folder, a pipe or a device, not a file"
        document.faults.append(Fault(place, ("extends",), fault))
        return
    below = read(_text(target), os.path.join(os.path.dirname(file), base))
    if not isinstance(below.value, dict):
        document.faults.append(Fault(place, ("extends",), f"{base!r} holds no sections"))
        return
    if "extends" in below.value:
        below.fault(
            ("extends",), "one level only: a config that is extended may not extend another"
        )
        del below.value["extends"]
    # key by key below a section, so that the places of what is not replaced stay those of the base
    for section, values in document.value.items():
        whole = not isinstance(values, dict) or not isinstance(below.value.get(section), dict)
        for keys in [(section,)] if whole else [(section, key) for key in values]:
            part = {
                inner[len(keys) :]: at
                for inner, at in document.places.items()
                if inner[: len(keys)] == keys
            }
            below.put(keys, Document(document.get(*keys), {(): place, **part}))
    document.value = below.value
    document.places = {**below.places, (): document.places[()]}
    document.faults += below.faults


FILES = ("data", "words")  # options of scenarios that are paths, by convention of all of them
Block = TypeVar("Block", bound=ScenarioSettings)


def locate(value: str, base: Path | None) -> str:
    """A path of a config: in the config's folder where it exists there, else as it is (from the
    working folder)."""
    if (
        base is None
        or not value
        or os.path.isabs(value)
        # `exists` raises ValueError for it; the schema or the engine refuses such a name
        or "\0" in value
        or not (base / value).exists()
    ):
        return value
    # relative where it can be, so that a run folder moved with its project still finds its model
    found = (base / value).resolve()
    return os.path.relpath(found) if Path.cwd() in found.parents else str(found)


def locate_files(value: Any, base: Path | None) -> Any:
    """A path, or paths by split, as `locate` finds them; everything else as it is."""
    if isinstance(value, dict):
        return {key: locate_files(path, base) for key, path in value.items()}
    return locate(value, base) if isinstance(value, str) else value


def locate_code(name: str, base: Path | None) -> str:
    """A name of code: where it is a file, that file as `locate` finds it."""
    file = registry.file_of(name)
    return name if file is None else locate(str(file), base) + name[len(str(file)) :]


def located(config: Config, base: Path | None) -> Config:
    """The config with every path that exists in its folder written as seen from the working
    folder."""
    scenario = None if config.scenario is None else _scenario(config.scenario, base)
    scenarios = {name: _scenario(block, base) for name, block in config.scenarios.items()}
    exams = {name: _scenario(block, base) for name, block in config.evaluate.scenarios.items()}
    policies = {}
    for name, policy in config.policies.items():
        engine, _, model = policy.model.partition("/")
        changes = {"model": f"{engine}/{locate(model, base)}"} if model else {}
        # the one option of an engine that is a path: the folder of an adapter
        if isinstance(adapter := policy.options.get("lora"), str):
            changes["lora"] = locate(adapter, base)
        policies[name] = policy.model_copy(update=changes)
    changed = {
        "scenario": scenario,
        "scenarios": scenarios,
        "agents": _seats(config.agents, base),
        "policies": policies,
        "evaluate": config.evaluate.model_copy(update={"scenarios": exams}),
    }
    return config.model_copy(update=changed)


def _scenario(block: Block, base: Path | None) -> Block:
    """The block with its files, and those of its seats, as seen from the working folder."""
    changed: dict[str, Any] = {}
    for key in FILES:
        if isinstance(path := block.options.get(key), (str, dict)):
            changed[key] = locate_files(path, base)
    if isinstance(block, ExamSettings):
        changed["agents"] = _seats(block.agents, base)
    return block.model_copy(update=changed)


def _seats(seats: Mapping[str, AgentSettings], base: Path | None) -> dict[str, AgentSettings]:
    return {
        name: seat.model_copy(update={"tools": [_with_folders(tool, base) for tool in seat.tools]})
        if seat.tools
        else seat
        for name, seat in seats.items()
    }


def _with_folders(tool: ToolSettings, base: Path | None) -> ToolSettings:
    """The tool with the folders that it reads, where it has any, as seen from the working
    folder."""
    update: dict[str, object] = {}
    for name, keys in (("search", ("folder", "model")), ("shell", ("folder",))):
        if (options := getattr(tool, name)) is not None:
            named = {key: getattr(options, key) for key in keys}
            folders = {key: locate(path, base) for key, path in named.items() if path is not None}
            update[name] = options.model_copy(update=folders)
    return tool.model_copy(update=update)
