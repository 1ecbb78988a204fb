"""Each shipped recipe that learns, on seeds that nobody chose: median and worst, as the first lines
of its file say them.

    python benchmarks/recipes.py [RECIPE ...] [KEY=VALUE ...] [--seeds 20] [--first 1000]

Recipes come in the order of what they cost; all of them take about ten CPU hours. A seed that is
in `--out` already is not trained again, so that what was interrupted goes on. Left out are the
recipes that need a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gem_ma

ROOT = Path(__file__).resolve().parents[1]


class Measure(NamedTuple):
    """Where a number stands in an exam, and whether less of it is better."""

    name: str
    path: tuple[str, ...]
    low: bool = False


SUCCESS = Measure("sampled success", ("sampled", "success"))
AVERAGED = Measure("averaged NashConv", ("nash_conv_averaged",), low=True)
LAST = Measure("last NashConv", ("nash_conv",), low=True)


def returned(agent: str) -> Measure:
    return Measure(f"return of {agent}", ("sampled", "return", agent))


HEAD = Measure("mean return", ("sampled", "return"))  # of all agents
ALONE = HEAD._replace(low=True)  # where each does right that makes all worse off


def against(anchor: str, side: str) -> Measure:
    return Measure(f"{side} against {anchor}", (f"against {anchor}", "players", "main", side))


RECIPES: dict[str, tuple[Measure, ...]] = {  # the cheapest first
    "stop_or_go": (returned("walker"),),
    "hanoi_table": (SUCCESS,),
    "commons_selfish": (HEAD, SUCCESS),
    "public_goods_selfish": (ALONE,),
    "public_goods_shared": (HEAD,),
    "public_goods_each": (ALONE,),
    "hanoi_team": (SUCCESS,),
    "kuhn_offset": (AVERAGED,),
    "referential_table": (SUCCESS,),
    "guess_number_discount": (SUCCESS, Measure("turns", ("sampled", "turns"), low=True)),
    "tic_tac_toe": tuple(
        against(anchor, side)
        for anchor in ("random_legal", "tic_tac_toe_perfect")
        for side in ("x", "o")
    ),
    "guess_number_forks": (SUCCESS,),
    "teamwork_teach_table": (SUCCESS,),
    "guess_number_table": (SUCCESS,),
    "mixture": (
        Measure("sampled success", ("sampled numbers", "success")),
        Measure("averaged NashConv", ("nash_conv_averaged cards",), low=True),
    ),
    "referential_base": (SUCCESS,),
    "kuhn_deaf": (Measure("averaged exploitability", ("exploitability_averaged",), low=True),),
    "referential": (SUCCESS,),
    "referential_lora": (SUCCESS,),
    "commons_shared": (HEAD, SUCCESS),
    "kuhn_table": (AVERAGED, LAST),
    "network_sum": (HEAD, SUCCESS),
    "public_goods_lora": (ALONE,),
    "kuhn_tiny": (Measure("averaged exploitability", ("exploitability_averaged",), low=True),),
    "kuhn_league": (AVERAGED, LAST),
    "negotiation": (HEAD, SUCCESS),
    "retail_train": (SUCCESS,),
    "cotrain": (SUCCESS,),
    "guess_number": (SUCCESS,),
    "arithmetic": (SUCCESS,),
    "shapes": (SUCCESS,),
    "smollm2_dilemma": (returned("player_0"),),
    "smollm2_guess_number": (SUCCESS,),
}


def read(exam: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = exam
    for key in path:
        value = value[key]
    return statistics.fmean(value.values()) if isinstance(value, dict) else float(value)


def prepare(recipe: Path) -> None:
    """Types the commands that the first lines of the recipe ask for, where they were not yet."""
    for line in re.findall(r"^# (?:First|Then): +(gem-ma .*)$", recipe.read_text("utf-8"), re.M):
        words = shlex.split(line)[1:]
        made = words[words.index("--out") + 1] if "--out" in words else words[2]
        if not Path(made).exists():
            subprocess.run([sys.executable, "-m", "gem_ma", *words], check=True)


def trained(recipe: Path, seed: int, overrides: list[str]) -> dict[str, Any]:
    folder = Path("run", recipe.stem)
    words = [*overrides, f"run.seed={seed}", "run.baselines=false"]
    start = time.process_time()
    summary = gem_ma.train(str(recipe), words, out=folder, fresh=True)
    shutil.rmtree("run")  # a table of Kuhn poker leaves 90 MB
    values = {
        measure.name: [read(summary[when], measure.path) for when in ("before", "after")]
        for measure in RECIPES[recipe.stem]
    }
    return {"seed": seed, "cpu": time.process_time() - start, "values": values}


def table(name: str, found: list[dict[str, Any]]) -> None:
    for measure in RECIPES[name]:
        before, after = zip(*(each["values"][measure.name] for each in found), strict=True)
        ends = sorted(after, reverse=measure.low)
        middle, start = statistics.median(ends), statistics.median(before)
        spent = statistics.median(each["cpu"] for each in found)
        print(
            f"| {name} | {measure.name} | {len(found)} | {start:.3f} | {middle:.3f} | {ends[0]:.3f}"
            f" | {ends[-1]:.3f} | {spent:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("words", nargs="*", metavar="RECIPE|KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "recipes")
    given = parser.parse_args()
    overrides = [word for word in given.words if "=" in word]
    names = [word for word in given.words if "=" not in word] or list(RECIPES)
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(given.out)  # where models/NAME of a recipe is looked for
    print("| recipe | measure | seeds | before | median | worst | best | CPU s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name in names:
        recipe = ROOT / "configs" / f"{name}.yaml"
        prepare(recipe)
        ends = Path(" ".join([name, *overrides]).replace("/", "_") + ".jsonl")
        lines = ends.read_text("utf-8").splitlines() if ends.exists() else []
        found = {each["seed"]: each for each in map(json.loads, lines)}
        wanted = range(given.first, given.first + given.seeds)
        for seed in wanted:
            if seed not in found:
                found[seed] = trained(recipe, seed, overrides)
                with ends.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found[seed]) + "\n")
        table(name, [found[seed] for seed in wanted])


if __name__ == "__main__":
    main()
