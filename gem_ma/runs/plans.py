"""Config -> what is played: the scenario, the seats, the open policies, and one plan per episode.
Same config, same plans.

Seeds: an episode's seed is a stable digest of `run.seed` and its task, so task 3 starts alike
whatever else is played. Repeats (`run.episodes_per_task`) share the seed and differ in what is
sampled. In a split that is one task, None, only the seed makes a difference: there
`scenario.tasks: n` means n seeds (the first n of 2n are the same n), and every repeat has a seed
of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma.config.check import single
from gem_ma.config.playing import AgentSettings, PolicySettings
from gem_ma.config.schema import reveal
from gem_ma.config.seats import seats_of
from gem_ma.config.settings import Config
from gem_ma.config.sources import located
from gem_ma.driver.behaviour import as_factory, needs_policy, no_policy, seat
from gem_ma.driver.rollout import Plan
from gem_ma.driver.seats import policies_of
from gem_ma.engines.base import Engine, Policy, open_engine, stable_seed, text_seed
from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.kernel.episode import Seat, placed
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import load, make, task_of
from gem_ma.scores.groups import Id
from gem_ma.system.files import is_file, names
from gem_ma.system.options import signature
from gem_ma.tools.belt import equipped


def scenario_of(config: Config, *, base: Path | None = None) -> Scenario:
    """The scenario with its options, and with the tools of its agents around it. Raises DataError
    where its data is missing or damaged."""
    found = located(config, base)
    scenario = make(found.only.id, **found.only.options)
    return with_tools(scenario, seats_of(scenario.agents, found.agents))


def with_tools(scenario: Scenario, seats: Mapping[str, AgentSettings]) -> Scenario:
    """The scenario with the tools of these seats around it."""
    named = {agent: [tool.named for tool in seat.tools] for agent, seat in seats.items()}
    return equipped(scenario, named)


def cast_of(config: Config) -> dict[str, Seat]:
    """Who plays each agent."""
    return {agent: settings.seat for agent, settings in config.agents.items()}


def try_seats(config: Config, scenario: Scenario) -> None:
    """Makes each seat's behaviour once, for the first play, and lets it go: a wrong option is found
    before a run folder is made.

    Raises ConfigError; what a behaviour raises otherwise is left to the play, which records it.
    """
    # the first play stands for all: options do not depend on the task
    plan = next(evaluation_plans(config, scenario), None)
    if plan is None:
        return
    for agent, settings in plan.cast.items():
        try:
            seat(
                as_factory(settings.behaviour),
                agent,
                no_policy(agent),
                random.Random(0),
                task_of(scenario, plan.task),
                **settings.options,
            )
        except ConfigError:
            raise
        except Exception:  # it will say so again where it is recorded
            continue


def budget_of(config: Config) -> Budget | None:
    """What `limits:` allows one command to spend; None where they set no limit."""
    limits = config.limits
    if limits.usd is None and limits.tokens is None:
        return None
    return Budget(tokens=limits.tokens, usd=limits.usd)


def open_policies(
    config: Config,
    *,
    base: Path | None = None,
    names: Iterable[str] | None = None,
    budget: Budget | None = None,
    offline: bool = False,
) -> dict[str, Policy]:
    """Every policy that has a seat, learns, teaches or is named in `names`, with its engine open.

    A relative model path is looked up in `base` (the config's folder), then in the working
    folder; `${env:NAME}` is read here. What engines with a budget spend is taken from `budget`,
    by default a new one out of `limits:`; `retry:` holds where a policy says nothing of its own.
    `offline`: nothing will be sampled, so no key is read. Raises ConfigError or DataError for a
    model that cannot be opened.
    """
    seats = config.seats
    wanted = set(names or ())
    learned = set() if config.train is None else {*config.train.policies, *config.train.warm_start}
    wanted |= learned
    if config.train is not None:
        wanted |= config.train.references
        if config.train.opponents is not None:
            wanted |= {name for name in config.train.opponents.anchors if name in config.policies}
        # those who play demonstrations may sample from policies that play nothing else
        seats += [seat for warm in config.train.warm_start.values() for seat in warm.cast.values()]
    wanted = wanted.union(*(policies_of(settings.seat) for settings in seats))
    unknown = sorted(wanted - config.policies.keys())
    if unknown:
        raise ConfigError(
            f"no policy is called {unknown[0]!r}; policies are"
            f" {', '.join(config.policies) or 'none'}"
        )
    opened: dict[str, Policy] = {}
    refused: list[str] = []
    budget = budget_of(config) if budget is None else budget
    for name, settings in located(config, base).policies.items():
        if name not in wanted:
            continue
        fed = {"budget": budget, "offline": offline, "frozen": name not in learned}
        try:
            engine = _engine(name, settings, config.retry.options, fed)
        except ConfigError as error:
            # a subclass has its own exit code; the others are said together
            if type(error) is not ConfigError:
                raise
            refused.append(str(error))
            continue
        opened[name] = Policy(name, engine, settings.sampling)
    if refused:
        raise ConfigError("\n".join(refused))
    return opened


def _engine(
    name: str, settings: PolicySettings, retry: Mapping[str, Any], fed: Mapping[str, Any]
) -> Engine:
    """The engine of a policy; `retry` holds where the policy says nothing of its own."""
    offline = bool(fed["offline"])
    options = {
        key: value if offline else reveal(value, f"policies.{name}.{key}")
        for key, value in settings.options.items()
    }
    # `retry:` speaks to every policy, and a table knows no attempts
    takes = signature(load("engines", settings.model.partition("/")[0])) or {}
    options = {key: value for key, value in retry.items() if key in takes} | options
    # what the driver feeds stands last: a config cannot set it
    options |= {key: value for key, value in fed.items() if key in takes}
    with _named(name, options):
        try:
            return open_engine(name, settings.model, **options)
        except DataError as error:
            raise type(error)(f"{error}{_models_of_run(settings.model)}") from error


def _models_of_run(model: str) -> str:
    """What to name instead, where a model is named by the folder of a run; else ""."""
    kind, _, path = model.partition("/")
    if not path or not is_file(Path(path) / "resolved.yaml"):
        return ""
    made = [f"{kind}/{path}/models/{name}" for name in names(Path(path) / "models")]
    return f"; it is a run folder, and a model of it is {' or '.join(made)}" if made else ""


@contextmanager
def _named(policy: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Gives an error of an engine the key of the config that it is about, so that whoever knows
    the file can say where it stands."""
    try:
        yield
    except (ConfigError, DataError) as error:
        # a subclass has its own exit code
        if type(error) not in (ConfigError, DataError):
            raise
        lines = [_placed(line, policy, options) for line in str(error).splitlines()]
        raise type(error)("\n".join(lines)) from error


def _placed(line: str, policy: str, options: Mapping[str, Any]) -> str:
    where = f"policy {policy!r}: "
    if not line.startswith(where):  # about a file or a model
        return line
    message = line.removeprefix(where)
    option = message.split(" ", 1)[0].rstrip(":")
    key = f"policies.{policy}.{option}" if option in options else f"policies.{policy}"
    return f"{key}: {message}"


class Plans:
    """One plan per task (or seed) and repeat, in order, each made where it is asked for; its id
    alone costs less. Raises ConfigError for a task that the split does not have."""

    def __init__(self, config: Config, scenario: Scenario, world: str = "") -> None:
        settings = config.only
        run = config.run
        self._starts = _starts(config, scenario)
        self._repeats = run.episodes_per_task
        self._seed = run.seed
        self._split = settings.split
        # an index stands for a task or, where there is one task only, for a seed
        self._by_seed = single(scenario.tasks(settings.split))
        self._world = world
        self._plan = partial(
            Plan,
            scenario,
            cast_of(config),
            limits=run.limits,
            call_timeout_s=run.call_timeout_s,
            options=settings.options,
            world=world,
        )

    def __len__(self) -> int:
        return len(self._starts) * self._repeats

    def __iter__(self) -> Iterator[Plan]:
        return map(self.plan, range(len(self)))

    def plan(self, number: int) -> Plan:
        """The plan of this number, from 0."""
        return self._plan(*self._start(number))

    def again(self, task: str, seed: int, repeat: int) -> Plan:
        """The plan that began so."""
        return self._plan(task, seed, repeat)

    def ids(self) -> Iterator[Id]:
        """Their ids."""
        repeats = range(self._repeats)
        if not self._by_seed:
            for start in self._starts:
                task = f"{self._split}/{start}"
                name, seed = placed(self._world, task), stable_seed(self._seed, task)
                yield from ((name, seed, repeat) for repeat in repeats)
            return
        task = f"{self._split}/0"
        name = placed(self._world, task)
        head = f"{self._seed}|{task}"
        for position in range(len(self._starts)):
            for repeat in repeats:
                yield name, text_seed(f"{head}|{position}|{repeat}"), repeat

    def _start(self, number: int) -> Id:
        position, repeat = divmod(number, self._repeats)
        task = f"{self._split}/{0 if self._by_seed else self._starts[position]}"
        # the position too: where all tasks are one it is what makes the next seed
        own = (position, repeat) if self._by_seed else ()
        return task, stable_seed(self._seed, task, *own), repeat


def evaluation_plans(config: Config, scenario: Scenario) -> Iterator[Plan]:
    """The `Plans` of a config of one scenario."""
    return iter(Plans(config, scenario))


def exam_tasks(config: Config, scenario: Scenario) -> list[str]:
    """`<split>/<index>` of the tasks that an exam asks in turn: those that `scenario:` names."""
    split = config.only.split
    chosen = config.only.tasks
    known = len(scenario.tasks(split))
    tasks = chosen if isinstance(chosen, list) else range(min(chosen or known, known))
    return [f"{split}/{task}" for task in tasks]


def count(config: Config, scenario: Scenario) -> int:
    """How many plans there are."""
    return len(_starts(config, scenario)) * config.run.episodes_per_task


def _starts(config: Config, scenario: Scenario) -> Sequence[int]:
    """Task indices; 0, 1, ... where only the seed makes a difference."""
    split = config.only.split
    wanted = config.only.tasks
    tasks = scenario.tasks(split)
    size = len(tasks)
    if isinstance(wanted, int):
        starts: Sequence[int] = range(wanted)
        missing = [wanted - 1] if wanted > size and not single(tasks) else []
    else:
        starts = range(size) if wanted is None else wanted
        missing = [index for index in starts if not 0 <= index < size]
    if missing:
        raise ConfigError(
            f"{scenario.id}: no task {missing[0]}; split {split!r} has {size} (0 to {size - 1})"
        )
    return starts


def cast_with(
    config: Config, scenario: Scenario, cast: Mapping[str, str]
) -> dict[str, AgentSettings]:
    """The seats of a cast that names some agents' behaviours.

    Each other agent keeps its seat where that samples from no policy, else it gets the
    scenario's default. Raises ConfigError where a behaviour does not exist or would need a
    policy, and where an agent has neither.
    """
    unknown = [agent for agent in cast if agent not in scenario.agents]
    if unknown:
        raise ConfigError(
            f"no agent of {scenario.id} is called {unknown[0]!r}; its agents are"
            f" {', '.join(scenario.agents)}"
        )
    seats = {}
    seated = seats_of(scenario.agents, config.agents)
    for agent in scenario.agents:
        seat = seated.get(agent)
        if agent in cast:
            seats[agent] = AgentSettings(behaviour=cast[agent])
        # a seat that samples from nothing costs nothing, and is what the run plays with
        elif seat is not None and seat.policy is None and not seat.policies:
            seats[agent] = seat
        elif agent in scenario.default_cast:
            seats[agent] = AgentSettings(behaviour=scenario.default_cast[agent])
        else:
            raise ConfigError(
                f"agent {agent!r} samples from a policy here, and {scenario.id} names no default"
                " for it"
            )
        # an examiner or a baseline that costs tokens would not be the plain yardstick that it is
        # for
        behaviour = seats[agent].behaviour
        if needs_policy(behaviour, as_factory(behaviour)):
            raise ConfigError(f"agent {agent!r}: the behaviour {behaviour!r} samples from a policy")
    return seats
