"""What a play is: effects, views, records, replays, and how the text of a model is read.

Imports the standard library and itself, nothing else: no file, no engine, no config.

Decisions: docs/decisions.md#kernel
"""
