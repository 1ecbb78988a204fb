"""The rooms of `scenarios/service` stand on each other without circles."""

from __future__ import annotations

from pathlib import Path

import gem_ma
from tests.test_layers import imports

SERVICE = Path(gem_ma.__file__).resolve().parents[1] / "scenarios/service_desk"
FLOORS = (
    "desk",
    "reading",
    "domain",
    "grading",
    "watching",
    "rewards",
    "retail",
    "agents",
)  # from below
HOME = "gem_ma.scenarios.service_desk."


def room_of(path: Path) -> str:
    return path.relative_to(SERVICE).parts[0].removesuffix(".py")


def test_no_room_of_the_service_imports_one_above_it() -> None:
    files = [path for path in SERVICE.rglob("*.py") if path != SERVICE / "__init__.py"]
    assert {room_of(path) for path in files} == set(FLOORS)
    for path in files:
        above = FLOORS[FLOORS.index(room_of(path)) + 1 :]
        for target in imports(path.read_text(encoding="utf-8")):
            if target.startswith(HOME):
                assert target.removeprefix(HOME).split(".")[0] not in above, (path.name, target)
