"""Speed of the retail store and of scripted episodes: `python benchmarks/retail.py [FOLDER]`
(default: TAU_BENCH_PATH or our own shop).

Prints times and how many of each fit into what tau-bench takes for reset, write and digest (92
ms), then 500 episodes of three assistants.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable

from gem_ma.scenarios.service_desk.desk.log import Outcome
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.domain.grading import canonical, gold_state
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

from gem_ma.driver.rollout import Plan, play_many
from gem_ma.kernel.episode import Seat

SPLIT = "test"


def timed(function: Callable[[], object], repeat: int = 200) -> float:
    """Median seconds of a call."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def store_times(scenario: Retail) -> dict[str, float]:
    """Seconds of what the store does in a talk, by name."""
    task = next(
        task
        for task in scenario.tasks(SPLIT)
        if any(call.name.startswith("cancel") for call in task.actions)
    )
    start = time.perf_counter()
    store = RetailStore(scenario.source.world(task), scenario.semantics)
    store.digest()
    first = time.perf_counter() - start
    order = next(
        call.arguments["order_id"] for call in task.actions if "order_id" in call.arguments
    )
    write = next(call for call in task.actions if call.name.startswith("cancel"))

    def cycle() -> None:
        store.reset()
        store.call(write.name, dict(write.arguments))
        store.digest()

    gold = gold_state(store.overlay.base, scenario.semantics, task)
    return {
        "first digest of a base": first,
        "reset": timed(store.reset),
        "read (get_order_details)": timed(
            lambda: store.call("get_order_details", {"order_id": order})
        ),
        "reset, write": timed(
            lambda: (store.reset(), store.call(write.name, dict(write.arguments)))
        ),
        "reset, write, digest": timed(cycle),
        "digest after a write": timed(store.digest),
        "solution and canonical verdict": timed(
            lambda: canonical(
                task,
                store.overlay,
                gold_state(store.overlay.base, scenario.semantics, task),
                Outcome("user", "settled", ("x",)),
            )
        ),
        "canonical verdict": timed(
            lambda: canonical(task, store.overlay, gold, Outcome("user", "settled", ("x",)))
        ),
    }


def main(folder: str) -> None:
    scenario = Retail(data=folder)
    rows = store_times(scenario)
    print(
        f"{scenario.provenance()['name']}\n\n| what | ms | share of 92 ms |\n| --- | ---: | ---: |"
    )
    for name, seconds in rows.items():
        print(f"| {name} | {seconds * 1e3:.3f} | {seconds / 92e-3:.4f} |")
    print(
        "\n| 500 episodes, scripted customer | s | episodes a second | succeed of those judged |\n|"
        " --- | ---: | ---: | ---: |"
    )
    scenario.id = "retail"
    for assistant in ("retail_oracle", "retail_scripted", "retail_nothing"):
        cast = {"assistant": Seat(assistant), "user": Seat("retail_user")}
        tasks = len(scenario.tasks(SPLIT))
        plans = [Plan(scenario, cast, f"{SPLIT}/{index % tasks}", index) for index in range(500)]
        start = time.perf_counter()
        done = asyncio.run(_play(plans))
        taken = time.perf_counter() - start
        found = [verdict for verdict in map(scenario.success, done) if verdict is not None]
        print(
            f"| {assistant} | {taken:.2f} | {len(done) / taken:.0f} | {sum(found)} of"
            f" {len(found)} |"
        )
    print()


async def _play(plans: list[Plan]) -> list[object]:
    return [episode async for episode in play_many(plans)]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TAU_BENCH_PATH") or "own")
