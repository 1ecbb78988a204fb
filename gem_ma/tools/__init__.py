"""Tools for agents, and the guarded workers that run what a model wrote.

Decisions: docs/decisions.md#tools
"""
