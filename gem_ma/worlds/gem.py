"""GEM's environments as scenarios of one agent: `gem:game:GuessTheNumber-v0-easy`.

GEM reads the answer itself, out of \\boxed{}; an answer in another form ends its plays. Its rewards
pay losers too, so a win is counted apart from the reward. The options are those of the environment,
and `turns`, `chance`.
"""

from __future__ import annotations

from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.foreign import AGENT, Solo, SoloState
from gem_ma.worlds.guest import guest, library, starting
from gem_ma.worlds.makers import key_of
from gem_ma.worlds.wordlists import words_lent

EVALUATING = ("code", "math", "eval", "terminal")  # the graders of math parse by Python's eval
TURNS = 400  # where an environment has no limit of its own
TRIED = tuple(f"\\boxed{{{text}}}" for text in ("1", "5", "up", "1 1 1", "A B"))


class Gem(Solo):
    """An environment of GEM: the answer in \\boxed{}, a win apart from the reward."""

    def __init__(
        self, env: str, *, turns: int | None = None, chance: bool | None = None, **options: Any
    ) -> None:
        self.env = env
        self.options = options
        if env.startswith("rg:"):
            raise ConfigError(
                f"gem:{env}: some of these graders run the answer as code; reasoning_gym:{env[3:]}"
                " is the same task with its grader in a guarded worker"
            )
        if env.partition(":")[0] in EVALUATING:
            raise ConfigError(f"gem:{env}: it runs the answer as code on this machine, unguarded")
        self.key = key_of("gem", env, options)
        with starting(f"gem:{env}"), guest(0), words_lent("gem"):
            made = self._made()
            made.reset(seed=0)
        self.turns: int = turns or int(getattr(made, "max_turns", None) or TURNS)
        self.declare_chance(chance, TRIED)

    def _made(self) -> Any:
        return library("gem", "gem").make(self.env, **self.options)

    def opened(self, seed: int) -> SoloState:
        with words_lent("gem"):
            env = self._made()
            shown, info = env.reset(seed=seed)
        return SoloState(env, _whole(shown, info))

    def stepped(self, state: SoloState, move: Any, seed: int) -> SoloState:
        shown, paid, over, cut, info = state.env.step(move[AGENT])
        state.steps += 1
        state.view = _whole(shown, info)
        state.paid = float(paid)
        state.why = "win" if paid == 1 and over and not cut else "step"
        # GEM says both at its limit of turns; there the driver cuts, and the value of what would
        # follow counts
        state.over = bool(over or cut) and not (cut and state.steps >= self.turns)
        state.cut = state.over and bool(cut)
        return state

    def success(self, episode: Episode) -> bool | None:
        """Whether it was paid 1 at its end."""
        return any(entry.why == "win" for entry in episode.ledger)


def _whole(shown: str, info: dict[str, Any]) -> str:
    return "".join(part for part in (info.get("prefix"), shown, info.get("suffix")) if part)
