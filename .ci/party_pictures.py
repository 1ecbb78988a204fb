"""Draws the pictures of docs/parties out of plays that are played now: docs/pictures/*.svg. Half a
minute of one core.

    python .ci/party_pictures.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gem_ma.scenarios.parties.animals import least  # noqa: E402

from gem_ma import Episode, Plan, Seat, make, play_many  # noqa: E402  (found after the line above)

PICTURES = ROOT / "docs" / "pictures"
COLOURS = ("#0b6e69", "#c2571a", "#5b4bb3", "#a3265b", "#55606b")
WIDTH = 720
HEIGHT = 320
LEFT = 60
RIGHT = 200  # names stand behind the ends of their lines
TOP = 32
BOTTOM = 50
Points = Sequence[tuple[float, float]]


def played(
    name: str, casts: Sequence[Mapping[str, str | Seat]], tasks: int = 1, **options: Any
) -> list[Episode]:
    """A play of each cast, with the seeds 0, 1, 2 ..., and the first so many tasks in turn."""
    scenario = make(name, **options)
    plans = []
    for seed, cast in enumerate(casts):
        seats = {agent: Seat(who) if isinstance(who, str) else who for agent, who in cast.items()}
        plans.append(Plan(scenario, seats, f"train/{seed % tasks}", seed=seed))

    async def work() -> list[Episode]:
        return [episode async for episode in play_many(plans, {})]

    return sorted(asyncio.run(work()), key=lambda episode: episode.seed)


def chart(name: str, across: str, up: str, lines: Mapping[str, Points], top: float) -> None:
    """Lines over whole numbers, from 0 to `top`, each with its name at its end."""
    first = min(x for points in lines.values() for x, _ in points)
    last = max(x for points in lines.values() for x, _ in points)
    wide = (WIDTH - LEFT - RIGHT) / (last - first)
    high = (HEIGHT - TOP - BOTTOM) / top
    foot = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{up} by {across}" font-family="sans-serif" font-size="13" fill="#1d2733">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in range(5):
        value = top * tick / 4
        y = foot - value * high
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dde3e8"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in sorted({x for points in lines.values() for x, _ in points}):
        place = LEFT + (x - first) * wide
        parts.append(f'<text x="{place:.1f}" y="{foot + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">{across}; upwards: {up}</text>')
    taken: list[float] = []
    for number, (label, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(LEFT + (x - first) * wide, foot - y * high) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        while any(abs(y - other) < 15 for other in taken):
            y -= 16
        taken.append(y)
        parts.append(f'<text x="{x + 9:.1f}" y="{y + 4:.1f}" fill="{colour}">{label}</text>')
    (PICTURES / f"{name}.svg").write_text("\n".join([*parts, "</svg>"]) + "\n", "utf-8")


def commons() -> None:
    """The stock of a year with none to five fishers who take their share of all."""
    agents = [f"player_{number}" for number in range(5)]
    lines = {}
    for greedy in (0, 1, 2, 5):
        cast = {
            agent: "commons_share" if place < greedy else "commons_half"
            for place, agent in enumerate(agents)
        }
        (episode,) = played("commons", [cast], end="known")
        asked = [turn.observed[-1].text for turn in episode.turns if turn.agent == agents[0]]
        stocks = [float(text.split()[2]) for text in asked]
        # what is left as the fish are gone
        if len(stocks) < 12:
            stocks.append(0.0)
        lines[f"{greedy} of 5 take their share of all"] = list(enumerate(stocks, 1))
    chart("commons", "month", "tons at its beginning", lines, 100)


def market() -> None:
    """The part of the possible surplus that is reached by each round of a call market."""
    scenario = make("market")
    lines = {}
    for who in ("market_truthful", "market_zero", "market_patient", "random_legal"):
        episodes = played("market", [dict.fromkeys(scenario.agents, who)] * 300)
        reached = [0.0] * 10
        count = 0
        for episode in episodes:
            share = scenario.measures(episode)["efficiency"]
            total = sum(episode.returns().values())
            if not share:
                continue
            count += 1
            for round_ in range(10):
                gains = sum(entry.value for entry in episode.ledger if entry.step <= round_)
                reached[round_] += gains / total * share
        lines[who] = [(round_ + 1, value / count) for round_, value in enumerate(reached)]
    chart("market", "round", "part of the possible surplus", lines, 1)


def auction() -> None:
    """Revenue by the number of bidders, and what theory says where values are continuous."""
    forms = {"first price": [], "second price": []}
    for agents in range(2, 9):
        cast = {f"player_{number}": "auction_equilibrium" for number in range(agents)}
        for form, points in forms.items():
            scenario = make("auction", agents=agents, form=form, top=50)
            episodes = played("auction", [cast] * 400, agents=agents, form=form, top=50)
            sold = [scenario.measures(episode)["revenue"] or 0.0 for episode in episodes]
            points.append((agents, sum(sold) / len(sold) / 50))
    theory = [(agents, (agents - 1) / (agents + 1)) for agents in range(2, 9)]
    chart(
        "auction",
        "bidders",
        "revenue, as a part of the highest value",
        {**forms, "(n - 1) / (n + 1)": theory},
        1,
    )


def teamwork() -> None:
    """The part of our own questions that a vote gets right, by the number of voters."""
    lines: dict[str, Points] = {}
    for slips in (0.3, 0.5, 0.7):
        voter = Seat("team_expert", options={"plays": "question_oracle", "slips": slips})
        points = []
        for voters in range(2, 11):
            options = {"wrappers": [{"teamwork": {"pattern": "vote", "voters": voters}}]}
            scenario = make("questions", **options)
            casts = [dict.fromkeys(scenario.agents, voter)] * 400
            tasks = len(scenario.tasks("train"))
            episodes = played("questions", casts, tasks, **options)
            right = [bool(scenario.success(episode)) for episode in episodes]
            points.append((voters, sum(right) / len(right)))
        lines[f"each errs in {slips:.0%}"] = points
    chart("teamwork", "voters", "part of the questions that the vote gets right", lines, 1)


def hidden_profile() -> None:
    """How often a group is right by how long it talks."""
    alone = make("hidden_profile").alone(True)
    lines = {"own facts alone (exact)": [(rounds, alone) for rounds in range(1, 9)]}
    for who in ("shared", "mixed", "unshared"):
        points = []
        for rounds in range(1, 9):
            scenario = make("hidden_profile", rounds=rounds)
            cast = dict.fromkeys(scenario.agents, f"hidden_profile_{who}")
            episodes = played("hidden_profile", [cast] * 200, rounds=rounds)
            points.append((rounds, sum(map(scenario.success, episodes)) / 200))
        lines[f"hidden_profile_{who}"] = points
    chart("hidden_profile", "rounds of talk", "part of the groups that are right", lines, 1)


def twenty_questions() -> None:
    """Turns that name an animal by how many there are."""
    counts = range(2, 33, 3)
    lines: dict[str, Points] = {"guesses one by one": [(n, (n + 1) / 2) for n in counts]}
    for who in ("simple", "strong"):
        points = []
        for count in counts:
            scenario = make("twenty_questions", animals=count, turns=40)
            cast = {"answerer": "twenty_questions_strong", "guesser_0": f"twenty_questions_{who}"}
            episodes = played("twenty_questions", [cast] * 200, animals=count, turns=40)
            turns = [scenario.measures(episode)["turns"] or 0.0 for episode in episodes]
            points.append((count, sum(turns) / len(turns)))
        lines[f"twenty_questions_{who}"] = points
    lines["the fewest of any table"] = [(n, least(n)) for n in counts]
    chart("twenty_questions", "animals", "turns", lines, 20)


if __name__ == "__main__":
    teamwork()
    commons()
    market()
    auction()
    hidden_profile()
    twenty_questions()
