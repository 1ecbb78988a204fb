"""The generated shop as a source of tasks: worlds and tasks by seed, made when they are asked for.

Twenty tasks share a world; the splits share neither a seed nor a world.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, overload

from gem_ma.scenarios.retail.forge import forge
from gem_ma.scenarios.retail.words import PRODUCTS
from gem_ma.scenarios.retail.world import GENERATOR, build_tables
from gem_ma.scenarios.service.overlay import Base
from gem_ma.scenarios.service.task import Task

from gem_ma.errors import ConfigError

PER_WORLD = 20
KEPT = 128  # worlds in memory
SPLITS = {"train": (0, 1000), "val": (10_000_000, 200), "test": (20_000_000, 200)}  # first seed, number of tasks


class OwnWorld:
    """The generated shop as a source of tasks. Raises ConfigError for sizes that no world has."""

    def __init__(self, semantics: str = "fixed", users: int = 40, orders: int = 80, products: int = 20) -> None:
        limits = {"users": (users, 1, 500), "orders": (orders, 1, 5000), "products": (products, 1, len(PRODUCTS))}
        for name, (value, least, most) in limits.items():
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(f"scenario.{name}: a whole number from {least} to {most}; got {value!r}")
        self.semantics, self.sizes = semantics, (users, orders, products)
        self._bases: dict[int, Base] = {}
        self._splits = {split: OwnTasks(self, split) for split in SPLITS}

    def __repr__(self) -> str:
        return f"OwnWorld({self.semantics!r}, *{self.sizes})"

    def base(self, seed: int) -> Base:
        """The world of a seed; the last ones are kept."""
        if seed not in self._bases:
            if len(self._bases) == KEPT:
                del self._bases[next(iter(self._bases))]
            self._bases[seed] = Base(build_tables(seed, *self.sizes))
        return self._bases[seed]

    def world(self, task: Task) -> Base:
        """The tables that a task plays on."""
        if task.world is None:
            raise ConfigError(f"task {task.id} is not of the generated shop")
        return self.base(task.world)

    def tasks(self, split: str) -> OwnTasks:
        """The tasks of a split; their seeds are disjoint. Raises ConfigError for an unknown split."""
        if split not in self._splits:
            raise ConfigError(f"scenario.split: the generated shop has {', '.join(SPLITS)}; got {split!r}; tau-bench's need TAU_BENCH_PATH")
        return self._splits[split]

    def policy(self) -> None:
        """Our own policy text holds."""

    def provenance(self) -> dict[str, Any]:
        """For the manifest of a run."""
        knobs = f"generator {GENERATOR}, sizes {self.sizes}, semantics {self.semantics}"
        return {"name": "generated shop", "folder": None, "digest": hashlib.sha256(knobs.encode()).hexdigest(), "knobs": knobs}


class OwnTasks(Sequence[Task]):
    """The tasks of one split, each made when first asked for."""

    def __init__(self, shop: OwnWorld, split: str) -> None:
        self.shop, self.split = shop, split
        self.first, self.size = SPLITS[split]
        self._made: dict[int, Task] = {}

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        seed = self.first + range(len(self))[index]
        if seed not in self._made:
            world = seed // PER_WORLD
            self._made[seed] = forge(self.shop.base(world), self.shop.semantics, f"{self.split}/{seed}", seed, world)
        return self._made[seed]
