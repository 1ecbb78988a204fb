"""The scripted customer by preset: `python -m benchmarks.customers [tasks] [assistant ...]`
prints success, faults of the user and cost.

Success is the canonical grader's; faults are those of the goal ledger beside the customer. Speed
is of both scripted sides and the scenario.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

from gem_ma.scenarios.service_desk.agents.customer_traits import PRESETS
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL
from gem_ma.scenarios.service_desk.watching.ledger import Ledger

from gem_ma import Plan, play
from gem_ma.kernel.episode import Episode, Seat


def talks(shop: Retail, assistant: str, preset: str, tasks: int) -> tuple[list[Episode], float]:
    """The talks of the first training tasks, and CPU seconds for all of them."""
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user", options={"preset": preset})}
    for index in range(tasks):
        shop.tasks("train")[index]  # made before the clock runs
    started = time.process_time()
    episodes = [asyncio.run(play(Plan(shop, cast, f"train/{index}", 0))) for index in range(tasks)]
    return episodes, time.process_time() - started


def main(tasks: int, assistants: list[str]) -> None:
    shop = Retail(data="own")
    shop.id = "retail"
    print(f"{'preset':14} {'assistant':20} success  user faults  actions a talk  talks a second")
    for assistant in assistants:
        for preset in PRESETS:
            episodes, seconds = talks(shop, assistant, preset, tasks)
            faults: Counter[str] = Counter()
            for index, episode in enumerate(episodes):
                ledger = Ledger(shop.tasks("train")[index], RETAIL)
                for event in shop.retold(episode).events:
                    ledger.see(event)
                faults.update(fault.kind for fault in ledger.faults)
            served = sum(shop.success(episode) is True for episode in episodes)
            actions = sum(len(episode.turns) for episode in episodes) / tasks
            row = f"{preset:14} {assistant:20} {served / tasks:7.3f}  {sum(faults.values()):11}"
            print(f"{row}  {actions:14.1f}  {tasks / seconds:14.0f}  {dict(faults) or ''}".rstrip())


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 500,
        sys.argv[2:] or ["retail_oracle", "retail_scripted"],
    )
