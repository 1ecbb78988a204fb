"""Worlds for many agents, 2 to 64 of them: what one does changes what there is for all."""
