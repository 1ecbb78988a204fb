"""Episodes to numbers: metrics, intervals, comparisons, ratings and exploitability.

Imports credit and what lies below; reads records only.

Decisions: docs/decisions.md#scores
"""
