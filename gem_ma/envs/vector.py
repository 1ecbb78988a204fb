"""Many environments of one agent each, stepped without a barrier: who waits for something slow (a
call of the scenario, a model in another seat) holds nobody else.

Rules run where the caller runs; calls and behaviours that wait run beside, and are looked after
whenever the caller steps. What fails ends its own environment. Nothing starts again unasked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import index
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from gem_ma.driver.limits import Outside, late
from gem_ma.envs.loop import Flights, landed
from gem_ma.envs.others import Others
from gem_ma.envs.session import Session, seed_of
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ActionError, ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action
from gem_ma.kernel.views import read

# One environment of many: its play, and what it waits for.
# A call of the scenario, or a behaviour in another seat, runs beside; whoever holds the lane looks
# after it. What fails ends this environment, and no other. Who holds it is `vector`'s business.


class Transition(NamedTuple):
    """What an environment gives, as Gymnasium's `step` does. At the end of an episode the
    observation is the final one. Where the environment failed, `truncated` is true and
    `info["error"]` says why."""

    observation: dict[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        """The episode is over: the environment waits for `reset`."""
        return self.terminated or self.truncated


class Lane:
    """One environment: its play, and what it waits for."""

    def __init__(
        self,
        session: Session,
        agent: str | None,
        others: Mapping[str, Any],
        timeout_s: float | None,
    ) -> None:
        names = session.agents
        if agent is None and len(names) > 1:
            raise ConfigError(
                f"{session.name}: say which agent is yours (agent=), of {', '.join(names)}"
            )
        self.session = session
        self.agent = agent or names[0]
        self._timeout_s = timeout_s
        self._others = Others(session, self.agent, others)
        self.asked = self.ended = False  # waits for an action; for a reset
        self._call: Outside | None = None
        self.until: float | None = None  # then it is given up, by time.monotonic()
        self._flights: Flights = {}  # of behaviours
        self._actions: dict[str, Any] = {}  # for the open decision point
        self._seen: dict[str, Any] = {"messages": ()}
        self.report: Callable[[], None] = lambda: None  # something came that it waits for

    @property
    def flying(self) -> bool:
        """It waits for something."""
        return self._call is not None or bool(self._flights)

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Transition | None:
        """Starts an episode, whatever was going on."""
        self.close()
        self.ended = False
        return self._guarded(lambda: self._start(seed, options))

    def act(self, action: Action) -> Transition | None:
        """Takes the agent's action; the step, or None where it is under way."""
        self.asked = False
        return self._guarded(lambda: self._answer({self.agent: action}))

    def look(self) -> Transition | None:
        """Goes on where everything waited for has come, or is given up; the step, if that ends
        it."""
        if not self.flying:
            return None  # what came was left behind by a reset
        patient = self.until is None or time.monotonic() < self.until
        return None if patient and not self._came() else self._guarded(self._arrived)

    def _came(self) -> bool:
        if self._call is not None:
            return self._call.outcome is not None
        return all(flight.done() for flight in self._flights.values())

    def _wait(self) -> None:
        """Reports this lane, to be looked at, as soon as a behaviour has answered."""
        for flight in self._flights.values():
            flight.add_done_callback(lambda _: self.report())

    def close(self) -> None:
        """Ends the play; what runs beside is left behind."""
        for flight in self._flights.values():
            flight.cancel()
        if self._call is not None:
            self._call.leave()
        self.until = None
        self.asked = False
        self._call = None
        self._flights = {}
        self._actions = {}
        self.session.close()

    # -- the play ---------------------------------------------------------------------------------

    def _guarded(self, move: Callable[[], Transition | None]) -> Transition | None:
        try:
            return move()
        except ConfigError:
            raise  # what was typed is wrong, and no episode would go better
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")
        except BaseException:  # Ctrl-C: where this play stands is not known
            self._failed("interrupted")
            raise

    def _failed(self, why: str) -> Transition:
        try:
            self.close()
        except Exception as error:
            why += f"; and while it was closed: {error}"
        self.ended = True
        return Transition(self._seen, 0.0, False, True, {"active": False, "error": why})

    def _start(self, seed: int | None, options: Mapping[str, Any] | None) -> Transition | None:
        game = self.session.reset(seed, options)
        self._others.seat(game)
        return self._go_on()

    def _go_on(self) -> Transition | None:
        """Plays until the agent is asked, the episode is over, or something slow has to come."""
        session = self.session
        while True:
            game = session.playing()
            if game.waiting is not None:
                self._call = Outside(game.waiting, self.report)
                if self._timeout_s is not None:
                    self.until = time.monotonic() + self._timeout_s
                return None
            if session.end is not None or game.over or self.agent in game.left:
                self.ended = True
                return self._step()
            if self.agent in game.pending:
                self.asked = True
                return self._step()
            self._actions, self._flights = self._others.begin(game)
            if self._flights:
                self._wait()
                return None
            session.commit(landed(self._actions, {}))

    def _answer(self, action: Mapping[str, Any]) -> Transition | None:
        """The agent has acted; those who are asked at the same moment act now."""
        self._actions, self._flights = self._others.begin(self.session.playing())
        self._actions |= action
        if self._flights:
            self._wait()
            return None
        self.session.commit(landed(self._actions, {}))
        return self._go_on()

    def _arrived(self) -> Transition | None:
        call = self._call
        self._call = None
        self.until = None
        if call is not None:
            call.leave()
            self.session.answer(*(call.outcome or late(self._timeout_s)))
        else:
            flights = self._flights
            self._flights = {}
            self.session.commit(landed(self._actions, flights))
        return self._go_on()

    def _step(self) -> Transition:
        session = self.session
        agent = self.agent
        self._seen = session.observe(agent)
        terminated = session.terminated(agent)
        return Transition(
            self._seen,
            session.rewards().get(agent, 0.0),
            terminated,
            session.truncated(agent),
            session.info(agent),
        )


# the id of a scenario, a scenario, or {"id": ..., "agent": ..., "others": ..., options}
Choice = str | Scenario | type[Scenario] | Mapping[str, Any]


class Vector:
    """So many environments, by their number. `step` takes actions by number and gives those that
    are ready, the others later.

    >>> vector = make_vec("guess_number", 3)
    >>> ready, won = vector.reset(), 0.0
    >>> while ready:
    ...     won += sum(step.reward for step in ready.values())
    ...     ready = vector.step({number: "5" for number in vector.asked})
    """

    def __init__(self, lanes: Sequence[Lane], seeds: Sequence[int | None], autoreset: bool) -> None:
        self._lanes = lanes
        self._seeds = list(seeds)
        self.autoreset = autoreset
        self._new = [True] * len(lanes)  # before the first episode, which has the seed
        # numbers of those to look at: something came. Threads put them in
        self._came = SimpleQueue[int]()
        for number, lane in enumerate(lanes):
            lane.report = partial(self._came.put, number)

    def __len__(self) -> int:
        return len(self._lanes)

    def __enter__(self) -> Vector:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def asked(self) -> tuple[int, ...]:
        """Numbers of the environments that wait for an action."""
        return tuple(number for number, lane in enumerate(self._lanes) if lane.asked)

    @property
    def ended(self) -> tuple[int, ...]:
        """Numbers of those whose episode is over, or failed: they wait for a reset."""
        return tuple(number for number, lane in enumerate(self._lanes) if lane.ended)

    def game(self, number: int) -> Game:
        """The play itself, for what a step does not show."""
        return self._lanes[self._number(number)].session.playing()

    def reset(
        self,
        numbers: Iterable[int] | None = None,
        *,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        least: int = 1,
        timeout_s: float | None = None,
    ) -> dict[int, Transition]:
        """Starts these environments, by default all; gives those that are ready, as `step` does.

        `seed`: environment i gets seed + i. Without one, its first episode has the seed of
        `make_vec`, and each further one comes from the stream that this began. `options`: as in
        `gym_env`, `{"task": ...}`.
        """
        if numbers is not None and not isinstance(numbers, Iterable):
            raise ActionError(f"reset takes numbers of environments, as [0, 2]; got {numbers!r}")
        chosen = list(range(len(self))) if numbers is None else list(map(self._number, numbers))
        first = None if seed is None else seed_of(seed)
        ready: dict[int, Transition] = {}
        for number in chosen:
            own = self._seeds[number] if self._new[number] else None
            self._start(number, own if first is None else first + number, options, ready)
        return self._gathered(ready, least, timeout_s)

    def step(
        self,
        actions: Mapping[int, str | Action] | None = None,
        *,
        least: int = 1,
        timeout_s: float | None = None,
    ) -> dict[int, Transition]:
        """Acts in these environments, and gives all that are ready now: at least `least`, fewer
        where fewer are under way or after `timeout_s` seconds; {} where none is.

        With `autoreset` those that ended before start anew, and give a first step. Raises
        ActionError, and changes nothing, for a number that waits for no action and for what is no
        action.
        """
        if actions is not None and not isinstance(actions, Mapping):
            kind = type(actions).__name__
            raise ActionError(f"step takes actions by number, as {{0: ACTION}}; got {kind}")
        read_actions = {
            # numpy's numbers too, of which a dict with plain ones knows nothing
            self._number(number): self._read(number, action)
            for number, action in (actions or {}).items()
        }
        ready: dict[int, Transition] = {}
        for number in self.ended if self.autoreset else ():
            self._start(number, None, None, ready)
        for number, action in read_actions.items():
            step = self._lanes[number].act(action)
            if step is not None:
                ready[number] = step
        return self._gathered(ready, least, timeout_s)

    def close(self) -> None:
        """Ends all plays; may be called twice."""
        for lane in self._lanes:
            lane.close()

    def _start(
        self,
        number: int,
        seed: int | None,
        options: Mapping[str, Any] | None,
        ready: dict[int, Transition],
    ) -> None:
        self._new[number] = False
        step = self._lanes[number].reset(seed, options)
        if step is not None:
            ready[number] = step

    def _gathered(
        self, ready: dict[int, Transition], least: int, timeout_s: float | None
    ) -> dict[int, Transition]:
        """These, and what has come meanwhile; waits for more where there are too few."""
        if type(least) is not int:
            raise ActionError(f"least is a number of environments; got {least!r}")
        _check_seconds("timeout_s", timeout_s)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        numbers = self._arrivals(0.0)
        while True:
            for number in numbers:
                step = self._lanes[number].look()
                if step is not None:
                    ready[number] = step
            if len(ready) >= least or not any(lane.flying for lane in self._lanes):
                return ready
            now = time.monotonic()
            if until is not None and now >= until:
                return ready
            # waits no longer than until the next call is given up
            ends = [lane.until for lane in self._lanes if lane.until is not None]
            end = min(ends if until is None else [*ends, until], default=None)
            numbers = self._arrivals(None if end is None else max(end - now, 0.0))

    def _arrivals(self, patience_s: float | None) -> set[int]:
        """Numbers of the environments for which something came, within so many seconds (None:
        however long), and of those whose calls are given up."""
        numbers = set[int]()
        try:
            numbers.add(self._came.get(patience_s != 0, patience_s))
            while True:
                numbers.add(self._came.get_nowait())
        except Empty:
            now = time.monotonic()
            given_up = (n for n, lane in enumerate(self._lanes) if (lane.until or now + 1) <= now)
            return numbers.union(given_up)

    def _number(self, number: Any) -> int:
        try:
            place = -1 if isinstance(number, bool) else index(number)
        except TypeError:
            place = -1
        if not 0 <= place < len(self):
            raise ActionError(f"no environment is {number!r}; they are 0 to {len(self) - 1}")
        return place

    def _read(self, number: int, action: str | Action) -> Action:
        number = self._number(number)
        lane = self._lanes[number]
        if not lane.asked:
            state = "is under way" if lane.flying else "is closed: reset it"
            state = "has ended: reset it" if lane.ended else state
            state = state if not self._new[number] else "was never reset"
            raise ActionError(f"environment {number} ({lane.session.name}) {state}")
        try:
            game = lane.session.playing()
            return read(action, game.pending[lane.agent], game.max_said)
        except ActionError as error:
            raise ActionError(f"environment {number} ({lane.session.name}): {error}") from error


def make_vec(
    ids: Choice | Sequence[Choice],
    n: int | None = None,
    *,
    agent: str | None = None,
    others: Mapping[str, Any] | None = None,
    seed: int | Sequence[int] | None = 0,
    autoreset: bool = False,
    split: str = "train",
    limits: Limits | None = None,
    max_steps: int | None = None,
    call_timeout_s: float | None = 60.0,
    **options: Any,
) -> Vector:
    """`n` environments of these scenarios in turn; by default one of each.

    An entry of `ids` is the id of a scenario, a scenario, or `{"id": ..., "agent": ..., "others":
    ..., ...}` where environments differ; the other arguments hold for all, as in `gym_env`.
    `seed`: the first of consecutive seeds, one for each environment, or None for seeds that
    differ each time. `autoreset`: an environment that ended resets at the next `step`, after its
    final step was returned. The other parameters are those of `gym_env`.
    """
    listed: Any = [ids] if isinstance(ids, (str, Scenario, type, Mapping)) else ids
    if not isinstance(listed, Iterable) or isinstance(listed, (set, frozenset)):
        raise ConfigError(f"make_vec takes an id, or a list of them in order; got {ids!r}")
    entries: list[Any] = list(listed)
    # numpy's numbers too
    count: Any = len(entries) if n is None else index(n) if _is_whole(n) else n
    if type(count) is not int or count < 1 or not entries:
        raise ConfigError(f"make_vec makes 1 environment or more; got {count!r} of {entries!r}")
    seeds = _seeds(seed, count)
    _check_seconds("call_timeout_s", call_timeout_s)
    lanes = []
    for number in range(count):
        entry = entries[number % len(entries)]
        chosen = dict(entry) if isinstance(entry, Mapping) else {"id": entry}
        if "id" not in chosen:
            raise ConfigError(f"make_vec: an entry has an id, as {{'id': NAME}}; got {entry!r}")
        taken = {"agent": agent, "others": others or {}, **options, **chosen}
        session = Session(
            taken.pop("id"),
            split=taken.pop("split", split),
            limits=taken.pop("limits", limits),
            max_steps=taken.pop("max_steps", max_steps),
            task=taken.pop("task", None),
            defer_calls=True,
            options={k: v for k, v in taken.items() if k not in ("agent", "others")},
        )
        lanes.append(Lane(session, taken["agent"], taken["others"], call_timeout_s))
    return Vector(lanes, seeds, autoreset)


def _seeds(seed: Any, count: int) -> list[int | None]:
    """A seed for each environment. None draws one when it is reset."""
    if seed is None:
        return [None] * count
    # a set has no order, and the letters of a text are not numbers
    listed = isinstance(seed, Iterable) and not isinstance(
        seed, (str, bytes, Mapping, set, frozenset)
    )
    if not listed or getattr(seed, "shape", None) == ():  # numpy's array of one number
        first = seed_of(seed)
        return [first + number for number in range(count)]
    seeds = [None if each is None else seed_of(each) for each in seed]
    if len(seeds) != count:
        raise ConfigError(f"make_vec: {count} environments and {len(seeds)} seeds")
    return seeds


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, type))


def _check_seconds(name: str, value: Any) -> None:
    if value is not None and (type(value) not in (int, float) or not value >= 0):
        raise ConfigError(f"{name} is a number of seconds, or None for no end; got {value!r}")
