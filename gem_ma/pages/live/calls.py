"""The model calls of one turn: what was sent, and what came back.

A record holds replies and no request, whose messages would stand in it once a turn. So a request is
rebuilt: the behaviour acts again on the recorded replies, as in a fork, and whatever it asks its
model for is noted. No model is asked. Where that may not be, or does not repeat what was done, the
page says so and shows what the agent was shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from os.path import exists
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gem_ma import registry
from gem_ma.config.settings import Config
from gem_ma.driver.behaviour import as_factory, is_privileged
from gem_ma.driver.forks import Branch, take_over
from gem_ma.driver.seats import Seats, policies_of
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, GemMaError, ReplayError, StoreError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Turn
from gem_ma.pages.static.transcript import cut
from gem_ma.record.codec import shape_of
from gem_ma.runs.export.chats import seen_before
from gem_ma.runs.stored import recorded_config
from gem_ma.runs.worlds import Worlds

MOST = 2_000_000  # characters of a text that are sent to the page
TIMEOUT_S = 30.0  # of acting again: somebody waits for it
SHOWN = "Not rebuilt ({}). A record holds no request: this is what the agent was shown."
BUILT = "Rebuilt from the record: its behaviour acted again on the recorded replies."
BRANCH = " This play is a branch: what the behaviour drew at random before it may be another."


def calls(
    run: Path,
    episode: Episode,
    step: int,
    agent: str,
    *,
    worlds: Worlds | None,
    first: int,
    trusted: bool,
) -> dict[str, Any]:
    """Of the turn of an agent at a step: `note` on how its requests are known, and `calls`, each
    with `title` and `parts` [heading, text]. `first`: the repeat whose random numbers its behaviour
    drew. Raises StoreError where the play has none like it."""
    turn = next((each for each in episode.turns if (each.step, each.agent) == (step, agent)), None)
    if turn is None:
        raise StoreError("the play has no such turn")
    try:
        config = recorded_config(run)
    except StoreError:  # of an older version: how it samples is not known
        config = None
    noted = Noted()
    note = BUILT + BRANCH * bool(episode.forks)
    try:
        _check(episode.cast[agent], worlds, trusted)
        asyncio.run(_act_again(noted, episode, turn, config, worlds, first))
        sent = [_sent(noted, at, config) for at in noted.of_turn(episode, turn)]
    # a behaviour raises what it likes, and the page tells it
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        note = SHOWN.format(why)
        sent = [_shown(episode, turn)] * len(turn.replies)
    pairs = zip(turn.replies, sent, strict=True)
    return {
        "note": note,
        "calls": [
            {
                "title": _title(number, reply, config),
                "parts": [[head, cut(text, MOST)] for head, text in _parts(part, reply, run)],
            }
            for number, (reply, part) in enumerate(pairs, start=1)
        ],
    }


class Noted:
    """An engine that answers nothing, and is told of each request whose reply is on record."""

    def __init__(self) -> None:
        self.known: list[tuple[Request, Reply]] = []

    async def sample(self, request: Request) -> Reply:
        raise ReplayError("its behaviour asks its model for what is not on record")

    def recall(self, request: Request, reply: Reply) -> None:
        """See `Remembers`."""
        self.known.append((request, reply))

    def forget(self) -> None:
        """See `Remembers`."""

    def of_turn(self, episode: Episode, turn: Turn) -> list[int]:
        """The places of the requests of a turn, in order. Raises ReplayError where they are not as
        many as its replies."""
        own = [each.step for each in episode.turns if each.agent == turn.agent].index(turn.step)
        places = [at for at, (request, _) in enumerate(self.known) if request.turn == own]
        if len(places) != len(turn.replies):
            raise ReplayError("its behaviour asks its model less often than on record")
        return places


def _check(seat: Seat, worlds: Worlds | None, trusted: bool) -> None:
    """Raises ConfigError where this behaviour may not act: a run folder may be a stranger's, and
    nothing that it names is run or read unless the user trusts it."""
    summary = seat.memory.get("summary")
    is_code = isinstance(summary, str) and registry.names_code(summary)
    named = [each for each in seat.options.values() if isinstance(each, str) and exists(each)]
    if not trusted and (is_code or named or not registry.known("agents", seat.behaviour)):
        raise ConfigError("its seat names code or a file; to trust it: gem-ma view RUN --trust")
    if worlds is None and is_privileged(as_factory(seat.behaviour)):
        raise ConfigError("its behaviour is given the task: gem-ma view RUN --scenario FILE")


async def _act_again(
    noted: Noted,
    episode: Episode,
    turn: Turn,
    config: Config | None,
    worlds: Worlds | None,
    first: int,
) -> None:
    """Lets the agent of a turn act on recorded replies up to that turn. Raises ReplayError where it
    does not do again what it did."""
    taken = episode.cast[turn.agent]
    known = {} if config is None else config.policies
    policies = {
        name: Policy(name, noted, known[name].sampling if name in known else Sampling())
        for name in policies_of(taken)
    }
    # where the rules may not be asked, their agents suffice
    scenario: Any = SimpleNamespace(id=episode.scenario, agents=tuple(episode.cast))
    task = None
    if worlds is not None:
        scenario = worlds.of_episode(episode).scenario
        task = registry.task_of(scenario, episode.task)
    before = [each for each in episode.turns if each.step < turn.step]
    async with asyncio.timeout(TIMEOUT_S):
        seats = Seats(
            scenario,
            episode.cast,
            policies,
            {},
            task=task,
            id_=episode.id,
            first=first,
            alone=turn.agent,
            max_said=None if config is None else config.run.limits.max_said,
        )
        await take_over(seats, before, Branch(episode, turn.step, "", first, (turn.agent,)))


def _sent(noted: Noted, at: int, config: Config | None) -> tuple[str, Any]:
    """What was sent, with its heading: the JSON of an endpoint, else what an engine is asked."""
    request = noted.known[at][0]
    settings = None if config is None else config.policies.get(request.policy)
    if settings is not None:
        kind = settings.model.partition("/")[0]
        if registry.known("engines", kind) and hasattr(registry.load("engines", kind), "body"):
            # it is asked for the JSON alone, so it needs neither key, folder nor server
            options = {key: each for key, each in settings.options.items() if key != "cache"}
            # a library is missing, or the request holds an image, of which a record has no bytes
            with suppress(GemMaError):
                engine: Any = open_engine(request.policy, settings.model, **options, offline=True)
                for earlier in noted.known[:at]:  # their thoughts may go along
                    engine.recall(*earlier)
                heading = "sent, before anything that its server refuses is left out"
                return heading, engine.body(request)
    sampling = {name: each for name, each in asdict(request.sampling).items() if each is not None}
    body = {"messages": [_message(each, request.agent) for each in request.messages]}
    offered = _offered(request.legal, request.tools)
    return "sent", body | offered | {"sampling": sampling, "seed": request.seed}


def _shown(episode: Episode, turn: Turn) -> tuple[str, Any]:
    """What the agent of a turn had been shown and had said."""
    body = {"messages": [_message(each, turn.agent) for each in seen_before(episode, turn)]}
    return "what the agent was shown", body | _offered(turn.legal, turn.tools)


def _message(message: Message, agent: str) -> dict[str, Any]:
    return {"role": message.role(agent), **shape_of(Message).write(message)}


def _offered(legal: Sequence[str] | None, tools: Sequence[Any]) -> dict[str, Any]:
    choice = {} if legal is None else {"legal": list(legal)}
    return choice | ({"tools": [tool.schema for tool in tools]} if tools else {})


def _title(number: int, reply: Reply, config: Config | None) -> str:
    known = {} if config is None else config.policies
    model = known[reply.policy].model if reply.policy in known else ""
    words = (f"call {number}", reply.policy, model, f"v{reply.version}" * bool(reply.version))
    return ", ".join(word for word in words if word)


def _parts(sent: tuple[str, Any], reply: Reply, run: Path) -> Iterator[tuple[str, str]]:
    """Heading and text of each part of a call, that sent first."""
    yield sent[0], _json(sent[1])
    if reply.prompt_ids:
        words = tokenizer(run, reply.policy)
        if words is not None:
            read = words.decode([*reply.prompt_ids], skip_special_tokens=False)
            yield "prompt as its tokens read, from the record", read
        yield f"prompt, {len(reply.prompt_ids)} token ids from the record", _row(reply.prompt_ids)
    said = replace(reply, prompt_ids=(), token_ids=(), logprobs=())
    yield "came back, from the record", _json(shape_of(Reply).write(said))
    if reply.token_ids:
        yield f"sampled, {len(reply.token_ids)} token ids from the record", _row(reply.token_ids)
    if reply.logprobs:
        yield "their log-probabilities, from the record", _row(reply.logprobs)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _row(numbers: Sequence[float]) -> str:
    return " ".join(map(repr, numbers))


def tokenizer(run: Path, policy: str) -> Any:
    """The tokenizer that lies beside the weights of a policy; None where none is, or none that can
    be read."""
    file = run / "models" / policy / "tokenizer.json"
    if not file.is_file() or file.is_symlink():
        return None
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file))
    # not installed, or no tokenizer of this kind: the numbers stand for themselves
    except Exception:
        return None
