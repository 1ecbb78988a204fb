"""Retail customer service: the assistant has the tools, the user has a wish, and the database is
the judge.

Type `gem-ma run retail`; `configs/retail_scripted.yaml` plays our own generated shop,
`configs/retail_tau1.yaml` tau-bench's tasks. The two talk by turns; calls of tools are answered
here, by the episode's own store, and the user never sees them. Only the user's tool
`end_conversation`, the assistant's `transfer_to_human_agents` and the two bounds on actions end
a talk; no word in a text does. Under the scoring `tau2` a transfer ends nothing, and that
benchmark's own bounds do: 200 steps, 10 errors, an empty message.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import Desk, Outcome, Rules, Style, Watcher
from gem_ma.scenarios.service_desk.desk.talk import retell, talk
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.grading.goals import wishes_in
from gem_ma.scenarios.service_desk.grading.refusals import refuses
from gem_ma.scenarios.service_desk.grading.tau2 import MAX_ERRORS, MAX_STEPS
from gem_ma.scenarios.service_desk.retail.benchmark.sources import Source, open_source
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_grading import (
    database_only,
    tau2,
    unscored,
)
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_view import AsTau2
from gem_ma.scenarios.service_desk.retail.domain.domain import domain_of
from gem_ma.scenarios.service_desk.retail.domain.grading import (
    GRADERS,
    Gold,
    Verdict,
    canonical,
    gold_of,
)
from gem_ma.scenarios.service_desk.retail.domain.texts import GREETING, POLICY, USER_BRIEFING
from gem_ma.scenarios.service_desk.retail.options import Bounds, Shop, Stakes
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld
from gem_ma.scenarios.service_desk.retail.store.schemas import TOOLS
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.retail.store.tau2_calls import TAU2_TOOLS
from gem_ma.scenarios.service_desk.rewards.scene import Judge, Scene, Shadow
from gem_ma.scenarios.service_desk.rewards.terms import read_settings
from gem_ma.scenarios.service_desk.rewards.watchers import NEEDS_LEDGER, NEEDS_MONITOR, watchers
from gem_ma.scenarios.service_desk.watching.audit import (
    LESS_IS_BETTER,
    MORE_IS_BETTER,
    RATES,
    Audit,
    labels,
    measures,
)
from gem_ma.scenarios.service_desk.watching.blame import Course, blame, upheld
from gem_ma.scenarios.service_desk.watching.monitor import Monitor
from gem_ma.scenarios.service_desk.watching.sentences import told

from gem_ma import Action, Episode, Message, Reward, Scenario, task_of
from gem_ma.kernel.episode import End
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.system.options import flat

SCORINGS = {**GRADERS, "tau2": tau2}
# on the generated shop's test split
BASELINES = {
    "retail_nothing": 0.0,
    "retail_transfer": 0.0,
    "retail_echo": 0.0,
    "retail_refuse": 0.0,
}
MOST_SOLUTIONS, AUDITS = 2048, 256  # solutions and audits that are kept
SOLUTION = ("actions", "outputs", "goal", "ends", "wishes", "knowledge", "flags", "proof", "raw")


class Retail(Scenario):
    """Customer service of a shop: an assistant with 16 tools and a user who wants something;
    paid by what became of the database."""

    agents = ("assistant", "user")
    version = 5
    cooperative = True  # both are paid the outcome
    chance = False
    # the assistant sees no instruction, neither side the solution
    private = {"user": ("instruction", *SOLUTION), "assistant": SOLUTION}
    default_cast = {"assistant": "retail_scripted", "user": "retail_user"}
    model_cast = {"user": "retail_user_llm"}  # it is told the task, and keeps to it
    baseline_casts = {
        "nothing": {"assistant": "retail_nothing"},
        "transfer at once": {"assistant": "retail_transfer"},
        "refuse all": {"assistant": "retail_refuse"},
        "echo": {"assistant": "retail_echo"},
        "random call": {"assistant": "retail_random_call"},
        "solution's writes without a word": {"assistant": "retail_gold_writes"},
        "number spray": {"assistant": "retail_spray"},
        "oracle": {"assistant": "retail_oracle"},
    }
    examiners = {"user": {"assistant": "retail_oracle"}}
    more_is_better, less_is_better = MORE_IS_BETTER, LESS_IS_BETTER

    @flat
    def __init__(
        self,
        data: str | None = None,
        scoring: str = "canonical",
        semantics: str | None = None,
        *,
        bounds: Bounds = Bounds(),  # noqa: B008  (frozen, as the next two)
        shop: Shop = Shop(),  # noqa: B008
        stakes: Stakes = Stakes(),  # noqa: B008
        enforce_protocol: bool = False,
    ) -> None:
        """`data`: a folder or checkout of tau-bench or of tau2-bench (its content says which),
        `own` for the generated shop, None for the folder that TAU_BENCH_PATH or TAU2_DATA_DIR
        names, or else the generated shop.

        `scoring`: `canonical`, `tau1` or `tau2`. `semantics`: how the tools behave, `fixed`
        (default of the generated shop), `tau1` (default of tau-bench's data) or `tau2` (always on
        tau2-bench's data and for its scoring; tables of the other form are typed for it). A config
        names the fields of `bounds`, `shop` and `stakes` (`max_actions: 20`). `enforce_protocol`
        (for the scoring `tau2`): text beside a call ends the talk as that agent's fault, as with
        the benchmark's flag of that name; by its default, and here, the calls are run and the text
        is heard by nobody.

        Raises ConfigError for an option, DataError for a missing or damaged folder.
        """
        if not isinstance(scoring, str) or scoring not in SCORINGS:
            raise ConfigError(f"scenario.scoring: there is {', '.join(SCORINGS)}; got {scoring!r}")
        self.max_actions, self.max_user_actions = bounds.under(scoring)
        self.source: Source = open_source(data, scoring, semantics, shop.built)
        generated = _generated(self.source)
        if shop.knobs is not None and not generated:
            raise ConfigError(
                f"scenario.knobs: they turn the generated shop (data: own), not {self.source!r}"
            )
        if not isinstance(enforce_protocol, bool) or (enforce_protocol and scoring != "tau2"):
            raise ConfigError(
                "scenario.enforce_protocol: true or false, for the scoring tau2 alone; got"
                f" {enforce_protocol!r} with {scoring}"
            )
        self.enforce_protocol = enforce_protocol
        self.scoring, self.semantics = scoring, self.source.semantics
        most = self.max_actions + self.max_user_actions
        self.ends_within = min(most, MAX_STEPS) if scoring == "tau2" else most
        # The numbers are those of the shop as it is; seen as tau2's, its tasks have other faults.
        own = isinstance(self.source, OwnWorld) and scoring == "canonical"
        self.baselines = BASELINES if own else {}
        self.policy = self.source.policy() or POLICY
        self._pays(stakes)
        self._audits: dict[int, tuple[Episode, Audit]] = {}
        self._golds: dict[str, tuple[Task, Gold]] = {}

    def _pays(self, stakes: Stakes) -> None:
        """Sets what follows from who is paid for what. Raises ConfigError."""
        self.settings = read_settings(stakes.rewards, stakes.user_reward, stakes.gamma)
        self.cooperative = self.settings.alike
        # then nobody is paid outside of 0..1
        shares = self.settings.plain and max(self.settings.shares.values()) <= 1
        self.rates = (*RATES, "return *", "reward *") if shares else RATES
        # The potential is worked out with this discount: a run with another one is refused.
        shaped = "progress" in self.settings.terms
        self.discounts = {"assistant": stakes.gamma} if shaped else {}

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split: `train`, `val`, `test` of the generated shop; the files `dev`,
        `test`, `train` of a folder."""
        return self.source.tasks(split)

    def provenance(self) -> dict[str, Any]:
        """Where the data come from: name, folder as given, SHA-256 digest, and the git commit of
        a checkout."""
        return self.source.provenance()

    def success(self, episode: Episode) -> bool | None:
        """Whether the outcome was paid in full; None where the grader could not score the task."""
        if any(entry.why.startswith("unscored") for entry in episode.ledger):
            return None
        weight = self.settings.shares["assistant"]
        if not weight and any(entry.why == "outcome" for entry in episode.ledger):
            return self.audit(episode).verdict.reward == 1
        return any(
            entry.agent == "assistant"
            and entry.why == "outcome"
            and entry.value > weight * (1 - 1e-6)
            for entry in episode.ledger
        )

    def play(self, rng: random.Random, task: Task | None) -> Play:
        """A play without a task is one of the first training task."""
        task = task or self.tasks("train")[0]
        desk = self.desk(task)
        outcome = yield from talk(desk)
        verdict = self.verdict(desk, outcome)
        monitors = [watcher for watcher in desk.watchers if isinstance(watcher, Monitor)]
        findings = [finding for monitor in monitors for finding in monitor.findings]
        if self.settings.strict and any(finding.hard for finding in findings):
            verdict = replace(verdict, reward=0.0)
        why = "outcome"
        if not verdict.scored:
            # tau2's rules say what is missing, and what the database alone was worth.
            why = unscored(verdict) if self.scoring == "tau2" else "unscored"
        yield Reward(
            {agent: share * verdict.reward for agent, share in self.settings.shares.items()},
            why=why,
        )

    def desk(self, task: Task) -> Desk:
        """A talk about a task that has not begun."""
        greeting, policy = Message(GREETING, "assistant"), Message.system(self.policy)
        style = Style(
            # Under tau2's rules the greeting is a message of the talk, so its speaker sees it.
            brief_assistant=(policy, greeting) if self.scoring == "tau2" else (policy,),
            brief_user=(
                Message.system(USER_BRIEFING.format(instruction=task.instruction)),
                greeting,
            ),
            tools=TAU2_TOOLS if self.semantics == "tau2" else TOOLS,
        )
        bounds = (self.max_actions, self.max_user_actions)
        if self.scoring == "tau2":
            lone = self.enforce_protocol
            rules = Rules(
                *bounds,
                lone_calls=lone,
                all_calls=True,
                grace=0,
                max_steps=MAX_STEPS,
                max_errors=MAX_ERRORS,
                faults_end=True,
            )
        else:
            strict = self.scoring != "tau1"
            rules = Rules(*bounds, lone_calls=strict, failed_end_counts=not strict)
        desk = Desk(task, RetailStore(self.source.world(task), self.semantics), style, rules)
        if not self.settings.plain:
            desk.watchers = self._paying(task)
        return desk

    def _paying(self, task: Task) -> list[Watcher]:
        """Those who pay for what happens, after those they ask."""
        domain, gold = domain_of(self.source.world(task)), self.gold(task)
        terms = set(self.settings.terms)
        monitor, shadow = Monitor(domain), Shadow(task, domain)
        scene = Scene(task, domain, gold.goals, gold.founded, Judge(self.verdict), monitor, shadow)
        asked: list[Watcher] = [
            *([monitor] if terms & NEEDS_MONITOR or self.settings.strict else []),
            *([shadow] if terms & NEEDS_LEDGER else []),
        ]
        return [*asked, *watchers(self.settings, scene)]

    def verdict(self, desk: Desk, outcome: Outcome, scoring: str | None = None) -> Verdict:
        """The word of a grader (default: the scenario's own) on a talk that is over; it looks at
        a copy."""
        end, gold = desk.store.overlay.copy(), self.gold(desk.task)
        scoring = scoring or self.scoring
        if scoring == "canonical":
            return canonical(desk.task, end, gold.goals, outcome, gold.founded)
        return SCORINGS[scoring](desk.task, end, gold.state, outcome)

    def gold(self, task: Task) -> Gold:
        """What a task's solution comes to; the last ones are kept."""
        entry = self._golds.get(task.id)
        # By identity: a folder that was read anew may have another task of this id.
        if entry is None or entry[0] is not task:
            if len(self._golds) == MOST_SOLUTIONS:
                del self._golds[next(iter(self._golds))]
            gold = gold_of(self.source.world(task), self.semantics, task)
            entry = self._golds[task.id] = (task, gold)
        return entry[1]

    def retold(self, episode: Episode) -> Desk:
        """The talk of a record, played again from its actions: its log and the state of its
        store."""
        return self._retold(
            task_of(self, episode.task), ((turn.agent, turn.action) for turn in episode.turns), ()
        )

    def _retold(
        self, task: Task, acts: Iterable[tuple[str, Action]], watching: Sequence[Watcher]
    ) -> Desk:
        desk = self.desk(task)
        desk.watchers = watching
        return retell(desk, ({agent: action} for agent, action in acts))

    def audit(self, episode: Episode) -> Audit:
        """All that can be said of a record without a model; worked out once."""
        entry = self._audits.get(id(episode))
        # An id may come again once its episode is gone, so the episode itself is held beside it.
        if entry is None or entry[0] is not episode:
            if len(self._audits) == AUDITS:
                del self._audits[next(iter(self._audits))]
            acts = ((turn.agent, turn.action) for turn in episode.turns)
            audit = self.judged(task_of(self, episode.task), acts, episode.end)
            entry = self._audits[id(episode)] = (episode, audit)
        return entry[1]

    def judged(
        self, task: Task, acts: Iterable[tuple[str, Action]], end: End = End.TERMINATED
    ) -> Audit:
        """All that can be said of what two agents did about a task: `acts` are (agent, action)
        in their order, `end` how the driver saw it end."""
        domain, gold = domain_of(self.source.world(task)), self.gold(task)
        monitor, shadow, course = Monitor(domain), Shadow(task, domain), Course(domain, gold.goals)
        desk = self._retold(task, acts, (monitor, shadow, course))
        # the driver cut it: what was reached until then is told
        outcome = desk.outcome or desk.end("cut")
        verdict = self.verdict(desk, outcome)
        benchmark = "tau2" if self.semantics == "tau2" else "tau1"
        strict = {
            name: self.verdict(desk, outcome, name)
            for name in ("canonical", benchmark)
            if name != self.scoring
        }
        loose = set(task.outputs) - {output for wish in wishes_in(task) for output in wish.outputs}
        paid = [verdict]
        # On a benchmark's own tasks its own reward says as well that the user got what it wanted.
        if benchmark in strict and not isinstance(self.source, OwnWorld):
            paid.append(strict[benchmark])
        full = any(grade.scored and grade.reward == 1 for grade in paid)
        won = full and "inaction_passes" not in task.flags
        faults = upheld(shadow.faults, won or verdict.reward == 1)
        known = (monitor.findings, faults, verdict, outcome, end)
        whose = blame(
            *known,
            strays=course.strays,
            undone=monitor.undone(task),
            flags=task.flags,
            loose=loose,
            wrote=bool(monitor.made),
            refused=task.goal == "refused" and any(refuses(each, domain) for each in outcome.texts),
        )
        return Audit(desk, verdict, strict, monitor, faults, whose)

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Violations, the user's faults, turns, calls, facts and reward terms of a play; None
        where one does not apply."""
        if not episode.end.scored:
            return {}
        audit = self.audit(episode)
        numbers = measures(episode, audit, self.success(episode), self.settings.paying)
        if self.scoring != "tau2":
            return numbers
        return {**numbers, "DB alone": database_only(audit.verdict)}

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        """Split, intents, source, goal and flags of the task, and whom a lost play is blamed on."""
        groups = labels(task_of(self, episode.task), episode.task.rpartition("/")[0])
        if not episode.end.scored:
            return {**groups, "blame": "infrastructure"}
        lost = self.success(episode) is False
        whose = self.audit(episode).blame if lost else None
        if whose is None:
            return groups
        return {
            **groups,
            "blame": whose.side,
            "cause": f"{whose.side}: {whose.cause}{'' if whose.sure else ' (unsure)'}",
        }

    def fault(self, episode: Episode) -> tuple[int | None, str, str] | None:
        """The step, the side and, in a sentence, what `audit(episode).blame` rests on."""
        if not episode.end.scored or self.success(episode) is not False:
            return None
        whose = self.audit(episode).blame
        return None if whose is None else told(whose, episode)


def _generated(source: Source) -> bool:
    """Whether the tasks are of the generated shop, whatever form its tables are seen in."""
    return isinstance(source.source if isinstance(source, AsTau2) else source, OwnWorld)
