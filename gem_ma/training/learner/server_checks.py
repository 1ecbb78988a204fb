"""The parity check of a publish at a server: does the sampling client say what the training client
says, on tokens that are sampled now?

The statistic is that of `gem_ma.training.learner.parity`. Its unit, what rounding does at this
server, is measured at the first check, when both have the weights of a new adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gem_ma.engines.base import stable_seed
from gem_ma.engines.tinker.answers import Drawn
from gem_ma.engines.vllm.probing import blocking
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Message, Sampling
from gem_ma.training.learner.parity import CEILING, ELSEWHERE, FLOOR, FLOOR_ELSEWHERE, few, gap
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
        self.tokens = 0  # of the last update
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
        """The same for the tokens of the last update."""
        return 2 * self.allowed * few(self.tokens)

    def look(self, rows: Sequence[Row]) -> None:
        """Takes the prompts of the next checks from these rows."""
        prompts = (tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in rows)
        self.prompts = list(dict.fromkeys(prompts))[:PROMPTS]
        self.tokens = sum(int(row.mask.sum()) for row in rows)

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
        scored = [values[len(prompt) :] for values, (prompt, _) in pairs]
        # none where every draw found the context full
        mine = np.concatenate([np.zeros(0), *scored])
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
        """What a resume needs."""
        return {"noise": self.noise, "tokens": self.tokens, "probes": self.prompts}

    def load(self, note: Mapping[str, Any]) -> None:
        """The inverse of `state`. Raises KeyError, TypeError, ValueError."""
        noise = note["noise"]
        tokens = int(note["tokens"])
        self.prompts = [tuple(map(int, probe)) for probe in note["probes"]]
        self.noise = None if noise is None else float(noise)
        self.tokens = tokens
