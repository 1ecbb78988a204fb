"""Who follows a talk event by event and writes down what went wrong: policy, consent, goals, blame.
Pays nothing."""
