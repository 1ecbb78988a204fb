"""ReBN, REINFORCE, GRPO and PPO on one world with tiny language models: the table as it comes, no
order promised.

    python tests/learning/algorithms.py [--world guess_number|referential|retail_train] [--seeds 3]
    [--rates 1e-3 2e-3] [--chosen-on 1] [--tables]

Worlds are configs: `guess_number` has one agent and several turns, in `referential` two agents
learn, in `retail_train` an assistant in front of a scripted customer. Every algorithm plays the
same number of episodes from the same start: `run.seed` draws its models, its demonstrations and
its plays. GRPO plays its episodes in groups of 8 from one start; PPO has a critic of its own,
which costs about as much again per update. The learning rate of each is the best of `--rates` by
mean sampled success on `--chosen-on` seeds from 100 on, which the table does not use. `--tables`
takes softmax tables in place of the models: a minute, no torch. Success is of plays on seeds
never trained on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gem_ma import config, make
from gem_ma.training.train import run_training

CONFIGS = Path(__file__).parents[2] / "configs"
# rates that are tried
WORLDS = {
    "guess_number": (1e-3, 2e-3, 4e-3),
    "referential": (7e-4, 1.5e-3, 3e-3),
    "retail_train": (5e-4, 1e-3, 2e-3),
}
TABLE_RATES = (0.03, 0.1, 0.3)
ALGORITHMS = {
    "ReBN": ("train.estimator={name: rebn}",),
    "REINFORCE": ("train.estimator={name: reinforce}",),
    "GRPO": ("train.estimator={name: grpo}", "train.group_size=8"),
    "PPO": ("train.estimator={name: gae}",),
}


def learn(
    given: argparse.Namespace, folder: Path, name: str, rate: float, seed: int
) -> dict[str, float]:
    """One run: sampled and greedy success before and after, and its CPU seconds."""
    world = config.load(CONFIGS / f"{given.world}{'_table' * given.tables}.yaml")
    overrides = [*ALGORITHMS[name], f"train.lr={rate}", f"run.seed={seed}"]
    overrides += [
        f"{key}={value}"
        for key, value in (("train.steps", given.updates), ("train.episodes", given.episodes))
        if value
    ]
    if not given.tables:
        from gem_ma.engines.local.tiny import make_model

        model = folder / "model"
        if not model.exists():
            make_model(model, world.config.scenario.id)
        overrides += [
            f"policies.{policy}.model=transformers/{model}" for policy in world.config.policies
        ]
    start = time.process_time()
    summary = run_training(config.load(world.path, overrides).config)
    found = {
        f"{how} {when}": summary[when][how]["success"]
        for when in ("before", "after")
        for how in ("sampled", "greedy")
    }
    seconds = time.process_time() - start
    print(
        f"  {name:10} lr {rate:<7g} seed {seed:<4} sampled {found['sampled before']:.3f} ->"
        f" {found['sampled after']:.3f}, ",
        end="",
    )
    print(
        f"greedy {found['greedy before']:.3f} -> {found['greedy after']:.3f}, {seconds:.0f} CPU s",
        flush=True,
    )
    return {**found, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", choices=WORLDS, default="guess_number")
    parser.add_argument("--updates", type=int, help="the config's, if not given")
    parser.add_argument("--episodes", type=int, help="the config's, if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--chosen-on", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    rates = given.rates or (TABLE_RATES if given.tables else WORLDS[given.world])
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for algorithm in given.only:
            tried = {}
            for rate in rates if len(rates) > 1 else ():
                scores = [
                    learn(given, folder, algorithm, rate, 100 + n)["sampled after"]
                    for n in range(given.chosen_on)
                ]
                tried[rate] = sum(scores) / len(scores)
            best = max(tried, key=tried.__getitem__) if tried else rates[0]
            runs = [learn(given, folder, algorithm, best, seed) for seed in range(given.seeds)]
            rows.append((algorithm, best, runs))
    scenario = config.load(CONFIGS / f"{given.world}.yaml").config.scenario
    known = ", ".join(f"{name} {value:.3f}" for name, value in make(scenario.id).baselines.items())
    print(f"\n{given.world}{'_table' * given.tables}; baselines: {known or 'none known'}")
    print(
        "| algorithm | lr | before, sampled | after, sampled, by seed | mean | after, greedy, by"
        " seed | CPU s |\n|---|---|---|---|---|---|---|"
    )
    for algorithm, best, runs in rows:
        after = [run["sampled after"] for run in runs]
        shown = [
            " ".join(f"{run[key]:.3f}" for run in runs)
            for key in ("sampled before", "sampled after", "greedy after")
        ]
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        print(
            f"| {algorithm} | {best:g} | {shown[0]} | {shown[1]} | {sum(after) / len(after):.3f} |"
            f" {shown[2]} | {seconds:.0f} |"
        )


if __name__ == "__main__":
    main()
