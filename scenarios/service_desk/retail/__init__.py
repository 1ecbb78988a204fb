"""Retail customer service for two agents: an assistant with 16 tools and a user who wants
something."""

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service_desk.retail.scenario import Retail
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.retail.store.tasks import Item

__all__ = ["GoldCall", "Item", "Retail", "RetailStore", "Slot", "Task", "Wish"]
