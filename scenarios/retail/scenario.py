"""Retail customer service: the assistant has the tools, the user has a wish, and the database is the judge.

Type `gem-ma run retail`; `configs/retail_scripted.yaml` plays our own generated shop, `configs/retail_tau1.yaml` tau-bench's tasks. The two
talk by turns; calls of tools are answered here, by the episode's own store, and the user never sees them. Only the user's tool
`end_conversation`, the assistant's `transfer_to_human_agents` and the two bounds on actions end a talk; no word in a text does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.scenarios.retail.grading import GRADERS, Verdict, gold_state
from gem_ma.scenarios.retail.schemas import TOOLS
from gem_ma.scenarios.retail.shop import OwnWorld
from gem_ma.scenarios.retail.sources import Source, open_source
from gem_ma.scenarios.retail.store import RetailStore
from gem_ma.scenarios.retail.tau2_grading import database_only, tau2, unscored
from gem_ma.scenarios.retail.tau2_tools import TAU2_TOOLS
from gem_ma.scenarios.retail.texts import GREETING, POLICY, USER_BRIEFING
from gem_ma.scenarios.service.talk import Desk, Outcome, Rules, Style, retell, talk
from gem_ma.scenarios.service.task import Task
from gem_ma.scenarios.service.tau2 import MAX_ERRORS, MAX_STEPS

from gem_ma import Episode, Message, Reward, Scenario
from gem_ma.errors import ConfigError
from gem_ma.scenario import Play

SCORINGS = {**GRADERS, "tau2": tau2}
BASELINES = {"retail_nothing": 0.0, "retail_transfer": 0.0, "retail_echo": 0.0, "retail_refuse": 0.0}  # on the generated shop's test split
SOLUTION = ("actions", "outputs", "goal", "ends", "wishes", "knowledge", "flags", "proof", "raw")


class Retail(Scenario):
    """Customer service of a shop: an assistant with 16 tools and a user who wants something; paid by what became of the database."""

    agents = ("assistant", "user")
    version = 1
    cooperative = True  # both are paid the outcome
    chance = False
    private = {"user": ("instruction", *SOLUTION), "assistant": SOLUTION}  # the assistant sees no instruction, neither side the solution
    default_cast = {"assistant": "retail_scripted", "user": "retail_user"}

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
    ) -> None:
        """`data`: a folder or checkout of tau-bench or of tau2-bench (its content says which), `own` for the generated shop, None for the folder
        that TAU_BENCH_PATH or TAU2_DATA_DIR names, or else the generated shop.

        `scoring`: `canonical`, `tau1` or `tau2`. `semantics`: how the tools behave, `fixed` (default of the generated shop, whose size `users`,
        `orders` and `products` set and whose tasks `knobs`, see `knobs.Knobs`), `tau1` (default of tau-bench's data) or `tau2` (always on
        tau2-bench's data and for its scoring; tables of the other form are typed for it). The talk ends when the assistant has acted `max_actions`
        times (30; 200 steps of both sides under the scoring `tau2`) or the user `max_user_actions` times (40). Raises ConfigError for an option,
        DataError for a missing or damaged folder.
        """
        if not isinstance(scoring, str) or scoring not in SCORINGS:
            raise ConfigError(f"scenario.scoring: there is {', '.join(SCORINGS)}; got {scoring!r}")
        max_actions = (MAX_STEPS if scoring == "tau2" else 30) if max_actions is None else max_actions
        max_user_actions = (MAX_STEPS if scoring == "tau2" else 40) if max_user_actions is None else max_user_actions
        for name, value, least in (("max_actions", max_actions, 1), ("max_user_actions", max_user_actions, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"scenario.{name}: a whole number of at least {least}; got {value!r}")
        shops: list[OwnWorld] = []  # one or none

        def own(rules: str) -> OwnWorld:
            shops.append(OwnWorld(rules, users, orders, products, knobs))
            return shops[0]

        self.source: Source = open_source(data, scoring, semantics, own)
        if knobs is not None and not shops:
            raise ConfigError(f"scenario.knobs: they turn the generated shop (data: own), not the folder {self.source.folder}")
        self.scoring, self.semantics = scoring, self.source.semantics
        self.max_actions, self.max_user_actions = max_actions, max_user_actions
        self.ends_within = min(max_actions + max_user_actions, MAX_STEPS) if scoring == "tau2" else max_actions + max_user_actions
        self.baselines = BASELINES if isinstance(self.source, OwnWorld) and scoring == "canonical" else {}
        self.policy = self.source.policy() or POLICY

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split: `train`, `val`, `test` of the generated shop; the files `dev`, `test`, `train` of a folder."""
        return self.source.tasks(split)

    def provenance(self) -> dict[str, Any]:
        """Where the data come from: name, folder as given, SHA-256 digest, and the git commit of a checkout."""
        return self.source.provenance()

    def success(self, episode: Episode) -> bool | None:
        """Whether the outcome was paid in full; None where the grader could not score the task."""
        if any(entry.why.startswith("unscored") for entry in episode.ledger):
            return None
        return any(entry.agent == "assistant" and entry.why == "outcome" and entry.value > 1 - 1e-6 for entry in episode.ledger)

    def play(self, rng: random.Random, task: Task | None) -> Play:
        """A play without a task is one of the first training task."""
        task = task or self.tasks("train")[0]
        desk = self.desk(task)
        outcome = yield from talk(desk)
        verdict = self.verdict(desk, outcome)
        why = "outcome" if verdict.scored else unscored(verdict) if self.scoring == "tau2" else "unscored"
        yield Reward(dict.fromkeys(self.agents, verdict.reward), why=why)

    def desk(self, task: Task) -> Desk:
        """A talk about a task that has not begun."""
        greeting = Message(GREETING, "assistant")
        style = Style(
            brief_assistant=(Message.system(self.policy), greeting) if self.scoring == "tau2" else (Message.system(self.policy),),
            brief_user=(Message.system(USER_BRIEFING.format(instruction=task.instruction)), greeting),
            tools=TAU2_TOOLS if self.semantics == "tau2" else TOOLS,
        )
        bounds = (self.max_actions, self.max_user_actions)
        if self.scoring == "tau2":
            rules = Rules(*bounds, all_calls=True, grace=0, max_steps=MAX_STEPS, max_errors=MAX_ERRORS, faults_end=True)
        else:
            strict = self.scoring != "tau1"
            rules = Rules(*bounds, lone_calls=strict, failed_end_counts=not strict)
        return Desk(task, RetailStore(self.source.world(task), self.semantics), style, rules)

    def verdict(self, desk: Desk, outcome: Outcome) -> Verdict:
        """The grader's word on a talk that is over; it looks at a copy."""
        end = desk.store.overlay.copy()
        return SCORINGS[self.scoring](desk.task, end, gold_state(end.base, self.semantics, desk.task), outcome)

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Under the scoring `tau2`, what the database alone says."""
        desk = self.retold(episode)
        if self.scoring != "tau2" or desk.outcome is None:
            return {}
        return {"DB alone": database_only(self.verdict(desk, desk.outcome))}

    def retold(self, episode: Episode) -> Desk:
        """The talk of a record, played again from its actions: its log and the state of its store."""
        split, _, place = episode.task.rpartition("/")
        return retell(self.desk(self.tasks(split)[int(place)]), ({turn.agent: turn.action} for turn in episode.turns))
