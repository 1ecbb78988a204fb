"""Gymnasium's environments as scenarios of one agent: `gymnasium:FrozenLake-v1`,
`gymnasium:MiniGrid-Empty-5x5-v0`.

The options are those of `gymnasium.make`, and `turns` (the time limit), `actions` (their names),
`brief` (what the agent is told first), `chance`, `foul` (what an unreadable answer pays). A time
limit cuts a play, as does a truncation of the environment's own: the rules do not know such an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.worlds.actions import action_names, chosen, form, kind_of, move_of, places_of, tries
from gem_ma.worlds.copies import whole_copy
from gem_ma.worlds.foreign import AGENT, FOUL, LISTED, Solo, SoloState
from gem_ma.worlds.guest import guest, library, starting
from gem_ma.worlds.makers import gymnasium_env, key_of, registered
from gem_ma.worlds.results import STEP, amount, begun, flag, noted, parts, step_limit
from gem_ma.worlds.spaces import text_of

TURNS = 200  # where a world has no time limit of its own
ENDS_AT_THE_GOAL = ("CliffWalking",)  # every step costs there, so that no reward says who arrived


class Gymnasium(Solo):
    """An environment of Gymnasium in text: actions by name, its time limit as a truncation."""

    def __init__(
        self,
        env: str,
        *,
        turns: int | None = None,
        actions: Sequence[str] | None = None,
        brief: str = "",
        chance: bool | None = None,
        foul: float = 0.0,
        listed: int = LISTED,
        **options: Any,
    ) -> None:
        self.env = env
        self.options = options
        self.listed = listed
        self.foul = foul
        self.key = self._key()
        with starting(self.title), guest(0):
            made = self._made()
            spec = self._spec(made)
            self.turns: int = step_limit(made, spec, turns) or TURNS
            self.threshold = getattr(spec, "reward_threshold", None)
            self.actions = action_names(made, env, actions)
            places = places_of(made.action_space, env)
            self.form = form(made.action_space, places)
        self.brief = brief or f"{env}.{'' if self.actions else f' {self.form}'}"
        with starting(self.title, "played"):
            self.declare_chance(chance, tries(places))

    @property
    def title(self) -> str:
        """What faults begin with."""
        return f"gymnasium:{self.env}"

    def _key(self) -> str:
        return key_of("gymnasium", self.env, self.options)

    def _spec(self, made: Any) -> Any:
        # of the registry: the environment was made without its time limit
        return library("gymnasium", "gymnasium").spec(registered(self.env))

    def _made(self) -> Any:
        return gymnasium_env(self.env, self.options)

    def opened(self, seed: int) -> SoloState:
        env = self._made()
        seen, info = begun(env, seed)
        return SoloState(env, text_of(env, seen), info)

    def copied(self, state: SoloState) -> SoloState:
        return whole_copy(state)

    def stepped(self, state: SoloState, move: Any, seed: int) -> SoloState:
        env = state.env
        state.steps = state.steps + 1
        action = self._action(env, move[AGENT])
        if action is None:
            state.paid = self.foul
            state.why = FOUL
            state.view = self.form
            return state
        if self.seeded and getattr(env.unwrapped, "_np_random", None) is not None:
            env.unwrapped.np_random = library("numpy", "gymnasium").random.default_rng(seed)
        seen, paid, over, cut, info = parts(env.step(action), STEP, "step")
        state.info = noted(info)
        state.paid = amount(paid)
        state.why = "step"
        ends = flag(over, "terminated")
        cut = flag(cut, "truncated")
        # a limit of the environment's own that nobody declared cuts the play here; at the declared
        # one the driver does
        state.cut = cut and not ends and state.steps < self.turns
        state.over = ends or state.cut
        state.view = text_of(env, seen)
        return state

    def _action(self, env: Any, choice: Any) -> Any:
        """What is meant by the place of a name, or by an answer; None where it is not an action."""
        space = env.action_space
        if isinstance(choice, int) and kind_of(space) == "Discrete":
            return int(space.start) + choice
        # the name of a row are its numbers
        text = self.actions[choice] if isinstance(choice, int) and self.actions else str(choice)
        return move_of(space, text)

    def moves(self, state: SoloState) -> Mapping[str, Any] | None:
        if self.actions is None:  # numbers, which are read out of the text
            return None
        mask = state.info.get("action_mask")
        return {self.actions[place]: place for place in chosen(self.actions, mask)}

    def success(self, episode: Episode) -> bool | None:
        """The registry's threshold of solved; without one, whether it was paid at the end."""
        if self.env.startswith(ENDS_AT_THE_GOAL):
            return episode.end is End.TERMINATED
        values = [entry.value for entry in episode.ledger if entry.why != FOUL]
        if self.threshold is not None:
            return sum(values) >= self.threshold
        return bool(values) and values[-1] > 0
