"""The learner of the table engine: updates, cloning and the averaged policy, in numpy. No torch.

A reply of the table engine is one choice: its key names a row of logits, its token the index
(`gem_ma.engines.small.table`). The gradient is that of `gem_ma.training.learner.table_rows`.
Axis: N choices sampled in a batch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.small.table import Array, Table, decode, encode, fingerprint, softmax, view_key
from gem_ma.errors import EngineError
from gem_ma.json_text import load_json
from gem_ma.parsing import parse_legal
from gem_ma.training.learner.critic import TableCritic
from gem_ma.training.learner.losses import k3
from gem_ma.training.learner.mismatch import check_sampling, fresh_gap
from gem_ma.training.learner.rows import Demonstration, Turns
from gem_ma.training.learner.slopes import Slope
from gem_ma.training.learner.table_rows import Batch, Moment, TableRows
from gem_ma.types import Sampling

PROBED = 256  # views that a publish compares; a table may have millions
PARITY = 1e-5  # nats; both sides are float64 softmaxes of the same numbers
Path = tuple[tuple[int, int], ...]  # the agent's own (view key, choice) pairs that lead to a view


class TableLearner:
    """Owns a second copy of the logits, which reaches the engine in `publish`. It averages what
    it published, see `average`."""

    def __init__(self, engine: Table, sampling: Sampling | None = None) -> None:
        self.engine, self.policy, self.sampling = engine, engine.policy, sampling or Sampling()
        check_sampling(self.policy, self.sampling)
        self.version, self.parity = engine.version, PARITY
        self.weights: dict[int, Array] = {key: row.copy() for key, row in engine.logits.items()}
        self.moments: dict[int, Moment] = {}
        self.reference: dict[int, Array] | None = None  # what loss.kl holds to
        self.paths: dict[int, Path] = {}
        # version times reach times probabilities, over all published versions
        self.sums: dict[int, Array] = {}

    def critic(self) -> TableCritic:
        """See `Values`: one number per view."""
        return TableCritic()

    def bound(self, settings: LossSettings) -> None:
        """A table has no passes whose memory could be bounded."""

    def update(
        self,
        table: Turns,
        advantages: NDArray[np.float64],
        *,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """Optimiser steps on the choices of these turns; minibatches are cut by episode. Gives the
        statistics of the last pass.

        Raises EngineError for a reply that the table engine did not sample, ValueError for
        advantages [N] that are not finite or do not fit.
        """
        batch = self._batch(table, self._checked(table, advantages))
        if batch is None:
            return {"turns": 0.0, "tokens": 0.0, "optimizer_steps": 0.0}
        rows = TableRows.gather(self.weights, self.moments, batch)
        old = rows.logprobs(batch, self.sampling.temperature)
        stats = {
            "turns": float(len(table.turns)),
            "tokens": float(len(batch.choice)),
            "logprob_gap": float(np.abs(old - batch.sampled).max()),
            "mismatch_kl": float(k3(Slope.of(batch.sampled), old).value.mean()),
            **fresh_gap(batch.sampled, old, batch.version == self.version),
            "zero_advantage": float(np.mean(np.asarray(advantages) == 0)),
        }
        stats |= self._steps(rows, batch, old, lr, settings, rng)
        rows.scatter(self.weights, self.moments, batch)
        return stats

    def _checked(self, table: Turns, advantages: Array) -> Array:
        """The advantages [N]. Raises ValueError where they do not fit or are not finite."""
        worth = np.asarray(advantages, np.float64)
        if worth.shape != (len(table.turns),):
            raise ValueError(
                f"there must be one advantage per turn; got shape {worth.shape} for"
                f" {len(table.turns)} turns"
            )
        if not np.isfinite(worth).all():
            bad = sorted({table.episodes[n].id for n in np.flatnonzero(~np.isfinite(worth))})
            raise ValueError(
                f"policy {self.policy!r}: advantages are not finite in episodes {bad[:5]}"
            )
        return worth

    def _steps(
        self,
        rows: TableRows,
        batch: Batch,
        old: Array,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        """The optimiser steps of an update; metrics of the last one."""
        anchor = self._anchor(batch) if settings.kl else None
        metrics: dict[str, float] = {}
        steps = 0
        episodes = np.unique(batch.episode)
        for _ in range(settings.epochs):
            shuffled = episodes.tolist()
            rng.shuffle(shuffled)
            parts = min(settings.minibatches, len(shuffled))
            for part in np.array_split(np.array(shuffled), parts):
                chosen = np.isin(batch.episode, part)
                gradient, measured = rows.gradient(
                    batch, chosen, old, anchor, self.sampling.temperature, settings
                )
                metrics |= measured
                if settings.target_kl is not None and measured["kl"] > settings.target_kl:
                    return {**metrics, "optimizer_steps": float(steps), "stopped": 1.0}
                rows.step(gradient, lr, self.engine.optimizer)
                steps += 1
        return {**metrics, "optimizer_steps": float(steps), "stopped": 0.0}

    def clone(
        self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
    ) -> dict[str, float]:
        """Maximum likelihood in closed form: the share of each choice in each view, one choice of
        uniform weight added.

        A table needs no gradient steps for it, so `steps`, `batch` and `lr` of the settings are
        not used. Texts that name no legal string are counted in `unreadable`.
        """
        counts: dict[int, Array] = {}
        unreadable = 0
        for demonstration in demonstrations:
            request = demonstration.request
            choice = parse_legal(demonstration.text, request.legal) if request.legal else None
            if request.legal is None or choice is None:
                unreadable += 1
                continue
            key = view_key(request.agent, request.messages, request.legal)
            counts.setdefault(key, np.full(len(request.legal), 1 / len(request.legal)))[
                request.legal.index(choice)
            ] += 1
        loss = 0.0
        for key, row in counts.items():
            self.weights[key] = np.log(row / row.sum())
            loss -= float(((row - 1 / len(row)) * self.weights[key]).sum())
        cloned = len(demonstrations) - unreadable
        return {
            "demonstrations": float(cloned),
            "unreadable": float(unreadable),
            "views": float(len(counts)),
            "nll": loss / max(1, cloned),
        }

    def publish(self) -> dict[str, float]:
        """Hands the weights to the engine, checks that its log-probabilities are ours, then
        raises the version. Raises EngineError."""
        self.engine.publish(self.weights, self.version)
        gap = 0.0
        for key in list(self.weights)[:PROBED]:
            ours = softmax(self.weights[key], self.sampling)
            theirs = softmax(self.engine.logits[key], self.sampling)
            possible = ours > 0  # a choice of probability 0 has no logarithm to compare
            apart = np.log(ours[possible]) - np.log(theirs[possible])
            gap = max(gap, float(np.abs(apart).max()))
        if not gap < PARITY:
            raise EngineError(
                f"policy {self.policy!r}: after publishing, engine and learner differ by {gap} in"
                f" log-probability (limit {PARITY})"
            )
        self.version += 1
        self.engine.version = self.version
        self._accumulate()
        return {"parity_gap": gap}

    def average(self) -> Table:
        """An engine that plays the average of all published versions, version v with weight v times
        the agent's own reach of the view.

        It equals drawing one version per episode (the later the likelier) and playing it
        throughout. In self-play this average approaches an equilibrium, not the last iterate.
        Exact because a view holds all that its agent saw and did.
        """
        table = Table(policy=self.policy, optimizer=self.engine.optimizer)
        for key, row in self.weights.items():
            total = self.sums.get(key)
            table.logits[key] = (
                row.copy()
                if total is None or not total.sum() > 0
                else np.log(np.maximum(total / total.sum(), 1e-300))
            )
        table.version = self.version
        return table

    def state(self) -> dict[str, bytes]:
        """Everything that a resume needs, as JSON files; floats survive bit for bit."""
        moments = {
            str(key): [m.tolist(), v.tolist(), n] for key, (m, v, n) in sorted(self.moments.items())
        }
        rest = {
            "version": self.version,
            "moments": moments,
            "paths": {str(key): path for key, path in sorted(self.paths.items())},
            "sums": {str(key): row.tolist() for key, row in sorted(self.sums.items())},
        }
        held = {"reference.json": encode(self.reference)} if self.reference is not None else {}
        return {
            **held,
            "table.json": encode(self.weights),
            "learner.json": json.dumps(rest).encode(),
        }

    def load(self, files: Mapping[str, bytes]) -> None:
        """The inverse of `state`; the engine gets the weights too."""
        self.weights = decode(files["table.json"], f"policy {self.policy!r}: table.json")
        rest = load_json(files["learner.json"])
        held = files.get("reference.json")
        self.reference = (
            decode(held, f"policy {self.policy!r}: reference.json") if held is not None else None
        )
        self.version = int(rest["version"])
        self.moments = {
            int(key): (_row(m), _row(v), float(n)) for key, (m, v, n) in rest["moments"].items()
        }
        self.paths = {
            int(key): tuple((int(view), int(choice)) for view, choice in path)
            for key, path in rest["paths"].items()
        }
        self.sums = {int(key): _row(row) for key, row in rest["sums"].items()}
        rows = [
            *self.sums.items(),
            *((key, row) for key, (*pair, _) in self.moments.items() for row in pair),
        ]
        shapes = {key: row.shape for key, row in self.weights.items()}
        if any(row.shape != shapes.get(key) for key, row in rows):
            raise ValueError("learner.json: its rows are not those of table.json")
        self.engine.publish(self.weights, self.version)

    def fingerprint(self) -> str:
        """SHA-256 of the weights, the engine's after `publish`."""
        return fingerprint(self.weights)

    def _batch(self, table: Turns, advantages: Array) -> Batch | None:
        """The choices that this policy made in these turns; None where it made none. A view that
        is met for the first time gets logits of 0."""
        choices: list[tuple[Any, ...]] = []
        histories: dict[tuple[int, str], list[tuple[int, int]]] = {}
        parts: dict[tuple[int, str], int] = {}
        once = {id(episode): episode for episode in table.episodes}
        numbers = {key: number for number, key in enumerate(once)}
        # in the order of play, so that a history is complete when its view is met
        for n in sorted(range(len(table.turns)), key=lambda n: table.turns[n].step):
            turn, number = table.turns[n], numbers[id(table.episodes[n])]
            history = histories.setdefault((number, turn.agent), [])
            part = parts.setdefault((number, turn.agent), len(parts))
            for reply in (reply for reply in turn.replies if reply.policy == self.policy):
                if {len(reply.prompt_ids), len(reply.token_ids), len(reply.logprobs)} != {1}:
                    raise EngineError(
                        f"policy {self.policy!r}: a reply of episode {table.episodes[n].id} was not"
                        " sampled by the table engine"
                    )
                key, choice = reply.prompt_ids[0], reply.token_ids[0]
                if key not in self.weights:
                    self.weights[key] = np.zeros(len(turn.legal or ()) or choice + 1)
                self.paths.setdefault(key, tuple(history))
                history.append((key, choice))
                sampled = (reply.logprobs[0], advantages[n], number, part, n, reply.version)
                choices.append((key, choice, *sampled))
        if not choices:
            return None
        keys, *columns = zip(*choices, strict=True)
        names = sorted(set(keys))
        rows = {key: row for row, key in enumerate(names)}
        return Batch(names, np.array([rows[key] for key in keys]), *map(np.array, columns))

    def _anchor(self, batch: Batch) -> Array:
        """Log-probability [N] of the choices under the weights of before the first update that
        needs them; a view not met then is uniform."""
        if self.reference is None:
            self.reference = {key: row.copy() for key, row in self.weights.items()}
        held = {
            key: self.reference.get(key, np.zeros(len(self.weights[key]))) for key in batch.keys
        }
        return TableRows.gather(held, {}, batch).logprobs(batch, self.sampling.temperature)

    def _accumulate(self) -> None:
        chances = {key: softmax(row, self.sampling) for key, row in self.weights.items()}
        for key, row in chances.items():
            reach = 1.0
            for view, choice in self.paths.get(key, ()):
                reach *= float(chances[view][choice])
            self.sums[key] = self.sums.get(key, 0.0) + self.version * reach * row


def _row(values: Any) -> Array:
    return np.array(values, np.float64)
