"""Customer service as a two-agent talk, for any domain: the talk, its store, its tasks, and
those who watch it. Knows no domain word."""
