"""Which files of the user's own a process has used: code as it was imported, data as that code
opened it. Their digests tell whether a run goes on with what it began with.

A user's code is what Python imports from a file that belongs neither to Python, nor to an installed
package, nor to gem_ma; a package that is installed as editable belongs to the user. Python would
take a cached `.pyc` for a file that was edited within the same second at the same length, so such
code is compiled from the bytes whose digest is taken. What it opens is seen by an audit hook
(PEP 578), which is set when the first such file is imported.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import source_from_cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from gem_ma.system.files import digest_of

_MOST_FRAMES = 200
_WRITES = re.compile(r"[bt+]*[wax][bt+]*")  # a mode of `open`
_MACHINE = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", "/bin/", "/var/", "/run/")
# rooms that read what the user's code hands them; whatever else of gem_ma opens is its own business
_HANDS = (
    *("scenarios/", "agents/", "wrappers/", "worlds/", "runs/store/"),
    *("system/files.py", "system/folders.py"),
)

_sources: dict[str, str] = {}  # file of code -> digest of the bytes that were run
_imports: dict[str, dict[str, None]] = {}  # file of code -> the user's files that it imports
_opened: dict[str, dict[str, None]] = {}  # file of code -> what it has opened for reading
_digests: dict[str, str | None] = {}  # of what was opened, as it was then
_begun: set[str] = set()  # what was used when a run began
_played: set[str] = set()  # what only plays have used
_written: set[str] = set()  # what this process makes itself is not data of a run
_local = threading.local()


class Used(NamedTuple):
    """Absolute path -> SHA-256 of its bytes; `later` is what only plays have used so far."""

    code: dict[str, str]
    data: dict[str, str]
    later: dict[str, str]


class Source(SourceFileLoader):
    """Runs the bytes that it has taken the digest of."""

    def get_code(self, fullname: str) -> Any:
        data = self.get_data(self.path)
        _sources[self.path] = sha256(data).hexdigest()
        return self.source_to_code(data, self.path)

    def exec_module(self, module: ModuleType) -> None:
        importer, _ = _user(sys._getframe(1), through_imports=True)
        if importer:
            _imports.setdefault(importer, {})[self.path] = None
        super().exec_module(module)
        # resolved now: another folder's `helper.py` may take the name later
        _imports.setdefault(self.path, {}).update(dict.fromkeys(_named(self.path)))


@cache
def watch() -> None:
    """From now on the user's code is imported from the bytes that are digested, and what it opens
    is seen. What was imported before is known by the file that lies there now."""
    sys.addaudithook(_watch)
    sys.path_hooks.insert(0, _finder)
    for place in [*sys.path_importer_cache]:
        if os.path.isdir(place) and is_own(os.path.join(place, "module.py")):
            del sys.path_importer_cache[place]


def _finder(folder: str) -> FileFinder:
    folder = folder or here()
    if not os.path.isdir(folder) or not is_own(os.path.join(folder, "module.py")):
        raise ImportError("none of the user's folders")
    return FileFinder(
        folder,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (Source, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def count() -> int:
    """How many files were used so far: a number that has grown says that there are more."""
    return len(_sources) + sum(map(len, _opened.values()))


def begin() -> None:
    """A run begins: what was used so far was used to make it, but for what earlier plays have."""
    _begun.update(_all() - _played)


def note_plays() -> None:
    """Plays have ended: what was used since a run began was used by them."""
    _played.update(_all() - _begun)


def _all() -> set[str]:
    return {os.path.realpath(file) for file in {*_sources, *_digests}}


def used_by(files: Iterable[str]) -> Used:
    """What these files of code and all that they import are, and what they have opened."""
    code: dict[str, str] = {}
    left = [os.path.realpath(file) for file in files]
    alias = {os.path.realpath(file): file for file in _sources}
    opened: dict[str, None] = {}
    mentioned: dict[str, str] = {}
    while left:
        file = left.pop()
        if file in code or not is_own(file):
            continue
        loaded = alias.get(file, file)
        digest = _sources.get(loaded) or digest_of(file)
        if digest is None:
            continue
        code[file] = digest
        imported = _imports[loaded] if loaded in _imports else _named(file)
        left += map(os.path.realpath, imported)
        opened |= _opened.get(loaded, {})
        if loaded not in _sources:
            # of another process, or imported before anybody watched what it opens
            named = {path: digest_of(path) for path in map(os.path.realpath, _mentioned(file))}
            mentioned |= {path: text for path, text in named.items() if text is not None}
    data = {path: _digests.get(path) for path in opened if path not in code}
    whole = code | {path: digest for path, digest in data.items() if digest is not None}
    later = {path: whole.pop(path) for path in [*whole] if os.path.realpath(path) in _played}
    later |= {path: text for path, text in mentioned.items() if path not in (*code, *whole)}
    eager = {path: digest for path, digest in whole.items() if path not in code}
    return Used({path: whole[path] for path in code if path in whole}, eager, later)


def here() -> str:
    """The working folder; the root where it is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def file_of_module(module: ModuleType) -> str | None:
    """The file that a module was made of; of one in an archive the archive."""
    file = getattr(module, "__file__", None)
    while file and not os.path.isfile(file) and os.path.dirname(file) != file:
        file = os.path.dirname(file)
    return file if file and os.path.isfile(file) else None


@cache
def is_own(file: str) -> bool:
    """Whether a file is the user's: no part of Python, of an installed package or of gem_ma."""
    path = os.path.realpath(file)
    if {"site-packages", "dist-packages"} & set(Path(path).parts):
        return False
    if any(path.startswith(place + os.sep) for place in (*_python(), *_ours())):
        return False
    # `pip install --target FOLDER` with the folder on the path
    return not any(map(_holds_packages, {*sys.path} & {*map(str, Path(path).parents)}))


@cache
def _holds_packages(folder: str) -> bool:
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


# -- imports -------------------------------------------------------------------------------------


def _named(file: str) -> Iterator[str]:
    """The user's files that the import statements of a file name, also those in functions."""
    for node in ast.walk(_tree(file)):
        folder = os.path.dirname(file)
        names = list[str]()
        level = 0
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            level = node.level
            folder = os.path.normpath(os.path.join(folder, *[os.pardir] * (level - 1)))
            # what is imported from a package may be a module of it
            names = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
        for name in dict.fromkeys(names):
            yield from files_of_name(name, folder, is_relative=level > 0)


def _mentioned(file: str) -> Iterator[str]:
    """The files that texts in the code of a file name, as seen from its folder or from here, less
    what it opens for writing."""
    tree = _tree(file)
    opens = [
        [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    outputs = {args[0] for args in opens if len(args) > 1 and _WRITES.fullmatch(str(args[1]))}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for text in dict.fromkeys(text for text in texts if isinstance(text, str)):
        if text in outputs or "." not in text or "\0" in text or len(text) > 255:
            continue
        for folder in (os.path.dirname(file), here()):
            path = os.path.join(folder, text)
            if os.path.isfile(path) and is_own(path):
                yield path


def _tree(file: str) -> ast.AST:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def files_of_name(name: str, folder: str, is_relative: bool = False) -> Iterator[str]:
    """The user's files that importing a dotted name runs, those of its packages too: of a name
    that is relative, in this folder alone."""
    parts = name.split(".")
    if not parts[0] or (parts[0] in sys.stdlib_module_names and not is_relative):
        return
    places: Iterable[str] | None = [folder] if is_relative else [folder, *sys.path]
    for length in range(1, len(parts) + 1):
        module = None if is_relative else sys.modules.get(".".join(parts[:length]))
        if module is not None:
            file = file_of_module(module)
            places = getattr(module, "__path__", None)
        else:
            # asked without importing the packages above it
            spec = PathFinder.find_spec(parts[length - 1], list(places or ()))
            if spec is None:
                return
            file = spec.origin
            places = spec.submodule_search_locations
        if file and os.path.isfile(file):
            if not is_own(file):
                return
            yield file
        if places is None:
            return


# -- what is opened ------------------------------------------------------------------------------


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("open", "sqlite3.connect") or getattr(_local, "busy", False):
        return
    _local.busy = True
    # what a hook raises would end what the user's code does
    try:
        path, mode, flags = args if event == "open" else (args[0], "r", 0)
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        text = os.fsdecode(path)
        if event == "sqlite3.connect":  # which may be a URI
            text = text.removeprefix("file:").partition("?")[0]
        name = os.path.abspath(text)
        changes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set(mode) & set("wax+")
        if changes:
            _written.add(name)
        elif name not in _written:
            _note(name)
    except Exception:
        # the working folder may be gone, and what is raised here would end the user's own call
        pass
    finally:
        _local.busy = False


def _note(path: str) -> None:
    # code that was loaded by another way than an import statement
    is_code = path.endswith((".py", ".pyc"))
    reader, is_direct = _user(sys._getframe(2), through_imports=is_code)
    if path.endswith(".pyc") and os.path.isfile(source := _source_of(path)):
        path = source
    if reader is None or path in _sources or path in _opened.get(reader, ()) or not is_own(path):
        return
    if not os.path.isfile(path) or not (is_direct or _is_near(path, reader)):
        return
    _digests.setdefault(path, digest_of(path))
    _opened.setdefault(reader, {})[path] = None


def _source_of(compiled: str) -> str:
    try:
        return source_from_cache(compiled)
    except (ValueError, NotImplementedError):
        return compiled


def _is_near(path: str, reader: str) -> bool:
    """Whether a file that a library opens is the user's, and no part of the machine's, nor a cache
    or a setting of the library's own."""
    if path.startswith((os.path.dirname(reader) + os.sep, here() + os.sep)):
        return True

    strange = (*_MACHINE, tempfile.gettempdir() + os.sep, os.path.realpath(sys.prefix) + os.sep)
    return not path.startswith(strange) and "/." not in path


def _user(frame: FrameType | None, through_imports: bool = False) -> tuple[str | None, bool]:
    """The nearest file of the user's code above a frame, None where there is none; and whether
    no library stands between."""
    is_direct = True
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        if name in _sources:
            return name, is_direct
        if name.startswith("<frozen importlib"):
            if not through_imports:
                break
        elif (kind := _kind(name)) == "gem_ma":
            break
        elif kind == "library":
            is_direct = False
        frame = frame.f_back
    return None, False


@cache
def _kind(file: str) -> str:
    """`gem_ma`, `python` or `library`: whose code a frame runs that is not the user's."""
    path = os.path.realpath(file)
    for place in _ours():
        if path.startswith(place + os.sep):
            inner = os.path.relpath(path, place).replace(os.sep, "/")
            return "library" if inner.startswith(_HANDS) or place != _ours()[0] else "gem_ma"
    is_python = any(path.startswith(place + os.sep) for place in _python())
    return "python" if is_python and "site-packages" not in path else "library"


@cache
def _python() -> tuple[str, ...]:

    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib"))


@cache
def _ours() -> tuple[str, ...]:
    """The folders of gem_ma: the first is that of the package, the others of what stands beside."""
    packages = [import_module(name) for name in ("gem_ma", "gem_ma.scenarios", "gem_ma.agents")]
    return tuple(os.path.realpath(next(iter(package.__path__))) for package in packages)
