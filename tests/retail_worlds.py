"""A shop with every knob turned up, and all bytes of a few tasks, for the tests of the
generator."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gem_ma.scenarios.service_desk.retail.shop.knobs import INTENTS, WRITES
from gem_ma.scenarios.service_desk.retail.shop.shop import SPLITS, OwnWorld
from gem_ma.scenarios.service_desk.retail.shop.world import build_tables

EVERYTHING: dict[str, Any] = {
    "requests": 4,
    "intents": list(INTENTS),
    "infeasible": 0.25,
    "conditional": 0.4,
    "change_of_mind": 0.25,
    "preferences": 0.7,
    "ties": 0.2,
    "unknown": 0.3,
    "repeats": 0.2,
    "distractors": 1,
    "traits": 0.5,
}
PLAIN: dict[str, Any] = {  # one or two requests, each said in full
    "requests": 2,
    "intents": [*WRITES, "amount_paid", "tracking_number", "variant_count", "order_status"],
    "infeasible": 0.08,
    "repeats": 0.0,
    "conditional": 0.0,
    "change_of_mind": 0.0,
    "preferences": 0.0,
    "ties": 0.0,
    "unknown": 0.0,
}


def digest() -> str:
    """All bytes of a world and of the first tasks of each split, plain and with every knob
    turned up."""
    shops = (OwnWorld(), OwnWorld(knobs=EVERYTHING))
    tasks = [repr(task) for shop in shops for split in SPLITS for task in shop.tasks(split)[:6]]
    return hashlib.sha256(json.dumps([build_tables(3), tasks]).encode()).hexdigest()
