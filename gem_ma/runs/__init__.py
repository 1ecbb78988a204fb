"""A config opened, played and kept: worlds, plans, run folders, exports.

Imports all that lies below training, prints nothing, and knows no command line.

Decisions: docs/decisions.md#runs
"""
