"""Gymnasium's environments as scenarios of one agent: `gymnasium:FrozenLake-v1`,
`gymnasium:MiniGrid-Empty-5x5-v0`.

The options are those of `gymnasium.make`, and `turns` (the time limit), `actions` (their names),
`brief` (what the agent is told first), `chance`. A time limit cuts a play: it is no end that the
rules know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.adapters.copies import whole_copy
from gem_ma.adapters.foreign import LISTED, Foreign, seeds_matter
from gem_ma.adapters.guest import library, quiet
from gem_ma.adapters.line import Stop
from gem_ma.adapters.spaces import action_names, move_of, text_of
from gem_ma.effects import Reward, Tell
from gem_ma.episode import End, Episode, Limits
from gem_ma.errors import ConfigError

AGENT = "player"
TURNS = 200  # where a world has no time limit of its own
TRIED = ("0", "0.5", "0.5 -0.5", "-1 0.5 1 0")  # answers of a look at whether seeds matter
ENDS_AT_THE_GOAL = ("CliffWalking",)  # every step costs there, so that no reward says who arrived


@dataclass(slots=True)
class Held:
    """An environment, and what its last step gave."""

    env: Any
    shown: str
    info: Mapping[str, Any] = field(default_factory=dict)
    paid: float = 0.0
    over: bool = False
    steps: int = 0


class Gymnasium(Foreign):
    """An environment of Gymnasium in text: actions by name, its time limit as a truncation."""

    agents = (AGENT,)

    def __init__(
        self,
        env: str,
        *,
        turns: int | None = None,
        actions: Sequence[str] | None = None,
        brief: str = "",
        chance: bool | None = None,
        listed: int = LISTED,
        **options: Any,
    ) -> None:
        self.env, self.options, self.listed = env, options, listed
        self.brief = brief or f"{env}."
        self.key = f"gymnasium {json.dumps([env, options], sort_keys=True, default=repr)}"
        self.actions = tuple(actions) if actions else None
        self._declare(self._checked(), turns, chance)

    def _declare(self, made: Any, turns: int | None, chance: bool | None) -> None:
        """Reads off an environment what the kernel wants to know of it."""
        spec = self._spec(made)
        limit = getattr(spec, "max_episode_steps", None) or getattr(
            made.unwrapped, "max_steps", None
        )
        self.turns = int(turns or limit or TURNS)
        self.threshold = getattr(spec, "reward_threshold", None)
        self.actions = action_names(made, self.env, self.actions)
        self.seeded = True  # while it is looked at
        self.chance = self.seeded = seeds_matter(self, TRIED) if chance is None else chance

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        # made anew: attributes are plain values, so that another process can make the world again
        return Limits(max_steps=self.turns)

    def _spec(self, made: Any) -> Any:
        # of the registry: the environment was made without its time limit
        return library("gymnasium", "gymnasium").spec(self.env)

    def _checked(self) -> Any:
        try:
            return self._made()
        except ConfigError:
            raise
        except Exception as error:  # of any class: an id, an option, a library that is missing
            words = " ".join(str(error).split())
            raise ConfigError(f"gymnasium:{self.env}: {words or type(error).__name__}") from error

    def _made(self) -> Any:
        gymnasium = library("gymnasium", "gymnasium")
        if self.env.startswith(("MiniGrid-", "BabyAI-")):
            library("minigrid", "gymnasium")  # it registers its ids when it is imported
        with quiet():
            spec = gymnasium.spec(self.env)
            creator = gymnasium.envs.registration.load_env_creator(spec.entry_point)
            modes = getattr(creator, "metadata", {}).get("render_modes", ())
            mode = {"render_mode": "ansi"} if "ansi" in modes else {}
            # -1: without the wrapper that ends a play at the time limit; `limits` cuts it
            return gymnasium.make(
                self.env, max_episode_steps=-1, disable_env_checker=True, **mode, **self.options
            )

    def opened(self, seed: int) -> Held:
        env = self._made()
        seen, info = env.reset(seed=seed)
        return Held(env, text_of(env, seen), info)

    def copied(self, state: Held) -> Held:
        return whole_copy(state)

    def stepped(self, state: Held, move: Any, seed: int) -> Held:
        env = state.env
        action = move_of(env.action_space, move[AGENT])
        if action is None:
            state.shown, state.paid = f"Answer with an action in {env.action_space}.", 0.0
            return state
        if self.seeded and getattr(env.unwrapped, "_np_random", None) is not None:
            env.unwrapped.np_random = library("numpy", "gymnasium").random.default_rng(seed)
        seen, paid, over, cut, info = env.step(action)
        state.paid, state.over, state.info = float(paid), bool(over), info
        state.steps += 1
        # a limit of the environment's own that nobody declared ends the play; at the declared one
        # the driver cuts it
        state.over = state.over or (bool(cut) and state.steps < self.turns)
        state.shown = text_of(env, seen)
        return state

    def stop(self, state: Held) -> Stop:
        before: tuple[Reward | Tell, ...] = ()
        if not state.steps:
            before = (Tell({AGENT: self.brief}),)
        elif state.paid:
            before = (Reward({AGENT: state.paid}, why="step"),)
        if state.over:
            return Stop(before)
        return Stop(before, {AGENT: state.shown}, self._moves(state))

    def _moves(self, state: Held) -> dict[str, dict[str, Any]] | None:
        if self.actions is None:  # numbers, which are read out of the text
            return None
        mask = state.info.get("action_mask")
        names = enumerate(self.actions)
        return {AGENT: {name: i for i, name in names if mask is None or mask[i]}}

    def success(self, episode: Episode) -> bool | None:
        """The threshold that the registry calls solved; without one, whether it was paid at the
        end."""
        if self.env.startswith(ENDS_AT_THE_GOAL):
            return episode.end is End.TERMINATED
        values = [entry.value for entry in episode.ledger]
        if self.threshold is not None:
            return sum(values) >= self.threshold
        return bool(values) and values[-1] > 0
