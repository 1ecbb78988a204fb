"""The parity check of a publish at a server: does the sampling client say what the training client
says, on tokens that are sampled now? The unit of `gem_ma.training.learner.parity`, what rounding
does at this server, is measured at the first check, when both have the weights of a new adapter.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.base import stable_seed
from gem_ma.engines.models.vocabulary import Vocabulary
from gem_ma.engines.tinker.client import Adam, Clients, Drawn, Pull
from gem_ma.engines.tinker.engine import Tinker
from gem_ma.engines.vllm.backend import blocking
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Sampling
from gem_ma.training.learner.parity import CEILING, ELSEWHERE, FLOOR, FLOOR_ELSEWHERE, gap
from gem_ma.training.learner.rows import Row

# replies of a check, tokens of each
DRAWS = 8
TOKENS = 16
PROMPTS = 4  # of the last update that a check asks after
MOST_VERSIONS = 2  # versions whose weights stay at the server


class Checks:
    """What is known of how far the sampler of a learner may be off: `noise` in nats, None before
    the first check."""

    # a TinkerLearner, which makes this and imports it
    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.engine = learner.engine
        self.noise: float | None = None
        self.prompts: list[tuple[int, ...]] = []
        self.old: list[str] = []  # paths of versions that were published here

    @property
    def allowed(self) -> float:
        """Nats that the mean over tokens may be off."""
        if self.engine.wanted.parity is not None:
            return self.engine.wanted.parity
        floor = FLOOR_ELSEWHERE * FLOOR["float32"]
        return ELSEWHERE * max(self.noise or 0.0, floor)

    @property
    def of_update(self) -> float:
        return 2 * self.allowed

    def look(self, rows: Sequence[Row]) -> None:
        prompts = (tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in rows)
        self.prompts = list(dict.fromkeys(prompts))[:PROMPTS]

    def check(self) -> dict[str, float]:
        """parity_gap, parity_mean, parity_noise (nats) and parity_share (of what is allowed).
        Raises EngineError where that is more than rounding."""
        first = self.noise is None
        hello = self.engine.chat.render("x", (Message("hello"),))
        prompts = self.prompts or [hello]
        asked = [prompts[number % len(prompts)] for number in range(DRAWS)]
        draws = self._drawn(asked)
        spoken = [(p, d) for p, d in zip(asked, draws, strict=True) if d.ids]
        rows = [np.array([*prompt, *draw.ids], np.int64) for prompt, draw in spoken]
        self.learner.pay(sum(map(len, rows)))
        scores = self.learner.clients.forward(self.learner.trainer, rows)
        theirs = np.array([value for _, draw in spoken for value in draw.logprobs], np.float64)
        pairs = zip(scores, spoken, strict=True)
        # nothing where every draw found the context full
        mine = np.concatenate([np.zeros(0), *(s[len(prompt) :] for s, (prompt, _) in pairs)])
        reply = np.repeat(np.arange(len(spoken)), [len(draw.ids) for _, draw in spoken])
        if first:
            self.noise = float(np.abs(theirs - mine).mean()) if len(mine) else 0.0
            most = CEILING["bfloat16"] if self.engine.wanted.parity is None else np.inf
            # not `>`: a NaN must not pass
            if not self.noise <= most:
                self._refuse(f"{self.noise:.3g} nats in the mean, on weights that nobody changed")
        exact = (self.noise or 0.0) <= CEILING["float32"]
        dtype = "float32" if exact else "bfloat16"
        measured = gap(theirs, mine, reply, self.allowed, dtype)
        if not measured.fits:
            self._refuse(str(measured))
        return {
            "parity_gap": measured.largest,
            "parity_mean": measured.mean,
            "parity_noise": self.noise or 0.0,
            "parity_share": measured.share,
        }

    def _drawn(self, prompts: Sequence[tuple[int, ...]]) -> list[Drawn]:
        """What is sampled after each prompt now; nothing where the context is full."""
        version = self.learner.version
        how = Sampling(max_tokens=TOKENS)
        seeds = [stable_seed("probe", version, number) for number in range(len(prompts))]

        async def every() -> list[Drawn | None]:
            asked = zip(prompts, seeds, strict=True)
            return await asyncio.gather(*(self.engine.draw(p, how, seed) for p, seed in asked))

        return [drawn or Drawn((), (), "context_overflow") for drawn in blocking(every)]

    def _refuse(self, what: str) -> None:
        raise EngineError(
            f"{self.learner.where}: the sampling and the training client of"
            f" {self.learner.clients.host} differ by {what}, at version {self.learner.version}; the"
            " weights are not published. Where its kernels are to blame, allow more:"
            " policies.NAME.parity, in nats"
        )

    def replaced(self, path: str | None) -> None:
        """Deletes the weights of versions that nobody samples any more; `path` is the last one."""
        if path is not None and path not in self.old:
            self.old.append(path)
        gone = self.old[:-MOST_VERSIONS]
        self.old = self.old[-MOST_VERSIONS:]
        for each in gone:
            if each not in self.engine.named:
                self.learner.clients.drop(each)

    def state(self) -> dict[str, Any]:
        return {"noise": self.noise, "probes": self.prompts}

    def load(self, note: Mapping[str, Any]) -> None:
        """The inverse of `state`. Raises KeyError, TypeError, ValueError."""
        noise = note["noise"]
        self.prompts = [tuple(map(int, probe)) for probe in note["probes"]]
        self.noise = None if noise is None else float(noise)


# What a server makes of the losses of a batch: their sum, as the Tinker API says, or a mean over
# rows or tokens, which Adam hides. So it is measured, on an adapter that is then left alone. A step
# of AdamW with a huge eps and no moments is plain gradient descent, so how far it moves one token
# tells by what its gradient was divided. Three batches ask: the token in a short row, in a row
# twice as long, and beside a long row that learns nothing. A causal model gives all three the same
# gradient.

WAYS = ("sum", "rows", "row_tokens", "row_tokens_and_rows", "tokens")
# nats that the token must move: above the rounding of bfloat16 logits, below where it bends
LEAST_MOVE = 0.03
MOST_MOVE = 0.6
FASTER = 4.0
TRIES = 14
FIRST_RATE = 1.0 / 64
NEAR = 0.12  # of a factor, as a natural logarithm; the ways lie 0.4 apart and more
CLIPPED = 0.2  # of a move; a step whose norm is bound to next to nothing moves less
PLAIN_EPS = 1e6  # beside it the root of the second moment is nothing


@dataclass(frozen=True, slots=True)
class Scale:
    """By what the server divides (`way`), and whether it clips gradients by their norm."""

    way: str = "sum"
    clips: bool = True

    def factors(self, lengths: Sequence[int]) -> NDArray[np.float64]:
        """Times which rows [R] of so many predicted tokens are sent, so that their pulls add up."""
        return np.array([divisor(self.way, length, lengths) for length in lengths], np.float64)


def divisor(way: str, length: int, lengths: Sequence[int]) -> float:
    """By what a server divides the gradient of a row of `length` among rows of `lengths`.

    >>> [divisor(way, 4, (4, 8)) for way in WAYS]
    [1.0, 2.0, 4.0, 8.0, 12.0]
    """
    rows = float(len(lengths))
    of = {
        "sum": 1.0,
        "rows": rows,
        "row_tokens": float(length),
        "row_tokens_and_rows": length * rows,
        "tokens": float(sum(lengths)),
    }
    return of[way]


# (lengths of the rows, of which the first learns; rate; largest norm, 0 = any) -> nats that the
# token of the first row rose by, with its sign
Rise = Callable[[Sequence[int], float, float], float]


def measured(rise: Rise, length: int, where: str) -> Scale:
    """The scale of a server, by six steps or a few more on weights that nobody needs afterwards.
    `length`: predicted tokens of the short row. Raises ConfigError where no way fits."""
    short = (length,)
    long = (2 * length,)
    beside = (length, 2 * length)
    rate = _rate(rise, short, where)
    # there and back in turn, so that the weights stay where they were, and so does the gradient
    back = rise(short, -rate, 0.0)
    longer = rise(long, rate, 0.0)
    crowded = rise(beside, -rate, 0.0)
    forth = rise(short, rate, 0.0)
    unit = (abs(back) + abs(forth)) / 2
    ratios = np.abs([longer, crowded]) / unit
    if not np.isfinite(ratios).all() or not (ratios > 0).all():
        raise ConfigError(f"{where}: a plain step of the server moves nothing; it cannot be used")
    errors = {}
    for way in WAYS:
        # how far the token moves in the other two batches, as a share of its move in the first
        others = [divisor(way, lengths[0], lengths) for lengths in (long, beside)]
        expected = divisor(way, length, short) / np.array(others)
        errors[way] = np.abs(np.log(ratios) - np.log(expected)).max()
    best = min(errors, key=lambda way: errors[way])
    if errors[best] > NEAR:
        raise ConfigError(
            f"{where}: it is not known by what the server divides the losses of a batch: a token"
            f" moves {ratios[0]:.3g} times as far in a row twice as long, and {ratios[1]:.3g} times"
            " beside such a row"
        )
    clipped = rise(short, -rate, 1e-6)
    return Scale(best, bool(abs(clipped) < CLIPPED * unit))


def _rate(rise: Rise, short: Sequence[int], where: str) -> float:
    """A rate at which the token moves enough and not too far."""
    rate = FIRST_RATE
    for _ in range(TRIES):
        moved = abs(rise(short, rate, 0.0))
        if moved >= LEAST_MOVE:
            # a gradient that grew on the way would be measured where it bends
            return rate if moved <= MOST_MOVE else rate * LEAST_MOVE / moved
        rate *= FASTER
    raise ConfigError(f"{where}: plain steps of the server do not move what they should")


LENGTH = 8  # predicted tokens of the short row; a server compiles for each length
DRIFTED = 1e-3  # nats


class Trial:
    """A new adapter on `base`, of the rank that will learn, moved to see what the server does."""

    def __init__(self, clients: Clients, base: str, rank: int, vocabulary: Vocabulary) -> None:
        self.clients = clients
        self.ends = sorted(vocabulary.ends)
        self.trainer = clients.trainer(base, rank, 0)
        rng = random.Random("trial")
        never = vocabulary.banned | vocabulary.ends
        usual = [token for token in range(vocabulary.size) if token not in never]
        self.ids = np.array([rng.choice(usual) for _ in range(2 * LENGTH + 1)], np.int64)

    def rise(self, lengths: Sequence[int], rate: float, clip: float) -> float:
        """Nats by which one plain step raises the last token of the short row, when rows of these
        lengths are sent and it alone is pulled. See `Rise`."""
        before = self._score()
        rows = [self.ids[: length + 1] for length in lengths]
        scores = self.clients.forward(self.trainer, rows)
        pulls = [np.zeros(len(row)) for row in rows]
        pulls[0][LENGTH] = 1.0 if rate > 0 else -1.0
        sent = [Pull(*each) for each in zip(rows, scores, pulls, strict=True)]
        self.clients.gradient(self.trainer, sent)
        self._step(abs(rate), clip)
        return self._score() - before

    def keeps_versions(self) -> bool:
        """Whether weights that were published are still sampled after a step, and sampling them
        leaves what learns alone."""
        sampler = self.clients.sampler(path=self.clients.published(self.trainer, "trial"))
        first = self._drawn(sampler)
        row = np.array([*self.ids[:-1], first[0]], np.int64)
        (scores,) = self.clients.forward(self.trainer, [row])
        pull = np.zeros(len(row))
        pull[-1] = -1.0  # what was drawn becomes less likely, so a step shows
        self.clients.gradient(self.trainer, [Pull(row, scores, pull)])
        self._step(8.0, 0.0)
        (stepped,) = self.clients.forward(self.trainer, [row])
        again = self._drawn(sampler)
        (after,) = self.clients.forward(self.trainer, [row])
        kept = again[0] == first[0] and abs(again[1] - first[1]) < DRIFTED
        return bool(kept and abs(after[-1] - stepped[-1]) < DRIFTED)

    def _drawn(self, sampler: object) -> tuple[int, float]:
        prompt = self.ids[:-1].tolist()
        how = Sampling(max_tokens=1)
        drawn = blocking(lambda: self.clients.draw(sampler, prompt, how, 1, self.ends))
        return drawn.ids[0], drawn.logprobs[0]

    def _step(self, rate: float, clip: float) -> None:
        plain = Adam(rate * PLAIN_EPS, (0.0, 0.0), PLAIN_EPS, clip=clip)
        self.clients.step(self.trainer, plain)

    def _score(self) -> float:
        (scores,) = self.clients.forward(self.trainer, [self.ids[: LENGTH + 1]])
        return float(scores[LENGTH])


class Habits:
    """What a server does with a base: measured when it is asked for, and then known."""

    def __init__(self, engine: Tinker, rank: int) -> None:
        self.engine = engine
        self.rank = rank
        self._scale: Scale | None = None
        self._keeps: bool | None = None

    def _trial(self) -> Trial:
        engine = self.engine
        return Trial(engine.clients, engine.name, self.rank, engine.vocabulary)

    def scale(self) -> Scale:
        """By what it divides losses, and whether it clips; a warning once, where it does not."""
        if self._scale is None:
            where = self.engine.where
            self._scale = measured(self._trial().rise, LENGTH, where)
            if not self._scale.clips:
                host = self.engine.clients.host
                lacks = "does not clip gradients, so loss.grad_clip has no effect"
                logging.getLogger("gem_ma").warning("%s: %s %s", where, host, lacks)
        return self._scale

    def keeps_versions(self) -> bool:
        if self._keeps is None:
            self._keeps = self._trial().keeps_versions()
        return self._keeps


HABITS: dict[tuple[str, str], Habits] = {}  # of (server, base) in this process


def habits_of(engine: Tinker, rank: int) -> Habits:
    return HABITS.setdefault((str(engine.base_url), engine.name), Habits(engine, rank))
