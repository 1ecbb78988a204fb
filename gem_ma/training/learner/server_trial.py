"""An adapter at a server that is moved to see what the server does, and then left alone: by what it
divides losses (`rise`), and whether an old version stays what it was (`keeps_versions`).

What was seen of a server is remembered for the process (`Habits`): its policies ask once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import numpy as np

from gem_ma.engines.local.vocabulary import Vocabulary
from gem_ma.engines.tinker.client import Adam, Clients, Pull
from gem_ma.engines.tinker.engine import Tinker
from gem_ma.engines.vllm.probing import blocking
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.server_scale import PLAIN_EPS, Scale, measured

LENGTH = 8  # predicted tokens of the short row; a server compiles for each length
DRIFTED = 1e-3  # nats


class Trial:
    """A new adapter on `base`, of the rank that will learn. Blocks."""

    length = LENGTH

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
        lengths are sent and it alone is pulled. See `server_scale.Rise`."""
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
            trial = self._trial()
            where = self.engine.where
            self._scale = measured(trial.rise, trial.length, where)
            if not self._scale.clips:
                host = self.engine.clients.host
                lacks = "does not clip gradients, so loss.grad_clip has no effect"
                logging.getLogger("gem_ma").warning("%s: %s %s", where, host, lacks)
        return self._scale

    def keeps_versions(self) -> bool:
        """See `Trial.keeps_versions`."""
        if self._keeps is None:
            self._keeps = self._trial().keeps_versions()
        return self._keeps


HABITS: dict[tuple[str, str], Habits] = {}  # of (server, base) in this process


def habits_of(engine: Tinker, rank: int) -> Habits:
    """What is known of the server and the base of this engine."""
    return HABITS.setdefault((str(engine.base_url), engine.name), Habits(engine, rank))
