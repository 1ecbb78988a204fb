"""The learner's passes: log-probabilities and entropies of trained tokens, under the mask and the
temperature of the sampler; and their gradients.

Logits exist only at trained places, and only for a chunk of those at once: a pass is cut behind the
trunk. Each chunk is scored and differentiated down to the trunk before the next one begins; then
the trunk is differentiated once. So no logits are computed twice, and none wait.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.sampling import IdSet
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.models.sight import PIXELS
from gem_ma.training.learner import parity
from gem_ma.training.learner.packing import Pack, packs
from gem_ma.training.learner.rows import Allowed, Row
from gem_ma.training.processes.teams import SOLO, Team


def layers(model: Any) -> list[Any]:
    """The layers of a model in their order: the members of its outermost lists of modules (experts
    of a layer are such a list too, and belong to their layer)."""
    import torch

    members: list[Any] = []
    for child in model.children():
        members += list(child) if isinstance(child, torch.nn.ModuleList) else layers(child)
    return members


@contextmanager
def recomputed(model: Any) -> Iterator[None]:
    """Inside, a layer keeps what it was given instead of what it computed, and computes that again
    when its gradient is asked for (Chen et al. 2016, arXiv 1604.06174): the same numbers, for one
    more forward pass. Passes without gradients stay as they are."""
    # of its own only where something has wrapped it, such as accelerate's `device_map`
    before = [(layer, vars(layer).get("forward")) for layer in layers(model)]
    for layer, _ in before:
        layer.forward = _again(layer.forward)
    try:
        yield
    finally:
        for layer, wrapped in before:
            del layer.forward  # that of its class shows again
            if wrapped is not None:
                layer.forward = wrapped


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from torch.utils.checkpoint import checkpoint

    def run(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        # A GPU's backward pass runs in a thread of its own, which knows nothing of the adapters
        # that are chosen here.
        here = copy_context()
        # no dropout, so no random state is kept
        return checkpoint(
            here.run, forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named
        )

    return run


# Behind the trunk: hidden states -> log-probabilities of given ids, and their gradients, with as
# few copies of the logits as can be. Axes: c places of one chunk, D width of the trunk, V ids.

# score of an id that may not be chosen: its probability is 0, and finite, so that 0 * NEVER is 0
# and no NaN
NEVER = -1e30
REFUSED = -1e20  # a log-probability below this is that of such an id


class _Hidden:
    """What a trunk gives, and None for all else that a model may ask of it."""

    def __init__(self, states: Any) -> None:
        self.last_hidden_state = states

    def __getitem__(self, index: int) -> Any:
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` and `pickle` look for these, and None is not a method
            raise AttributeError(name)
        return None


@cache
def _trunk() -> Any:
    """What stands where the trunk was, and hands on what it gets."""
    import torch

    class PassThrough(torch.nn.Module):
        def forward(self, *_: Any, inputs_embeds: Any = None, **__: Any) -> Any:
            return _Hidden(inputs_embeds)

    return PassThrough()


def behind(model: Any) -> Callable[[Any], Any]:
    """What a causal language model does behind its trunk: hidden states [c, D] -> logits [c, V].

    It is the model's own code, with another module in the place of its trunk: so its head with
    bias, adapter and tied weights counts, and whatever scales or caps logits after it. The model
    itself stays as it is.
    """
    shell = copy.copy(model)  # shallow: it shares all weights
    shell.__dict__["_modules"] = {**model._modules, model.base_model_prefix: _trunk()}
    shell.__dict__.pop("forward", None)  # bound to the whole model where something has wrapped it
    return lambda hidden: shell(inputs_embeds=hidden[None], use_cache=False).logits[0]


def most_tokens(model: Any) -> int:
    """The most padded tokens of one pass of this model, at least 1. The bound depends on the model
    and its device alone: one that followed free memory would change the rounding of a resumed run.

    There is none on a GPU, which raises an error when it is full, where a CPU process would be
    killed; nor for a model whose config does not give its sizes by their usual names.
    """
    sizes = model.config.get_text_config(decoder=True)
    hidden = getattr(sizes, "hidden_size", None)
    layers = getattr(sizes, "num_hidden_layers", None)
    if model.device.type != "cpu" or not hidden or not layers:
        return sys.maxsize
    inner = getattr(sizes, "intermediate_size", None) or 4 * hidden
    widest = inner if isinstance(inner, int) else max(inner)  # some list a size for each layer
    # float32 values that a layer keeps of a token for its gradients, as measured on a Llama of
    # 135M parameters (experiments/log.md)
    kept = 4 * layers * (10 * hidden + 4 * widest)
    return max(1, int(PASS_BYTES / kept))


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """How ids were chosen: `banned` [b] never; `may` [c, V] where places were bound to some ids;
    after division by the temperature."""

    banned: Any
    may: Any = None
    temperature: float = 1.0


def chosen(logits: Any, target: Any, how: Choice, spread: bool | None = False) -> tuple[Any, Any]:
    """(log-probability [c] of the ids `target` [c], entropy [c] in nats) under logits [c, V] of any
    dtype, which are used up.

    `spread`: True = gradients go through the entropy too; False = it is measured only; None = it
    is not computed (0). Softmax is in float32.
    """
    # float() copies rounded logits, and not those in float32: then the caller's are overwritten
    logprobs, entropy = _function().apply(logits.float(), target, how, spread)
    return logprobs, entropy


@cache
def _function() -> Any:
    import torch

    class Chosen(torch.autograd.Function):
        """Works in the memory of the scores: one copy more for the log-softmax is all that ever
        stands beside them."""

        @staticmethod
        def forward(
            ctx: Any, scores: Any, target: Any, how: Choice, spread: bool | None
        ) -> tuple[Any, Any]:
            scores = scores.detach()
            if len(how.banned):
                scores.index_fill_(1, how.banned, NEVER)
            if how.may is not None:
                scores.masked_fill_(~how.may, NEVER)
            if how.temperature != 1:
                scores.div_(how.temperature)
            # in float32 whatever the weights are: bfloat16 has three digits
            logs = scores.log_softmax(-1)
            logprob = logs.gather(1, target[:, None])[:, 0]
            entropy = torch.zeros_like(logprob)
            if ctx.needs_input_grad[0] or spread is not None:
                chances = torch.exp(logs, out=scores)  # the scores are needed no more
                if spread is not None:
                    # a product of matrices: elementwise, p log p would be one more [c, V]
                    entropy = -torch.bmm(chances[:, None], logs[:, :, None])[:, 0, 0]
                ctx.chances = chances
                ctx.logs = logs if spread else None
                ctx.target = target
                ctx.temperature = how.temperature
                ctx.save_for_backward(entropy)
            if not spread:
                ctx.mark_non_differentiable(entropy)
            return logprob.masked_fill(logprob < REFUSED, -torch.inf), entropy

        @staticmethod
        def backward(ctx: Any, pull: Any, pull_entropy: Any) -> tuple[Any, ...]:
            chances = ctx.chances
            (entropy,) = ctx.saved_tensors
            through = None
            if ctx.logs is not None:  # d entropy / d score = - p (log p + entropy)
                through = ctx.logs.add_(entropy[:, None]).mul_(chances).mul_(pull_entropy[:, None])
            # d logprob / d score = onehot(target) - p
            grad = chances.mul_(-pull[:, None])
            grad[torch.arange(len(grad), device=grad.device), ctx.target] += pull
            if through is not None:
                grad.sub_(through)
            ctx.chances = ctx.logs = None  # overwritten by now, so a second backward must fail
            return (grad.div_(ctx.temperature) if ctx.temperature != 1 else grad), None, None, None

    return Chosen


# logits that stand at once: 128 MiB in float32, of which there are two copies, three under an
# entropy bonus
PASS_TOKENS = 16_384  # padded tokens of one pass, unless the settings say otherwise
PASS_BYTES = 3e9  # of activations that a pass keeps on a CPU, at most
PASS_LOGITS = 1 << 25
Loss = Callable[["Scored"], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Some trained tokens of a pass: log-probability [k] and entropy [k] in nats as tensors, and
    which of the given rows' tokens they are."""

    logprobs: Any
    entropy: Any
    order: NDArray[np.int64]


class Scorer:
    """Scores ids with the module of an engine, at one temperature.

    `selects`: logits are computed at trained places only, in chunks; `branches`: rows share
    their prompt. Both are tried once and left off where this architecture does not allow them.
    `pass_tokens`: padded tokens of one pass; `pass_logits`: logits of one chunk, a place at
    least; `recompute`: see `recomputed`. `team`: who takes which share of the passes.
    """

    def __init__(self, engine: Transformers, temperature: float) -> None:
        self.engine = engine
        self.torch = engine.torch
        self.model = engine.model
        self.temperature = temperature
        self.pass_tokens = min(PASS_TOKENS, most_tokens(engine.model))
        self.pass_logits = PASS_LOGITS
        self.team = SOLO
        self.recompute = False
        self.dtype = str(engine.model.dtype)
        # positions that the passes had, and those of them that held a token
        self.fed = self.used = 0
        self._probe()

    def together(self, work: Callable[[], Any]) -> Any:
        """What `work` computes with the model, put together where its weights lie in parts."""
        return work()

    def rest(self) -> None:
        """A pass has ended."""

    def score(
        self,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        allowed: Sequence[Allowed | None] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Log-probabilities of given ids after their prompts, as the loss sees them: [(prompt,
        ids)] -> one [len(ids)] each.

        `allowed`: per sequence what each of its ids was chosen among, where it was constrained.
        """
        bounds = allowed or [None] * len(sequences)
        made = [
            Row.of(("score", 0, 0), prompt, ids, bound)
            for (prompt, ids), bound in zip(sequences, bounds, strict=True)
        ]
        cuts = np.cumsum([len(ids) for _, ids in sequences])[:-1]
        # alone: other processes may not be asking, and a sum would wait for them forever
        return list(np.split(self._logprobs(made, SOLO), cuts))

    def logprobs(self, chosen: Sequence[Row]) -> NDArray[np.float64]:
        """Log-probability [n] of every trained token under the present weights. All processes of
        the team ask for it together."""
        return self.team.sum(self._logprobs(chosen, self.team))

    def _logprobs(self, chosen: Sequence[Row], team: Team) -> NDArray[np.float64]:
        """The share of a team's process; 0 at the tokens of the others."""
        result = np.zeros(sum(int(row.mask.sum()) for row in chosen))
        with self.torch.no_grad(), self.engine.active():
            for pack in self.packs(chosen, team):
                ahead, head = self._ahead(pack)
                for scored in self._chunks(pack, ahead, head, None):
                    result[scored.order] = scored.logprobs.double().cpu().numpy()
                self.rest()
        return result

    def packs(self, chosen: Sequence[Row], team: Team | None = None) -> Iterator[Pack]:
        """The passes of some rows, as this model can take them: this process's share of them."""
        mine = self.team if team is None else team
        return packs(
            chosen, tokens=self.pass_tokens, share=self.branches, part=(mine.rank, mine.size)
        )

    def learn(
        self,
        pack: Pack,
        loss: Loss,
        *,
        spread: bool = False,
        added: Callable[[], None] = lambda: None,
    ) -> None:
        """Adds the gradients of a pass: of `loss(scored)`, summed over its chunks. `spread`: the
        entropy is a part of the loss.

        `added()` is called whenever gradients have been added; it may take them away from the
        weights, which counts where these are rounded.
        """
        kept = recomputed(self.model) if self.recompute else nullcontext()
        with self.engine.active(), kept:
            ahead, head = self._ahead(pack)
            pulls: list[Any] = []
            for scored in self._chunks(pack, ahead, head, spread, pulls):
                loss(scored).backward()  # down to the leaves in `pulls`, where the trunk was cut
                added()
            # a frozen trunk under a trained head wants no gradient
            if ahead.requires_grad:
                ahead.backward(self.torch.cat([part.grad for part in pulls]))
                added()
            self.rest()

    def _chunks(
        self,
        pack: Pack,
        ahead: Any,
        head: Callable[[Any], Any],
        spread: bool | None,
        pulls: list[Any] | None = None,
    ) -> Iterator[Scored]:
        """The tokens of a pass, a chunk of their places [m] at a time. `ahead` [m, ...]: what
        the head is given; `pulls` gets the chunks of it, as leaves that gather gradients.
        """
        size = max(1, self.pass_logits // self.engine.vocabulary.size)
        # equal rows are computed once, so several tokens may be read at one place
        by_place = np.argsort(pack.token, kind="stable")
        starts = np.arange(0, len(pack.target), size)
        cuts = np.searchsorted(pack.token[by_place], [*starts, len(pack.target)])
        for number, start in enumerate(starts):
            places = slice(int(start), int(start) + size)
            part = ahead[places]
            if pulls is not None:
                part = part.detach().requires_grad_()
                pulls.append(part)
            how = Choice(self.never, self._may(pack.allowed[places]), self.temperature)
            logprobs, entropy = chosen(head(part), self.index(pack.target[places]), how, spread)
            mine = by_place[cuts[number] : cuts[number + 1]]
            token = self.index(pack.token[mine] - start)
            yield Scored(logprobs[token], entropy[token], pack.order[mine])

    def _may(self, allowed: Allowed) -> Any:
        """[c, V]: what each of these places could choose; None where all could choose anything."""
        torch = self.torch
        device = self.engine.device
        places = [place for place, ids in enumerate(allowed) if ids is not None]
        if not places:
            return None
        # filled at once for all places: a loop over them would be a kernel each on a GPU
        may = torch.ones(len(allowed), self.engine.vocabulary.size, dtype=torch.bool, device=device)
        may[torch.tensor(places, device=device)] = False
        pairs: list[tuple[int, int]] = []
        shared: dict[IdSet, list[int]] = {}  # few sets stand at many places
        for place, ids in enumerate(allowed):
            if isinstance(ids, IdSet):
                shared.setdefault(ids, []).append(place)
            else:
                pairs += [(place, token) for token in ids or ()]
        if pairs:
            rows, tokens = zip(*pairs, strict=True)
            may[torch.tensor(rows, device=device), torch.tensor(tokens, device=device)] = True
        for ids, there in shared.items():
            # a teacher's head may be padded to another width than the sampler's
            mask = np.zeros(may.shape[1], np.bool_)
            mask[: len(ids.mask)] = ids.mask[: len(mask)]
            may[torch.tensor(there, device=device)] = torch.from_numpy(mask).to(device)
        return may

    def _ahead(self, pack: Pack) -> tuple[Any, Callable[[Any], Any]]:
        """(what stands at the trained places [m, D], what makes logits of some of it); where places
        cannot be selected, logits [m, V] at once.

        A causal model needs no mask for padding on the right, branches need one.
        """
        self.fed = self.fed + pack.ids.size
        self.used = self.used + pack.used
        inputs = {"use_cache": False, **self._inputs(pack.ids, pack.place, pack.branch)}
        if pack.branch is not None:
            branch = self.index(pack.branch)  # 0 is the shared prompt, which every branch sees
            sees = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
            inputs["attention_mask"] = sees.tril()[:, None]
        row = self.index(pack.row)
        position = self.index(pack.position)
        if self.selects:
            trunk = self.model.base_model
            states = self.together(lambda: trunk(**inputs).last_hidden_state[row, position])
            return states, behind(self.model)
        logits = self.together(lambda: self.model(**inputs).logits[row, position])
        # a copy for each chunk, since `chosen` uses up the logits that it is given
        return logits, lambda part: part.clone()

    def _inputs(
        self,
        ids: NDArray[np.int64],
        places: NDArray[np.int64] | None,
        branch: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        """What the model is fed for rows of ids [B, T], at these places where they are known."""
        sight = self.engine.vocabulary.sight
        if sight is not None:
            return sight.inputs(self.torch, ids, places, branch)
        inputs = {"input_ids": ids, **({} if places is None else {"position_ids": places})}
        return {name: self.index(values) for name, values in inputs.items()}

    def score_again(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[NDArray[np.float64]] | None:
        """The result of `score`, computed in another way: prompts padded on the left, then the ids
        in one piece on top of their cache. None where this architecture cannot. How far the two
        differ is how far rounding goes. No pass is longer than `pass_tokens` or has more than
        `pass_logits`, save of one sequence.
        """
        widest = max(len(prompt) + len(ids) for prompt, ids in sequences)
        places = self.engine.vocabulary.size * max(len(ids) for _, ids in sequences)
        size = max(1, min(self.pass_tokens // widest, self.pass_logits // places))
        parts = [
            self._padded_left(sequences[at : at + size]) for at in range(0, len(sequences), size)
        ]
        done = [part for part in parts if part is not None]
        return [one for part in done for one in part] if len(done) == len(parts) else None

    def _padded_left(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[NDArray[np.float64]] | None:
        torch = self.torch
        width = max(len(prompt) for prompt, _ in sequences)
        size = len(sequences)
        longest = max(len(ids) for _, ids in sequences)
        fed, visible, places = np.zeros((3, size, width + longest), np.int64)
        for row, (prompt, ids) in enumerate(sequences):
            held = slice(width - len(prompt), width + len(ids))
            fed[row, held] = [*prompt, *ids]
            visible[row, held] = 1
            places[row, held] = np.arange(len(prompt) + len(ids))
        # without the last id, which is a target only
        pieces = slice(None, width), slice(width, width + longest - 1)
        logits = []
        cache = None
        last = np.array([width - 1])
        # at once: where an image stands in a prompt, its ids are at other places
        whole = self._inputs(fed, places)
        try:
            with torch.no_grad(), self.engine.active():
                for piece in pieces[: 2 if longest > 1 else 1]:
                    # the pixels lie in the prompt alone
                    inputs = {
                        name: value if name in PIXELS else value[..., piece]
                        for name, value in whole.items()
                        if cache is None or name not in PIXELS
                    }
                    inputs["attention_mask"] = self.index(visible[:, : piece.stop])
                    # Of a prompt the last place alone predicts an id that is scored. By its index:
                    # of a view torch would copy the whole head for each row.
                    keep = {"logits_to_keep": self.index(last)} if cache is None else {}
                    cache, scores = self._on(cache, {**inputs, **keep})
                    logits.append(scores)
        # what models raise that know no cache, no left padding or no `logits_to_keep`
        except (ValueError, TypeError, RuntimeError, AttributeError):
            return None
        scores = torch.cat(logits, 1).float() + self.engine.banned
        every = (scores / self.temperature).log_softmax(-1)
        target = self.index(fed[:, width:, None])
        logprobs = every.gather(2, target)[:, :, 0].double().cpu().numpy()
        return [logprobs[row, : len(ids)] for row, (_, ids) in enumerate(sequences)]

    def _on(self, cache: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """(the cache with this piece on top of it, its logits)."""
        caches = []

        def work() -> Any:
            out = self.model(**inputs, past_key_values=cache, use_cache=True)
            caches.append(out.past_key_values)
            return out.logits

        logits = self.together(work)
        self.rest()
        return caches[0], logits

    def noise(
        self, again: Sequence[NDArray[np.float64]] | None, scored: Sequence[NDArray[np.float64]]
    ) -> float:
        """The unit of noise in nats, see `gem_ma.training.learner.parity`: from the scores of some
        sequences by `score_again` and by `score`."""
        pairs = zip(again or (), scored if again else (), strict=True)
        with np.errstate(invalid="ignore"):  # minus infinity in both
            spread = [parity.evened(one - other, other) for one, other in pairs]
        return parity.unit(np.concatenate(spread) if spread else np.zeros(1), self.dtype)

    def _probe(self) -> None:
        """Tries which of the two tricks this architecture allows: some do not split behind their
        trunk, some take no mask of branches."""
        self.never = (self.engine.banned < 0).nonzero()[:, 0]
        usual = (self.engine.banned == 0).nonzero()[:, 0].tolist()
        # one prompt and two continuations, so that a branch that saw the other would show
        prompt, *ends = ([usual[at % len(usual)] for at in range(n, n + 3)] for n in (1, 4, 7))
        pairs = [(prompt, end) for end in ends]
        self.selects = self.branches = False
        plain = self.score(pairs)
        bound = parity.SAME * self.noise(self.score_again(pairs), plain)
        for trick in ("selects", "branches"):
            setattr(self, trick, True)
            try:
                apart = np.abs(np.concatenate(self.score(pairs)) - np.concatenate(plain))
            except (ValueError, TypeError, RuntimeError, AttributeError):
                apart = np.full(1, np.inf)
            setattr(self, trick, bool(apart.mean() <= bound))  # a NaN is not

    def index(self, values: NDArray[np.int64]) -> Any:
        return self.torch.from_numpy(values).to(self.engine.device)
