"""Retail customer service: the assistant has the tools, the user has a wish, and the database is the judge.

Type `gem-ma run retail`; `configs/retail_scripted.yaml` plays our own generated shop, `configs/retail_tau1.yaml` tau-bench's tasks. The two
talk by turns; calls of tools are answered here, by the episode's own store, and the user never sees them. Only the user's tool
`end_conversation`, the assistant's `transfer_to_human_agents` and the two bounds on actions end a talk; no word in a text does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

from gem_ma.scenarios.retail.grading import GRADERS, Verdict, gold_state
from gem_ma.scenarios.retail.schemas import TOOLS
from gem_ma.scenarios.retail.shop import OwnWorld
from gem_ma.scenarios.retail.source import VARIABLE
from gem_ma.scenarios.retail.store import SEMANTICS, RetailStore
from gem_ma.scenarios.retail.taubench import TauBench
from gem_ma.scenarios.retail.texts import GREETING, POLICY, USER_BRIEFING
from gem_ma.scenarios.service.talk import Desk, Outcome, Rules, Style, retell, talk
from gem_ma.scenarios.service.task import Task

from gem_ma import Episode, Message, Reward, Scenario
from gem_ma.errors import ConfigError
from gem_ma.scenario import Play

OWN = "own"
BASELINES = {"retail_nothing": 0.0, "retail_transfer": 0.0, "retail_echo": 0.0, "retail_refuse": 0.085}  # on the generated shop's test split
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
        max_actions: int = 30,
        max_user_actions: int = 40,
        users: int = 40,
        orders: int = 80,
        products: int = 20,
    ) -> None:
        """`data`: a tau-bench folder or checkout, `own` for the generated shop, None for TAU_BENCH_PATH or else the generated shop.

        `scoring`: `canonical` or `tau1`. `semantics`: how the tools behave, `tau1` (always on tau-bench's data) or `fixed` (default of the
        generated shop, whose size `users`, `orders` and `products` set). The talk ends when the assistant has acted `max_actions` times or the
        user `max_user_actions` times. Raises ConfigError for an option, DataError for a missing or damaged folder.
        """
        if scoring not in GRADERS:
            raise ConfigError(f"scenario.scoring: there is {' and '.join(GRADERS)}; got {scoring!r}")
        if semantics is not None and semantics not in SEMANTICS:
            raise ConfigError(f"scenario.semantics: there is {' and '.join(SEMANTICS)}; got {semantics!r}")
        for name, value, least in (("max_actions", max_actions, 1), ("max_user_actions", max_user_actions, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"scenario.{name}: a whole number of at least {least}; got {value!r}")
        folder = data if data is not None else os.environ.get(VARIABLE) or OWN
        if not isinstance(folder, (str, os.PathLike)):
            raise ConfigError(f"scenario.data: a folder, or {OWN!r} for the generated shop; got {data!r}")
        self.source: TauBench | OwnWorld
        if folder == OWN:
            self.source = OwnWorld(semantics or "fixed", users, orders, products)
        elif semantics == "fixed":
            raise ConfigError("scenario.semantics: 'fixed' is for the generated shop; tau-bench's data takes 'tau1'")
        else:
            self.source = TauBench(folder)
        self.scoring, self.semantics = scoring, self.source.semantics
        self.max_actions, self.max_user_actions = max_actions, max_user_actions
        self.ends_within = max_actions + max_user_actions
        self.baselines = BASELINES if folder == OWN and scoring == "canonical" else {}
        self.policy = self.source.policy() or POLICY

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split: `train`, `val`, `test` of the generated shop; the files `dev`, `test`, `train` of a folder."""
        return self.source.tasks(split)

    def provenance(self) -> dict[str, Any]:
        """Where the data come from: name, folder as given, SHA-256 digest, and the git commit of a checkout."""
        return self.source.provenance()

    def success(self, episode: Episode) -> bool | None:
        """Whether the outcome was paid in full; None where the grader could not score the task."""
        if any(entry.why == "unscored" for entry in episode.ledger):
            return None
        return any(entry.agent == "assistant" and entry.why == "outcome" and entry.value > 1 - 1e-6 for entry in episode.ledger)

    def play(self, rng: random.Random, task: Task | None) -> Play:
        """A play without a task is one of the first training task."""
        task = task or self.tasks("train")[0]
        desk = self.desk(task)
        outcome = yield from talk(desk)
        verdict = self.verdict(desk, outcome)
        yield Reward(dict.fromkeys(self.agents, verdict.reward), why="outcome" if verdict.scored else "unscored")

    def desk(self, task: Task) -> Desk:
        """A talk about a task that has not begun."""
        strict = self.scoring != "tau1"
        style = Style(
            brief_assistant=(Message.system(self.policy),),
            brief_user=(Message.system(USER_BRIEFING.format(instruction=task.instruction)), Message(GREETING, "assistant")),
            tools=TOOLS,
        )
        rules = Rules(self.max_actions, self.max_user_actions, lone_calls=strict, failed_end_counts=not strict)
        return Desk(task, RetailStore(self.source.world(task), self.semantics), style, rules)

    def verdict(self, desk: Desk, outcome: Outcome) -> Verdict:
        """The grader's word on a talk that is over; it looks at a copy."""
        end = desk.store.overlay.copy()
        return GRADERS[self.scoring](desk.task, end, gold_state(end.base, self.semantics, desk.task), outcome)

    def retold(self, episode: Episode) -> Desk:
        """The talk of a record, played again from its actions: its log and the state of its store."""
        split, _, place = episode.task.rpartition("/")
        return retell(self.desk(self.tasks(split)[int(place)]), ({turn.agent: turn.action} for turn in episode.turns))
