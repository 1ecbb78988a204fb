"""What of a user's own decides the plays of a config, for the manifest of its run: files of code
with all that they import, files and folders that options name, what code has opened.

Built-in code counts by its version, weights by their own digest, data of a built-in scenario by
its provenance.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gem_ma import registry
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import RunFolder
from gem_ma.system.files import digest_of
from gem_ma.system.parts import RECORD, closed_parts
from gem_ma.system.used import (
    begin,
    count,
    file_of_module,
    files_of_name,
    here,
    is_own,
    note_plays,
    used_by,
)

# what no play depends on, and what is digested elsewhere; `*` stands for any name
_LEFT_OUT = {
    ("run",),
    ("limits",),
    ("retry",),
    ("train", "log"),
    *(("policies", "*", key) for key in ("model", "api_key", "api_key_env", "base_url", "cache")),
}
# of a model folder, beside the weights: templates, tokenizers, settings
_BESIDE_WEIGHTS = (".json", ".jinja", ".txt", ".model", ".py")
_MOST_BESIDE = 64 << 20
_PATHS = ("data", "folder", "words", "demonstrations")  # options whose values are paths
_LONGEST_PATH = 4096
_LIBRARIES = ("numpy", "torch", "transformers", "peft", "vllm", "litellm", "openai", "gymnasium")


@dataclass
class UsedFiles:
    """What a run uses, as it is known so far."""

    code: dict[str, None] = field(default_factory=dict)  # files that names lead to
    data: dict[str, str] = field(default_factory=dict)  # of options: path -> digest
    sources: dict[str, str] = field(default_factory=dict)  # of code without a file, by its name
    unknown: list[str] = field(default_factory=list)
    libraries: dict[str, str] = field(default_factory=dict)
    home: str = field(default_factory=here)
    _count: int = -1

    def facts(self) -> dict[str, Any]:
        """What the manifest holds: `code`, `data` and `later` (what only plays have used) by path,
        as seen from the working folder, and `unknown`, names whose code has no file. Keys without
        content are left out."""
        used = used_by(self.code)
        self._count = count()
        facts = {
            "code": self._named(used.code) | self.sources,
            "data": self._named({**self.data, **used.data}),
            "later": self._named(used.later),
            "unknown": self.unknown,
        }
        return {key: value for key, value in facts.items() if value}

    def _named(self, digests: Mapping[str, str]) -> dict[str, str]:
        """By path as seen from the working folder, so that no other folder of the user is told."""
        names = {os.path.relpath(path, self.home): digest for path, digest in digests.items()}
        return dict(sorted(names.items()))

    def note_more(self, folder: RunFolder) -> None:
        """Writes down what plays have opened or imported since."""
        if count() != self._count:
            note_plays()
            folder.note_files(self.facts())


def check_imported(resolved: Mapping[str, Any]) -> None:
    """Raises ConfigError where this process has imported code of a config that was edited since: a
    notebook would play what it was."""
    for path, digest in used_by(files_used(resolved, {}).code).code.items():
        if digest_of(path) not in (digest, None):
            raise ConfigError(
                f"{os.path.relpath(path)}: edited since this Python has imported it, so that it"
                " would play as it was; start Python anew"
            )


def files_used(resolved: Mapping[str, Any], policies: Mapping[str, Policy]) -> UsedFiles:
    """What a config uses that is loaded: `resolved` with its paths as seen from here."""
    begin()
    used = UsedFiles()
    for keys, text in _texts(resolved, ()):
        _take(used, keys, text, resolved)
    for name, policy in policies.items():
        _take_model(used, resolved["policies"][name]["model"], policy)
    for library in _LIBRARIES:
        _take_library(used, library)
    return used


def _take(used: UsedFiles, keys: tuple[str, ...], text: str, resolved: Any) -> None:
    module = module_behind(text)
    if module is not None:
        _take_module(used, text, module)
        return
    if keys[-2:-1] in (("packages",), ("command",)) and text.replace(".", "").isidentifier():
        # of a tool: what it imports, or what `python -m` runs
        used.code |= dict.fromkeys(files_of_name(text, here()))
    file = registry.file_of(text)
    if file is not None and file.is_file():
        # the user's own code loads it, or a program runs it, as a server of tools
        used.code[str(file.absolute())] = None
    elif keys[-2:] == ("loss", "surrogate"):
        _take_surrogate(used, text)
    elif _is_path(text, keys[-1]) and not _is_provenance(keys, resolved):
        for path in _plays_of(os.path.abspath(Path(text).expanduser())):
            if (digest := digest_of(path)) is not None:
                used.data[path] = digest


def _take_module(used: UsedFiles, name: str, module: ModuleType) -> None:
    file = file_of_module(module)
    if module.__name__ == "__main__":
        _take_main(used, name, module)
    elif file is not None and is_own(file):
        used.code[file] = None
    else:
        _take_library(used, module.__name__.partition(".")[0])


def _take_surrogate(used: UsedFiles, name: str) -> None:
    """The code of a loss that the user has added to the table of them."""
    losses = sys.modules.get("gem_ma.training.learner.losses")
    added = losses.SURROGATES.get(name) if losses is not None else None
    module = sys.modules.get(getattr(added, "__module__", ""))
    if added is not None and module is not None:
        _take_module(used, f"{module.__name__}:{added.__name__}", module)


def _take_main(used: UsedFiles, name: str, main: ModuleType) -> None:
    """Code of a notebook, or of the script that runs: the sources of what it uses there, since the
    file around it holds what is typed to play."""
    sources: dict[str, str] = {}
    left = [name.partition(":")[2]]
    while left:
        member = left.pop()
        if member in sources or member not in vars(main):
            continue
        value = vars(main)[member]
        if isinstance(value, ModuleType):
            file = file_of_module(value)
            used.code |= dict.fromkeys([file] if file and is_own(file) else ())
        elif getattr(value, "__module__", None) == "__main__" and callable(value):
            try:
                sources[member] = getsource(value)
            except (OSError, TypeError):
                used.unknown.append(f"__main__:{member}")
                sources[member] = ""
            left += _names_in(value)
        elif isinstance(value, (str, int, float, bool, tuple, list, dict, set, frozenset)):
            sources[member] = repr(sorted(value, key=repr) if isinstance(value, set) else value)
    if name not in used.unknown:
        text = json.dumps(sources, sort_keys=True)
        used.sources[name] = sha256(text.encode()).hexdigest()


def _names_in(value: Any) -> set[str]:
    """The names that the code of a function or a class reads."""
    parts = [value, *vars(value).values()] if isinstance(value, type) else [value]
    bases = {base.__name__ for base in getattr(value, "__bases__", ())}
    codes = [part.__code__ for part in map(inspect.unwrap, parts) if hasattr(part, "__code__")]
    names = set()
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return names | bases


def _take_model(used: UsedFiles, model: str, policy: Policy) -> None:

    engine, _, name = model.partition("/")
    module = module_behind(engine)
    if module is not None and (file := file_of_module(module)) is not None and is_own(file):
        used.code[file] = None
    if not name or not os.path.exists(name):
        return
    folder = Path(os.path.abspath(name))
    paths = [*map(Path, _plays_of(str(folder)))]
    if isinstance(policy.core, Weighs):
        beside = folder.glob("*") if folder.is_dir() else ()
        paths = [path for path in beside if path.suffix in _BESIDE_WEIGHTS and path.is_file()]
    for path in paths:
        small = path.is_dir() or path.stat().st_size <= _MOST_BESIDE
        if small and (digest := digest_of(path)) is not None:
            used.data[str(path)] = digest


def _take_library(used: UsedFiles, name: str) -> None:
    """The version of a library that is loaded, where it says one."""
    version = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(version, str):
        used.libraries[name] = version


def module_behind(name: str) -> ModuleType | None:
    """The module that this name was loaded from in this process, an installed package's
    included; None for built-in names and for unknown ones."""
    if (adapter := registry.adapter_of(name)) is not None:
        name = adapter[1]
    if (file := registry.file_of(name)) is not None:
        return sys.modules.get(registry.module_name(file.resolve()))
    if ":" in name:
        return sys.modules.get(name.partition(":")[0])
    return module_behind(_added()[name]) if name in _added() else None


@cache
def _added() -> dict[str, str]:
    """What installed packages add to the catalogs of what plays."""
    return {
        name: target
        for kind in ("scenarios", "agents", "engines", "wrappers")
        for name, target in registry.catalog(kind).items()
        if name not in registry.builtin(kind)
    }


def _texts(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in a config that may name code or data, keys of mappings too."""
    if any(
        len(keys) == len(left) and all(a in ("*", b) for a, b in zip(left, keys, strict=True))
        for left in _LEFT_OUT
    ):
        return
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield (*keys, str(key)), str(key)
            yield from _texts(inner, (*keys, str(key)))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, (*keys, str(place)))


def _is_path(text: str, key: str) -> bool:
    """Whether a text names what lies there, and is not a plain word that happens to: `test` is a
    split, whatever lies here."""
    if not text or "\0" in text or len(text) > _LONGEST_PATH:
        return False
    path = os.path.expanduser(text)
    if os.sep in text or key in _PATHS:
        return os.path.exists(path)
    return "." in text and os.path.isfile(path)


def _plays_of(path: str) -> list[str]:
    """Of a run folder its plays, since pages and notes beside them decide nothing."""
    names = [os.path.join(path, name) for name in (RECORD, "manifest.json")]
    if not all(map(os.path.isfile, names)):
        return [path]
    return [*map(str, closed_parts(Path(names[0]))), names[0]]


def _is_provenance(keys: tuple[str, ...], resolved: Any) -> bool:
    """Whether this is the data of a built-in scenario, which says itself what it is made of."""
    if "data" not in keys:
        return False
    block = resolved
    for key in keys[: keys.index("data")]:
        block = block.get(key) if isinstance(block, Mapping) else None
    id_ = block.get("id") if isinstance(block, Mapping) else None
    return isinstance(id_, str) and id_ in registry.builtin("scenarios")
