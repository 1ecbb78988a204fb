"""A team of agents for any scenario of one agent: `wrappers: [{teamwork: propose_review}]`.

The rules ask their one agent as ever; who answers, who helps and who is paid what is the pattern's.
Success, measures and labels are asked of the rules with the play as they saw it. The play itself is
in `gem_ma.wrappers.team_play`; `docs/parties/teamwork.md` has patterns, options and payments.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from typing import Any

from gem_ma.kernel.effects import Play, Scenario
from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action
from gem_ma.wrappers.around import Around, rules_of
from gem_ma.wrappers.team_play import TeamPlay, solo_play

# option -> (least, most) of a whole number, its words, or the type of its value; its default
_NUMBERS = {"reviewers": (1, 64), "voters": (2, 64), "rounds": (1, 8), "every": (0, 64)}
_WORDS = {"ties": ("first", "lot"), "order": ("at once", "in turn")}
_TALK: Mapping[str, Any] = {"talk": "free", "signals": (), "most": 400}
PATTERNS: Mapping[str, Mapping[str, Any]] = {
    "propose_review": {"reviewers": 1, "rounds": 1, "every": 1, **_TALK},
    "debate_judge": {"rounds": 1, "order": "at once", "assigned": False, "facts": True, **_TALK},
    "plan_execute": {"every": 0, **_TALK},
    "vote": {"voters": 3, "rounds": 1, "ties": "first"},
    "teach": {"every": 1, "knows": True, "leak": 1.0, **_TALK},
}
ACTORS = {
    "propose_review": "proposer",
    "debate_judge": "judge",
    "plan_execute": "executor",
    "vote": "voter",
    "teach": "pupil",
}
BRIEFS = {
    "proposer": "You answer the questions that follow. Reviewers may object, and you answer again.",
    "reviewer": "proposer answers the questions that follow. You review each answer.",
    "debater": (
        "You debate the questions that follow: you stand for an answer, another for another one,"
        " and the judge picks whose is played."
    ),
    "judge": "Two debaters stand for answers to what follows. You pick whose is played.",
    "planner": "executor answers the questions that follow. You say how to go on.",
    "executor": "You answer the questions that follow. planner says how to go on.",
    "voter": "You answer the questions that follow, as others do. The commonest answer is played.",
    "teacher": "pupil answers the questions that follow. You help, and do not say the answer.",
    "pupil": "You answer the questions that follow. teacher helps you.",
}


class Teamwork(Around):
    """Lets a team answer in the place of a scenario's one agent: propose_review, debate_judge,
    plan_execute, vote or teach."""

    def __init__(
        self, inner: Scenario, pattern: str = "", *, credit: str = "role", **options: Any
    ) -> None:
        """`credit`: role pays each role for its own part, team pays all what the rules pay. The
        options of each pattern, with their defaults, are in `PATTERNS`. Raises ConfigError."""
        if pattern not in PATTERNS:
            raise ConfigError(f"teamwork: pattern is one of {', '.join(PATTERNS)}; got {pattern!r}")
        if len(inner.agents) != 1:
            raise ConfigError(
                f"teamwork: stands around a scenario of one agent; {inner.id or 'this one'} has"
                f" {', '.join(inner.agents)}"
            )
        if credit not in ("role", "team"):
            raise ConfigError(f"teamwork: credit is role or team; got {credit!r}")
        super().__init__(inner)
        self.pattern = pattern
        self.credit = credit
        self.options = _read(pattern, options)
        self.signals: tuple[str, ...] = ()
        if self.options.get("talk") == "signals" and pattern != "propose_review":
            self.signals = self.options["signals"]
        self._must_know()
        self._name_agents()
        self._restate()

    def _must_know(self) -> None:
        """Refuses what needs the right answers where the rules do not say them."""
        knows = self.options.get("knows") or self.options.get("assigned")
        if knows and type(rules_of(self)).answers is Scenario.answers:
            option = "knows" if self.pattern == "teach" else "assigned"
            raise ConfigError(
                f"teamwork: {self.id or 'this scenario'} does not say its right answers"
                f" (Scenario.answers); write {option}: false"
            )

    def _name_agents(self) -> None:
        several = {"reviewer": self.options.get("reviewers"), "voter": self.options.get("voters")}
        roles = {
            "propose_review": ("proposer", "reviewer"),
            "debate_judge": ("debater", "judge"),
            "plan_execute": ("planner", "executor"),
            "vote": ("voter",),
            "teach": ("teacher", "pupil"),
        }[self.pattern]
        names: list[str] = []
        for role in roles:
            count = 2 if role == "debater" else several.get(role)
            names += [f"{role}_{number}" for number in range(count)] if count else [role]
        self.agents = tuple(names)
        self.actors = tuple(
            name for name in names if name.split("_")[0] == ACTORS[self.pattern]
        ) + tuple(name for name in names if name in ("planner", "teacher"))

    def _restate(self) -> None:
        """The inner scenario's facts, as they are of the team."""
        inner = self.inner
        (solo,) = inner.agents
        acting = self.named(ACTORS[self.pattern])
        # who answers the rules' own questions
        answering = self.named("debater") or acting
        self.pays_otherwise()
        self.zero_sum = False
        self.cooperative = self.credit == "team"
        self.teams = {} if self.pattern == "debate_judge" else {"team": self.agents}
        is_drawn = self.pattern == "debate_judge" or self.options.get("ties") == "lot"
        self.chance = inner.chance or is_drawn
        # what other answers would have earned is asked where somebody is paid for it
        self.looks_back = self.credit == "role" and self.pattern in ("propose_review", "vote")
        # what a team has from the start is drawn from a copy of the play's stream
        self.draws_first = self.pattern in ("debate_judge", "teach")
        self.most_decisions: int | None = None
        if isinstance(inner.limits, Limits) and inner.limits.max_steps is not None:
            # counted here, since a decision of the rules takes several of the team
            self.most_decisions = inner.limits.max_steps
            self.limits = None
        if inner.ends_within is not None:
            self.ends_within = self._longest(inner.ends_within)
        hidden = inner.private.get(solo, ())
        self.private = dict.fromkeys(self.agents, hidden) if hidden else {}
        self.discounts = {x: inner.discounts[solo] for x in acting if solo in inner.discounts}
        # new ones: those of the inner scenario are its class's
        self.model_cast = {x: inner.model_cast[solo] for x in answering if solo in inner.model_cast}
        members = dict.fromkeys(self.agents, "team_member")
        usual = {x: inner.default_cast[solo] for x in answering if solo in inner.default_cast}
        self.default_cast = {**members, **usual}
        self.baseline_casts = {
            name: {**members, **dict.fromkeys(answering, cast[solo])}
            for name, cast in inner.baseline_casts.items()
            if solo in cast
        }
        self.examiners = {}
        own = ("objections", "agreement", "first speaker believed", "quotes verified")
        self.rates = (*self.rates, *own)

    def _longest(self, decisions: int) -> int:
        """Decision points of so many of the rules'."""
        rounds = self.options.get("rounds", 1)
        every = self.options.get("every", 1)
        consulted = ceil(decisions / every) if every else 1
        talks = {
            "propose_review": 2 * rounds,
            "debate_judge": 1 + rounds * (2 if self.options.get("order") == "in turn" else 1),
            "plan_execute": 1,
            "vote": rounds - 1,
            "teach": 1,
        }[self.pattern]
        return decisions + min(consulted, decisions) * talks

    def named(self, role: str) -> tuple[str, ...]:
        """The agents of a role."""
        return tuple(agent for agent in self.agents if agent.split("_")[0] == role)

    def briefing(self, agent: str) -> str:
        """What an agent is told of its part."""
        return f"You are {agent}. {BRIEFS[agent.split('_')[0]]}"

    def heard(self, action: Action) -> str:
        """What others hear of what was said."""
        if self.options.get("talk") == "signals":
            return action.parsed or ""
        return action.text[: self.options["most"]]

    # -- the play ---------------------------------------------------------------------------------

    def deal(self, rng: random.Random, task: Any) -> Mapping[str, Any]:
        """Who is told the right answer, and its forms."""
        if not (self.options.get("knows") or self.options.get("assigned")):
            return {}
        # a stream of its own: the rules draw from `rng` what the answer depends on
        lots = random.Random(f"teamwork seat/{rng.getstate()[1][:8]}")
        right = self.right_answers(rng, task)
        if self.pattern == "teach":
            return {"teacher": right}
        seats = self.named("debater")
        seat = lots.choice(seats)
        return {agent: right if agent == seat else () for agent in seats}

    def right_answers(self, rng: random.Random, task: Any) -> tuple[str, ...]:
        """The forms of the right answer, as texts that something can be found in."""
        return tuple(text for text in map(str, self.inner.answers(rng, task)) if text.strip())

    def play(self, rng: random.Random, task: Any) -> Play:
        return TeamPlay(self, rng, task).run()

    # -- how it is judged -------------------------------------------------------------------------

    def as_ruled(self, episode: Episode) -> Episode:
        return solo_play(self, episode)[0]

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Those of the rules, and of the team: shares of objections, of votes for what was played,
        of picks of who was heard first, of quotes that are in the facts; how often a review made
        the answer better or worse, and a teacher said the answer."""
        inner, played = solo_play(self, episode)
        count = played.counts

        def share(part: str, whole: str) -> float | None:
            return count[part] / count[whole] if count[whole] else None

        own: dict[str, Mapping[str, float | None]] = {
            "propose_review": {
                "objections": share("objections", "reviews"),
                "better by review": float(count["better"]),
                "worse by review": float(count["worse"]),
            },
            "debate_judge": {
                "first speaker believed": share("first", "picks"),
                "quotes verified": share("verified", "quotes"),
            },
            "vote": {"agreement": share("agreed", "votes"), "ties": float(count["ties"])},
            "teach": {"leaks": float(count["leaks"])},
        }
        return {**self.inner.measures(inner), **own.get(self.pattern, {})}

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        """Those of the rules; of a debate with assigned sides, which seat stood for the right
        answer."""
        inner, played = solo_play(self, episode)
        seat = {"right side": played.knows} if self.options.get("assigned") else {}
        return {**self.inner.labels(inner), **seat}

    def team(self, episode: Episode, agent: str) -> str:
        return next((name for name, agents in self.teams.items() if agent in agents), "")

    def role(self, episode: Episode, agent: str) -> str:
        return agent.split("_")[0]


def _read(pattern: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a pattern, with its defaults. Raises ConfigError."""
    known = PATTERNS[pattern]
    if unknown := options.keys() - known.keys():
        raise ConfigError(
            f"teamwork: {pattern} has no option {min(unknown)!r}; there are {', '.join(known)},"
            " credit"
        )
    read = {**known, **options}
    for name, value in read.items():
        fits, wanted = _fits(name, value)
        if not fits:
            raise ConfigError(f"teamwork: {name} is {wanted}; got {value!r}")
    if "signals" in read:
        read["signals"] = tuple(read["signals"])
        needed = pattern != "propose_review" and read["talk"] == "signals"
        if needed != bool(read["signals"]):
            raise ConfigError(
                f"teamwork: {pattern} with talk: signals takes signals, a list of what may be said,"
                " and else takes none"
            )
    return read


def _fits(name: str, value: Any) -> tuple[bool, str]:
    """Whether a value is one of an option, and what those are."""
    if name in ("assigned", "facts", "knows"):
        return isinstance(value, bool), "true or false"
    if name == "talk":
        return value in ("free", "signals"), "free or signals"
    if name in _WORDS:
        return value in _WORDS[name], " or ".join(_WORDS[name])
    if name == "leak":
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and isfinite(value) and value >= 0, "what is taken off, 0 or more"
    if name == "signals":
        listed = isinstance(value, (list, tuple)) and all(isinstance(x, str) and x for x in value)
        return listed and len(set(value)) == len(value), "a list of different texts"
    least, most = _NUMBERS.get(name, (1, 10_000))
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and least <= value <= most, f"a whole number from {least} to {most}"
