"""The replay engine: answers every request with the reply that a recorded run got for it. Nothing
is sampled.

A request is known by its seed, which is a digest of (task, seed, repeat, agent, turn, call); so a
run over the same plans is repeated exactly, at any concurrency.

One side of a record can be replayed against a new player of the other side. A side that was played
without a model answers with its recorded actions; with `actions: true` every side does. Seat it
with the behaviour `direct`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from gem_ma.engines.base import Engine, stable_seed
from gem_ma.engines.capabilities import Remembers
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import DataError, EngineError, GemMaError
from gem_ma.kernel.types import Reply, Request
from gem_ma.record.codec import load_episode
from gem_ma.system.parts import RECORD, open_parts


class Recorded(NamedTuple):
    """A reply, and the choice that it answered."""

    reply: Reply
    legal: tuple[str, ...] | None


class Replay:
    """`replay/<run folder>` or `replay/<file of episodes, one JSON per line>`."""

    def __init__(
        self,
        name: str,
        *,
        policy: str = "replay",
        actions: bool = False,
        episodes: Iterable[Episode] | None = None,
    ) -> None:
        """`actions`: the answer is what the agent did in the end, not what its model wrote call
        by call."""
        self.name = name
        self.policy = policy
        self._answers = answers(
            read(Path(name).expanduser()) if episodes is None else episodes,
            "always" if actions else "bots",
        )

    @classmethod
    def of(
        cls, episodes: Iterable[Episode], *, policy: str = "replay", actions: bool = False
    ) -> Replay:
        """An engine out of episodes that are already in memory."""
        return cls("given", policy=policy, actions=actions, episodes=episodes)

    async def sample(self, request: Request) -> Reply:
        """The recorded reply. Raises EngineError where the record holds none, or was asked for
        another choice."""
        recorded = self._answers.get(request.seed)
        where = (
            f"policy {self.policy!r}: {self.name}: agent {request.agent!r}, turn {request.turn} of"
            f" {request.conversation}"
        )
        if recorded is None:
            raise EngineError(
                f"{where}: the record holds no reply to this request; is it the same plan, and the"
                " same behaviour?"
            )
        # the same words would be another move where other moves are legal
        if request.legal is not None and request.legal != recorded.legal:
            raise EngineError(
                f"{where}: the legal strings are {request.legal}, on record {recorded.legal}; is it"
                " the same version of the scenario?"
            )
        if recorded.reply.policy:
            return recorded.reply
        return replace(recorded.reply, policy=request.policy or self.policy)


def digest_of(request: Request) -> str:
    """What tells a request from every other one, in whichever process it is made."""
    # as a tuple: msgspec knows no transcripts
    whole = replace(request, messages=tuple(request.messages))
    try:
        data = _ENCODE(whole)  # in a sixth of the time of `repr`
    except (ValueError, TypeError, OverflowError):  # it takes no lone surrogates, no huge integers
        data = repr(whole).encode("utf-8", "replace")
    return sha256(data).hexdigest()


_ENCODE = msgspec.json.Encoder(enc_hook=repr).encode


class Remembered:
    """Answers with the replies that interrupted plays already got (`known`, by the digest of their
    request), and asks `engine` for all others. `keep` is called with every new reply and its
    request before anybody else sees it.

    The whole request counts: a person, a program outside or a sampler that rounds may say
    something else in a play that begins again, and what was bought answers the old words.
    """

    def __init__(
        self,
        engine: Engine,
        known: Mapping[str, Reply],
        keep: Callable[[Request, Reply], None] = lambda *_: None,
    ) -> None:
        self.engine = engine
        self.known = known
        self.keep = keep

    async def sample(self, request: Request) -> Reply:
        reply = self.known.get(digest_of(request)) if self.known else None
        if reply is None:
            reply = await self.engine.sample(request)
            self.keep(request, reply)
        elif isinstance(self.engine, Remembers):  # so that its next prompt goes on from these ids
            self.engine.recall(request, reply)
        return reply


def answers(
    episodes: Iterable[Episode], actions: Literal["never", "bots", "always"] = "never"
) -> dict[int, Recorded]:
    """Request seed -> recorded reply; of two episodes with one id the later one counts. `actions`:
    whose actions stand for replies: nobody's, those of turns without a model call, or all."""
    recorded: dict[int, Recorded] = {}
    for episode in episodes:
        turns = dict.fromkeys(episode.cast, 0)  # of each agent: requests count its own turns
        for turn in episode.turns:
            replies = turn.replies
            # a bot's turn has no reply, and its action is what another player of its side can say
            if actions == "always" or (actions == "bots" and not replies):
                replies = (Reply(turn.action.text, turn.action.tool_calls),)
            for call, reply in enumerate(replies):
                seed = stable_seed(*episode.id, turn.agent, turns[turn.agent], call)
                recorded[seed] = Recorded(reply, turn.legal)
            turns[turn.agent] += 1
    return recorded


def read(path: Path) -> list[Episode]:
    """The episodes of a run folder or file. A last line without its line end was cut by a crash
    and is left out."""
    # the library's own view of a run folder stands floors above: a replay reads its lines
    file = path / RECORD if path.is_dir() else path
    try:
        with open_parts(file, file.parent) as opened:
            lines = opened.read().split(b"\n")
    except OSError as error:
        raise DataError(f"{file}: cannot be replayed: {error.strerror or error}") from error
    episodes = []
    # behind the last line end stands nothing, or what a crash has cut
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            episodes.append(load_episode(line))
        except (GemMaError, ValueError) as error:
            raise DataError(f"{file}:{number}: {error}") from error
    return episodes
