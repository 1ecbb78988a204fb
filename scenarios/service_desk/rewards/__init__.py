"""What a talk pays turn by turn: the terms as settings, and the watchers that work them out."""
