"""The critic of a language model: a copy of the policy's model with a head of one number, read at
the last token of the prompt.

Of a policy with a LoRA adapter nothing is copied: its critic is a second adapter of that shape on
the same base, and a head.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import CriticSettings, LossSettings
from gem_ma.credit.table import TurnTable
from gem_ma.driver.seats import remembered
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.models.sight import Picture
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.types import Tool
from gem_ma.training.learner.critic import Array, cut_views, fit_quality
from gem_ma.training.learner.forward import PASS_TOKENS, most_tokens, recomputed
from gem_ma.training.learner.rows import Rows, pictures_of, rows
from gem_ma.training.learner.table_rows import BETAS

# ids of a sequence, and its (position, row of the table) to be read
Sequenced = tuple[NDArray[np.int64], list[tuple[int, int]]]


class TorchCritic:
    """A trunk as the policy's model, whose weights or adapter are its own, with a head of one
    number per position.

    It computes on the base of its policy while others play on it, and while adapters are opened and
    closed, so it holds a lock of the base.
    """

    reads = ("lr", "epochs", "minibatches", "grad_clip")

    def __init__(self, engine: Transformers) -> None:
        self.engine = engine
        self.torch = engine.torch
        self.sight = engine.vocabulary.sight
        # opening an adapter switches all gradients of the base off for a moment
        self.lock = engine.base.another_lock()
        self.adapter: str | None = None
        self.pass_tokens = min(PASS_TOKENS, most_tokens(engine.model))
        self.recompute = False
        size = int(engine.model.config.get_text_config().hidden_size)
        if engine.adapter is None:
            # float32: nothing else keeps masters of these weights
            self.trunk = copy.deepcopy(engine.model.base_model).float()
            learned = dict(self.trunk.named_parameters())
        else:
            self.trunk = engine.model.base_model
            self.adapter = engine.beside("critic", engine.policy)
            learned = engine.base.adapters.parameters(self.adapter)
        for weight in learned.values():
            weight.requires_grad_(True)
        # starts at value 0
        self.head = self.torch.zeros(
            size + 1, dtype=self.torch.float32, device=engine.device, requires_grad=True
        )
        self.parameters: dict[str, Any] = {
            **{f"trunk.{name}": weight for name, weight in learned.items()},
            "head": self.head,
        }
        self.optimizer = self.torch.optim.AdamW(
            self.parameters.values(), lr=1e-3, betas=BETAS, weight_decay=0.0
        )

    def bound(self, settings: LossSettings) -> None:
        self.pass_tokens = min(settings.pass_tokens, most_tokens(self.engine.model))
        self.recompute = settings.recompute

    def values(self, table: TurnTable) -> Array:
        result = np.zeros(len(table))
        with self.lock, self.torch.no_grad():
            places, _held = self._places(table)
            for batch in _batches(places, self.pass_tokens):
                turns = [turn for _, mine in batch for _, turn in mine]
                result[turns] = self._forward(batch).double().cpu().numpy()
        return result

    def tails(self, episodes: Sequence[Episode], policy: str) -> dict[tuple[int, str], float]:
        cut = cut_views(episodes, policy)
        views = [
            remembered(episodes[index].cast[agent], agent, episodes[index].transcript(agent))
            for index, agent in cut
        ]
        prompts = [
            self.engine.chat.render(agent, view, _tools(episodes[index], agent))
            for (index, agent), view in zip(cut, views, strict=True)
        ]
        pictures: list[Picture] = []  # held until all are read
        if self.sight is not None:
            seen = [self.sight.with_pictures(*pair) for pair in zip(prompts, views, strict=True)]
            prompts = [prompt for prompt, _ in seen]
            pictures += (picture for _, opened in seen for picture in opened)
        pairs = zip(cut, prompts, strict=True)
        fits = [(at, ids) for at, ids in pairs if 0 < len(ids) <= self.engine.positions]
        result = dict.fromkeys(cut, 0.0)  # a view that does not fit has no value: nothing follows
        last = [(np.array(ids, np.int64), [(len(ids) - 1, n)]) for n, (_, ids) in enumerate(fits)]
        with self.lock, self.torch.no_grad():
            for batch in _batches(last, self.pass_tokens):
                read = [number for _, places in batch for _, number in places]
                for number, value in zip(read, self._forward(batch).tolist(), strict=True):
                    result[fits[number][0]] = value
        return result

    def fit(
        self, table: TurnTable, targets: Array, settings: CriticSettings, rng: random.Random
    ) -> dict[str, float]:
        """Squared error towards the targets [N]. Metrics: value_loss (mean squared error
        before), explained (variance), value_grad_norm."""
        if not len(table):
            return {}
        with self.lock:
            return {
                **fit_quality(self.values(table), targets),
                "value_grad_norm": self._descend(table, targets, settings, rng),
            }

    def _places(self, table: TurnTable) -> tuple[list[Sequenced], list[Picture]]:
        """What is read, and the images that must be held meanwhile."""
        policy = str(table.policy[0]) if len(table) else ""
        pictures = list[Picture]()
        if self.sight is not None:
            pictures = pictures_of(table, policy, self.sight)
        return _places(rows(table, np.zeros(len(table)), policy, sight=self.sight)), pictures

    def _descend(
        self, table: TurnTable, targets: Array, settings: CriticSettings, rng: random.Random
    ) -> float:
        """The gradient steps of a fit; the mean norm of their gradients before clipping."""
        norms: list[float] = []
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr
        # by row of tokens: turns of one row share a forward pass
        places, _held = self._places(table)
        for _ in range(settings.epochs):
            rng.shuffle(places)
            for part in range(min(settings.minibatches, len(places))):
                chosen = places[part :: settings.minibatches]
                # of the minibatch, so that its passes add up to one mean
                count = sum(len(mine) for _, mine in chosen)
                for batch in _batches(chosen, self.pass_tokens):
                    self._pull(batch, targets, count)
                clip = self.torch.nn.utils.clip_grad_norm_
                norms.append(float(clip(self.parameters.values(), settings.grad_clip)))
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
        return float(np.mean(norms))

    def _pull(self, batch: Sequence[Sequenced], targets: Array, count: int) -> None:
        """Adds the gradients of one pass: its part of the mean square error over `count` turns."""
        wanted = self.torch.tensor(
            [targets[turn] for _, mine in batch for _, turn in mine], dtype=self.torch.float32
        )
        with recomputed(self.trunk) if self.recompute else nullcontext():
            away = self._forward(batch) - wanted.to(self.engine.device)
            (away**2).sum().div(count).backward()

    def _forward(self, batch: Sequence[tuple[NDArray[np.int64], Sequence[tuple[int, int]]]]) -> Any:
        """Values [m] at the places of these sequences, in their order; padding lies on the
        right, where a causal model does not look."""
        ids = np.zeros((len(batch), max(len(sequence) for sequence, _ in batch)), np.int64)
        for number, (sequence, _) in enumerate(batch):
            ids[number, : len(sequence)] = sequence
        if self.sight is not None:
            inputs = self.sight.inputs(self.torch, ids)
        else:
            inputs = {"input_ids": self.torch.from_numpy(ids).to(self.engine.device)}
        with self.engine.base.routed(self.adapter):
            hidden = self.trunk(**inputs, use_cache=False).last_hidden_state
        row = [number for number, (_, places) in enumerate(batch) for _ in places]
        position = [place for _, places in batch for place, _ in places]
        return hidden[row, position].float() @ self.head[:-1] + self.head[-1]

    def state(self) -> dict[str, bytes]:
        from safetensors.torch import save

        moments = {}
        counts = {}
        for name, weight in self.parameters.items():
            for key, value in self.optimizer.state.get(weight, {}).items():
                if key == "step":
                    counts[name] = float(value)
                else:
                    moments[f"{key}/{name}"] = value.detach().cpu().contiguous()
        weights = {name: w.detach().cpu().contiguous() for name, w in self.parameters.items()}
        files = {"critic.safetensors": save(weights), "critic_optimizer.safetensors": save(moments)}
        return {**files, "critic.json": json.dumps(counts, sort_keys=True).encode()}

    def load(self, files: Mapping[str, bytes]) -> None:
        from safetensors.torch import load

        try:
            weights = load(files["critic.safetensors"])
            moments = load(files["critic_optimizer.safetensors"])
            counts = {
                str(name): float(count) for name, count in json.loads(files["critic.json"]).items()
            }
            with self.torch.no_grad():
                for name, weight in self.parameters.items():
                    weight.copy_(weights[name])
        except Exception as error:  # safetensors raises its own kinds
            raise DataError(
                f"the checkpoint of a critic cannot be read ({type(error).__name__}: {error})"
            ) from error
        for name, count in counts.items():
            state = {"step": self.torch.tensor(count, dtype=self.torch.float32)}
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = moments[f"{key}/{name}"].to(self.engine.device)
            self.optimizer.state[self.parameters[name]] = state


def _places(made: Rows) -> list[Sequenced]:
    """For each token row: its ids, and (last position before the turn's first sampled token, row
    of the table) of each turn in it."""
    read = list[Sequenced]()
    taken = set[int]()
    for row in made.rows:
        begins = np.flatnonzero(row.mask & np.concatenate(([True], row.turn[1:] != row.turn[:-1])))
        # - 1: the critic reads what the agent had seen, never what it then said. A turn of several
        # replies is valued once, before the first of them.
        places = [
            (int(at) - 1, int(row.turn[at])) for at in begins if int(row.turn[at]) not in taken
        ]
        taken |= {turn for _, turn in places}
        if places:
            read.append((row.ids[: places[-1][0] + 1], places))  # what follows is not read
    return read


def _batches(made: Sequence[Sequenced], tokens: int) -> list[list[Sequenced]]:
    """Sequences of similar length together, at most so many padded tokens a pass; a longer one
    has a pass of its own."""
    left = sorted(_merged(made), key=lambda one: len(one[0]))
    result = []
    while left:
        take = 1
        while take < len(left) and (take + 1) * len(left[take][0]) <= tokens:
            take += 1
        result.append(left[:take])
        left = left[take:]
    return result


def _merged(made: Sequence[Sequenced]) -> list[Sequenced]:
    """The same reads in fewer sequences: one with which another begins is read there, since a
    causal model looks no further. Many plays of one start begin alike."""
    merged = list[Sequenced]()
    # backwards, what begins like a sequence stands right before it
    for ids, places in sorted(made, key=lambda one: one[0].tobytes(), reverse=True):
        if merged and np.array_equal(merged[-1][0][: len(ids)], ids):
            merged[-1][1].extend(places)
        else:
            merged.append((ids, list(places)))
    return merged


def _tools(episode: Episode, agent: str) -> tuple[Tool, ...]:
    """What the agent was offered last: the best guess of what it would be offered now."""
    return next((turn.tools for turn in reversed(episode.turns) if turn.agent == agent), ())
