"""Customers of the shop played by a model, whose drafts are checked against what the task wants."""

from __future__ import annotations

from gem_ma.agents.user_ledger import Ledgered
from gem_ma.agents.user_llm import Gate, UserLLM, UserReact, UserReflection, UserVerify
from gem_ma.scenarios.retail.language import RETAIL


class RetailUserLLM(Ledgered, UserLLM):
    """One draft after another until the ledger finds nothing."""

    phrasebook = RETAIL


class RetailUserReact(Ledgered, UserReact):
    """Thinks first; otherwise the same."""

    phrasebook = RETAIL


class RetailUserVerify(Ledgered, UserVerify):
    """A judge decides, who is told what the ledger found."""

    phrasebook = RETAIL
    gate: Gate = "judge"


class RetailUserReflection(Ledgered, UserReflection):
    """A judge decides, who is told what the ledger found; the model improves what is refused."""

    phrasebook = RETAIL
    gate: Gate = "judge"
