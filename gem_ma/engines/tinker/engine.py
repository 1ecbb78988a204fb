"""The `tinker` engine: token ids in, token ids and log-probabilities out, at a server that speaks
the Tinker API (the hosted one, SkyRL's, and others).

It renders chat itself, so prompts grow by appending. What learns is an adapter at the server;
weights never come here. A version is a path of the server, so old versions stay what they are.

Nothing is masked: the API has no such thing, so ids of no text may be sampled. The learner's
numbers are of the same distribution.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gem_ma.engines.endpoint.endpoint import Budget, Price, check_priced
from gem_ma.engines.models.chat import Chat, ChatOptions
from gem_ma.engines.models.loading import read_json, tokenizer_of
from gem_ma.engines.models.served import Served, check_published, said
from gem_ma.engines.models.vocabulary import Vocabulary, end_ids_of
from gem_ma.engines.tinker.client import HOSTED, Clients, Drawn
from gem_ma.engines.tinker.settings import Access, Weights
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Usage
from gem_ma.registry import load
from gem_ma.system.options import flat

NOTE = "tinker.json"  # of a folder that `save` wrote
HELLO = (Message("hello"),)  # what a ping says
# (server, training run at it) -> the learner in this process that trains it
TRAINED: WeakValueDictionary[tuple[str, str], Versions] = WeakValueDictionary()


class Versions(Protocol):
    """A learner, as whoever samples an older version of its weights needs it."""

    def keeps_versions(self) -> bool:
        """Whether sampling an older version gives that version, and leaves what learns alone."""
        ...


def run_of(path: str) -> str:
    """The training run that weights at the server are of."""
    return path.removeprefix("tinker://").partition("/")[0]


class Tinker(Served):
    """`tinker/MODEL`: a base model of a server, by the server's name of it, or a folder that `save`
    wrote.

    `access`: the server and its key. `model`: which weights. A config names the fields of these
    objects: `base_url: ...`, `lora: {rank: 32}`. `offline`: no key is read and nothing is sent.

    Raises ConfigError for options that do not fit, a missing package and a missing key, DataError
    for a tokenizer that cannot be read.
    """

    exports = "tinker"

    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        access: Access = Access(),  # noqa: B008  (frozen)
        model: Weights = Weights(),  # noqa: B008  (frozen)
        chat: ChatOptions = ChatOptions(),  # noqa: B008  (frozen)
        price: dict[str, Any] | Price | None = None,
        budget: Budget | None = None,
        offline: bool = False,
    ) -> None:
        self.policy = policy
        self.version = 0
        self.unpublished = False
        self.where = f"policy {policy!r}"
        self.wanted = model.checked(self.where)
        self.name = name
        self.path = self.wanted.weights
        tokenizer = self.wanted.tokenizer
        if (Path(name) / NOTE).is_file():
            note = read_json(name, NOTE, self.where)
            self.name = str(note.get("base"))
            self.path = str(note.get("weights"))
            tokenizer = tokenizer or str(note.get("tokenizer"))
        self.tokenizer_name = tokenizer or self.name
        self._read(chat)
        self.price = Price.of(price, self.where)
        self.budget = budget
        check_priced(self.where, self.price, budget)
        self.base_url = access.base_url or HOSTED
        if not offline:
            address, key = access.checked(self.where)
            self.clients = Clients(self.where, address, key, access.timeout_s, int(access.attempts))
        self.named: set[str] = set()  # paths that a folder names: never deleted
        self._sampler: Any = None
        self._context = self.wanted.context
        self._opening = threading.Lock()

    def _read(self, chat: ChatOptions) -> None:
        folder = self.tokenizer_name
        tokenizer = tokenizer_of(folder, self.where, "tinker")
        ends = end_ids_of(folder, tokenizer, self.where)
        self.chat = Chat(tokenizer, ends, chat, f"{self.where} ({folder})")
        self.vocabulary = Vocabulary.of(self.chat, len(tokenizer))
        self.ends = sorted(self.vocabulary.ends)

    # -- opening ----------------------------------------------------------------------------------

    def open(self) -> Any:
        """The client that samples the present weights, made at the first request. Blocks."""
        with self._opening:
            if self._sampler is None:
                self._check_versions()
                self._measure_context()
                self._sampler = self.clients.sampler(base=self.name, path=self.path)
            return self._sampler

    def _check_versions(self) -> None:
        """Raises ConfigError for a snapshot of what is trained now, where the server has one place
        for both: to sample it would put it in the place of what learns."""
        learner = TRAINED.get((self.base_url, run_of(self.path or "")))
        if learner is not None and not learner.keeps_versions():
            raise ConfigError(
                f"{self.where}: {self.clients.host} keeps one version of an adapter that is"
                " trained, so no older one plays beside it; leave out the league"
            )

    def _measure_context(self) -> None:
        known = self.clients.context(self.name)
        folder = Path(self.tokenizer_name)
        if known is None and (folder / "config.json").is_file():
            known = read_json(str(folder), "config.json", self.where).get("max_position_embeddings")
        self._context = self._context or known

    # -- requests ---------------------------------------------------------------------------------

    async def sample(self, request: Request) -> Reply:
        """One answer. Raises EngineError where this request failed, EndpointError where all would,
        ConfigError for what the API cannot sample."""
        check_published(self)
        if request.sampling.stop:
            raise ConfigError(
                f"{self.where}: the Tinker API stops at ids or at texts, and the end of a turn is"
                " an id; leave stop out"
            )
        if self._sampler is None:
            await asyncio.to_thread(self.open)
        # both now: a publish may come while this request is sampled
        sampler = self._sampler
        version = self.version
        prompt = self.chat.prompt(request)
        drawn = await self._paid(sampler, prompt, request.sampling, request.seed)
        if drawn is None:
            return Reply(prompt_ids=prompt, finish="context_overflow", usage=Usage(0, 0))
        ids = drawn.ids
        certain = request.sampling.temperature == 0  # the likeliest id
        reply = Reply(
            prompt_ids=prompt,
            token_ids=ids,
            logprobs=(0.0,) * len(ids) if certain else drawn.logprobs,
            finish=drawn.finish,
            usage=Usage(len(prompt), len(ids)),
            attempts=drawn.failed,
        )
        return said(self, request, reply, version)

    async def _paid(
        self, sampler: Any, prompt: tuple[int, ...], how: Sampling, seed: int
    ) -> Drawn | None:
        """What is sampled, out of the budget; None where it does not fit."""
        room = how.max_tokens
        if self._context is not None:
            room = min(room, self._context - len(prompt))
        if room < 1:
            return None
        how = replace(how, max_tokens=room)
        if self.budget is None:
            return await self.clients.draw(sampler, prompt, how, seed, self.ends)
        claim = await self.budget.claim(len(prompt) + room, self.price, len(prompt))
        used: list[Usage] = []
        try:
            drawn = await self.clients.draw(sampler, prompt, how, seed, self.ends)
            used.append(Usage(len(prompt), len(drawn.ids)))
            return drawn
        finally:
            self.budget.settle(claim, used, self.price)

    async def draw(self, prompt: tuple[int, ...], how: Sampling, seed: int) -> Drawn | None:
        """Samples after a prompt, published or not; None where it does not fit."""
        sampler = await asyncio.to_thread(self.open)
        return await self._paid(sampler, prompt, how, seed)

    async def ping(self) -> Reply:
        """See `Reachable`: asks for one token."""
        prompt = self.chat.render("x", HELLO)
        drawn = await self.draw(prompt, Sampling(max_tokens=1), 0)
        count = 0 if drawn is None else len(drawn.ids)
        return Reply(usage=Usage(len(prompt), count))

    # -- weights ----------------------------------------------------------------------------------

    def learner(self, sampling: Sampling, *, apart: bool = False) -> Any:
        """See `Trains`. Its weights lie at the server, apart from those that are sampled."""
        return load("learners", "tinker")(self, sampling, apart=apart)

    def pinned(self) -> Tinker:
        """See `Pins`: a version is a path of the server, which no publish changes."""
        if self.path is not None:  # nobody says when its plays have ended
            self.named.add(self.path)
        other = copy.copy(self)
        other._opening = threading.Lock()
        other._sampler = other.open()
        return other

    def take(self, path: str) -> str | None:
        """Samples the weights at this path from now on; gives the path of before."""
        sampler = self.clients.sampler(path=path)
        before = self.path
        if self._sampler is None:
            self._measure_context()
        self.path = path
        self._sampler = sampler
        return before

    def fingerprint(self) -> str:
        """A digest of the name of the weights at the server, which never names others."""
        named = f"{self.base_url} {self.name} {self.path or ''}"
        return hashlib.sha256(named.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Writes a folder that names the published weights, which stay at the server."""
        if self.path is None:
            raise DataError(f"{self.where}: a base model is named by itself: tinker/{self.name}")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.named.add(self.path)
        tokenizer = self.tokenizer_name
        if Path(tokenizer).is_dir():  # the folder is opened from anywhere
            tokenizer = str(Path(tokenizer).resolve())
        note = {"base": self.name, "weights": self.path, "tokenizer": tokenizer}
        text = json.dumps(note, indent=1, sort_keys=True) + "\n"
        (folder / NOTE).write_text(text, encoding="utf-8")
