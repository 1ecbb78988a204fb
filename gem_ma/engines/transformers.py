"""The `transformers` engine: a causal language model in this process, sampled by an own token loop.

Knows ids and weights; knows no scenarios and no rewards. A batch is left-padded, with an explicit mask and position ids and a KV cache.
Every request draws from a generator of its own, one uniform number per token of its own (inverse of the cumulated distribution), so it gets
the same tokens alone, in a batch and in another batch. (Rows of a batch agree with the row alone to about 1e-6, so a tie may still flip.)

Log-probabilities are those of the distribution that was sampled from: ids that are never sampled (roles, padding, unknown) masked out, the
logits divided by the temperature, and under top_k and top_p renormalised over what is kept. Temperature 0 takes the likeliest id, whose
log-probability is then 0. A learner recomputes exactly this for temperature > 0 without top_k and top_p, the only sampling it accepts.

Dropout is off: the weights are always in eval mode. A folder's generation_config gives the end ids and nothing else.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma.engines.chat import Chat
from gem_ma.engines.decoding import Decoder, Draw, Source
from gem_ma.engines.loading import check_folder, first_line, import_stack, load_model, quiet
from gem_ma.errors import ConfigError, DataError, EngineError
from gem_ma.types import Reply, Request, Sampling, Usage

PADDED_TOKENS = 65_536  # of one forward pass, padding included
PARITY = {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02}  # nats


class Transformers:
    """A local causal language model as an engine: `transformers/PATH`.

    `name`: a folder with config, weights, tokenizer and chat template. `template`: options of the chat template, as {enable_thinking: false}, or
    `plain` for a model without one. `keep_thinking` and `tool_format`: see `Chat`.
    `version` counts publishes. Two engines on one folder hold weights of their own. Raises DataError where the folder is missing or damaged,
    ConfigError for options that do not fit, and where the train extra is missing.
    """

    kind, trainable = "transformers", True

    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        dtype: str = "float32",
        device: str = "cpu",
        template: dict[str, Any] | str | None = None,
        keep_thinking: bool = True,
        tool_format: str = "auto",
        padded_tokens: int = PADDED_TOKENS,
    ) -> None:
        self.path, self.policy, self.version = name, policy, 0
        if dtype not in PARITY:
            raise ConfigError(f"policy {policy!r}: dtype is one of {', '.join(PARITY)}; got {dtype!r}")
        if padded_tokens < 1:
            raise ConfigError(f"policy {policy!r}: padded_tokens must be at least 1; got {padded_tokens}")
        check_folder(name, policy)
        self.torch, transformers = import_stack()
        try:
            self.torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without the device
            raise ConfigError(f"policy {policy!r}: device {device!r} cannot be used here ({first_line(error)}); device: cpu always works") from error
        self.tokenizer, self.model = load_model(self.torch, transformers, name, policy, dtype, device)
        self.device, self.padded_tokens = device, padded_tokens
        self.positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 1 << 30)
        self.vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        self.ends = self._end_ids()
        where = f"policy {policy!r} ({name})"
        self.chat = Chat(self.tokenizer, self.ends, template, where, keep_thinking=keep_thinking, tool_format=tool_format)
        self.banned = self._banned()
        self.decoder = Decoder(
            self.torch,
            self.model,
            banned=self.banned,
            ends=self.ends,
            positions=self.positions,
            device=device,
            padded_tokens=padded_tokens,
            text=self.text,
        )
        self.lock = threading.RLock()  # held while sampling and while weights change
        self.unpublished = False  # weights were changed and not yet checked: nothing may be sampled as if it were an old version

    def _end_ids(self) -> frozenset[int]:
        configured = self.model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        ends = frozenset(int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None)
        if not ends:
            raise DataError(f"policy {self.policy!r}: {self.path} names no end-of-turn token; set eos_token_id in generation_config.json")
        return ends

    def _banned(self) -> Any:
        """[vocabulary] float32: -inf at ids that are never sampled and never trained on, else 0."""
        mask = self.torch.zeros(self.vocabulary, dtype=self.torch.float32, device=self.device)
        mask[len(self.tokenizer) :] = -self.torch.inf  # rows that only pad the embedding
        free = self.ends | self.chat.marks  # some templates open a tool call by a control token
        never = {token for token in self.tokenizer.all_special_ids if token not in free and token < self.vocabulary}
        mask[sorted(never)] = -self.torch.inf
        return mask

    # -- requests -----------------------------------------------------------------------------------------------------------

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply | EngineError]:
        """One reply per request, in their order; for a request whose messages cannot be rendered the EngineError that says why.

        A prompt that leaves no room for a token gives finish `context_overflow`, unsampled. A request that is alone raises its error.
        """
        with self.lock:
            if self.unpublished:
                raise EngineError(f"policy {self.policy!r}: its weights have changed and are not published; call publish() of its learner first")
            for request in requests:
                _check_sampling(request)
            answers: list[Reply | EngineError] = []
            fine: list[tuple[int, Request, tuple[int, ...]]] = []
            for at, request in enumerate(requests):
                try:
                    fine.append((at, request, self.chat.prompt(request)))
                    answers.append(Reply())
                except EngineError as error:  # this request's own fault: the others of its batch are answered
                    if len(requests) == 1:
                        raise
                    answers.append(error)
            draws = self.sample_ids([prompt for _, _, prompt in fine], [r.sampling for _, r, _ in fine], [r.seed for _, r, _ in fine])
            for (at, request, prompt), draw in zip(fine, draws, strict=True):
                reply = self._reply(request, prompt, draw)
                answers[at] = reply
                self.chat.sampled(request, reply)
            return answers

    def recall(self, request: Request, reply: Reply) -> None:
        """A reply out of a record, in a play that goes on from it: the next prompt of this conversation begins with its ids."""
        with self.lock:
            self.chat.recall(request, reply)

    def _reply(self, request: Request, prompt: tuple[int, ...], draw: Draw) -> Reply:
        text, calls = self.chat.read(self.text(draw.ids, request.sampling.stop), request.tools, draw.finish)
        return Reply(
            text=text,
            tool_calls=calls,
            prompt_ids=prompt,
            token_ids=tuple(draw.ids),
            logprobs=tuple(draw.logprobs),
            finish=draw.finish,
            policy=self.policy,
            version=self.version,
            usage=Usage(len(prompt), len(draw.ids)),
        )

    def text(self, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
        """The text of sampled ids, without the end token and before the first stop string."""
        kept = ids[:-1] if ids and ids[-1] in self.ends else ids
        text = self.chat.text(kept)
        cuts = [at for at in (text.find(mark) for mark in stop if mark) if at >= 0]
        return text[: min(cuts)] if cuts else text

    def sample_ids(self, prompts: Sequence[tuple[int, ...]], samplings: Sequence[Sampling], seeds: Sequence[int]) -> list[Draw]:
        """Samples after each prompt [B of ids]; gives ids, log-probabilities and finish per prompt."""
        source = Source(None, self.version, f"policy {self.policy!r}")
        return self.decoder.sample(prompts, samplings, seeds, [source] * len(prompts))

    # -- weights ------------------------------------------------------------------------------------------------------------

    @property
    def parity(self) -> float:
        """Nats that sampler and learner may differ in."""
        return PARITY[str(self.model.dtype).removeprefix("torch.")]

    def weights(self) -> dict[str, Any]:
        """The parameters that a learner of this policy trains, by name."""
        return dict(self.model.named_parameters())

    def take(self, weights: Mapping[str, Any]) -> None:
        """Copies these weights over its own, in place; the learner then checks parity and raises the version."""
        with self.lock, self.torch.no_grad():
            for name, weight in self.weights().items():
                weight.copy_(weights[name])

    def twin(self) -> Transformers:
        """The same weights in a module of its own, and the same tokenizer: to be learned while this engine is sampled from."""
        other = copy.copy(self)
        other.model, other.decoder = copy.deepcopy(self.model), copy.copy(self.decoder)
        other.decoder.model = other.model
        other.lock = threading.RLock()
        return other

    def fingerprint(self) -> str:
        """SHA-256 of the weights: equal before and after a run for a policy that does not learn."""
        digest = hashlib.sha256()
        for name, weight in sorted(self.model.named_parameters()):
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
            digest.update(weight.detach().cpu().contiguous().view(self.torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    # -- files --------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes weights, config and tokenizer as a folder that any loader of the format reads."""
        import transformers

        with self.lock, quiet(transformers):
            self.model.save_pretrained(path)
            self.tokenizer.save_pretrained(path)


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
            raise ConfigError(f"agent {request.agent!r}: {name} must be {rule}; got {getattr(how, name)}")
