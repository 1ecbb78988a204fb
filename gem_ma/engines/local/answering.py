"""Requests in, replies out: how the requests of several policies become the rows of one batch, and
rows become replies.

Policies that share a base are answered together, and each answers for its faults alone: a request
that cannot be sampled, or a policy whose weights are broken, fails apart from the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.sampling import Draw
from gem_ma.engines.models.served import check_published, said
from gem_ma.engines.models.sight import images_of
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Reply, Request, Usage

STRETCH_S = 20.0  # for which one stream takes requests


class Asked(NamedTuple):
    """A request with its place among the answers, the policy that is asked, and its prompt."""

    place: int
    engine: Any  # a Transformers
    request: Request
    prompt: tuple[int, ...]


Pull = Callable[[], Sequence[tuple[Any, Request]]]
Give = Callable[[int, Reply | Exception], None]


def answered(asked: Sequence[tuple[Any, Request]]) -> list[Reply | Exception]:
    """The answers, in the order of the requests. What fails is the error of its asker."""
    answers: list[Reply | Exception] = [Reply() for _ in asked]
    sound: list[Asked] = []
    for place, (engine, request) in enumerate(asked):
        try:
            sound.append(_begun(place, engine, request)[0])
        except (EngineError, ConfigError) as error:  # the others of its batch are answered
            answers[place] = error
    for row, draw in zip(sound, _drawn(sound), strict=True):
        answers[row.place] = _answer(row, draw)
    return answers


class Stream:
    """Answers requests of a running batch. `pull()` gives those that have come, and
    `give(n, answer)` answers the n-th one that was pulled."""

    def __init__(self, pull: Pull, give: Give) -> None:
        self._pull = pull
        self._give = give
        self._count = 0
        self._running: dict[Draw, Asked] = {}
        # Nothing is pulled after a stretch, so that a publish gets at the weights.
        self._until = time.monotonic() + STRETCH_S

    def run(self, decoder: Decoder) -> None:
        """Samples until nothing runs and nothing comes. Raises where nothing can be sampled."""
        try:
            decoder.run(self._more, self._done)
        except Exception:
            left = list(self._running.values())
            if len({row.engine for row in left}) < 2:
                raise
            # Whose fault it was shows when each policy is sampled alone, from its prompts on.
            for row, draw in zip(left, _drawn(left), strict=True):
                self._give(row.place, _answer(row, draw))

    def _more(self) -> list[Draw]:
        begun: list[Draw] = []
        for engine, request in self._pull() if time.monotonic() < self._until else ():
            place = self._count
            self._count = self._count + 1
            try:
                row, draw = _begun(place, engine, request)
            except (EngineError, ConfigError) as error:  # this request's fault
                self._give(place, error)
                continue
            self._running[draw] = row
            if draw.room:
                begun.append(draw)
            else:
                self._done(draw)
        return begun

    def _done(self, draw: Draw) -> None:
        row = self._running.pop(draw)
        self._give(row.place, _answer(row, draw))


def check_sampling(request: Request) -> None:
    """Raises ConfigError for an option out of range."""
    how = request.sampling
    ranges = {
        "temperature": (0 <= how.temperature < float("inf"), "0 or more"),
        "top_p": (0 < how.top_p <= 1, "above 0 and at most 1"),
        "top_k": (how.top_k >= 0, "0 (off) or more"),
        "max_tokens": (how.max_tokens >= 1, "1 or more"),
    }
    for name, (fits, rule) in ranges.items():
        if not fits:
            raise ConfigError(
                f"agent {request.agent!r}: {name} must be {rule}; got {getattr(how, name)}"
            )


def _begun(place: int, engine: Any, request: Request) -> tuple[Asked, Draw]:
    check_published(engine)
    check_sampling(request)
    row = Asked(place, engine, request, engine.chat.prompt(request))
    return row, _draw(row)


def _draw(row: Asked) -> Draw:
    engine = row.engine
    request = row.request
    how = engine.binding.bound(request)
    sight = engine.vocabulary.sight
    prompt = row.prompt
    pictures = list[Any]()
    if sight is not None:
        prompt, pictures = sight.with_pictures(prompt, request.messages)
    draw: Draw = engine.decoder.draw(
        prompt,
        how.sampling,
        request.seed,
        engine.source,
        # What has no conversation has no next turn. A policy may also want nothing kept.
        keep=bool(request.conversation) and engine.kv_tokens != 0,
        choices=how.choices,
    )
    draw.holds = pictures
    # An answer that is cut by the context would not be a legal one.
    if draw.room < how.longest:
        draw.room = 0
        draw.finish = "context_overflow"
    return draw


def _drawn(asked: Sequence[Asked]) -> list[Draw | Exception]:
    """The sampled row of each. Where that fails for several policies, each is sampled alone, so
    that broken weights are the fault of one policy."""
    if not asked:
        return []
    try:
        # Made anew each time: a row that failed half way has ids and has used its generator.
        draws = [_draw(row) for row in asked]
        asked[0].engine.decoder.finish(draws)
        return list(draws)
    except Exception:
        # In the order of the requests, so that a retry is the same in every run.
        policies = list(dict.fromkeys(row.engine for row in asked))
        if len(policies) == 1:
            raise
    results: dict[int, Draw | Exception] = {}
    for policy in policies:
        rows = [row for row in asked if row.engine is policy]
        try:
            draws_of = _drawn(rows)
        except Exception as error:  # goes to the askers of this policy
            draws_of = [error] * len(rows)
        results |= {row.place: draw for row, draw in zip(rows, draws_of, strict=True)}
    return [results[row.place] for row in asked]


def _answer(row: Asked, draw: Draw | Exception) -> Reply | Exception:
    if isinstance(draw, Exception):
        return draw
    engine = row.engine
    sees = engine.vocabulary.sight is not None
    drawn = Reply(
        prompt_ids=row.prompt,
        token_ids=tuple(draw.ids),
        logprobs=tuple(draw.logprobs),
        finish=draw.finish,
        usage=Usage(len(row.prompt), len(draw.ids), draw.cached),
        # a template shows all of the conversation, so all of its images
        images=tuple(image.digest for image in images_of(row.request.messages)) if sees else (),
    )
    return said(engine, row.request, drawn, engine.version, draw.sampling.stop)
