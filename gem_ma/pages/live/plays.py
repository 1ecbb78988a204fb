"""Play in the browser: the scenarios that may be played, the plays that run, and their pages as
functions of a path. It knows no HTTP.

A scenario is one that is built in or installed, or that the user named on the command line;
nothing that a page sends names code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

from gem_ma import registry
from gem_ma.config.loading import Loaded, load
from gem_ma.driver.behaviour import as_factory, needs_policy
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.human import spoken_line, typed_reply, usage
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError, GemMaError, StoreError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Message, Reply, Request, spoken
from gem_ma.pages.live.answers import whole_number
from gem_ma.pages.live.forks import check_player
from gem_ma.pages.static.page import PLAYED, Html, page, render
from gem_ma.pages.static.report import write_report
from gem_ma.pages.static.transcript import key_of, messages_shown, number
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import drawn_seed, score_of, with_person
from gem_ma.runs.store import RunFolder, run_path
from gem_ma.runs.worlds import Worlds

PATIENCE_S = 30 * 60.0  # a question that nobody answers so long ends its play
# plays that run at once; plays that a server remembers
MOST_OPEN = 20
MOST_KEPT = 100
MOST_MOVES = 120  # buttons; the others are typed, as on the page with scripts
WHO = "who."  # before the name of an agent: who plays it
END_S = 5.0  # for the records of plays that are ended
LONGEST_SEED = 15  # digits


class PlayPage(NamedTuple):
    """The page that a browser loads next: that of a play."""

    name: str


class Plays:
    """The plays of one server, by the names of their run folders below `root`."""

    def __init__(self, root: Path, scenario: str | None = None) -> None:
        """`scenario`: one more that may be played, as the user named it."""
        self.root = root
        self.scenario = scenario
        self.patience_s = PATIENCE_S
        self._sittings: dict[str, Sitting] = {}
        self._lock = Lock()

    def close(self) -> None:
        """Ends what runs; each play is recorded as failed."""
        running = self._open()
        for sitting in running:
            sitting.stop("the viewer ended")
        until = monotonic() + END_S
        for sitting in running:
            sitting.wait(until - monotonic())

    # -- answers ----------------------------------------------------------------------------------

    def answer(
        self, parts: list[str], query: Mapping[str, str], token: str
    ) -> str | dict[str, Any]:
        """A page, or what its script asks for: `play`, `play/scenario?name=`, `play/NAME`,
        `play/NAME/state?from=&seen=`. Raises ConfigError, StoreError."""
        if not parts:
            return self._entrance(query, token)
        if parts == ["scenario"]:
            return self._cast(query.get("name", ""))
        sitting = self._sitting(parts[0])
        if len(parts) == 1:
            return _page_of(sitting, token)
        if parts[1:] == ["state"]:
            return sitting.state(whole_number(query.get("from", "0")))
        raise StoreError("there is no such page")

    def change(self, parts: list[str], wish: Mapping[str, Any]) -> dict[str, Any]:
        """What a page does: `play/begin` with `scenario agent seed who`, `play/NAME/answer` with
        `turn text from`, `play/NAME/end`. Raises ConfigError, StoreError, and TypeError or
        ValueError for a field of another type."""
        if parts == ["begin"]:
            return {"name": self._begin(wish)}
        if len(parts) == 2 and parts[1] == "end":
            sitting = self._sitting(parts[0])
            sitting.stop("who played it left")
            sitting.wait(END_S)
            return sitting.state()
        if len(parts) != 2 or parts[1] != "answer":
            raise StoreError("there is no such page")
        # True is an int, too, and JSON knows both
        turn = wish["turn"]
        typed = wish["text"]
        first = wish["from"]
        if type(turn) is not int or type(typed) is not str or type(first) is not int:
            raise TypeError("turn and from are numbers, text is a text")
        return self._sitting(parts[0]).answer(turn, typed, max(0, first))

    def submit(self, parts: list[str], fields: Mapping[str, str], token: str) -> str | PlayPage:
        """What a form does, on a page without scripts: the paths of `change`. Raises as `change`
        does; what can be mended by other fields is told on the page."""
        if parts == ["begin"]:
            wish = begin_wish(fields)
            try:
                name = self._begin(wish)
                # the page that comes next cannot look again by itself
                self._sitting(name).state(seen=0, wait_s=ANSWER_S)
                return PlayPage(name)
            except GemMaError as error:
                return self._entrance(fields, token, str(error))
        if len(parts) != 2 or parts[1] not in ("answer", "end"):
            raise StoreError("there is no such page")
        sitting = self._sitting(parts[0])
        fault = ""
        if parts[1] == "end":
            self.change(parts, {})
        else:
            try:
                fault = self.change(parts, answer_wish(fields, sitting.state()))["said"]
            except StoreError as error:
                fault = str(error)
        # a page that is loaded by its address may be loaded again, and sends no move twice
        return _page_of(sitting, token, fault) if fault else PlayPage(sitting.name)

    # -- beginning a play -------------------------------------------------------------------------

    def _offered(self) -> list[str]:
        named = [self.scenario] if self.scenario is not None else []
        return list(dict.fromkeys((*named, *sorted(registry.catalog("scenarios")))))

    def _cast(self, name: str) -> dict[str, Any]:
        """The agents of a scenario, and who plays them by default."""
        seats = self._loaded(name).config.agents
        agents = [[agent, seat.behaviour] for agent, seat in seats.items()]
        return {"agents": agents, "behaviours": _without_model()}

    def _loaded(self, name: str) -> Loaded:
        # before anything is looked up: a name may be `module:Class`, which would import code
        if name not in self._offered():
            raise ConfigError(
                f"no scenario {name[:80]!r} is offered here; one more is named by: gem-ma view"
                " --scenario FILE (or an id, as openspiel:kuhn_poker)"
            )
        with _making(name):
            return load(name).without_training()

    def _begin(self, wish: Mapping[str, Any]) -> str:
        """Begins a play and gives its name; whatever is wrong is found before a folder is made."""
        name = str(wish["scenario"])
        agent = str(wish["agent"])
        config = self._loaded(name).config
        if agent not in config.agents:
            raise ConfigError(f"no agent is called {agent!r}")
        who = {other: str(plays) for other, plays in dict(wish["who"]).items() if plays}
        for other, plays in who.items():
            if other == agent or other not in config.agents:
                raise ConfigError(f"no other agent is called {other!r}")
            check_player(other, plays)
        # overrides: only names that were checked stand in them
        words = [f"agents.{in_quotes(other)}={plays}" for other, plays in who.items()]
        seed = _seed(wish["seed"])
        with _making(name):
            loaded = with_person(name, words, agent, seed=seed)
            opened = open_config(loaded)
            # the person answers in the browser, and nobody else here has a model
            opened.policies = {}
            worlds = opened.worlds
            (world,) = worlds.played
            plan = next(worlds.plans())
        for other, seat in world.config.agents.items():
            if other != agent and (seat.policy or seat.policies):
                raise ConfigError(f"agent {other!r} has a model; choose a behaviour for it")
        sitting = Sitting(agent, loaded, worlds, plan, self.patience_s)
        # two plays of one start may not find the same folder free
        with self._lock:
            if len(self._open()) >= MOST_OPEN:
                raise ConfigError(f"{MOST_OPEN} plays are open; end one of them first")
            path = _free(run_path(f"play-{loaded.stem}", loaded.identity(), self.root))
            sitting.begin(opened.folder(path))
            self._sittings[sitting.name] = sitting
            self._forget()
        return sitting.name

    def _open(self) -> list[Sitting]:
        # a copy first: another request may begin a play meanwhile
        return [sitting for sitting in [*self._sittings.values()] if sitting.end is None]

    def _forget(self) -> None:
        """Lets the oldest plays go that have ended; their run folders stay."""
        over = [name for name, sitting in self._sittings.items() if sitting.end is not None]
        for name in over[: max(0, len(self._sittings) - MOST_KEPT)]:
            del self._sittings[name]

    def _sitting(self, name: str) -> Sitting:
        sitting = self._sittings.get(name)
        if sitting is None:
            raise StoreError("there is no such play; one that has ended is among the runs")
        return sitting

    # -- pages ------------------------------------------------------------------------------------

    def _entrance(self, query: Mapping[str, str], token: str, fault: str = "") -> str:
        """The page on which a play is chosen, with those that wait for an answer. `fault`: why the
        one that was wanted did not begin."""
        names = self._offered()
        wanted = query.get("scenario", self.scenario or "kuhn_poker")
        agent = query.get("agent", "")
        try:
            cast = self._cast(wanted)
        except GemMaError as error:
            cast = {"agents": []}
            fault = fault or str(error)
        body = render(
            "begin",
            fault=fault,
            names=[(name, name) for name in names],
            scenario=wanted,
            token=token,
            cast=cast,
            seats=[(name, name) for name, _ in cast["agents"]],
            agent=agent,
            who=WHO,
            open=self._open(),
        )
        return page("Play", body, {"token": token, "agent": agent}, live=True, scripts=PLAYED)


def _page_of(sitting: Sitting, token: str, fault: str = "") -> str:
    plan = sitting.plan
    title = f"{plan.scenario.id}: you are {sitting.agent}"
    facts = f"seed {sitting.seed} · task {plan.task} · run folder {sitting.name}"
    agents = [
        [agent, "you" if agent == sitting.agent else plan.cast[agent].behaviour]
        for agent in plan.scenario.agents
    ]
    body = render(
        "play",
        title=title,
        summary=plan.scenario.summary,
        facts=facts,
        text=sitting.text(),
        turn=turn_form(sitting.name, sitting.state(), token, fault),
    )
    seat = {"scenario": plan.scenario.id, "me": sitting.agent, "agents": agents}
    data = {"token": token, "play": {"name": sitting.name, **seat}}
    return page(title, body, data, live=True, scripts=PLAYED)


# -- without scripts: a browser sends forms by itself, and the answer is the page again -----------


def turn_form(name: str, state: Mapping[str, Any], token: str, fault: str = "") -> Html:
    """What may be done at this moment of a play. `fault`: why the last answer did not count."""
    fields = {"end": state["end"], "asked": state["asked"], "most": MOST_MOVES}
    return render("turn", name=name, token=token, fault=fault, **fields)


def begin_wish(fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the form of a new play, as a page with scripts would send
    them. Raises KeyError."""
    agent = fields["agent"]
    # an agent may have the name of another field
    who = {
        key.removeprefix(WHO): name.strip()
        for key, name in fields.items()
        if key.startswith(WHO) and key != WHO + agent
    }
    return {"scenario": fields["scenario"], "agent": agent, "seed": fields["seed"], "who": who}


def answer_wish(fields: Mapping[str, str], state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `turn_form` as a page with scripts would send them in this state. Raises
    KeyError, ValueError, StoreError."""
    turn = int(fields["turn"])
    asked = state["asked"]
    typed = fields.get("text", "").replace("\r\n", "\n")
    if "move" in fields:
        # sent twice, or too late: the moves of another turn are other moves
        if asked is None or asked["turn"] != turn:
            raise StoreError("this turn is over already")
        legal = asked["legal"] or []
        place = int(fields["move"])
        if not 0 <= place < len(legal):
            raise StoreError("there is no such move")
        typed = legal[place]
    return {"turn": turn, "text": typed, "from": 0}


@contextmanager
def _making(name: str) -> Iterator[None]:
    """Whatever a scenario raises while it is made becomes a ConfigError: a user's file may raise
    anything."""
    try:
        yield
    except GemMaError:
        raise
    except Exception as error:
        fault = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"the scenario {name!r} cannot be made: {fault}") from error


@cache
def _without_model() -> list[str]:
    """The behaviours that need no model. A package that is broken offers none."""
    names = []
    for name in registry.catalog("agents"):
        with suppress(Exception):
            if not needs_policy(name, as_factory(name)):
                names.append(name)
    return sorted(names)


def _seed(typed: Any) -> int:
    digits = str(typed).strip()
    if not digits:
        return drawn_seed()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_SEED):
        raise ConfigError(f"the seed is a whole number of {LONGEST_SEED} digits at most")
    return int(digits)


def _free(path: Path) -> Path:
    """The path, with a number behind it where there is such a folder: the same start is played
    anew each time."""
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


# -- a play in which somebody has a seat -----------------------------------------------------------

# It shows what that agent was shown, and asks when it is asked; what the others saw and did stays
# in the record until the play is over.


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
                score = score_of(self._loaded, self._worlds, folder)
                folder.write_summary(score, of_all=True)
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
