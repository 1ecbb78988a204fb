"""What `check` asks of models behind an endpoint: one tiny request each, and a guess at the
tokens and the money of a run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.api.messages import chat
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Priced, Reachable
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Reply, Request, Sampling

# plays; steps where neither the config nor the scenario sets a limit; tokens; seconds
SAMPLED_EPISODES = 2
GUESSED_STEPS = 40
GUESSED_ANSWER = 120
PLAY_S = 20.0
# of English text with common tokenizers; a guess that is half off still tells $1 from $100
BYTES_PER_TOKEN = 4


def remote(policies: Mapping[str, Policy]) -> dict[str, Reachable]:
    """Policy -> its engine, for those that a server samples."""
    engines = {name: policy.core for name, policy in policies.items()}
    return {name: engine for name, engine in engines.items() if isinstance(engine, Reachable)}


def ping(engines: Mapping[str, Reachable]) -> dict[str, str | Exception]:
    """Policy -> what its endpoint answered in words, or the error that stands in the way.
    Policies with one model at one endpoint ask once."""

    async def answer_of(engine: Reachable) -> str | Exception:
        began = time.monotonic()
        try:
            reply = await engine.ping()
        # an answer like any other: the remaining endpoints are still asked
        except EngineError as error:
            return error
        seconds = time.monotonic() - began
        # attempts are those that failed before this answer came
        late = f", after {len(reply.attempts)} that failed" if reply.attempts else ""
        return f"{engine.name} at {engine.base_url} answers in {seconds:.1f} s{late}"

    async def every() -> dict[tuple[str, str], str | Exception]:
        # a key that is wrong would be asked, and counted, once per policy
        different = {(engine.base_url, engine.name): engine for engine in engines.values()}
        answers = await asyncio.gather(*map(answer_of, different.values()))
        return dict(zip(different, answers, strict=True))

    answers = asyncio.run(every())
    return {name: answers[engine.base_url, engine.name] for name, engine in engines.items()}


class _Filler:
    """Answers every request with so many words of filling, or the first legal string, and counts
    what was read."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.requests = 0
        self.prompt = 0
        self.completion = 0

    async def sample(self, request: Request) -> Reply:

        self.requests += 1
        prompt = json.dumps(
            [chat(request.agent, request.messages), [tool.schema for tool in request.tools]],
            ensure_ascii=False,
        )
        self.prompt += len(prompt.encode("utf-8", "replace")) // BYTES_PER_TOKEN
        words = min(self.words, request.sampling.max_tokens)
        # of a legal answer a token may be as little as one character
        self.completion += min(words, len(request.legal[0])) if request.legal else words
        return Reply(request.legal[0] if request.legal else "so " * words)


def estimate(
    plans: Iterable[Plan], policies: Mapping[str, Policy], episodes: int
) -> dict[str, dict[str, Any]]:
    """By remote policy: guesses at `requests`, `prompt` and `completion` tokens and `usd` (None
    without a price) of so many episodes."""
    engines = remote(policies)
    guesses = guess(plans, {name: policy.sampling for name, policy in policies.items()}, episodes)
    for name, engine in engines.items():
        counts = guesses[name]
        counts["usd"] = None
        if isinstance(engine, Priced):
            counts["usd"] = engine.usd(counts["prompt"], counts["completion"])
    return {name: guesses[name] for name in engines}


def guess(
    plans: Iterable[Plan], policies: Mapping[str, Sampling], episodes: int
) -> dict[str, dict[str, Any]]:
    """By policy: guesses at `requests`, `prompt` and `completion` tokens of so many episodes; no
    model is opened.

    Plays a few of them with filling in the place of every model, up to the limits of the config
    and the scenario: rather too many turns than too few. No bound: a behaviour may ask its model
    again for an answer that filling never gives.
    """
    fillers = {name: _Filler(GUESSED_ANSWER) for name in policies}
    table = {name: Policy(name, fillers[name], sampling) for name, sampling in policies.items()}
    played = 0
    for plan in islice(plans, SAMPLED_EPISODES):
        # filling may never bring a talk to its end, and a check must come to one
        steps = plan.limits.max_steps or plan.scenario.ends_within or GUESSED_STEPS
        limits = replace(plan.limits, max_steps=steps, timeout_s=PLAY_S)
        asyncio.run(play(replace(plan, limits=limits), table))
        played += 1
    share = episodes / max(1, played)
    return {
        name: {
            "requests": round(filler.requests * share),
            "prompt": round(filler.prompt * share),
            "completion": round(filler.completion * share),
        }
        for name, filler in fillers.items()
    }


def estimate_rows(
    guesses: Mapping[str, Mapping[str, Any]], limit_usd: float | None = None
) -> list[tuple[str, str]]:
    """(what, value) rows for printing."""
    rows = []
    for name, guess in guesses.items():
        unpriced = "its config names no price, so the cost is unknown"
        money = unpriced if guess["usd"] is None else f"${guess['usd']:.2g}"
        requests = f"about {_short(guess['requests'])} requests"
        tokens = f"{_short(guess['prompt'])} tokens read, {_short(guess['completion'])} sampled"
        rows.append((f"estimate {name}", f"{requests}, {tokens}: {money}"))
    if rows and limit_usd is not None:
        rows.append(("limit", f"limits.usd stops a run at ${limit_usd:g}"))
    return rows


def _short(count: int) -> str:
    """
    >>> _short(950), _short(12_340), _short(3_400_000)
    ('950', '12 k', '3.4 M')
    """
    if count < 1000:
        return str(count)
    return f"{count / 1e3:.0f} k" if count < 1e6 else f"{count / 1e6:.1f} M"
