"""Scorecards of `gem-ma bench`: who is meant by a word, and the values of a model's plays out of
its run folders. A scorecard is a file of JSON lines that needs neither models nor plays.

The first line: `bench` (1), `battery` (its digest), `seed model who` (what was typed for the model;
`model` is its folder, and two words may come to one). Then a line for each row and player: `row
who` (model, chance or oracle), `run` (the folder's name), `plays` (of each task), `values` (one a
play, in the order of the plans; of a play that failed the least), `failed`, of these `faults` (by
code outside of the agents, as an endpoint that did not answer), `used` (digests of weights, and of
code that is not of this library), `unread` (closed choices that named nothing legal, as a share),
and what its model used: `calls prompt completion usd`.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from gem_ma import registry
from gem_ma.config.battery import CHANCE, ORACLE, POLICY, Battery, Part, Player
from gem_ma.config.loading import Loaded
from gem_ma.driver.behaviour import as_factory, needs_policy
from gem_ma.kernel.errors import ConfigError, DataError, StoreError
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.kernel.spelling import nearest
from gem_ma.runs.costs import prices_of
from gem_ma.runs.open import Opened, model_facts
from gem_ma.runs.plans import Plans
from gem_ma.runs.store import read_manifest, read_summary, rows_by, run_path, write_file
from gem_ma.runs.store.lines import read_resolved
from gem_ma.runs.store.names import FREE_KEYS
from gem_ma.scores.columns import costs
from gem_ma.scores.groups import RETURN, SUCCESS
from gem_ma.scores.rows import PlayRow, last_attempts, usages_in
from gem_ma.system.files import is_file, lines, stream


class Record(TypedDict):
    """A line of a scorecard, as the head of this file says. Older ones lack what may be absent."""

    row: str
    who: Literal["model", "chance", "oracle"]
    run: str
    plays: Annotated[int, msgspec.Meta(ge=1)]
    values: Annotated[list[float], msgspec.Meta(min_length=1)]
    failed: int
    faults: NotRequired[int]
    used: NotRequired[dict[str, str | None]]
    unread: float
    calls: int
    prompt: int | None
    completion: int | None
    usd: float | None


class _Head(TypedDict):
    """The first line."""

    bench: Literal[1]
    model: str
    battery: str
    seed: int
    who: NotRequired[str]


FILE = "scorecard.jsonl"
MODEL = "model"
RANDOM = "random"
# by the rules, or by a limit of the world's own; other ends are faults of who played
ENDED = ("terminated", "truncated", "max_steps")


@dataclass
class Scorecard:
    """A model's records, by row and player. `battery`: the digest of what was played. `who`: the
    word of the model, and what is set of it; None in older ones."""

    model: str
    battery: str
    seed: int
    who: str | None = None
    cells: dict[str, dict[str, Record]] = field(default_factory=dict)

    def rows(self) -> list[str]:
        """The rows whose three players have all played."""
        return [row for row, found in self.cells.items() if len(found) == 3]

    def check(self, battery: Battery, where: object) -> None:
        """Raises ConfigError where it is of another battery."""
        if self.battery != battery.digest:
            raise ConfigError(
                f"{where}: a scorecard of battery {self.battery} (seed {self.seed}), and this one"
                f" is {battery.digest} (seed {battery.settings.seed}): rows, seeds or tasks differ,"
                " so scores are not compared; play it anew with --out FOLDER"
            )
        for row, found in self.cells.items():
            settings = battery.settings.rows.get(row)
            for one in found.values():
                wanted = settings.tasks * one["plays"] if settings is not None else None
                if len(one["values"]) != wanted:
                    raise ConfigError(
                        f"{where}: row {row!r} has {len(one['values'])} values of {one['who']},"
                        f" and the battery has {wanted or 'no such row'}; put the file back from a"
                        " copy"
                    )


def check_same_code(first: Scorecard, second: Scorecard) -> None:
    """Raises DataError where a row was played by other code of the user's in one than in the other:
    the digest of a battery knows a file of rules by its name and version alone."""
    for row in (row for row in first.rows() if row in second.rows()):
        # by those who play beside: the models may differ, and often do
        for who in (CHANCE, ORACLE):
            one, other = (card.cells[row][who].get("used", {}) for card in (first, second))
            if changed := [name for name in one if one[name] != other.get(name, one[name])]:
                raise DataError(
                    f"row {row!r}: {changed[0]} was another file when {second.model} played it than"
                    f" when {first.model} did, so scores are not compared; play both anew with"
                    " --out FOLDER"
                )


# -- who is meant ----------------------------------------------------------------------------------


def player_of(word: str, battery: Battery, options: Mapping[str, Any]) -> Player:
    """Who a word means: `random`, `oracle`, a behaviour, ENGINE/NAME or a run folder, in all rows;
    `WHO,ROW=WHO` takes another one in some. `options` are those of the policy. Raises
    ConfigError."""
    base, *others = re.split(r",(?=[\w-]+=)", word)
    pairs = [other.split("=", 1) for other in others]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ConfigError(f"{word}: names who plays in one row twice")
    for row in named:
        if row not in battery.settings.rows:
            raise ConfigError(
                f"{word}: the battery has no row {row!r}{nearest(row, battery.settings.rows)}"
            )
    parts = {row: _part(named.get(row, base), row, battery, options) for row in battery.rows}
    if options and not any(part.policy for part in parts.values()):
        raise ConfigError(f"{word}: no model plays, so there is nothing to set")
    return Player(word, parts)


def _part(word: str, row: str, battery: Battery, options: Mapping[str, Any]) -> Part:
    if word == ORACLE:
        return battery.oracle(row)
    if word == RANDOM:
        return Part({"behaviour": battery.settings.chance})
    engine, slash, name = word.partition("/")
    if is_file(Path(word, "manifest.json")):
        return _part_of_run(Path(word), options)
    if slash and name and registry.known("engines", engine):
        return Part({}, {"model": word, **options})
    if not registry.known("agents", word) and not registry.names_code(word):
        known = [RANDOM, ORACLE, *registry.catalog("agents")]
        hint = nearest(word, known, listed=False)
        raise ConfigError(
            f"{word}: no model, run folder or behaviour is called so{hint}; a model is ENGINE/NAME,"
            f" as openai/NAME (engines: {', '.join(registry.catalog('engines'))})"
        )
    if needs_policy(word, as_factory(word)):
        raise ConfigError(f"{word}: this behaviour asks a model; name the model, as openai/NAME")
    return Part({"behaviour": word})


def check_weights(opened: Opened, digest: str | None) -> None:
    """Raises DataError where the weights of a run are not those that it ended with; `digest`: what
    it says of them."""
    found = model_facts(opened.loaded.config, opened.policies)[POLICY]
    if None not in (digest, found["digest"]) and digest != found["digest"]:
        raise DataError(
            f"{found['model']}: these are not the weights that the run wrote down at its end"
            " (summary.json: weights), or its base was changed; put them back from a copy, train"
            " anew, or name them as ENGINE/FOLDER in place of the run"
        )


def _part_of_run(path: Path, options: Mapping[str, Any]) -> Part:
    """The one policy of a run folder; of a training as it ended, asked as it was trained."""
    resolved = read_resolved(path)
    policies: dict[str, Any] = dict(resolved.get("policies") or {})
    summary = read_summary(path) or {}
    trained = summary.get("models") or {}
    if resolved.get("train") and not trained:
        raise ConfigError(f"{path}: this training has not ended; go on with: gem-ma resume {path}")
    found = {name: f"{one['engine']}/{path / one['path']}" for name, one in trained.items()}
    found = found or {name: str(one["model"]) for name, one in policies.items()}
    if len(found) != 1:
        listed = ", ".join(found.values()) or "none"
        raise ConfigError(f"{path}: wanted is a run of one model; name one of them: {listed}")
    ((name, model),) = found.items()
    kept = {key: value for key, value in policies[name].items() if value is not None}
    if not trained:
        return Part({}, {**kept, "model": model, **options})
    kept.pop("lora", None)  # the folder holds the adapter
    # opened in another type, the same weights have another digest
    digest = None if "dtype" in options else (summary.get("weights") or {}).get(name)
    return Part({}, {**kept, "model": model, **options}, "direct", digest)


# -- what was played -------------------------------------------------------------------------------


def empty_card(battery: Battery, player: Player, options: Mapping[str, Any]) -> Scorecard:
    """The scorecard of a model before it plays. Its folder is called `model`: by the word, and
    by what is set of its policy and changes results."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", player.name).strip(".-")[:80] or MODEL
    told = {key: value for key, value in options.items() if f"policies.*.{key}" not in FREE_KEYS}
    text = json.dumps(told, sort_keys=True, default=str)
    name = f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}" if told else slug
    typed = posixpath.normpath(player.name)  # a folder is the same with a slash behind it
    who = f"{typed} {text}" if told else typed
    return Scorecard(name, battery.digest, battery.settings.seed, who)


def cell_path(folder: Path, row: str, loaded: Loaded) -> Path:
    """The run folder of a row."""
    return run_path(row, loaded.identity(), root=folder)


def record_of(row: str, who: str, battery: Battery, opened: Opened, path: Path) -> Record | None:
    """The record of a cell whose plays have all ended, else None. Raises ConfigError where its
    plays have no such score."""
    settings = battery.settings.rows[row]
    config = opened.loaded.config
    plans = Plans(config, opened.worlds.played[0].scenario)
    if not is_file(path / "manifest.json"):
        return None
    found = {one.id: one for one in last_attempts(rows_by(path, opened.worlds.judge))}
    wanted = list(plans.ids())
    if not all(id_ in found and found[id_].end != "interrupted" for id_ in wanted):
        return None
    rows = [found[id_] for id_ in wanted]
    values = [
        _value(one, settings.score, settings.least, f"{battery.path}: rows.{row}") for one in rows
    ]
    spent = [*costs(map(usages_in, rows), prices_of(config)).values()]
    summary = read_summary(path) or {}
    manifest = read_manifest(path)
    used = {one["model"]: one["digest"] for one in manifest["models"].values()}
    unread = [
        share for agent, share in summary.get("illegal", {}).items() if agent in spent_by(opened)
    ]
    record: Any = {
        "row": row,
        "who": who,
        "run": path.name,
        "plays": config.run.episodes_per_task,
        "values": [round(value, 6) for value in values],
        "failed": sum(one.end not in ENDED for one in rows),
        "used": used | manifest.get("files", {}).get("code", {}),
        "faults": sum(one.end == "failed" for one in rows),
        "unread": max((share for share in unread if share is not None), default=0.0),
        "calls": sum(one["requests"] for one in spent),
        "prompt": _sum([one["prompt"] for one in spent]),
        "completion": _sum([one["completion"] for one in spent]),
        "usd": _sum([one["usd"] for one in spent]),
    }
    return record


def spent_by(opened: Opened) -> list[str]:
    """The agents that a model plays."""
    return [agent for agent, seat in opened.worlds.played[0].config.agents.items() if seat.policy]


def _sum(values: list[Any]) -> Any:
    return None if None in values else sum(values)


def _value(row: PlayRow, score: str, least: float, where: str) -> float:
    if row.end not in ENDED:
        return least
    found: Any = row.success if score == SUCCESS else row.measures.get(score)
    if score.startswith(RETURN):
        found = (row.returns or {}).get(score.removeprefix(RETURN))
    if found is None:
        names = [SUCCESS, *(f"{RETURN}{agent}" for agent in row.returns or ()), *row.measures]
        raise ConfigError(f"{where}.score: its plays have no {score!r}{nearest(score, names)}")
    return float(found)


# -- files -----------------------------------------------------------------------------------------


def write_card(file: Path, card: Scorecard) -> None:
    """Writes a scorecard. Raises DataError where its rows were played by other weights or code."""
    used: dict[str, tuple[str, str | None]] = {}
    for row, found in card.cells.items():
        for name, digest in found[MODEL].get("used", {}).items():
            other, known = used.setdefault(name, (row, digest))
            if digest != known:
                raise DataError(
                    f"{file}: {name} is another one in row {row!r} than in {other!r}; play all rows"
                    " anew with --out FOLDER"
                )
    head = {"bench": 1, "battery": card.battery, "seed": card.seed, "model": card.model}
    head |= {"who": card.who} if card.who is not None else {}
    records = [one for found in card.cells.values() for one in found.values()]
    write_file(file, "".join(json.dumps(one, allow_nan=False) + "\n" for one in (head, *records)))


def card_at(word: str) -> Path | None:
    """The scorecard that a word names: the file, or the folder that holds one."""
    for file in (Path(word), Path(word, FILE)):
        if file.suffix == ".jsonl" and is_file(file):
            return file
    return None


def read_card(file: Path) -> Scorecard:
    """The scorecard of a file. Raises StoreError that names the line."""
    card: Scorecard | None = None
    with stream(file) as opened:
        for number, line in enumerate(lines(opened, file), 1):
            try:
                if card is None:
                    head = msgspec.convert(load_json(line), _Head)
                    card = Scorecard(head["model"], head["battery"], head["seed"], head.get("who"))
                    continue
                record = msgspec.convert(load_json(line), Record)
                card.cells.setdefault(record["row"], {})[record["who"]] = record
            except (msgspec.ValidationError, StoreError) as error:
                raise StoreError(f"{file}:{number}: no scorecard ({error})") from None
    if card is None:
        raise StoreError(f"{file}: no scorecard: it is empty")
    return card
