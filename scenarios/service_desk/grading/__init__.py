"""How well a talk that is over went: the canonical grader, that of tau2-bench's form, and the
proofs that a task is a fair test."""
