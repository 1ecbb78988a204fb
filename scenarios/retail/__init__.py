"""Retail customer service for two agents: an assistant with 16 tools and a user who wants something."""

from gem_ma.scenarios.retail.scenario import Retail
from gem_ma.scenarios.retail.store import RetailStore
from gem_ma.scenarios.retail.tasks import GoldCall, Identity, Item, RetailTask, Wish

__all__ = ["GoldCall", "Identity", "Item", "Retail", "RetailStore", "RetailTask", "Wish"]
