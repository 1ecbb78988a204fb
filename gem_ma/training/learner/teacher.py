"""A frozen language model that says how likely it finds the tokens of a learner: the teacher of
on-policy distillation (`train.loss.reference`).

Knows passes and vocabularies; knows no loss. The two models may differ in everything but what an id
stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.base import Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.training.learner.forward import Scorer
from gem_ma.training.learner.rows import Row
from gem_ma.training.processes.teams import Team


class Teacher:
    """The model of a policy that stays as it is. It is asked at the temperature that the policy is
    sampled with, among the ids that the learner chose among.

    Raises ConfigError where it reads other ids than the `learner`, or cannot be asked here.
    """

    def __init__(self, policy: Policy, learner: Transformers) -> None:

        self.policy = policy.name
        where = f"train.loss.reference: policy {policy.name!r}"
        if not isinstance(policy.core, Transformers):
            raise ConfigError(
                f"{where} has no weights in this process (its engine is"
                f" {type(policy.core).__name__}); give it transformers/"
            )
        self.engine = policy.core
        if self.engine.vocabulary.sight is not None or learner.vocabulary.sight is not None:
            raise ConfigError(
                f"{where}: of models that see images none can be a teacher or learn so"
            )
        _check_same_ids(self.engine.tokenizer, learner.tokenizer, where, learner.policy)
        with self.engine.lock:
            self.scorer = Scorer(self.engine, policy.sampling.temperature)
            # an id that the learner never samples has no share in what it is compared with; rows
            # of the head without a token are banned by each model for itself
            both = set(learner.vocabulary.banned) & set(range(len(learner.tokenizer)))
            padding = range(len(self.engine.tokenizer), self.engine.vocabulary.size)
            self.scorer.never = self.scorer.index(np.array([*sorted(both), *padding], np.int64))

    def logprobs(self, rows: Sequence[Row], team: Team) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token of these rows. All processes of the team ask
        for it together. Raises EngineError where a row is longer than the model's context."""
        longest = max(len(row.ids) for row in rows)
        if longest > self.engine.positions:
            raise EngineError(
                f"train.loss.reference: policy {self.policy!r} reads {self.engine.positions}"
                f" tokens, and a conversation of the learner has {longest}; take a teacher with a"
                " longer context, or end plays earlier (run.max_turns)"
            )
        self.scorer.team = team
        with self.engine.lock:
            return self.scorer.logprobs(rows)


def _check_same_ids(mine: Any, learners: Any, where: str, learner: str) -> None:
    """Raises ConfigError where an id stands for another piece of text."""
    words = mine.get_vocab()
    others = learners.get_vocab()
    if words == others:
        return
    apart = sum(others.get(word) != place for word, place in words.items())
    apart += sum(word not in words for word in others)
    raise ConfigError(
        f"{where} has another vocabulary than {learner!r}, which learns from it ({apart} of"
        f" {len(words)} and {len(others)} pieces differ): its probabilities are of other ids; take"
        " a teacher with the same tokenizer"
    )
