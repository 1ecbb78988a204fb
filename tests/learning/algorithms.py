"""ReBN, REINFORCE, GRPO and PPO on guess_number with a tiny language model: the table as it comes, no order promised.

    python tests/learning/algorithms.py [--updates 110] [--episodes 256] [--seeds 3] [--rates 1e-3 2e-3 4e-3] [--chosen-on 1] [--tables]

Every algorithm plays the same number of episodes from the same start: a seed has one model, cloned from the same blind guesses. GRPO plays its
episodes in groups of 8 from one number; PPO has a critic of its own, which costs about as much again per update. The learning rate of each is
the best of `--rates` by mean sampled success on `--chosen-on` seeds from 100 on, which the table does not use. `--tables` takes a softmax table
in place of the model (rates 0.03 0.1 0.3): a minute, no torch. Success is of 2048 plays on seeds never trained on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gem_ma import config
from gem_ma.training.train import run_training

CONFIGS = Path(__file__).parents[2] / "configs"
ALGORITHMS = {
    "ReBN": ("train.estimator.name=rebn",),
    "REINFORCE": ("train.estimator.name=reinforce",),
    "GRPO": ("train.estimator.name=grpo", "train.group_size=8"),
    "PPO": ("train.estimator.name=gae",),
}


def learn(given: argparse.Namespace, folder: Path, name: str, rate: float, seed: int) -> dict[str, float]:
    """One run: sampled and greedy success before and after, and its CPU seconds."""
    overrides = [*ALGORITHMS[name], f"train.lr={rate}", f"run.seed={seed}", f"train.steps={given.updates}", f"train.episodes={given.episodes}"]
    overrides += [f"evaluate.episodes={given.exam}"]
    if not given.tables:
        from gem_ma.engines.tiny import make_model

        model = folder / f"model-{seed}"
        if not model.exists():
            make_model(model, "guess_number", seed=seed)
        overrides += [f"policies.player.model=transformers/{model}", f"train.warm_start.player.seed={seed}"]
    start = time.process_time()
    summary = run_training(config.load(CONFIGS / ("guess_number_table.yaml" if given.tables else "guess_number.yaml"), overrides).config)
    found = {f"{how} {when}": summary[when][how]["success"] for when in ("before", "after") for how in ("sampled", "greedy")}
    seconds = time.process_time() - start
    print(f"  {name:10} lr {rate:<7g} seed {seed:<4} sampled {found['sampled before']:.3f} -> {found['sampled after']:.3f}, ", end="")
    print(f"greedy {found['greedy before']:.3f} -> {found['greedy after']:.3f}, {seconds:.0f} CPU s", flush=True)
    return {**found, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=110)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--exam", type=int, default=2048)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--chosen-on", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    rates = given.rates or ([0.03, 0.1, 0.3] if given.tables else [1e-3, 2e-3, 4e-3])
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for algorithm in given.only:
            tried = {}
            for rate in rates if len(rates) > 1 else ():
                scores = [learn(given, folder, algorithm, rate, 100 + n)["sampled after"] for n in range(given.chosen_on)]
                tried[rate] = sum(scores) / len(scores)
            best = max(tried, key=tried.__getitem__) if tried else rates[0]
            runs = [learn(given, folder, algorithm, best, seed) for seed in range(given.seeds)]
            rows.append((algorithm, best, runs))
    print(f"\nguess_number 1..10, 4 turns; {given.updates} updates of {given.episodes} episodes; baselines: blind .344, no repeats .40, halving 1.00")
    print("| algorithm | lr | before, sampled | after, sampled, by seed | mean | after, greedy, by seed | CPU s |\n|---|---|---|---|---|---|---|")
    for algorithm, best, runs in rows:
        after = [run["sampled after"] for run in runs]
        shown = [" ".join(f"{run[key]:.3f}" for run in runs) for key in ("sampled before", "sampled after", "greedy after")]
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        print(f"| {algorithm} | {best:g} | {shown[0]} | {shown[1]} | {sum(after) / len(after):.3f} | {shown[2]} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
