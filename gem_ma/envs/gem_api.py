"""The calls of GEM ("A Gym for Agentic LLMs") over scenarios: `make`, `make_vec`, `register`.

A loop that was written for GEM plays here.

    env = gym_like.make("game:GuessTheNumber-v0-easy")
    text, info = env.reset(seed=1)
    text, reward, terminated, truncated, info = env.step("\\boxed{5}")

A step is one turn of one agent; others are played by behaviours. An observation is what is new,
as one text; the wrappers `concat` and `concat_with_action` show the whole talk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_ma.envs.gym import ChatGym, gym_env
from gem_ma.envs.others import seated
from gem_ma.kernel.errors import ActionError, ConfigError
from gem_ma.kernel.types import Action

HISTORIES = ("", "concat", "concat_with_action")
# the word of GEM's ids -> our scenario
_GAMES = {
    "GuessTheNumber": "guess_number",
    "Mastermind": "mastermind",
    "Minesweeper": "minesweeper",
    "Wordle": "wordle",
    "FifteenPuzzle": "fifteen_puzzle",
    "Hangman": "hangman",
    "Sudoku": "sudoku",
    "TowerofHanoi": "hanoi",
    "Game2048": "game2048",
    "Sokoban": "sokoban",
    "Crosswords": "crosswords",
    "WordSearch": "word_search",
}
_LEVELS = ("easy", "hard", "random")
# id -> scenario and options; GEM's games with GEM's sizes and rewards
_IDS: dict[str, tuple[Any, dict[str, Any]]] = {
    f"game:{word}-v0-{level}": (name, {"level": level, "rewards": "gem"})
    for word, name in _GAMES.items()
    for level in _LEVELS
}
# other ids of GEM: what they are here
_ELSEWHERE = {
    "rg:": "reasoning_gym:NAME is the same task",
    "math:": "questions asks any data set: make('questions', data=FILE, grader='math')",
    "qa:": "questions asks any data set: make('questions', data=FILE, question=..., answer=...)",
    "code:": "code judges programs of any data set: make('code', data=FILE)",
    "eval:": "questions and code ask any data set: make('questions', data=FILE)",
}


def register(env_id: str, scenario: Any, **options: Any) -> None:
    """Gives a scenario (an id, a class, a file) with these options a name of its own. Raises
    ConfigError where the name is taken."""
    if not isinstance(env_id, str):
        raise ConfigError(f"a name is a text, as game:Mine-v0; got {env_id!r}")
    if env_id in _IDS:
        raise ConfigError(f"{env_id}: registered already, as {_IDS[env_id][0]}")
    _IDS[env_id] = (scenario, options)


def print_envs() -> None:
    """Prints every name that `register` knows; any scenario's id is one too."""
    for env_id, (scenario, options) in _IDS.items():
        print(f"{env_id}: {scenario} {options or ''}".rstrip())


class Env:
    """One agent of a scenario: `reset(seed) -> (text, info)`, and `step(text) -> (text, reward,
    terminated, truncated, info)`. `history`: "" for what is new, or one of the wrappers' names."""

    def __init__(self, make: Callable[[], ChatGym], history: str = "") -> None:
        if history not in HISTORIES:
            raise ConfigError(f"history is one of {HISTORIES}; got {history!r}")
        self._make = make
        self.history = history
        self._env = make()
        self._seed: int | None = None
        self._actions: list[str] = []
        self._random = random.Random()
        self._seen = 0

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Starts a play; without a seed the next one of those that the last seed began."""
        if seed is not None:
            self._random = random.Random(f"{seed}/actions")
        self._actions = []
        self._seen = 0
        seen, info = self._env.reset(seed=seed)
        # kept, so that a copy can play the same play
        self._seed = self._env.game.seed
        return self._text(seen), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self._env.step(action)
        self._actions.append(action)
        return self._text(seen), reward, terminated, truncated, info

    def sample_random_action(self) -> str:
        """A legal answer in a box, drawn; where any text will do, a number."""
        asked = self._env.game.pending.get(self._env.agent)
        choices = asked.legal if asked is not None and asked.legal else tuple("0123456789")
        return f"\\boxed{{{self._random.choice(choices)}}}"

    def spawn(self, same_state: bool = False, **_: Any) -> Env:
        """A new environment like this one; `same_state`: at the same place of the same play. It is
        played there again: a play follows from its seed and what was said."""
        other = Env(self._make, self.history)
        if same_state and self._seed is not None:
            other.reset(self._seed)
            for action in self._actions:
                other.step(action)
            other._random.setstate(self._random.getstate())
        return other

    @property
    def unwrapped(self) -> Env:
        return self

    def close(self) -> None:
        self._env.close()

    def _text(self, seen: Mapping[str, Any]) -> str:
        messages = seen["messages"]
        start = 0 if self.history else self._seen
        self._seen = len(messages)
        spoken = self.history == "concat_with_action"
        return "\n".join(
            message["content"]
            for message in messages[start:]
            # its own words are `assistant` to it
            if spoken or message["role"] != "assistant"
        )


WRAPPERS: dict[str, Callable[[Env], Env]] = {
    name: lambda env, name=name: Env(env._make, name)  # type: ignore[misc]
    for name in HISTORIES
    if name
}
_WRAPPING = f"{', '.join(WRAPPERS)}, functions of an environment"


def make(
    env_id: Any, agent: str | None = None, others: Mapping[str, Any] | None = None, **options: Any
) -> Env:
    """An environment of a registered name, one of GEM's games, or any scenario. `agent`: yours, the
    first where absent; `others`: who plays the rest, by default as the scenario has it."""
    scenario, known = _IDS.get(env_id, (env_id, {})) if isinstance(env_id, str) else (env_id, {})
    for prefix, here in _ELSEWHERE.items():
        if isinstance(scenario, str) and scenario.startswith(prefix):
            raise ConfigError(f"{scenario}: GEM's graders are not taken over; {here}")
    named = {**known, **options}

    def new() -> ChatGym:
        return gym_env(scenario, **seated(scenario, agent, others, named), **named)

    return Env(new)


class VectorEnv:
    """Many environments, stepped together. What has ended is reset at once; its last text and info
    stand under `final_obs` and `final_info` of the new info."""

    def __init__(self, envs: Sequence[Env], seed: int = 0, autoreset: bool = True) -> None:
        self.envs = list(envs)
        self.seed = seed
        self.autoreset = autoreset

    @property
    def num_envs(self) -> int:
        return len(self.envs)

    def reset(self, seed: int | None = None) -> tuple[list[str], list[dict[str, Any]]]:
        first = self.seed if seed is None else seed
        pairs = [env.reset(first + number) for number, env in enumerate(self.envs)]
        return [text for text, _ in pairs], [info for _, info in pairs]

    def step(self, actions: Sequence[str] | Mapping[int, str]) -> tuple[list[Any], ...]:
        """Steps all, or those whose numbers are named; gives five lists in the order of actions."""
        if isinstance(actions, str) or not isinstance(actions, (Mapping, Sequence)):
            raise ActionError(f"step takes a list of actions, or {{0: ACTION}}; got {actions!r}")
        named = actions if isinstance(actions, Mapping) else dict(enumerate(actions))
        # before any of them moves: a refused step changes nothing
        for number, action in named.items():
            if number not in range(self.num_envs):
                known = f"they are 0 to {self.num_envs - 1}"
                raise ActionError(f"no environment is {number!r}; {known}")
            if not isinstance(action, (str, Action)):
                kind = type(action).__name__
                raise ActionError(f"environment {number}: an action is a text; got {kind}")
        if len(named) < self.num_envs and not isinstance(actions, Mapping):
            raise ActionError(
                f"{len(named)} actions for {self.num_envs} environments; {{0: ACTION}} steps some"
            )
        rows = []
        for number, action in named.items():
            text, reward, terminated, truncated, info = self.envs[number].step(action)
            if (terminated or truncated) and self.autoreset:
                final = {"final_obs": text, "final_info": info}
                text, fresh = self.envs[number].reset()
                info = {**fresh, **final}
            rows.append((text, reward, terminated, truncated, info))
        return tuple(list(column) for column in zip(*rows, strict=True))


def make_vec(
    env_ids: Any, num_envs: int = 1, wrappers: Sequence[Any] = (), seed: int = 0, **options: Any
) -> VectorEnv:
    """`num_envs` environments of one name, or one of each of several. `wrappers`: from WRAPPERS,
    or functions of an environment."""
    ids = list(env_ids) if isinstance(env_ids, (list, tuple)) else None
    if ids == [] or (ids is None and (type(num_envs) is not int or num_envs < 1)):
        got = "env_ids=[]" if ids == [] else f"num_envs={num_envs!r}"
        raise ConfigError(f"make_vec makes at least one environment; got {got}")
    if isinstance(seed, (bool, type)) or not hasattr(seed, "__index__"):
        raise ConfigError(f"a seed is an integer; got {seed!r}")
    if not isinstance(wrappers, (list, tuple)):
        raise ConfigError(f"wrappers: a list, of {_WRAPPING}; got {wrappers!r}")
    envs = [make(env_id, **options) for env_id in ids or [env_ids] * num_envs]
    for wrapper in wrappers:
        around = WRAPPERS.get(wrapper) if isinstance(wrapper, str) else wrapper
        if not callable(around):
            raise ConfigError(f"no wrapper is {wrapper!r}; there are {_WRAPPING}")
        envs = [around(env) for env in envs]
        if strange := [env for env in envs if not hasattr(env, "step")]:
            raise ConfigError(f"wrapper {wrapper!r} gives no environment but {strange[0]!r}")
    return VectorEnv(envs, seed)
