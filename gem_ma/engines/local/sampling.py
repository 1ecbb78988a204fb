"""One row of a batch, how its next token is drawn, and which ids may come next so that an answer
ends as one of a list.

Every row has its own random generator and draws one uniform number per token, so it gets the same
tokens in any company. The sampler walks the tree of legal strings as it samples, and a learner
walks it along what was sampled, so both see the same mask.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.types import Sampling

MOST_TREES = 4096  # sets of legal strings whose trees are kept; the oldest goes first

Tree = dict[int, Any]  # id -> what may follow it; {} after the last


class IdSet:
    """A set of ids of a vocabulary, one bit each: for sets that hold most of it. Sets of the same
    ids are equal."""

    __slots__ = ("_hash", "_size", "bits", "vocabulary")

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.bits = np.packbits(mask).tobytes()
        self.vocabulary = len(mask)
        # A learner hashes the set of every token of a row, and large ones have 20 kB of bits.
        self._size, self._hash = int(mask.sum()), hash(self.bits)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[vocabulary], true at its ids."""
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.vocabulary)
        return bits.astype(np.bool_)

    def __contains__(self, token: int) -> bool:
        # numpy packs the first id into the highest bit of the first byte
        return 0 <= token < self.vocabulary and bool(self.bits[token >> 3] >> (7 - (token & 7)) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.mask).tolist())

    def __len__(self) -> int:
        return self._size

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Most sets come out of one cache, so they are the same object.
        return self is other or (
            isinstance(other, IdSet)
            and self.vocabulary == other.vocabulary
            and self.bits == other.bits
        )


class Walk(Protocol):
    """What may come next in one answer, where that is not a tree. `among()`: the ids, None = any.
    `after(id)` goes on past an id."""

    def among(self) -> IdSet | None: ...
    def after(self, token: int) -> None: ...


def among(choices: Tree | Walk | None) -> Tree | IdSet | None:
    """The ids that may come next; None = anything that is ever sampled."""
    return choices if choices is None or isinstance(choices, dict) else choices.among()


def tree_of(answers: Iterable[Sequence[int]]) -> Tree:
    """The answers as a tree that shares their beginnings.

    >>> tree_of([(5, 9), (5, 7, 9)])
    {5: {9: {}, 7: {9: {}}}}
    """
    root: Tree = {}
    for answer in answers:
        here = root
        # Every answer ends with an end of turn, so none of them is the beginning of another.
        for token in answer:
            here = here.setdefault(token, {})
    return root


def allowed_along(tree: Tree, ids: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """What was allowed at each of these ids. None where they leave the tree: then they were not
    constrained by it.

    >>> allowed_along(tree_of([(5, 9), (5, 7, 9)]), (5, 9))
    ((5,), (9, 7))
    >>> allowed_along(tree_of([(5, 9)]), (5, 8)) is None
    True
    """
    allowed = []
    for token in ids:
        # An answer that was sampled before the policy was bound, or is not a legal string.
        if token not in tree:
            return None
        allowed.append(tuple(tree))
        tree = tree[token]
    return tuple(allowed)


class Choices:
    """The trees of legal strings as one chat writes them, the end of turn included. `answer(text)`
    gives the ids of an answer, `text(ids)` what they are read as; `sampled(ids)` is false where one
    of them is never sampled."""

    def __init__(
        self,
        answer: Callable[[str], tuple[int, ...]],
        sampled: Callable[[Sequence[int]], bool],
        text: Callable[[Sequence[int]], str],
        where: str,
    ) -> None:
        self.answer = answer
        self.sampled = sampled
        self.text = text
        self.where = where
        self._known: OrderedDict[tuple[str, ...], tuple[Tree, int]] = OrderedDict()

    def tree(self, legal: tuple[str, ...]) -> tuple[Tree, int]:
        """What may be sampled, and the length of the longest answer in tokens. Raises ConfigError
        where the tokenizer cannot write these strings so that they are told apart."""
        known = self._known.get(legal)
        if known is None:
            answers = {choice: self.answer(choice) for choice in legal}
            self._check(legal, answers)
            known = tree_of(answers.values()), max(map(len, answers.values()))
            self._known[legal] = known
            # By age, not by use: a game asks for the same few sets all the time.
            if len(self._known) > MOST_TREES:
                self._known.popitem(last=False)
        return known

    def _check(self, legal: tuple[str, ...], answers: dict[str, tuple[int, ...]]) -> None:
        for choice, ids in answers.items():
            if not self.sampled(ids):
                raise ConfigError(
                    f"{self.where}: the tokenizer has no word for the legal string {choice!r}; "
                    "use a model that knows it, or leave out `constrain: legal`"
                )
        if len(set(answers.values())) < len(answers):
            raise ConfigError(
                f"{self.where}: the tokenizer writes two legal strings alike, so they cannot be"
                f" told apart: {legal}"
            )
        for choice, ids in answers.items():
            # What counts is the choice that the agent will read; letter case may get lost.
            if (read := self.text(ids)) != choice and parse_legal(read, legal) != choice:
                what = f"the legal string {choice!r} would be read back as {read!r}"
                raise ConfigError(
                    f"{self.where}: {what}; change the string, or leave out `constrain: legal`"
                )


@dataclass(frozen=True, slots=True)
class Source:
    """Whose weights sample a row: an adapter of the module (None: the module as it is), at a
    version. What was computed for one source is used again only for an equal one."""

    adapter: str | None = None
    version: int = 0
    where: str = "the model"


@dataclass(slots=True, eq=False)
class Draw:
    """One row: the ids after which it samples and how, and what was sampled so far.

    `keep`: its KV may be of use again. `choices`: the ids that may come next, None = any. `shift`:
    see `Sight.shift`. `holds`: what its ids stand for, which must not go while they are in use.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    rng: random.Random
    room: int  # tokens that may still be sampled
    source: Source = Source()
    keep: bool = False
    choices: Tree | Walk | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = "length"
    cached: int = 0  # tokens of the prompt that were not computed for this row
    shift: int = 0
    holds: Sequence[Any] = ()

    def take(self, token: int, logprob: float) -> None:
        """Goes on past this token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.room -= 1
        if isinstance(self.choices, dict):
            self.choices = self.choices[token]
        elif self.choices is not None:
            self.choices.after(token)

    @property
    def longest(self) -> int:
        """Tokens when nothing ends it early."""
        return len(self.prompt) + len(self.ids) + self.room


def drawn(torch: Any, scores: Any, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """One id per row [B] and its log-probability, from scores [B, V] in float32, by the inverse of
    the cumulated distribution. Raises EngineError for scores of NaN."""
    if any(draw.choices is not None for draw in draws):
        scores = _constrained(torch, scores, draws)
    temperature = [draw.sampling.temperature for draw in draws]
    # Each step is left out where no row wants it: every one walks over the whole vocabulary.
    if any(t != 1.0 for t in temperature):
        scores = scores / torch.tensor(
            # A row at temperature 0 takes the likeliest id below; here it must not divide by 0.
            [[t or 1.0] for t in temperature],
            dtype=torch.float32,
            device=scores.device,
        )
    if any(draw.sampling.top_k > 0 or draw.sampling.top_p < 1 for draw in draws):
        scores = _filtered(torch, scores, draws)
    logprobs = scores.log_softmax(-1)
    # In float64: over 150,000 ids a sum in float32 loses the unlikely ones.
    mass = logprobs.double().exp().cumsum(-1)
    total = mass[:, -1:]
    if not bool(total.isfinite().all()):
        bad = int((~total[:, 0].isfinite()).nonzero()[0])
        raise EngineError(
            f"{draws[bad].source.where}: its weights give NaN instead of probabilities; go back to"
            " a checkpoint"
        )
    uniform = torch.tensor(
        [[draw.rng.random()] for draw in draws], dtype=torch.float64, device=scores.device
    )
    # Strictly below the total, or rounding could choose an id behind the last possible one.
    point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    chosen = torch.searchsorted(mass, point, right=True)
    taken = logprobs.gather(1, chosen)
    if any(t == 0 for t in temperature):
        greedy = torch.tensor([[t == 0] for t in temperature], device=scores.device)
        chosen = torch.where(greedy, scores.argmax(-1, keepdim=True), chosen)
        taken = torch.where(greedy, torch.zeros_like(taken), taken)
    return chosen[:, 0].tolist(), taken[:, 0].tolist()


def _constrained(torch: Any, scores: Any, draws: Sequence[Draw]) -> Any:
    """Scores with -inf outside what each constrained row may choose."""
    bound = [
        (row, ids) for row, draw in enumerate(draws) if (ids := among(draw.choices)) is not None
    ]
    if not bound:
        return scores
    # Filled on the processor and sent at once: one copy to the device, whatever the rows are.
    may = torch.zeros(len(bound), scores.shape[1], dtype=torch.bool)
    for line, (_, ids) in zip(may, bound, strict=True):
        if isinstance(ids, IdSet):
            line.copy_(torch.from_numpy(ids.mask))
        else:
            line.index_fill_(0, torch.tensor(list(ids)), True)
    rows = torch.tensor([row for row, _ in bound], device=scores.device)
    scores[rows] = scores[rows].masked_fill(~may.to(scores.device), -torch.inf)
    return scores


def _filtered(torch: Any, scores: Any, draws: Sequence[Draw]) -> Any:
    """Scores with -inf outside top_k, and outside the smallest set whose mass reaches top_p; the
    likeliest id always stays."""
    # A stable sort: of equally likely ids the same ones stay on every device.
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[1], device=scores.device)[None]
    top_k = torch.tensor(
        [[draw.sampling.top_k or scores.shape[1]] for draw in draws], device=scores.device
    )
    top_p = torch.tensor(
        [[draw.sampling.top_p] for draw in draws], dtype=torch.float64, device=scores.device
    )
    ordered = ordered.masked_fill(rank >= top_k, -torch.inf)
    mass = ordered.double().softmax(-1)
    before = mass.cumsum(-1) - mass
    ordered = ordered.masked_fill((before >= top_p) & (top_p < 1) & (rank > 0), -torch.inf)
    return torch.empty_like(scores).scatter_(1, order, ordered)


def stopped(draw: Draw, text: Callable[[Sequence[int], Sequence[str]], str]) -> bool:
    """Whether a stop string has just been completed."""
    marks = [mark for mark in draw.sampling.stop if mark]
    if not marks:
        return False
    # Every byte of a stop string takes one token at most, so the last ids are enough; to read all
    # of them at each token would be quadratic. A few more, since a letter may be cut in two.
    tail = text(draw.ids[-4 - max(len(mark.encode()) for mark in marks) :], ())
    return any(mark in tail for mark in marks) and any(mark in text(draw.ids, ()) for mark in marks)
