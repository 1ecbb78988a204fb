"""What to type for an extra that is missing. The package is in no index, so the advice names
where this one came from."""

from __future__ import annotations

import json
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def install(*extras: str) -> str:
    """The command that installs these extras: from the checkout that runs, or from the file or
    address that the package was installed from."""
    # an older pip knows an extra by its normal name alone, and installs nothing for another
    named = f"[{','.join(extras).replace('_', '-')}]" if extras else ""
    if (CHECKOUT / "pyproject.toml").is_file():
        return f'pip install "{_here(CHECKOUT)}{named}"'
    source = _source()
    return f'pip install "gem-ma{named} @ {source}"' if source else f'pip install "gem-ma{named}"'


def _here(path: Path) -> str:
    """The path as it is typed from the working folder."""
    try:
        # short where it can be: people copy the line
        typed = os.path.relpath(path)
    except (OSError, ValueError):  # the working folder is gone, or lies on another drive
        return str(path)
    return str(path) if typed.startswith(os.path.join("..", "..", "..")) else typed


def _source() -> str:
    """The address that pip noted when it installed the package from somewhere else than an
    index; "" where it noted none."""
    # late: it reads what a package says of itself, for the one who lacks something
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = json.loads(distribution("gem-ma").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError, OSError):
        return ""
    url = noted.get("url", "") if isinstance(noted, dict) else ""
    commit = noted.get("vcs_info", {}) if url else {}
    # PEP 610: a repository with its commit, or the address of a file
    if "vcs" not in commit:
        return str(url)
    return f"{commit['vcs']}+{url}@{commit.get('commit_id', '')}".rstrip("@")
