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

from gem_ma.scenarios.retail.domain import domain_of
from gem_ma.scenarios.retail.grading import GRADERS, Gold, Verdict, canonical, gold_of
from gem_ma.scenarios.retail.schemas import TOOLS
from gem_ma.scenarios.retail.shop import OwnWorld
from gem_ma.scenarios.retail.sources import Source, open_source
from gem_ma.scenarios.retail.store import RetailStore
from gem_ma.scenarios.retail.tau2_calls import TAU2_TOOLS
from gem_ma.scenarios.retail.tau2_grading import database_only, tau2, unscored
from gem_ma.scenarios.retail.texts import GREETING, POLICY, USER_BRIEFING
from gem_ma.scenarios.service.desk.log import Desk, Outcome, Rules, Style, Watcher
from gem_ma.scenarios.service.desk.talk import retell, talk
from gem_ma.scenarios.service.desk.task import Task
from gem_ma.scenarios.service.grading.grader import wishes_in
from gem_ma.scenarios.service.grading.tau2 import MAX_ERRORS, MAX_STEPS
from gem_ma.scenarios.service.rewards.scene import Judge, Scene, Shadow
from gem_ma.scenarios.service.rewards.terms import read_settings
from gem_ma.scenarios.service.rewards.watchers import NEEDS_LEDGER, NEEDS_MONITOR, watchers
from gem_ma.scenarios.service.watching.audit import (
    LESS_IS_BETTER,
    MORE_IS_BETTER,
    RATES,
    Audit,
    labels,
    measures,
)
from gem_ma.scenarios.service.watching.blame import Course, blame, upheld
from gem_ma.scenarios.service.watching.monitor import Monitor

from gem_ma import Action, Episode, Message, Reward, Scenario
from gem_ma.episode import End
from gem_ma.errors import ConfigError
from gem_ma.scenario import Play

SCORINGS = {**GRADERS, "tau2": tau2}
# on the generated shop's test split
BASELINES = {
    "retail_nothing": 0.0,
    "retail_transfer": 0.0,
    "retail_echo": 0.0,
    "retail_refuse": 0.0,
}
KEPT, AUDITS = 2048, 256  # solutions and audits that are kept
SOLUTION = ("actions", "outputs", "goal", "ends", "wishes", "knowledge", "flags", "proof", "raw")


class Retail(Scenario):
    """Customer service of a shop: an assistant with 16 tools and a user who wants something;
    paid by what became of the database."""

    agents = ("assistant", "user")
    version = 3
    cooperative = True  # both are paid the outcome
    chance = False
    # the assistant sees no instruction, neither side the solution
    private = {"user": ("instruction", *SOLUTION), "assistant": SOLUTION}
    default_cast = {"assistant": "retail_scripted", "user": "retail_user"}
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

    def __init__(
        self,
        data: str | None = None,
        scoring: str = "canonical",
        semantics: str | None = None,
        max_actions: int | None = None,
        max_user_actions: int | None = None,
        users: int = 40,
        orders: int = 80,
        products: int = 20,
        knobs: Mapping[str, Any] | None = None,
        rewards: Mapping[str, Any] | None = None,
        user_reward: str = "cooperative",
        gamma: float = 1.0,
        enforce_protocol: bool = False,
    ) -> None:
        """`data`: a folder or checkout of tau-bench or of tau2-bench (its content says which),
        `own` for the generated shop, None for the folder that TAU_BENCH_PATH or TAU2_DATA_DIR
        names, or else the generated shop.

        `scoring`: `canonical`, `tau1` or `tau2`. `semantics`: how the tools behave, `fixed`
        (default of the generated shop, whose size `users`, `orders` and `products` set and whose
        tasks `knobs`, see `knobs.Knobs`), `tau1` (default of tau-bench's data) or `tau2` (always on
        tau2-bench's data and for its scoring; tables of the other form are typed for it). The talk
        ends when the assistant has acted `max_actions` times (30; 200 steps of both sides under the
        scoring `tau2`) or the user `max_user_actions` times (40). `rewards`: terms paid beside the
        outcome, as in `{progress: 0.3, policy: {hard: 0.1}}` (`service.rewards.watchers`); `user_reward`:
        whether the user shares the outcome (`cooperative`), is paid for its role at most
        (`neutral`), or for the assistant's hard violations (`adversarial`); `gamma`: the discount
        of the run, for the progress term. `enforce_protocol` (for the scoring `tau2`): text beside
        a call ends the talk as that agent's fault, as with the benchmark's flag of that name; by
        its default, and here, the calls are run and the text is heard by nobody.

        Raises ConfigError for an option, DataError for a missing or damaged folder.
        """
        if not isinstance(scoring, str) or scoring not in SCORINGS:
            raise ConfigError(f"scenario.scoring: there is {', '.join(SCORINGS)}; got {scoring!r}")
        max_actions = (
            (MAX_STEPS if scoring == "tau2" else 30) if max_actions is None else max_actions
        )
        max_user_actions = (
            (MAX_STEPS if scoring == "tau2" else 40)
            if max_user_actions is None
            else max_user_actions
        )
        for name, value, least in (
            ("max_actions", max_actions, 1),
            ("max_user_actions", max_user_actions, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"scenario.{name}: a whole number of at least {least}; got {value!r}"
                )
        shops: list[OwnWorld] = []  # one or none

        def own(rules: str) -> OwnWorld:
            shops.append(OwnWorld(rules, users, orders, products, knobs))
            return shops[0]

        self.source: Source = open_source(data, scoring, semantics, own)
        if knobs is not None and not shops:
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
        self.max_actions, self.max_user_actions = max_actions, max_user_actions
        self.ends_within = (
            min(max_actions + max_user_actions, MAX_STEPS)
            if scoring == "tau2"
            else max_actions + max_user_actions
        )
        self.baselines = (
            BASELINES if isinstance(self.source, OwnWorld) and scoring == "canonical" else {}
        )
        self.policy = self.source.policy() or POLICY
        self.settings = read_settings(rewards, user_reward, gamma)
        self.cooperative = self.settings.alike
        # then nobody is paid outside of 0..1
        shares = self.settings.plain and max(self.settings.shares.values()) <= 1
        self.rates = (*RATES, "return *", "reward *") if shares else RATES
        self.discounts = {"assistant": gamma} if "progress" in self.settings.terms else {}
        self._audits: dict[int, tuple[Episode, Audit]] = {}
        self._golds: dict[str, tuple[Task, Gold]] = {}

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
        found = [
            finding for one in desk.watchers if isinstance(one, Monitor) for finding in one.findings
        ]
        if self.settings.strict and any(finding.hard and finding.sure for finding in found):
            verdict = replace(verdict, reward=0.0)
        why = (
            "outcome"
            if verdict.scored
            else unscored(verdict)
            if self.scoring == "tau2"
            else "unscored"
        )
        yield Reward(
            {agent: share * verdict.reward for agent, share in self.settings.shares.items()},
            why=why,
        )

    def desk(self, task: Task) -> Desk:
        """A talk about a task that has not begun."""
        greeting = Message(GREETING, "assistant")
        style = Style(
            brief_assistant=(
                (Message.system(self.policy), greeting)
                if self.scoring == "tau2"
                else (Message.system(self.policy),)
            ),
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
        domain, gold, terms = (
            domain_of(self.source.world(task)),
            self.gold(task),
            set(self.settings.terms),
        )
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
        end, gold, scoring = (
            desk.store.overlay.copy(),
            self.gold(desk.task),
            scoring or self.scoring,
        )
        if scoring == "canonical":
            return canonical(desk.task, end, gold.goals, outcome, gold.founded)
        return SCORINGS[scoring](desk.task, end, gold.state, outcome)

    def gold(self, task: Task) -> Gold:
        """What a task's solution comes to; the last ones are kept."""
        kept = self._golds.get(task.id)
        if kept is None or kept[0] is not task:
            if len(self._golds) == KEPT:
                del self._golds[next(iter(self._golds))]
            kept = self._golds[task.id] = (
                task,
                gold_of(self.source.world(task), self.semantics, task),
            )
        return kept[1]

    def retold(self, episode: Episode) -> Desk:
        """The talk of a record, played again from its actions: its log and the state of its
        store."""
        return self._retold(
            self._task(episode), ((turn.agent, turn.action) for turn in episode.turns), ()
        )

    def _task(self, episode: Episode) -> Task:
        split, _, place = episode.task.rpartition("/")
        return self.tasks(split)[int(place)]

    def _retold(
        self, task: Task, acts: Iterable[tuple[str, Action]], watching: Sequence[Watcher]
    ) -> Desk:
        desk = self.desk(task)
        desk.watchers = watching
        return retell(desk, ({agent: action} for agent, action in acts))

    def audit(self, episode: Episode) -> Audit:
        """All that can be said of a record without a model; worked out once."""
        kept = self._audits.get(id(episode))
        if kept is None or kept[0] is not episode:
            if len(self._audits) == AUDITS:
                del self._audits[next(iter(self._audits))]
            kept = self._audits[id(episode)] = (episode, self._audited(episode))
        return kept[1]

    def _audited(self, episode: Episode) -> Audit:
        return self.judged(
            self._task(episode), ((turn.agent, turn.action) for turn in episode.turns), episode.end
        )

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
        paid = [
            verdict,
            *(
                [strict[benchmark]]
                if benchmark in strict and not isinstance(self.source, OwnWorld)
                else ()
            ),
        ]
        won = (
            any(one.scored and one.reward == 1 for one in paid)
            and "inaction_passes" not in task.flags
        )
        faults = upheld(
            shadow.faults, won or verdict.reward == 1, task, [call for _, call in monitor.made]
        )
        known = (monitor.findings, faults, verdict, outcome, end)
        whose = blame(
            *known, strays=course.strays, undone=monitor.undone(task), flags=task.flags, loose=loose
        )
        return Audit(desk, verdict, strict, monitor, faults, whose)

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Violations, the user's faults, turns, calls, facts and reward terms of a play; None
        where one does not apply."""
        if not episode.end.scored:
            return {}
        audit = self.audit(episode)
        found = measures(episode, audit, self.success(episode), self.settings.paying)
        return (
            {**found, "DB alone": database_only(audit.verdict)} if self.scoring == "tau2" else found
        )

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        """Split, intents, source, goal and flags of the task, and whom a lost play is blamed on."""
        split, _, place = episode.task.rpartition("/")
        task = self.tasks(split)[int(place)]
        groups = labels(task, split)
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
