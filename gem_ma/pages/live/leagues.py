"""The page of a run that learned against a pool of its own snapshots: members, ratings, who beats
whom, how far from an equilibrium. It reads what the run keeps for itself, and plays nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    page_address,
    refused,
    run_address,
    section,
    served,
)
from gem_ma.pages.static.figures import CLASSES, Curves, Mark, Point, chart, figure
from gem_ma.pages.static.folder import manifest, resolved
from gem_ma.pages.static.learning import flatten, place_of, series_of
from gem_ma.pages.static.page import Html, scrolled, table, text, warning
from gem_ma.pages.static.plots import heatmap
from gem_ma.runs.store import read_metrics
from gem_ma.system import files
from gem_ma.training.loop.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site

STATE = "trainer.json"  # of a checkpoint: its entry `league` holds members and games


def run_links(path: Path, name: str) -> dict[str, str]:
    """What leads from the page of a run to others of it: its plays as a table, curves where it
    learned, its league where it had one."""
    links = {"Plays as a table": page_address("plays", [name])}
    if manifest(path).get("command") == "train":
        links["Curves"] = page_address("curves", [name])
    if has_league(resolved(path)):
        links["League"] = league_address(name)
    return links


def league_address(name: str) -> str:
    return "/league" + run_address(name).removeprefix("/run")


def has_league(settings: Mapping[str, Any]) -> bool:
    """Whether a run with these settings draws opponents, or keeps a pool to draw them from."""
    train = settings.get("train")
    if not isinstance(train, Mapping):
        return False
    return bool(train.get("opponents"))


def league_page(site: Site, asked: Asked) -> Answer:
    """`/league/NAME`; one line where the run had none."""
    name = "/".join(asked.rest)
    try:
        place, rest = site.folder(asked.rest or [""])
        if rest or not has_league(resolved(place)):
            raise StoreError(f"{name}: this run had no league (train.opponents)")
        with files.damage(place):
            facts = read_league(place)
            body = _body(facts)
    except GemMaError as error:
        return refused("League", error)
    return served(f"{name}: league", body, {"Its run": run_address(name)})


def _body(facts: LeagueFacts) -> Html:
    unknown = warning("no checkpoint of this run tells of games yet")
    parts = [
        *([section("Distance from an equilibrium", *far)] if (far := distances(facts)) else []),
        section("Members", *standings(facts)),
        section("Who beats whom", payoffs(facts) or unknown),
    ]
    return Html("".join(parts))


def read_league(place: Path) -> LeagueFacts:
    """What a run folder tells of its league. Raises StoreError for damage."""
    rows = []
    numbers = []
    for row in read_metrics(place):
        if row.get("kind") == "league":
            rows.append(row)
        elif row.get("kind") == "evaluation":
            numbers.append(flatten(row))
    return facts_of(_state(place), rows, series_of(numbers))


def _state(place: Path) -> Mapping[str, Any]:
    """What the newest checkpoint holds of the league; {} where there is none that can be read."""
    folder = place / "checkpoints"
    # by its number: a millionth step has a digit more
    steps = sorted(files.names(folder, place), key=lambda name: (len(name), name), reverse=True)
    for step in steps:
        try:
            # its weights may be gigabytes: of a checkpoint this one file is read and checked
            trainer = load_json(read_checkpoint(folder / step).read(STATE))
        except (GemMaError, OSError):  # not whole, or none of ours
            continue
        state = trainer.get("league") if isinstance(trainer, Mapping) else None
        return state if isinstance(state, Mapping) else {}
    return {}


# -- drawings --------------------------------------------------------------------------------------


DISTANCES = ("exploitability", "nash_conv")
MOST_PLAYERS = 16  # of the matrix
Wins = Mapping[tuple[str, str], float]  # (i, j) -> wins of i over j, half the ties included


@dataclass(frozen=True, slots=True)
class LeagueFacts:
    """What a run folder tells of its league. `members`: name -> policy, version, step at which it
    came in; `ratings`: (step, name -> points, or the reason why there are none)."""

    members: Mapping[str, tuple[str, int, int]]
    wins: Wins
    ratings: Sequence[tuple[float, Mapping[str, float] | str]]
    numbers: Mapping[str, Sequence[Point]]


def distances(facts: LeagueFacts) -> list[Html]:
    """A chart for each distance from an equilibrium that an exam measured; they are points."""
    drawings = []
    for distance in DISTANCES:
        lines = {
            place_of(key)[2]: [list(points)]
            for key, points in facts.numbers.items()
            if place_of(key)[1] == distance
        }
        curves = Curves(distance, lines, y_label=distance, exams=set(lines))
        drawings.append(chart(curves))
    return [*filter(None, drawings)]


def standings(facts: LeagueFacts) -> list[Html]:
    """Ratings over the steps, then everybody who played: the strongest first."""
    rated = [(step, points) for step, points in facts.ratings if not isinstance(points, str)]
    last: Mapping[str, float] = rated[-1][1] if rated else {}
    told = facts.ratings[-1][1] if facts.ratings else ""
    parts = [Html(f'<p class="warn">{text(told)}</p>')] if isinstance(told, str) and told else []
    # the strongest of the end: a chart has room for a few
    shown = list(last)[:CLASSES]
    lines = {name: [[(step, of[name]) for step, of in rated if name in of]] for name in shown}
    note = f"the {len(shown)} strongest of {len(last)}" if len(shown) < len(last) else ""
    parts.append(
        chart(
            Curves("ratings", lines, y_label="points; 400 are odds of 10 to 1", note=note)
            if len(rated) > 1
            else Curves("", {})
        )
    )
    names = sorted(_players(facts), key=lambda name: (-last.get(name, float("-inf")), name))
    rows = [_standing(name, facts, last) for name in names]
    head = ("player", "rating", "games", "share won", "policy", "version", "since step")
    caption = (
        "Points have mean 0; a tie is half a win. Whoever is not a snapshot plays with its weights"
        " of now."
    )
    return [*filter(None, parts), *([table(head, rows, caption=caption)] if rows else [])]


def _players(facts: LeagueFacts) -> dict[str, None]:
    """Everybody: the members of the pool, and who else played or was rated."""
    last = facts.ratings[-1][1] if facts.ratings else {}
    met: Iterable[str] = (name for pair in facts.wins for name in pair)
    return dict.fromkeys([*facts.members, *met, *(() if isinstance(last, str) else last)])


def _standing(name: str, facts: LeagueFacts, last: Mapping[str, float]) -> list[object]:
    won = sum(count for (player, _), count in facts.wins.items() if player == name)
    lost = sum(count for (_, other), count in facts.wins.items() if other == name)
    games = won + lost
    rating = f"{last[name]:+.0f}" if name in last else ""
    share = f"{won / games:.3f}" if games else ""
    return [name, rating, f"{games:.0f}", share, *facts.members.get(name, ("", "", ""))]


def payoffs(facts: LeagueFacts) -> Html:
    """Who beats whom: the share of the games that the row won against the column."""
    games: dict[str, float] = {}
    for pair, count in facts.wins.items():
        for name in pair:
            games[name] = games.get(name, 0.0) + count
    # those who played most; in the order in which they came
    kept = sorted(games, key=lambda name: -games[name])[:MOST_PLAYERS]
    order = [name for name in _players(facts) if name in kept]
    cells: dict[tuple[str, str], Mark] = {}
    rows = []
    for row in order:
        for column in order:
            won = facts.wins.get((row, column), 0.0)
            met = won + facts.wins.get((column, row), 0.0)
            if met and row != column:
                cells[row, column] = Mark(won / met)
                rows.append([row, column, f"{met:.0f}", f"{won / met:.3f}"])
    left = len(games) - len(order)
    title = "share of the games that the row won against the column"
    drawing = heatmap(order, order, cells, title=title, rate=True, better="more")
    numbers = table(("row", "column", "games", "share won"), rows, numbers=True)
    folded = f"<details><summary>Numbers</summary>{numbers}</details>"
    note = f'<p class="hint">{left} who played less are left out</p>' if left else ""
    if not cells:
        return Html("")
    return figure(title, scrolled(drawing, title), note, folded)


def facts_of(
    state: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], numbers: Mapping[str, Any]
) -> LeagueFacts:
    """The facts out of what a checkpoint holds of a league, and the rows that it logged. Raises
    KeyError, TypeError or ValueError where they are of another shape."""
    members = {
        f"{policy}@{version}": (str(policy), int(version), int(step))
        for policy, version, step, *_ in state.get("members", ())
    }
    wins = {(str(i), str(j)): float(won) for i, j, won, *_ in state.get("games", ())}
    ratings = [(float(row["step"]), _ratings(row["ratings"])) for row in rows]
    return LeagueFacts(members, wins, ratings, numbers)


def _ratings(value: Any) -> Mapping[str, float] | str:
    # who never met cannot be compared: then a sentence stands there
    return value if isinstance(value, str) else {str(k): float(v) for k, v in value.items()}
