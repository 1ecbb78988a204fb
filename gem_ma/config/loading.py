"""A YAML file, or a scenario id, -> a validated `settings.Config`; every fault at once, each as
`file:line: key.path: what (did you mean ...)`.

Knows files, overrides, `extends:` and the schema; whether a config fits its scenario, behaviours
and engines is asked of `gem_ma.config.fit`. Secrets are named, never read here: `${env:NAME}` stays as
written until an engine is opened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.document import Document, Fault, Keys, Place, dotted, read, refuse, write
from gem_ma.config.fit import check_fit, locate, locate_code, nearest, single
from gem_ma.config.grid import Grid, take_grid
from gem_ma.config.schema import validate
from gem_ma.config.settings import Config
from gem_ma.config.studies import StudySections
from gem_ma.errors import ConfigError, DataError
from gem_ma.files import MOST_JSON
from gem_ma.folders import read_named
from gem_ma.secret_names import check_comments, check_secrets

COMMAND_LINE = "command line"
DEFAULT_EPISODES = 20  # of a config made from a scenario id


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config with its origin. `text` is the file as written, `path` None where it was made
    from a scenario id."""

    config: Config
    text: str
    path: Path | None
    overrides: tuple[str, ...] = ()
    study: bool = False  # the file is a study; this is its reference cell
    # where every key was written
    places: Mapping[Keys, Place] = field(default_factory=dict, repr=False, compare=False)

    @property
    def base(self) -> Path | None:
        """The folder that relative paths of the config are looked up in first."""
        return self.path.parent if self.path is not None else None

    @property
    def stem(self) -> str:
        """What the run folder is called after."""
        name = self.path.stem if self.path is not None else self.config.scenario.id
        file = registry.file_of(name)
        name = name if file is None else name.replace(str(file), file.stem, 1)
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "run"

    def written(self) -> str:
        """The text with the overrides in comments below it, as the run folder keeps it."""
        return "".join(
            [
                self.text,
                *(["\n"] if self.text and not self.text.endswith("\n") else []),
                *(f"# override {json.dumps(o)}\n" for o in self.overrides),
            ]
        )

    def resolved(self) -> dict[str, Any]:
        """The complete config as JSON values; loading it gives an equal config. Paths are as
        seen from the working folder."""
        return located(self.config, self.base).model_dump(mode="json", exclude_none=False)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Gives a ConfigError that is raised inside, and begins with a key of the config, the
        file and line of that key."""
        try:
            yield
        except ConfigError as error:
            head = str(error).partition(": ")[0]
            names = {path: dotted(path) for path in self.places if path}
            above = [
                path
                for path, name in names.items()
                if head == name or head.startswith((f"{name}.", f"{name}["))
            ]
            if not above:
                raise
            raise ConfigError(f"{self.places[max(above, key=len)]}: {error}") from error

    def without_training(self) -> Loaded:
        """What `run` plays: it has a run folder of its own beside that of `train`."""
        return replace(self, config=self.config.model_copy(update={"train": None}))

    def identity(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON values, paths as written: what the name of a
        run folder is made of, whatever the working folder. A setting that a later version adds
        renames no folder."""
        return self.config.model_dump(mode="json", exclude_defaults=True)


def load(
    source: str | Path, overrides: Sequence[str] = (), *, configs_first: bool = False
) -> Loaded:
    """A config from a YAML file, the stem of a shipped config, or a scenario (then every agent gets
    a default behaviour).

    A scenario is an id, `game.py`, `game.py:Class` or `module:Class`. Where a scenario and a
    shipped config share a name, the name means the scenario, or the config where `configs_first`
    (what `gem-ma train NAME` wants, since a scenario alone cannot learn). Of a study it is the
    reference cell. `overrides` are `dotted.key=value`, values in YAML. Raises ConfigError with
    all faults, DataError where data that it names is missing.
    """
    path, text, document, grid = _open(source, overrides, configs_first)
    if grid is not None:
        document = grid.filled(document, grid.reference)
    config = _finish(document, path)
    document.refuse()
    if config is None:
        # unreachable while every refusal of the schema makes a fault
        raise ConfigError(f"{source}: the config is not valid")
    return Loaded(config, text, path, tuple(overrides), grid is not None, document.places)


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study: one config per cell, in the order of the grid. `reference` is the cell that the
    others are compared with."""

    sections: StudySections
    axes: dict[str, tuple[str, ...]]  # dotted path -> names of its cells
    cells: dict[tuple[str, ...], Loaded]  # names, one per axis
    reference: tuple[str, ...]
    shared: dict[str, Any]  # what all cells have in common, as written
    text: str
    path: Path | None
    overrides: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """What the study's folder is called after."""
        name = self.sections.study.name or (self.path.stem if self.path is not None else "study")
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "study"


def load_study(source: str | Path, overrides: Sequence[str] = ()) -> LoadedStudy:
    """Every cell of a study's grid as a config, each as `load` would give it. Raises ConfigError
    with the faults of all cells at once."""
    path, text, document, grid = _open(source, overrides, configs_first=True)
    if grid is None:
        document.refuse()
        raise ConfigError(
            f"{source}: no section `grid:` or `cross_play:`, so there is nothing to compare; play"
            f" it with: gem-ma run {source}"
        )
    cells, faults = {}, list(document.faults)
    for names in grid.cells():
        filled = grid.filled(document, names)
        config = _finish(filled, path)
        faults += filled.faults
        if config is not None:
            told = (
                f"# {' x '.join(names)}: a cell of the study {document.place(()).file}\n"
                + write(filled.value)
            )
            cells[names] = Loaded(config.model_copy(update={"train": None}), told, path)
    refuse(faults, document.place(()).file)
    return LoadedStudy(
        grid.sections,
        grid.axes(),
        cells,
        grid.reference,
        document.value,
        text,
        path,
        tuple(overrides),
    )


def _open(
    source: str | Path, overrides: Sequence[str], configs_first: bool
) -> tuple[Path | None, str, Document, Grid | None]:
    """Path, text, the document with what it extends and the overrides, and its grid where it is
    a study."""
    path, text, file = _source(source, configs_first)
    document = (
        read(text, file)
        if path is not None
        else Document({"scenario": {"id": file}}, {(): Place(file)})
    )
    if not isinstance(document.value, dict):
        document.fault(
            (),
            (
                "empty"
                if document.value is None
                else "wants sections such as `scenario:`; this is no mapping"
            ),
        )
        document.refuse()
    _extend(document, path, file)
    _spell_seats(document)
    for override in overrides:
        _override(document, override)
        _spell_seats(document)  # each: a later one may set a key of a seat
        check_secrets(
            document
        )  # each: what a later one replaces stands in the manifest all the same
    check_comments(document, text)
    return path, text, document, take_grid(document)


def _finish(document: Document, path: Path | None) -> Config | None:
    """The config of a document, or None after adding faults to it."""
    _name_policies(document)
    if path is None:
        _seat_defaults(document)
    else:
        _locate_code(document.value, path.parent)
    if path is None or not _is_record(path):
        _engine_defaults(document)
        _seed_defaults(document)
    check_secrets(document)
    secret = {fault.path: fault for fault in document.faults}
    config = validate(document, Config)
    try:
        check_fit(document, path.parent if path is not None else None)
    except DataError as error:
        document.refuse()
        raise error
    # One line for one thing: that a secret's name is also no known option is nothing to add.
    document.faults = [fault for fault in document.faults if secret.get(fault.path, fault) == fault]
    return config


def located(config: Config, base: Path | None) -> Config:
    """The config with every path that exists in its folder written as seen from the working
    folder."""
    scenario = config.scenario
    data = scenario.options.get("data")
    if isinstance(data, str):
        scenario = scenario.model_copy(update={"data": locate(data, base)})
    policies = {}
    for name, policy in config.policies.items():
        engine, _, model = policy.model.partition("/")
        policies[name] = (
            policy.model_copy(update={"model": f"{engine}/{locate(model, base)}"})
            if model
            else policy
        )
        if isinstance(adapter := policy.options.get("lora"), str):
            policies[name] = policies[name].model_copy(update={"lora": locate(adapter, base)})
    return config.model_copy(update={"scenario": scenario, "policies": policies})


# -- sources -------------------------------------------------------------------------------------


def _source(source: str | Path, configs_first: bool) -> tuple[Path | None, str, str]:
    """(path, text, name in messages) of a source; the path is None for a scenario."""
    path = Path(source)
    name = str(source)
    if registry.file_of(name) is not None:
        return None, _scenario_text(name), name
    if path.is_file():
        return path, _text(path), name
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
        there = (
            [str(path.parent / other.name) for other in sorted(path.parent.glob("*.y*ml"))]
            if path.parent.is_dir()
            else []
        )
        raise ConfigError(
            f"{name}:"
            f" {'a folder, not a config' if path.is_dir() else 'no such file'}{nearest(name, there, listed=False)}"
        )
    is_scenario = ":" in name or name in registry.catalog("scenarios")
    config = shipped.get(f"{name}.yaml")
    if config is not None and (configs_first or not is_scenario):
        return config, _text(config), str(locate(config.name, config.parent))
    if not is_scenario:
        known = [*registry.catalog("scenarios"), *(Path(other).stem for other in shipped)]
        raise ConfigError(
            f"{name}: no scenario and no config file is called so{nearest(name, known)}"
        )
    return None, _scenario_text(name), name


def _scenario_text(name: str) -> str:
    return f"# {name} as it comes: every agent on its default behaviour.\n" + write(
        {"scenario": {"id": name}}
    )


def shipped_configs() -> Iterator[Path]:
    import gem_ma

    for folder in gem_ma.__path__:
        yield from sorted(Path(folder, "configs").glob("*.yaml"))


def _text(path: Path) -> str:
    try:
        return read_named(path, MOST_JSON).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error


def _extend(document: Document, path: Path | None, file: str) -> None:
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
    if os.path.isabs(base) or folder.resolve() not in target.resolve().parents:
        document.faults.append(Fault(place, ("extends",), f"{base!r} leaves the config's folder"))
        return
    if not target.is_file():
        others = [str(p.relative_to(folder)) for p in folder.glob("*.y*ml")]
        document.faults.append(
            Fault(
                place, ("extends",), f"no such file: {base!r}{nearest(base, others, listed=False)}"
            )
        )
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
    for section, values in document.value.items():
        whole = not isinstance(values, dict) or not isinstance(below.value.get(section), dict)
        for keys in [(section,)] if whole else [(section, key) for key in values]:
            part = {
                inner[len(keys) :]: at
                for inner, at in document.places.items()
                if inner[: len(keys)] == keys
            }
            below.put(keys, Document(document.get(*keys), {(): place, **part}))
    document.value, document.places = below.value, {**below.places, (): document.places[()]}
    document.faults += below.faults


def _override(document: Document, override: str) -> None:
    key, equals, text = override.partition("=")
    place = Place(COMMAND_LINE)
    keys = tuple(key.strip().split("."))
    if not equals or not all(keys):
        document.faults.append(
            Fault(place, (), f"an override is dotted.key=value; got {override!r}")
        )
        return
    try:
        given = read(text, COMMAND_LINE)
    except ConfigError as error:
        what = str(error).rsplit(": ", 1)[-1]
        document.faults.append(Fault(place, keys, f"not readable as YAML: {what}; quote the value"))
        return
    document.put(
        keys,
        Document(
            given.value,
            dict.fromkeys(given.places, place),
            [Fault(place, f.path, f.text) for f in given.faults],
        ),
    )


def _spell_seats(document: Document) -> None:
    """`agents.X: NAME` is short for a behaviour, or for a model such as `human/me`."""
    agents = document.get("agents")
    for agent, name in list(agents.items()) if isinstance(agents, dict) else ():
        if isinstance(name, str):
            kind = "model" if name.partition("/")[0] in registry.catalog("engines") else "behaviour"
            at = document.place(("agents", agent))
            values = {kind: f"{name}/me" if name == "human" else name}
            document.put(("agents", agent), Document(values, {(): at, (kind,): at}))


def _name_policies(document: Document) -> None:
    """`agents.X.model: M` is short for a frozen policy of its own, called X."""
    _spell_seats(document)
    agents, policies = document.get("agents"), document.get("policies")
    for agent, values in list(agents.items()) if isinstance(agents, dict) else ():
        if not isinstance(values, dict) or "model" not in values:
            continue
        at = document.place(("agents", agent, "model"))
        if values.get("policy") is not None and at.file != COMMAND_LINE:
            document.fault(("agents", agent, "model"), "an agent has either a model or a policy")
            continue
        given = policies.get(agent) if isinstance(policies, dict) else None
        # of this model, written at the policy that it makes
        options = isinstance(given, dict) and "model" not in given
        name = agent if options or given is None else f"{agent}_model"
        if not options:
            document.put(("policies", name), Document({}, {(): at}))
        document.put(("policies", name, "model"), Document(values.pop("model"), {(): at}))
        document.put(("agents", agent, "policy"), Document(name, {(): at}))


def _locate_code(value: Any, base: Path) -> None:
    """Writes every Python file that a config names, as a scenario's id or a behaviour, as it is
    seen from the working folder."""
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        if key in ("id", "behaviour") and isinstance(inner, str):
            value[key] = locate_code(inner, base)
        else:
            _locate_code(inner, base)


def _is_record(path: Path) -> bool:
    """True for the resolved.yaml of a run folder: it holds every setting that held, and what is
    absent there was not yet known."""
    return path.name == "resolved.yaml" and (path.parent / "manifest.json").is_file()


def _engine_defaults(document: Document) -> None:
    """Writes down what an engine wants of a config that says nothing (its `config_defaults`), so
    that the record shows it.

    These defaults may become better ones with a new version; a run folder keeps those that it
    was made with.
    """
    policies = document.get("policies")
    for name, values in policies.items() if isinstance(policies, dict) else ():
        model = values.get("model") if isinstance(values, dict) else None
        try:
            factory = (
                registry.load("engines", model.partition("/")[0])
                if isinstance(model, str)
                else None
            )
        except Exception:  # the check of the fit says what is wrong with it
            continue
        for key, value in getattr(factory, "config_defaults", {}).items():
            if key not in values and not (key == "device" and values.get("device_map") is not None):
                document.put(
                    ("policies", name, key),
                    Document(value, {(): document.place(("policies", name, "model"))}),
                )


def _seed_defaults(document: Document) -> None:
    """Writes `run.seed` to what a training begins with and that has no seed of its own: clones, and
    models with random weights.

    Without `train:` a model is played as it lies in its folder. Seed 0 is not written: it means
    just that.
    """
    seed, train = document.get("run", "seed"), document.get("train")
    if (
        not isinstance(train, dict)
        or not isinstance(seed, int)
        or isinstance(seed, bool)
        or seed == 0
    ):
        return
    policies, clones, place = (
        document.get("policies"),
        train.get("warm_start"),
        document.place(("run", "seed")),
    )
    for name, values in policies.items() if isinstance(policies, dict) else ():
        model = values.get("model") if isinstance(values, dict) else None
        try:
            seeded = isinstance(model, str) and getattr(
                registry.load("engines", model.partition("/")[0]), "seeded", False
            )
        except Exception:  # the check of the fit says what is wrong with it
            continue
        if seeded and "seed" not in values:
            document.put(("policies", name, "seed"), Document(seed, {(): place}))
    for name, values in clones.items() if isinstance(clones, dict) else ():
        if isinstance(values, dict) and "seed" not in values:
            document.put(("train", "warm_start", name, "seed"), Document(seed, {(): place}))


def _seat_defaults(document: Document) -> None:
    """Gives every agent without a word about it the scenario's default behaviour, and the run
    some episodes."""
    scenario = document.get("scenario")
    try:
        factory = registry.load("scenarios", scenario["id"])
        options = {
            key: value for key, value in scenario.items() if key not in ("id", "split", "tasks")
        }
        made = (
            factory if getattr(factory, "agents", ()) else registry.make(scenario["id"], **options)
        )
    except Exception:  # whatever it is, the check of the fit reports it
        return
    for agent in made.agents:
        given = document.get("agents", agent)
        if given is None or (
            isinstance(given, dict) and not given.keys() & {"behaviour", "policy"}
        ):
            behaviour = made.default_cast.get(agent, "random_legal")
            document.put(
                ("agents", agent, "behaviour"),
                Document(behaviour, {(): document.place(("agents", agent))}),
            )
    if document.get("scenario", "tasks") is None:
        count = DEFAULT_EPISODES
        try:
            tasks = registry.make(scenario["id"], **options).tasks(scenario.get("split", "test"))
            count = DEFAULT_EPISODES if single(tasks) else min(DEFAULT_EPISODES, len(tasks))
        except Exception:  # as above
            pass
        document.put(("scenario", "tasks"), Document(count, {(): document.place(("scenario",))}))
