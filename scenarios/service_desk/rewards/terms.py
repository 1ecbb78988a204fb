"""The reward terms of a service talk as data: their settings with defaults, and how a scenario's
options become settings (see `service.rewards.watchers`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER

from gem_ma.kernel.errors import ConfigError

USER_REWARDS = ("cooperative", "neutral", "adversarial")
MODES = ("invariant", "dense")


@dataclass(frozen=True, slots=True)
class Outcomes:
    weight: float = 1.0
    strict: bool = False  # paid only for a talk without a sure hard violation


@dataclass(frozen=True, slots=True)
class Progress:
    weight: float = 0.3
    mode: str = "invariant"


@dataclass(frozen=True, slots=True)
class Information:
    weight: float = 0.1


@dataclass(frozen=True, slots=True)
class Validity:
    weight: float = 0.02
    cap: float = 0.2


@dataclass(frozen=True, slots=True)
class Compliance:
    hard: float = 0.1
    soft: float = 0.02
    cap: float = 0.5


@dataclass(frozen=True, slots=True)
class Communication:
    weight: float = 0.1


@dataclass(frozen=True, slots=True)
class Effort:
    weight: float = 0.002
    repeat: float = 0.01
    question: float = 0.01
    cap: float = 0.1


@dataclass(frozen=True, slots=True)
class Abstention:
    weight: float = 0.1


@dataclass(frozen=True, slots=True)
class Role:
    weight: float = 0.1
    stop: float = 0.1
    cap: float = 0.5


@dataclass(frozen=True, slots=True)
class Contest:
    weight: float = 0.25
    cap: float = 1.0


TERMS: dict[str, type[Any]] = {
    "outcome": Outcomes,
    "progress": Progress,
    "information": Information,
    "validity": Validity,
    "policy": Compliance,
    "communication": Communication,
    "effort": Effort,
    "abstention": Abstention,
    "role": Role,
    "game": Contest,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Which terms pay, and what the user plays for. `terms` always holds `outcome`."""

    terms: Mapping[str, Any] = field(default_factory=lambda: {"outcome": Outcomes()})
    user_reward: str = "cooperative"
    gamma: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether nothing but the outcome pays."""
        return (
            set(self.terms) == {"outcome"} and self.user_reward != "adversarial" and not self.strict
        )

    @property
    def strict(self) -> bool:
        """Whether the outcome is paid only for a talk without a sure hard violation."""
        return bool(self.terms["outcome"].strict)

    @property
    def shares(self) -> dict[str, float]:
        """What each agent is paid for a success."""
        assistant = self.terms["outcome"].weight
        if self.user_reward != "cooperative":
            return {ASSISTANT: assistant}
        # The game is the user's own share of the outcome, where both win together.
        return {
            ASSISTANT: assistant,
            USER: self.terms["game"].weight if "game" in self.terms else assistant,
        }

    @property
    def paying(self) -> list[tuple[str, str]]:
        """(agent, term) of all that may pay."""
        shared = [(agent, "outcome") for agent in self.shares]
        others = [
            (USER if name in ("role", "game") else ASSISTANT, name)
            for name in self.terms
            if name != "outcome"
        ]
        # A cooperative game is paid as the outcome, so it has no entries of its own.
        return [
            *shared,
            *(
                pair
                for pair in others
                if pair != (USER, "game") or self.user_reward == "adversarial"
            ),
        ]

    @property
    def alike(self) -> bool:
        """Whether both agents are always paid the same."""
        # Any other term pays one side alone.
        shares = self.shares
        return not set(self.terms) - {"outcome", "game"} and shares.get(USER) == shares[ASSISTANT]


# -- options -------------------------------------------------------------------------------------


def read_settings(
    rewards: Mapping[str, Any] | None = None, user_reward: str = "cooperative", gamma: float = 1.0
) -> Settings:
    """Settings out of a scenario's options. Raises ConfigError for an unknown term, field or value,
    with the nearest name.

    The outcome may be `strict`. A term is a number (its weight; of `policy`, that of a hard
    finding, a soft one counting a quarter), a mapping of its fields, True for its defaults, or
    False or None for off.
    """
    if user_reward not in USER_REWARDS:
        raise ConfigError(
            f"scenario.user_reward: there is {', '.join(USER_REWARDS)}; got"
            f" {user_reward!r}{_near(user_reward, USER_REWARDS)}"
        )
    if not _is_number(gamma) or not 0 <= gamma <= 1:
        raise ConfigError(f"scenario.gamma: a discount from 0 to 1; got {gamma!r}")
    if rewards is not None and not isinstance(rewards, Mapping):
        raise ConfigError(
            "scenario.rewards: a mapping of terms, as in {progress: 0.3, policy: {hard: 0.1}};"
            f" got {rewards!r}"
        )
    # The outcome is always there: `strict` and the shares are read from it.
    terms: dict[str, Any] = {"outcome": Outcomes()}
    for name, option in (rewards or {}).items():
        if name not in TERMS:
            raise ConfigError(f"scenario.rewards: no term is called {name!r}{_near(name, TERMS)}")
        term = _term(str(name), option)
        if name == "game" and option is True and user_reward == "cooperative":
            term = None  # the shared outcome is what a cooperative user plays for anyhow
        if term is not None:
            terms[name] = term
        # Switched off, it still has to be worked out for the measures.
        elif name == "outcome":
            terms[name] = Outcomes(0.0)
    if "game" in terms and user_reward == "neutral":
        raise ConfigError(
            "scenario.rewards.game: a neutral user plays for nothing; set user_reward to"
            " cooperative or adversarial"
        )
    if user_reward == "adversarial":
        terms.setdefault("game", Contest())
    return Settings(terms, user_reward, float(gamma))


def _term(name: str, option: Any) -> Any:
    """The term that an option sets; None for off. Raises ConfigError."""
    kind = TERMS[name]
    if option is None or option is False:
        return None
    if option is True:
        return kind()
    if name == "outcome" and option == "strict":
        return Outcomes(strict=True)
    # One number sets both: a soft finding counts a quarter of a hard one.
    if _is_number(option):
        option = {"hard": option, "soft": option / 4} if name == "policy" else {"weight": option}
    known = {entry.name for entry in fields(kind)}
    if not isinstance(option, Mapping):
        raise ConfigError(
            f"scenario.rewards.{name}: a number, or a mapping of {', '.join(sorted(known))}; got"
            f" {option!r}"
        )
    for key, value in option.items():
        if key not in known:
            raise ConfigError(f"scenario.rewards.{name}: has no {key!r}{_near(key, known)}")
        _check_field(f"scenario.rewards.{name}.{key}", key, value)
    words = ("mode", "strict")
    term = kind(**{key: value if key in words else float(value) for key, value in option.items()})
    # A term whose every size is 0 pays nothing, so it is off and needs no watcher.
    sizes = [getattr(term, size) for size in known - {"mode", "cap", "strict"}]
    return term if any(sizes) else None


def _check_field(where: str, key: str, value: Any) -> None:
    if key == "mode":
        if value not in MODES:
            raise ConfigError(
                f"{where}: there is {' and '.join(MODES)}; got {value!r}{_near(value, MODES)}"
            )
    elif key == "strict":
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: true or false; got {value!r}")
    elif not _is_number(value) or value < 0:
        raise ConfigError(f"{where}: a finite number of at least 0; got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _near(name: Any, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(names)})"
