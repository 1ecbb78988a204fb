"""What may be hostile or missing on a machine: the disk, keys, packages, a user's own files.

Imports the kernel and the records.

Decisions: docs/decisions.md#system
"""
