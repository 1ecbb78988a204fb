"""The environments: AEC, Parallel and Gymnasium projections of the one kernel. Imported for its
light part only; the environments load PettingZoo.

Decisions: docs/decisions.md#envs
"""

from gem_ma.envs.observation import to_chat

__all__ = ["to_chat"]
