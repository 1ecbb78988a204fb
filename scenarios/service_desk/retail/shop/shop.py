"""The generated shop as a source of tasks: worlds and tasks by seed, made when they are asked for.

Twenty tasks share a world; the splits share neither a seed nor a world.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.lazy import Lazy
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail.domain.products import PRODUCTS
from gem_ma.scenarios.service_desk.retail.shop.forge import Commission, content, forge
from gem_ma.scenarios.service_desk.retail.shop.knobs import Knobs, read_knobs
from gem_ma.scenarios.service_desk.retail.shop.world import GENERATOR, Sizes, tables_of

from gem_ma.kernel.errors import ConfigError

PER_WORLD = 20
# Seeds below 0, so that no spare world is the world of other tasks.
SPARES = 8  # further worlds for a task that its own world does not hold, each of this task alone
MOST_WORLDS = 128  # worlds in memory
# first seed, number of tasks
SPLITS = {
    "train": (0, 1000),
    "val": (10_000_000, 200),
    "test": (20_000_000, 200),
    "shift": (30_000_000, 200),
}
NONE = (
    "scenario.knobs, scenario.users, scenario.orders: the shop holds no task of this kind; give it"
    " more users and orders, or wider knobs"
)


class OwnWorld:
    """The generated shop as a source of tasks. `rejected` counts the tasks thrown away, by the
    name of the proof that they failed, and those `kept`. Raises ConfigError for sizes that no
    world has, and for knobs that there are not."""

    def __init__(
        self,
        semantics: str = "fixed",
        users: int = 40,
        orders: int = 80,
        products: int = 20,
        knobs: Knobs | Mapping[str, Any] | None = None,
    ) -> None:
        limits = {
            "users": (users, 1, 500),
            "orders": (orders, 1, 5000),
            "products": (products, 1, len(PRODUCTS)),
        }
        for name, (value, least, most) in limits.items():
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(
                    f"scenario.{name}: a whole number from {least} to {most}; got {value!r}"
                )
        self.semantics, self.knobs = semantics, read_knobs(knobs)
        self.sizes = Sizes(
            users,
            orders,
            products,
            self.knobs.orders_per_user,
            self.knobs.distractors,
            self.knobs.repeats,
        )
        self.rejected: Counter[str] = Counter()
        # All that decides the tasks; its first digits are a part of each task's id.
        self.digest = hashlib.sha256(
            f"{GENERATOR} {self.semantics} {self.sizes} {self.knobs}".encode()
        ).hexdigest()
        self._bases: dict[int, Base] = {}
        self._splits = {split: OwnTasks(self, split) for split in SPLITS}

    def __repr__(self) -> str:
        return f"OwnWorld({self.semantics!r}, {self.sizes}, {self.knobs})"

    def sizes_of(self, world: int) -> Sizes:
        """What the world of a seed is made with: those of the split `shift` sell other products.
        A seed below 0 is that of a spare one."""
        # Undoes how `_left_to` numbers the spare worlds of a seed.
        seed = world * PER_WORLD if world >= 0 else (-world - 1) // SPARES
        return replace(self.sizes, held_out=seed >= SPLITS["shift"][0])

    def base(self, seed: int) -> Base:
        """The world of a seed; the last ones are kept."""
        if seed not in self._bases:
            # The oldest one goes; tasks are mostly played in their order.
            if len(self._bases) == MOST_WORLDS:
                del self._bases[next(iter(self._bases))]
            self._bases[seed] = Base(tables_of(seed, self.sizes_of(seed)))
        return self._bases[seed]

    def world(self, task: Task) -> Base:
        """The tables that a task plays on."""
        if task.world is None:
            raise ConfigError(f"task {task.id} is not of the generated shop")
        return self.base(task.world)

    def tasks(self, split: str) -> OwnTasks:
        """The tasks of a split; their seeds are disjoint. Raises ConfigError for an unknown
        split."""
        if split not in self._splits:
            raise ConfigError(
                f"scenario.split: the generated shop has {', '.join(SPLITS)}; got {split!r};"
                " tau-bench's need TAU_BENCH_PATH"
            )
        return self._splits[split]

    def policy(self) -> None:
        """Our own policy text holds."""

    def provenance(self) -> dict[str, Any]:
        """For the manifest of a run."""
        knobs = (
            f"generator {GENERATOR}, sizes {self.sizes}, knobs {self.knobs}, semantics"
            f" {self.semantics}"
        )
        return {"name": "generated shop", "folder": None, "digest": self.digest, "knobs": knobs}


class OwnTasks(Lazy):
    """The tasks of one split. No two have the same content: the customers of a world are dealt
    out to its tasks, and a task whose own customers want nothing of the kind, or that has none,
    may not repeat another one; if the world holds nothing more of the kind, the task gets a spare
    world."""

    def __init__(self, shop: OwnWorld, split: str) -> None:
        self.shop, self.split = shop, split
        self.first, size = SPLITS[split]
        super().__init__(size, lambda place: self._task(self.first + place))
        self._dealt: dict[int, Task | None] = {}

    def _task(self, seed: int) -> Task:
        return self._dealt_to(seed) or self._left_to(seed)

    def _dealt_to(self, seed: int) -> Task | None:
        """The task of the first of its own customers who has one."""
        if seed not in self._dealt:
            # Every twentieth of a shuffled list: tasks of a world share no customer.
            customers = self._customers(seed // PER_WORLD)[seed % PER_WORLD :: PER_WORLD]
            self._dealt[seed] = next(
                (task for user_id in customers if (task := self._forge(seed, user_id))), None
            )
        return self._dealt[seed]

    def _left_to(self, seed: int) -> Task:
        """The task of any customer who has one that no other task of the world is like, or one
        of a spare world. Raises ConfigError."""
        # All twenty tasks of the world, since any of them could have drawn the same wish.
        start = seed - seed % PER_WORLD
        others = [
            task for other in range(start, start + PER_WORLD) if (task := self._dealt_to(other))
        ]
        # Those before it may have been left over too, and then stand in no dealt list.
        others += self[start - self.first : seed - self.first]
        taken = {content(task) for task in others}
        # Its own world first, then its spares, each for this seed alone.
        for world in (seed // PER_WORLD, *range(-SPARES * seed - 1, -SPARES * (seed + 1) - 1, -1)):
            for user_id in self._customers(world):
                if task := self._forge(seed, user_id, taken, world):
                    return task
        raise ConfigError(NONE)

    def _customers(self, world: int) -> list[str]:
        users = [
            key for key, user in self.shop.base(world).tables["users"].items() if user["orders"]
        ]
        # Shuffled by the world alone: a task must be the same in whichever order tasks are asked
        # for.
        return random.Random(f"retail-customers/{world}").sample(users, len(users))

    def _forge(
        self, seed: int, user_id: str, taken: Collection[str] = (), world: int | None = None
    ) -> Task | None:
        shop, world = self.shop, seed // PER_WORLD if world is None else world
        name = f"own/{GENERATOR}/{self.split}/{seed}/{shop.digest[:8]}"
        # Only the split `shift` may draw the pairs that training never sees.
        wanted = Commission(name, seed, shop.knobs, user_id, self.split == "shift", taken)
        return forge(
            shop.base(world),
            shop.semantics,
            wanted,
            shop.rejected,
            world=world,
            raw={
                "generator": GENERATOR,
                "seed": seed,
                "sizes": asdict(shop.sizes_of(world)),
                "knobs": asdict(shop.knobs) | {"intents": list(shop.knobs.intents)},
            },
        )
