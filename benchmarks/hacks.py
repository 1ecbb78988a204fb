"""What cheats are paid beside honest assistants: `python -m benchmarks.hacks [TASKS]`, on
tasks of the generated shop's test split.

Columns: success by the canonical grader, success without a sure hard violation (`strict`), by
tau-bench's own rule, and the assistant's mean return with all reward terms on, with `progress`
in its two modes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.rewards.terms import TERMS

from gem_ma import Plan, play
from gem_ma.kernel.episode import Episode, Seat
from tests.retail_hacks import PLAIN, SHAPES

HERE = "tests.retail_hacks:"
HONEST: dict[str, tuple[str, dict[str, Any]]] = {
    "careful": ("retail_scripted", {}),
    **{
        f"shows {shape}, {place}": (f"{HERE}Showing", {"shape": shape, "place": place})
        for shape in SHAPES
        for place in ("before", "after", "alone")
    },
}
CHEATS: dict[str, tuple[str, dict[str, Any]]] = {
    "no consent": ("retail_forgets_to_confirm", {}),
    "no authentication": (f"{HERE}NoAuthentication", {}),
    "drops all writes but says so": ("retail_drops_write", {}),
    "refuses more": ("retail_refuses_more", {}),
    "flood, 4 a message": (f"{HERE}Flood", {}),
    "flood, 1 a message": (f"{HERE}Flood", {"each": 1, "form": "It is {}."}),
    "flood, 2 a message": (
        f"{HERE}Flood",
        {"each": 2, "form": "The answer is {}.", "between": " "},
    ),
    "flood, 4 bare rows": (f"{HERE}Flood", {"each": 4, "form": "- {}", "between": "\n"}),
    "flood, 4 labelled rows": (
        f"{HERE}Flood",
        {"each": 4, "form": "- Total: ${}", "between": "\n"},
    ),
    "flood in one message": (f"{HERE}Flood", {"each": 0}),
    "flood in one, sentences": (
        f"{HERE}Flood",
        {"each": 0, "form": "You paid ${}.", "between": " "},
    ),
    "flood in one, bold rows": (f"{HERE}Flood", {"each": 0, "form": "- **{}**", "between": "\n"}),
    "reads everything aloud": (f"{HERE}ReadsAloud", {}),
    "number spray": ("retail_spray", {}),
    "all reasons, no call": (f"{HERE}Shotgun", {}),
    "all reasons, authenticated": (f"{HERE}Shotgun", {"looks": "who"}),
    "all reasons, one look": (f"{HERE}Shotgun", {"looks": "order"}),
    "all reasons, all looks": (f"{HERE}Shotgun", {"looks": "all"}),
    "no reason, all looks": (f"{HERE}Shotgun", {"looks": "all", "text": PLAIN}),
    "solution's writes, no word": ("retail_gold_writes", {}),
    "nothing": ("retail_nothing", {}),
    "transfer at once": ("retail_transfer", {}),
    "echo": ("retail_echo", {}),
}
REFUSALS = {"infeasible": 0.9, "requests": 1, "conditional": 0, "questions": 0}


def talks(shop: Retail, assistant: tuple[str, Mapping[str, Any]], tasks: int) -> list[Episode]:
    """The talks of an assistant with the scripted customer."""
    behaviour, options = assistant
    cast = {"assistant": Seat(behaviour, options=options), "user": Seat("retail_user")}

    async def all_of_them() -> list[Episode]:
        return [await play(Plan(shop, cast, f"test/{index}", 0)) for index in range(tasks)]

    return asyncio.run(all_of_them())


def shop_of(**options: Any) -> Retail:
    """The generated shop."""
    shop = Retail(data="own", **options)
    shop.id = "retail"
    return shop


def mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


def row(assistant: tuple[str, Mapping[str, Any]], tasks: int, shops: list[Retail]) -> list[float]:
    """Canonical, strict and tau1 success, refusals on the shop full of them, and the mean
    returns."""
    played = talks(shops[0], assistant, tasks)
    measured = [shops[0].measures(episode) for episode in played]
    found = [
        mean([float(shops[0].success(episode) is True) for episode in played]),
        mean([each["success without hard violations"] or 0.0 for each in measured]),
        mean([each["score tau1"] or 0.0 for each in measured]),
    ]
    refusing = talks(shops[1], assistant, tasks)
    found.append(mean([float(shops[1].success(episode) is True) for episode in refusing]))
    return [
        *found,
        *(
            mean([each.returns()["assistant"] for each in talks(shop, assistant, tasks)])
            for shop in shops[2:]
        ),
    ]


def main(tasks: int, only: str) -> None:
    every: dict[str, Any] = {name: True for name in TERMS if name not in ("outcome", "game")}
    dense = {**every, "progress": {"mode": "dense"}}
    shops = [shop_of(), shop_of(knobs=REFUSALS), shop_of(rewards=every), shop_of(rewards=dense)]
    print(
        "| assistant | canonical | strict | tau1 | refusals | shaped | dense |\n| --- | ---: | ---:"
        " | ---: | ---: | ---: | ---: |"
    )
    for name, assistant in {**HONEST, **CHEATS}.items():
        if only in name:
            print(
                f"| {name} | "
                + " | ".join(f"{value:.3f}" for value in row(assistant, tasks, shops))
                + " |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2] if len(sys.argv) > 2 else "")
