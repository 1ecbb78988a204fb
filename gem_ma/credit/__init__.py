"""What was paid, by turn: the ledger folded into rewards, the table of turns, estimators.

Imports records and settings; pure numpy.

Decisions: docs/decisions.md#credit
"""

from gem_ma.credit.ledger import Credit, Gamma, credit, discount_of, returns, turns

__all__ = ["Credit", "Gamma", "credit", "discount_of", "returns", "turns"]
