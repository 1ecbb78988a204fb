"""Tools for agents, and the guarded workers that run what a model wrote."""
