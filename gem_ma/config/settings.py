"""A whole config file as one validated model: `Config`, whose sections stand in `playing` and
`training`; and `StudySections`, which make it a study. `gem_ma.config.loading` reads files into
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, field_validator

from gem_ma.config.playing import (
    AgentSettings,
    ExamSettings,
    LimitSettings,
    PolicySettings,
    RetrySettings,
    RunSettings,
    ScenarioSettings,
    Settings,
    WorldSettings,
)
from gem_ma.config.schema import REMOVED
from gem_ma.config.training import TrainSettings
from gem_ma.kernel.errors import ConfigError


class StudySettings(Settings):
    """How the cells of a study are played and compared."""

    name: str | None = Field(
        None, description="What the folder is called; the name of the file where absent."
    )
    design: Literal["grid", "cross_play", "mix", "focal", "tournament"] | None = Field(
        None, description="Which section names the cells; the one that is there where absent."
    )
    repeats: int | None = Field(None, ge=1, description="run.episodes_per_task of every cell.")
    # not the repeat: what is sampled in the third try of one cell has nothing in common with
    # another's third
    paired_by: list[Literal["task", "seed", "repeat"]] = Field(
        ["task", "seed"], description="What two episodes share that are compared."
    )
    # a cell may be called 3, true or null
    reference: dict[str, str | bool | int | float | None] = Field(
        default_factory=dict,
        description="By axis: the cell that the others are compared with; else the first.",
    )

    @field_validator("paired_by")
    @classmethod
    def _by_task(cls, value: list[str]) -> list[str]:
        if "task" not in value:
            raise ValueError("must hold `task`: only plays of one task are compared")
        return value


class CrossPlaySettings(Settings):
    """Who may sit where; every combination is a cell."""

    population: dict[str, dict[str, Any] | list[Any]] = Field(
        description="By agent: named seats, or a list of behaviours."
    )


class MixSettings(Settings):
    """Two players share the seats: none of the first to all of them, a cell each."""

    players: dict[str, Any] | list[Any] = Field(
        description="Two named seats, or two behaviours; the cells count the first."
    )
    seats: list[str] = Field(["*"], description="Agents, or patterns of them, that are alike.")


class FocalSettings(Settings):
    """Focal players among a background: visitors among residents."""

    focal: dict[str, Any] | list[Any] = Field(description="Named seats, or a list of behaviours.")
    background: dict[str, Any] | list[Any] = Field(description="Who takes all other seats.")
    visitors: int = Field(1, ge=1, description="How many seats the focal player takes.")
    seats: list[str] = Field(["*"], description="Agents, or patterns of them, that are alike.")


class TournamentSettings(Settings):
    """Everybody against everybody: one takes the first half of the seats, the other the rest, and
    the other way round."""

    players: dict[str, Any] | list[Any] = Field(description="Named seats, or a list of behaviours.")
    seats: list[str] = Field(["*"], description="Agents, or patterns of them, that are shared out.")
    plays: int | None = Field(
        None,
        ge=2,
        description="Plays in all, for the pairs that tell most; all of each pair where absent.",
    )
    batch: int = Field(
        10, ge=1, description="Tasks of a pair, in both orders, before the next one is chosen."
    )


class DifferenceSettings(Settings):
    """How differences are tested."""

    method: Literal["paired_cluster_bootstrap"] = "paired_cluster_bootstrap"
    # the bounds of an interval move by about 1 % of its width from one draw of these to the next
    n: int = Field(10_000, ge=100, le=1_000_000, description="Resamples.")
    correct: Literal["holm", "none"] = "holm"


class StudyReportSettings(Settings):
    """What a study shows."""

    measures: list[str] | None = Field(
        None, description="Scores to print beside the first; the page has all."
    )
    tables: list[Literal["success_matrix", "paired_diff"]] = ["success_matrix", "paired_diff"]
    plots: list[Literal["heatmap", "interaction"]] = ["heatmap", "interaction"]
    tests: DifferenceSettings = DifferenceSettings()


class StudySections(Settings):
    """The sections of a config that make it a study; all others are those of its cells."""

    study: StudySettings = StudySettings()
    grid: dict[str, dict[str, Any] | list[Any]] = Field(
        default_factory=dict, description="Dotted path -> name -> value."
    )
    cross_play: CrossPlaySettings | None = None
    mix: MixSettings | None = None
    focal: FocalSettings | None = None
    tournament: TournamentSettings | None = None
    report: StudyReportSettings = StudyReportSettings()


class EvaluateSettings(Settings):
    """Evaluation during and after training."""

    every: int | None = Field(None, ge=1, description="Training steps between evaluations.")
    episodes: int = Field(256, ge=1, description="Plays of an exam.")
    tries: int = Field(
        1,
        ge=1,
        le=256,
        description=(
            "How often each of them is played in the sampled exam, for pass@k and the best of k;"
            " greedy stays at once."
        ),
    )
    seed: int = Field(
        # those of training have a high bit set, so that no seed that a person types is one of them
        1_000_000,
        ge=0,
        description="First seed of evaluation; disjoint from training seeds.",
    )
    scenarios: dict[str, ExamSettings] = Field(
        default_factory=dict,
        description=(
            "Further worlds that exams are held in, each of so many episodes; one that is trained"
            " on, too, is examined as it stands here."
        ),
    )


class Config(Settings):
    """A whole config file. It plays one `scenario` or several `scenarios`, which the check of the
    config makes sure of."""

    scenario: ScenarioSettings | None = None
    scenarios: dict[str, WorldSettings] = Field(
        default_factory=dict, description="By name; a list names each after its id."
    )
    agents: dict[str, AgentSettings] = Field(default_factory=dict)
    policies: dict[str, PolicySettings] = Field(default_factory=dict)
    run: RunSettings = RunSettings()
    limits: LimitSettings = LimitSettings()
    retry: RetrySettings = RetrySettings()
    train: TrainSettings | None = None
    evaluate: EvaluateSettings = EvaluateSettings()

    @property
    def seats(self) -> list[AgentSettings]:
        """Every seat that it names: those of single scenarios too."""
        blocks = (*self.scenarios.values(), *self.evaluate.scenarios.values())
        own = (seat for block in blocks for seat in block.agents.values())
        return [*self.agents.values(), *own]

    @property
    def only(self) -> ScenarioSettings:
        """The block of a config of one scenario. Raises ConfigError where there are several."""
        if self.scenario is None:
            what = "scenario: is missing"
            if self.scenarios:
                named = ", ".join(self.scenarios)
                what = f"scenarios: this needs a config of one scenario, and here are {named}"
            raise ConfigError(what)
        return self.scenario


NO_DEFAULT = object()  # of a key that must be written, or that no section has


def default_of(key: str | Sequence[str]) -> Any:
    """What holds where a config does not name this key (dotted, or as its names), as a JSON value;
    else `NO_DEFAULT`. Of a key that went it is the value that asked for nothing.

    >>> default_of("train.loss.clip"), default_of("agents.buyer.policy")
    (0.2, None)
    >>> default_of("policies.main.model") is NO_DEFAULT
    True
    """
    names = key.split(".") if isinstance(key, str) else key
    for removed in REMOVED:
        if removed.key == ".".join(names):
            return removed.off[0]
    section: type[BaseModel] | None = Config
    default: Any = NO_DEFAULT
    parts = iter(names)
    for part in parts:
        field = section.model_fields.get(part) if section is not None else None
        if field is None:
            return NO_DEFAULT
        default = NO_DEFAULT
        if not field.is_required():
            default = field.get_default(call_default_factory=True)
        # of `X | None` the section X: None has no keys below it
        section = next(_models(field.annotation), None)
        # a mapping from names to sections: the next part is a name
        if section is not None and dict in _heads(field.annotation) and next(parts, None):
            default = NO_DEFAULT
    return default.model_dump(mode="json") if isinstance(default, BaseModel) else default


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _heads(annotation: Any) -> set[Any]:
    """The containers that an annotation allows at its top; of `dict[str, X] | None` dict and
    None."""
    options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return {get_origin(option) or option for option in options}


Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}


def config_schema() -> Schema:
    """The schema of a config that plays, learns or is a study."""
    schema = Config.model_json_schema()
    study = StudySections.model_json_schema()
    sections: Schema = schema["properties"] | study["properties"]
    # what an `extends:` brings is not seen here, so no section is wanted
    sections["extends"] = {
        **TEXT,
        "description": "A config in this folder, which this one changes.",
    }
    blocks: Schema = schema["$defs"] | study["$defs"]
    _agents(blocks["AgentSettings"])
    sections["scenario"] = _or_text(sections["scenario"], "The id of a scenario.")
    named = sections["scenarios"]
    listed: Schema = {"type": "array", "items": {"anyOf": [TEXT, {"type": "object"}]}}
    sections["scenarios"] = {"anyOf": [named, listed]}
    for holder in (sections, blocks["WorldSettings"]["properties"]):
        if "agents" in holder:
            inner = holder["agents"]["additionalProperties"]
            # a behaviour, a model or `human`
            holder["agents"]["additionalProperties"] = _or_text(inner, "Who plays it.")
    return {
        "$schema": DIALECT,
        "title": "A config of gem_ma",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
        "$defs": blocks,
    }


def _agents(block: Schema) -> None:
    """The short forms of a seat: `model:` for a policy of its own, tools by their names."""
    block["properties"]["model"] = {
        **TEXT,
        "description": "ENGINE/NAME: short for a frozen policy of its own.",
    }
    tools = block["properties"]["tools"]
    # `python`, or {python: {options}} with nothing or some below it
    tools["items"] = {"anyOf": [TEXT, {"type": "object"}]}


def _or_text(schema: Schema, meaning: str) -> Schema:
    return {"anyOf": [{**TEXT, "description": meaning}, schema]}
