"""Rule 1 in fresh processes: two interpreters with different string hashes must play as this one
does.

How a scenario gets there is in `gem_ma.testing.travel`; what cannot is said to be untested.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from gem_ma.kernel.scenario import Scenario
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.traces import trace
from gem_ma.testing.travel import NotImportable, described, packed, rebuilt, unpacked

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
