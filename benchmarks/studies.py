"""The studies that are shipped with what came out: played or trained anew, kept as numbers by seed,
and told on docs/findings.md with a picture each.

    python benchmarks/studies.py [STUDY ...] [--seeds 5] [--first 1000] [--write]
    python benchmarks/studies.py --tell

A study is a list of arms that each give a few numbers for a seed; a seed is the unit, and an arm is
compared with the first of its world on the same seeds. `--write` keeps the numbers in
experiments/studies and tells them on the page; `--tell` does the last alone, of what is kept.
"""

from __future__ import annotations

import argparse
import atexit
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser

import gem_ma
from gem_ma import attribution
from gem_ma.cli.new import command as new
from gem_ma.scores.stats import mean_interval, paired

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "experiments" / "studies"
PAGE = ROOT / "docs" / "findings.md"
PICTURES = ROOT / "docs" / "pictures"
RATES = ("success", "share", "solved", "team", "found", "lies", "agreed")  # numbers in 0..1
Numbers = dict[str, float]
Arm = tuple[str, str, Numbers]  # world, arm, what it came to


def _trained(config: str, seed: int, *words: str, out: str = "") -> dict[str, Any]:
    """The summary of one training."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = (f"run.seed={seed}", "run.baselines=false")
        return dict(gem_ma.train(config, [*words, *quiet], out=out or Path(folder, "run")))


def _played(source: str, seed: int, *words: str, n: int | None = None) -> dict[str, Any]:
    """The summary of one run."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = (f"run.seed={seed}", "run.baselines=false")
        return dict(gem_ma.run(source, [*words, *quiet], n=n, out=Path(folder, "run")))


def _sampled(summary: Mapping[str, Any], when: str = "after") -> Numbers:
    """Success, the mean return of all agents and the measures of an exam."""
    exam = summary[when]["sampled"]
    paid = {"return": fmean(exam["return"].values())}
    won = {"success": exam["success"]} if exam["success"] is not None else {}
    return {**paid, **won, **exam["scores"]}


def _table(policy: str = "{agent}", window: str = "memory: {window: 1}") -> tuple[str, str]:
    """Seats and policies of tables, in place of those that a config has."""
    return (
        f'agents={{"*": {{policy: "{policy}", {window}}}}}',
        f'policies={{"{policy}": {{model: table/softmax, optimizer: adam}}}}',
    )


# -- who learns ------------------------------------------------------------------------------------

NETWORK = (
    *_table(window="memory: {window: 1, first: 0}"),
    "train.warm_start={}",
    "train.lr=0.1",
    "train.lr_final=1",
    "train.lr_warmup=0",
    "train.steps=60",
    "train.episodes=128",
    "train.estimator={name: rebn, key: [agent, k]}",
    "train.loss={entropy: 0.02}",
)


def learners(seed: int) -> Iterator[Arm]:
    """Which subset of the agents learns, the others frozen as they began."""
    for who in ("", "speaker", "listener", "speaker, listener"):
        found = _trained("referential_table", seed, f"train.policies=[{who}]")
        yield "referential", who or "nobody", _sampled(found)
    for who in ("", "node_0", "node_0, node_1", "node_0, node_1, node_2"):
        # a policy that nobody trains is a random table, as the learners begin
        found = _trained("network_sum", seed, *NETWORK, f"train.policies=[{who}]")
        yield "network of three", who or "nobody", _sampled(found)


# -- which side of a bargain learns ----------------------------------------------------------------


@cache
def _bargainer() -> str:
    """A model that cloned simple bargainers, and learned next to nothing beyond; kept until the
    program ends."""
    folder = tempfile.mkdtemp(prefix="bargainer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model = f"{folder}/made"
    new.main(["model", model, "--scenario", "negotiation"], standalone_mode=False)
    words = (f"policies.main.model=transformers/{model}", "train.steps=1", "train.lr=1e-12")
    _trained("negotiation", 0, *words, out=f"{folder}/run")
    return f"transformers/{folder}/run/models/main"


def sides(seed: int) -> Iterator[Arm]:
    """Which side of a negotiation learns, each paid for itself. All begin as the same clone."""
    both = ("first", "second")
    seats = (
        f"party_{at}: {{policy: {who}, memory: {{window: 1}}}}" for at, who in enumerate(both, 1)
    )
    models = (f"{who}: {{model: {_bargainer()}, max_tokens: 8}}" for who in both)
    words = (
        f"agents={{{', '.join(seats)}}}",
        f"policies={{{', '.join(models)}}}",
        "train.warm_start={}",
        "evaluate.every=null",
    )
    for who in ("", "first", "second", "first, second"):
        found = _trained("negotiation", seed, *words, f"train.policies=[{who}]")
        exam = found["after"]["sampled"]
        paid = {who: exam["return"][f"party_{at}"] for at, who in enumerate(both, 1)}
        yield "negotiation", who or "nobody", {**paid, "agreed": exam["success"]}


# -- talk and fines --------------------------------------------------------------------------------


def goods(seed: int) -> Iterator[Arm]:
    """Public goods and a commons, each learner paid for itself, with talk, with fines."""
    own = (
        "train.credit={rule: until_next_turn, gamma: 0.9}",
        "evaluate.every=null",
        "train.steps=20",
    )
    arms = {
        "neither": (),
        "talk": ("scenario.talk=signals",),
        "fines": ("scenario.fines=3",),
        "talk and fines": ("scenario.talk=signals", "scenario.fines=3"),
    }
    for arm, words in arms.items():
        found = _trained("public_goods_selfish", seed, *own, "scenario.rounds=3", *words)
        yield "public goods, four learn", arm, {"share": _sampled(found)["contribution"]}
    bots = {"neither": ("goods_conditional", 0), "fines": ("goods_punisher", 3)}
    for arm, (bot, fine) in bots.items():
        seats = f"agents={{player_0: {{policy: main, memory: {{window: 1}}}}, '*': {bot}}}"
        words = ("scenario.rounds=3", f"scenario.fines={fine}", seats)
        found = _trained("public_goods_selfish", seed, *own, *words)
        yield (
            "public goods, one learns among three",
            arm,
            {"share": _sampled(found)["contribution"]},
        )
    for arm in ("none", "signals"):
        words = (f"scenario.talk={arm}", "train.steps=30", "evaluate.every=null")
        found = _trained("commons_selfish", seed, *words)
        name = "talk" if arm == "signals" else "neither"
        yield "commons, five learn", name, {"share": _sampled(found)["survival"]}


# -- partners that one has not met -----------------------------------------------------------------

PARTNERS = 3


def partners(seed: int) -> Iterator[Arm]:
    """A game of four conventions: with oneself, with who learned elsewhere, and what learning with a
    population brings."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PARTNERS + 1):
            place = str(Path(folder, str(number)))
            alone = _trained("study_partners", 100 * seed + number, out=place)
        tables = [f"table/{folder}/{number}/models/main" for number in range(PARTNERS + 1)]
        met = {f"p{n}": {"model": model} for n, model in enumerate(tables[:-1])}
        policies = {"main": {"model": "table/softmax", "optimizer": "adam"}, **met}
        shares = {"latest": 0, "anchors": dict.fromkeys(met, 1 / PARTNERS)}
        wide = str(Path(folder, "wide"))
        many = (f"policies={json.dumps(policies)}", f"train.opponents={json.dumps(shares)}")
        _trained("study_partners", seed, *many, "train.seats=swap", out=wide)
        yield "own partner", "self-play", {"points": _sampled(alone)["return"]}
        stranger = tables[-1]
        for arm, model in (("self-play", tables[0]), ("population", f"table/{wide}/models/main")):
            models = {"player_0": {"model": model}, "player_1": {"model": stranger}}
            seats = {name: {"policy": name, "memory": {"window": 1}} for name in models}
            words = (f"policies={json.dumps(models)}", f"agents={json.dumps(seats)}")
            found = _played("study_partners", seed, *words, "train.policies=[]", n=64)
            paid = found["returns"]["player_0"]["mean"]
            yield "a stranger", arm, {"points": paid}


# -- how many --------------------------------------------------------------------------------------


def sizes(seed: int) -> Iterator[Arm]:
    """Networks of 2 to 32: scripted players of three strengths, and one table in all seats."""
    for count in (2, 4, 8, 16, 32):
        world = ("scenario.problem=consensus", f"scenario.agents={count}", "scenario.values=2")
        for who in ("random_legal", "network_simple", "network_strong"):
            found = _played("network", seed, *world, f"agents.node_*={who}", n=50)
            yield f"{count} agents", who, {"solved": found["success"]["mean"]}
        if count > 4:
            continue
        words = (*NETWORK, *_table("main", "memory: {window: 1, first: 0}"), *world[:2])
        size = ("scenario.rounds=4", "scenario.values=2", "train.steps=25", "train.episodes=32")
        own = ("scenario.problem=consensus", "scenario.anonymous=true", "evaluate.episodes=100")
        found = _trained("network_sum", seed, *words, *size, *own, "train.policies=[main]")
        yield f"{count} agents", "a table that learned", {"solved": _sampled(found)["solved"]}


# -- does a reviewer earn its words ----------------------------------------------------------------


def reviewers(seed: int) -> Iterator[Arm]:
    """What a reviewer who errs adds to a proposer who errs, and the words that it says for it."""
    for arm, slips in (("sure", 0.0), ("errs half the time", 0.5), ("draws lots", 1.0)):
        yield "questions", arm, _reviewed(seed, "questions", "question_oracle", slips)


def _reviewed(seed: int, world: str, knows: str, slips: float) -> Numbers:
    """Shapley values of what the team wins: each seat as it is, or silent."""
    team = {
        name: {"behaviour": "team_expert", "options": {"plays": knows, "slips": errs}}
        for name, errs in (("proposer", 0.5), ("reviewer_0", slips))
    }
    wrapped = "scenario.wrappers=[{teamwork: {pattern: propose_review, credit: team}}]"
    worth: dict[frozenset[str], float] = {}
    words = 0.0
    for present in (frozenset[str](), *map(frozenset, ("P", "R", "PR"))):
        seats = {
            name: seat if name[0].upper() in present else {"behaviour": "silent"}
            for name, seat in team.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            quiet = (f"run.seed={seed}", "run.baselines=false", wrapped, "scenario.split=train")
            run = gem_ma.run(
                world, [*quiet, f"agents={json.dumps(seats)}"], n=100, out=Path(folder, "run")
            )
            plays = list(run.episodes())
        worth[present] = fmean(play.returns()["proposer"] for play in plays)
        # of the last one, the whole team
        words = fmean(
            sum(len(t.action.text.split()) for t in play.turns if t.agent == "reviewer_0")
            for play in plays
        )
    share = attribution.shapley("PR", worth)["R"]
    return {"Shapley": share, "team": worth[frozenset("PR")], "words": words}


# -- attackers and defenders -----------------------------------------------------------------------


class Impostor(RetailUser):
    """Asks for what the task's customer wants, and tells a wrong address and postcode of whom it
    claims to be."""

    async def act(self, asked: Any) -> Any:
        action = await super().act(asked)
        text = re.sub(r"\b\d{5}\b", "00000", re.sub(r"\S+@\S+", "nobody@example.com", action.text))
        return type(action)(text, action.tool_calls, action.parsed)


def attackers(seed: int) -> Iterator[Arm]:
    """Customers who wear a desk out or claim to be somebody else, and desks with and without a
    care."""
    users = {
        "honest": "{behaviour: retail_user}",
        "uncooperative": "{behaviour: retail_user, options: {preset: uncooperative}}",
        "impostor": '{behaviour: "benchmarks.studies:Impostor"}',
    }
    desks = ("retail_scripted", "retail_forgets_to_confirm", "retail_trusts_the_user")
    for desk in desks:
        for user, seat in users.items():
            # another twenty tasks for each seed: scripts draw nothing
            tasks = list(range(20 * (seed % 25), 20 * (seed % 25) + 20))
            words = (f"agents.assistant={desk}", f"agents.user={seat}", "scenario.split=train")
            found = _played("retail_scripted", seed, *words, f"scenario.tasks={tasks}")
            measures = found["measures"]
            yield (
                desk,
                user,
                {
                    "violations": measures["hard violations"]["mean"],
                    "success": found["success"]["mean"],
                    "turns": measures["assistant turns"]["mean"],
                },
            )


# -- a liar that learns ----------------------------------------------------------------------------


def liars(seed: int) -> Iterator[Arm]:
    """Who answers is paid for what is not found, and fined for lies: honest, or learning to lie,
    beside a guesser that believes all, or that learns too."""
    for fine in (0.1, 1.0):
        world = ("animals=8", "turns=4", "answerer=rival", f"fine={fine}", "tasks=500")
        words = [f"scenario.{word}" for word in world]
        tables = [
            "train.lr=0.1",
            "train.episodes=128",
            "train.estimator={name: rebn, key: [agent, k]}",
            "train.loss={minibatches: 1, entropy: 0.02}",
            "evaluate={episodes: 512}",
        ]
        believes = "agents.guesser_0=twenty_questions_strong"
        found = _played(
            "twenty_questions",
            seed,
            *words,
            believes,
            "agents.answerer=twenty_questions_strong",
            n=500,
        )
        measured = _measured(found)
        paid = found["returns"]["guesser_0"]["mean"]
        yield f"fine of {fine}", "honest, believed", _of_liar(measured, paid)
        for arm, learners, guesser in (
            ("learns, believed", ["answerer"], believes),
            ("both learn", ["answerer", "guesser"], "agents.guesser_0={policy: guesser}"),
        ):
            models = {name: {"model": "table/softmax", "optimizer": "adam"} for name in learners}
            own = (
                "agents.answerer={policy: answerer}",
                guesser,
                f"policies={json.dumps(models)}",
                f"train.policies={json.dumps(learners)}",
                f"train.steps={40 * len(learners)}",
            )
            found = _trained("twenty_questions", seed, *words, *tables, *own)
            exam = found["after"]["sampled"]
            told = _of_liar(exam["scores"], exam["return"]["guesser_0"])
            yield f"fine of {fine}", arm, told


def _of_liar(measured: Mapping[str, float], paid: float) -> Numbers:
    asked = {name: measured[name] for name in ("found", "questions")}
    return {"guesser": paid, "lies told": measured["lies"], **asked}


def smollm2(seed: int) -> Iterator[Arm]:
    """A real language model in both seats: as it copied a script, after both learned from what they
    were paid, as it came, and the script."""
    found = _trained("study_smollm2", seed)
    yield "SmolLM2", "copied the script", _sampled(found, "before")
    yield "SmolLM2", "then both learned", _sampled(found)
    bare = _played("study_smollm2", seed, n=128)
    yield "SmolLM2", "as it came", _measured(bare)
    world = ("scenario.form=taboo", "scenario.animals=4", "scenario.turns=1")
    cast = ("scenario.forbidden=0", "agents.*=twenty_questions_strong")
    script = _played("twenty_questions", seed, *world, *cast, n=128)
    yield "SmolLM2", "the script itself", _measured(script)


def _measured(summary: Mapping[str, Any]) -> Numbers:
    return {name: each["mean"] for name, each in summary["measures"].items()}


class Study(NamedTuple):
    """`numbers` are shown, the first of them is drawn and compared."""

    of: Callable[[int], Iterator[Arm]]
    numbers: tuple[str, ...]
    seeds: int = 5


STUDIES = {
    "learners": Study(learners, ("success",)),
    "sides": Study(sides, ("first", "second", "agreed")),
    "goods": Study(goods, ("share",)),
    "partners": Study(partners, ("points",)),
    "sizes": Study(sizes, ("solved",)),
    "reviewers": Study(reviewers, ("Shapley", "team", "words")),
    "attackers": Study(attackers, ("violations", "success", "turns")),
    "liars": Study(liars, ("guesser", "found", "lies told", "questions")),
    "smollm2": Study(smollm2, ("found", "lies", "information"), 3),
}


def play(name: str, seeds: range) -> dict[str, Any]:
    """What the study came to: for each arm its numbers, one for each seed."""
    arms: dict[tuple[str, str], dict[str, list[float]]] = {}
    start = time.process_time()
    for seed in seeds:
        for world, arm, numbers in STUDIES[name].of(seed):
            row = arms.setdefault((world, arm), {number: [] for number in STUDIES[name].numbers})
            for number, values in row.items():
                values.append(round(float(numbers[number]), 6))
    return {
        "seeds": list(seeds),
        "cpu": round(time.process_time() - start),
        "arms": [{"world": world, "arm": arm, **row} for (world, arm), row in arms.items()],
    }


def lines(name: str, kept: Mapping[str, Any]) -> Iterator[str]:
    """The table of a study."""
    numbers = STUDIES[name].numbers
    yield f"| world | arm | {' | '.join(numbers)} | less the first, paired |"
    yield f"|---|---|{'---:|' * (len(numbers) + 1)}"
    first: Mapping[str, Any] = {}
    for row in kept["arms"]:
        told = " | ".join(_interval(number, row[number]) for number in numbers)
        less = ""
        if row["world"] != first.get("world"):
            first = row
        else:
            values = (each[numbers[0]] for each in (first, row))
            apart = paired(*values, kept["seeds"])
            less = f"{apart.difference:+.3f}{_spread(apart.low, apart.high)}"
        yield f"| {row['world']} | {row['arm']} | {told} | {less} |"


def _interval(number: str, values: list[float]) -> str:
    found = mean_interval(values, rate=number in RATES)
    # one seed has no interval; for a rate it would be written as 0 to 1
    is_known = len(values) > 1 and found.low < found.high
    return f"{found.mean:.3f}{_spread(found.low, found.high) if is_known else ''}"


def _spread(low: float, high: float) -> str:
    """An interval; "" of one seed, which has none."""
    return f" [{low:.3f}, {high:.3f}]" if isfinite(high - low) else ""


def picture(name: str, kept: Mapping[str, Any]) -> str:
    """The first number of each arm with its interval, and a dot for each seed, as SVG."""
    number = STUDIES[name].numbers[0]
    rows = kept["arms"]
    found = [mean_interval(row[number], rate=number in RATES) for row in rows]
    every = [value for row in rows for value in row[number]]
    low, high = min(0.0, *every), max(1e-9, *every)

    def x(value: float) -> float:
        return 330 + 370 * (min(max(value, low), high) - low) / (high - low)

    height = 40 + 22 * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img"'
        f' aria-label="{number} of each arm; numbers in the table" font-family="sans-serif"'
        ' font-size="13" fill="#1d2733">',
        f'<rect width="720" height="{height}" fill="#fff"/>',
    ]
    for end in (low, high):
        parts.append(f'<path d="M{x(end):.1f} 8V{height - 26}" stroke="#dde3e8"/>')
        parts.append(
            f'<text x="{x(end):.1f}" y="{height - 8}" text-anchor="middle">{end:.3g}</text>'
        )
    parts.append(f'<text x="515" y="{height - 8}" text-anchor="middle">{number}</text>')
    for place, (row, mark) in enumerate(zip(rows, found, strict=True)):
        y = 22 + 22 * place
        label = f"{row['world']}: {row['arm']}"
        parts.append(f'<text x="318" y="{y + 4}" text-anchor="end">{label}</text>')
        parts += [
            f'<circle cx="{x(value):.1f}" cy="{y}" r="2.5" fill="#8aa0b2"/>'
            for value in row[number]
        ]
        parts.append(
            f'<path d="M{x(mark.low):.1f} {y}H{x(mark.high):.1f}" stroke="#0b7a75"'
            ' stroke-width="2"/>'
        )
        parts.append(f'<circle cx="{x(mark.mean):.1f}" cy="{y}" r="4.5" fill="#0b7a75"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def told(page: str) -> str:
    """The page with the tables of what is kept."""
    for name in STUDIES:
        file = KEPT / f"{name}.json"
        if file.exists():
            kept = json.loads(file.read_text("utf-8"))
            text = "\n".join(lines(name, kept))
            seeds = f"{len(kept['seeds'])} seeds from {kept['seeds'][0]} on"
            head = f"`python benchmarks/studies.py {name}`: {seeds}, {kept['cpu']} CPU seconds."
            block = re.compile(f"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
            made = f"<!-- {name} -->\n{head}\n\n{text}\n<!-- end -->"
            page = block.sub(lambda _, made=made: made, page)
    return page


def tell() -> None:
    """Writes tables into the page, and pictures beside it."""
    PAGE.write_text(told(PAGE.read_text("utf-8")), "utf-8")
    for name in STUDIES:
        file = KEPT / f"{name}.json"
        if file.exists():
            drawn = picture(name, json.loads(file.read_text("utf-8")))
            (PICTURES / f"study_{name}.svg").write_text(drawn, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--seeds", type=int, help="5; of smollm2 3")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="keep the numbers, tell them")
    parser.add_argument("--tell", action="store_true", help="tell what is kept; play nothing")
    given = parser.parse_args()
    if unknown := sorted({*given.studies} - {*STUDIES}):
        parser.error(f"no study is called {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    if given.tell:
        tell()
        return
    for name in given.studies or list(STUDIES):
        seeds = range(given.first, given.first + (given.seeds or STUDIES[name].seeds))
        kept = play(name, seeds)
        print("\n".join(lines(name, kept)), flush=True)
        if given.write:
            KEPT.mkdir(exist_ok=True)
            text = json.dumps(kept, indent=1) + "\n"
            (KEPT / f"{name}.json").write_text(text, "utf-8")
            tell()


if __name__ == "__main__":
    main()
