"""What the judges find in the labelled talks, against the labels: precision and recall of each
finding, with Wilson intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gem_ma.scenarios.service_desk.watching.audit import Audit
from gem_ma.scenarios.service_desk.watching.findings import CODES
from gem_ma.scenarios.service_desk.watching.ledger import FAULTS

from tests.talks.injected import EDITS, injected
from tests.talks.script import Labelled, scenario, talks


@dataclass(frozen=True, slots=True)
class Score:
    """How often a finding was right, wrong, and not made."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float | None:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else None

    @property
    def recall(self) -> float | None:
        return self.right / (self.right + self.missed) if self.right + self.missed else None


_KEPT: dict[str, Audit] = {}


def audited(talk: Labelled) -> Audit:
    """Everything that is said of a talk."""
    if talk.name not in _KEPT:
        _KEPT[talk.name] = scenario().judged(talk.task, talk.acts)
    return _KEPT[talk.name]


def found(talk: Labelled) -> set[tuple[int, str]]:
    """(step, name) of the findings and faults."""
    audit = audited(talk)
    both = [(one.step, one.code) for one in audit.monitor.findings]
    return {*both, *((fault.step, fault.kind) for fault in audit.faults)}


def scores(which: Iterable[Labelled]) -> dict[str, Score]:
    """The score of each code of the monitor and each fault of the ledger."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for talk in which:
        got = found(talk)
        right.update(name for _, name in got & talk.marks)
        wrong.update(name for _, name in got - talk.marks)
        missed.update(name for _, name in talk.marks - got)
    return {name: Score(right[name], wrong[name], missed[name]) for name in (*CODES, *FAULTS)}


def by_injection() -> dict[str, Score]:
    """The score of each finding over the clean talks into which a program has put a
    breach."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for talk in talks():
        if talk.marks:
            continue
        for code, broken in injected(talk):
            got = {(step, name) for step, name in found(broken) if name == code}
            # what is told before anybody is identified is another breach of that name, a soft one
            if code == "AUTH":
                got = {(step, name) for step, name in got if broken.acts[step][1].tool_calls}
            right[code] += len(got & broken.marks)
            wrong[code] += len(got - broken.marks)
            missed[code] += len(broken.marks - got)
    return {code: Score(right[code], wrong[code], missed[code]) for code in dict(EDITS)}
