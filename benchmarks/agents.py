"""What one more agent that learns costs: CPU seconds and memory of a step, with one policy for all
and with a policy each.

    python benchmarks/agents.py [--steps 4]

The worlds are `configs/public_goods_each.yaml` (tables) and `configs/public_goods_lora.yaml`
(LoRA adapters on one base). Each row is a process of its own, since its peak (resident memory,
`ru_maxrss`) is of the whole process. What an agent costs is the difference to the first row of
its kind; what a play costs grows with its agents in any case, which the shared rows show.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gem_ma
from benchmarks.memory import GIB, peak
from gem_ma.engines.local.tiny import make_model

ROWS = {  # config, and how many agents
    "tables": ("public_goods_each", (2, 8, 32)),
    "LoRAs": ("public_goods_lora", (2, 8)),
}
MIB = GIB / (1 << 20)


def measured(kind: str, agents: int, policies: str, steps: int) -> dict[str, float]:
    """CPU seconds of a step in the median, and MiB at the peak."""
    name = "main" if policies == "one" else '"{agent}"'
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        made = "model: table/softmax, optimizer: adam"
        if kind == "LoRAs":
            make_model(f"{folder}/model", "public_goods")
            made = f"model: transformers/{folder}/model, lora: {{rank: 8}}, max_tokens: 4"
        words = [
            f"scenario.agents={agents}",
            f"agents.player_*.policy={name}",
            f"policies={{{name}: {{{made}}}}}",
            f"train.policies=[{name}]",
            f"train.steps={steps}",
            "train.episodes=32",
            "evaluate.episodes=1",
            "run.baselines=false",
        ]

        def note(*_: Any) -> None:
            ends.append(time.process_time())

        gem_ma.train(ROWS[kind][0], words, out=f"{folder}/run", on_step=note)
    # the first step compiles and opens what the others find open
    return {"cpu": statistics.median(b - a for a, b in pairwise(ends)), "mib": peak() * MIB}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        kind, agents, policies = given.row
        print(json.dumps(measured(kind, int(agents), policies, given.steps)))
        return
    print("| learns | policies | agents | CPU s a step | ms an agent | peak MiB | MiB an agent |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for kind, (_, counts) in ROWS.items():
        for policies in ("one", "each"):
            rows: list[tuple[int, dict[str, Any]]] = []
            for agents in counts:
                words = ["--steps", str(given.steps), "--row", kind, str(agents), policies]
                ran = subprocess.run(
                    [sys.executable, __file__, *words], check=True, capture_output=True, text=True
                )
                rows.append((agents, json.loads(ran.stdout.splitlines()[-1])))
                print(row(kind, policies, *rows[-1], *rows[0]), flush=True)


def row(
    kind: str,
    policies: str,
    agents: int,
    found: dict[str, float],
    fewest: int,
    base: dict[str, float],
) -> str:
    more = agents - fewest
    each = (
        (1000 * (found["cpu"] - base["cpu"]) / more, (found["mib"] - base["mib"]) / more)
        if more
        else None
    )
    per = [f"{value:.1f}" for value in each] if each else ["", ""]
    return (
        f"| {kind} | {policies} | {agents} | {found['cpu']:.3f} | {per[0]} | {found['mib']:.0f} |"
        f" {per[1]} |"
    )


if __name__ == "__main__":
    main()
