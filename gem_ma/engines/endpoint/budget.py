"""What sampling costs: a price per policy, and a budget that all of them share. Numbers only; knows
no server.

An unknown price is unknown, never 0: costs are None then, and a budget in USD refuses a policy
without a price.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.errors import BudgetError, ConfigError
from gem_ma.kernel.types import Reply, Usage

MILLION = 1_000_000
PRICE_KEYS = ("input", "output", "cached_input", "as_of")
BYTES_PER_TOKEN = 3.0  # of a guess that is rather too high


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens. `cached_input` None = as `input`; `as_of` says when somebody
    looked it up."""

    input: float
    output: float
    cached_input: float | None = None
    as_of: str = ""

    @classmethod
    def of(cls, written: Mapping[str, Any] | Price | None, where: str) -> Price | None:
        """A price out of a config's `price: {input, output, cached_input, as_of}`; None where
        there is none. Raises ConfigError."""
        if written is None or isinstance(written, Price):
            return written
        unknown = [key for key in written if key not in PRICE_KEYS]
        missing = [key for key in ("input", "output") if key not in written]
        if unknown or missing:
            what = f"unknown key {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            raise ConfigError(
                f"{where}: price: {what}; it is {{input, output}} in USD per million tokens,"
                " cached_input and as_of if you like"
            )
        for key in ("input", "output", "cached_input"):
            value = written.get(key)
            if not _is_price(value) and not (value is None and key == "cached_input"):
                raise ConfigError(
                    f"{where}: price.{key} is USD per million tokens, 0 or more; got {value!r}"
                )
        cached = written.get("cached_input")
        return cls(
            float(written["input"]),
            float(written["output"]),
            None if cached is None else float(cached),
            str(written.get("as_of", "")),
        )

    def of_usage(self, usage: Usage) -> float | None:
        """USD of one reply; None where the server did not say how many tokens there were."""
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        # servers count cached tokens among those of the prompt; one may say more than there are
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        read = (usage.prompt_tokens - cached) * self.input + cached * (
            self.input if self.cached_input is None else self.cached_input
        )
        return (read + usage.completion_tokens * self.output) / MILLION


def _is_price(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)  # `input: yes`
    return number and math.isfinite(value) and value >= 0


def guess_tokens(text: str) -> int:
    """A guess at the tokens of a prompt before a server counts them, rather too high than too
    low."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


@dataclass(slots=True)
class Claim:
    """What a running request may cost at most."""

    tokens: int
    usd: float


class Budget:
    """What one command may spend on models behind an endpoint, all policies together; None = no
    limit.

    A request claims what it may cost before it is sent and settles for what it did cost. A claim
    that does not fit waits for the running ones to settle; where none is running, it is refused,
    and so is every later one.
    """

    def __init__(self, *, tokens: int | None = None, usd: float | None = None) -> None:
        self.most_tokens = tokens
        self.most_usd = usd
        # spent
        self.tokens = 0
        self.usd = 0.0
        self.reached = ""  # in words, once a claim was refused
        self._claims: list[Claim] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def claim(self, tokens: int, price: Price | None, prompt: int) -> Claim:
        """Reserves `tokens`, `prompt` of them read. Raises BudgetError where they do not fit,
        and ConfigError for USD without a price."""
        if self.most_usd is not None and price is None:
            raise ConfigError(
                "limits.usd cannot be kept where a price is unknown; give the policy a price:"
                " {input, output} per million tokens"
            )
        usd = 0.0
        if price is not None:
            usd = (prompt * price.input + (tokens - prompt) * price.output) / MILLION
        claim = Claim(tokens, usd)
        # asked again after every wait: others may have claimed what was set free
        while not self._fits(claim):
            if self.reached or not self._claims:
                self.reached = self.reached or self._in_words(claim)
                raise BudgetError(self.reached)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._claims.append(claim)
        return claim

    def settle(self, claim: Claim, reply: Reply | None, wasted: Usage, price: Price | None) -> None:
        """Puts what a request did cost in the place of its claim; where a server did not say, the
        claim stands.

        `wasted`: tokens of attempts that gave no usable reply. `reply` None: the request failed,
        or cost nothing.
        """
        self._claims.remove(claim)
        used = [wasted] + ([reply.usage] if reply is not None else [])
        for usage in used:
            if usage.prompt_tokens is None or usage.completion_tokens is None:
                self.tokens += claim.tokens
            else:
                self.tokens += usage.prompt_tokens + usage.completion_tokens
            # what a server does not count is taken for what it may have cost, never for nothing
            usd = price.of_usage(usage) if price is not None else 0.0
            self.usd += claim.usd if usd is None else usd
        waiting = self._waiting
        self._waiting = []
        for turn in waiting:
            # a budget outlives the loop of one rollout
            if not turn.done() and not turn.get_loop().is_closed():
                turn.set_result(None)

    def spend(self, tokens: int) -> None:
        """Takes tokens at once, of work that nobody waits for. Raises BudgetError, with nothing
        taken, where they do not fit."""
        claim = Claim(tokens, 0.0)
        if not self._fits(claim):
            self.reached = self.reached or self._in_words(claim)
            raise BudgetError(self.reached)
        self.tokens += tokens

    def _fits(self, claim: Claim) -> bool:
        if self.reached:
            return False
        tokens = sum(running.tokens for running in self._claims)
        usd = sum(running.usd for running in self._claims)
        if self.most_tokens is not None and self.tokens + tokens + claim.tokens > self.most_tokens:
            return False
        return self.most_usd is None or self.usd + usd + claim.usd <= self.most_usd

    def _in_words(self, claim: Claim) -> str:
        spent = []
        if self.most_tokens is not None:
            spent.append(f"limits.tokens is {self.most_tokens}, {self.tokens} are spent")
        if self.most_usd is not None:
            spent.append(f"limits.usd is {self.most_usd:g}, {self.usd:.4f} are spent")
        most = f"{claim.tokens} tokens" + (
            f", ${claim.usd:.4f}" if self.most_usd is not None else ""
        )
        return (
            f"the budget is reached: {' and '.join(spent)}; the next request may cost up to {most}"
        )
