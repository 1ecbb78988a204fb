"""Tests never lose power: what they write need not reach the disk. A small training syncs sixty
times, which takes longer than it computes where the disk is busy.
"""

from __future__ import annotations

import os
import stat

real = os.fsync


def fsync(descriptor: int) -> None:
    """As `os.fsync` for files and folders, but that it waits for no disk; whatever else a
    descriptor stands for is refused or synced by the real one."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        real(descriptor)


def begin() -> None:
    os.fsync = fsync
