"""The `transformers` engine: a causal language model in this process, sampled by an own token loop.

Knows ids and weights; knows no scenarios and no rewards. A batch is left-padded, with an explicit
mask and position ids and a KV cache. Every request draws from a generator of its own, one uniform
number per token of its own (inverse of the cumulated distribution), so it gets the same tokens
alone, in a batch and in another batch. (In float32 rows of a batch, and rows that go on from kept
KV, agree with the row alone to about 1e-6, so a tie may still flip; in bfloat16 to about 1e-2, so
now and then a token does.)

Log-probabilities are those of the distribution that was sampled from: ids that are never sampled
(roles, padding, unknown) masked out, the logits divided by the temperature, and under top_k and
top_p renormalised over what is kept. Temperature 0 takes the likeliest id, whose log-probability is
then 0. A learner recomputes exactly this for temperature > 0 without top_k and top_p, the only
sampling it accepts.

Dropout is off: the weights are always in eval mode. A folder's generation_config gives the end
ids and nothing else.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import finalize

from gem_ma.engines.local.adapter_folder import base_of, is_adapter, seed_of
from gem_ma.engines.local.adapter_settings import LoraSettings, lora_settings
from gem_ma.engines.local.adapters import require_peft
from gem_ma.engines.local.chat import Chat, ChatOptions
from gem_ma.engines.local.constrained import KEPT, Choices, IdSet, allowed_along
from gem_ma.engines.local.loading import How, quiet
from gem_ma.engines.local.model_folder import find_model
from gem_ma.engines.local.sampling import Draw, Source
from gem_ma.engines.local.shared_model import Base, digest_of, open_base, spoken
from gem_ma.engines.local.tool_grammar import ToolGrammar
from gem_ma.engines.local.untrained import first_seed
from gem_ma.errors import ConfigError, EngineError
from gem_ma.options import flat
from gem_ma.registry import load
from gem_ma.types import Reply, Request, Sampling, Tool, Usage

LOG = logging.getLogger(__name__)
PADDED_TOKENS = 65_536  # of one forward pass, padding included
STRETCH_S = 20.0  # that one stream takes requests for


@dataclass(frozen=True, slots=True)
class Memory:
    """`padded_tokens`: the most that a batch holds, padding included. `kv_tokens`: tokens whose KV
    is kept for the next turn, 0 = none, by default by the size of the memory."""

    padded_tokens: int = PADDED_TOKENS
    kv_tokens: int | None = None

    def check(self, policy: str) -> None:
        """Raises ConfigError for a number out of range."""
        if self.padded_tokens < 1:
            raise ConfigError(
                f"policy {policy!r}: padded_tokens must be at least 1; got {self.padded_tokens}"
            )
        if self.kv_tokens is not None and self.kv_tokens < 0:
            raise ConfigError(
                f"policy {policy!r}: kv_tokens must be 0 (off) or more; got {self.kv_tokens}"
            )


@dataclass(frozen=True, slots=True)
class Learning:
    """What a learner of these weights trains: see `Transformers`."""

    lora: dict[str, Any] | str | None = None
    parity: float | None = None
    seed: int = 0

    def check(self, policy: str) -> None:
        """Raises ConfigError for a value out of range."""
        if self.parity is not None and not 0 < self.parity < float("inf"):
            raise ConfigError(f"policy {policy!r}: parity is in nats, above 0; got {self.parity}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ConfigError(f"policy {policy!r}: seed is a whole number; got {self.seed!r}")


class Transformers:
    """A local causal language model as an engine: `transformers/PATH`, or `transformers/OWNER/NAME`
    of the hub. A config names the fields of its objects: `dtype`, `template`, `lora` ...

    `name`: a folder with config, weights, tokenizer and chat template, or the folder of a LoRA
    adapter, which is opened on its base. `template`: options of the chat template, as
    {enable_thinking: false}, or `plain` for a model without one. `keep_thinking` and `tool_format`:
    see `Chat`. `dtype`: float32, bfloat16, float16, or auto = as stored. `device_map`:
    accelerate's, as in auto, instead of `device`. `attention`: eager, sdpa, flash_attention_2 and
    so on. `kv_tokens`: tokens whose KV is kept for the next turn, 0 = none, by default by the size
    of the memory. `constrain`: `legal` samples only ids that spell one of the legal strings, where
    the agent is asked with such; `tools` only calls that fit the offered tools, where some are
    (`gem_ma.engines.local.tool_grammar`); `auto`, which configs get that say nothing, does `legal` where
    it can (see `binds`). `lora`: a new adapter as {rank: 8, alpha: 16, targets: [q_proj, v_proj]},
    or the folder of one. `parity`: nats that what is sampled may differ from what the learner
    computes, in the mean over tokens; by default measured (`gem_ma.training.learner.parity`). `seed`: what
    random weights are drawn from, those of an untrained folder (`gem_ma.engines.local.untrained`) and the
    random half of a new adapter; 0 = as they lie in the folder, and by the policy's name.

    Who shares weights: policies with an adapter, and `frozen` ones without, have one base in common
    where folder and options are the same, and are answered in common batches. Any other policy
    holds weights of its own, and one that is to learn all its weights takes its own (`own`).

    `version` counts publishes. Raises DataError where a folder is missing or damaged,
    ConfigError for options that do not fit, and where the train extra is missing.
    """

    exports = "transformers"
    # a recorded config has all that held, so these may become better ones
    config_defaults: Mapping[str, Any] = {"constrain": "auto", "device": "auto"}
    seeded = True
    # as the sampler of a learner
    route = ""
    probes: Sequence[tuple[int, ...]] = ()

    @flat
    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        how: How = How(),  # noqa: B008  (frozen)
        chat: ChatOptions = ChatOptions(),  # noqa: B008  (frozen)
        memory: Memory = Memory(),
        learning: Learning = Learning(),
        constrain: str | None = None,
        frozen: bool = False,
    ) -> None:
        self.path, self.policy, self.version = name, policy, 0
        how = how.check(policy)
        memory.check(policy)
        learning.check(policy)
        if constrain not in (None, "auto", "legal", "tools"):
            raise ConfigError(
                f"policy {policy!r}: constrain is `auto`, `legal`, `tools` or null; got"
                f" {constrain!r}"
            )
        lora, seed = learning.lora, learning.seed
        self.kv_tokens, self.constrain, self.parity = memory.kv_tokens, constrain, learning.parity
        # legal strings that `auto` leaves free, and why
        self._unbound: dict[tuple[str, ...], str] = {}
        settings = None if lora is None or isinstance(lora, str) else lora_settings(lora, policy)
        folder = find_model(name, policy)
        given = find_model(lora, policy, "adapter") if isinstance(lora, str) else None
        if is_adapter(folder):
            if lora is not None:
                raise ConfigError(
                    f"policies.{policy}.lora: {name} is an adapter itself; leave lora out, or name"
                    " its base as the model"
                )
            given, name = folder, base_of(folder, policy)
            folder = find_model(name, policy)
        if settings is not None or given is not None:
            require_peft(policy)
        # an adapter fits the base that it was trained on
        self.seed = seed if given is None else seed_of(given)
        # of the config: what is made new beside an adapter that was opened is drawn from it
        self.wanted_seed = seed
        first = first_seed(folder) if self.seed else None
        how = how if first is None else replace(how, drawn=first + self.seed)
        self.drawn_from = [
            *["weights"] * (first is not None),
            *["adapter"] * (settings is not None and settings.seed is None),
        ]
        self._opened = (name, folder, how, memory.padded_tokens)
        self._voice = chat
        self._use(self._open(shared=frozen or settings is not None or given is not None))
        self.grammar = (
            ToolGrammar(self.chat, (self.banned < 0).cpu().numpy(), policy)
            if constrain == "tools"
            else None
        )
        self.adapter = self._adapted(settings, given)
        self.lock = self.base.lock  # held while sampling and while weights change
        # weights were changed and not yet checked: nothing may be sampled as if it were an old
        # version
        self.unpublished = False

    def _open(self, *, shared: bool) -> Base:
        name, folder, how, padded_tokens = self._opened
        return open_base(name, folder, self.policy, how, shared=shared, padded_tokens=padded_tokens)

    def _use(self, base: Base) -> None:
        """Samples from this base."""
        self.base, self.torch, self.tokenizer, self.model = (
            base,
            base.torch,
            base.tokenizer,
            base.model,
        )
        self.device, self.positions, self.vocabulary, self.ends = (
            base.device,
            base.positions,
            base.vocabulary,
            base.ends,
        )
        where = f"policy {self.policy!r} ({self.path})"
        self.chat = Chat(self.tokenizer, self.ends, self._voice, where)
        self.decoder, self.banned = base.decoder(self.chat)
        self.decoder.limit(self.kv_tokens)
        self.choices = Choices(
            self.chat.answer,
            lambda ids: not bool((self.banned[list(ids)] < 0).any()),
            self.text,
            where,
        )

    def _adapted(self, settings: LoraSettings | None, folder: Path | None) -> str | None:
        """The adapter of this policy on the base; it is taken out again when the policy is gone."""
        if settings is None and folder is None:
            return None
        adapters = self.base.adapters
        with self.base.changing():
            key = (
                adapters.opened(folder, self.policy)
                if folder is not None
                else adapters.fresh(settings or LoraSettings(), self.policy, self.seed)
            )
        finalize(self, adapters.release, key).atexit = False
        return key

    # -- requests ---------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """Whose weights sample the rows of this policy."""
        return Source(self.adapter, self.version, f"policy {self.policy!r}")

    @property
    def shares(self) -> object | None:
        """What it may be batched in common by: policies with an equal one are answered by one
        `sample_mixed`. None: nobody else."""
        return self.decoder if self.base.shared and self.base.adapters.mixes else None

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """One reply per request, in their order; for a request whose messages cannot be rendered
        the EngineError that says why.

        A prompt that leaves no room for a token gives finish `context_overflow`, unsampled. A
        request that is alone raises its error.
        """
        self._published()
        for request in requests:
            _check_sampling(request)
        answers = self.sample_mixed([(self, request) for request in requests])
        if len(answers) == 1 and isinstance(answers[0], Exception):
            raise answers[0]
        return answers

    @staticmethod
    def sample_mixed(asked: Sequence[tuple[Transformers, Request]]) -> list[Reply | Exception]:
        """Answers requests of policies that share a base, in their order and in common batches;
        what fails is the error of its own asker."""
        if not asked:
            return []
        with asked[0][0].lock:
            answers: list[Reply | Exception] = []
            fine: list[_Asked] = []
            for at, (engine, request) in enumerate(asked):
                try:
                    engine._published()
                    _check_sampling(request)
                    prompt = engine.chat.prompt(request)
                    engine._begin(request, prompt)
                    fine.append((at, engine, request, prompt))
                    answers.append(Reply())
                except (EngineError, ConfigError) as error:
                    # this request's own fault: the others of its batch are answered
                    answers.append(error)
            for (at, engine, request, prompt), draw in zip(fine, _drawn(fine), strict=True):
                if isinstance(draw, Exception):
                    answers[at] = draw
                else:
                    answers[at] = engine._replied(request, prompt, draw)
            return answers

    def stream(
        self,
        pull: Callable[[], Sequence[tuple[Transformers, Request]]],
        give: Callable[[int, Reply | Exception], None],
    ) -> None:
        """Answers requests as they come, until none runs and `pull()` has no more. It is asked
        before every token, and what it gives joins the running batch; its policies share this one's
        base. `give(n, answer)` answers the n-th request pulled, as soon as that is there.

        Pulls nothing more after a stretch, so that others get at the weights. Raises where
        nothing can be sampled at all.
        """
        asked: list[_Asked] = []
        running: dict[Draw, _Asked] = {}
        until = time.monotonic() + STRETCH_S

        def more() -> list[Draw]:
            begun: list[Draw] = []
            for engine, request in pull() if time.monotonic() < until else ():
                number = len(asked)
                asked.append((number, engine, request, ()))
                try:
                    engine._published()
                    _check_sampling(request)
                    prompt = engine.chat.prompt(request)
                    draw = engine._begin(request, prompt)
                except (EngineError, ConfigError) as error:  # this request's own fault
                    give(number, error)
                    continue
                running[draw] = (number, engine, request, prompt)
                if draw.room:
                    begun.append(draw)
                else:
                    done(draw)
            return begun

        def done(draw: Draw) -> None:
            number, engine, request, prompt = running.pop(draw)
            give(number, engine._replied(request, prompt, draw))

        with self.lock:
            try:
                self.decoder.run(more, done)
            except Exception:
                left = list(running.values())
                if len({engine for _, engine, _, _ in left}) < 2:
                    raise
                for (number, engine, request, prompt), draw in zip(left, _drawn(left), strict=True):
                    give(
                        number,
                        (
                            draw
                            if isinstance(draw, Exception)
                            else engine._replied(request, prompt, draw)
                        ),
                    )

    def _begin(self, request: Request, prompt: tuple[int, ...]) -> Draw:
        """The row of a request. Raises ConfigError where max_tokens is too small for the legal
        strings that it is bound to, and where it cannot be bound to its tools.
        """
        tree, longest = (
            self.choices.tree(request.legal)
            if request.legal and self.binds(request.legal, request.tools)
            else (None, 0)
        )
        # bound as far as max_tokens and the context go; what is cut there is cut, as without
        # `constrain`
        if self.constrain == "auto":
            longest = 0
        if longest > request.sampling.max_tokens:
            what = (
                f"max_tokens is {request.sampling.max_tokens}, and the longest of its legal strings"
                f" has {longest} tokens"
            )
            raise ConfigError(
                f"policy {self.policy!r}, agent {request.agent!r}: {what}, the end of turn included"
            )
        keep = bool(request.conversation) and self.kv_tokens != 0
        # a stop string would cut a legal one in two
        sampling = request.sampling if tree is None else replace(request.sampling, stop=())
        walk = (
            self.grammar.walk(request.tools) if self.grammar is not None and request.tools else None
        )
        if walk is not None and any(sampling.stop):
            what = (
                "a stop string would cut a tool call in two; leave out `stop`, or `constrain:"
                " tools`"
            )
            raise ConfigError(f"policy {self.policy!r}, agent {request.agent!r}: {what}")
        draw = self.decoder.draw(
            prompt,
            sampling,
            request.seed,
            self.source,
            keep=keep,
            choices=tree if walk is None else walk,
        )
        if draw.room < longest:
            draw.room, draw.finish = 0, "context_overflow"
        return draw

    def _replied(self, request: Request, prompt: tuple[int, ...], draw: Draw) -> Reply:
        reply = self._reply(request, prompt, draw)
        self.chat.sampled(request, reply)
        return reply

    def allowed(
        self, legal: Sequence[str] | None, ids: Sequence[int], tools: Sequence[Tool] = ()
    ) -> tuple[tuple[int, ...] | IdSet | None, ...] | None:
        """What each of these sampled ids was chosen among, where the policy is bound to these
        legal strings or tools; None = among all."""
        if self.grammar is not None:
            return self.grammar.along(tools, ids) if tools else None
        return (
            allowed_along(self.choices.tree(tuple(legal))[0], ids)
            if legal and self.binds(tuple(legal), tools)
            else None
        )

    def binds(self, legal: tuple[str, ...], tools: Sequence[Tool] = ()) -> bool:
        """Whether answers to these legal strings are sampled among them alone. Sampler and learner
        ask the same, so both see the same mask.

        `auto` leaves a choice free where tools are offered beside it, where the chat template
        lets the model think before it answers, and, with one note, where the tokenizer cannot
        spell one of the strings, or not so that it is read back.
        """
        if self.constrain != "auto":
            return self.constrain == "legal"
        if tools or self.chat.may_think or legal in self._unbound:
            return False
        try:
            self.choices.tree(legal)
        except ConfigError as error:
            why = str(error).partition("; ")[0]
            if why not in self._unbound.values():
                LOG.warning("%s: such choices are sampled freely (constrain: auto)", why)
            if len(self._unbound) < KEPT:
                self._unbound[legal] = why
            return False
        return True

    def forget(self) -> None:
        """Drops all kept KV, so that what follows depends on nothing before."""
        with self.lock:
            self.decoder.forget()

    def _published(self) -> None:
        if self.unpublished:
            raise EngineError(
                f"policy {self.policy!r}: its weights have changed and are not published; call"
                " publish() of its learner first"
            )

    def recall(self, request: Request, reply: Reply) -> None:
        """A reply out of a record, in a play that goes on from it: the next prompt of this
        conversation begins with its ids."""
        with self.lock:
            self.chat.recall(request, reply)

    def _reply(self, request: Request, prompt: tuple[int, ...], draw: Draw) -> Reply:
        text, calls = self.chat.read(
            self.text(draw.ids, draw.sampling.stop), request.tools, draw.finish
        )
        return Reply(
            text=text,
            tool_calls=calls,
            prompt_ids=prompt,
            token_ids=tuple(draw.ids),
            logprobs=tuple(draw.logprobs),
            finish=draw.finish,
            policy=self.policy,
            version=self.version,
            usage=Usage(len(prompt), len(draw.ids), draw.cached),
        )

    def text(self, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
        """The text of sampled ids, without the end token and before the first stop string."""
        return spoken(self.chat, self.ends, ids, stop)

    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> list[Draw]:
        """Samples after each prompt [B of ids], from kept KV where there is some, as talks do;
        gives ids, log-probabilities, finish per prompt."""
        with self.lock:
            return self.decoder.sample(
                prompts, samplings, seeds, [self.source] * len(prompts), keep=self.kv_tokens != 0
            )

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any]:
        """The parameters that a learner of this policy trains, by name: those of its adapter, or
        all."""
        return (
            self.base.weights()
            if self.adapter is None
            else self.base.adapters.parameters(self.adapter)
        )

    def active(self) -> AbstractContextManager[None]:
        """Inside, `model` computes as this policy does: with its adapter. Outside it is the
        base."""
        return self.base.routed(self.adapter)

    def own(self) -> None:
        """Takes weights of its own where all of them are to change: an adapter is its own
        already, a shared base is loaded once more."""
        if self.adapter is None and self.base.shared:
            self._use(self._open(shared=False))
            self.lock = self.base.lock

    def take(self, weights: Mapping[str, Any]) -> None:
        """Copies these weights over its own, in place; the learner then checks parity and raises
        the version."""
        self.own()
        with self.lock, self.torch.no_grad():
            for name, weight in self.weights().items():
                weight.copy_(weights[name])

    def twin(self) -> Transformers:
        """The same weights apart from these, and the same tokenizer: to be learned while this
        engine is sampled from.

        A module of its own, or on a shared base an adapter of its own.
        """
        other = copy.copy(self)
        if self.adapter is None:
            other._use(self.base.copy())
            other.lock = other.base.lock
            return other
        other.adapter = self.beside("twin", owner=other)
        other.take(self.weights())
        other.lock = self.base.another_lock()
        return other

    def beside(self, *names: object, owner: object | None = None) -> str:
        """A new adapter of the shape of this policy's, on its base; its key. It lives as long as
        its owner, by default this engine.

        Its random half is drawn from the names and the seed that the config gives the policy.
        """
        if self.adapter is None:
            raise EngineError(
                f"policy {self.policy!r} has no adapter, so there is none of its shape"
            )
        with self.base.changing():
            key = self.base.adapters.beside(self.adapter, *names, seed=self.wanted_seed)
        finalize(self if owner is None else owner, self.base.adapters.release, key).atexit = False
        return key

    def learner(self, sampling: Sampling, *, apart: bool = False) -> Any:
        """See `Trains`. This very module learns, so nothing is copied; `apart`: a twin of it."""
        engine = self.twin() if apart else self
        return load("learners", "torch")(engine, sampling, sampler=self)

    def drawn(self) -> dict[str, int]:
        """See `Configured`."""
        return dict.fromkeys(self.drawn_from, self.seed) if self.seed else {}

    def fingerprint(self) -> str:
        """SHA-256 of the weights: equal before and after a run for a policy that does not learn.
        Of an adapter, together with its base."""
        with self.lock:
            if self.adapter is None:
                return self.base.fingerprint()
            digest = digest_of(self.weights(), self.torch)
            digest.update(self.base.fingerprint().encode())
            return digest.hexdigest()

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes weights, config and tokenizer as a folder that any loader of the format reads;
        of an adapter the folder that peft and vLLM read, which names its base.
        """
        with self.lock:
            if self.adapter is not None:
                name, folder, how, _ = self._opened
                drawn = self.seed if how.drawn is not None else 0
                self.base.adapters.save(
                    self.adapter, path, str(folder) if Path(name).is_dir() else name, drawn
                )
                return
            import transformers

            if self.base.adapters.configs:  # its layers are wrapped for the adapters of others
                self.own()
            with quiet(transformers):
                self.model.save_pretrained(path)
                self.tokenizer.save_pretrained(path)


# place among the answers, who, what, the prompt's ids
_Asked = tuple[int, Transformers, Request, tuple[int, ...]]


def _drawn(asked: Sequence[_Asked]) -> Sequence[Draw | Exception]:
    """What was sampled for each; where that fails for several policies, each apart, so that
    broken weights are one policy's own fault."""
    if not asked:
        return []
    try:
        draws = [engine._begin(request, prompt) for _, engine, request, prompt in asked]
        asked[0][1].decoder.finish(draws)
        return draws
    except Exception:
        policies = list(dict.fromkeys(engine for _, engine, _, _ in asked))
        if len(policies) == 1:
            raise
    result: dict[int, Draw | Exception] = {}
    for policy in policies:
        mine = [one for one in asked if one[1] is policy]
        try:
            result |= {one[0]: draw for one, draw in zip(mine, _drawn(mine), strict=True)}
        except Exception as error:  # goes to the askers of this policy
            result |= {one[0]: error for one in mine}
    return [result[one[0]] for one in asked]


def _check_sampling(request: Request) -> None:
    how = request.sampling
    ranges = {
        "temperature": (0 <= how.temperature < float("inf"), "0 or more"),
        "top_p": (0 < how.top_p <= 1, "above 0 and at most 1"),
        "top_k": (how.top_k >= 0, "0 (off) or more"),
        "max_tokens": (how.max_tokens >= 1, "1 or more"),
    }
    for name, (fits, rule) in ranges.items():
        if not fits:
            raise ConfigError(
                f"agent {request.agent!r}: {name} must be {rule}; got {getattr(how, name)}"
            )
