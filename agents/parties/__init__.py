"""Players of the worlds for many agents (`gem_ma.scenarios.parties`)."""
