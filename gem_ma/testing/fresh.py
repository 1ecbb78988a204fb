"""Rule 1 in fresh processes: two interpreters with different string hashes must play as this one
does.

How a scenario gets there is in `gem_ma.testing.fresh`; what cannot is said to be untested.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import load, names_instance
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.traces import trace

# A scenario on its way into another process: the name of its class, the file of its module and its
# attributes as JSON. A class inside a function does not travel: nothing imports it there.
# What it holds travels alike: the scenario that a wrapper stands around, and dataclasses. Nothing
# is pickled: that would run the author's code to read, and hide what differs.


class NotImportable(Exception):
    """The scenario cannot be rebuilt in another process."""


def described(holder: Any, module: str | None = None, *, state: bool = True) -> dict[str, Any]:
    """What `rebuilt` needs, as JSON values; without `state` the class is called there. `module`:
    where it can be imported, as `name` or `name:Class`. Raises NotImportable."""
    cls = type(holder)
    name, _, attribute = (module or "").partition(":")
    name = name or cls.__module__
    attribute = attribute or cls.__qualname__
    order: dict[str, Any] = {
        "module": name,
        "file": _file(name),
        "attribute": attribute,
        "id": getattr(holder, "id", ""),
        "state": None,
    }
    if "<locals>" in attribute:
        raise NotImportable(
            f"{cls.__name__} is a class inside a function, which no other process can import"
        )
    if order["file"] is None:
        raise NotImportable(f"its module {name} has no file; name an importable class in module=")
    if state:
        try:
            order["state"] = packed(_state(holder))
        except TypeError as error:
            if names_instance(order["id"]):  # a child imports it from there, as this process did
                return {**order, "module": ""}
            raise NotImportable(
                f"its attributes or tasks do not travel as JSON ({error}); check it by its id or"
                " its class"
            ) from error
    return order


def _state(holder: Any) -> dict[str, Any]:
    if hasattr(holder, "__dict__"):
        return dict(vars(holder))
    # one with slots says by its fields what it holds
    names = [field.name for field in dataclasses.fields(holder)] if _is_data(holder) else []
    return {name: getattr(holder, name) for name in names}


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def packed(value: Any) -> Any:
    """Values as JSON that keeps tuples and the keys of dicts; scenarios and dataclasses by what
    they hold. Raises TypeError for anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return {"tuple" if type(value) is tuple else "list": [packed(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[packed(key), packed(item)] for key, item in value.items()]}
    # no other objects: those of C hold what no attribute shows, and a copy would play otherwise
    if isinstance(value, Scenario) or _is_data(value):
        try:
            return {"object": described(value)}
        except NotImportable as error:
            raise TypeError(f"a {type(value).__name__}: {error}") from error
    raise TypeError(f"a {type(value).__name__}")


def unpacked(value: Any) -> Any:
    """The inverse of `packed`."""
    if not isinstance(value, dict):
        return value
    ((kind, items),) = value.items()
    if kind == "object":
        return rebuilt(items)
    if kind == "dict":
        return {unpacked(key): unpacked(item) for key, item in items}
    return (tuple if kind == "tuple" else list)(unpacked(item) for item in items)


def _file(module: str) -> str | None:
    found = getattr(sys.modules.get(module), "__file__", None)
    return str(Path(found).resolve()) if found else None


def rebuilt(order: dict[str, Any]) -> Any:
    """The object that was described."""
    if not order["module"]:
        scenario: Any = load("scenarios", order["id"])()
    else:
        try:
            # __main__ is this file here; the author's script is loaded from its path below
            module = (
                importlib.import_module(order["module"]) if order["module"] != "__main__" else None
            )
        except ImportError:
            module = None
        there = str(Path(getattr(module, "__file__", "") or "").resolve())
        # another module may have this name in the child, whose path begins elsewhere
        if module is None or (order["file"] and there != order["file"]):
            spec = importlib.util.spec_from_file_location("_scenario_under_test", order["file"])
            if spec is None or spec.loader is None:
                raise NotImportable(order["module"])
            module = importlib.util.module_from_spec(spec)
            # dataclasses look their module up by name while they are made
            sys.modules["_scenario_under_test"] = module
            if order["module"] == "__main__":
                exec(_definitions(Path(order["file"])), vars(module))
            else:
                spec.loader.exec_module(module)
        cls: Any = module
        for part in order["attribute"].split("."):
            cls = getattr(cls, part)
        # without __init__: its arguments are not known, its result is
        scenario = cls() if order["state"] is None else cls.__new__(cls)
        for name, value in (unpacked(order["state"]) or {}).items():
            object.__setattr__(scenario, name, value)  # past a frozen dataclass
    if isinstance(scenario, Scenario):
        object.__setattr__(scenario, "id", order["id"])
    return scenario


def _definitions(script: Path) -> Any:
    """What a script defines, without what it does: running it again would check again."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
    tree.body = [node for node in tree.body if isinstance(node, kinds) and not _computes(node)]
    return compile(tree, str(script), "exec")


def _computes(node: ast.stmt) -> bool:
    """Whether an assignment calls something: that may be the check itself."""
    is_value = isinstance(node, (ast.Assign, ast.AnnAssign))
    return is_value and any(isinstance(part, ast.Call) for part in ast.walk(node))


# few: the same fault shows in nearly every play, and a child plays all of them anew
PLAYERS = ("first", "random")
SEEDS = 4
WAIT_S = 60.0


# set in the children: a module that checks itself when it is imported must not start more
_INSIDE = "GEM_MA_FRESH"


def fresh(kit: Kit, module: str | None) -> None:
    """Compares digests of some plays between this process and two fresh ones."""
    if any(finding.rule == 1 for finding in kit.findings.values()):
        return  # what differs in this process will differ in others
    try:
        order = _order(kit, module)
    except NotImportable as reason:
        kit.skip(1, f"fresh processes with other string hashes: {reason}")
        return
    if _INSIDE in os.environ:
        kit.skip(1, "fresh processes with other string hashes: this is one")
        return
    answers = _answers(kit, order)
    if len(answers) < 2:
        return
    here = digests(kit.scenario, kit.tasks, order["seeds"], kit.cap)
    there, elsewhere = answers
    for name in here:
        if name.endswith("/work"):
            continue
        work = f"{name}/work"
        # its plays differ for a reason that is not the scenario's
        if not there.get(work) == elsewhere.get(work) == here[work]:
            kit.skip(
                1, "fresh processes with other string hashes: outside work gave other results there"
            )
            continue
        seed = int(name.split("/")[0])
        if there.get(name) != elsewhere.get(name) or there.get(name) != here[name]:
            message = (
                "a fresh process plays the same; this one depends on PYTHONHASHSEED or on the"
                " process (sort sets, never use hash(), id() or time)"
            )
            kit.fail(1, message, seed=seed, key="fresh")


def _answers(kit: Kit, order: dict[str, Any]) -> list[dict[str, str]]:
    """What the children played, of each that could play it; why another could not is noted."""
    environment = {
        **os.environ,
        _INSIDE: "1",
        # "" means the working directory of whoever asks, which a child need not share
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    command = [sys.executable, "-m", "gem_ma.testing.fresh"]
    # both at once: most of their time is the start of Python
    children = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**environment, "PYTHONHASHSEED": salt},
        )
        for salt in ("1", "2")
    ]
    answers: list[dict[str, str]] = []
    for child in children:
        try:
            out, problem = child.communicate(json.dumps(order), timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()  # a killed child that nobody waits for stays as a zombie
            out = ""
            problem = f"no answer within {WAIT_S:.0f} s"
        if child.returncode != 0 or not out.strip():
            last = (problem.strip().splitlines() or ["no output"])[-1]
            kit.skip(
                1,
                "fresh processes with other string hashes: the scenario could not be rebuilt there"
                f" ({last[:200]})",
            )
        else:
            # a scenario may print, too: the answer is the last line
            answers.append(json.loads(out.strip().splitlines()[-1]))
    return answers


def digests(scenario: Scenario, tasks: Any, seeds: Any, cap: int) -> dict[str, str]:
    """`<seed>/<player>` -> digest of the play."""
    kit = Kit(scenario, tasks, seeds, cap)  # calls run here as anywhere
    made: dict[str, str] = {}
    for seed in seeds:
        for player in PLAYERS:
            try:
                game = kit.start(seed)
                kit.finish(game, Cast(player, seed, kit.agents))
                play = repr(trace(game))
                work = repr(game.calls)
                game.close()
            except Failed:
                # failing alike is playing alike; what fails here was found before
                play = "failed"
                work = ""
            made[f"{seed}/{player}"] = _digest(play)
            made[f"{seed}/{player}/work"] = _digest(work)
    return made


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _order(kit: Kit, module: str | None) -> dict[str, Any]:
    scenario = kit.scenario
    default = _is_default(kit)
    if isinstance(kit.by_name, str):
        order: dict[str, Any] = {"module": "", "id": scenario.id}  # made the same way there
    else:
        # made from a class without options: the state is what its constructor gives
        order = described(scenario, module, state=not kit.by_name)
    try:
        tasks = None if default else packed(list(kit.tasks))
    except TypeError as error:
        raise NotImportable(f"its tasks do not travel as JSON ({error})") from error
    return order | {
        "tasks": tasks,
        "count": len(kit.tasks),
        "seeds": list(kit.seeds[:SEEDS]),
        "cap": kit.cap,
    }


def _is_default(kit: Kit) -> bool:
    try:
        own = kit.scenario.tasks("train")
        return all(
            task is own[number] or task == own[number] for number, task in enumerate(kit.tasks)
        )
    except Exception:
        return False


def answer(order: dict[str, Any]) -> dict[str, str]:
    """The digests of an order, in the process that got it."""
    scenario = rebuilt(order)
    if order["tasks"] is not None:
        tasks = unpacked(order["tasks"])
    else:
        split = scenario.tasks("train")
        tasks = [split[number] for number in range(min(len(split), order["count"]))]
    return digests(scenario, tasks, order["seeds"], order["cap"])


def main() -> None:
    """Reads an order on stdin, writes digests on stdout."""
    order = json.load(sys.stdin)
    # the last line of stdout, whatever the scenario printed before
    print(json.dumps(answer(order)))


if __name__ == "__main__":
    main()
