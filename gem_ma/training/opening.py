"""What a config that learns must pass before a run folder is made for it."""

from __future__ import annotations

from gem_ma.config.loading import Loaded
from gem_ma.runs.worlds import Worlds, worlds_of
from gem_ma.training.schedule.checks import check_discounts, checked


def checked_worlds(loaded: Loaded) -> Worlds:
    """The worlds of a config that learns. Raises ConfigError, with file and line, where `train:`
    does not fit together: before a folder is made."""

    config = loaded.config
    # a fault gets the file and line of its key
    with loaded.placing():
        worlds = worlds_of(config, base=loaded.base)
        settings = checked(config, config.policies, worlds)
        check_discounts(worlds, settings)
    return worlds
