"""Blame over two hundred spoiled talks of each kind, eighty of a rare one: the injected side is named in at least 95
of 100."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service_desk.test_service_blame import INJECTED, sides

LEAST = 0.95


@pytest.mark.learning
@INJECTED
def test_the_injected_side_is_named_in_nearly_all_of_two_hundred_talks(
    side: str, injected: dict[str, Any], lost_only: bool
) -> None:
    # A write without a yes loses the talk only where the customer would have thought again: about
    # nine in a hundred. The others end as they were meant to, and nobody is blamed.
    rare = injected.get("assistant") == "retail_forgets_to_confirm"
    found, causes = sides(0, 80 if rare else 200, lost_only, **injected)
    assert found[side] >= LEAST * found.total(), causes
