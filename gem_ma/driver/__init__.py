"""Lets the kernel and engines meet: plays, many of them at once, limits, memory and forks.

Imports the kernel, the registry and the protocol of engines.

Decisions: docs/decisions.md#driver
"""
