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

import gc
import hashlib
import json
import os
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.chat import Chat
from gem_ma.errors import ConfigError, DataError, EngineError
from gem_ma.parsing import clean, parse_tool_calls
from gem_ma.types import Malformed, Reply, Request, Sampling, ToolCall, Usage

PADDED_TOKENS = 65_536  # of one forward pass, padding included
DTYPES = ("float32", "bfloat16", "float16")


def import_stack() -> tuple[Any, Any]:
    """(torch, transformers), with one thread unless the user chose. Raises ConfigError that names the extra."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    new = "transformers" not in sys.modules
    try:
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401  (loaded lazily by the library; here, so that it counts)
    except ImportError as error:
        raise ConfigError(f'the transformers engine needs torch and transformers ({error.name or error}): pip install "gem-ma[train]"') from error
    if "OMP_NUM_THREADS" not in os.environ and "MKL_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # small models on a busy machine are many times slower with more
    if new:  # about a million objects that live for ever: each later collection would walk them, a quarter of the time of a rollout
        gc.collect()
        gc.freeze()
    return torch, transformers


@dataclass(slots=True)
class _Draw:
    """The state of one request of a running batch."""

    sampling: Sampling
    rng: random.Random
    room: int  # tokens that may still be sampled
    ids: list[int]
    logprobs: list[float]
    finish: str = "length"


class Transformers:
    """A local causal language model as an engine: `transformers/PATH`.

    `name`: a folder with config, weights, tokenizer and chat template. `template`: options of the chat template, as {enable_thinking: false}.
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
        template: dict[str, Any] | None = None,
        padded_tokens: int = PADDED_TOKENS,
    ) -> None:
        self.path, self.policy, self.version = name, policy, 0
        if dtype not in DTYPES:
            raise ConfigError(f"policy {policy!r}: dtype is one of {', '.join(DTYPES)}; got {dtype!r}")
        if padded_tokens < 1:
            raise ConfigError(f"policy {policy!r}: padded_tokens must be at least 1; got {padded_tokens}")
        _check_folder(name, policy)
        self.torch, transformers = import_stack()
        try:
            self.torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without the device
            raise ConfigError(f"policy {policy!r}: device {device!r} cannot be used here ({_first_line(error)}); device: cpu always works") from error
        self.tokenizer, self.model = _load(self.torch, transformers, name, policy, dtype, device)
        self.device, self.padded_tokens = device, padded_tokens
        self.positions = int(getattr(self.model.config, "max_position_embeddings", 0) or 1 << 30)
        self.vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        self.ends = self._end_ids()
        self.banned = self._banned()
        self.chat = Chat(self.tokenizer, self.ends, template, f"policy {policy!r} ({name})")
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
        never = {token for token in self.tokenizer.all_special_ids if token not in self.ends and token < self.vocabulary}
        mask[sorted(never)] = -self.torch.inf
        return mask

    # -- requests -----------------------------------------------------------------------------------------------------------

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in their order. A prompt that leaves no room for a token gives finish `context_overflow`, unsampled."""
        with self.lock:
            if self.unpublished:
                raise EngineError(f"policy {self.policy!r}: its weights have changed and are not published; call publish() of its learner first")
            for request in requests:
                _check_sampling(request)
            prompts = [self.chat.prompt(request) for request in requests]
            draws = self.sample_ids(prompts, [request.sampling for request in requests], [request.seed for request in requests])
            replies = [self._reply(*one) for one in zip(requests, prompts, draws, strict=True)]
            for request, reply in zip(requests, replies, strict=True):
                self.chat.sampled(request, reply)
            return replies

    def recall(self, request: Request, reply: Reply) -> None:
        """A reply out of a record, in a play that goes on from it: the next prompt of this conversation begins with its ids."""
        with self.lock:
            self.chat.recall(request, reply)

    def _reply(self, request: Request, prompt: tuple[int, ...], draw: _Draw) -> Reply:
        text = self.text(draw.ids, request.sampling.stop)
        calls: tuple[ToolCall | Malformed, ...] = ()
        if request.tools:
            whole, (text, calls) = text, parse_tool_calls(text)
            if calls and draw.finish == "length" and whole.rfind("<tool_call>") > whole.rfind("</tool_call>"):
                calls = (*calls[:-1], Malformed(whole[whole.rfind("<tool_call>") :][:200], "truncated_call: cut by max_tokens"))
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
        text = clean(self.tokenizer.decode(list(kept), skip_special_tokens=True, clean_up_tokenization_spaces=False))
        cuts = [at for at in (text.find(mark) for mark in stop if mark) if at >= 0]
        return text[: min(cuts)] if cuts else text

    # -- the token loop -----------------------------------------------------------------------------------------------------

    def sample_ids(self, prompts: Sequence[tuple[int, ...]], samplings: Sequence[Sampling], seeds: Sequence[int]) -> list[_Draw]:
        """Samples after each prompt [B of ids]; gives ids, log-probabilities and finish per prompt."""
        draws = [
            _Draw(sampling, random.Random(seed), min(sampling.max_tokens, self.positions - len(prompt)), [], [])
            for prompt, sampling, seed in zip(prompts, samplings, seeds, strict=True)
        ]
        waiting = []
        for row, draw in enumerate(draws):
            if draw.room < 1:
                draw.finish = "context_overflow"
            elif prompts[row]:
                waiting.append(row)
            else:
                raise EngineError(f"policy {self.policy!r}: an empty prompt cannot be sampled from")
        waiting.sort(key=lambda row: (len(prompts[row]), row))
        with self.torch.inference_mode():
            while waiting:
                take = 1
                while take < len(waiting) and (take + 1) * (len(prompts[waiting[take]]) + draws[waiting[take]].room) <= self.padded_tokens:
                    take += 1
                rows, waiting = waiting[:take], waiting[take:]
                self._loop([prompts[row] for row in rows], [draws[row] for row in rows])
        return draws

    def _loop(self, prompts: list[tuple[int, ...]], draws: list[_Draw]) -> None:
        torch = self.torch
        logits, cache, mask = self._prefill(prompts)
        alive = list(range(len(draws)))
        while True:
            chosen, logprobs = self._draw(logits, [draws[row] for row in alive])
            staying = []
            for at, row in enumerate(alive):
                draw = draws[row]
                draw.ids.append(chosen[at])
                draw.logprobs.append(logprobs[at])
                draw.room -= 1
                if chosen[at] in self.ends or self._stopped(draw):
                    draw.finish = "stop"
                elif draw.room > 0:
                    staying.append(at)
            if not staying:
                return
            if len(staying) < len(alive):  # rows that have ended leave the batch
                keep = torch.tensor(staying, device=self.device)
                cache.batch_select_indices(keep)
                mask, alive = mask[keep], [alive[at] for at in staying]
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], 1)
            last = torch.tensor([[draws[row].ids[-1]] for row in alive], device=self.device)
            logits = self._forward(last, mask, cache).logits[:, -1]

    def _prefill(self, prompts: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
        """(logits [B, V] after the last prompt token, KV cache, mask [B, T]); equal prompts are computed once.

        The seam for keeping KV across turns: a caller that holds a cache would feed only what is new here.
        """
        torch = self.torch
        different: dict[tuple[int, ...], int] = {}
        back = [different.setdefault(prompt, len(different)) for prompt in prompts]
        width = max(map(len, different))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in different], device=self.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in different], device=self.device)
        out = self._forward(ids, mask, None)
        logits, cache = out.logits[:, -1], out.past_key_values
        if len(different) < len(prompts):
            rows = torch.tensor(back, device=self.device)
            cache.batch_select_indices(rows)
            logits, mask = logits[rows], mask[rows]
        return logits, cache, mask

    def _forward(self, ids: Any, mask: Any, cache: Any) -> Any:
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return self.model(
            input_ids=ids,
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )

    def _draw(self, logits: Any, draws: list[_Draw]) -> tuple[list[int], list[float]]:
        """One id per row [B] and its log-probability, by inverse of the cumulated distribution in float64."""
        torch = self.torch
        scores = logits.float() + self.banned
        temperature = [draw.sampling.temperature for draw in draws]
        if any(t != 1.0 for t in temperature):
            scores = scores / torch.tensor([[t or 1.0] for t in temperature], dtype=torch.float32, device=self.device)
        if any(draw.sampling.top_k > 0 or draw.sampling.top_p < 1 for draw in draws):
            scores = self._filtered(scores, draws)
        logprobs = scores.log_softmax(-1)
        mass = logprobs.double().exp().cumsum(-1)
        total = mass[:, -1:]
        if not bool(total.isfinite().all()):
            raise EngineError(f"policy {self.policy!r}: its weights (version {self.version}) give no probabilities but NaN; go back to a checkpoint")
        uniform = torch.tensor([[draw.rng.random()] for draw in draws], dtype=torch.float64, device=self.device)
        point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        chosen = torch.searchsorted(mass, point, right=True)
        taken = logprobs.gather(1, chosen)
        if any(t == 0 for t in temperature):
            greedy = torch.tensor([[t == 0] for t in temperature], device=self.device)
            chosen = torch.where(greedy, scores.argmax(-1, keepdim=True), chosen)
            taken = torch.where(greedy, torch.zeros_like(taken), taken)
        return chosen[:, 0].tolist(), taken[:, 0].tolist()

    def _filtered(self, scores: Any, draws: list[_Draw]) -> Any:
        """Scores with -inf outside top_k, and outside the smallest set whose mass reaches top_p; the likeliest id always stays."""
        torch = self.torch
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(scores.shape[1], device=self.device)[None]
        top_k = torch.tensor([[draw.sampling.top_k or scores.shape[1]] for draw in draws], device=self.device)
        top_p = torch.tensor([[draw.sampling.top_p] for draw in draws], dtype=torch.float64, device=self.device)
        kept = ordered.masked_fill(rank >= top_k, -torch.inf)
        mass = kept.double().softmax(-1)
        before = mass.cumsum(-1) - mass
        kept = kept.masked_fill((before >= top_p) & (top_p < 1) & (rank > 0), -torch.inf)
        return torch.empty_like(scores).scatter_(1, order, kept)

    def _stopped(self, draw: _Draw) -> bool:
        return any(mark and mark in self.text(draw.ids) for mark in draw.sampling.stop)

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


def _check_folder(name: str, policy: str) -> None:
    """Missing parts are named before anything heavy is imported."""
    folder, make = Path(name), 'make one with "gem-ma new model PATH --scenario ID", or name a folder with a model'
    if not name or not folder.is_dir():
        raise DataError(f"policy {policy!r}: there is no model folder {name!r}; {make}")
    if not (folder / "config.json").is_file():
        raise DataError(f"policy {policy!r}: {name} has no config.json, so it is no model folder; {make}")
    for config in ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        if (folder / config).is_file():
            try:
                json.loads((folder / config).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"policy {policy!r}: {folder / config} cannot be read as JSON ({error}); copy the model again") from error
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")):
        raise DataError(f"policy {policy!r}: {name} has no tokenizer (tokenizer.json); copy the model's tokenizer files into it")
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"policy {policy!r}: {name} has no weights (*.safetensors); copy the model again, or {make}")


def _load(torch: Any, transformers: Any, name: str, policy: str, dtype: str, device: str) -> tuple[Any, Any]:
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # whatever a damaged file makes the loader raise
        raise DataError(f"policy {policy!r}: the tokenizer of {name} cannot be loaded ({_first_line(error)}); copy the model again") from error
    try:
        with quiet(transformers):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                name, local_files_only=True, dtype=getattr(torch, dtype), output_loading_info=True, ignore_mismatched_sizes=True
            )  # what mismatches is refused below, by name
        lost = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
        if lost:
            raise ValueError(f"{len(lost)} weights are missing or of another shape, as {lost[0]}")
        known, highest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values(), default=0)
        if highest >= known:
            raise ValueError(f"its tokenizer has ids up to {highest}, its weights know {known}: they are of two models")
        return tokenizer, model.to(device).eval().requires_grad_(False)
    except Exception as error:
        raise DataError(f"policy {policy!r}: the model in {name} cannot be loaded ({_first_line(error)}); copy or make it again") from error


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no warnings of the library; what matters is raised."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
