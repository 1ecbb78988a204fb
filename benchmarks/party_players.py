"""What players of three strengths earn in the worlds for many agents, and whether their intervals
lie apart: the tables of docs/parties.

    python benchmarks/party_players.py [WORLD ...] [--write]

One seat is the mover's, each in its turn; all others are the background's. A row is in order where
each interval ends below the next one. Hanabi wants OpenSpiel: `.venv-openspiel/bin/python`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_ma import Plan, Seat, make, play_many
from gem_ma.scores.stats import mean_interval

PAGES = Path(__file__).resolve().parents[1] / "docs" / "parties"
BEGIN, END = "<!-- players -->", "<!-- end of the players -->"
RATES = ("hidden_profile", "network", "negotiation")  # whose returns lie in 0..1
HEAD = "| game | all others | weak | middle | strong | in order |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """A game, who plays the other seats (None: the mover does, where all are paid alike), and three
    movers from weak to strong. The mover takes the seats whose names begin with `seats`."""

    game: str
    background: str | None
    movers: tuple[str, str, str]
    plays: int = 400
    options: Mapping[str, Any] = field(default_factory=dict)
    seats: str = ""


def _network(problem: str) -> Row:
    movers = ("random_legal", "network_simple", "network_strong")
    return Row(problem, None, movers, 200, {"problem": problem, "rounds": 8})


_DILEMMA = ("always_defect", "random_legal", "tit_for_tat")
_TRUST = ("bargain_fair", "bargain_selfish", "bargain_shrewd")
_FISHERS = ("random_legal", "commons_share", "commons_half")
_GOODS = ("goods_selfish", "goods_half", "goods_giver")
_PARTIES = ("random_legal", "negotiation_simple", "negotiation_strong")
_WOLVES = ("random_legal", "werewolf_simple", "werewolf_strong")
_STAG = ("always_defect", "random_legal", "always_cooperate")
_ASKERS = ("random_legal", "twenty_questions_simple", "twenty_questions_strong")
_MEMBERS = ("random_legal", "hidden_profile_mixed", "hidden_profile_unshared")
_HANABI = ("random_legal", "hanabi_simple", "hanabi_strong")
ROWS: dict[str, tuple[Row, ...]] = {
    "auction": tuple(
        Row(form, "auction_equilibrium", movers, 1600, {"form": form})
        for form, movers in (
            ("first price", ("random_legal", "auction_truthful", "auction_equilibrium")),
            ("second price", ("random_legal", "auction_half", "auction_equilibrium")),
            ("ascending", ("random_legal", "auction_half", "auction_equilibrium")),
        )
    ),
    "bargain": (
        Row("ultimatum", "bargain_fair", ("random_legal", "bargain_fair", "bargain_shrewd")),
        Row("trust", "bargain_fair", _TRUST, 400, {"game": "trust"}),
    ),
    "commons": tuple(
        Row("known end", others, _FISHERS, 400, {"end": "known"})
        for others in ("commons_half", "commons_share")
    ),
    "hidden_profile": tuple(
        Row(f"hidden: {hidden}", None, _MEMBERS, 600, {"hidden": hidden}) for hidden in (1, 0.5)
    ),
    "market": (Row("call", "market_zero", ("random_legal", "market_zero", "market_patient"), 480),),
    "matrix": (
        Row("dilemma", "tit_for_tat", _DILEMMA, 200, {"rounds": 20}),
        Row("dilemma", "always_cooperate", _DILEMMA, 200, {"rounds": 20}),
        Row("stag hunt of four", "always_cooperate", _STAG, 200, {"preset": "stag_hunt"}),
        Row("stag hunt of four", "always_defect", _STAG, 200, {"preset": "stag_hunt"}),
    ),
    "negotiation": (
        Row("2 parties", "negotiation_simple", _PARTIES),
        Row("6 parties", "negotiation_simple", _PARTIES, 4200, {"parties": 6, "rounds": 3}),
    ),
    "network": tuple(
        map(_network, ("consensus", "colouring", "leader", "matching", "cover", "sum"))
    ),
    "public_goods": (
        Row("fines of 3", "goods_punisher", _GOODS, 40, {"fines": 3}),
        Row("no fines", "goods_giver", _GOODS, 40),
    ),
    "twenty_questions": (
        Row("guesser", _ASKERS[2], _ASKERS, seats="guesser"),
        Row("one of two", _ASKERS[2], _ASKERS, 400, {"guessers": 2, "pay": "all"}, "guesser"),
        Row("answerer in taboo", _ASKERS[2], _ASKERS, 400, {"form": "taboo"}, "answerer"),
    ),
    "werewolf": (Row("8 players", "werewolf_simple", _WOLVES, 2400, {"talk": "signals"}),),
    "hanabi": tuple(
        Row(f"{players} players", None, _HANABI, 200, {"players": players})
        for players in (2, 3, 4, 5)
    ),
}


def earned(world: str, row: Row, mover: str) -> list[float]:
    """What the mover earned in each play."""
    scenario = make("openspiel:hanabi" if world == "hanabi" else world, **row.options)
    names = scenario.agents
    tasks = len(scenario.tasks("train"))
    movers = [name for name in names if name.startswith(row.seats)]
    places = {seed: movers[seed % len(movers)] for seed in range(row.plays)}
    plans = [
        Plan(
            scenario,
            {a: Seat(mover if a == place else row.background or mover) for a in names},
            f"train/{seed % tasks}",
            seed,
        )
        for seed, place in places.items()
    ]

    async def collect() -> list[float]:
        paid = dict.fromkeys(places, math.nan)
        async for episode in play_many(plans):
            assert episode.error is None, episode.error
            paid[episode.seed] = episode.returns()[places[episode.seed]]
        return list(paid.values())

    return asyncio.run(collect())


def line(world: str, row: Row) -> str:
    """A line of the table."""
    cells = []
    above = -math.inf
    in_order = True
    for mover in row.movers:
        paid = earned(world, row, mover)
        found = mean_interval(paid, rate=world in RATES)
        in_order = in_order and found.low > above
        above = found.high
        # a play that is always the same has no interval
        spread = f" [{found.low:.3g}, {above:.3g}]" if found.low < above else ""
        cells.append(f"`{mover}` {found.mean:.3g}{spread}")
    others = f"`{row.background}`" if row.background else "the same"
    return f"| {row.game} | {others} | {' | '.join(cells)} | {'yes' if in_order else 'no'} |"


def table(world: str) -> Iterator[str]:
    """The lines of a page's table."""
    yield HEAD
    for row in ROWS[world]:
        yield line(world, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=", ".join(ROWS))
    parser.add_argument("--write", action="store_true", help="into the pages")
    given = parser.parse_args()
    if unknown := sorted({*given.worlds} - {*ROWS}):
        parser.error(f"no table of {', '.join(unknown)}; there are {', '.join(ROWS)}")
    for world in given.worlds or [world for world in ROWS if world != "hanabi"]:
        lines = "\n".join(table(world))
        print(f"{lines}\n")
        if given.write:
            page = PAGES / f"{world}.md"
            block = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
            text = page.read_text("utf-8")
            page.write_text(
                block.sub(lambda _, made=lines: f"{BEGIN}\n{made}\n{END}", text), "utf-8"
            )


if __name__ == "__main__":
    main()
