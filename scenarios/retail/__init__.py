"""Retail customer service for two agents: an assistant with 16 tools and a user who wants
something."""

from gem_ma.scenarios.retail.scenario import Retail
from gem_ma.scenarios.retail.store import RetailStore
from gem_ma.scenarios.retail.tasks import Item
from gem_ma.scenarios.service.desk.task import GoldCall, Slot, Task, Wish

__all__ = ["GoldCall", "Item", "Retail", "RetailStore", "Slot", "Task", "Wish"]
