"""A learner: turns with advantages -> gradient steps on the weights of one policy; and the protocol that every learner follows.

Knows weights, optimiser and loss; knows neither scenarios nor how advantages came about. The learner trains the very module that the engine
samples from, so publishing copies nothing: it checks that the sampler's cached path and the learner's forward pass give the same
log-probabilities, and only then raises the version. Between an update and its publish the engine refuses to sample.

Rows are packed (`gem_ma.training.packing`) and logits exist only at trained positions. Dropout is off, so no random state hides here: what is
drawn comes from `rng`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.base import stable_seed
from gem_ma.errors import ConfigError, DataError, EngineError
from gem_ma.settings import LossSettings, WarmStartSettings
from gem_ma.training.losses import clipped, entropy, k3, token_weights, truncated_weight, unit_pull
from gem_ma.training.packing import Pack, packs
from gem_ma.training.rows import Demonstration, Row, Tokens, Turns, rows
from gem_ma.types import Message, Sampling

if TYPE_CHECKING:
    from gem_ma.engines.transformers import Transformers

BETAS = (0.9, 0.95)
CLONING_DECAY, CLONING_WARMUP = 0.01, 20
PASS_TOKENS = 16_384  # padded tokens of one forward pass with gradient
PROBES, PROBE_TOKENS = 4, 4
PARITY = {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02}


class Learner(Protocol):
    """Whatever learns one policy from turns: a language model, a table, anything with a version."""

    policy: str

    @property
    def version(self) -> int: ...
    def update(self, table: Turns, advantages: NDArray[np.float64], *, lr: float, settings: LossSettings, rng: random.Random) -> dict[str, float]: ...
    def clone(self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings) -> dict[str, float]: ...
    def publish(self) -> dict[str, float]: ...
    def state(self) -> dict[str, bytes]: ...
    def load(self, files: Mapping[str, bytes]) -> None: ...
    def fingerprint(self) -> str: ...


class TorchLearner:
    """Learns the weights of a `transformers` engine.

    `sampling`: how the policy is sampled; only temperature > 0 without top_p and top_k can be trained, since the loss must see the distribution
    that was sampled from. Raises ConfigError for anything else.
    """

    def __init__(self, engine: Transformers, sampling: Sampling | None = None) -> None:
        how = sampling or Sampling()
        self.engine, self.policy, self.torch, self.model = engine, engine.policy, engine.torch, engine.model
        if how.top_p < 1 or how.top_k > 0 or how.temperature <= 0:
            raise ConfigError(
                f"policy {self.policy!r}: a learned policy is sampled with temperature above 0, top_p 1 and top_k 0; "
                f"got temperature {how.temperature}, top_p {how.top_p}, top_k {how.top_k}"
            )
        self.temperature, self.longest = how.temperature, how.max_tokens
        self.model.requires_grad_(True)
        self.parameters: dict[str, Any] = dict(self.model.named_parameters())
        self.optimizer = self._optimizer(0.0)
        self._probes: list[tuple[int, ...]] = []
        self.reference: dict[str, Any] = {}  # the weights that loss.kl holds to; taken before the first update that needs them
        self._dtype = str(self.model.dtype).removeprefix("torch.")
        self._probe_model()

    @property
    def version(self) -> int:
        """Number of publishes of these weights."""
        return self.engine.version

    # -- learning -----------------------------------------------------------------------------------------------------------

    def update(self, table: Turns, advantages: NDArray[np.float64], *, lr: float, settings: LossSettings, rng: random.Random) -> dict[str, float]:
        """Gradient steps on the turns [N] with these advantages [N]; minibatches are cut by episode, in an order drawn from `rng`.

        Metrics: loss, entropy (nats a token), kl (mean k3 of old to new over minibatches before their step), clip_fraction, grad_norm (before
        clipping), kl_reference (with loss.kl: mean k3 to the weights at the start), logprob_gap and mismatch_kl (sampler to learner before the
        update), zero_advantage (share of turns), lag (publishes since the oldest token), forks, rows, turns, tokens, optimizer_steps, stopped
        (1 where target_kl ended the update).
        Raises EngineError, with the weights of before the failing step, where a number is not finite.
        """
        made = rows(table, advantages, self.policy)
        if not made.rows:
            return {"turns": 0.0, "tokens": 0.0, "rows": 0.0, "optimizer_steps": 0.0}
        self._probes = list(dict.fromkeys(tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in made.rows))[:PROBES]
        every = Tokens.of(made.rows)
        self._finite(np.isfinite(every.advantage) & np.isfinite(every.logprob), "an advantage or a sampled log-probability", made.rows)
        with self.engine.lock:
            old = self._old(made.rows)
            self._finite(np.isfinite(old), "a log-probability", made.rows)
            gap = np.abs(old - every.logprob)
            mismatch = k3(self.torch.from_numpy(every.logprob), self.torch.from_numpy(old))
            anchor = self._anchor(made.rows) if settings.kl else None
            _, parts = np.unique([f"{e.id}/{t.agent}" for e, t in zip(table.episodes, table.turns, strict=True)], return_inverse=True)
            steps = self._steps(made.rows, every, parts[every.turn], old, anchor, lr, settings, rng)
        _, first = np.unique(every.turn, return_index=True)
        return {
            **steps,
            "logprob_gap": float(gap.max()),
            "mismatch_kl": float(mismatch.mean()),
            "zero_advantage": float((every.advantage[first] == 0).mean()),
            "lag": float(self.version - every.version.min()),
            "forks": float(made.forks),
            "rows": float(len(made.rows)),
            "turns": float(len(first)),
            "tokens": float(len(every.turn)),
        }

    def _anchor(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the reference weights."""
        if not self.reference:
            self.reference = {name: weight.detach().clone() for name, weight in self.parameters.items()}
        now = {name: weight.data for name, weight in self.parameters.items()}
        try:
            for name, weight in self.parameters.items():
                weight.data = self.reference[name]
            return self._old(chosen)
        finally:
            for name, weight in self.parameters.items():
                weight.data = now[name]

    def _steps(
        self,
        all_rows: tuple[Row, ...],
        every: Tokens,
        parts: NDArray[np.int64],  # [n] the agent's part in an episode that a token belongs to
        old: NDArray[np.float64],
        anchor: NDArray[np.float64] | None,
        lr: float,
        settings: LossSettings,
        rng: random.Random,
    ) -> dict[str, float]:
        starts = np.cumsum([0, *(int(row.mask.sum()) for row in all_rows)])
        by_episode: dict[tuple[str, int, int], list[int]] = {}
        for at, row in enumerate(all_rows):
            by_episode.setdefault(row.episode, []).append(at)
        episodes = list(by_episode)
        seen: list[tuple[float, ...]] = []
        stopped = False
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for _ in range(settings.epochs):
            rng.shuffle(episodes)
            for part in range(min(settings.minibatches, len(episodes))):
                chosen = [at for episode in episodes[part :: settings.minibatches] for at in by_episode[episode]]
                tokens = np.concatenate([np.arange(starts[at], starts[at + 1]) for at in chosen])
                anchored = anchor[tokens] if anchor is not None else None
                measured = self._minibatch([all_rows[at] for at in chosen], every.take(tokens), parts[tokens], old[tokens], anchored, settings)
                if measured is None:
                    stopped = True
                    break
                seen.append(measured)
            if stopped:
                break
        mean = np.mean(seen, axis=0)
        names = ("loss", "entropy", "kl", "clip_fraction", "grad_norm", "kl_reference")[: len(mean)]
        return {**dict(zip(names, map(float, mean), strict=True)), "optimizer_steps": float(len(seen)), "stopped": float(stopped)}

    def _minibatch(
        self,
        chosen: list[Row],
        tokens: Tokens,
        part: NDArray[np.int64],
        old: NDArray[np.float64],
        anchor: NDArray[np.float64] | None,
        settings: LossSettings,
    ) -> tuple[float, ...] | None:
        """One optimiser step; None, without a step, where the policy has moved further than target_kl."""
        count = len(tokens.turn)
        worth = tokens.advantage * truncated_weight(old - tokens.logprob, tokens.turn, part, settings.ratio, settings.tis)
        pull: NDArray[np.float64] | None = None
        loss_sum = entropy_sum = kl_sum = clipped_sum = away_sum = 0.0
        if settings.ratio != "token":
            pull, loss_sum, cut = unit_pull(self._old(chosen), old, worth, tokens.turn, part, settings.ratio, settings.clip)
            clipped_sum = float(cut.sum())
        weight = token_weights(tokens.turn, settings.aggregation, part, self.longest)
        for pack in self._packs(chosen):
            logprobs, spread = self._forward(pack)
            before = self._tensor(old[pack.order])
            if pull is None:
                objective, is_clipped = clipped(logprobs, before, self._tensor(worth[pack.order]), settings.clip)
                loss = -(objective * self._tensor(weight[pack.order])).sum()
                loss_sum += float(loss.detach())
                clipped_sum += float(is_clipped.sum())
            else:
                loss = (logprobs * self._tensor(pull[pack.order])).sum()
            rest = -settings.entropy * spread.sum() / count
            if anchor is not None:
                away = k3(logprobs, self._tensor(anchor[pack.order])).sum()
                rest = rest + settings.kl * away / count
                away_sum += float(away.detach())
            kl_sum += float(k3(before, logprobs.detach()).sum())
            (loss + rest).backward()
            loss_sum += float(rest.detach())
            entropy_sum += float(spread.detach().sum())
        if settings.target_kl is not None and kl_sum / count > settings.target_kl:
            self.optimizer.zero_grad(set_to_none=True)
            return None
        norm = self._step(settings.grad_clip, loss_sum, chosen)
        found = (loss_sum, entropy_sum / count, kl_sum / count, clipped_sum / count, norm)
        return (*found, away_sum / count) if anchor is not None else found

    def _step(self, grad_clip: float, loss: float, chosen: Sequence[Row]) -> float:
        norm = float(self.torch.nn.utils.clip_grad_norm_(self.parameters.values(), grad_clip))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizer.zero_grad(set_to_none=True)
            self._finite(np.zeros(1, np.bool_), "the loss or its gradient", chosen)
        self.engine.unpublished = True
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def clone(self, demonstrations: Sequence[Demonstration], settings: WarmStartSettings) -> dict[str, float]:
        """Behaviour cloning: maximises the mean log-probability of the demonstrated ids, the end of turn included.

        AdamW with weight decay .01; the rate rises over 20 steps, then falls to 0 along a cosine. Metrics: loss (mean over the last tenth),
        loss_first, demonstrations, tokens (per pass over all). Raises ConfigError for no demonstrations, or words that the tokenizer lacks.
        """
        if not demonstrations:
            raise ConfigError(f"policy {self.policy!r}: there are no demonstrations to clone; does its cast seat its agents?")
        examples = [self._example(one) for one in demonstrations]
        self._probes = list(dict.fromkeys(tuple(row.ids[: int(row.mask.argmax())].tolist()) for row in examples))[:PROBES]
        optimizer, self.optimizer = self.optimizer, self._optimizer(CLONING_DECAY)
        rng = random.Random(f"clone/{settings.seed}")
        losses: list[float] = []
        queue: list[Row] = []
        try:
            with self.engine.lock:
                for step in range(settings.steps):
                    while len(queue) < settings.batch:
                        queue += rng.sample(examples, len(examples))
                    batch, queue = queue[: settings.batch], queue[settings.batch :]
                    for group in self.optimizer.param_groups:
                        group["lr"] = settings.lr * _cosine(step, settings.steps)
                    losses.append(self._imitate(batch))
        finally:
            self.optimizer = optimizer
        return {
            "loss": float(np.mean(losses[-max(1, len(losses) // 10) :])),
            "loss_first": losses[0],
            "demonstrations": float(len(examples)),
            "tokens": float(sum(int(row.mask.sum()) for row in examples)),
        }

    def _imitate(self, batch: list[Row]) -> float:
        count, total = sum(int(row.mask.sum()) for row in batch), 0.0
        for pack in self._packs(batch):
            loss = -self._forward(pack)[0].sum() / count
            loss.backward()
            total += float(loss.detach())
        self._step(1.0, total, batch)
        return total

    def _example(self, demonstration: Demonstration) -> Row:
        request = demonstration.request
        prompt, target = self.engine.chat.render(request.agent, request.messages, request.tools), self.engine.chat.answer(demonstration.text)
        if bool((self.engine.banned[list(target)] < 0).any()):
            raise ConfigError(
                f"policy {self.policy!r}: the tokenizer of {self.engine.path} has no word for {demonstration.text!r}; "
                "make the model for this scenario: gem-ma new model PATH --scenario ID"
            )
        if len(prompt) + len(target) > self.engine.positions:
            raise ConfigError(
                f"policy {self.policy!r}: a demonstration has {len(prompt) + len(target)} tokens, the model has {self.engine.positions} positions"
            )
        ids = np.array([*prompt, *target], np.int64)
        mask = np.arange(len(ids)) >= len(prompt)
        zeros = np.zeros(len(ids), np.float64)
        return Row((request.conversation, request.seed, request.turn), ids, mask, zeros, zeros, np.where(mask, 0, -1), np.zeros(len(ids), np.int64))

    # -- the forward pass ---------------------------------------------------------------------------------------------------

    def score(self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[NDArray[np.float64]]:
        """Log-probabilities of given ids after their prompts, as the loss sees them: [(prompt, ids)] -> one [len(ids)] each."""
        made = []
        for prompt, ids in sequences:
            whole = np.array([*prompt, *ids], np.int64)
            mask = np.arange(len(whole)) >= len(prompt)
            zeros = np.zeros(len(whole), np.float64)
            made.append(Row(("score", 0, 0), whole, mask, zeros, zeros, np.where(mask, 0, -1), np.zeros(len(whole), np.int64)))
        cuts = np.cumsum([len(ids) for _, ids in sequences])[:-1]
        return list(np.split(self._old(made), cuts))

    def _old(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the weights of now."""
        result = np.zeros(sum(int(row.mask.sum()) for row in chosen))
        with self.torch.no_grad():
            for pack in self._packs(chosen):
                result[pack.order] = self._forward(pack, spread=False)[0].double().cpu().numpy()
        return result

    def _packs(self, chosen: Sequence[Row]) -> Iterator[Pack]:
        return packs(chosen, tokens=PASS_TOKENS, share=self._branches)

    def _forward(self, pack: Pack, *, spread: bool = True) -> tuple[Any, Any]:
        """(log-probability [n], entropy [n]) of the tokens, under the mask and the temperature of the sampler."""
        logits = self._logits(pack)
        distribution = ((logits.float() + self.engine.banned) / self.temperature).log_softmax(-1)
        logprobs = distribution.gather(1, self._index(pack.target)[:, None])[:, 0]
        token = self._index(pack.token)
        return logprobs[token], entropy(distribution)[token] if spread else None

    def _logits(self, pack: Pack) -> Any:
        """Logits [m, V] at the trained places; a causal model needs no mask for padding on the right, branches need one."""
        given = {"input_ids": self._index(pack.ids), "use_cache": False}
        if pack.branch is not None and pack.place is not None:
            branch = self._index(pack.branch)
            sees = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
            given |= {"attention_mask": sees.tril()[:, None], "position_ids": self._index(pack.place)}
        row, position = self._index(pack.row), self._index(pack.position)
        if self._selects:
            hidden = self.model.base_model(**given).last_hidden_state
            return self.model.get_output_embeddings()(hidden[row, position])
        return self.model(**given).logits[row, position]

    def _probe_model(self) -> None:
        """Keeps to what this architecture allows: some scale or cap logits after the head, some cannot take a mask of branches."""
        first, second = ([index % self.engine.vocabulary for index in ids] for ids in ((1, 2, 3, 4, 5, 6), (1, 2, 3, 7, 8, 9)))
        pairs = [(first[:3], first[3:]), (second[:3], second[3:])]
        self._selects = self._branches = False
        plain = np.concatenate(self.score(pairs))
        for trick in ("_selects", "_branches"):
            setattr(self, trick, True)
            try:
                same = np.allclose(np.concatenate(self.score(pairs)), plain, atol=PARITY[self._dtype] / 2, equal_nan=True)
            except (ValueError, TypeError, RuntimeError, AttributeError):
                same = False
            setattr(self, trick, bool(same))

    # -- weights ------------------------------------------------------------------------------------------------------------

    def publish(self) -> dict[str, float]:
        """Checks sampler against learner on a few prompts, then raises the version. Raises EngineError where they differ."""
        prompts = self._probes or [self.engine.chat.render("x", (Message("hello"),))]
        how = Sampling(temperature=self.temperature, max_tokens=PROBE_TOKENS)
        with self.engine.lock:
            draws = self.engine.sample_ids(prompts, [how] * len(prompts), [stable_seed("probe", self.version, at) for at in range(len(prompts))])
            pairs = [(prompt, draw) for prompt, draw in zip(prompts, draws, strict=True) if draw.ids]
            scored = self.score([(prompt, draw.ids) for prompt, draw in pairs])
            gap = max((float(np.abs(ours - np.array(draw.logprobs)).max()) for ours, (_, draw) in zip(scored, pairs, strict=True)), default=0.0)
            allowed = PARITY[self._dtype]
            if not gap < allowed:
                raise EngineError(
                    f"policy {self.policy!r}: sampler and learner differ by {gap:.3g} nats at version {self.version} (allowed {allowed:g}); "
                    "the weights are not published"
                )
            self.engine.version += 1
            self.engine.unpublished = False
        return {"parity_gap": gap, "version": float(self.version)}

    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        return self.engine.fingerprint()

    def state(self) -> dict[str, bytes]:
        """Files of a checkpoint: model.safetensors, optimizer.safetensors, learner.json. Loading them resumes exactly."""
        from safetensors.torch import save

        moments, counts = {}, {}
        for name, weight in self.parameters.items():
            for key, value in self.optimizer.state.get(weight, {}).items():
                if key == "step":
                    counts[name] = float(value)
                else:
                    moments[f"{key}/{name}"] = value.detach().cpu().contiguous()
        note = {"version": self.version, "unpublished": self.engine.unpublished, "optimizer_steps": counts, "probes": [list(p) for p in self._probes]}
        weights = {name: weight.detach().cpu().contiguous() for name, weight in self.parameters.items()}
        held = {"reference.safetensors": save({name: weight.cpu().contiguous() for name, weight in self.reference.items()})} if self.reference else {}
        return {
            **held,
            "model.safetensors": save(weights),
            "optimizer.safetensors": save(moments),
            "learner.json": json.dumps(note, sort_keys=True).encode(),
        }

    def load(self, files: Mapping[str, bytes]) -> None:
        """Puts weights, optimiser and version back. Raises DataError, with nothing changed, where a file is missing, damaged or of another model."""
        from safetensors.torch import load

        try:
            weights, moments = load(files["model.safetensors"]), load(files["optimizer.safetensors"])
            reference = load(files["reference.safetensors"]) if "reference.safetensors" in files else {}
            note = json.loads(files["learner.json"])
            version, unpublished, counts = int(note["version"]), bool(note["unpublished"]), dict(note["optimizer_steps"])
            probes = [tuple(map(int, probe)) for probe in note["probes"]]
        except Exception as error:  # safetensors raises its own kinds
            raise DataError(f"policy {self.policy!r}: its checkpoint cannot be read ({type(error).__name__}: {error})") from error
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        expected = {name: tuple(weight.shape) for name, weight in self.parameters.items()}
        if shapes != expected:
            wrong = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
            raise DataError(f"policy {self.policy!r}: its checkpoint is of another model than {self.engine.path}: {wrong[0]} differs")
        optimizer = self._optimizer(0.0)
        for name, count in counts.items():
            kept = {key.partition("/")[0]: value for key, value in moments.items() if key.partition("/")[2] == name}
            if name not in expected or set(kept) != {"exp_avg", "exp_avg_sq"} or any(tuple(v.shape) != expected[name] for v in kept.values()):
                raise DataError(f"policy {self.policy!r}: its checkpoint's optimizer does not fit the model: {name}")
            step = self.torch.tensor(count, dtype=self.torch.float32, device=self.engine.device)
            optimizer.state[self.parameters[name]] = {"step": step, **{key: value.to(self.engine.device) for key, value in kept.items()}}
        with self.engine.lock, self.torch.no_grad():
            for name, weight in self.parameters.items():
                weight.copy_(weights[name])
            self.optimizer, self._probes = optimizer, probes
            self.reference = {name: weight.to(self.engine.device) for name, weight in reference.items()}
            self.engine.version, self.engine.unpublished = version, unpublished

    def _optimizer(self, weight_decay: float) -> Any:
        return self.torch.optim.AdamW(
            self.parameters.values(), lr=1e-3, betas=BETAS, weight_decay=weight_decay, fused=self.model.dtype == self.torch.float32
        )

    def _tensor(self, values: NDArray[np.float64]) -> Any:
        return self.torch.from_numpy(values.astype(np.float32)).to(self.engine.device)

    def _index(self, values: NDArray[np.int64]) -> Any:
        return self.torch.from_numpy(values).to(self.engine.device)

    def _finite(self, good: NDArray[np.bool_], what: str, chosen: Sequence[Row]) -> None:
        if good.all():
            return
        if len(good) == sum(int(row.mask.sum()) for row in chosen):
            owner = np.repeat(np.arange(len(chosen)), [int(row.mask.sum()) for row in chosen])
            chosen = [chosen[at] for at in dict.fromkeys(owner[~good].tolist())]
        names = list(dict.fromkeys(str(row.episode) for row in chosen))
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise EngineError(f"policy {self.policy!r}: {what} is not finite, so this update is refused; episodes {shown}")


def _cosine(step: int, steps: int) -> float:
    """Share of the rate at a step: rises linearly over the warm-up, then falls to 0 along a cosine."""
    warmup = min(CLONING_WARMUP, steps // 2)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
