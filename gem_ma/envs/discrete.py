"""A closed-choice agent as arrays: `Discrete` actions with a mask, and a vector of what it sees, so
that learners of other libraries (Stable-Baselines3, CleanRL, RLlib) can be the baseline of a game.

What a scenario may ask is known to its code alone. So some games are played at random first, from
seeds of their own: they give the actions (every legal string that was offered) and the words that
stand in messages. The vector says for each of the last `window` words of the agent's transcript
which word it is: [window * words], 0 or 1, the newest last, so that a board that is shown anew at
every turn always stands at the same place. A word that was never met is none.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from gem_ma.envs.gym import ChatGym, TextGym, gym_env
from gem_ma.envs.others import seated
from gem_ma.envs.session import Session
from gem_ma.kernel.errors import ActionError, ConfigError
from gem_ma.kernel.scenario import Scenario

EXPLORED = 64  # games that are played first
WINDOW = 128  # words; a longer transcript loses its oldest
Encode = Callable[[Mapping[str, Any]], NDArray[np.float32]]


class DiscreteGym(gymnasium.Env[NDArray[np.float32], int]):
    """One agent with numbered actions. `actions` are the legal strings in the order of their
    numbers; `chat` is the environment of texts that is played.

    `action_masks()` (for MaskablePPO) and `info["action_mask"]` say which numbers are legal now.
    Any other number is not a move: the scenario decides what that costs.
    """

    def __init__(
        self,
        chat: ChatGym,
        *,
        actions: Sequence[str] | None = None,
        window: int = WINDOW,
        explore: int = EXPLORED,
        encode: Encode | None = None,
    ) -> None:
        """`encode` makes the vector of an observation of `chat`, in place of the words. Raises
        ConfigError where the agent is asked for free text, or is never asked."""
        if isinstance(chat, TextGym):
            raise ConfigError("discrete: its environment of texts has obs='chat'; leave obs out")
        self.chat = chat
        self.agent = chat.agent
        self.metadata = chat.metadata
        self.render_mode = chat.render_mode
        offered: Sequence[str] = ()
        words: Sequence[str] = ()
        # where both are named nothing is left to find, also where others are asked for free text
        if actions is None or encode is None:
            offered, words = _explored(chat._session, chat.agent, explore)
        self.actions = tuple(actions if actions is not None else offered)
        self.words = {word: place for place, word in enumerate(words)}
        self.window = window
        self._encode = encode
        self._numbers = {action: number for number, action in enumerate(self.actions)}
        self.action_space = spaces.Discrete(len(self.actions))
        self._mask = np.ones(len(self.actions), np.int8)
        size = (window * len(words),) if encode is None else np.shape(encode({"messages": ()}))
        low, high = (0.0, 1.0) if encode is None else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return self._arrays(*self.chat.reset(seed=seed, options=options))

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Says the action's string. Raises ActionError for a number that no action has."""
        number = int(action)
        if not 0 <= number < len(self.actions):
            raise ActionError(f"actions are 0 to {len(self.actions) - 1}; got {number}")
        seen, paid, terminated, truncated, info = self.chat.step(self.actions[number])
        vector, info = self._arrays(seen, info)
        return vector, float(paid), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are legal now, as sb3-contrib asks for it."""
        return self._mask.astype(bool)

    def render(self) -> Any:
        return self.chat.render()

    def close(self) -> None:
        self.chat.close()

    def _arrays(
        self, seen: dict[str, Any], info: dict[str, Any]
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        legal = info.get("action_mask", ())
        if strange := [choice for choice in legal if choice not in self._numbers]:
            raise ActionError(
                f"{self.chat.scenario.id}: {strange[0]!r} is legal and was never met while"
                " exploring; name all with discrete(..., actions=[...]), or explore=... more games"
            )
        # nobody asks at the end, and a mask of zeros stops a sampler
        self._mask = np.full(len(self.actions), not legal, np.int8)
        self._mask[[self._numbers[choice] for choice in legal]] = 1
        vector = self._encode(seen) if self._encode is not None else self._vector(seen)
        return np.asarray(vector, np.float32), {**info, "action_mask": self._mask.copy()}

    def _vector(self, seen: dict[str, Any]) -> NDArray[np.float32]:
        table = np.zeros((self.window, len(self.words)), np.float32)  # [window, words]
        words: list[str] = []
        # from the newest message on: an old talk costs nothing
        for place in range(len(seen["messages"]) - 1, -1, -1):
            words = _words(seen["messages"][place]) + words
            if len(words) >= self.window:
                break
        for place, word in enumerate(reversed(words[-self.window :])):
            number = self.words.get(word)
            if number is not None:
                table[self.window - 1 - place, number] = 1.0
        return table.reshape(-1)


def discrete(
    env: ChatGym | str | Scenario | type[Scenario],
    *,
    agent: str | None = None,
    others: Mapping[str, Any] | None = None,
    actions: Sequence[str] | None = None,
    window: int = WINDOW,
    explore: int = EXPLORED,
    encode: Encode | None = None,
    **options: Any,
) -> DiscreteGym:
    """One agent of a closed-choice scenario with numbered actions and a mask: of a `gym_env`, or
    of a scenario, with `agent`, `others` and further arguments as in `gym_env`.

    >>> env = discrete("kuhn_poker", agent="player_1", others={"player_0": "first_legal"})
    >>> vector, info = env.reset(seed=1)
    >>> env.actions, info["action_mask"].tolist(), vector.shape == env.observation_space.shape
    (('bet', 'call', 'check', 'fold'), [1, 0, 1, 0], True)
    """
    if isinstance(env, ChatGym):
        if agent is not None or others is not None or options:
            raise ConfigError(
                "discrete: an environment is seated already; name agent and others there"
            )
        chat: Any = env  # its base is untyped, which confuses what is left of the union
    else:
        chat = gym_env(env, **seated(env, agent, others, options), **options)
    return DiscreteGym(chat, actions=actions, window=window, explore=explore, encode=encode)


def _explored(session: Session, agent: str, games: int) -> tuple[list[str], list[str]]:
    """The legal strings that an agent was offered in random games, and the words that it met, both
    in order. Raises ConfigError where it was asked for free text, or never."""
    # its tasks and limits, and none of its plays
    session = copy.copy(session)
    session.game = None
    offered: set[str] = set()
    words: set[str] = set()
    for seed in range(games):
        rng = random.Random(f"explore/{seed}")
        game = session.reset(seed, None)
        while game.pending:
            acts = {}
            for name, asked in game.pending.items():
                if asked.legal is None:
                    raise ConfigError(
                        f"{session.name}: {name!r} is asked for free text, and has no numbered"
                        " actions; use gym_env, and obs='text' for plain texts"
                    )
                acts[name] = rng.choice(asked.legal)
                offered |= set(asked.legal) if name == agent else set()
            session.commit(acts)
        words |= {word for message in game.view(agent) for word in message.text.split()}
        session.close()
    if not offered:
        raise ConfigError(f"{session.name}: {agent!r} was never asked in {games} games")
    return sorted(offered, key=_natural), sorted(words)


def _natural(text: str) -> tuple[int, int | str]:
    # 10 after 9, and numbers before words
    return (0, int(text)) if text.isdecimal() and len(text) < 10 else (1, text)


def _words(message: Mapping[str, str]) -> list[str]:
    return message["content"].split()
