"""The sections that say what is played, by whom and how long: `scenario:`, `scenarios:`,
`agents:`, `policies:`, `run:`, `limits:` and `retry:`. Knows nothing of learning.

Unknown keys are errors everywhere. `scenario:` and `policies.<name>:` also take the options of
the scenario's and the engine's constructor.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from gem_ma.kernel.episode import Limits, Seat
from gem_ma.kernel.types import MAX_SAID, Sampling


class Settings(BaseModel):
    """Base of all sections: strict keys, frozen values."""

    # a section is built with the config that holds it, and not once more for itself
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True
    )


MOST_TASKS = 10**12  # far above any run, and far below what a range can count


class ScenarioSettings(Settings):
    """What is played. Further keys are options of the scenario's constructor."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="A registered id, or package.module:Class.")
    split: str = Field("test", description="Which tasks.")
    tasks: int | list[int] | None = Field(
        None,
        description=(
            "The first n tasks, or these indices; all of the split where absent. Where a split is"
            " one task: n episodes with n seeds."
        ),
    )

    wrappers: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="Around the rules, the first next to them: [{retry: 2}, {time_limit: 50}].",
    )

    @field_validator("tasks")
    @classmethod
    def _some_tasks(cls, value: int | list[int] | None) -> int | list[int] | None:
        if value == [] or (isinstance(value, int) and value < 1):
            raise ValueError("names no task")
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("names a task twice; use run.episodes_per_task")
        if isinstance(value, int) and value > MOST_TASKS:
            raise ValueError(f"are more than a run can play; take at most {MOST_TASKS:,}")
        return value

    @property
    def options(self) -> dict[str, Any]:
        """What `registry.make` takes beside the id."""
        options = dict(self.__pydantic_extra__ or {})
        return {**options, "wrappers": self.wrappers} if self.wrappers else options


class ToolOptions(Settings):
    """What holds for every tool of an agent."""

    uses: int = Field(5, ge=1, description="Calls in a play.")
    reward: float = Field(0.0, description="Paid to the agent for each call.")


class PythonSettings(ToolOptions):
    """Python in a session of the play's own, behind a wall."""

    timeout_s: float = Field(5.0, gt=0, description="Seconds of one call.")
    sandbox: Literal["bubblewrap", "none"] = Field(
        "bubblewrap", description="`none`: what a model writes runs without any wall."
    )
    packages: list[str] = Field(
        default_factory=list, description="Importable inside, read-only: [numpy]."
    )


class ShellSettings(ToolOptions):
    """Bash in a session of the play's own, behind a wall."""

    timeout_s: float = Field(5.0, gt=0, description="Seconds of one call.")
    sandbox: Literal["bubblewrap", "none"] = Field(
        "bubblewrap", description="`none`: what a model types runs without any wall."
    )
    folder: str | None = Field(None, description="Its files are copied into the session's home.")


class SearchSettings(ToolOptions):
    """Passages looked up in the text files of a folder, or by a server."""

    folder: str | None = Field(None, description="Its .txt and .md files are searched.")
    model: str | None = Field(
        None, description="Folder of a sentence-embedding model, which compares by meaning."
    )
    url: str | None = Field(
        None, description="A retriever as Search-R1's: http://127.0.0.1:8000/retrieve."
    )
    api_key_env: str | None = Field(None, description="Variable that holds its key.")
    timeout_s: float = Field(30.0, gt=0, description="Seconds of one try of a retriever.")
    results: int = Field(3, ge=1, le=100, description="Passages in an answer.")
    passage_chars: int = Field(
        1000,
        ge=1,
        le=2000,
        description="Paragraphs of a file go together until they have so many; 1: each by itself.",
    )

    @model_validator(mode="after")
    def _folder_or_url(self) -> SearchSettings:
        if (self.folder is None) == (self.url is None):
            raise ValueError("should have either a folder or a url")
        if self.url is not None and self.model is not None:
            raise ValueError("a model belongs to a folder; a server has its own")
        return self


class McpSettings(ToolOptions):
    """The tools of a server of the Model Context Protocol."""

    command: list[str] | None = Field(
        None, min_length=1, description="Starts it, for each play: [python, server.py]."
    )
    url: str | None = Field(None, description="Reaches it by HTTP: http://127.0.0.1:8000/mcp.")
    api_key_env: str | None = Field(
        None, description="Variable that holds its key: a bearer's, or one of the process."
    )
    only: list[str] | None = Field(
        None, min_length=1, description="The tools that are offered; else all of them."
    )
    timeout_s: float = Field(30.0, gt=0, description="Seconds of one call.")

    @model_validator(mode="after")
    def _command_or_url(self) -> McpSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("should have either a command or a url")
        return self


class ToolSettings(Settings):
    """One tool: its name, with its options below it."""

    python: PythonSettings | None = None
    shell: ShellSettings | None = None
    search: SearchSettings | None = None
    mcp: McpSettings | None = None

    @model_validator(mode="after")
    def _single_tool(self) -> ToolSettings:
        if len([name for name in ToolSettings.model_fields if getattr(self, name)]) != 1:
            raise ValueError("should be one tool with its options, as {python: {uses: 3}}")
        return self

    @model_serializer(mode="wrap")
    def _short(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # as it is written: a record with `search: null` in it would name a second tool
        return {name: options for name, options in dump(self).items() if options is not None}

    @property
    def named(self) -> tuple[str, dict[str, Any]]:
        """The tool's name and its options."""
        for name in ToolSettings.model_fields:
            if (options := getattr(self, name)) is not None:
                return name, options.model_dump()
        raise AssertionError("no tool")  # the validator has refused it


class MemorySettings(Settings):
    """What an agent's model is shown of a long play. The record stays whole."""

    window: int | None = Field(None, ge=1, description="The last messages, so many.")
    turns: int | None = Field(None, ge=0, description="The agent's last turns, so many.")
    first: int = Field(1, ge=0, description="Messages at the beginning that stay: a briefing.")
    summary: str | None = Field(
        None,
        description=(
            "Who says in short what falls out: a policy, or a function of messages as FILE.py:NAME."
        ),
    )

    @model_validator(mode="after")
    def _window_or_turns(self) -> MemorySettings:
        if (self.window is None) == (self.turns is None):
            raise ValueError("should have either window (messages) or turns (of the agent)")
        return self


class AgentSettings(Settings):
    """Who plays one agent."""

    behaviour: str = Field("direct", description="Id of a behaviour, or package.module:factory.")
    policy: str | None = Field(None, description="The policy that the behaviour samples from.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the behaviour.")
    policies: dict[str, str] = Field(
        default_factory=dict,
        description="Further policies, by what the behaviour calls them: {judge: NAME}.",
    )
    tools: list[ToolSettings] = Field(
        default_factory=list,
        description="Tools that it may call before it acts: [python, {search: {folder: PATH}}].",
    )

    memory: MemorySettings | None = Field(
        None, description="What its model is shown of a long play: {window: 4} messages."
    )

    @property
    def seat(self) -> Seat:
        memory = self.memory.model_dump(exclude_defaults=True) if self.memory is not None else {}
        return Seat(
            self.behaviour,
            self.policy,
            dict(self.options),
            policies=dict(self.policies),
            memory=memory,
        )


class ExamSettings(ScenarioSettings):
    """A further world of exams: its block, and seats that differ from those of `agents:`."""

    agents: dict[str, AgentSettings] = Field(
        default_factory=dict, description="Seats of this world; they go before those of `agents:`."
    )

    @property
    def scenario(self) -> ScenarioSettings:
        """The block as `scenario:` has it."""
        kept = {"id": self.id, "split": self.split, "tasks": self.tasks, **self.options}
        return ScenarioSettings.model_validate(kept)


class WorldSettings(ExamSettings):
    """One of several scenarios that a config plays, and how often it is met in training."""

    weight: float = Field(
        1.0, gt=0, le=1e9, description="Share of the training's plays, beside the other weights."
    )


UNSENT = "null, the default at an endpoint: not sent."


class PolicySettings(Settings):
    """Weights and how they are sampled. Further keys are options of the engine's constructor."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(description="<engine>/<name>, as in table/softmax or transformers/PATH.")
    # 1 leaves the probabilities as they are, which are those that a gradient is about
    temperature: float | None = Field(
        1.0,
        ge=0,
        description=f"Of sampling; 0 takes the likeliest token. {UNSENT}",
    )
    top_p: float | None = Field(
        1.0,
        gt=0,
        le=1,
        description=(
            f"The likeliest tokens that have this probability together; 1 = off. {UNSENT}"
        ),
    )
    top_k: int | None = Field(0, ge=0, description=f"0 = off. {UNSENT}")
    max_tokens: int = Field(256, ge=1, description="Per model call.")
    stop: list[str] = Field(default_factory=list, description="Texts that end a reply.")

    @property
    def sampling(self) -> Sampling:
        said = {key: getattr(self, key) for key in ("temperature", "top_p", "top_k")}
        said = {key: value for key, value in said.items() if value is not None}
        return Sampling(**said, max_tokens=self.max_tokens, stop=tuple(self.stop))

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class RunSettings(Settings):
    """How episodes are played. The limits are the driver's: they cut a play and are recorded as
    truncation."""

    episodes_per_task: int = Field(
        1,
        ge=1,
        description="Plays of every task, all from its seed; where there is one task alone, each"
        " from a seed of its own.",
    )
    seed: int = Field(0, description="First of all random numbers; equal seeds, equal plays.")
    # plays of one process wait for models most of the time; above this their book-keeping costs
    # more than it gains
    concurrency: int = Field(64, ge=1, le=10_000, description="Episodes at once.")
    processes: int = Field(
        1,
        ge=1,
        le=1024,
        description=(
            "Processes that play, one a core at most: together they play run.concurrency episodes"
            " at once. Of runs alone, and of models at an address or none."
        ),
    )
    zstd: bool = Field(
        False, description="Parts of the record that are full (128 MiB each) are put in zstd."
    )
    max_steps: int | None = Field(
        None, ge=1, description="Decision points of an episode; then it is cut."
    )
    max_turns: int | None = Field(
        None, ge=1, description="Turns of all agents together; then it is cut."
    )
    max_tokens: int | None = Field(
        None, ge=1, description="Sampled tokens of an episode; then it is cut."
    )
    # a model that repeats itself up to its token limit would fill record and memory
    max_said: int | None = Field(
        MAX_SAID,
        ge=16,
        description=(
            "Characters of one saying, and of its calls; what is beyond is cut off and counted."
        ),
    )
    episode_timeout_s: float | None = Field(
        None, gt=0, description="Seconds of an episode; then it is cut."
    )
    # a tool that hangs would hold its play for ever
    call_timeout_s: float | None = Field(
        60.0, gt=0, description="Seconds of a Call, the outside work of a scenario."
    )
    baselines: bool | int = Field(
        True,
        description="Play the scenario's trivial casts beside; a number: on so many tasks at most.",
    )
    # 0, so that a script notices: what failed is not part of the score
    max_failed: int | str = Field(
        0,
        description="Failed episodes that still give exit code 0: a number, or a share such as 2%.",
    )

    tags: list[str] = Field(
        default_factory=list, description="Words by which lists of runs find this one; no result."
    )

    @field_validator("baselines")
    @classmethod
    def _none_or_some(cls, value: bool | int) -> bool | int:
        if value is not True and value is not False and value < 1:
            raise ValueError("should be true, false, or how many tasks at most")
        return value

    @field_validator("max_failed")
    @classmethod
    def _a_number_or_share(cls, value: int | str) -> int | str:
        share = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", value) if isinstance(value, str) else None
        if not (
            value >= 0 if isinstance(value, int) else share is not None and float(share[1]) <= 100
        ):
            raise ValueError("should be a number of episodes, or a share such as 2%")
        return value

    def tolerates(self, failed: int, total: int) -> bool:
        """Whether so many failed episodes of so many still count as a run that is done."""
        if isinstance(self.max_failed, int):
            return failed <= self.max_failed
        # multiplied, not divided: a share of no episodes is not an error
        return failed * 100 <= float(self.max_failed.rstrip("% ")) * total

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_steps, self.max_turns, self.max_tokens, self.episode_timeout_s, self.max_said
        )


class LimitSettings(Settings):
    """What one command may spend on models behind an endpoint, all policies together. Reached,
    the run stops and can be resumed."""

    usd: float | None = Field(
        None, gt=0, description="Needs a price of every policy at an endpoint."
    )
    tokens: int | None = Field(None, ge=1, description="Read and sampled.")


class RetrySettings(Settings):
    """How patient a request to an endpoint is, where its policy does not say otherwise."""

    attempts: int | None = Field(None, ge=1, description="Tries of one request.")
    wall_s: float | None = Field(
        None, gt=0, description="Seconds of one request, all attempts together."
    )
    timeout_s: float | None = Field(None, gt=0, description="Seconds of one attempt.")

    @property
    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)
