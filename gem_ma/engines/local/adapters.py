"""LoRA adapters of one module: many policies on one base, each row of a batch with the adapter of
its own policy.

`peft` names and shapes the adapters. Which one a row sees is decided once per forward pass
(`route`): peft's own switches would walk the whole module at every token, and turn gradients on.
Outside of `route` the module is its base, bit for bit.

A new adapter changes nothing: B is zero, A is drawn from its own seed (Hu et al. 2021, LoRA).
Adapters are never merged here, have no dropout, and stay frozen until a learner takes them.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from gem_ma.engines.base import stable_seed
from gem_ma.engines.models.adapter_folder import CONFIG, read_adapter, relative_base, write_adapter
from gem_ma.engines.models.loading import first_line, needed
from gem_ma.engines.models.settings import LoraSettings
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.spelling import nearest

# Left to the library, the products of two thin matrices cost as much time as those of the layer
# itself, which are `rank` times as wide. So a processor takes a block of rows at a time, that stays
# in its cache between the products, and gradients are products of shapes that its kernels are fast
# in. Axes: N rows, I inputs and O outputs of the layer, r the rank.
BLOCK = 256  # rows; 128 to 1024 were alike on two processors, all rows at once took twice as long


def changed(output: Any, inputs: Any, down: Any, up: Any, scaling: float) -> Any:
    """`output` [..., O] with `scaling * inputs @ down.T @ up.T` added, given `inputs` [..., I],
    `down` [r, I] and `up` [O, r]; computed in the dtype of the adapter, added in the output's."""
    flat = inputs.reshape(-1, inputs.shape[-1])
    before = output.reshape(-1, output.shape[-1])
    return _function().apply(before, flat, down, up, scaling).reshape(output.shape)


def _blocks(tensor: Any) -> Iterator[slice]:
    """The rows [N] of a tensor in pieces of `BLOCK`; on a GPU, where pieces cost, in one."""
    size = BLOCK if tensor.device.type == "cpu" else max(1, len(tensor))
    for start in range(0, len(tensor), size):
        yield slice(start, start + size)


@cache
def _function() -> Any:
    import torch

    linear = torch.nn.functional.linear

    class Changed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: Any, inputs: Any, down: Any, up: Any, scaling: float) -> Any:
            result = torch.empty_like(output)
            narrow = inputs.new_empty(len(inputs), len(down), dtype=down.dtype)
            for rows in _blocks(inputs):
                # scaled while it is narrow: r numbers a row instead of O
                narrow[rows] = linear(inputs[rows].to(down.dtype), down) * scaling
                change = linear(narrow[rows], up).to(output.dtype)
                torch.add(output[rows], change, out=result[rows])
            # the inputs as they came: a wider copy of them would be kept for each layer
            ctx.save_for_backward(inputs, narrow, down, up)
            ctx.scaling = scaling
            return result

        @staticmethod
        def backward(ctx: Any, pull: Any) -> tuple[Any, ...]:
            inputs, narrow, down, up = ctx.saved_tensors
            back = torch.empty_like(inputs) if ctx.needs_input_grad[1] else None
            learns = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
            to_down = torch.zeros_like(down)
            to_up = torch.zeros_like(up.t())
            for rows in _blocks(inputs):
                wide = pull[rows].to(down.dtype)
                # [r, n]: the thin side first, which the kernels take four times as fast
                thin = (up.t() @ wide.t()).mul_(ctx.scaling)
                if back is not None:
                    back[rows] = (thin.t() @ down).to(inputs.dtype)
                # a frozen adapter passes gradients on and has none
                if learns:
                    to_up += narrow[rows].t() @ wide
                    to_down += thin @ inputs[rows].to(down.dtype)
            return (pull, back, to_down, to_up.t(), None) if learns else (pull, back, *(None,) * 3)

    return Changed


Division = tuple[tuple[str, Any], ...]  # (adapter, its rows [n], or None where all rows are its)
# a context variable: threads may run batches at the same time
_DIVISION: ContextVar[Division] = ContextVar("gem_ma_adapters", default=())


@contextmanager
def route(adapters: Sequence[str | None], torch: Any, device: Any) -> Iterator[None]:
    """Row k of every forward pass inside sees `adapters[k]`; None is the base. One adapter alone
    is for any number of rows."""
    different = list(dict.fromkeys(adapters))
    if len(different) == 1:
        division: Division = () if different[0] is None else ((different[0], None),)
    else:
        rows = {
            name: [row for row, other in enumerate(adapters) if other == name] for name in different
        }
        division = tuple(
            (name, torch.tensor(rows[name], device=device))
            for name in different
            if name is not None
        )
    token = _DIVISION.set(division)
    try:
        yield
    finally:
        _DIVISION.reset(token)


def add_adapters(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """The layer's output with what the adapters of its rows add; runs after the base layer."""
    for name, rows in _DIVISION.get():
        if name in layer.lora_A:
            if rows is None:
                output = _added(layer, name, inputs[0], output)
            else:
                part = _added(layer, name, inputs[0][rows], output[rows])
                output = output.index_copy(0, rows, part)
    return output


def _added(layer: Any, name: str, inputs: Any, output: Any) -> Any:
    down = layer.lora_A[name]
    up = layer.lora_B[name]
    scaling = layer.scaling[name]
    if down.weight.dim() == 2:
        # weights alone: plain LoRA has no bias and no dropout here
        return changed(output, inputs, down.weight, up.weight, scaling)
    # A target is a name, and in a model that sees, a convolution over patches may share its name
    # with a linear layer (`proj` of Qwen2-VL). Its thin layers are convolutions, no products.
    change = up(down(inputs.to(down.weight.dtype))) * scaling
    return output + change.to(output.dtype)


MARKED = 64  # values of each weight that tell one base from another

_KEYS = itertools.count()


def _seed_parts(*parts: object) -> tuple[object, ...]:
    """What an adapter is drawn from: names, and at the end a seed. A seed of 0 is left out, so
    that runs from before there were seeds draw the same."""
    return parts if parts[-1] else parts[:-1]


class Adapters:
    """The adapters of one module, by key; used under the lock of whoever owns the module."""

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch = torch
        self.model = model
        self.configs: dict[str, Any] = {}
        self.mixes = True  # several adapters may sit in one batch
        self._hooked: set[str] = set()
        self._parts: dict[str, dict[str, Any]] = {}
        # keys whose policies are gone; a list, since they go at any instant, in any thread
        self._gone: list[str] = []
        self._lock = threading.RLock()
        # peft's own `all-linear` leaves the head out too
        head = model.get_output_embeddings()
        kinds = (torch.nn.Linear, _conv1d())
        self.linear = [
            name
            for name, module in model.named_modules()
            if isinstance(module, kinds) and module is not head
        ]

    # -- making and opening -----------------------------------------------------------------------

    def fresh(self, settings: LoraSettings, policy: str, seed: int = 0) -> str:
        """Adds an adapter that changes nothing yet, and gives its key. `seed` (0 = none) stands in
        where the settings name none. Raises ConfigError for a target that is not a linear layer."""
        where = f"policies.{policy}.lora"
        names = sorted(set(map(_short, self.linear)))
        if settings.targets != "all-linear":
            for target in settings.targets:
                if not any(_ends_with(name, target) for name in self.linear):
                    raise ConfigError(
                        f"{where}.targets: this model has no linear layer"
                        f" {target!r}{nearest(target, names)}"
                    )
            names = list(dict.fromkeys(settings.targets))
        peft = require_peft(policy)
        alpha = float(settings.alpha)
        config = peft.LoraConfig(
            r=settings.rank,
            # a whole number in the folders that peft writes itself
            lora_alpha=int(alpha) if alpha.is_integer() else alpha,
            target_modules=names,
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        parts = (settings.seed,) if settings.seed is not None else _seed_parts(policy, seed)
        return self._drawn(self._inject(config), stable_seed("lora", *parts))

    def beside(self, key: str, *names: object, seed: int = 0) -> str:
        """Adds an adapter of the shape of another, drawn from these names and the `seed` of its
        policy as in `fresh`, and gives its key."""
        return self._drawn(
            self._inject(_peft_config(self.configs[key].to_dict())),
            stable_seed("lora", *_seed_parts(*names, seed)),
        )

    def opened(self, folder: Path, policy: str) -> str:
        """Adds the adapter of a folder, and gives its key. Raises DataError."""
        where = f"policy {policy!r}: the adapter {folder}"
        require_peft(policy)
        stored = read_adapter(folder, where)
        if stored.mark is not None and stored.mark != self.mark():
            raise DataError(
                f"{where} was trained on another base; name the base that its {CONFIG} names, or"
                " train a new adapter"
            )
        try:
            key = self._inject(_peft_config({**stored.note, "lora_dropout": 0.0}))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{where} does not fit this base ({first_line(error)}); is it of another model?"
            ) from error
        self._fill(key, stored.weights, where)
        return key

    def _fill(self, key: str, weights: Mapping[str, Any], where: str) -> None:
        """Copies stored weights in, or drops the adapter and raises DataError where they differ."""
        mine = self.parameters(key)
        stored = {name: tuple(weight.shape) for name, weight in weights.items()}
        wanted = {name: tuple(weight.shape) for name, weight in mine.items()}
        names = sorted(stored.keys() | wanted.keys())
        wrong = next((name for name in names if stored.get(name) != wanted.get(name)), None)
        if wrong is not None:
            self.drop(key)
            there = stored.get(wrong, "missing")
            here = wanted.get(wrong, "no such weight")
            raise DataError(
                f"{where} does not fit this base: {wrong} is {there} there, here {here}; is it of"
                " another model?"
            )
        with self.torch.no_grad():
            for name, weight in weights.items():
                mine[name].copy_(weight)

    def _inject(self, config: Any) -> str:
        import peft
        from peft.tuners.lora import LoraLayer

        with self._lock:
            self._forget()
            key = f"adapter{next(_KEYS)}"
            with self._kept_still():
                try:
                    # peft draws too, from the global stream, which belongs to the caller
                    with self.torch.random.fork_rng():
                        peft.inject_adapter_in_model(config, self.model, key)
                finally:
                    layers = {
                        name: module
                        for name, module in self.model.named_modules()
                        if isinstance(module, LoraLayer)
                    }
                    for name, layer in layers.items():
                        layer.enable_adapters(False)  # its own pass is that of the base layer
                        if name not in self._hooked:
                            layer.register_forward_hook(add_adapters)
                            self._hooked.add(name)
            self.configs[key] = config
            self._parts[key] = {
                # small steps would be lost in rounding
                f"{name}.{part}.weight": (
                    getattr(layer, part)[key].float().weight.requires_grad_(False)
                )
                for name, layer in layers.items()
                for part in ("lora_A", "lora_B")
                if key in getattr(layer, part)
            }
            # such layers see tokens in an order of their own
            if any(".experts." in name for name in self._parts[key]):
                self.mixes = False
            return key

    @contextmanager
    def _kept_still(self) -> Iterator[None]:
        """Without warnings of peft; which weights learn is as before, since it freezes some and
        thaws others."""
        learned = [(weight, weight.requires_grad) for weight in self.model.parameters()]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            for weight, before in learned:
                weight.requires_grad_(before)

    def _drawn(self, key: str, seed: int) -> str:
        """A uniform in +-1/sqrt(inputs), B zero: what an adapter starts from."""
        with self.torch.no_grad():
            for name, weight in sorted(self.parameters(key).items()):
                weight.zero_()
                if ".lora_A." in name:
                    # one generator per weight: other targets do not change what this one draws
                    generator = self.torch.Generator().manual_seed(stable_seed(seed, name))
                    bound = weight.shape[1] ** -0.5
                    weight.copy_(
                        self.torch.empty(weight.shape).uniform_(-bound, bound, generator=generator)
                    )
        return key

    # -- weights ----------------------------------------------------------------------------------

    def parameters(self, key: str) -> dict[str, Any]:
        """The weights of an adapter by name, as `model.layers.0.self_attn.q_proj.lora_A.weight`."""
        return dict(self._parts[key])

    def renew(self) -> None:
        """Finds the weights of all adapters again, after a model was taken apart."""
        for parts in self._parts.values():
            for name in parts:
                path, part, _ = name.rsplit(".", 2)
                held = getattr(self.model.get_submodule(path), part)
                (key,) = (key for key in held if self._parts.get(key) is parts)
                parts[name] = held[key].weight

    def base(self) -> dict[str, Any]:
        """The weights of the module without any adapter, by the names of before there was one."""
        return {
            name.replace(".base_layer.", "."): weight
            for name, weight in self.model.named_parameters()
            if ".lora_A." not in name and ".lora_B." not in name
        }

    def changes(self, key: str) -> Iterator[tuple[str, Any]]:
        """What an adapter adds to the weights of its base, by their names in `base`: float32
        tensors of their shapes, made one after another."""
        for path in dict.fromkeys(name.rsplit(".", 2)[0] for name in self._parts[key]):
            yield f"{path}.weight", self.model.get_submodule(path).get_delta_weight(key).float()

    def mark(self) -> str:
        """Tells this base from others: a digest of names, shapes and the first values of each
        weight, rounded so that no dtype changes it."""
        digest = hashlib.blake2b(digest_size=16)
        for name, weight in sorted(self.base().items()):
            first = weight.detach().flatten()[:MARKED].float().cpu()
            # numpy has no bfloat16, so its bits are read as whole numbers
            bits = first.to(self.torch.bfloat16).view(self.torch.int16).numpy()
            digest.update(f"{name} {tuple(weight.shape)}\n".encode() + bits.tobytes())
        return digest.hexdigest()

    def release(self, key: str) -> None:
        """This adapter is not used again; its memory is given back when the next one is made."""
        self._gone.append(key)

    def drop(self, key: str) -> None:
        """Takes an adapter out of the module."""
        self._gone.append(key)
        self._forget()

    def _forget(self) -> None:
        from peft.tuners.lora import LoraLayer

        with self._lock:
            while self._gone:
                key = self._gone.pop()
                if key not in self.configs:
                    continue
                layers = [layer for layer in self.model.modules() if isinstance(layer, LoraLayer)]
                with self._kept_still():
                    for layer in layers:
                        layer.delete_adapter(key)
                del self.configs[key], self._parts[key]

    def save(self, key: str, path: str | Path, base: str, drawn: int = 0) -> None:
        """Writes an adapter folder. `base`: a model folder, or a name on the hub. `drawn`: the
        policy's seed where the weights of the base were drawn from it, see `loading.draw`."""
        folder = Path(path)
        settings = {
            **self.configs[key].to_dict(),
            "base_model_name_or_path": relative_base(base, folder),
            "inference_mode": True,
        }
        mark = {"schema": 1, "mark": self.mark(), **({"seed": drawn} if drawn else {})}
        write_adapter(folder, settings, self._parts[key], mark)


def _peft_config(note: Mapping[str, Any]) -> Any:
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that another version of peft wrote
        return peft.LoraConfig.from_peft_type(**note)


def _short(name: str) -> str:
    """The last part of a layer's name. A number alone would name the blocks of a model too."""
    parts = name.rsplit(".", 2)
    return ".".join(parts[-2:]) if parts[-1].isdecimal() else parts[-1]


def _ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _conv1d() -> Any:
    from transformers.pytorch_utils import Conv1D  # the linear layer of GPT-2

    return Conv1D


def require_peft(policy: str) -> Any:
    """peft. Raises ConfigError that names the extra."""
    with needed(f"policies.{policy}.lora: adapters need peft", "train"):
        import peft
    return peft
