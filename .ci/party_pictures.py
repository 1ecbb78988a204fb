"""Draws the pictures of docs/parties out of plays that are played now: docs/pictures/*.svg. Half a
minute of one core.

    python .ci/party_pictures.py [WORLD ...]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# found after the line above
from gem_ma.scenarios.parties.animals import least  # noqa: E402
from gem_ma.scenarios.parties.werewolf import village_wins  # noqa: E402

from gem_ma import Action, Asked, Episode, Plan, Seat, make, play, play_many  # noqa: E402

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
        x = places[-1][0]
        # the nearest free place beside the end, above it first
        for step in (0, -1, 1, -2, 2, -3, 3, -4, 4):
            y = places[-1][1] + 16 * step
            if TOP - 20 <= y <= foot + 4 and all(abs(y - other) >= 15 for other in taken):
                break
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


def matrix() -> None:
    """What a defector earns in each round of the dilemma, by who plays against it."""
    lines = {}
    for who in ("always_cooperate", "pavlov", "generous", "tit_for_tat"):
        episodes = played(
            "dilemma", [{"player_0": "always_defect", "player_1": who}] * 400, rounds=10
        )
        earned = [0.0] * 10
        for episode in episodes:
            for entry in episode.ledger:
                if entry.agent == "player_0":
                    earned[int(entry.why.removeprefix("round ")) - 1] += entry.value / 400
        lines[f"against {who}"] = list(enumerate(earned, 1))
    chart("matrix", "round of the dilemma", "points of always_defect", lines, 6)


def public_goods() -> None:
    """What part of their points four give, round by round."""
    casts = {
        "all goods_conditional": ["goods_conditional"] * 4,
        "one of them goods_half": ["goods_half", *["goods_conditional"] * 3],
        "one of them goods_selfish": ["goods_selfish", *["goods_conditional"] * 3],
        "two goods_selfish": [*["goods_selfish"] * 2, *["goods_conditional"] * 2],
    }
    lines = {}
    for label, cast in casts.items():
        agents = [f"player_{seat}" for seat in range(4)]
        (episode,) = played("public_goods", [dict(zip(agents, cast, strict=True))])
        given = [0.0] * 10
        acts = [turn for turn in episode.turns if turn.legal]
        for place, turn in enumerate(acts):
            given[place // 4] += int(turn.action.parsed or "0") / 80
        lines[label] = list(enumerate(given, 1))
    chart("public_goods", "round", "part of all points that is given", lines, 1)


class Offers:
    """Offers what it is told."""

    amount = "0"

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def act(self, asked: Asked) -> Action:
        return Action(self.amount, (), self.amount)


def bargain() -> None:
    """What a proposer keeps of ten by what it offers, and to whom."""
    lines = {}
    for who in ("bargain_selfish", "bargain_fair", "random_legal"):
        points = []
        for amount in range(11):
            offers = type("Offer", (Offers,), {"amount": str(amount)})
            kept = 0.0
            for seed in range(200):
                cast = {"player_0": Seat("silent"), "player_1": Seat(who)}
                plan = Plan(make("bargain"), cast, seed=seed)
                kept += (
                    asyncio.run(play(plan, {}, {"player_0": offers})).returns()["player_0"] / 200
                )
            points.append((amount, kept))
        lines[f"to {who}"] = points
    chart("bargain", "offered of 10", "points that the proposer keeps", lines, 12)


def negotiation() -> None:
    """What two who give way slowly get, by the turns that they have and by the last word."""
    lines: dict[str, list[tuple[float, float]]] = {
        "has the last word": [],
        "makes the last offer": [],
    }
    for rounds in range(2, 11):
        cast = dict.fromkeys(("party_1", "party_2"), "negotiation_strong")
        episodes = played("negotiation", [cast] * 400, rounds=rounds, last="second")
        for label, agent in zip(lines, ("party_2", "party_1"), strict=True):
            mean = sum(episode.returns()[agent] for episode in episodes) / 400
            lines[label].append((rounds, mean))
    chart("negotiation", "turns", "value, two of negotiation_strong", lines, 1)


def network() -> None:
    """The share of problems that eight on a ring solve, by the rounds in which they talk."""
    lines = {}
    cast = {f"node_{place}": "network_strong" for place in range(8)}
    for problem in ("colouring", "consensus", "cover", "matching", "sum"):
        points = []
        for rounds in range(1, 9):
            options = {"problem": problem, "rounds": rounds}
            episodes = played("network", [cast] * 60, **options)
            solved = sum(bool(make("network", **options).success(one)) for one in episodes)
            points.append((rounds, solved / 60))
        lines[problem] = points
    chart("network", "rounds of talk", "share solved, network_strong", lines, 1)


def werewolf() -> None:
    """How often a village with two wolves wins, by its size, when all draw."""
    sizes = range(5, 15)
    lines: dict[str, list[tuple[float, float]]] = {"computed": [], "400 plays": []}
    for players in sizes:
        lines["computed"].append((players, village_wins(players, 2, "night")))
        cast = {f"player_{seat}": "random_legal" for seat in range(players)}
        episodes = played("werewolf", [cast] * 400, players=players, wolves=2, seer=0)
        won = sum(episode.ledger[0].why == "village wins" for episode in episodes)
        lines["400 plays"].append((players, won / 400))
    chart("werewolf", "players, two of them wolves", "share of villages that win", lines, 0.5)


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
    drawn = (
        auction,
        bargain,
        commons,
        hidden_profile,
        market,
        matrix,
        negotiation,
        network,
        public_goods,
        teamwork,
        twenty_questions,
        werewolf,
    )
    pictures = {draw.__name__: draw for draw in drawn}
    for name in sys.argv[1:] or pictures:
        pictures[name]()
