"""Names -> objects. A name is an id of a catalog or of an entry point, `package.module:Class`, a
file: `game.py`, `game.py:Class`, or the id of another library's environment behind its prefix:
`openspiel:kuhn_poker`. In the place of a class may stand a scenario that is made already.

Built-in scenarios, behaviours and engines are found exactly as a user's package is: a catalog
(id -> "module:Class") or an entry point in the groups `gem_ma.scenarios`, `gem_ma.agents`,
`gem_ma.engines`. Nothing here is imported before it is asked for.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.spelling import near
from gem_ma.system.import_folders import search_folder
from gem_ma.system.options import misfits
from gem_ma.system.used import Source, watch

KINDS = {
    "scenarios": "scenario",
    "agents": "behaviour",
    "engines": "engine",
    "learners": "learner",
    "worlds": "adapter",
    "wrappers": "wrapper",
}
ALL_AGENTS = "gem-ma list agents names all; human: you type the answers"
# where a catalog does not lie in the package of its kind
_PLACES = {"learners": "gem_ma.training.learner"}
_FILE = re.compile(r"(?P<path>.*\.py)(?::(?P<attribute>[^:/]*))?", re.DOTALL)


# entry points are read from the disk: once in a process
@cache
def catalog(kind: str) -> dict[str, str]:
    """id -> "module:Class" of every scenario, behaviour (`agents`) or engine that is installed."""
    # late: what is built in is found without, and it takes a fifth of a short command
    from importlib.metadata import entry_points

    found = {entry.name: entry.value for entry in entry_points(group=f"gem_ma.{kind}")}
    # ours win: a package that is installed may not exchange what a shipped config means
    return {**found, **builtin(kind)}


def list_scenarios() -> list[str]:
    """The ids that `make` takes: built in, and of installed packages. Files (`game.py`), classes
    (`module:Class`) and other libraries' worlds (`openspiel:chess`) are made by their names too."""
    return sorted(catalog("scenarios"))


def builtin(kind: str) -> dict[str, str]:
    """The catalog that the package itself brings."""
    return dict(import_module(_PLACES.get(kind, f"gem_ma.{kind}")).CATALOG)


def file_of(name: str) -> Path | None:
    """The Python file that a name such as `game.py` or `game.py:Class` points to; None for every
    other name."""
    file = _FILE.fullmatch(name)
    return Path(file["path"]) if file else None


def adapter_of(name: str) -> tuple[str, str] | None:
    """("module:Class" of the adapter, id within the library) of a name such as
    `openspiel:kuhn_poker`; None for every other name."""
    prefix, colon, foreign = name.partition(":")
    target = builtin("worlds").get(prefix) if colon else None
    return (target, foreign) if target else None


def names_code(name: str) -> bool:
    """True where a name imports what a user wrote: `module:Class`, or a file. A catalog and
    installed packages are not such names, and no environments of an installed library; but some
    libraries read ids of the form `module:id`, and import that module."""
    foreign = adapter_of(name)
    return ":" in (foreign[1] if foreign else name) or file_of(name) is not None


def known(kind: str, name: str) -> bool:
    """Whether a name may be one without importing what a user wrote."""
    if kind == "scenarios" and adapter_of(name) is not None:
        return not names_code(name)
    return name in builtin(kind) or name in catalog(kind)


def load(kind: str, name: str) -> Any:
    """The class or factory behind a name. Raises ConfigError with the nearest names, or for code of
    a user that raises while it is imported."""
    try:
        return _loaded(kind, name)
    except GemMaError:
        raise
    except Exception as error:
        if not names_code(name):  # of what is installed the error says itself what is missing
            raise
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{KINDS[kind]} {name!r} cannot be imported: {told}") from error


def _loaded(kind: str, name: str) -> Any:
    if not isinstance(name, str):
        raise ConfigError(f"the name of a {KINDS[kind]} is a text; got {name!r}")
    if kind == "scenarios" and (adapter := adapter_of(name)) is not None:
        opens, foreign = adapter
        if not foreign:
            raise ConfigError(f"scenario {name!r}: say which one, as in {name}NAME")
        # the first argument of every adapter is the id within its library
        return partial(load("worlds", opens), foreign)
    # the catalog of installed packages is asked last, since it costs most
    target = builtin(kind).get(name) or (name if names_code(name) else catalog(kind).get(name))
    if target is None:
        raise ConfigError(f"no {KINDS[kind]} is called {name!r} ({_hint(kind, name)})")
    what = f"{KINDS[kind]} {name!r}"
    file = _FILE.fullmatch(target)
    if file is not None:
        module = _module_of_file(what, Path(file["path"]))
        attribute = file["attribute"] or _only_scenario(what, kind, file["path"], module)
        return _member(what, file["path"], module, attribute)
    path, _, attribute = target.partition(":")
    meant = _library_meant(name) if kind == "scenarios" else ""
    if not all(part.isidentifier() for part in [*path.split("."), attribute]):
        told = f"{what}: a name of code is package.module:Class, or file.py:Class"
        raise ConfigError(f"{told}{meant}")
    if target == name:
        watch()
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not (path == error.name or path.startswith(error.name + ".")):
            raise  # an import inside the module: its own message says what is missing
        raise ConfigError(f"{what}: there is no module {error.name!r}{meant}") from error
    except SystemExit as error:
        raise _ended(what, f"module {path}", error) from error
    return _member(what, f"module {path}", module, attribute)


def instance(scenario: Scenario) -> Scenario:
    """A copy of a scenario that a user's module has made, as of `gem_ma.worlds.wrap(env)`. It is
    a copy, since it gets an id here."""
    return copy(scenario)


def names_instance(name: str) -> bool:
    """Whether a name is that of a scenario which a user's module has made."""
    try:
        factory = load("scenarios", name) if names_code(name) else None
    except Exception:  # an id that its author has typed may be no name at all
        return False
    return isinstance(factory, partial) and factory.func is instance


def makes_scenario(factory: Any) -> bool:
    """Whether a loaded name gives a scenario. A config may name anything that can be imported, and
    nothing else of it is called."""
    maker = factory.func if isinstance(factory, partial) else factory  # an adapter, and its id
    return maker is instance or (isinstance(maker, type) and issubclass(maker, Scenario))


def _library_meant(name: str) -> str:
    """The library that may have been meant by its name or its usual short form, as `gym:...`;
    empty where none is like it."""
    if name.startswith("game:"):  # as GEM itself writes its ids
        return f" (did you mean 'gem:{name}'?)"
    prefix, _, foreign = name.partition(":")
    letters = prefix.replace("_", "").lower()
    for known in builtin("worlds"):
        rest = iter(known.replace("_", ""))
        # each letter of the short form stands in the name, in this order
        if known[0] == letters[:1] and all(letter in rest for letter in letters):
            return f" (did you mean '{known}:{foreign}'?)"
    return ""


def _hint(kind: str, name: str) -> str:
    """What may have been meant by a name that nothing has."""
    if close := near(name, catalog(kind)):
        return f"did you mean {' or '.join(map(repr, close))}?"
    if kind == "agents":  # more of them than a line holds
        return f"{ALL_AGENTS}; package.module:Class or file.py:Class is one too"
    return f"known: {', '.join(sorted(catalog(kind)))}, package.module:Class or file.py"


def _member(what: str, holder: str, module: ModuleType, attribute: str) -> Any:
    try:
        member = getattr(module, attribute)
        return partial(instance, member) if isinstance(member, Scenario) else member
    except AttributeError as error:
        close = near(attribute, vars(module), 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(f"{what}: {holder} has no {attribute!r}{hint}") from error


def _ended(what: str, holder: str, error: SystemExit) -> ConfigError:
    told = f"{holder} ends the process while it is imported (SystemExit: {error.code})"
    return ConfigError(f"{what}: {told}; what it runs belongs below `if __name__ == '__main__':`")


def _module_of_file(what: str, path: Path) -> ModuleType:
    """The module in a file, imported once per process. Its folder is searched for what it
    imports, as Python does with a script."""
    if not path.is_file():
        there = [str(path.with_name(other.name)) for other in path.parent.glob("*.py")]
        close = near(str(path), there, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        fault = "a folder, not a file" if path.is_dir() else f"no such file: {path}{hint}"
        raise ConfigError(f"{what}: {fault}")
    where = path.resolve()
    name = module_name(where)
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, where, loader=Source(name, str(where)))
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what}: {path} cannot be read as Python")
    watch()
    search_folder(where.parent)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        raise _ended(what, str(path), error) from error
    except BaseException:
        del sys.modules[name]  # half of a module must not pass for a whole one
        raise
    return module


def module_name(where: Path) -> str:
    """What the module of a file is called in this process."""
    # the digest: two files in two folders may have one name, as `game.py`
    digest = sha256(os.fsencode(where)).hexdigest()[:12]
    return f"gem_ma_file_{digest}_{re.sub(r'[^0-9A-Za-z_]', '_', where.stem)}"


def _only_scenario(what: str, kind: str, path: str, module: ModuleType) -> str:
    """The name of the one scenario that a file defines. Raises ConfigError where there is none,
    or where a choice must be typed."""
    written = [
        value
        for value in dict.fromkeys(filter(callable, vars(module).values()))
        if getattr(value, "__module__", None) == module.__name__
    ]
    if kind != "scenarios":
        # any function or class may be a behaviour, or help one
        names = [name for one in written if not (name := one.__name__).startswith("_")]
        shown = " or ".join(f"{path}:{name}" for name in names[:5]) or f"{path}:name"
        raise ConfigError(f"{what}: say which one of the file, as in {shown}")
    names = [cls.__name__ for cls in written if isinstance(cls, type) and issubclass(cls, Scenario)]
    # a file without a class may have made one, as by `wrap(env)`
    names = names or [name for name, value in vars(module).items() if isinstance(value, Scenario)]
    if len(names) != 1:
        choice = f"several scenarios, type one: {', '.join(f'{path}:{name}' for name in names)}"
        raise ConfigError(f"{what}: {path} defines {choice if names else 'no Scenario'}")
    return names[0]


def construct(what: str, factory: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`factory(*args, **options)`. Raises ConfigError where the options do not fit its
    signature, with the nearest name."""
    try:
        return factory(*args, **options)
    # asked only after a failure: a signature costs more than the call
    except TypeError as error:
        try:
            parameters = signature(factory).parameters
            signature(factory).bind(*args, **options)
        except TypeError as mismatch:
            known = [
                name
                for name in parameters
                # what the driver gives, and nobody can set
                if name not in ("self", "agent", "sample", "rng", "task", "policy")
            ]
            mistyped = (name for name in options if name not in parameters)
            close = [meant for name in mistyped for meant in near(name, known, 1)]
            hint = f" (its options are {', '.join(known)})" if known else ""
            if close:
                hint = f" (did you mean {close[0]!r}?)"
            raise ConfigError(f"{what}: {mismatch}{hint}") from error
        except ValueError:  # a factory written in C shows no signature
            raise error from None
        if wrong := next(misfits(factory, options), ""):
            raise ConfigError(f"{what}: {wrong}") from error
        raise


def asks_nothing(key: str, value: Any) -> bool:
    """`constrain: null` or `device: null`: a wish for less than the default of some engines,
    which every engine fulfils that knows no such key."""
    return value is None and key in ("constrain", "device")


def make(name: str, /, *, wrappers: Sequence[Any] = (), **options: Any) -> Scenario:
    """A scenario by name, with the options of its constructor, and these wrappers around it, as
    in `wrapped`."""
    factory = load("scenarios", name)
    scenario = construct(f"scenario {name!r}", factory, **options)
    # what a scenario of ours took without a word, as `attempts: 1.5`, would fail in the middle of a
    # play; what users declare is theirs to read
    if not names_code(name) and (wrong := next(misfits(factory, options), "")):
        raise ConfigError(f"scenario {name!r}: {wrong}")
    if not isinstance(scenario, Scenario):
        raise ConfigError(f"{name!r} is no Scenario but a {type(scenario).__name__}")
    object.__setattr__(scenario, "id", name)  # a scenario may be a frozen dataclass
    return wrapped(scenario, wrappers) if wrappers else scenario


def wrapped(scenario: Scenario, wrappers: Sequence[Any]) -> Scenario:
    """The scenario with these wrappers around it, the first next to it. Each is a name, as
    `hide_names`, or {name: value or options}, as `{"retry": 2}`; a name is an id of
    `gem_ma.wrappers`, `package.module:Class` or `file.py:Class`. Raises ConfigError naming its
    place in the list, also for an order that makes no sense."""
    if not isinstance(wrappers, (list, tuple)):
        raise ConfigError(f"wrappers: a list, the first next to the rules; got {wrappers!r}")
    for place, entry in enumerate(wrappers):
        where = f"wrappers[{place}]"
        if isinstance(entry, str):
            entry = {entry: None}
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise ConfigError(f"{where}: one wrapper, as {{retry: 2}}; got {entry!r}")
        [(name, options)] = entry.items()
        plain = () if options is None or isinstance(options, Mapping) else (options,)
        named = options if isinstance(options, Mapping) else {}
        try:
            wrapper = construct(
                f"wrapper {name!r}", load("wrappers", name), scenario, *plain, **named
            )
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        except Exception as error:  # a name may be any callable, and what it takes anything
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"{where}: wrapper {name!r} raised {told}") from error
        if not isinstance(wrapper, Scenario):
            raise ConfigError(f"{where}: {name!r} gives no Scenario but a {type(wrapper).__name__}")
        scenario = wrapper
    return scenario


def as_scenario(
    scenario: str | Scenario | type[Scenario], /, *, wrappers: Sequence[Any] = (), **options: Any
) -> Scenario:
    """A scenario out of a name, a class or an instance, with these wrappers around it; an
    instance takes no other options."""
    if isinstance(scenario, str):
        return make(scenario, wrappers=wrappers, **options)
    made = (
        construct(f"scenario {scenario.__name__}", scenario, **options)
        if isinstance(scenario, type)
        else scenario
    )
    if not isinstance(made, Scenario):
        raise ConfigError(f"a scenario is a name, a class or an instance of Scenario; got {made!r}")
    if made is scenario and options:
        raise ConfigError(
            f"a scenario that is already made takes no options; got {', '.join(options)}"
        )
    if not made.id:
        object.__setattr__(made, "id", f"{type(made).__module__}:{type(made).__qualname__}")
    return wrapped(made, wrappers) if wrappers else made


def task_of(scenario: Scenario, key: str) -> Any:
    """The task behind `<split>/<index>`. Raises ConfigError with the range where there is none."""
    split, _, index = key.rpartition("/")
    tasks = scenario.tasks(split)
    # `isdecimal` refuses a minus: tasks[-1] would be the last one
    if not index.isdecimal() or int(index) >= len(tasks):
        held = "it is empty" if split else "a task is <split>/<index>"
        if tasks and split:
            held = f"it has {len(tasks)}, from {split}/0 to {split}/{len(tasks) - 1}"
        raise ConfigError(f"{scenario.id}: no task {key!r} in split {split!r}; {held}")
    return tasks[int(index)]


def dealt(scenario: Scenario, episode: Episode) -> Mapping[str, Any]:
    """`{agent: secret}`: what `scenario.deal` drew in this play, drawn again from its seed. For
    `measures`, `role`, `team` and `success`, which read records alone. Raises ConfigError where the
    scenario has no such task."""
    return scenario.deal(random.Random(episode.seed), task_of(scenario, episode.task))
