"""How an episode is written and read: one strict line of JSON, its images and token chains.

Imports the kernel.

Decisions: docs/decisions.md#record
"""
