"""GEM's environments as scenarios of one agent: `gem:game:GuessTheNumber-v0-easy`.

GEM reads the answer itself, out of \\boxed{}; an answer in another form ends its plays. Its rewards
pay losers too, so a win is counted apart from the reward. The options are those of the environment,
and `turns`, `chance`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.adapters.foreign import Foreign, seeds_matter
from gem_ma.adapters.guest import guest, library, one_line
from gem_ma.adapters.line import Stop
from gem_ma.effects import Reward
from gem_ma.episode import Episode, Limits
from gem_ma.errors import ConfigError

AGENT = "player"
EVALUATING = ("code", "math", "eval", "terminal")  # the graders of math parse by Python's eval
TURNS = 400  # where an environment has no limit of its own
TRIED = tuple(f"\\boxed{{{text}}}" for text in ("1", "5", "up", "1 1 1", "A B"))


@dataclass(slots=True)
class Held:
    """An environment, and what its last step gave."""

    env: Any
    shown: str
    info: Mapping[str, Any] = field(default_factory=dict)
    paid: float = 0.0
    over: bool = False
    why: str = "step"
    steps: int = 0


class Gem(Foreign):
    """An environment of GEM: the answer in \\boxed{}, a win apart from the reward."""

    agents = (AGENT,)

    def __init__(
        self, env: str, *, turns: int | None = None, chance: bool | None = None, **options: Any
    ) -> None:
        self.env, self.options = env, options
        if env.startswith("rg:"):
            raise ConfigError(
                f"gem:{env}: some of these graders run the answer as code; reasoning_gym:{env[3:]}"
                " is the same task with its grader in a guarded worker"
            )
        if env.partition(":")[0] in EVALUATING:
            raise ConfigError(f"gem:{env}: it runs the answer as code on this machine, unguarded")
        self.key = f"gem {json.dumps([env, options], sort_keys=True, default=repr)}"
        try:
            with guest(0):
                made = self._made()
                made.reset(seed=0)
        except ConfigError:
            raise
        except Exception as error:  # of any class: an id, a data set, a list of words
            raise ConfigError(f"gem:{env}: cannot be started: {one_line(error)}") from error
        self.turns = int(turns or getattr(made, "max_turns", None) or TURNS)
        self.seeded = True  # while it is looked at
        self.chance = self.seeded = seeds_matter(self, TRIED) if chance is None else chance

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        return Limits(max_steps=self.turns)

    def _made(self) -> Any:
        return library("gem", "gem").make(self.env, **self.options)

    def opened(self, seed: int) -> Held:
        env = self._made()
        shown, info = env.reset(seed=seed)
        return Held(env, shown, info)

    def stepped(self, state: Held, move: Any, seed: int) -> Held:
        state.shown, paid, over, cut, state.info = state.env.step(move[AGENT])
        state.steps += 1
        state.paid, state.why = float(paid), "win" if paid == 1 and over and not cut else "step"
        # GEM says both at its limit of turns; there the driver cuts, and the value of what would
        # follow counts
        state.over = bool(over or cut) and not (cut and state.steps >= self.turns)
        return state

    def stop(self, state: Held) -> Stop:
        before = (Reward({AGENT: state.paid}, why=state.why),) if state.paid else ()
        if state.over:
            return Stop(before)
        parts = (state.info.get("prefix"), state.shown, state.info.get("suffix"))
        return Stop(before, {AGENT: "".join(part for part in parts if part) or "Go on."})

    def success(self, episode: Episode) -> bool | None:
        """Whether it was paid 1 at its end."""
        return any(entry.why == "win" for entry in episode.ledger)
