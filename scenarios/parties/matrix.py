"""Matrix games: all agents choose at once, once or in rounds, and a table or a function pays them.

Type `gem-ma run matrix scenario.preset=chicken`. `equilibria.py` finds the equilibria.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gem_ma.scenarios.parties.checked import flag, one_of, rounds_of, whole
from gem_ma.scenarios.parties.payoffs import COOPERATIVE, CROWDS, PAIRS, Payoff, tensor

from gem_ma import Ask, Episode, Reward, Scenario, Tell, talk
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

ROUNDS = 5
BY_CHANCE = 200  # rounds of a game that ends by chance, where nothing else is said
LONGEST = 10_000  # rounds that may be asked for
LISTED = 6  # choices that a question names
PROMISE = "I choose "


class Matrix(Scenario):
    """All agents choose at once, once or in rounds, and are paid by a table: the dilemma, chicken,
    stag hunt, pennies, guess two thirds and others, or one of your own."""

    version = 2  # 1 told what was paid where it should not
    agents: tuple[str, ...] = ("player_0", "player_1")
    rates = ("cooperation", "mutual", "alike", "chose *", "promises kept")

    def __init__(
        self,
        preset: str | None = None,
        agents: int | None = None,
        rounds: int | None = None,
        continuation: float = 1.0,
        payoff: Any = None,
        choices: list[str] | list[list[str]] | None = None,
        talk: str = "none",
        briefing: bool = True,
    ) -> None:
        """`preset` is `dilemma` (the default), `chicken`, `battle_of_the_sexes` or `pennies` for
        two `agents`, `stag_hunt`, `guess_two_thirds`, `bar` or `volunteer` for 2 to 64 (else 4).
        `payoff` instead: a tensor as nested lists, the innermost with a number for each agent, or
        in Python a function from the choices of all to the points of all; `choices` names them.

        After each round another follows with probability `continuation`, and never more than
        `rounds` (5; 200 where the end is by chance). `talk`: what each announces before it
        chooses. Without `briefing` nobody is told what is paid. Raises ConfigError."""
        self.preset = "" if payoff is not None and preset is None else preset or "dilemma"
        self.payoff = self._made(self.preset, agents, payoff, choices)
        self.agents = tuple(f"player_{seat}" for seat in range(len(self.payoff.choices)))
        number = isinstance(continuation, (int, float)) and not isinstance(continuation, bool)
        if not number or not 0 < continuation <= 1:
            raise ConfigError(
                f"scenario.continuation: a probability above 0, up to 1; got {continuation!r}"
            )
        self.continuation = continuation
        self.chance = continuation < 1
        usual = BY_CHANCE if self.chance else ROUNDS
        self.rounds = whole("rounds", usual if rounds is None else rounds, 1, LONGEST)
        self.talk = one_of("talk", talk, FORMS)
        self.ends_within = self.rounds * (1 if talk == "none" else 2)
        self._prepare(flag("briefing", briefing))
        self._declare()

    def _made(self, preset: str, agents: Any, payoff: Any, choices: Any) -> Payoff:
        """The payoff that the options name."""
        if payoff is None:
            one_of("preset", preset, (*PAIRS, *CROWDS))
            if choices is not None:
                raise ConfigError("scenario.choices: names those of a payoff; a preset has its own")
            least, most = (2, 2) if preset in PAIRS else (2, 64)
            usual = 2 if preset in PAIRS else 4
            count = whole("agents", usual if agents is None else agents, least, most)
            return (PAIRS.get(preset) or CROWDS[preset])(count)
        if preset:
            raise ConfigError(f"scenario.payoff: instead of a preset; got both, {preset!r}")
        if not callable(payoff):
            made = tensor(payoff, choices)
            if agents not in (None, len(made.choices)):
                count = len(made.choices)
                raise ConfigError(f"scenario.agents: payoff is of {count} agents; got {agents!r}")
            return made
        count = whole("agents", agents, 2, 64)
        if not choices or not all(isinstance(name, str) for name in choices):
            raise ConfigError(f"scenario.choices: a list of names for a function; got {choices!r}")
        return Payoff((tuple(choices),) * count, payoff)

    def _prepare(self, briefing: bool) -> None:
        """What is said and asked in every play: a tuple that is made once costs the kernel
        least."""
        choices = dict(zip(self.agents, self.payoff.choices, strict=True))
        self.are_alike = len(set(choices.values())) == 1
        self.legal = choices[self.agents[0]] if self.are_alike else choices
        self.default = {agent: names[0] for agent, names in choices.items()}
        self.questions = [
            {agent: self._question(round_, names) for agent, names in choices.items()}
            for round_ in range(1, self.rounds + 1)
        ]
        named = dict.fromkeys(name for names in choices.values() for name in names)
        self.signals = tuple(f"{PROMISE}{name}." for name in named)
        aim = "Your aim is as many points as you can get."
        rules = f" {self.payoff.rules}" if self.payoff.rules else ""
        told = {agent: f"You are {agent}. All choose at once.{rules}\n{aim}" for agent in choices}
        self.briefing = told if briefing else {}
        # of a table all that can be told and paid
        profiles = () if self.payoff.counts else self.payoff.profiles()
        self.outcomes = {moves: self._outcome(moves) for moves in profiles}

    def _question(self, round_: int, names: Sequence[str]) -> str:
        listed = f"{', '.join(names[:-1])} or {names[-1]}"
        if len(names) > LISTED:
            listed = f"what do you choose, {names[0]} to {names[-1]}"
        count = f"of {self.rounds}"
        if self.chance:
            count = f"(another follows with probability {self.continuation:g}, up to {self.rounds})"
        return f"Round {round_} {count}: {listed}?"

    def _declare(self) -> None:
        """Facts of the options: of this object, since they differ from game to game."""
        payoff = self.payoff
        if payoff.is_table and self.preset not in CROWDS and payoff.rules:
            paid = [payoff.pays(moves) for moves in payoff.profiles()]
            self.zero_sum = all(sum(points) == 0 for points in paid)
            self.cooperative = all(len(set(points)) == 1 for points in paid)
        stays = self.continuation
        expected = (1 - stays**self.rounds) / (1 - stays) if self.chance else float(self.rounds)
        self.baselines = {}
        if self.are_alike and len(payoff.choices[0]) <= LISTED:
            count = len(self.agents)
            self.baselines = {
                f"all {name} (mean return)": expected * sum(payoff.pays((name,) * count)) / count
                for name in payoff.choices[0]
            }

    def play(self, rng: random.Random, task: Any) -> Play:
        if self.briefing:
            yield Tell(self.briefing)
        for round_, questions in enumerate(self.questions, 1):
            if self.talk != "none":
                asked = "What will you choose? Tell all."
                yield from talk(self.agents, asked, form=self.talk, signals=self.signals)
            actions = yield Ask(questions, legal=self.legal)
            # who names none of the choices has chosen the first
            moves = tuple([actions[agent].parsed or first for agent, first in self.default.items()])
            told, paid = self.outcomes.get(moves) or self._outcome(moves)
            yield Tell(told)
            yield Reward(paid, why=f"round {round_}")
            if self.chance and rng.random() >= self.continuation:
                return

    def _outcome(self, moves: tuple[str, ...]) -> tuple[dict[str, str], dict[str, float]]:
        """What each is told when all have chosen, and paid."""
        points = self.payoff.pays(moves)
        texts: dict[tuple[str, float], str] = {}  # most of many agents hear the same
        told = {}
        for seat, agent in enumerate(self.agents):
            own = moves[seat], points[seat]
            if self.payoff.counts and own in texts:
                told[agent] = texts[own]
                continue
            gets = f": you get {own[1]:g}." if self.briefing else "."
            told[agent] = texts[own] = f"{self._news(moves, seat)}{gets}"
        return told, dict(zip(self.agents, points, strict=True))

    def _news(self, moves: tuple[str, ...], seat: int) -> str:
        payoff = self.payoff
        if payoff.news is not None:
            return payoff.news(moves)
        if len(moves) == 2:
            return f"The other {payoff.verb} {moves[1 - seat]}"
        if payoff.counts:
            counts = {name: moves.count(name) - (name == moves[seat]) for name in payoff.choices[0]}
            told = [f"{count} {name}" for name, count in counts.items() if count]
        else:
            told = [f"{agent} {move}" for agent, move in zip(self.agents, moves, strict=True)]
            del told[seat]
        return f"The others chose {', '.join(told)}"

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        rounds = list(self._rounds(episode))
        acts = [move for moves in rounds for move in moves.values()]
        if not acts:
            return {}
        alike = [len(set(moves.values())) == 1 for moves in rounds]
        found: dict[str, float | None] = {"rounds": float(len(rounds))} if self.chance else {}
        if self.preset in COOPERATIVE:
            good = self.payoff.choices[0][0]
            kept = [set(moves.values()) == {good} for moves in rounds]
            found["cooperation"] = acts.count(good) / len(acts)
            found["mutual"] = sum(kept) / len(kept)
            found["first defection"] = float(kept.index(False) + 1) if False in kept else None
        else:
            found["alike"] = sum(alike) / len(alike)
            if self.preset == "guess_two_thirds":
                found["guess"] = sum(map(int, acts)) / len(acts)
            elif self.are_alike and len(self.legal) <= LISTED:
                for name in self.payoff.choices[0]:
                    found[f"chose {name}"] = acts.count(name) / len(acts)
        if self.talk == "signals":
            found["promises kept"] = self._kept(episode)
        return found

    def _rounds(self, episode: Episode) -> Iterator[dict[str, str]]:
        """What each agent chose, round by round."""
        chosen = (turn for turn in episode.turns if turn.legal and turn.legal != self.signals)
        for acts in rounds_of(chosen):
            yield {agent: turn.action.parsed or self.default[agent] for agent, turn in acts.items()}

    def _kept(self, episode: Episode) -> float | None:
        """Share of announcements that the agent then did."""
        said: dict[str, str] = {}
        kept: list[bool] = []
        for turn in episode.turns:
            if turn.legal == self.signals:
                said[turn.agent] = turn.action.parsed or ""
            elif turn.legal and (word := said.pop(turn.agent, "")):
                chosen = turn.action.parsed or turn.legal[0]
                kept.append(word == f"{PROMISE}{chosen}.")
        return sum(kept) / len(kept) if kept else None
