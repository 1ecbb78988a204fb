"""The engines `transformers` and `vision`: a causal language model in this process, sampled by a
token loop of this library.

Every request has its own random generator, so it gets the same tokens alone, in a batch and in
another batch. Rounding is the exception. In float32 a row in a batch, or one that goes on from kept
KV, agrees with the row alone to about 1e-6, so a tie may still flip. In bfloat16 that is about
1e-2, so now and then a token flips.

Log-probabilities are those of the distribution that was sampled from: ids that are never sampled
are masked out, the logits are divided by the temperature, and top_k and top_p renormalise over what
they leave. Temperature 0 takes the likeliest id, whose log-probability is then 0. Dropout is off.
Of a folder's generation_config only the end ids are used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import finalize

from gem_ma.engines.local.adapters import require_peft
from gem_ma.engines.local.answering import Stream, answered, check_sampling
from gem_ma.engines.local.binding import Binding, check_constrain
from gem_ma.engines.local.sampling import Draw, Source
from gem_ma.engines.local.shared_model import Base, digest_of, open_base
from gem_ma.engines.models.adapter_folder import seed_of
from gem_ma.engines.models.chat import Chat, ChatOptions
from gem_ma.engines.models.loading import How, first_seed, pace_line, quiet, settled_dtype
from gem_ma.engines.models.model_folder import Origin, check_folder, origin_of
from gem_ma.engines.models.served import check_published
from gem_ma.engines.models.settings import Learning, LoraSettings, Memory, check_parity
from gem_ma.engines.models.sight import Sight
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Reply, Request, Sampling
from gem_ma.registry import load
from gem_ma.system.options import flat


class Transformers:
    """A local causal language model as an engine: `transformers/PATH`, or `transformers/OWNER/NAME`
    of the hub. A config names the fields of its objects: `dtype`, `template`, `lora` ...

    `name`: a folder with config, weights, tokenizer and chat template, or the folder of a LoRA
    adapter, which is opened on its base. `constrain`: see `Binding`; configs that say nothing get
    `auto`.

    Who shares weights: policies with an adapter, and `frozen` ones without, have one base in common
    where folder and options are the same, and are answered in common batches. Any other policy has
    weights of its own, and one that is to learn all its weights takes its own (`own`).

    Raises DataError where a folder is missing or damaged, ConfigError for options that do not fit,
    and where the train extra is missing.
    """

    exports = "transformers"
    sees = False  # images
    # A recorded config lists every option that held, so these defaults may become better ones.
    config_defaults: Mapping[str, Any] = {"constrain": "auto", "device": "auto"}
    seeded = True
    # As the sampler of a learner: it publishes in place, and asks for no special probes.
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
        memory: Memory = Memory(),  # noqa: B008  (frozen)
        learning: Learning = Learning(),  # noqa: B008  (frozen)
        constrain: str | None = None,
        frozen: bool = False,
    ) -> None:
        self.path = name
        self.policy = policy
        self.version = 0
        how = how.check(policy)
        memory.check(policy)
        check_parity(learning.parity, f"policy {policy!r}")
        check_constrain(constrain, policy)
        self.kv_tokens = memory.kv_tokens
        self.parity = learning.parity
        origin = origin_of(name, learning.lora, policy)
        if origin.adapts:
            require_peft(policy)
        # What is made new beside an adapter that was opened is drawn from the config's seed ...
        self.wanted_seed = learning.seed
        # ... but the adapter itself fits only the base that it was trained on.
        self.seed = learning.seed if origin.adapter is None else seed_of(origin.adapter)
        check_folder(origin.folder, policy)
        how = self._seeded(how.placed(), origin)
        self._opened = (origin, how, memory.padded_tokens)
        self._voice = chat
        self._use(self._open(shared=frozen or origin.adapts))
        self.binding = Binding(constrain, self.chat, self.vocabulary, policy, name)
        self.adapter = self._adapted(origin)
        self.lock = self.base.lock  # held while sampling and while weights change
        # Weights were changed and not yet checked: nothing may be sampled as if it were an old
        # version.
        self.unpublished = False

    def _seeded(self, how: How, origin: Origin) -> How:
        """Notes what is drawn from the seed. Gives the options that draw the weights so."""
        first = first_seed(origin.folder) if self.seed else None
        new = origin.settings is not None and origin.settings.seed is None
        self._drawn_from = ["weights"] * (first is not None) + ["adapter"] * new
        # The sum, so that two untrained folders of other seeds differ under every seed of a run.
        return how if first is None else replace(how, drawn=first + self.seed)

    def _open(self, *, shared: bool) -> Base:
        origin, how, tokens = self._opened
        name = origin.name
        folder = origin.folder
        options: dict[str, Any] = {"padded_tokens": tokens, "sees": self.sees}
        return open_base(name, folder, self.policy, how, shared=shared, **options)

    def _use(self, base: Base) -> None:
        self.base = base
        self.torch = base.torch
        self.model = base.model
        self.tokenizer = base.tokenizer
        self.device = base.device
        self.positions = base.positions
        where = f"policy {self.policy!r} ({self.path})"
        # A chat of its own: it remembers the conversations of this policy.
        self.chat = Chat(self.tokenizer, base.ends, self._voice, where, vision=base.vision)
        self.decoder = base.decoder(self.chat)
        self.vocabulary = self.decoder.vocabulary
        self.banned = self.decoder.banned
        self.decoder.limit(self.kv_tokens)

    def _move(self, base: Base) -> None:
        self._use(base)
        self.binding = self.binding.beside(self.chat, self.vocabulary)
        self.lock = base.lock

    def _adapted(self, origin: Origin) -> str | None:
        """The key of this policy's adapter on the base. It is removed when the policy is garbage
        collected."""
        if not origin.adapts:
            return None
        adapters = self.base.adapters
        with self.base.changing():
            if origin.adapter is not None:
                key = adapters.opened(origin.adapter, self.policy)
            else:
                key = adapters.fresh(origin.settings or LoraSettings(), self.policy, self.seed)
        # Not at exit: parts of the module may be gone by then, and all memory is freed anyway.
        finalize(self, adapters.release, key).atexit = False
        return key

    @staticmethod
    def settled(name: str, options: Mapping[str, Any]) -> dict[str, str]:
        """See `Settles`."""
        return settled_dtype(name, options)

    def pace(self) -> str:
        """See `Settles`."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return pace_line(self.policy, self.base.folder, dtype, str(self.device))

    # -- requests ---------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """Whose weights sample the rows of this policy."""
        return Source(self.adapter, self.version, f"policy {self.policy!r}")

    @property
    def shares(self) -> object | None:
        """Policies with an equal object are answered by one `sample_mixed`. None: no others."""
        return self.decoder if self.base.shared and self.base.adapters.mixes else None

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """One reply per request, in their order, or the error that says why there is none. A
        request that is alone raises its error."""
        # Both are faults of a config or a caller, so they are raised for the whole batch.
        check_published(self)
        for request in requests:
            check_sampling(request)
        answers = self.sample_mixed([(self, request) for request in requests])
        if len(answers) == 1 and isinstance(answers[0], Exception):
            raise answers[0]
        return answers

    @staticmethod
    def sample_mixed(asked: Sequence[tuple[Transformers, Request]]) -> list[Reply | Exception]:
        """Answers requests of policies that share a base, in their order and in common batches.
        What fails is the error of its asker."""
        if not asked:
            return []
        with asked[0][0].lock:  # of the base, so that of all of them
            return answered(asked)

    def stream(
        self,
        pull: Callable[[], Sequence[tuple[Transformers, Request]]],
        give: Callable[[int, Reply | Exception], None],
    ) -> None:
        """See `Streams`. Stops pulling after a stretch, so that a publish gets at the weights."""
        with self.lock:
            Stream(pull, give).run(self.decoder)

    def forget(self) -> None:
        """Drops all kept KV, so that what follows depends on nothing before."""
        with self.lock:
            self.decoder.forget()

    def recall(self, request: Request, reply: Reply) -> None:
        """See `Remembers`."""
        with self.lock:
            self.chat.recall(request, reply)

    def sample_ids(
        self,
        prompts: Sequence[tuple[int, ...]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
    ) -> list[Draw]:
        """Samples after each prompt [B of ids], from kept KV where there is some, as talks do."""
        with self.lock:
            return self.decoder.sample(
                prompts, samplings, seeds, [self.source] * len(prompts), keep=self.kv_tokens != 0
            )

    # -- weights ----------------------------------------------------------------------------------

    def weights(self) -> dict[str, Any]:
        """The parameters that a learner of this policy trains, by name."""
        if self.adapter is None:
            return self.base.weights()
        return self.base.adapters.parameters(self.adapter)

    def active(self) -> AbstractContextManager[None]:
        """Inside, `model` computes with this policy's adapter. Outside it is the base."""
        return self.base.routed(self.adapter)

    def unshare(self) -> None:
        """Takes weights of its own where all of them are to change."""
        if self.adapter is None and self.base.shared:
            self._move(self._open(shared=False))

    def take(self, weights: Mapping[str, Any]) -> None:
        """Copies these weights over its own, in place."""
        self.unshare()
        with self.lock, self.torch.no_grad():
            for name, weight in self.weights().items():
                weight.copy_(weights[name])

    def carried(self) -> bytes:
        """See `Carries`: a line with the version, then the weights; of an adapter, the adapter
        alone."""
        from safetensors.torch import save

        with self.lock:
            # clones: tied weights are one in memory, which a file refuses
            weights = {
                name: weight.detach().cpu().contiguous().clone()
                for name, weight in self.weights().items()
            }
        return f"{self.version}\n".encode() + save(weights)

    def carry(self, data: bytes) -> None:
        """See `Carries`."""
        from safetensors.torch import load as weights_of

        version, _, weights = data.partition(b"\n")
        self.take(weights_of(weights))
        # as a learner does: torch multiplies by such a matrix on another way, whose last bit
        # differs, also where no gradient is asked for
        for weight in self.weights().values():
            weight.requires_grad_(True)
        self.version = int(version)
        self.unpublished = False

    def twin(self) -> Transformers:
        """A copy of the weights, to be learned while this engine is sampled from: a module of its
        own, or on a shared base an adapter of its own."""
        other = self._copied("twin")
        if self.adapter is not None:
            # Learning holds its lock for long. Under the lock of the base nobody could sample.
            other.lock = self.base.another_lock()
        return other

    def _copied(self, name: str) -> Transformers:
        other = copy.copy(self)
        if self.adapter is None:
            other._move(self.base.copy())
            return other
        other.adapter = self.beside(name, owner=other)
        other.take(self.weights())
        return other

    def alone(self) -> Transformers:
        """A copy of the weights on a base of its own, that nobody else computes with."""
        other = copy.copy(self)
        other._move(other._open(shared=False))
        other.adapter = other._adapted(self._opened[0])
        other.take(self.weights())
        return other

    def merged(self) -> Transformers:
        """A copy without an adapter, on weights of its own: those of the base with what the adapter
        adds, rounded once to their dtype. Raises DataError for an adapter that no weight of its own
        can take in."""
        if self.adapter is None:
            return self
        other = copy.copy(self)
        other._move(self._open(shared=False))
        other.adapter = None
        weights = other.weights()
        with self.lock, self.torch.no_grad():
            for name, change in self.base.adapters.changes(self.adapter):
                # a head that is tied to the embeddings: the sum would change these too
                if name not in weights:
                    raise DataError(
                        f"policy {self.policy!r}: its adapter changes {name}, which this model has"
                        " in common with another layer; it cannot be merged, take the adapter alone"
                    )
                weights[name].copy_(weights[name].float() + change)
        return other

    def pinned(self) -> Transformers:
        """See `Pins`: a copy of the model, or on a shared base of the adapter alone."""
        return self._copied("pinned")

    def beside(self, *names: object, owner: object | None = None) -> str:
        """A new adapter of the shape of this policy's, on its base, drawn from the names; gives its
        key. It lives as long as its owner, by default this engine. Raises EngineError where this
        policy has no adapter."""
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

    def divided(self, sampling: Sampling, team: Any) -> Any:
        """See `Divides`."""
        return load("learners", "sharded")(self, sampling, team)

    def drawn(self) -> dict[str, int]:
        """See `Configured`."""
        return dict.fromkeys(self._drawn_from, self.seed) if self.seed else {}

    def fingerprint(self) -> str:
        """SHA-256 of the weights; of an adapter, together with its base."""
        with self.lock:
            if self.adapter is None:
                return self.base.fingerprint()
            digest = digest_of(self.weights(), self.torch)
            digest.update(self.base.fingerprint().encode())
            return digest.hexdigest()

    # -- files ------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes a folder that any loader of the format reads; of an adapter the folder that peft
        and vLLM read, which names its base."""
        with self.lock:
            if self.adapter is not None:
                self._save_adapter(path, self.adapter)
                return
            import transformers

            # The layers of a base are wrapped for the adapters of others; one's own are not.
            if self.base.adapters.configs:
                self.unshare()
            with quiet(transformers):
                self.model.save_pretrained(path)
            self._save_reading(path)

    def save_voice(self, path: str | Path, sampling: Sampling) -> None:
        """Writes beside saved weights what others need to sample from them: the tokenizer with its
        chat template, the image processor, and `generation_config.json` with this sampling."""
        self._save_reading(path)
        config = copy.deepcopy(self.model.generation_config)
        # what learns is drawn from all its tokens (top_p 1, top_k 0)
        config.do_sample = True
        config.temperature = sampling.temperature
        config.top_p, config.top_k = sampling.top_p, sampling.top_k
        config.max_new_tokens = sampling.max_tokens
        config.max_length = None
        config.eos_token_id = sorted(self.base.ends)
        config.save_pretrained(path)

    def _save_reading(self, path: str | Path) -> None:
        import transformers

        with quiet(transformers):
            self.tokenizer.save_pretrained(path)
            if self.base.sight is not None:
                self.base.sight.images.processor.save_pretrained(path)

    def _save_adapter(self, path: str | Path, adapter: str) -> None:
        origin, how, _ = self._opened
        # A base on this machine by its folder, one of the hub by its name there.
        base = str(origin.folder) if Path(origin.name).is_dir() else origin.name
        drawn = self.seed if how.drawn is not None else 0
        self.base.adapters.save(adapter, path, base, drawn)


class Vision(Transformers):
    """A local vision-language model of the Qwen-VL family as an engine: `vision/PATH`. Options as
    of `transformers/PATH`, without `kv_tokens`; needs the vision extra.

    Nothing is kept of a conversation for its next turn, and policies with adapters are sampled one
    after another, since the rows of a vision tower are patches, which do not say whose they are.
    """

    exports = "vision"
    sees = True

    def _open(self, *, shared: bool) -> Base:
        if self.kv_tokens:
            raise ConfigError(
                f"policy {self.policy!r}: the vision engine keeps no KV for the next turn; leave"
                " kv_tokens out"
            )
        self.kv_tokens = 0
        return super()._open(shared=shared)

    @property
    def shares(self) -> None:
        """See `Mixes`: no pass holds rows of two adapters."""
        return None

    @property
    def sight(self) -> Sight:
        """What ids of images show."""
        assert self.base.sight is not None  # as the base was opened
        return self.base.sight
