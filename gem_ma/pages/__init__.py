"""What people look at: files that need no server (`static`) and a running viewer (`live`).

Imports scores, runs and training; reads what was kept and changes nothing there.

Decisions: docs/decisions.md#pages
"""
