"""Moves weights: the loop, learners, self-play, schedules, processes, trackers.

Imports runs and what lies below; shows nothing.

Decisions: docs/decisions.md#training
"""
