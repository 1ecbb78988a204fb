"""Who finds the act that lost a play: readers, blame rules, forks and constants.

    python benchmarks/readers.py [--logs ../shared/who_and_when] [--model transformers/models/smollm2]
        [--most 120] [--logs-read 126] [--talks 25]

On logs of others whose fault people have named (Who&When, Zhang et al., 2025, arXiv 2505.00212), and on
talks of ours: the careful assistant of retail with one act of a weaker one planted, so that the truth
is known. A reader is a policy (`gem_ma.scores.judge.read_fault`), asked once a play.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import Plan, Seat, attribution, make, play
from gem_ma.driver.behaviour import as_factory
from gem_ma.driver.behaviour import seat as seated
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Sampling
from gem_ma.scores.judge import Said, fault_of, read_fault, said_in
from gem_ma.scores.stats import mean_interval

LOGS = Path(__file__).resolve().parents[2] / "shared" / "who_and_when"
SETS = ("Algorithm-Generated", "Hand-Crafted")
WEAKER = ("forgets_to_confirm", "wrong_item", "transfers_early", "drops_write", "refuses_more")
Named = tuple[int | None, str]  # step and agent


class Lost(NamedTuple):
    """A lost play: what it was about, its acts, and which of them people or we say lost it."""

    about: str
    acts: tuple[Said, ...]
    truth: Named


def logs(folder: Path, name: str) -> list[Lost]:
    """The logs of one set of Who&When, by their numbers. Steps are the places in the history, from
    0; labels are strings, and some name no place."""
    found = []
    files = (folder / "Who&When" / name).glob("*.json")
    for file in sorted(files, key=lambda file: int(file.stem)):
        log = json.loads(file.read_text("utf-8"))
        acts = tuple(
            # Magentic-One writes one agent as `Orchestrator (thought)` and `Orchestrator (-> X)`
            Said(step, (each.get("name") or each["role"]).partition(" (")[0], each["content"])
            for step, each in enumerate(log["history"])
        )
        found.append(Lost(log["question"], acts, (int(log["mistake_step"]), log["mistake_agent"])))
    return found


def constants(plays: Sequence[Lost]) -> dict[str, list[Named]]:
    """What is named without reading: the first speaker with step 1, who speaks most with its first
    step."""
    first = [(1, each.acts[0].agent) for each in plays]
    most = []
    for each in plays:
        # human: who asks, and never at fault
        agents = [act.agent for act in each.acts if act.agent != "human"]
        agent = Counter(agents).most_common(1)[0][0]
        most.append((next(act.step for act in each.acts if act.agent == agent), agent))
    return {"first speaker, step 1": first, "most frequent speaker": most}


async def read(reader: Policy, plays: Sequence[Lost], most: int) -> list[Named]:
    found = [await read_fault(reader, each.acts, each.about, most=most) for each in plays]
    return [(fault.step, fault.agent) if fault else (None, "") for fault in found]


def row(of: str, who: str, plays: Sequence[Lost], named: Sequence[Named]) -> str:
    pairs = [(each.truth, one) for each, one in zip(plays, named, strict=True)]
    agents = mean_interval([float(true[1] == one[1]) for true, one in pairs], rate=True)
    steps = mean_interval([float(true[0] == one[0]) for true, one in pairs], rate=True)
    silent = sum(one[0] is None for one in named)
    shares = (f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in (agents, steps))
    return f"| {of} | {who} | {len(plays)} | {' | '.join(shares)} | {silent} |"


# -- talks whose fault is known --------------------------------------------------------------------


class Planted:
    """Plays as the careful assistant, but for one act: the first one that a weaker assistant does
    otherwise. `step` is that of the act."""

    def __init__(self, weaker: str) -> None:
        self.weaker = weaker
        self.step: int | None = None

    def sit(self, agent: str, sample: Any, rng: Any, task: Any = None) -> Planted:
        names = ("retail_scripted", f"retail_{self.weaker}")
        self.careful, self.weak = (
            seated(as_factory(name), agent, sample, rng, task) for name in names
        )
        return self

    async def act(self, asked: Any) -> Any:
        right = await self.careful.act(asked)
        if self.step is None:
            wrong = await self.weak.act(asked)
            if wrong != right:
                self.step = asked.step
                return wrong
        return right


async def planted(shop: Any, talks: int) -> list[tuple[Episode, int]]:
    """Talks that were lost by an act of a weaker assistant, with its step."""
    cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    lost = []
    for weaker in WEAKER:
        for number in range(talks):
            player = Planted(weaker)
            plan = Plan(shop, cast, f"test/{number}", number)
            episode = await play(plan, {}, {"assistant": player.sit})
            if player.step is not None and shop.success(episode) is False:
                lost.append((episode, player.step))
    return lost


async def ours(talks: int, reader: Policy | None, most: int) -> Iterator[str]:
    shop = make("retail", data="own")
    found = await planted(shop, talks)
    plays = [
        Lost("A customer of a shop is served.", tuple(said_in(e)), (step, "assistant"))
        for e, step in found
    ]
    blamed = [fault_of(episode, shop.fault) for episode, _ in found]
    named: dict[str, list[Named]] = {
        "the assistant's first act": [
            (next(act.step for act in each.acts if act.agent == "assistant"), "assistant")
            for each in plays
        ],
        "its last act": [
            (max(act.step for act in each.acts if act.agent == "assistant"), "assistant")
            for each in plays
        ],
        "blame rules": [(one.step, one.agent) if one else (None, "") for one in blamed],
        "forks": [await _decided(shop, episode) for episode, _ in found],
    }
    if reader is not None:
        named[f"reader {reader.name}"] = await read(reader, plays, most)
    return iter([row("retail, planted", who, plays, each) for who, each in named.items()])


async def _decided(shop: Any, episode: Episode) -> Named:
    turn, _ = await attribution.decisive_turn(
        attribution.Forks(shop, episode),
        "assistant",
        "retail_scripted",
        success=shop.success,
        plays=2,
    )
    return (turn.step, "assistant") if turn else (None, "")


async def tables(given: argparse.Namespace) -> None:
    reader = None
    if given.model:
        engine = open_engine("reader", given.model, constrain="legal", dtype="auto")
        reader = Policy(
            given.model.rpartition("/")[2], engine, Sampling(temperature=0, max_tokens=24)
        )
    print("| plays | named by | n | agent | step | names nothing |\n|---|---|---:|---|---|---:|")
    for name in SETS:
        plays = logs(given.logs, name)
        for who, named in constants(plays).items():
            print(row(name, who, plays, named), flush=True)
        if reader is not None and (part := plays[: given.logs_read] if name == SETS[0] else []):
            named = await read(reader, part, given.most)
            print(row(name, f"reader {reader.name}", part, named), flush=True)
    for line in await ours(given.talks, reader, given.most):
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--logs", type=Path, default=LOGS)
    parser.add_argument("--model", help="a reader, ENGINE/NAME")
    parser.add_argument("--most", type=int, default=120, help="characters of an act")
    parser.add_argument("--logs-read", type=int, default=126, help="generated logs for the reader")
    parser.add_argument("--talks", type=int, default=25, help="of each weaker assistant")
    asyncio.run(tables(parser.parse_args()))


if __name__ == "__main__":
    main()
