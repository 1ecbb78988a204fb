"""A learner of language models: turns with advantages -> gradient steps on the weights of a policy.

A learner publishes to a sampler: mostly the very module that it trains, so nothing is copied.
Publishing checks that sampler and learner give the same log-probabilities, and only then raises the
version. A module that was updated and not published refuses to sample. Dropout is off, so no random
state hides here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Sampling
from gem_ma.training.learner import Demonstration, Turns
from gem_ma.training.learner.cloning import clone
from gem_ma.training.learner.forward import Scored, Scorer, most_tokens
from gem_ma.training.learner.losses import (
    DIVERGENCES,
    PAIRED,
    Clip,
    Pairs,
    Sampled,
    k3,
    pull,
    ranking,
    surrogate,
    whole,
)
from gem_ma.training.learner.probes import allowed_gap, check, noise_of, repeats
from gem_ma.training.learner.rows import Row, Tokens, minibatches, rows, told_of, units_of
from gem_ma.training.learner.torch_critic import TorchCritic
from gem_ma.training.learner.trained import PROBES, Sampler, Trained
from gem_ma.training.learner.weights import restore, saved, tensors_of
from gem_ma.training.processes.teams import Team

Array = NDArray[np.float64]


class Objective:
    """The loss of n tokens: called with a chunk of them it gives that part of the loss, to be
    differentiated, and keeps the sums that are logged.

    `old` [n]: log-probabilities before the update, filled in where they are `fresh`, since this
    very pass gives them. `anchor` [n]: those of the reference weights. `longest`: the token limit
    of a turn.
    """

    def __init__(
        self,
        sampled: Sampled,
        old: Array,
        settings: LossSettings,
        tensor: Callable[[Array], Any],
        *,
        fresh: bool,
        anchor: Array | None,
        longest: int,
    ) -> None:
        self.sampled = sampled
        self.old = old
        self.anchor = anchor
        self.fresh = fresh
        self.settings = settings
        self.tensor = tensor
        self.longest = longest
        self.count = len(sampled.turn)
        # counted over the whole step: a chunk does not know how many turns there are
        self.weight = self.sampled.weights(settings, longest)
        self.clip = Clip.of(settings)
        self.pull: Array | None = None
        # loss, entropy, k3 of old to new, clipped tokens, k3 to the reference; of the chunks of
        # this process
        self.sums = np.zeros(5)
        # what every process knows of the whole minibatch, so that it is counted once
        self.whole = np.zeros(5)

    def pull_units(self, logprobs: Array) -> None:
        """Of a ratio of whole turns or episodes, and of pairs: what each token's log-probability
        [n] is pulled by. A chunk may hold half a turn, so this needs a pass ahead."""
        whole = pull(logprobs, self.old, self.sampled, self.settings, self.longest, self.anchor)
        self.pull = whole.slope
        self.whole[0] = whole.loss
        self.whole[3] = whole.clipped.sum()

    def __call__(self, scored: Scored) -> Any:
        """The part of the loss that these tokens make, as a tensor."""
        logprobs = scored.logprobs
        order = scored.order
        how = self.settings
        if self.fresh:  # no step was taken yet: this pass gives the values of before the update
            self.old[order] = logprobs.detach().double().cpu().numpy()
        before = self.tensor(self.old[order])
        if self.pull is not None:
            # linear in the log-probabilities, with the gradient that the whole has
            loss = (logprobs * self.tensor(self.pull[order])).sum()
        else:
            loss = self._surrogate(logprobs, before, order)
            self.sums[0] += float(loss.detach())
        if how.entropy:
            bonus = how.entropy * scored.entropy.sum() / self.count
            self.sums[0] -= float(bonus.detach())
            loss = loss - bonus
        if self.anchor is not None:
            anchor = self.tensor(self.anchor[order])
            # in nats whatever the form
            self.sums[4] += float(k3(logprobs.detach(), anchor).sum())
            if how.kl:  # a loss of pairs has its anchor for itself
                away = DIVERGENCES[how.kl_form](logprobs, anchor).sum()
                self.sums[0] += how.kl * float(away.detach()) / self.count
                loss = loss + how.kl * away / self.count
        self.sums[1] += float(scored.entropy.detach().sum())
        self.sums[2] += float(k3(before, logprobs.detach()).sum())
        return loss

    def _surrogate(self, logprobs: Any, before: Any, order: NDArray[np.int64]) -> Any:
        # without gradient: the correction for the sampler is a weight, not a part of the objective
        worth = self.sampled.take(order).worth(self.old[order], self.settings)
        objective = surrogate(self.settings.surrogate)
        gain, clipped = objective(logprobs, before, self.tensor(worth), self.clip)
        self.sums[3] += float(clipped.sum())
        return -(gain * self.tensor(self.weight[order])).sum()


class Teacher:
    """The model of a policy that stays as it is, and says how likely it finds the tokens of a
    learner (`train.loss.reference`), at its own temperature, among the ids that the learner chose
    among. The two may differ in everything but what an id stands for.

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


class TorchLearner(Trained):
    """Learns the weights of a `transformers` engine from turns, and publishes them to its sampler.
    With an adapter, the adapter alone learns, is published and is in checkpoints."""

    def __init__(
        self, engine: Transformers, sampling: Sampling | None = None, sampler: Sampler | None = None
    ) -> None:
        super().__init__(engine, sampling, sampler)
        self.teacher: Teacher | None = None
        self.repeats = repeats(self)
        self.remember()  # takes a copy where draws cannot be repeated, so it comes after

    @property
    def parity(self) -> float:
        """Nats that the `fresh_gap` of an update may be: twice what probes may, which are
        shorter."""
        return 2 * allowed_gap(self)

    def join(self, team: Team) -> None:
        """See `Joins`: its passes are shared among the processes of this team."""
        self.scorer.team = team

    def critic(self) -> TorchCritic:
        """See `Values`: a copy of the model, or an adapter beside this one."""
        return TorchCritic(self.engine)

    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """Gradient steps on the turns [N] with these advantages [N]; minibatches are cut by
        episode, in an order drawn from `rng`.

        Metrics: loss, entropy (nats a token), kl (mean k3 of old to new over minibatches before
        their step), clip_fraction, grad_norm (before clipping), kl_reference (with loss.kl: mean
        k3 to the weights at the start), logprob_gap and mismatch_kl (sampler to learner before
        the update), fresh_gap (see `gem_ma.training.learner.parity`), zero_advantage (share of
        turns), lag (publishes since the oldest token), forks (rows that restarted), rows, turns,
        tokens, optimizer_steps, stopped (1 where target_kl ended the update). Raises EngineError,
        with the weights of before the failing step, where a number is not finite.
        """
        binding = self.engine.binding
        allowed = binding.allowed if binding.constrain else None
        self.look(table)
        made = rows(table, advantages, self.policy, allowed, self.sight)
        if not made.rows:
            return {"turns": 0.0, "tokens": 0.0, "rows": 0.0, "optimizer_steps": 0.0}
        self.bound(settings)
        self.probe_with(made.rows)
        every = Tokens.of(made.rows)
        good = np.isfinite(every.advantage) & np.isfinite(every.logprob)
        self.finite(good, "an advantage or a sampled log-probability", made.rows)
        # ahead: a holder of the base's lock may wait for that of a copy on it
        paired = settings.surrogate in PAIRED
        anchor = self._taught(made.rows) if settings.kl or paired else None
        with self.engine.lock:
            # nothing was published yet, and the bound of `parity` is counted in units of it
            if self.noise is None:
                self.noise = noise_of(self, made.rows[:PROBES])
            # counted over this update's passes alone
            self.scorer.fed = self.scorer.used = 0
            if (settings.kl or paired) and anchor is None:
                anchor = self._anchor(made.rows)
            units = units_of(table)[:, every.turn]
            steps, old = self._steps(made.rows, every, units, anchor, lr, settings, rng)
            self.padding = 1 - self.scorer.used / max(self.scorer.fed, 1)
        if paired and anchor is not None:
            steps |= ranking(old - anchor, Pairs.of(every.advantage, *units))
        return {**steps, **told_of(made, every, old, self.version)}

    def bound(self, settings: LossSettings) -> None:
        self.scorer.pass_tokens = min(settings.pass_tokens, most_tokens(self.engine.model))
        self.scorer.recompute = settings.recompute

    def divergence(self, table: Turns) -> tuple[NDArray[np.float64], int]:
        """See `Anchors`; it costs a pass."""
        nothing = np.zeros(len(table.turns))
        binding = self.engine.binding
        self.look(table)
        bound = binding.allowed if binding.constrain else None
        made = rows(table, nothing, self.policy, bound, self.sight)
        if not made.rows:
            return nothing, 0
        every = Tokens.of(made.rows)
        anchor = self._taught(made.rows)
        if anchor is None:
            with self.engine.lock:
                anchor = self._anchor(made.rows)
        away = every.logprob - anchor
        # before it is a reward: there its origin could no longer be seen
        self.finite(np.isfinite(away), "a log-probability", made.rows)
        return np.bincount(every.turn, away, len(nothing)).astype(np.float64), len(away)

    def hold(self) -> None:
        self.reference = {name: weight.detach().clone() for name, weight in self.parameters.items()}

    def follow(self, teacher: Policy) -> None:
        self.teacher = Teacher(teacher, self.engine)

    def _taught(self, chosen: Sequence[Row]) -> NDArray[np.float64] | None:
        """Log-probability [n] of every trained token under the teacher, None without one."""
        if self.teacher is None:
            return None
        logprobs = self.teacher.logprobs(chosen, self.scorer.team)
        what = f"a log-probability of the teacher {self.teacher.policy!r}"
        self.finite(np.isfinite(logprobs), what, chosen)
        return logprobs

    def _anchor(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the reference weights."""
        if not self.reference:  # the weights of before the first update, clone included
            self.hold()
        with self.holding(self.reference):
            return self.scorer.logprobs(chosen)

    def _steps(
        self,
        all_rows: tuple[Row, ...],
        every: Tokens,
        units: NDArray[np.int64],  # [2, n] the part and the group of each token, see `units_of`
        anchor: NDArray[np.float64] | None,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> tuple[dict[str, float], NDArray[np.float64]]:
        """(metrics, log-probabilities [n] before the update). A ratio of tokens needs no pass
        ahead for the first minibatch: its own is of before."""
        cuts = np.split(
            np.arange(len(every.turn)), np.cumsum([int(row.mask.sum()) for row in all_rows])[:-1]
        )
        old = np.zeros(len(every.turn))
        seen: list[tuple[float, ...]] = []
        stopped = False
        for group in self.optimizer.param_groups:  # the schedule is ours, not the optimiser's
            group |= {"lr": lr, "betas": tuple(settings.betas), "eps": settings.eps}
            group["weight_decay"] = settings.weight_decay
        for number, chosen in enumerate(minibatches(all_rows, settings, rng)):
            fresh = number == 0 and not whole(settings)
            if number == 0:
                ahead = sorted(set(range(len(all_rows))) - set(chosen if fresh else ()))
                if ahead:
                    # now, while the weights are those of before the update
                    places = np.concatenate([cuts[n] for n in ahead])
                    held = [all_rows[n] for n in ahead]
                    old[places] = self.scorer.logprobs(held)
                    self.finite(np.isfinite(old[places]), "a log-probability", held)
            tokens = np.concatenate([cuts[n] for n in chosen])
            before = old[tokens]
            anchored = anchor[tokens] if anchor is not None else None
            picked = [all_rows[n] for n in chosen]
            taken = (every.take(tokens), units[:, tokens])
            measured = self._minibatch(picked, *taken, before, fresh, anchored, settings)
            if measured is None:
                stopped = True
                break
            old[tokens] = before  # a copy by index: what the first pass filled in goes back
            seen.append(measured)
        mean = np.mean(seen, axis=0)
        names = ("loss", "entropy", "kl", "clip_fraction", "grad_norm", "kl_reference")[: len(mean)]
        told = dict(zip(names, map(float, mean), strict=True))
        return {**told, "optimizer_steps": float(len(seen)), "stopped": float(stopped)}, old

    def _minibatch(
        self,
        chosen: list[Row],
        tokens: Tokens,
        units: NDArray[np.int64],
        old: NDArray[np.float64],
        fresh: bool,  # `old` is not known yet: this very pass gives it
        anchor: NDArray[np.float64] | None,
        settings: LossSettings,
    ) -> tuple[float, ...] | None:
        """One optimiser step; None, without a step, where the policy has moved further than
        target_kl."""
        count = len(tokens.turn)
        team = self.scorer.team
        goal = Objective(
            Sampled(tokens.advantage, tokens.logprob, tokens.turn, *units),
            old,
            settings,
            self.tensor,
            fresh=fresh,
            anchor=anchor,
            longest=self.longest,
        )
        # a ratio of a whole turn needs all its tokens first, so this costs a pass without gradient
        if whole(settings):
            goal.pull_units(self.scorer.logprobs(chosen))
        for pack in self.scorer.packs(chosen):
            self.scorer.learn(pack, goal, spread=bool(settings.entropy), added=self.gather)
        sums = (team.sum(goal.sums) + goal.whole).tolist()
        loss_sum, entropy_sum, kl_sum, clipped_sum, away_sum = sums
        if fresh:
            # each process has filled in its share, and zeros elsewhere
            old[:] = team.sum(old)
            if not np.isfinite(old).all():
                self.forget()
            self.finite(np.isfinite(old), "a log-probability", chosen)
        # asked of the sums of all processes, so that all stop at the same step
        if settings.target_kl is not None and kl_sum / count > settings.target_kl:
            self.forget()
            return None
        norm = self.step(settings.grad_clip, loss_sum, chosen)
        found = (loss_sum, entropy_sum / count, kl_sum / count, clipped_sum / count, norm)
        return (*found, away_sum / count) if anchor is not None else found

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]:
        """Behaviour cloning, see `gem_ma.training.learner.cloning`."""
        return clone(self, demonstrations, settings)

    def prompt(self, agent: str, view: Sequence[Message]) -> tuple[int, ...]:
        """The ids of what an agent saw, without tools."""
        return self.with_pictures(self.engine.chat.render(agent, view, ()), view)

    def spell(self, text: str) -> tuple[int, ...]:
        """The ids of a text as an answer, the end of turn included."""
        return self.engine.chat.answer(text)

    def publish(self) -> dict[str, float]:
        """Gives the weights to the sampler, checks it against the learner on a few prompts, then
        raises the version.

        Raises EngineError where they differ; the sampler then refuses to sample.
        """
        with self.engine.lock:
            if self.sampler is not self.engine:
                # a copy that broke off half way must not be sampled from
                self.sampler.unpublished = True
                self.sampler.take(self.parameters)
            metrics = self.check()
            self.sampler.version += 1
            self.sampler.unpublished = False
            self.remember()
        return {**metrics, "version": float(self.version)}

    def check(self) -> dict[str, float]:
        """How far sampler and learner are apart, see `gem_ma.training.learner.probes`. Raises
        EngineError where that is more than rounding."""
        return check(self)

    def state(self) -> dict[str, bytes]:
        """Files of a checkpoint, see `gem_ma.training.learner.weights`."""
        return saved(self)

    def tensors(self) -> dict[str, Any]:
        """See `Shards`: masters, moments and reference weights by name."""
        return tensors_of(self)

    def load(self, files: Mapping[str, bytes], shards: Sequence[Path] = ()) -> None:
        """Puts weights, optimiser and version back; `shards`: see `Shards`. Raises DataError, with
        nothing changed, where a file is missing, damaged or of another model."""
        restore(self, files, shards)
