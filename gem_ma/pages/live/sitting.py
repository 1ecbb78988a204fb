"""One play in which somebody in a browser has a seat. It shows what that agent was shown, and asks
when it is asked; what the others saw and did stays in the record until the play is over.

It knows games and engines, nothing of pages or HTTP.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from gem_ma.config.loading import Loaded
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.human import spoken_line, typed_reply, usage
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import EngineError, GemMaError, StoreError
from gem_ma.kernel.parsing import clean
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Message, Reply, Request, spoken
from gem_ma.pages.static.report import write_report
from gem_ma.pages.static.transcript import key_of, messages_shown, number
from gem_ma.runs.playing import score_of
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds

ANSWER_S = 1.0  # how long a request waits for what comes next; mostly the others act at once
MOST_TEXT = 1_000_000  # characters of a message: who plays must be able to read all of it


class Sitting:
    """A person's seat in a play that runs in a thread. It is the engine of that seat, too: each
    question has a number and waits for one answer."""

    def __init__(
        self,
        agent: str,
        loaded: Loaded,
        worlds: Worlds,
        plan: Plan,
        patience_s: float,
    ) -> None:
        """`patience_s`: how long a question stands before the play fails."""
        self.agent = agent
        self.plan = plan
        self.patience_s = patience_s
        self._loaded = loaded
        self._worlds = worlds
        self.name = ""
        self.end: dict[str, Any] | None = None
        # what follows is read by requests while the thread of the play writes it
        self._news = Condition()
        self._view: tuple[Message, ...] = ()
        self._number = 0
        self._request: Request | None = None
        self._answer: Future[Reply] = Future()
        self._stopped = ""

    def begin(self, folder: RunFolder) -> None:
        """Plays in a thread into an open run folder, and closes it."""
        self.name = folder.path.name
        # a daemon: a scenario that never ends may not keep the server from ending
        self._thread = Thread(target=self._play, args=(folder,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self, why: str) -> None:
        """Has the play end as failed; `wait` tells when it is recorded."""
        with self._news:
            self._stopped = why
            if self._request is not None:
                self._finish(EngineError(self._unanswered(why)))

    def wait(self, seconds: float) -> None:
        """Waits until the play is recorded, and no longer than this: a scenario may never end."""
        self._thread.join(max(0.0, seconds))

    @property
    def seed(self) -> int:
        """The start, as it is typed to play it again."""
        return self._loaded.config.run.seed

    # -- what a page asks -------------------------------------------------------------------------

    def state(self, first: int = 0, seen: int | None = None, wait_s: float = 0.0) -> dict[str, Any]:
        """What the page shows: messages from place `first` on, and the open question or the end.
        Waits so long for another question than number `seen`."""
        with self._news:
            self._news.wait_for(lambda: self._is_newer(seen), wait_s if seen is not None else 0.0)
            asked = self._question() if self._request is not None else None
            shown = messages_shown(self._view[first:], lambda digest: None, MOST_TEXT)
            return {"messages": shown, "first": first, "asked": asked, "end": self.end}

    def text(self) -> str:
        """What the agent was shown and did so far, for a page without scripts."""
        with self._news:
            return "\n".join(map(spoken_line, self._view))

    def answer(self, turn: int, text: str, first: int) -> dict[str, Any]:
        """Takes what was typed for a question, once, and gives what comes of it; a typing error is
        not a move. `said` tells the person why nothing was done."""
        fault = ""
        with self._news:
            request = self._request
            # sent twice, by another tab, or too late: the first answer counts
            if request is None or turn != self._number:
                fault = "this turn is over already"
            else:
                reply = typed_reply(clean(text), request)
                if isinstance(reply, Reply):
                    self._finish(reply)
                else:
                    fault = reply
        if fault:
            return {**self.state(first), "said": fault}
        return {**self.state(first, turn, ANSWER_S), "said": ""}

    def _is_newer(self, seen: int | None) -> bool:
        return self.end is not None or (self._request is not None and self._number != seen)

    def _question(self) -> dict[str, Any]:
        request = self._request
        assert request is not None
        tools = [(tool.name, usage(tool).strip()) for tool in request.tools]
        return {"turn": self._number, "legal": request.legal, "tools": tools}

    def _finish(self, reply: Reply | Exception) -> None:
        """Answers the open question; one that nobody waits for any more stays without."""
        self._request = None
        # the play may have been cut by the clock at this very moment
        try:
            if isinstance(reply, Reply):
                self._answer.set_result(reply)
            else:
                self._answer.set_exception(reply)
        except InvalidStateError:
            pass

    # -- the play ---------------------------------------------------------------------------------

    async def sample(self, request: Request) -> Reply:
        """What the person answers. Raises EngineError where nobody does."""
        answer: Future[Reply] = Future()
        with self._news:
            if self._stopped:
                raise EngineError(self._unanswered(self._stopped))
            # behind the last look: what the agent's own behaviour adds belongs to its view
            self._view = tuple(request.messages)
            self._request = request
            self._answer = answer
            self._number += 1
            self._news.notify_all()
        try:
            reply = await asyncio.wait_for(asyncio.wrap_future(answer), self.patience_s)
            return replace(reply, policy=request.policy)
        except TimeoutError:
            minutes = f"{self.patience_s / 60:g} minutes are over"
            raise EngineError(self._unanswered(minutes)) from None
        finally:
            with self._news:
                self._request = None

    def _unanswered(self, why: str) -> str:
        return f"nobody answered agent {self.agent!r}: {why}"

    def _look(self, game: Game) -> None:
        with self._news:
            self._view = game.view(self.agent)
            self._news.notify_all()

    def _play(self, folder: RunFolder) -> None:
        end: dict[str, Any] = {"error": "the play was not recorded", "totals": []}
        try:
            with folder:
                # the seat of a person is that of a model: only who answers is another
                policy = self.plan.cast[self.agent].policy
                policies = {policy: Policy(policy, self)} if policy is not None else {}
                episode = asyncio.run(play(self.plan, policies, watch=self._look))
                folder.append([episode])
                folder.write_summary(score_of(self._loaded, self._worlds, folder))
            end = self._ended(episode, folder.path)
        except GemMaError as error:
            end["error"] = str(error)
        # whatever it is, the page of the play tells it, and nobody reads this thread's stderr
        except Exception as error:
            end["error"] = f"{type(error).__name__}: {error}"
        finally:
            with self._news:
                self.end = end
                self._request = None
                self._news.notify_all()

    def _ended(self, episode: Episode, path: Path) -> dict[str, Any]:
        """How it ended, for the page, which may now show the score of everybody."""
        view: list[Message] = []
        for turn in episode.turns:
            if turn.agent == self.agent:
                view += [*turn.observed, spoken(turn.agent, turn.action)]
        self._view = (*view, *episode.final.get(self.agent, ()))
        error = episode.error
        try:
            write_report(path, judge=self._worlds.judge)
        except StoreError as fault:  # costs a line, not the play
            error = f"{error}; no report: {fault}" if error else f"no report: {fault}"
        # in the order of the scenario; the ledger names first who was paid first
        paid = episode.returns()
        return {
            "how": episode.end.value.replace("_", " "),
            "error": error,
            "won": self._worlds.success(episode) if episode.end.scored else None,
            "totals": [[agent, number(paid[agent])] for agent in self.plan.scenario.agents],
            "key": key_of(*episode.id),
        }
