"""What happens at a service desk: tasks, the store that tools change, and the talk with its log.
Judges nothing."""
