"""Which seat an agent has: `agents:` names agents, or patterns of them, so that one policy sits in
every scenario whatever its agents are called.

A name goes before patterns; of patterns the one with the most letters, so that the order in which
they are written means nothing. Two of as many letters with different seats are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

T = TypeVar("T")


def is_pattern(name: str) -> bool:
    """Whether a key of `agents:` stands for several agents."""
    return "*" in name or "?" in name


def is_partial(seat: Any) -> bool:
    """Whether the values of a seat say something of it, and not who plays there."""
    return isinstance(seat, dict) and not seat.keys() & {"behaviour", "policy", "model"}


def fits(agent: str, name: str) -> bool:
    """Whether a key of `agents:`, a name or a pattern, means this agent."""
    return agent == name or (is_pattern(name) and fnmatchcase(agent, name))


def key_of(agent: str, names: Iterable[str]) -> str | None:
    """The key that an agent is seated by; None where none fits.

    >>> key_of("player_0", ["*", "player_*", "player_1"])
    'player_*'
    """
    return next(iter(keys_of(agent, names)), None)


def keys_of(agent: str, names: Iterable[str]) -> list[str]:
    """All keys that fit an agent, the one that seats it first."""
    fitting = [name for name in names if fits(agent, name)]
    # ties by name: the digest of a config does not know in which order its keys stand
    return sorted(fitting, key=lambda name: (name != agent, -letters(name), name))


def letters(name: str) -> int:
    """How closely a pattern says whom it means."""
    return len(name.replace("*", ""))


def seats_of(agents: Sequence[str], *sections: Mapping[str, T]) -> dict[str, T]:
    """Agent -> its seat, from the first section that has one for it. An agent that none has is
    left out, and refused by the check of the config."""
    if len(sections) == 1 and not any(map(is_pattern, sections[0])):
        # in the order written, which is the order in which players change seats
        return {name: seat for name, seat in sections[0].items() if name in agents}
    seats = {}
    for agent in agents:
        for section in sections:
            if (key := key_of(agent, section)) is not None:
                seats[agent] = section[key]
                break
    return seats
