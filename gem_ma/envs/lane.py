"""One environment of many: its play, and what it waits for.

A call of the scenario, or a behaviour in another seat, runs beside; whoever holds the lane looks
after it. What fails ends this environment, and no other. Who holds it is `vector`'s business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gem_ma.driver.calling import Outside, late
from gem_ma.envs.loop import Flights, landed
from gem_ma.envs.others import Others
from gem_ma.envs.session import Session
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action


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
