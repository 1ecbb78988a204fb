"""What a run of `make test-worlds` says at its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.playing import KEPT, KIT_CPU_S, WORKS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if WORKS or KEPT:
        cut = sorted(name for name, whole in KEPT.items() if not whole)
        terminalreporter.write_line(
            f"{len(WORKS)} worlds played and forked; {len(KEPT)} keep the rules of the kit,"
            f" {len(cut)} of them as far as {KIT_CPU_S:g} CPU seconds go: {', '.join(cut) or 'none'}"
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """A library that is not there is no success: every test of it would be skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not exitstatus and "skipped" in reporter.stats and "passed" not in reporter.stats:
        reporter.write_line("\nnothing was played: the library is not installed here")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
