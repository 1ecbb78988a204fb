"""`gem-ma doctor`: what is installed here, which engines can run, and what to type to get the
others. It plays nothing and sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from gem_ma.installing import install

EXAMPLE = """\b
Example:
  gem-ma doctor --json"""

EXTRAS = {  # extra -> distribution: module
    "base": {"numpy": "numpy", "pettingzoo": "pettingzoo", "gymnasium": "gymnasium", "pyyaml": "yaml", "pydantic": "pydantic", "click": "click",
             "rich": "rich"},
    "train": {"torch": "torch", "transformers": "transformers", "peft": "peft", "accelerate": "accelerate", "safetensors": "safetensors",
              "tokenizers": "tokenizers"},
    "api": {"openai": "openai", "httpx2": "httpx2"},
    "vision": {"pillow": "PIL"},
    "vllm": {"vllm": "vllm"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "wandb": {"wandb": "wandb"},
    "trackio": {"trackio": "trackio"},
}  # fmt: skip
# what an engine needs beside the base; one that is not named here needs nothing, or says itself
# what it lacks
ENGINES = {
    "transformers": ("train",),
    "vision": ("train", "vision"),
    "openai": ("api",),
    "vllm": ("train", "api"),
}
# modules of an extra that break in ways which only an import shows
TRIED = {"train": ("torch", "transformers"), "api": ("openai",)}
KEYS = ("OPENAI_API_KEY", "VLLM_API_KEY")
PLACES = ("TAU_BENCH_PATH", "TAU2_DATA_DIR", "HF_HOME", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution: `version` None where it is missing, `wanted` the range that gem_ma asks
    for, `fault` what is wrong with it."""

    name: str
    extra: str
    version: str | None
    wanted: str
    fault: str | None


@click.command(epilog=EXAMPLE)
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
def command(as_json: bool) -> int:
    """Say what is installed, which engines can run, and what to type to get the others.

    Exits with 1 where something that is installed cannot be used, or the base is not whole.
    """
    from gem_ma.cli.terminal import columns, emit, emit_json

    found = examined()
    if as_json:
        emit_json(found)
        return int(bool(found["faults"]))
    emit(columns([(name, str(value)) for name, value in found["here"].items()]))
    rows = [
        (name, "ready" if one["ready"] else "no", one["learns"], one["say"])
        for name, one in found["engines"].items()
    ]
    emit("\n" + columns(rows, ("engine", "runs", "learns", "what to type, or what it is for")))
    shown = [
        (p["name"], p["extra"], p["version"] or "missing", p["fault"] or "")
        for p in found["packages"]
    ]
    emit("\n" + columns(shown, ("package", "extra", "version", "")))
    if lacking := dict.fromkeys(p["extra"] for p in found["packages"] if not p["version"]):
        emit(
            "\n"
            + columns(
                [(extra, _command([extra])) for extra in lacking], ("extra", "what to type for it")
            )
        )
    emit(
        "\n"
        + columns(
            [(name, value) for name, value in found["variables"].items()], ("variable", "value")
        )
    )
    for fault in found["faults"]:
        emit(f"\nfault: {fault}")
    return int(bool(found["faults"]))


def examined() -> dict[str, Any]:
    """Everything that the command tells, as plain data."""
    import os
    import platform

    from gem_ma import __version__
    from gem_ma.cli.list import objects

    packages = [
        _package(name, extra, module)
        for extra, names in EXTRAS.items()
        for name, module in names.items()
    ]
    there = {one.name for one in packages if one.version is not None}
    broken = {
        extra: fault
        for extra, names in TRIED.items()
        if (fault := next(filter(None, (_broken(name) for name in names if name in there)), None))
    }
    devices = ["cpu"] if "train" in broken or "torch" not in there else _devices()
    missing = {
        extra: [one.name for one in packages if one.extra == extra and one.version is None]
        for extra in EXTRAS
    }
    faults = [f"{one.name}: {one.fault}" for one in packages if one.fault is not None] + list(
        broken.values()
    )
    if missing["base"]:
        faults.append(f"the base lacks {', '.join(missing['base'])}: {_command([])}")
    engines = {}
    for one in objects("engines"):
        needs = ENGINES.get(one["id"], ())
        lacking = [extra for extra in needs if missing[extra]]
        fault = one["error"] or next((broken[extra] for extra in needs if extra in broken), None)
        say = (
            _command(lacking)
            if lacking
            else fault or _purpose(one["id"], one["summary"], not missing["vllm"])
        )
        learns = "yes" if one.get("trainable") else "no"
        engines[one["id"]] = {
            "ready": not lacking and not fault,
            "learns": learns,
            "say": say,
            "lacks": [n for e in lacking for n in missing[e]],
        }
        if one["error"]:
            faults.append(f"engine {one['id']}: {one['error']}")
    here: dict[str, Any] = {
        "gem_ma": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    here |= {
        "cores": (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        ),
        "devices": ", ".join(devices),
    }
    told = {name: "set" if os.environ.get(name) else "not set" for name in KEYS}  # never the value
    told |= {name: os.environ.get(name, "not set") for name in PLACES}
    shown = [
        {
            "name": p.name,
            "extra": p.extra,
            "version": p.version,
            "wanted": p.wanted,
            "fault": p.fault,
        }
        for p in packages
    ]
    return {
        "here": here,
        "engines": engines,
        "packages": shown,
        "variables": told,
        "faults": faults,
    }


def _command(extras: Sequence[str]) -> str:
    return install(*(extra for extra in extras if extra != "base"))


def _package(name: str, extra: str, module: str) -> Package:
    from importlib import metadata, util

    wanted = _ranges().get(name, "")
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, extra, None, wanted, None)
    fault = None
    try:
        if util.find_spec(module) is None:
            fault = f"is installed, and its module {module} is not there; install it again"
    except (ImportError, ValueError) as error:
        fault = f"is installed and cannot be found: {error}"
    if fault is None and version is not None and not _fits(version, wanted):
        fault = f"version {version} does not fit {wanted}"
    return Package(name, extra, version, wanted, fault)


def _ranges() -> dict[str, str]:
    """Distribution -> the versions that gem_ma asks for; empty where it runs from a folder that
    is not installed."""
    import re
    from importlib import metadata

    try:
        lines = metadata.requires("gem-ma") or []
    except metadata.PackageNotFoundError:
        return {}
    found = [re.match(r"([A-Za-z0-9._-]+)\s*([^;\[]*)", line) for line in lines]
    return {match[1].lower(): match[2].strip() for match in found if match}


def _fits(version: str, wanted: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:  # the base does not bring it
        return True
    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except ValueError:  # no version at all
        return False


def _broken(module: str) -> str | None:
    """Why this installed module cannot be used, or None."""
    import importlib

    try:
        found = importlib.import_module(module)
        # what an interrupted install leaves is an empty folder, which Python takes for a module
        if getattr(found, "__version__", None) is None:
            return f"{module} is installed and not whole; install it again"
        if module == "torch":
            _devices()
    except (Exception, SystemExit) as error:  # a broken build raises what it likes
        what = (str(error).splitlines() or [""])[0]
        return f"{module} is installed and cannot be imported: {type(error).__name__}: {what}"
    return None


def _devices() -> list[str]:
    """The devices that torch sees."""
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            held = torch.cuda.get_device_properties(index)
            devices.append(f"cuda:{index} ({held.name}, {held.total_memory / 2**30:.0f} GiB)")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def _purpose(engine: str, summary: str, has_vllm: bool) -> str:
    if engine == "vllm" and not has_vllm:
        return (
            "reaches a server (base_url); to sample in this process it needs vLLM, best in an"
            " environment of its own"
        )
    return summary
