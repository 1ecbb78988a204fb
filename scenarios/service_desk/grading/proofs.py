"""Is a task a fair test? Proofs about one task of a service desk, made by playing its solution and
every near miss on the real tools.

`solvable`: each call of the solution succeeds, and the grader says yes. `necessary`: without any
one write, or any one fact, it says no. `idle`: it says no to silence, handing over, refusing and
echoing, each unless it is all of the goal, and always to silence. `unique`: what the customer wants
has no other answer than the accepted ones. `told`: the text says all of the task and nothing that
the customer cannot know. `stable`: the order of items in a call, and of writes that do not depend
on each other, changes nothing. `sharp`: one wrong argument fails.

A domain brings its tools, its grader and its near misses as a `Trial`; this module knows no tool
and no table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations

from gem_ma.scenarios.service_desk.desk.facts import Fact
from gem_ma.scenarios.service_desk.desk.log import Outcome, Store
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task, Wish

from gem_ma.kernel.errors import DataError

# Four writes have 24 orders; more are sampled.
MOST_ORDERS = 24
ERRORS = ("Error: ", "Unknown action ")
SORRY = "I am sorry, that is not possible."
Facts = Counter[Fact]


class Unproved(DataError):
    """A task fails a proof; `proof` is its name."""

    def __init__(self, task: str, proof: str, why: str) -> None:
        super().__init__(f"task {task} is not {proof}: {why}")
        self.proof, self.why = proof, why


@dataclass(frozen=True)
class Trial:
    """One task with what its domain brings.

    `opened`: a fresh store. `changed`: what differs in a store from the start. `judge`: whether
    the grader says yes to these changes and this end. `goals`: the accepted changes, the
    solution's own first. `misses`: a write with one argument wrong. `turned`: the same write
    with its lists in other orders. `unique` and `told`: the first fault, or ""; `unique` is
    given the store after the solution.
    """

    task: Task
    opened: Callable[[], Store]
    changed: Callable[[Store], Facts]
    judge: Callable[[Facts, Outcome], bool]
    goals: Sequence[Facts]
    misses: Callable[[GoldCall], Iterable[GoldCall]]
    turned: Callable[[GoldCall], Iterable[GoldCall]]
    unique: Callable[[Store], str]
    reads_back: Callable[[], str]

    @cached_property
    def writes(self) -> list[GoldCall]:
        """The calls of the solution that can change something."""
        # Asked of the tools, not of names: only they know what they change.
        store = self.opened()
        return [call for call in self.task.actions if store.mutates(call.name)]

    @cached_property
    def all_facts(self) -> str:
        """A text that tells all facts."""
        # A task that wants no fact still needs a text, since silence is not service.
        return " and ".join(self.task.outputs) or (
            SORRY if self.task.goal == "refused" else "Done."
        )

    @cached_property
    def ending(self) -> Outcome:
        """How a talk ends that goes right."""
        if self.task.goal == "transferred":
            return Outcome("transfer", texts=(self.all_facts,))
        return Outcome(
            "user", "refused" if self.task.goal == "refused" else "settled", (self.all_facts,)
        )

    @cached_property
    def stages(self) -> list[Store]:
        """The store before each write, and after the last."""
        # Kept, since every near miss of a write starts from the state before it.
        stages = [self.opened()]
        for call in self.writes:
            store = _twin(stages[-1])
            run(store, call)
            stages.append(store)
        return stages

    def replayed(self, place: int, calls: Iterable[GoldCall]) -> Facts:
        """The changes after the first `place` writes of the solution and then these."""
        store = _twin(self.stages[place])
        for call in calls:
            run(store, call)
        return self.changed(store)


def run(store: Store, call: GoldCall) -> str:
    """What the call answers."""
    return store.call(call.name, dict(call.arguments))


def prove(trial: Trial) -> dict[str, int]:
    """How many cases each proof went through. Raises Unproved at the first that fails."""
    # In their order: the cheap proofs first, and `solvable` before all that build on it.
    passed = {}
    for name, proof in PROOFS.items():
        cases = 0
        for fault in proof(trial):
            if fault:
                raise Unproved(trial.task.id, name, fault)
            cases += 1
        passed[name] = cases
    return passed


def solvable(trial: Trial) -> Iterator[str]:
    store = trial.opened()
    for call in trial.task.actions:
        # A call that ends the talk has no answer to look at.
        answer = "" if store.terminates(call.name) else run(store, call)
        yield f"{call.name} answers {answer!r}" if answer.startswith(ERRORS) else ""
    changed = trial.changed(store)
    yield "" if trial.judge(changed, trial.ending) else "the grader says no to the solution"


def necessary(trial: Trial) -> Iterator[str]:
    for place, call in enumerate(trial.writes):
        # Both the write itself and what depended on it: the later ones are played too, and may
        # fail.
        without = trial.replayed(place, trial.writes[place + 1 :])
        yield f"it is solved without {call.name}" if without in trial.goals else ""
    for place, output in enumerate(trial.task.outputs):
        others = [*trial.task.outputs[:place], *trial.task.outputs[place + 1 :]]
        said = (" and ".join(others) or "Done.",)
        outcome = Outcome(trial.ending.by, trial.ending.reason, said)
        yield (
            # With all changes made, so that only the fact is missing.
            f"it is solved without telling {output}" if trial.judge(trial.goals[0], outcome) else ""
        )


def idle(trial: Trial) -> Iterator[str]:
    nothing: Facts = Counter()
    goal, text = trial.task.goal, trial.task.instruction
    # Silence with every reason that might fit, since one of them is the right one for some goal.
    cases = {
        f"silence ({reason})": Outcome("user", reason)
        for reason in ("settled", "refused", "gave_up")
    }
    cases["silence up to the limit"] = Outcome("limit")
    # Handing over is the whole of the goal only where nothing else is to be done.
    if goal != "transferred" or trial.writes or trial.task.outputs:
        cases["handing over"] = Outcome("transfer")
    if goal != "refused":
        cases |= {
            f"refusing ({reason})": Outcome("user", reason, (SORRY,))
            for reason in ("settled", "refused")
        }
        cases["an echo"] = Outcome("user", "settled", (text,))
    for name, outcome in cases.items():
        yield f"{name} solves it" if trial.judge(nothing, outcome) else ""


def unique(trial: Trial) -> Iterator[str]:
    yield _coherent(trial) or trial.unique(trial.stages[-1])


def _coherent(trial: Trial) -> str:
    """Whether solution, outputs and goal say what the wishes say; "" where they do."""
    task, final = trial.task, _final(trial.task)
    # Sorted texts, since arguments hold lists that cannot be put into a set.
    wanted = sorted(repr((wish.kind, sorted(wish.arguments.items()))) for wish in served(task))
    if wanted != sorted(repr((call.name, sorted(call.arguments.items()))) for call in trial.writes):
        return "the writes of the solution are not those that the wishes ask for"
    if {*task.outputs} != {output for wish in final for output in wish.outputs}:
        return "the outputs are not the answers to the wishes"
    refused = bool(final) and all(wish.kind == "impossible" for wish in final)
    return (
        f"the wishes do not end {task.goal}"
        if task.goal != "transferred" and refused != (task.goal == "refused")
        else ""
    )


def told(trial: Trial) -> Iterator[str]:
    yield trial.reads_back()


def stable(trial: Trial) -> Iterator[str]:
    for place, call in enumerate(trial.writes):
        # By our own rules the order of a list changes nothing; by tau2's the last price decides.
        for turned in trial.turned(call):
            same = trial.replayed(place, [turned, *trial.writes[place + 1 :]]) == trial.goals[0]
            yield "" if same else f"the order of items in {call.name} matters"
    for order in _orders(trial):
        same = trial.replayed(0, [trial.writes[place] for place in order]) == trial.goals[0]
        yield (
            ""
            if same
            else f"the order of {' and '.join(trial.writes[place].name for place in order)} matters"
        )


def sharp(trial: Trial) -> Iterator[str]:
    for place, call in enumerate(trial.writes):
        # A miss may hit what another wish of the kind accepts, so each is held against its own.
        wish = next(filter(call.serves, served(trial.task)), None)
        accepted = [{**call.arguments, **choice} for choice in (wish.choices if wish else ())]
        for miss in trial.misses(call):
            # A miss that is a right answer is none.
            if dict(miss.arguments) in accepted or dict(miss.arguments) == dict(call.arguments):
                continue
            solved = trial.replayed(place, [miss, *trial.writes[place + 1 :]]) in trial.goals
            yield f"{miss.name} with {dict(miss.arguments)} solves it too" if solved else ""


PROOFS: Mapping[str, Callable[[Trial], Iterator[str]]] = {
    proof.__name__: proof for proof in (solvable, necessary, idle, unique, told, stable, sharp)
}


def served(task: Task) -> list[Wish]:
    """The wishes that a write serves, those in place of a refused one included; in the order of
    the writes."""
    return [wish for wish in _final(task) if wish.writes]


def _final(task: Task) -> list[Wish]:
    """Each wish as it ends: the one in place of a refused one, if there is one."""

    def last(wish: Wish) -> Wish:
        return wish if wish.instead is None else last(wish.instead)

    return [last(wish) for wish in task.wishes]


def _orders(trial: Trial) -> Iterator[tuple[int, ...]]:
    """Orders of the writes that the wishes allow, other than their own; all of them, or a sample
    that the task's id decides."""
    final = _final(trial.task)
    writing = [number for number, wish in enumerate(final) if wish.writes]
    count = len(trial.writes)
    # Writes that serve no wish have no order that the wishes could allow.
    if count < 2 or count != len(writing):
        return
    rank = {number: place for place, number in enumerate(writing)}
    first = [
        (rank[other], rank[number])
        for number in writing
        for other in trial.task.wishes[number].after
        if other in rank
    ]
    places = list(range(count))

    def allowed(order: Sequence[int]) -> bool:
        # What a wish waits for stays before it.
        return all(order.index(earlier) < order.index(later) for earlier, later in first)

    if count <= 4:
        yield from islice(
            (order for order in permutations(places) if allowed(order) and list(order) != places),
            MOST_ORDERS,
        )
        return
    # By the id alone: the same task is proved by the same orders in every process.
    rng = random.Random(f"orders/{trial.task.id}")
    for _ in range(MOST_ORDERS):
        order = tuple(rng.sample(places, count))
        if allowed(order):
            yield order


def _twin(store: Store) -> Store:
    # Every store of these proofs can be copied; the protocol of a talk does not ask for it.
    return store.copy()  # type: ignore[attr-defined]
