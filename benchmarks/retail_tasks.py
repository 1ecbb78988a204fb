"""Speed of the generated shop, and what its proofs throw away: `python
benchmarks/retail_tasks.py [COUNT]` (default 1000).

Prints for the default knobs and for all knobs turned up: seconds for so many proved tasks, and
of all that was drawn the share that each proof threw away (`drawn`: no task came of it; `new`:
another task of the world is like it).
"""

from __future__ import annotations

import sys
import time

from gem_ma.scenarios.service_desk.grading.proofs import PROOFS
from gem_ma.scenarios.service_desk.retail.shop.prove import prove
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld

from tests.retail_worlds import EVERYTHING


def main(count: int) -> None:
    for name, knobs in (("default knobs", None), ("all knobs up", EVERYTHING)):
        shop = OwnWorld(knobs=knobs)
        start = time.process_time()
        tasks = shop.tasks("train")[:count]
        made = time.process_time() - start
        start = time.process_time()
        for task in tasks:
            prove(task, shop.world(task))
        again = time.process_time() - start
        drawn = sum(shop.rejected.values())
        print(
            f"{name}: {len(tasks)} tasks made and proved in {made:.2f} s; all proofs once more in"
            f" {again:.2f} s"
        )
        print(
            "  thrown away of",
            drawn,
            "drawn:",
            ", ".join(
                f"{cause} {shop.rejected[cause] / drawn:.2%}" for cause in ("drawn", "new", *PROOFS)
            ),
        )
        hard = {
            key: sum(task.difficulty[key] for task in tasks) / len(tasks)
            for key in ("reads", "writes", "facts", "turns")
        }
        print(
            "  a task needs on average:",
            ", ".join(f"{mean:.2f} {key}" for key, mean in hard.items()),
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
