"""LoRA adapters of one module: many policies on one base, each row of a batch with the adapter of
its own policy.

Knows modules, adapter folders and which row sees which adapter; knows no requests and no training.
`peft` names, shapes and stores the adapters, so its loaders and vLLM read the folders. Which
adapter a row sees is decided here, once per forward pass (`route`): peft's own switches would walk
the whole module at every token, and turn gradients on. Outside of `route` the module is its base,
bit for bit.

A new adapter changes nothing: B is zero, A is drawn from its own seed. Adapters are never
merged, have no dropout, and stay frozen until a learner takes them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from gem_ma.config.playing import Settings
from gem_ma.config.spelling import nearest
from gem_ma.engines.base import stable_seed
from gem_ma.engines.local.loading import first_line
from gem_ma.errors import ConfigError, DataError
from gem_ma.folders import read_named
from gem_ma.installing import install

CONFIG, WEIGHTS, MARK = "adapter_config.json", "adapter_model.safetensors", "base.json"
PREFIX = "base_model.model."  # of every name in an adapter file
MARKED = 64  # values of each weight that tell one base from another
# features of other adapters, and the value that stands for none
REFUSED: dict[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "bias": ("none",),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    **{f"use_{kind}": (False, None) for kind in ("qalora", "bdlora")},
    **{f"{kind}_config": (None,) for kind in ("arrow", "kasa", "velora", "monteclora")},
}

Plan = tuple[tuple[str, Any], ...]  # (adapter, its rows [n], or None where all rows are its)
_PLAN: ContextVar[Plan] = ContextVar("gem_ma_adapters", default=())
_KEYS = itertools.count()


class LoraSettings(Settings):
    """A new LoRA adapter: low-rank changes of linear layers, the only weights of its policy that
    learn."""

    rank: int = Field(8, ge=1)
    alpha: float = Field(16.0, gt=0, description="What the adapter adds is scaled by alpha / rank.")
    targets: Literal["all-linear"] | list[str] = Field(
        "all-linear", description="Names of linear layers, as in [q_proj, v_proj]."
    )
    seed: int | None = Field(
        None, description="Of the random half; from the policy's name where absent."
    )


def lora_settings(given: Any, policy: str) -> LoraSettings:
    """The settings of the key `lora`. Raises ConfigError, with the key, for what is no such
    thing."""
    where = f"policies.{policy}.lora"
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{where}: wants keys such as rank and targets, or the folder of an adapter; got"
            f" {given!r}"
        )
    if "dropout" in given:
        raise ConfigError(
            f"{where}.dropout: there is none: under dropout the learner would not see the"
            " probabilities that were sampled from"
        )
    for key in given:
        if key not in LoraSettings.model_fields:
            raise ConfigError(
                f"{where}.{key}: unknown key{nearest(str(key), LoraSettings.model_fields)}"
            )
    try:
        made = LoraSettings.model_validate(dict(given))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][0])
        wants = {
            "rank": "a whole number, 1 or more",
            "alpha": "a number above 0",
            "targets": "all-linear, or a list of names of linear layers",
        }
        raise ConfigError(
            f"{where}.{key}: wants {wants.get(key, 'a whole number')}; got {given[key]!r}"
        ) from error
    if made.targets == []:
        raise ConfigError(f"{where}.targets: names no layer; leave it out for all linear layers")
    return made


@contextmanager
def route(adapters: Sequence[str | None], torch: Any, device: Any) -> Iterator[None]:
    """Row k of every forward pass inside sees `adapters[k]`; None is the base. One adapter alone
    is for any number of rows."""
    different = list(dict.fromkeys(adapters))
    if len(different) == 1:
        plan: Plan = () if different[0] is None else ((different[0], None),)
    else:
        rows = {
            name: [row for row, other in enumerate(adapters) if other == name] for name in different
        }
        plan = tuple(
            (name, torch.tensor(rows[name], device=device))
            for name in different
            if name is not None
        )
    token = _PLAN.set(plan)
    try:
        yield
    finally:
        _PLAN.reset(token)


def _add(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    """The layer's output with what the adapters of its rows add; runs after the base layer."""
    for name, rows in _PLAN.get():
        if name in layer.lora_A:
            down, up = layer.lora_A[name], layer.lora_B[name]
            seen = inputs[0] if rows is None else inputs[0][rows]
            change = (up(down(seen.to(down.weight.dtype))) * layer.scaling[name]).to(output.dtype)
            output = output + change if rows is None else output.index_add(0, rows, change)
    return output


def _told_apart(*parts: object) -> tuple[object, ...]:
    """What an adapter is drawn from: names, and at the end a seed, which is left out where it is
    0, as in runs that had none."""
    return parts if parts[-1] else parts[:-1]


class Adapters:
    """The adapters of one module, by key. Safe to use from several threads under the lock of
    whoever owns the module."""

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch, self.model = torch, model
        self.configs: dict[str, Any] = {}
        self.mixes = True  # several adapters may sit in one batch
        self._hooked: set[str] = set()
        self._parts: dict[str, dict[str, Any]] = {}
        # keys whose policies are gone; a list, since they go at any instant, in any thread
        self._gone: list[str] = []
        self._lock = threading.RLock()
        head = model.get_output_embeddings()
        kinds = (torch.nn.Linear, _conv1d())
        self.linear = [
            name
            for name, module in model.named_modules()
            if isinstance(module, kinds) and module is not head
        ]

    # -- making and opening -----------------------------------------------------------------------

    def fresh(self, settings: LoraSettings, policy: str, seed: int = 0) -> str:
        """A new adapter that changes nothing yet; its key. `seed` (0 = none) tells runs apart where
        the settings name no seed of its own.

        Raises ConfigError where a target is no linear layer of this model.
        """
        where = f"policies.{policy}.lora"
        names = sorted({name.rsplit(".", 1)[-1] for name in self.linear})
        if settings.targets != "all-linear":
            for target in settings.targets:
                if not any(_ends_with(name, target) for name in self.linear):
                    raise ConfigError(
                        f"{where}.targets: this model has no linear layer"
                        f" {target!r}{nearest(target, names)}"
                    )
            names = list(dict.fromkeys(settings.targets))
        peft, alpha = require_peft(policy), float(settings.alpha)
        config = peft.LoraConfig(
            r=settings.rank,
            lora_alpha=int(alpha) if alpha.is_integer() else alpha,
            target_modules=names,
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        parts = (settings.seed,) if settings.seed is not None else _told_apart(policy, seed)
        return self._drawn(self._inject(config), stable_seed("lora", *parts))

    def beside(self, key: str, *names: object, seed: int = 0) -> str:
        """A new adapter of the same shape as another, drawn from these names and the `seed` of
        its policy, as in `fresh`."""
        return self._drawn(
            self._inject(self._config(self.configs[key].to_dict())),
            stable_seed("lora", *_told_apart(*names, seed)),
        )

    def opened(self, folder: Path, policy: str) -> str:
        """The adapter of a folder; its key. Raises DataError where it is missing, damaged, of
        another base or of another kind."""
        where = f"policy {policy!r}: the adapter {folder}"
        require_peft(policy)
        try:
            note = json.loads(read_named(folder / CONFIG))
            mark = (
                json.loads(read_named(folder / MARK))["mark"]
                if os.path.lexists(folder / MARK)
                else None
            )
            from safetensors.torch import load

            weights = {
                name.removeprefix(PREFIX): weight
                for name, weight in load(read_named(folder / WEIGHTS)).items()
            }
        except FileNotFoundError as error:
            raise DataError(
                f"{where} has no {Path(str(error.filename)).name}; an adapter folder holds {CONFIG}"
                f" and {WEIGHTS}"
            ) from error
        except Exception as error:  # safetensors raises its own kinds
            raise DataError(
                f"{where} cannot be read ({first_line(error)}); copy it again"
            ) from error
        if not isinstance(note, dict) or note.get("peft_type") != "LORA":
            raise DataError(
                f"{where} is no LoRA adapter; {CONFIG} says"
                f" {note.get('peft_type') if isinstance(note, dict) else 'nothing'}"
            )
        for name, none in REFUSED.items():
            if name in note and note[name] not in none:
                raise DataError(
                    f"{where} uses {name}, which cannot be mixed with other adapters; merge it into"
                    " its base and name that folder"
                )
        if mark is not None and mark != self.mark():
            raise DataError(
                f"{where} was trained on another base; name the base that its {CONFIG} names, or"
                " train a new adapter"
            )
        try:
            key = self._inject(self._config({**note, "lora_dropout": 0.0}))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{where} does not fit this base ({first_line(error)}); is it of another model?"
            ) from error
        own = self.parameters(key)
        shapes, expected = (
            {name: tuple(weight.shape) for name, weight in group.items()}
            for group in (weights, own)
        )
        if shapes != expected:
            wrong = sorted(
                name
                for name in shapes.keys() | expected.keys()
                if shapes.get(name) != expected.get(name)
            )[0]
            self.drop(key)
            is_, wants = shapes.get(wrong, "missing"), expected.get(wrong, "no such weight")
            raise DataError(
                f"{where} does not fit this base: {wrong} is {is_} there, here {wants}; is it of"
                " another model?"
            )
        with self.torch.no_grad():
            for name, weight in weights.items():
                own[name].copy_(weight)
        return key

    def _config(self, note: Mapping[str, Any]) -> Any:
        import peft

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peft.LoraConfig.from_peft_type(**note)

    def _inject(self, config: Any) -> str:
        import peft
        from peft.tuners.lora import LoraLayer

        with self._lock:
            self._forget()
            key = f"adapter{next(_KEYS)}"
            # peft turns some on and some off
            learned = [(weight, weight.requires_grad) for weight in self.model.parameters()]
            devices = (
                range(self.torch.cuda.device_count()) if self.torch.cuda.is_available() else ()
            )
            try:
                with warnings.catch_warnings(), self.torch.random.fork_rng(devices=devices):
                    warnings.simplefilter("ignore")
                    peft.inject_adapter_in_model(config, self.model, key)
            finally:
                layers = {
                    name: module
                    for name, module in self.model.named_modules()
                    if isinstance(module, LoraLayer)
                }
                for name, layer in layers.items():
                    layer.enable_adapters(False)  # its own forward pass is that of the base layer
                    if name not in self._hooked:
                        layer.register_forward_hook(_add)
                        self._hooked.add(name)
                for weight, before in learned:
                    weight.requires_grad_(before)
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

    def _drawn(self, key: str, seed: int) -> str:
        """A uniform in +-1/sqrt(inputs), B zero: what an adapter starts from, drawn from a
        generator of its own."""
        with self.torch.no_grad():
            for name, weight in sorted(self.parameters(key).items()):
                weight.zero_()
                if ".lora_A." in name:
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

    def base(self) -> dict[str, Any]:
        """The weights of the module without any adapter, by the names that they had before there
        was one."""
        return {
            name.replace(".base_layer.", "."): weight
            for name, weight in self.model.named_parameters()
            if ".lora_A." not in name and ".lora_B." not in name
        }

    def mark(self) -> str:
        """Tells this base from others: a digest of names, shapes and the first values of each
        weight, rounded so that no dtype changes it."""
        digest = hashlib.blake2b(digest_size=16)
        for name, weight in sorted(self.base().items()):
            first = (
                weight.detach()
                .flatten()[:MARKED]
                .float()
                .cpu()
                .to(self.torch.bfloat16)
                .view(self.torch.int16)
            )
            digest.update(f"{name} {tuple(weight.shape)}\n".encode() + first.numpy().tobytes())
        return digest.hexdigest()

    def release(self, key: str) -> None:
        """This adapter will not be used again; its memory is given back when the next one is
        made, or at `drop`."""
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
                learned = [(weight, weight.requires_grad) for weight in self.model.parameters()]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for layer in [
                        module for module in self.model.modules() if isinstance(module, LoraLayer)
                    ]:
                        layer.delete_adapter(key)
                for weight, before in learned:
                    weight.requires_grad_(before)
                del self.configs[key], self._parts[key]

    # -- files ------------------------------------------------------------------------------------

    def save(self, key: str, path: str | Path, base: str, drawn: int = 0) -> None:
        """Writes an adapter folder. `base`: a model folder, recorded relative to this one, or a
        name on the hub, recorded as it is.

        `drawn`: the policy's seed where the weights of the base were drawn from it, see
        `gem_ma.engines.local.untrained`.
        """
        from safetensors.torch import save

        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        note = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in self.configs[key].to_dict().items()
        }
        note |= {"base_model_name_or_path": _relative(base, folder), "inference_mode": True}
        weights = {
            PREFIX + name: weight.detach().cpu().contiguous()
            for name, weight in self._parts[key].items()
        }
        (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
        (folder / CONFIG).write_text(
            json.dumps(note, indent=2, sort_keys=True, default=str) + "\n", encoding="utf-8"
        )
        mark = {"schema": 1, "mark": self.mark(), **({"seed": drawn} if drawn else {})}
        (folder / MARK).write_text(json.dumps(mark) + "\n", encoding="utf-8")


def base_of(folder: Path, policy: str) -> str:
    """The model that an adapter folder names as its base: a folder, or a name on the hub. Raises
    DataError where that cannot be read."""
    try:
        named = json.loads(read_named(folder / CONFIG))["base_model_name_or_path"]
        if not isinstance(named, str) or not named:
            raise ValueError("base_model_name_or_path is empty")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"policy {policy!r}: {folder / CONFIG} names no base ({first_line(error)}); open the"
            f" base with lora: {folder}"
        ) from error
    beside = Path(os.path.normpath(folder.resolve() / named))
    return (
        os.path.relpath(beside)
        if beside.is_dir() and Path.cwd() in beside.parents
        else str(beside)
        if beside.is_dir()
        else named
    )


def seed_of(folder: Path) -> int:
    """The seed that the base of an adapter was drawn from, 0 where that is the base as it lies
    in its folder. What is damaged is refused later."""
    try:
        seed = json.loads(read_named(folder / MARK)).get("seed", 0)
        return seed if isinstance(seed, int) else 0
    except (OSError, ValueError, AttributeError, RecursionError):
        return 0


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def _relative(base: str, folder: Path) -> str:
    if not Path(base).is_dir():
        return base
    try:
        return os.path.relpath(Path(base).resolve(), folder.resolve())
    except ValueError:  # on another drive
        return str(Path(base).resolve())


def _ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _conv1d() -> Any:
    from transformers.pytorch_utils import Conv1D  # the linear layer of GPT-2

    return Conv1D


def require_peft(policy: str) -> Any:
    """peft. Raises ConfigError that names the extra."""
    try:
        import peft
    except ImportError as error:
        raise ConfigError(
            f"policies.{policy}.lora: adapters need peft ({error.name or error}):"
            f" {install('train')}"
        ) from error
    return peft
