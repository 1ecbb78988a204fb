"""What texts of a service talk say: acts, answers, values, and the cues that they are read by. It
knows no task's solution."""
