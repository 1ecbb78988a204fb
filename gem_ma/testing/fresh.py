"""Rule 1 in fresh processes: two interpreters with different string hashes must play as this one does.

A scenario travels as the name of its class, the file of its module and its attributes as JSON; what cannot travel so is said to be untested.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gem_ma.registry import load
from gem_ma.scenario import Scenario
from gem_ma.testing.kit import Failed, Kit, trace
from gem_ma.testing.players import Cast

PLAYERS, SEEDS, WAIT_S = ("first", "random"), 4, 60.0


class NotImportable(Exception):
    """The scenario cannot be rebuilt in another process."""


def fresh(kit: Kit, module: str | None) -> None:
    """Compares digests of some plays between this process and two fresh ones."""
    if any(finding.rule == 1 for finding in kit.findings.values()):
        return  # what differs in this process will differ in others
    try:
        order = _order(kit, module)
    except NotImportable as reason:
        kit.skip(1, f"fresh processes with other string hashes: {reason}")
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, "-m", "gem_ma.testing.fresh"]
    children = [
        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, encoding="utf-8", env={**environment, "PYTHONHASHSEED": salt})
        for salt in ("1", "2")
    ]
    answers: list[dict[str, str]] = []
    for child in children:
        try:
            out, problem = child.communicate(json.dumps(order), timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            out, problem = "", f"no answer within {WAIT_S:.0f} s"
        if child.returncode != 0 or not out.strip():
            last = (problem.strip().splitlines() or ["no output"])[-1]
            kit.skip(1, f"fresh processes with other string hashes: the scenario could not be rebuilt there ({last[:200]})")
        else:
            answers.append(json.loads(out.strip().splitlines()[-1]))
    if len(answers) < 2:
        return
    here = digests(kit.scenario, kit.tasks, order["seeds"], kit.cap)
    for name in here:
        seed = int(name.split("/")[0])
        if answers[0].get(name) != answers[1].get(name) or answers[0].get(name) != here[name]:
            message = (
                "a fresh process plays the same; this one depends on PYTHONHASHSEED or on the process (sort sets, never use hash(), id() or time)"
            )
            kit.fail(1, message, seed=seed, key="fresh")


def digests(scenario: Scenario, tasks: Any, seeds: Any, cap: int) -> dict[str, str]:
    """`<seed>/<player>` -> digest of the play."""
    kit, found = Kit(scenario, tasks, seeds, cap), {}
    for seed in seeds:
        for player in PLAYERS:
            try:
                game = kit.start(seed)
                kit.finish(game, Cast(player, seed, kit.agents))
                shown = repr(trace(game))
                game.close()
            except Failed:
                shown = "failed"
            found[f"{seed}/{player}"] = hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()
    return found


def _order(kit: Kit, module: str | None) -> dict[str, Any]:
    scenario = kit.scenario
    cls = type(scenario)
    name, _, attribute = (module or "").partition(":")
    name, attribute = name or cls.__module__, attribute or cls.__qualname__
    state = dict(vars(scenario)) if hasattr(scenario, "__dict__") else {}
    own = list(scenario.tasks("train")) if _is_default(kit) else None
    order = {
        "module": name,
        "file": _file(name),
        "attribute": attribute,
        "id": scenario.id,
        "state": state,
        "tasks": None if own is not None else list(kit.tasks),
        "count": len(kit.tasks),
        "seeds": list(kit.seeds[:SEEDS]),
        "cap": kit.cap,
    }
    if "<locals>" in attribute:
        raise NotImportable(f"the class {attribute} is defined inside a function; name an importable one in module=")
    try:
        order |= {"state": _packed(state), "tasks": None if own is not None else _packed(list(kit.tasks))}
    except TypeError as error:
        if own is None or not scenario.id or ":" in scenario.id or _is_other(scenario):
            raise NotImportable(f"its attributes or tasks do not travel as JSON ({error})") from error
        order |= {"state": {}, "module": "", "tasks": None}
    return order


def _packed(value: Any) -> Any:
    """Plain values as JSON that keeps tuples and the keys of dicts. Raises TypeError for anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return {"tuple" if type(value) is tuple else "list": [_packed(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[_packed(key), _packed(item)] for key, item in value.items()]}
    raise TypeError(f"a {type(value).__name__}")


def _unpacked(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, items),) = value.items()
    if kind == "dict":
        return {_unpacked(key): _unpacked(item) for key, item in items}
    return (tuple if kind == "tuple" else list)(_unpacked(item) for item in items)


def _is_other(scenario: Scenario) -> bool:
    """Whether the id names something else than this object's class with default options."""
    try:
        if load("scenarios", scenario.id) is not type(scenario):
            return True
        fresh_one, this = vars(type(scenario)()), {name: value for name, value in vars(scenario).items() if name != "id"}
        return repr(fresh_one) != repr(this)
    except Exception:
        return True


def _is_default(kit: Kit) -> bool:
    try:
        own = kit.scenario.tasks("train")
        return all(task is own[number] or task == own[number] for number, task in enumerate(kit.tasks))
    except Exception:
        return False


def _file(module: str) -> str | None:
    found = getattr(sys.modules.get(module), "__file__", None)
    return str(Path(found).resolve()) if found else None


def _rebuild(order: dict[str, Any]) -> Scenario:
    if not order["module"]:
        scenario = load("scenarios", order["id"])()
    else:
        try:
            module = importlib.import_module(order["module"]) if order["module"] != "__main__" else None
        except ImportError:
            module = None
        if module is None or (order["file"] and str(Path(getattr(module, "__file__", "") or "").resolve()) != order["file"]):
            spec = importlib.util.spec_from_file_location("_scenario_under_test", order["file"])
            if spec is None or spec.loader is None:
                raise NotImportable(order["module"])
            module = importlib.util.module_from_spec(spec)
            sys.modules["_scenario_under_test"] = module
            spec.loader.exec_module(module)
        cls: Any = module
        for part in order["attribute"].split("."):
            cls = getattr(cls, part)
        scenario = cls.__new__(cls)
        vars(scenario).update(_unpacked(order["state"]))
    scenario.id = order["id"]
    return scenario


def main() -> None:
    """Reads an order on stdin, writes digests on stdout."""
    order = json.load(sys.stdin)
    scenario = _rebuild(order)
    tasks = (
        _unpacked(order["tasks"])
        if order["tasks"] is not None
        else [task for task, _ in zip(scenario.tasks("train"), range(order["count"]), strict=False)]
    )
    print(json.dumps(digests(scenario, tasks, order["seeds"], order["cap"])))


if __name__ == "__main__":
    main()
