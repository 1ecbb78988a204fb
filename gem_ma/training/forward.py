"""The learner's forward pass: log-probabilities and entropies of trained tokens, under the mask and the temperature of the sampler.

Knows a module and token rows; knows no loss and no optimiser. Rows are packed (`gem_ma.training.packing`), logits exist only at trained places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.choices import IdSet
from gem_ma.training.losses import entropy
from gem_ma.training.packing import Pack, packs
from gem_ma.training.processes import SOLO, Team
from gem_ma.training.rows import Allowed, Row

if TYPE_CHECKING:
    from gem_ma.engines.transformers import Transformers

PASS_TOKENS = 16_384  # padded tokens of one forward pass with gradient


class Scorer:
    """Scores ids with the module of an engine, at one temperature.

    `selects`: logits are computed at trained places only; `branches`: rows share their prompt. Both are tried once and left off where this
    architecture does not allow them. `pass_tokens`: padded tokens of one pass. `team`: who takes which share of the passes.
    """

    def __init__(self, engine: Transformers, temperature: float) -> None:
        self.engine, self.torch, self.model, self.temperature = engine, engine.torch, engine.model, temperature
        self.pass_tokens, self.team = PASS_TOKENS, SOLO
        self.fed = self.used = 0  # positions that the passes had, and those of them that held a token
        self._probe()

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], allowed: Sequence[Allowed | None] | None = None
    ) -> list[NDArray[np.float64]]:
        """Log-probabilities of given ids after their prompts, as the loss sees them: [(prompt, ids)] -> one [len(ids)] each.

        `allowed`: per sequence what each of its ids was chosen among, where it was constrained.
        """
        made = []
        for (prompt, ids), bound in zip(sequences, allowed or [None] * len(sequences), strict=True):
            whole = np.array([*prompt, *ids], np.int64)
            mask = np.arange(len(whole)) >= len(prompt)
            zeros = np.zeros(len(whole), np.float64)
            made.append(Row(("score", 0, 0), whole, mask, zeros, zeros, np.where(mask, 0, -1), np.zeros(len(whole), np.int64), bound or ()))
        cuts = np.cumsum([len(ids) for _, ids in sequences])[:-1]
        return list(np.split(self._logprobs(made, SOLO), cuts))

    def logprobs(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the weights of now. All processes of the team ask for it together."""
        return self.team.sum(self._logprobs(chosen, self.team))

    def _logprobs(self, chosen: Sequence[Row], team: Team) -> NDArray[np.float64]:
        """The share of a team's process; 0 at the tokens of the others."""
        result = np.zeros(sum(int(row.mask.sum()) for row in chosen))
        with self.torch.no_grad():
            for pack in self.packs(chosen, team):
                result[pack.order] = self.forward(pack, spread=False)[0].double().cpu().numpy()
        return result

    def packs(self, chosen: Sequence[Row], team: Team | None = None) -> Iterator[Pack]:
        """The passes of some rows, as this model can take them: this process's share of them."""
        mine = self.team if team is None else team
        return packs(chosen, tokens=self.pass_tokens, share=self.branches, part=(mine.rank, mine.size))

    def forward(self, pack: Pack, *, spread: bool = True) -> tuple[Any, Any]:
        """(log-probability [n], entropy [n]) of the tokens, under the mask and the temperature of the sampler."""
        self.fed, self.used = self.fed + pack.ids.size, self.used + pack.used
        scores = self._logits(pack).float() + self.engine.banned
        if pack.allowed:
            scores = self._constrained(scores, pack.allowed)
        distribution = (scores / self.temperature).log_softmax(-1)
        logprobs = distribution.gather(1, self.index(pack.target)[:, None])[:, 0]
        token = self.index(pack.token)
        return logprobs[token], entropy(distribution)[token] if spread else None

    def _constrained(self, scores: Any, allowed: Allowed) -> Any:
        """Scores [m, V] with -inf outside what each constrained place could choose."""
        torch, device = self.torch, self.engine.device
        may = torch.ones(scores.shape, dtype=torch.bool, device=device)
        places = [at for at, ids in enumerate(allowed) if ids is not None]
        may[torch.tensor(places, device=device)] = False
        pairs = [(at, token) for at in places if isinstance(ids := allowed[at], tuple) for token in ids]
        if pairs:
            rows, tokens = zip(*pairs, strict=True)
            may[torch.tensor(rows, device=device), torch.tensor(tokens, device=device)] = True
        shared: dict[IdSet, list[int]] = {}  # few sets stand at many places
        for at in places:
            if isinstance(ids := allowed[at], IdSet):
                shared.setdefault(ids, []).append(at)
        for ids, there in shared.items():
            may[torch.tensor(there, device=device)] = torch.from_numpy(ids.mask).to(device)
        return scores.masked_fill(~may, -torch.inf)

    def _logits(self, pack: Pack) -> Any:
        """Logits [m, V] at the trained places; a causal model needs no mask for padding on the right, branches need one."""
        given = {"input_ids": self.index(pack.ids), "use_cache": False}
        if pack.branch is not None and pack.place is not None:
            branch = self.index(pack.branch)
            sees = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
            given |= {"attention_mask": sees.tril()[:, None], "position_ids": self.index(pack.place)}
        row, position = self.index(pack.row), self.index(pack.position)
        with self.engine.active():
            if self.selects:
                hidden = self.model.base_model(**given).last_hidden_state
                return self.model.get_output_embeddings()(hidden[row, position])
            return self.model(**given).logits[row, position]

    def _probe(self) -> None:
        """Keeps to what this architecture allows: some scale or cap logits after the head, some cannot take a mask of branches."""
        first, second = ([index % self.engine.vocabulary for index in ids] for ids in ((1, 2, 3, 4, 5, 6), (1, 2, 3, 7, 8, 9)))
        pairs = [(first[:3], first[3:]), (second[:3], second[3:])]
        self.selects = self.branches = False
        plain = np.concatenate(self.score(pairs))
        for trick in ("selects", "branches"):
            setattr(self, trick, True)
            try:
                same = np.allclose(np.concatenate(self.score(pairs)), plain, atol=self.engine.parity / 2, equal_nan=True)
            except (ValueError, TypeError, RuntimeError, AttributeError):
                same = False
            setattr(self, trick, bool(same))

    def index(self, values: NDArray[np.int64]) -> Any:
        """Ids or places as a tensor on the model's device."""
        return self.torch.from_numpy(values).to(self.engine.device)
