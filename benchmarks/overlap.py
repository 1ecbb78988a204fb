"""Seconds of a training step: one process, playing ahead (`train.overlap`), and two processes.
`benchmarks/overlap.py [STEPS [EPISODES]]`.

Prints ratios to one process without overlap; medians over the steps after the first two. Two
cores should be free: with fewer nothing can be gained. A second size, d256 and 4 layers, shows
what is left of it where passes are long enough to leave Python alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
SIZES = {
    "d64, 2 layers": {},
    "d256, 4 layers": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4},
}
WAYS = {
    "one process": (),
    "overlap": ("train.overlap=true",),
    "two processes": ("--processes", "2"),
    "both": ("train.overlap=true", "--processes", "2"),
}


def model(folder: Path, changes: dict[str, int]) -> Path:
    """A tiny model for the game, or one of another size over the same tokenizer."""
    from gem_ma.engines.local.tiny import make_model

    make_model(str(folder), "guess_number")
    if changes:
        import torch
        import transformers

        torch.manual_seed(0)
        given = transformers.AutoConfig.from_pretrained(folder)
        # one entry per layer
        kept = {key: value for key, value in given.to_dict().items() if key != "layer_types"}
        transformers.AutoModelForCausalLM.from_config(
            type(given)(**{**kept, **changes})
        ).save_pretrained(folder)
    return folder


def seconds(where: Path, weights: Path, steps: int, episodes: int, *words: str) -> dict[str, float]:
    """Medians of one step, by phase."""
    line = [
        sys.executable,
        "-m",
        "gem_ma",
        "train",
        str(ROOT / "configs" / "guess_number.yaml"),
        f"policies.player.model=transformers/{weights}",
    ]
    line += [
        "train.warm_start={}",
        f"train.steps={steps}",
        f"train.episodes={episodes}",
        f"train.save_every={steps}",
        "evaluate.episodes=8",
    ]
    line += ["run.baselines=false", "--quiet", "--out", str(where), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(
        line, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    rows = [json.loads(row) for row in (where / "timings.jsonl").read_text().splitlines()]
    kept = [row for row in rows if "step_s" in row][2:-1]  # the last step plays nothing ahead
    return {
        name: statistics.median(row[name] for row in kept)
        for name in ("step_s", "play_s", "update_s")
    }


def main(steps: int = 8, episodes: int = 128) -> None:
    for size, changes in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            weights = model(Path(folder, "model"), changes)
            alone = 0.0
            for number, (way, words) in enumerate(WAYS.items()):
                told = seconds(Path(folder, str(number)), weights, steps, episodes, *words)
                alone = alone or told["step_s"]
                shown = (
                    f"step {told['step_s']:.2f} s (play {told['play_s']:.2f}, update"
                    f" {told['update_s']:.2f})"
                )
                print(
                    f"{size}, {way}: {shown}, {alone / told['step_s']:.2f} x one process",
                    flush=True,
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
