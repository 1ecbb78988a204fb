"""Worlds and tasks of our own: drawn from a seed, told in words, proved before they are played."""
