"""Customers of the shop played by a model, whose drafts are checked against what the task wants."""

from __future__ import annotations

from gem_ma.scenarios.service_desk.agents.user_ledger import Ledgered
from gem_ma.scenarios.service_desk.agents.user_llm import (
    Gate,
    UserLLM,
    UserReact,
    UserReflection,
    UserVerify,
)
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL


class RetailUserLLM(Ledgered, UserLLM):
    """A customer played by a model, one draft after another until the goal ledger finds nothing."""

    phrasebook = RETAIL


class RetailUserReact(Ledgered, UserReact):
    """As `retail_user_llm`, by a model that thinks before it speaks."""

    phrasebook = RETAIL


class RetailUserVerify(Ledgered, UserVerify):
    """As `user_verify`, whose judge is told what the goal ledger found."""

    phrasebook = RETAIL
    gate: Gate = "judge"


class RetailUserReflection(Ledgered, UserReflection):
    """As `user_reflection`, whose judge is told what the goal ledger found."""

    phrasebook = RETAIL
    gate: Gate = "judge"
