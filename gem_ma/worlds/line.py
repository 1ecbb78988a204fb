"""A play's way through a foreign environment, remembered so that a fork does not step again.

What each stop looked like is kept by the moves that led there, and so are copies of the environment
itself. Who is asked, and what an answer means, is the scenario's business (`foreign`).
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from time import perf_counter
from typing import Any, Protocol

from gem_ma.kernel.effects import Content, Reward, Tell
from gem_ma.worlds.guest import guest

# what forks are made of; the oldest are forgotten
STOPS_KEPT = 4096
STATES_KEPT = 256
WAY = 4  # copies' time from one copy to the next
MOST_KEPT = 1 << 26  # characters of stops: an environment may show a picture's numbers as text


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a play waits. `before`: what was paid and told on the way here. `asks`: who must act,
    and what each is shown; nobody = the play is over. `moves`: {agent: {legal string: what the
    library calls it}}; who is missing there answers in free text, and all do where it is None.
    `cut`: whose part a limit of the library's own ended here, and what each would have seen next.
    `outcomes`: (outcome, weight) of a draw that is made by the play's own rng, and then nobody is
    asked."""

    before: tuple[Reward | Tell, ...] = ()
    asks: Mapping[str, Content] | None = None
    moves: Mapping[str, Mapping[str, Any]] | None = None
    outcomes: Sequence[tuple[Any, float]] = ()
    cut: Mapping[str, Content] | None = None


def _weight(stop: Stop) -> int:
    """Characters of a stop, more or less: what is shown, and the names of moves."""
    tells = (effect.to for effect in stop.before if isinstance(effect, Tell))
    told = (*tells, stop.asks or {}, stop.cut or {})
    shown = [value for by_agent in told for value in by_agent.values()]
    names = [name for moves in (stop.moves or {}).values() for name in moves]
    return sum(map(_length, shown)) + sum(map(len, names)) + 64 * len(names)


def _length(content: Any) -> int:
    if isinstance(content, (tuple, list)):
        return sum(map(_length, content))
    return len(content) if isinstance(content, str) else len(getattr(content, "text", ""))


class World(Protocol):
    """What a line needs of an adapter; `foreign.Foreign` says what each does."""

    key: str
    borrows: bool

    def opened(self, seed: int) -> Any: ...
    def stop(self, state: Any) -> Stop: ...
    def stepped(self, state: Any, move: Any, seed: int) -> Any: ...
    def copied(self, state: Any) -> Any: ...


class Shelf:
    """The last `size` values that were put in or taken out, which weigh `most` in all. Views may be
    stepped in threads."""

    def __init__(self, size: int, most: int = MOST_KEPT) -> None:
        self.size = size
        self.most = most
        self.lock = Lock()
        self.values: OrderedDict[bytes, Any] = OrderedDict()
        self.weights: dict[bytes, int] = {}
        self.weight = 0

    def get(self, key: bytes) -> Any:
        with self.lock:
            if key in self.values:
                self.values.move_to_end(key)
            return self.values.get(key)

    def put(self, key: bytes, value: Any, weight: int = 0) -> None:
        with self.lock:
            self.weight += weight - self.weights.get(key, 0)
            self.values[key] = value
            self.weights[key] = weight
            self.values.move_to_end(key)
            while len(self.values) > self.size or (self.weight > self.most and self.values):
                oldest, _ = self.values.popitem(last=False)
                self.weight -= self.weights.pop(oldest)

    def clear(self) -> None:
        with self.lock:
            self.values.clear()
            self.weights.clear()
            self.weight = 0


STOPS = Shelf(STOPS_KEPT)
STATES = Shelf(STATES_KEPT)
# seconds that a copy takes, by environment; inf where it cannot be copied
COSTS: dict[str, float] = {}


def forget() -> None:
    """Forgets all stops and copies; plays go on, and forks step again."""
    STOPS.clear()
    STATES.clear()


class Line:
    """One play's way through an environment. The environment itself is brought up to date only
    where nobody has been before, from the nearest copy of it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.moves: list[tuple[Any, int]] = []
        # place n = after n moves; a key is a digest, since a tuple of all moves is hashed anew each
        # time
        self.keys = [_digest(b"", [world.key, seed])]
        # the environment, and the place where it stands
        self.state = None
        self.place = -1
        self.spent = 0.0  # seconds of stepping since the last copy

    def go(self, move: Any, seed: int) -> None:
        self.moves.append((move, seed))
        self.keys.append(_digest(self.keys[-1], [move, seed]))

    def stop(self) -> Stop:
        key = self.keys[-1]
        stop: Stop | None = STOPS.get(key)
        if stop is None:
            self._arrive()
            with self._guest(self.seed):
                stop = self.world.stop(self.state)
            STOPS.put(key, stop, _weight(stop))
        return stop

    def _arrive(self) -> None:
        for place in range(len(self.moves), self.place + 1, -1):
            state = STATES.get(self.keys[place])
            if state is not None:
                with self._guest(self.seed):
                    self.state = self.world.copied(state)
                    self.place = place
                break
        if self.place < 0:
            started = perf_counter()
            with self._guest(self.seed):
                self.state = self.world.opened(self.seed)
                self.place = 0
            self._keep(started)
        for move, seed in self.moves[self.place :]:
            started = perf_counter()
            with self._guest(seed):
                self.state = self.world.stepped(self.state, move, seed)
            self.place += 1
            self._keep(started)

    def _guest(self, seed: int) -> AbstractContextManager[None]:
        return guest(seed) if self.world.borrows else nullcontext()

    def _keep(self, started: float) -> None:
        """Puts a copy away where the way from the last one took so much longer than a copy takes
        that play keeps four fifths of its speed, since nobody may ever make a fork."""
        self.spent += perf_counter() - started
        kind = self.world.key
        if self.spent < WAY * COSTS.get(kind, 0.0):
            return
        started = perf_counter()
        try:
            with self._guest(self.seed):
                STATES.put(self.keys[self.place], self.world.copied(self.state))
            # the least ever seen: the first copy may have been held up by anything
            COSTS[kind] = min(COSTS.get(kind) or math.inf, perf_counter() - started)
        except Exception:  # a lock, a socket, a generator inside: then a fork steps again
            COSTS[kind] = math.inf
        self.spent = 0.0


def _digest(before: bytes, step: Any) -> bytes:
    text = json.dumps(step, default=repr)
    return blake2b(before + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
