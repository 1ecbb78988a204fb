"""What all adapters share: a play of another library's environment that leaves the process as it
was, is the same again for the same seed and actions, and forks without stepping again.

An adapter says how an environment is opened, read, stepped and copied (`Foreign`); it knows nothing
of forks (`line`). Whatever hangs, or runs text as code, does not belong here: it runs in a worker,
by `Call`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

from gem_ma.kernel.effects import Ask, Leave, Play, Reward, Scenario, Tell
from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.types import Action
from gem_ma.worlds.guest import guest
from gem_ma.worlds.line import Line, Stop
from gem_ma.worlds.option_values import check

LISTED = 512  # legal strings in an Ask; a turn of the record holds them all
EXAMPLES = 6  # that are shown of more moves
SEEDS_TRIED = 8  # with three, a game of cards was taken for one without chance
STEPS_TRIED = 30  # of each of these plays
MISREAD = "That is not an action. "
FOUL = "unreadable"  # the reason in the ledger where such an answer costs something


class Foreign(Scenario):
    """An environment of another library. An adapter writes `opened`, `stop`, `stepped`; where
    the library has a cheaper copy than Python's, also `copied`."""

    key = ""  # names the environment with its options, in this process
    seeded = False  # the library draws for itself, and gets a seed at the start and at each step
    worst: float | None = None  # what a forfeit pays; None = an unreadable answer is asked again
    foul = 0.0  # what an unreadable answer pays its agent, so negative
    turns: int | None = None  # decision points of its own time limit, which cuts a play
    listed = LISTED
    borrows = True  # its code draws from the global random states, or prints

    # not in a constructor: those of adapters read their options first
    def __new__(cls, *names: Any, **options: Any) -> Self:
        check(cls, str(names[-1]) if names else "", options)
        return super().__new__(cls)

    # -- what an adapter writes -------------------------------------------------------------------

    def opened(self, seed: int) -> Any:
        """A new environment, reset."""
        raise NotImplementedError

    def stop(self, state: Any) -> Stop:
        """What the play looks like now; reads, and changes nothing."""
        raise NotImplementedError

    def stepped(self, state: Any, move: Any, seed: int) -> Any:
        """The environment after a move: `{agent: what it chose}` or an outcome. It may be the same
        object. `seed` is for what the library draws in this step."""
        raise NotImplementedError

    def read(self, agent: str, text: str) -> Any:
        """The move in an answer where none are listed for this agent; None where it is not a move.
        Without it the library reads the text itself."""
        return text

    def copied(self, state: Any) -> Any:
        """A copy that shares nothing which a step changes."""
        return deepcopy(state)

    # -- what is declared of it -------------------------------------------------------------------

    @property
    def limits(self) -> Limits | None:  # type: ignore[override]
        # made anew: attributes are plain values, so that another process can make the world again
        return None if self.turns is None else Limits(max_steps=self.turns)

    def declare_chance(self, typed: bool | None, answers: Sequence[str] = ()) -> None:
        """Whether seeds change anything: as it is typed, else by playing, with `answers` where the
        library reads for itself."""
        self.seeded = True  # while it is looked at
        self.chance = self.seeded = seeds_matter(self, answers) if typed is None else typed

    def first_seed(self, rng: random.Random, task: Any) -> int:
        """The seed that a play's environment is opened with."""
        return rng.getrandbits(31) if self.seeded else 0

    # -- the play ---------------------------------------------------------------------------------

    def play(self, rng: random.Random, task: Any) -> Play:
        line = Line(self, self.first_seed(rng, task))
        paid = dict.fromkeys(self.agents, 0.0)
        asked = 0
        notes = dict[str, str]()
        while True:
            stop = line.stop()
            # who is asked again has been shown all of this
            for effect in stop.before if not notes else ():
                if isinstance(effect, Reward):
                    for agent, value in effect.values.items():
                        paid[agent] += value
                yield effect
            for agent, last in (stop.cut or {}).items():
                if not notes:
                    yield Tell({agent: last})
                    yield Leave(agent, cut=True)
            if stop.outcomes:
                line.go(_drawn(rng, stop.outcomes), 0)
                continue
            if not stop.asks or asked == self.ends_within:
                return
            actions = yield _ask(stop, self.listed, notes)
            asked += 1
            move = {agent: self._chosen(actions[agent], stop, agent) for agent in stop.asks}
            fouls = [agent for agent, choice in move.items() if choice is None]
            if fouls and self.worst is not None:
                yield Reward(self.forfeit(fouls, paid, self.worst), why="forfeit")
                return
            if fouls and self.foul:
                yield Reward(dict.fromkeys(fouls, self.foul), why=FOUL)
            notes = dict.fromkeys(fouls, MISREAD)
            if not fouls:
                # drawn anew at each step, so that a reseeded fork has luck of its own
                line.go(move, rng.getrandbits(31) if self.seeded else 0)

    def _chosen(self, action: Action, stop: Stop, agent: str) -> Any:
        """What the library calls the move; None where no move can be read."""
        moves = (stop.moves or {}).get(agent)
        if moves is None:
            return self.read(agent, action.text)
        name = action.parsed if action.parsed is not None else parse_legal(action.text, [*moves])
        return moves.get(name) if name is not None else None

    def forfeit(
        self, fouls: Sequence[str], paid: Mapping[str, float], worst: float
    ) -> dict[str, float]:
        """What is paid after unreadable answers: in all, the offenders get the worst that the game
        can pay; the others share what zero-sum leaves."""
        others = [agent for agent in self.agents if agent not in fouls]
        low = 0.0 if self.zero_sum and not others else worst
        share = -low * len(fouls) / len(others) if self.zero_sum and others else 0.0
        if self.cooperative:
            share = low
        totals = {agent: low if agent in fouls else share for agent in self.agents}
        if not (self.zero_sum or self.cooperative):  # nothing binds the others: they keep theirs
            totals |= {agent: paid[agent] for agent in others}
        return {agent: total - paid[agent] for agent, total in totals.items()}

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """`win AGENT`: it alone got the most; a draw wins nobody."""
        if len(self.agents) < 2 or self.cooperative:
            return {}
        paid = dict.fromkeys(self.agents, 0.0)
        for entry in episode.ledger:
            paid[entry.agent] += entry.value
        best = [agent for agent in paid if paid[agent] == max(paid.values())]
        return {f"win {agent}": float(best == [agent]) for agent in self.agents}

    rates = ("win *",)


def seeds_matter(world: Foreign, answers: Sequence[str] = ()) -> bool:
    """Whether seeds change anything that is seen, by playing the same random actions under some of
    them; `answers` where the library reads for itself."""
    plays = list[list[Stop]]()
    for seed in range(SEEDS_TRIED):
        rng = random.Random(0)
        stops = list[Stop]()
        with guest(seed):
            state = world.opened(seed)
            for _ in range(STEPS_TRIED):
                stops.append(world.stop(state))
                if not stops[-1].asks:
                    break
                move = {agent: _tried(rng, stops[-1], agent, answers) for agent in stops[-1].asks}
                state = world.stepped(state, move, rng.getrandbits(31) + seed)
        plays.append(stops)
        if stops != plays[0]:
            return True
    return False


def _tried(rng: random.Random, stop: Stop, agent: str, answers: Sequence[str]) -> Any:
    return rng.choice([*stop.moves[agent].values()] if stop.moves is not None else answers)


def _drawn(rng: random.Random, outcomes: Sequence[tuple[Any, float]]) -> Any:
    values = [outcome for outcome, _ in outcomes]
    weights = [weight for _, weight in outcomes]
    # alike: a draw that can be listed, so that the tree of a small game can be walked
    if max(weights) - min(weights) < 1e-12:
        return rng.choice(values)
    return rng.choices(values, weights)[0]


def _ask(stop: Stop, listed: int, notes: Mapping[str, str]) -> Ask:
    asks = {}
    legal = dict[str, Sequence[str] | None]()
    for agent, content in (stop.asks or {}).items():
        choices = tuple((stop.moves or {}).get(agent, ()))
        legal[agent] = choices if 0 < len(choices) <= listed else None
        parts: list[Any] = [content] if isinstance(content, str) else [*_parts(content)]
        if notes:
            parts = [notes[agent]] if agent in notes else []
        if len(choices) > listed:
            some = ", ".join(choices[:: max(1, len(choices) // EXAMPLES)][:EXAMPLES])
            parts.append(f"Answer with one of {len(choices)} moves, as {some}.")
        elif agent in notes and choices:
            parts.append(f"Actions: {', '.join(choices)}.")
        asks[agent] = tuple(parts) if len(parts) != 1 else parts[0]
    same = list(legal.values())
    # one tuple for all is checked once
    return Ask(asks, legal=same[0] if all(choices is same[0] for choices in same) else legal)


def _parts(content: Any) -> Sequence[Any]:
    return content if isinstance(content, (tuple, list)) else (content,)


# What adapters of one-agent worlds share: the state of a play, and how a stop is made of it.
AGENT = "player"


@dataclass(slots=True)
class SoloState:
    """An environment, and what its last step gave; `view` is what the agent is shown of it."""

    env: Any
    view: str
    info: Mapping[str, Any] = field(default_factory=dict)
    paid: float = 0.0
    over: bool = False
    cut: bool = False  # over by a limit of the environment's own that nobody declared
    why: str = "step"
    steps: int = 0


class Solo(Foreign):
    """A world of one agent. An adapter writes `opened` and `stepped`, which give a `SoloState`, and
    `moves` where it lists its moves."""

    agents = (AGENT,)
    brief = ""  # what the agent is told first

    def moves(self, state: SoloState) -> Mapping[str, Any] | None:
        """Legal strings, and what the library calls each; None where it reads for itself."""
        return None

    def stop(self, state: SoloState) -> Stop:
        before: tuple[Reward | Tell, ...] = ()
        if state.paid:
            before = (Reward({AGENT: state.paid}, why=state.why),)
        elif self.brief and not state.steps:
            before = (Tell({AGENT: self.brief}),)
        if state.over:
            return Stop(before, cut={AGENT: state.view} if state.cut else None)
        moves = self.moves(state)
        listed = None if moves is None else {AGENT: moves}
        return Stop(before, {AGENT: state.view or "Go on."}, listed)
