"""The learner of the table engine: the clipped policy gradient, cloning and the averaged policy, in
numpy. No torch.

A reply of the table engine is one choice: its key names a row of logits, its token the index
(`gem_ma.engines.small.table`). Axes: V views of a batch, C choices (padded), N choices sampled in it.
The gradient of log p(a) by the logits z of its view is (onehot(a) - p) / temperature.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.codec import load_json
from gem_ma.config.learning import LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.small.table import Array, Table, decode, encode, fingerprint, softmax, view_key
from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import parse_legal
from gem_ma.training.learner.losses import token_weights, truncated_weight, unit_pull
from gem_ma.training.learner.mismatch import fresh_gap
from gem_ma.training.learner.rows import Demonstration, Turns
from gem_ma.types import Sampling

PARITY = 1e-5
BETAS, EPSILON = (0.9, 0.95), 1e-8  # of adam
Path = tuple[tuple[int, int], ...]  # the agent's own (view key, choice) pairs that lead to a view


class TableLearner:
    """Owns a second copy of the logits, which reaches the engine in `publish`. It averages what
    it published, see `average`."""

    def __init__(self, engine: Table, sampling: Sampling | None = None) -> None:
        self.engine, self.policy, self.sampling = engine, engine.policy, sampling or Sampling()
        if self.sampling.top_p < 1 or self.sampling.top_k > 0 or self.sampling.temperature <= 0:
            how = (
                f"temperature {self.sampling.temperature}, top_p {self.sampling.top_p}, top_k"
                f" {self.sampling.top_k}"
            )
            raise ConfigError(
                f"policy {self.policy!r}: a learned policy is sampled with temperature above 0,"
                f" top_p 1 and top_k 0; got {how}"
            )
        self.version, self.parity = engine.version, PARITY
        self.weights: dict[int, Array] = {key: row.copy() for key, row in engine.logits.items()}
        # first, second, number of steps: of adam
        self.moments: dict[int, tuple[Array, Array, float]] = {}
        self.reference: dict[int, Array] | None = None  # what loss.kl holds to
        self.paths: dict[int, Path] = {}
        # version times reach times probabilities, over all published versions
        self.sums: dict[int, Array] = {}

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
        weights = np.asarray(advantages, np.float64)
        if weights.shape != (len(table.turns),):
            raise ValueError(
                f"there must be one advantage per turn; got shape {weights.shape} for"
                f" {len(table.turns)} turns"
            )
        if not np.isfinite(weights).all():
            bad = sorted({table.episodes[n].id for n in np.flatnonzero(~np.isfinite(weights))})
            raise ValueError(
                f"policy {self.policy!r}: advantages are not finite in episodes {bad[:5]}"
            )
        batch = self._batch(table, weights)
        if batch is None:
            return {"turns": 0.0, "tokens": 0.0, "optimizer_steps": 0.0}
        rows = _Rows.gather(self.weights, self.moments, batch)
        old = rows.logprobs(batch, self.sampling.temperature)
        anchor = self._anchor(batch) if settings.kl else None
        gap = old - batch.sampled
        stats = {
            "turns": float(len(table.turns)),
            "tokens": float(len(batch.choice)),
            "logprob_gap": float(np.abs(gap).max()),
            "mismatch_kl": float(np.mean(np.exp(gap) - gap - 1)),
            **fresh_gap(batch.sampled, old, batch.version == self.version),
        }
        stats["zero_advantage"] = float(np.mean(weights == 0))
        steps = 0
        episodes = np.unique(batch.episode)
        for _ in range(settings.epochs):
            shuffled = episodes.tolist()
            rng.shuffle(shuffled)
            for part in np.array_split(
                np.array(shuffled), min(settings.minibatches, len(shuffled))
            ):
                chosen = np.isin(batch.episode, part)
                gradient, found = rows.gradient(
                    batch, chosen, old, anchor, self.sampling.temperature, settings
                )
                if settings.target_kl is not None and found["kl"] > settings.target_kl:
                    stats |= {**found, "optimizer_steps": float(steps), "stopped": 1.0}
                    rows.scatter(self.weights, self.moments, batch)
                    return stats
                rows.step(gradient, lr, self.engine.optimizer)
                steps += 1
                stats |= found
        rows.scatter(self.weights, self.moments, batch)
        return stats | {"optimizer_steps": float(steps), "stopped": 0.0}

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
        for key in list(self.weights)[:256]:
            ours, theirs = (
                softmax(self.weights[key], self.sampling),
                softmax(self.engine.logits[key], self.sampling),
            )
            shown = ours > 0
            gap = max(gap, float(np.abs(np.log(ours[shown]) - np.log(theirs[shown])).max()))
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
        kept = [
            *self.sums.items(),
            *((key, row) for key, (*rows, _) in self.moments.items() for row in rows),
        ]
        if any(
            key not in self.weights or row.shape != self.weights[key].shape for key, row in kept
        ):
            raise ValueError("learner.json: its rows are not those of table.json")
        self.engine.publish(self.weights, self.version)

    def fingerprint(self) -> str:
        """SHA-256 of the weights, the engine's after `publish`."""
        return fingerprint(self.weights)

    def _batch(self, table: Turns, advantages: Array) -> _Batch | None:
        found: list[tuple[Any, ...]] = []
        histories: dict[tuple[int, str], list[tuple[int, int]]] = {}
        parts: dict[tuple[int, str], int] = {}
        numbers = {
            id(episode): number
            for number, episode in enumerate({id(e): e for e in table.episodes}.values())
        }
        # own turns in order, so that a history is complete
        for n in sorted(range(len(table.turns)), key=lambda n: table.turns[n].step):
            turn, number = table.turns[n], numbers[id(table.episodes[n])]
            history = histories.setdefault((number, turn.agent), [])
            for reply in (reply for reply in turn.replies if reply.policy == self.policy):
                if (
                    len(reply.prompt_ids) != 1
                    or len(reply.token_ids) != 1
                    or len(reply.logprobs) != 1
                ):
                    raise EngineError(
                        f"policy {self.policy!r}: a reply of episode {table.episodes[n].id} was not"
                        " sampled by the table engine"
                    )
                key, choice = reply.prompt_ids[0], reply.token_ids[0]
                if key not in self.weights:
                    self.weights[key] = np.zeros(len(turn.legal or ()) or choice + 1)
                self.paths.setdefault(key, tuple(history))
                history.append((key, choice))
                found.append(
                    (
                        key,
                        choice,
                        reply.logprobs[0],
                        advantages[n],
                        number,
                        parts.setdefault((number, turn.agent), len(parts)),
                        n,
                        reply.version,
                    )
                )
        if not found:
            return None
        keys, *columns = zip(*found, strict=True)
        names = sorted(set(keys))
        rows = {key: row for row, key in enumerate(names)}
        return _Batch(names, np.array([rows[key] for key in keys]), *map(np.array, columns))

    def _anchor(self, batch: _Batch) -> Array:
        """Log-probability [N] of the choices under the weights of before the first update that
        needs them; a view not met then is uniform."""
        if self.reference is None:
            self.reference = {key: row.copy() for key, row in self.weights.items()}
        held = {
            key: self.reference.get(key, np.zeros(len(self.weights[key]))) for key in batch.keys
        }
        return _Rows.gather(held, {}, batch).logprobs(batch, self.sampling.temperature)

    def _accumulate(self) -> None:
        chances = {key: softmax(row, self.sampling) for key, row in self.weights.items()}
        for key, row in chances.items():
            reach = 1.0
            for view, choice in self.paths.get(key, ()):
                reach *= float(chances[view][choice])
            self.sums[key] = self.sums.get(key, 0.0) + self.version * reach * row


class _Batch(NamedTuple):
    """Sampled choices: `keys` names the V views, the arrays are [N]; `turn` counts the rows of
    the table."""

    keys: list[int]
    view: NDArray[np.int64]
    choice: NDArray[np.int64]
    sampled: Array
    advantage: Array
    episode: NDArray[np.int64]
    part: NDArray[np.int64]  # one agent's part in one episode
    turn: NDArray[np.int64]
    version: NDArray[np.int64]


class _Rows:
    """The logits of a batch's views as one matrix [V, C], with the moments of adam; padding is
    -inf."""

    def __init__(self, logits: Array, first: Array, second: Array, steps: Array) -> None:
        self.logits, self.first, self.second, self.steps = logits, first, second, steps

    @classmethod
    def gather(
        cls,
        weights: Mapping[int, Array],
        moments: Mapping[int, tuple[Array, Array, float]],
        batch: _Batch,
    ) -> _Rows:
        shape = (len(batch.keys), max(len(weights[key]) for key in batch.keys))
        rows = cls(
            np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape), np.zeros((shape[0], 1))
        )
        for v, key in enumerate(batch.keys):
            size = len(weights[key])
            rows.logits[v, :size] = weights[key]
            if key in moments:
                rows.first[v, :size], rows.second[v, :size], rows.steps[v, 0] = moments[key]
        return rows

    def scatter(
        self,
        weights: dict[int, Array],
        moments: dict[int, tuple[Array, Array, float]],
        batch: _Batch,
    ) -> None:
        for v, key in enumerate(batch.keys):
            size = len(weights[key])
            weights[key] = self.logits[v, :size].copy()
            if self.steps[v, 0]:
                moments[key] = (
                    self.first[v, :size].copy(),
                    self.second[v, :size].copy(),
                    float(self.steps[v, 0]),
                )

    def chances(self, temperature: float) -> Array:
        scaled = np.exp((self.logits - self.logits.max(axis=1, keepdims=True)) / temperature)
        return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))

    def logprobs(self, batch: _Batch, temperature: float) -> Array:
        return np.asarray(np.log(self.chances(temperature)[batch.view, batch.choice]))

    def gradient(
        self,
        batch: _Batch,
        chosen: NDArray[np.bool_],
        old: Array,
        anchor: Array | None,
        temperature: float,
        settings: LossSettings,
    ) -> tuple[Array, dict[str, float]]:
        """Ascent direction [V, C] of the clipped objective plus entropy on the chosen choices,
        its norm limited to `grad_clip`."""
        view, choice, turn, part = (
            batch.view[chosen],
            batch.choice[chosen],
            batch.turn[chosen],
            batch.part[chosen],
        )
        worth = batch.advantage[chosen] * truncated_weight(
            old[chosen] - batch.sampled[chosen], turn, part, settings.ratio, settings.tis
        )
        chances = self.chances(temperature)
        logs = np.log(np.where(chances > 0, chances, 1.0))
        entropy = -(chances * logs).sum(axis=1)
        new = logs[view, choice]
        change = new - old[chosen]
        share = token_weights(turn, settings.aggregation, part, 1)
        if settings.ratio == "token":
            ratio = np.exp(change)
            clipped = np.where(worth >= 0, ratio > 1 + settings.clip, ratio < 1 - settings.clip)
            pull = np.where(clipped, 0.0, ratio * worth) * share
            loss = -float(
                (
                    np.minimum(
                        ratio * worth, np.clip(ratio, 1 - settings.clip, 1 + settings.clip) * worth
                    )
                    * share
                ).sum()
            )
        else:
            push, loss, clipped = unit_pull(
                new, old[chosen], worth, turn, part, settings.ratio, settings.clip
            )
            pull = -push
        found = {
            "entropy": float(entropy[view].mean()),
            "kl": float(np.mean(np.exp(change) - change - 1)),
            "clip_fraction": float(clipped.mean()),
        }
        if anchor is not None:
            away = anchor[chosen] - new
            pull = pull - settings.kl * (1 - np.exp(away)) / len(new)
            found["kl_reference"] = float(np.mean(np.exp(away) - away - 1))
            loss += settings.kl * found["kl_reference"]
        gradient = np.zeros_like(chances)
        np.add.at(gradient, (view, choice), pull)
        gradient -= chances * np.bincount(view, pull, len(chances))[:, None]
        if settings.entropy:
            gradient -= (
                settings.entropy
                * np.bincount(view, share, len(chances))[:, None]
                * chances
                * (logs + entropy[:, None])
            )
        gradient /= temperature
        norm = float(np.sqrt((gradient**2).sum()))
        if norm > settings.grad_clip:
            gradient *= settings.grad_clip / norm
        return gradient, {"loss": loss, "grad_norm": norm, **found}

    def step(self, gradient: Array, lr: float, optimizer: str) -> None:
        if optimizer == "sgd":
            self.logits += lr * gradient
            return
        # a view that was not visited keeps its moments
        seen = np.abs(gradient).sum(axis=1, keepdims=True) > 0
        self.steps += seen
        self.first = np.where(seen, BETAS[0] * self.first + (1 - BETAS[0]) * gradient, self.first)
        self.second = np.where(
            seen, BETAS[1] * self.second + (1 - BETAS[1]) * gradient**2, self.second
        )
        count = np.maximum(self.steps, 1)
        mean, square = self.first / (1 - BETAS[0] ** count), self.second / (1 - BETAS[1] ** count)
        self.logits += np.where(seen, lr * mean / (np.sqrt(square) + EPSILON), 0.0)


def _row(values: Any) -> Array:
    return np.array(values, np.float64)
