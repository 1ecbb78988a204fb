"""Retail customer service for two agents: an assistant with 16 tools and a user who wants something."""

from gem_ma.scenarios.retail.store import RetailStore

__all__ = ["RetailStore"]
