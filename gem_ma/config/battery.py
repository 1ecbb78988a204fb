"""A battery of `gem-ma bench` as one YAML file: a row is a short world, the seat that a model takes
in it, who plays the others, and who plays beside it: chance and a strong script.

Rows are opened as any config is, so that a cell of a model and a row is an ordinary run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

import gem_ma
from gem_ma.config.document import read
from gem_ma.config.loading import Loaded, load
from gem_ma.config.playing import Settings
from gem_ma.config.schema import validate
from gem_ma.config.sources import FILES, locate_files
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest
from gem_ma.registry import load as load_part
from gem_ma.system.files import MOST_JSON, digest_of
from gem_ma.system.folders import read_named

POLICY = "model"  # what the policy of a model is called in its runs
CHANCE = "chance"
ORACLE = "oracle"
# what does not change what is played
_WORDS = {"skill", "exact", "source"}


class SkillSettings(Settings):
    """One world, and how it is scored. More of the score is better."""

    skill: str = Field(description="What it asks for, in words.")
    scenario: dict[str, Any] = Field(description="Its id and options, as in a config.")
    seat: str = Field(description="The agent that the model plays; a pattern stands for several.")
    others: dict[str, Any] = Field(default_factory=dict, description="Who plays the others.")
    tools: list[Any] = Field(default_factory=list, description="Tools of the model's seat.")
    oracle: str | dict[str, Any] = Field(description="Who plays the seat well: a behaviour.")
    score: str = Field("success", description="success, `return AGENT`, or a measure.")
    least: float = Field(0, description="The score of a play that failed.")
    exact: float | None = Field(None, description="An equilibrium or a best reply, where known.")
    source: str = Field("", description="From where it is known.")
    tasks: int = Field(ge=1, description="How many tasks, or seeds where there is one task.")


class BatterySettings(Settings):
    """A battery: one file."""

    title: str
    seed: int = Field(description="Held out: nothing is trained with it.")
    chance: str = Field("random_legal", description="Who plays without skill.")
    chance_plays: int = Field(3, ge=1, description="Its plays of each task.")
    rows: dict[str, SkillSettings] = Field(min_length=1)


class Part(NamedTuple):
    """Who takes the seat of a row: a seat as in a config, and the settings of its policy; `asks`
    is the behaviour that asks it where the scenario names none for models, `weights` what a run
    says of the weights that it ended with."""

    seat: Mapping[str, Any]
    policy: Mapping[str, Any] | None = None
    asks: str = "choices"
    weights: str | None = None


@dataclass(frozen=True, slots=True)
class Player:
    """Who is examined: `parts` has one entry for each row. `plays`: of each task."""

    name: str
    parts: Mapping[str, Part]
    plays: int = 1


@dataclass(frozen=True)
class Battery:
    """A battery with its origin."""

    path: Path
    settings: BatterySettings
    rows: tuple[str, ...]  # those that are played now

    def load(self, row: str, player: Player) -> Loaded:
        """The config of a row with this player in its seat. Raises ConfigError with its faults."""
        settings = self.settings.rows[row]
        part = player.parts[row]
        # a model is asked in the way that the scenario wants it
        factory = load_part("scenarios", settings.scenario["id"])
        named = getattr(factory, "model_cast", {}).get(settings.seat, part.asks)
        seat = {"behaviour": named, "policy": POLICY} if part.policy is not None else {}
        tools = {"tools": settings.tools} if settings.tools else {}
        words: dict[str, Any] = {
            "scenario": {**settings.scenario, **self._files(row), "tasks": settings.tasks},
            "agents": {**settings.others, settings.seat: {**seat, **part.seat, **tools}},
            "run": {
                "seed": self.settings.seed,
                "episodes_per_task": player.plays,
                "baselines": False,
                "max_failed": "100%",  # a failed play is data, and counts the least
            },
        }
        if part.policy is not None:
            words["policies"] = {POLICY: dict(part.policy)}
        return load(settings.scenario["id"], words)

    def beside(self) -> dict[str, Player]:
        """Who plays beside a model: chance and the oracle."""
        settings = self.settings
        chance = {row: Part({"behaviour": settings.chance}) for row in self.rows}
        return {
            CHANCE: Player(CHANCE, chance, settings.chance_plays),
            ORACLE: Player(ORACLE, {row: self.oracle(row) for row in self.rows}),
        }

    def oracle(self, row: str) -> Part:
        """The strong script of a row."""
        named = self.settings.rows[row].oracle
        return Part({"behaviour": named} if isinstance(named, str) else named)

    def _files(self, row: str) -> dict[str, Any]:
        """The options of a row's scenario that are files, as seen from the working folder."""
        options = self.settings.rows[row].scenario
        base = self.path.parent
        return {key: locate_files(options[key], base) for key in FILES if key in options}

    @cached_property
    def digest(self) -> str:
        """12 hex digits of what is played: all rows of the file with the files that they name,
        seed, chance, and the versions of the scenarios. Scores of another digest are not compared
        with these."""
        said = self.settings.model_dump(exclude={"title": True, "rows": {"__all__": _WORDS}})
        scenarios = (row.scenario["id"] for row in self.settings.rows.values())
        versions = [getattr(load_part("scenarios", name), "version", None) for name in scenarios]
        named = [file for row in self.settings.rows for file in self._files(row).values()]
        paths = [
            path for one in named for path in (one.values() if isinstance(one, dict) else [one])
        ]
        text = json.dumps([said, versions, [digest_of(path) for path in paths]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def shipped_battery() -> Path:
    """The battery that comes with this library."""
    found = (Path(root, "configs", "bench", "battery.yaml") for root in gem_ma.__path__)
    return next(path for path in found if path.is_file())


def load_battery(path: Path, rows: Iterable[str] = (), seed: int | None = None) -> Battery:
    """The battery of a file, with some of its rows alone, or with another seed. Raises ConfigError
    with every fault and its line."""
    document = read(read_named(path, MOST_JSON).decode("utf-8"), str(path))
    settings = validate(document, BatterySettings)
    for name, row in settings.rows.items() if settings is not None else ():
        if not isinstance(row.scenario.get("id"), str):
            document.fault(("rows", name, "scenario"), "wants the id of a scenario: {id: ...}")
    document.refuse()
    if settings is None:  # unreachable while every refusal makes a fault
        raise ConfigError(f"{path}: the battery is not valid")
    wanted = set(rows)
    for name in wanted:
        if name not in settings.rows:
            raise ConfigError(f"--only {name}: no such row{nearest(name, settings.rows)}")
    kept = tuple(name for name in settings.rows if not wanted or name in wanted)
    changed = {} if seed is None else {"seed": seed}
    return Battery(path, settings.model_copy(update=changed), kept)
