"""pytest plugin: `pytest --gem-ma-check kuhn_poker --gem-ma-check my_package.module:MyScenario`
adds one test per named scenario.

Every such test runs `gem_ma.testing.check_scenario`; with `--gem-ma-check all` there is one for
every registered scenario, and with `--gem-ma-strict` one fails where a rule could not be tested.
For tests of your own there is the fixture `gem_ma_check`, which is that function. The module is
loaded in every run of pytest: it imports gem_ma only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gem_ma.kernel.errors import GemMaError
from gem_ma.registry import catalog
from gem_ma.testing.check import check_scenario

OPTION = "--gem-ma-check"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gem_ma", "conformance of multi-agent scenarios")
    group.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="SCENARIO",
        dest="gem_ma_check",
        help=(
            "check this scenario (an id, package.module:Class, or 'all' registered ones) against"
            " gem_ma's conformance rules; may be repeated"
        ),
    )
    group.addoption(
        "--gem-ma-strict",
        action="store_true",
        dest="gem_ma_strict",
        help="a scenario fails where a rule could not be tested",
    )


@pytest.fixture(scope="session")
def gem_ma_check() -> Callable[..., Any]:
    """`gem_ma.testing.check_scenario`: raises ConformanceError with every finding, gives a
    Report otherwise."""
    return check_scenario


class ScenarioItem(pytest.Item):
    """One scenario under the kit."""

    def runtest(self) -> None:

        report = check_scenario(self.name)
        self.add_report_section("call", "conformance", str(report))
        if self.config.getoption("gem_ma_strict") and report.doubts:
            pytest.fail("\n".join(report.doubts), pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:

        # the findings are the message; a traceback into the kit helps nobody
        if isinstance(excinfo.value, GemMaError):
            return f"{self.name}:\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, None, str]:
        return self.path, None, f"conformance of {self.name}"


class Scenarios(pytest.Collector):
    """The scenarios named on the command line."""

    def collect(self) -> list[pytest.Item]:
        named: list[str] = []
        # nothing is imported yet, so that a broken scenario fails its own test and not the
        # collection
        for name in self.config.getoption("gem_ma_check"):
            named += _registered() if name == "all" else [name]
        return [ScenarioItem.from_parent(self, name=name) for name in dict.fromkeys(named)]


def _registered() -> list[str]:

    return sorted(catalog("scenarios"))


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Adds the items after the collected ones, so that the option works with and without test
    files."""
    if config.getoption("gem_ma_check"):
        items += Scenarios.from_parent(session, name="gem_ma").collect()
