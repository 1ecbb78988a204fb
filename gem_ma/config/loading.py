"""A YAML file, or a scenario id, -> a validated `settings.Config`; every fault at once, each as
`file:line: key.path: what (did you mean ...)`.

Knows files, overrides, `extends:` and the schema; whether a config fits its scenario, behaviours
and engines is asked of `gem_ma.config.check`. Secrets are named, never read here: `${env:NAME}`
stays as written until an engine is opened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.check import agents_of, check_fit
from gem_ma.config.defaults import (
    engine_defaults,
    name_credited,
    name_policies,
    policy_each,
    seat_defaults,
    seed_defaults,
    spell_seats,
)
from gem_ma.config.document import (
    COMMAND_LINE,
    Document,
    Fault,
    Keys,
    Place,
    dotted,
    parted,
    read,
    refuse,
    write,
)
from gem_ma.config.grid import Grid, Sides, take_grid
from gem_ma.config.schema import check_comments, check_removed, check_secrets, validate
from gem_ma.config.seats import give_own_seat, placed_keys, spell_worlds
from gem_ma.config.settings import Config, StudySections
from gem_ma.config.sources import extend, locate, locate_code, located, source_of
from gem_ma.kernel.errors import ConfigError, DataError

Overrides = Sequence[str] | Mapping[str, Any]


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
        named = "-".join(self.config.scenarios) or self.config.only.id
        name = self.path.stem if self.path is not None else named
        file = registry.file_of(name)
        # the stem alone: folders on the way to it say nothing about the run
        name = name if file is None else name.replace(str(file), file.stem, 1)
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "run"

    def written(self) -> str:
        """The text with the overrides in comments below it, as the run folder keeps it."""
        end = "\n" if self.text and not self.text.endswith("\n") else ""
        # as comments: the file stays as it was written, and can be played as it is
        typed = (f"# override {json.dumps(override)}\n" for override in self.overrides)
        return self.text + end + "".join(typed)

    def resolved(self) -> dict[str, Any]:
        """The complete config as JSON values; loading it gives an equal config. Paths are as
        seen from the working folder."""
        return located(self.config, self.base).model_dump(mode="json", exclude_none=False)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Gives a ConfigError or DataError that is raised inside, and begins with a key of the
        config, the file and line of that key."""
        try:
            yield
        except (ConfigError, DataError) as error:
            lines = str(error).split("\n")
            if (placed := list(map(self._placed, lines))) == lines:
                raise
            raised = DataError if isinstance(error, DataError) else ConfigError
            raise raised("\n".join(placed)) from error

    def _placed(self, line: str) -> str:
        """A line of a message with its place, where it begins with a key of the config, as is the
        convention for a message about a key."""
        head = line.partition(": ")[0]
        names = {path: dotted(path) for path in self.places if path}
        above = [
            path
            for path, name in names.items()
            if head == name or head.startswith((f"{name}.", f"{name}["))
        ]
        if not above:  # it is about a file or a model
            return line
        # the longest is the nearest: `train` is above `train.loss` too
        return f"{self.places[max(above, key=len)]}: {line}"

    def without_training(self) -> Loaded:
        """What `run` plays: it has a run folder of its own beside that of `train`."""
        return replace(self, config=self.config.model_copy(update={"train": None}))

    def identity(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON values, paths as written: what the name of a
        run folder is made of, whatever the working folder. A setting that a later version adds
        renames no folder."""
        return self.config.model_dump(mode="json", exclude_defaults=True)


def load(
    source: str | Path,
    overrides: Overrides = (),
    *,
    configs_first: bool = False,
    typed: bool = False,
) -> Loaded:
    """A config from a YAML file, the stem of a shipped config, or a scenario (then every agent gets
    a default behaviour).

    A scenario is an id, `game.py`, `game.py:Class` or `module:Class`. Where a scenario and a
    shipped config share a name, the name means the scenario, or the config where `configs_first`
    (what `gem-ma train NAME` wants, since a scenario alone cannot learn). Of a study it is the
    reference cell. `overrides` are `dotted.key=value`, values in YAML, or in Python
    `{"dotted.key": value}`; of two for one key the last one holds, and where a person has `typed`
    them both are refused. Raises ConfigError with all faults, DataError where data that it names is
    missing.
    """
    words = _listed(overrides)
    if typed:
        _refuse_twice(words)
    path, text, document, grid = _open(source, words, configs_first)
    if grid is not None:
        document = grid.filled(document, grid.reference)
    config = _finish(document, path)
    document.refuse()
    if config is None:
        # unreachable while every refusal of the schema makes a fault
        raise ConfigError(f"{source}: the config is not valid")
    return Loaded(config, text, path, tuple(words), grid is not None, document.places)


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
    # names of a cell -> side -> the agents that it takes; {} of a grid and of `cross_play`
    sides: Mapping[tuple[str, ...], Sides] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """What the study's folder is called after."""
        name = self.sections.study.name or (self.path.stem if self.path is not None else "study")
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "study"


def load_study(
    source: str | Path, overrides: Overrides = (), *, typed: bool = False
) -> LoadedStudy:
    """Every cell of a study's grid as a config, each as `load` would give it. Raises ConfigError
    with the faults of all cells at once. `typed`: as in `load`."""
    words = _listed(overrides)
    if typed:
        _refuse_twice(words)
    path, text, document, grid = _open(source, words, configs_first=True)
    if grid is None:
        document.refuse()
        raise ConfigError(
            f"{source}: no section `grid:`, `cross_play:`, `mix:`, `focal:` or `tournament:`, so"
            f" there is nothing to compare; play it with: gem-ma run {source}"
        )
    cells = {}
    faults = list(document.faults)
    for names in grid.cells():
        filled = grid.filled(document, names)
        config = _finish(filled, path)
        faults += filled.faults
        if config is not None:
            header = f"# {' x '.join(names)}: a cell of the study {document.place(()).file}\n"
            # a cell plays: what the shared section `train:` says is left to `gem-ma train`
            plays = config.model_copy(update={"train": None})
            text_of_cell = header + write(filled.value)
            cells[names] = Loaded(plays, text_of_cell, path, places=filled.places)
    refuse(faults, document.place(()).file)
    return LoadedStudy(
        grid.sections,
        grid.axes(),
        cells,
        grid.reference,
        document.value,
        text,
        path,
        tuple(words),
        grid.sides,
    )


def _listed(overrides: Overrides) -> list[str]:
    # in Python one alone is easily given as it is, and a text is a sequence of letters
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        if not isinstance(overrides, Sequence) or not all(isinstance(x, str) for x in overrides):
            raise ConfigError(
                f"overrides are a dict, or a list of texts as 'run.seed=1'; got {overrides!r:.80}"
            )
        return list(overrides)
    return [f"{key}={_written(key, value)}" for key, value in overrides.items()]


def _written(key: str, value: Any) -> str:
    try:
        # JSON is YAML; numbers and arrays of numpy give Python's
        return json.dumps(value, allow_nan=False, default=lambda one: one.tolist())
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"{key}: an override is a finite number, text, a list or a dict, and code is named by a"
            f" text, as 'game.py:Bot'; got {value!r:.80}"
        ) from None


def _open(
    source: str | Path, overrides: Sequence[str], configs_first: bool
) -> tuple[Path | None, str, Document, Grid | None]:
    """Path, text, the document with what it extends and the overrides, and its grid where it is
    a study."""
    if not isinstance(source, (str, os.PathLike)):  # a class of rules, or a dict
        raise ConfigError(
            "a config is a file, or the name of one or of a scenario, as 'game.py:Game'; got"
            f" {source!r:.80}"
        )
    path, text, file = source_of(source, configs_first)
    if path is not None:
        document = read(text, file)
    else:
        document = Document({"scenario": {"id": file}}, {(): Place(file)})
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else "this is not a mapping"
        document.fault((), f"{what}; a config has sections such as `scenario:`")
        document.refuse()
    extend(document, path, file)
    spell_worlds(document)
    spell_seats(document)
    _override_all(document, overrides)
    check_comments(document, text)
    return path, text, document, take_grid(document, partial(_agents, path))


def _agents(path: Path | None, document: Document) -> tuple[str, ...]:
    """The agents of the one scenario; () after adding what is wrong with it."""
    scratch = Document(deepcopy(document.value), dict(document.places))
    base = path.parent if path is not None else None
    if base is not None:
        _locate_code(scratch.value, base)
    found = agents_of(scratch, ("scenario",), base) if scratch.get("scenario", "id") else ()
    document.faults += scratch.faults
    return found


def _finish(document: Document, path: Path | None) -> Config | None:
    """The config of a document, or None after adding faults to it."""
    spell_worlds(document)  # a cell of a study may have brought a short form
    check_removed(document)
    name_policies(document)
    if path is None:
        seat_defaults(document)
    else:
        _locate_code(document.value, path.parent)
    base = path.parent if path is not None else None
    policy_each(document, base)
    name_credited(document, base)
    is_record = path is not None and _is_record(path)
    # a record is complete: to add today's defaults to it would change what is resumed
    if not is_record:
        engine_defaults(document, lambda model: locate(model, base))
        seed_defaults(document)
    check_secrets(document)
    secret = {fault.path: fault for fault in document.faults}
    config = validate(document, Config)
    try:
        check_fit(document, base, look_for_unused=path is not None and not is_record)
    # faults of the config first: missing data may be the consequence of one
    except DataError as error:
        document.refuse()
        raise error
    # A key with a secret in it gets one line: that it is also no known option adds nothing.
    document.faults = [fault for fault in document.faults if secret.get(fault.path, fault) == fault]
    return config


def _refuse_twice(overrides: Sequence[str]) -> None:
    typed: set[Keys] = set()
    above: set[Keys] = set()  # sections of which a part was typed
    for override in overrides:
        keys, _ = parted(override)
        if keys in typed or keys in above:
            raise ConfigError(
                f"{COMMAND_LINE}: {dotted(keys)}: typed twice; keep one of the two values"
            )
        typed.add(keys)
        above.update(keys[:depth] for depth in range(1, len(keys)))


def _override_all(document: Document, overrides: Sequence[str]) -> None:
    parts: list[tuple[Keys, Document]] = []
    for override in overrides:
        keys, value = _override(document, override)
        if value is None:
            continue
        if _needs_spelling(document, keys):
            spell_worlds(document)
            spell_seats(document)
        for path in list(placed_keys(document, keys)):
            give_own_seat(document, path)
            # a copy each: short forms are written out in place, and a later override may replace
            # a part of it
            document.put(path, Document(deepcopy(value.value), value.places, value.faults))
            parts.append((path, value))
    # as typed, also what a later one replaced: the manifest keeps all of it
    check_secrets(document, parts)
    spell_worlds(document)
    spell_seats(document)
    for path, _ in parts:  # its pattern may have been typed after it
        give_own_seat(document, path)


def _needs_spelling(document: Document, keys: Keys) -> bool:
    """Whether a short form stands on the way to a key, such as the behaviour of a seat whose
    options are typed next."""
    if isinstance(document.get("scenarios"), list):
        return True
    if "agents" in keys[:-2]:  # the seat of a pattern may be a name, and is copied
        return True
    on_the_way = (document.get(*keys[:depth]) for depth in range(1, len(keys)))
    return any(not isinstance(value, dict) for value in on_the_way)


def _override(document: Document, override: str) -> tuple[Keys, Document | None]:
    """The keys and the value of one override, None after adding a fault."""
    keys, text = parted(override)
    place = Place(COMMAND_LINE)
    if text is None or not all(keys):
        # a shell parts a value at its blanks
        rest = "" if text is not None or len(keys) > 1 else "; what holds a blank wants quotes"
        document.faults.append(
            Fault(place, (), f"an override is dotted.key=value; got {override!r}{rest}")
        )
        return keys, None
    try:
        value = read(text, COMMAND_LINE)
    except ConfigError as error:
        what = str(error).rsplit(": ", 1)[-1]
        document.faults.append(Fault(place, keys, f"not readable as YAML: {what}; quote the value"))
        return keys, None
    faults = [Fault(place, fault.path, fault.text) for fault in value.faults]
    return keys, Document(value.value, dict.fromkeys(value.places, place), faults)


def _locate_code(value: Any, base: Path) -> None:
    """Writes every Python file that a config names, as a scenario's id, a behaviour or a wrapper,
    as it is seen from the working folder."""
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        if key in ("id", "behaviour", "summary") and isinstance(inner, str):
            value[key] = locate_code(inner, base)
        elif key == "wrappers" and isinstance(inner, list):
            value[key] = [_located_wrapper(entry, base) for entry in inner]
        else:
            _locate_code(inner, base)


def _located_wrapper(entry: Any, base: Path) -> Any:
    """A wrapper of a config, whose name stands alone or as the key of its options."""
    if isinstance(entry, dict):
        return {locate_code(name, base): options for name, options in entry.items()}
    return locate_code(entry, base) if isinstance(entry, str) else entry


def _is_record(path: Path) -> bool:
    """True for the resolved.yaml of a run folder: it holds every setting that held, and what is
    absent there was not yet known."""
    return path.name == "resolved.yaml" and (path.parent / "manifest.json").is_file()
