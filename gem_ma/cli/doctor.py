"""`gem-ma doctor`: what is installed here, which engines can run, and what to type to get the
others. It plays nothing and sends nothing."""

from __future__ import annotations

import importlib
import os
import platform
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, util
from typing import Any

import click

from gem_ma import __version__
from gem_ma.cli.list import objects
from gem_ma.cli.terminal import columns, emit, emit_json, json_option
from gem_ma.system.env_file import NAME, is_written, variable
from gem_ma.system.extras import install

EXAMPLE = """\b
Example:
  gem-ma doctor --json"""

EXTRAS = {  # extra -> distributions
    "base": ("numpy", "pettingzoo", "gymnasium", "pyyaml", "pydantic", "click", "rich", "aiohttp"),
    "train": ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers"),
    "litellm": ("litellm",),
    "vision": ("pillow",),
    "vllm": ("vllm",),
    "tinker": ("tinker", "transformers"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
MODULES = {"pyyaml": "yaml", "pillow": "PIL"}  # those that are called otherwise
# what an engine needs beside the base; one that is not named here needs nothing, or says itself
# what it lacks
ENGINES = {
    "transformers": ("train",),
    "vision": ("train", "vision"),
    "litellm": ("litellm",),
    "vllm": ("train",),
    "tinker": ("tinker",),
}
# modules of an extra that break in ways which only an import shows
TRIED = {"train": ("torch", "transformers")}
KEYS = ("OPENAI_API_KEY", "VLLM_API_KEY", "TINKER_API_KEY")
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
@json_option
def command(as_json: bool) -> int:
    """Say what is installed, which engines can run, and what to type to get the others.

    Exits with 1 where something that is installed cannot be used, or the base is not whole.
    """
    facts = examined()
    code = int(bool(facts["faults"]))
    if as_json:
        emit_json(facts)
        return code
    emit(columns([(name, str(value)) for name, value in facts["here"].items()]))
    engines = [
        (name, "ready" if engine["ready"] else "no", engine["learns"], engine["say"])
        for name, engine in facts["engines"].items()
    ]
    emit("\n" + columns(engines, ("engine", "runs", "learns", "what to type, or what it is for")))
    packages = facts["packages"]
    rows = [(p["name"], p["extra"], p["version"] or "missing", p["fault"] or "") for p in packages]
    emit("\n" + columns(rows, ("package", "extra", "version", "")))
    if lacking := dict.fromkeys(p["extra"] for p in packages if not p["version"]):
        advice = [(extra, _command([extra])) for extra in lacking]
        emit("\n" + columns(advice, ("extra", "what to type for it")))
    emit("\n" + columns(list(facts["variables"].items()), ("variable", "value")))
    for fault in facts["faults"]:
        emit(f"\nfault: {fault}")
    return code


def examined() -> dict[str, Any]:
    """Everything that the command prints, as plain data."""
    packages = [
        _package(name, extra, MODULES.get(name, name))
        for extra, names in EXTRAS.items()
        for name in names
    ]
    installed = {package.name for package in packages if package.version is not None}
    broken = _broken_extras(installed)
    missing = {
        extra: [name for name in names if name not in installed] for extra, names in EXTRAS.items()
    }
    engines, faults = _engines(missing, broken)
    faults = [
        *(f"{package.name}: {package.fault}" for package in packages if package.fault is not None),
        *broken.values(),
        *faults,
    ]
    if missing["base"]:
        faults.append(f"the base lacks {', '.join(missing['base'])}: {_command([])}")
    # a broken torch may crash the process when it is asked for its devices
    usable = "torch" in installed and "train" not in broken
    variables = {name: _is_set(name) for name in KEYS}
    variables |= {name: os.environ.get(name, "not set") for name in PLACES}
    return {
        "here": _here(_devices() if usable else ["cpu"]),
        "engines": engines,
        "packages": [asdict(package) for package in packages],
        "variables": variables,
        "faults": faults,
    }


def _is_set(name: str) -> str:
    """Whether a key can be had, and where from; never its value."""
    return f"set, in {NAME}" if is_written(name) else "set" if variable(name) else "not set"


def _broken_extras(installed: Container[str]) -> dict[str, str]:
    """Extra -> why its first module that is installed and cannot be imported is none to use."""
    broken = {}
    for extra, modules in TRIED.items():
        faults = (_broken(module) for module in modules if module in installed)
        if fault := next(filter(None, faults), None):
            broken[extra] = fault
    return broken


def _engines(
    missing: Mapping[str, Sequence[str]], broken: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Engine -> whether it can run, and what to type where not; and the faults of engines that
    cannot be imported."""
    engines = {}
    faults = []
    for engine in objects("engines"):
        name = engine["id"]
        needs = ENGINES.get(engine["id"], ())
        lacking = [extra for extra in needs if missing[extra]]
        fault = engine["error"] or next((broken[extra] for extra in needs if extra in broken), None)
        if lacking:
            advice = _command(lacking)
        else:
            advice = fault or _purpose(name, engine["summary"], not missing["vllm"])
        engines[name] = {
            "ready": not lacking and not fault,
            "learns": "yes" if engine.get("trainable") else "no",
            "say": advice,
            "lacks": [package for extra in lacking for package in missing[extra]],
        }
        if engine["error"]:
            faults.append(f"engine {name}: {engine['error']}")
    return engines, faults


def _here(devices: Sequence[str]) -> dict[str, Any]:
    """This version, this Python, this machine."""
    # a container may allow fewer cores than the machine has
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return {
        "gem_ma": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "devices": ", ".join(devices),
    }


def _command(extras: Sequence[str]) -> str:
    return install(*(extra for extra in extras if extra != "base"))


def _package(name: str, extra: str, module: str) -> Package:

    wanted = _ranges().get(name, "")
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, extra, None, wanted, None)
    fault = None
    try:
        # metadata may outlive the files, after an uninstall that was interrupted
        if util.find_spec(module) is None:
            fault = f"is installed, and its module {module} is not there; install it again"
    # ValueError: a module without a spec stands in sys.modules under this name
    except (ImportError, ValueError) as error:
        fault = f"is installed and cannot be found: {error}; install it again"
    if fault is None and version is not None and not _fits(version, wanted):
        fault = f"version {version} does not fit {wanted}"
    return Package(name, extra, version, wanted, fault)


def _ranges() -> dict[str, str]:
    """Distribution -> the versions that gem_ma asks for; empty where it runs from a folder that
    is not installed."""
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
        # whoever installed a release candidate of a fitting version meant it
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except ValueError:  # no version at all
        return False


def _broken(module: str) -> str | None:
    """Why this installed module cannot be used, or None."""
    try:
        found = importlib.import_module(module)
        # what an interrupted install leaves is an empty folder, which Python takes for a module
        if getattr(found, "__version__", None) is None:
            return f"{module} is installed only in part; install it again"
        # one that was built for another driver is imported well, and fails only at this question
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
            "reaches a vLLM server (base_url); to sample in this process, install vLLM, best in an"
            " environment of its own"
        )
    return summary
