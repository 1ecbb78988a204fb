"""A command is a file of options and of what it prints; the work is that of runs, training and
pages.

Decisions: docs/decisions.md#cli
"""
