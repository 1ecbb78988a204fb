"""The public conformance kit: thirteen rules that a scenario and its environments keep, checked by
playing.

    from gem_ma.testing import check_scenario
    print(check_scenario("kuhn_poker"))

It takes nothing on trust: declared facts (`zero_sum`, `cooperative`, `chance`, `ends_within`,
`deal`) are played for. Optional further facts: `private = {agent: fields of a task that only it
may know}`, `reveals_after = decision points after which no secret is left`.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

from gem_ma.envs.aec import aec_env
from gem_ma.envs.gym import gym_env
from gem_ma.envs.parallel import parallel_env
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError, ConformanceError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.registry import as_scenario
from gem_ma.testing import (
    fresh,
    rules_environments,
    rules_fork,
    rules_gym,
    rules_legal,
    rules_play,
    rules_repeat,
    rules_secrecy,
)
from gem_ma.testing.calls import remembering
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.report import RULES, Finding, Report

# of a play that does not end by itself; tasks that are tried where none are named
MAX_STEPS = 40
MAX_TASKS = 3


class Parts(TypedDict, total=False):
    """What may stand in the place of a built-in part: factories `f(scenario) -> env` of the three
    environments, and a kernel. For the tests of an environment or a kernel, not of a scenario."""

    aec: Callable[..., Any] | None
    parallel: Callable[..., Any] | None
    gym: Callable[..., Any] | None
    game: type


def check_scenario(
    scenario: str | Scenario | type[Scenario],
    *,
    tasks: Iterable[Any] | None = None,
    seeds: Iterable[int] = range(12),
    limits: Limits | None = None,
    module: str | None = None,
    skip: Collection[int | str] = (),
    cpu_s: float = math.inf,
    **parts: Unpack[Parts],
) -> Report:
    """Plays a scenario (id, class or instance) against the thirteen rules of
    `gem_ma.testing.report.RULES`.

    `tasks`: task objects; else the first of split `train`. `limits.max_steps`: where a play
    without an end of its own is cut. `aec`, `parallel`, `gym`: factories `f(scenario) -> env` in
    place of the built-in environments; `game`: a kernel in place of `Game`. `module`:
    `module:Class`, where a fresh process finds the scenario. `skip`: rules by number or name.
    `cpu_s`: processor time after which no play begins; rules cut by it count as not tested. Raises
    ConformanceError with every finding; an exception of the scenario, of an environment or of the
    kernel is a finding. Gives a Report of what passed and what could not be tested.
    """
    # Python would name the function that unpacks them
    if unknown := sorted(parts.keys() - Parts.__annotations__.keys()):
        raise TypeError(f"check_scenario() got an unexpected keyword argument {unknown[0]!r}")
    skipped = _skipped(skip)
    made = _made(scenario)
    chosen = list(seeds)
    if not chosen:
        raise ConfigError("check_scenario needs at least one seed")
    # a fresh process makes it again in the same way, from what was named
    by_name = None if isinstance(scenario, Scenario) else scenario
    cap = _cap(made, limits)
    kernel = parts.get("game", Game)
    kit = Kit(made, _tasks(made, tasks), chosen, cap, kernel, by_name, cpu_s=cpu_s)
    with contextlib.suppress(TypeError):  # an object without room for attributes is played as it is
        kit.remembered = remembering(made, {})
    with _unraisable(kit):
        figures = _run(kit, skipped, module, _environments(parts))
    findings = [finding for finding in kit.findings.values() if finding.rule not in skipped]
    # rule by rule, as they are listed in the docs, and the smallest seed first
    findings.sort(key=lambda finding: (finding.rule, finding.seed or 0))
    if findings:
        raise ConformanceError(tuple(findings))
    for rule in skipped:
        kit.skip(rule, "skipped on request")
    # a rule of secrets or of legal strings is untested where the scenario has none; of any other
    # rule a part is always tested, unless the time is up
    open_ = {
        rule
        for rule, reasons in kit.untested.items()
        if rule in skipped or (rule in (4, 10) and reasons) or _time_is_up(kit) in reasons
    }
    passed = tuple(rule for rule in RULES if rule not in open_)
    return Report(
        made.id or type(made).__name__,
        passed,
        {rule: tuple(reasons) for rule, reasons in sorted(kit.untested.items())},
        figures,
    )


def _made(scenario: str | Scenario | type[Scenario]) -> Scenario:
    try:
        made = as_scenario(scenario)
    except ConfigError:
        raise
    except Exception as error:
        raise ConformanceError(
            (Finding(5, f"a scenario is made without raising; {type(error).__name__}: {error}"),)
        ) from error
    if not isinstance(made, Scenario):
        raise ConfigError(
            f"check_scenario takes an id, a class or an instance of Scenario; got {scenario!r}"
        )
    return made


def _environments(parts: Parts) -> dict[str, Callable[..., Any]]:
    """The factories of the environments by name."""
    return {
        "AEC": parts.get("aec") or aec_env,
        "Parallel": parts.get("parallel") or parallel_env,
        "Gymnasium": parts.get("gym") or gym_env,
    }


def _run(
    kit: Kit, skipped: set[int], module: str | None, factories: dict[str, Callable[..., Any]]
) -> dict[str, float]:
    figures: dict[str, float] = {}
    try:
        if not _plays(kit):
            return figures  # nothing can be said of a scenario of which no play begins
    except Failed:
        return figures
    # The order tells: what breaks first explains what breaks after it, and the kernel comes before
    # the environments. A stage runs unless all of its rules are skipped.
    stages: list[tuple[set[int], Callable[[], Any]]] = [
        ({3, 5, 6, 7, 8, 10, 11}, lambda: rules_play.liveness(kit)),
        ({1}, lambda: rules_repeat.determinism(kit)),
        ({2}, lambda: rules_repeat.global_state(kit)),
        ({3}, lambda: rules_play.observation(kit)),
        ({4, 5}, lambda: rules_play.fuzz(kit)),
        ({4}, lambda: rules_secrecy.secrecy(kit)),
        ({6}, lambda: rules_play.ending(kit)),
        ({7}, lambda: rules_play.rewards(kit)),
        ({8}, lambda: rules_fork.fork(kit)),
        ({10}, lambda: rules_legal.legal_strings(kit)),
        ({1}, lambda: fresh.fresh(kit, module)),
        ({1, 2, 3, 4, 5, 6, 7, 9}, lambda: rules_environments.environments(kit, factories)),
        ({4}, lambda: rules_secrecy.in_environments(kit, factories)),
        ({1, 3, 5, 7, 9, 12}, lambda: rules_gym.gym(kit, factories["Gymnasium"])),
        ({12}, lambda: rules_environments.suites(kit, factories)),
        ({1}, lambda: rules_repeat.tasks_untouched(kit)),
        ({13}, lambda: figures.update(rules_environments.speed(kit, factories))),
    ]
    for rules, stage in stages:
        # each further stage would wait for the same endless play
        if kit.hung:
            break
        if not rules <= skipped:
            # each play has its own limit; this one ends a stage of hundreds that are just within it
            with contextlib.suppress(Failed), kit.guarded(f"rule {min(rules)}", seconds=300.0):
                stage()
            for rule in rules if kit.spent else ():
                kit.skip(rule, _time_is_up(kit))
    return figures


def _time_is_up(kit: Kit) -> str:
    return f"the {kit.cpu_s:g} CPU seconds of the kit were spent"


@contextlib.contextmanager
def _unraisable(kit: Kit) -> Iterator[None]:
    """A generator that refuses to be closed says so only to this hook when it is collected."""
    before = sys.unraisablehook

    def note(unraisable: Any) -> None:
        # the words of the interpreter are the only sign of this fault
        if isinstance(unraisable.exc_value, RuntimeError) and "GeneratorExit" in str(
            unraisable.exc_value
        ):
            kit.fail(
                6,
                "a play ends once, and closes cleanly at every step; it ignores GeneratorExit when"
                " it is collected",
            )
        else:
            before(unraisable)

    sys.unraisablehook = note
    try:
        yield
    finally:
        sys.unraisablehook = before


def _plays(kit: Kit) -> bool:
    """Whether at least one play begins."""
    for seed in kit.seeds:
        try:
            kit.start(seed).close()
        except Failed:
            if kit.hung:
                return False
            continue
        except Exception:
            return True  # the fault is in closing: rule 6 finds it
        else:
            return True
    return False


def _tasks(scenario: Scenario, tasks: Iterable[Any] | None) -> Sequence[Any]:
    try:
        if tasks is not None:
            chosen = list(tasks)
        else:
            # by number: a split of thousands is made task by task, and only these are wanted
            split = scenario.tasks("train")
            chosen = [split[number] for number in range(min(len(split), MAX_TASKS))]
    except Exception as error:
        fault = f"tasks('train') gives the tasks of a split; {type(error).__name__}: {error}"
        raise ConformanceError((Finding(5, fault),)) from error
    if not chosen:
        raise ConformanceError(
            (Finding(11, "a scenario has at least one task in split 'train'; None is a task"),)
        )
    return chosen


def _cap(scenario: Scenario, limits: Limits | None) -> int:
    """Where a play is cut: beyond the scenario's own promise, so that a broken one is seen."""
    cap = (limits.max_steps if limits else None) or MAX_STEPS
    within = scenario.ends_within
    declared = scenario.limits
    # the environments keep to a world's own time limit, so the kit's plays of the kernel must too
    if isinstance(declared, Limits) and isinstance(declared.max_steps, int):
        return max(1, min(cap, declared.max_steps))
    # a bool is an int, and rule 6 refuses it later in words
    return max(cap, within + 5) if isinstance(within, int) and not isinstance(within, bool) else cap


def _skipped(skip: Collection[int | str]) -> set[int]:
    names = {name: rule for rule, name in RULES.items()}
    chosen = set()
    for name in (skip,) if isinstance(skip, (int, str)) else skip:
        rule = names.get(name) if isinstance(name, str) else name
        if rule not in RULES:
            listed = ", ".join(f"{rule} {word}" for rule, word in RULES.items())
            raise ConfigError(f"no rule is called {name!r}; rules are {listed}")
        chosen.add(rule)
    return chosen
