"""Programs to write, judged by tests that they cannot see."""
