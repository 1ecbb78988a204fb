"""Scenarios of this library inside other trainers.

`samples` is what all of them share: what a policy sampled, as token sequences with rewards and
advantages. Each other module is one trainer's interface; it is imported by name, needs the library
of that trainer, and refuses what the trainer would silently lose.

Decisions: docs/decisions.md#trainers
"""
