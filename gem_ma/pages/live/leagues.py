"""The page of a run that learned against a pool of its own snapshots: members, ratings, who beats
whom, how far from an equilibrium. It reads what the run keeps for itself, and plays nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    page_address,
    refused,
    run_address,
    section,
    served,
)
from gem_ma.pages.static.folder import manifest, resolved
from gem_ma.pages.static.league import LeagueFacts, distances, facts_of, payoffs, standings
from gem_ma.pages.static.learning import flatten, series_of
from gem_ma.pages.static.page import Html, warning
from gem_ma.record.json_text import load_json
from gem_ma.runs.store import read_metrics
from gem_ma.system import files
from gem_ma.training.loop.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site

STATE = "trainer.json"  # of a checkpoint: its entry `league` holds members and games


def run_links(path: Path, name: str) -> dict[str, str]:
    """What leads from the page of a run to others of it: curves where it learned, its league
    where it had one."""
    links = {}
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
    return served(f"League of {name}", body, {"Its run": run_address(name)})


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
