"""`gem-ma bench MODEL [MODEL2]`: a scorecard of a model on a fixed battery of short worlds, beside
chance and a strong script, and two models task by task. A cell of a model and a row is an ordinary
run folder; one that is whole is never played again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from gem_ma.cli.endpoints import guess
from gem_ma.cli.run import play
from gem_ma.cli.terminal import (
    columns,
    counted,
    emit,
    emit_json,
    json_option,
    progress_line,
    quiet_option,
)
from gem_ma.config.battery import POLICY, Battery, load_battery, shipped_battery
from gem_ma.config.document import read
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import Usage
from gem_ma.pages.static.bench import (
    cost_text,
    row_differences,
    row_facts,
    sections_of,
    tables_of,
)
from gem_ma.pages.static.report import write_report
from gem_ma.runs.bench import (
    FILE,
    MODEL,
    Record,
    Scorecard,
    card_at,
    cell_path,
    check_same_code,
    check_weights,
    empty_card,
    player_of,
    read_card,
    record_of,
    write_card,
)
from gem_ma.runs.cells import Policies
from gem_ma.runs.costs import prices_of
from gem_ma.runs.open import Opened, open_config
from gem_ma.system.files import is_file

ASK = 1_000  # model calls from which on --yes is wanted
EXAMPLE = """\b
Examples:
  gem-ma bench random
  gem-ma bench openai/gpt-4.1-mini --yes
  gem-ma bench openai/qwen3 --base-url http://127.0.0.1:8000/v1 --set max_tokens=300 --yes
  gem-ma bench runs/bench/openai-qwen3 runs/bench/random"""


@click.command(epilog=EXAMPLE)
@click.argument("models", nargs=-1, required=True, metavar="MODEL [MODEL2]")
@click.option(
    "--battery",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Another battery.  [default: the one that is shipped]",
)
@click.option("--only", multiple=True, metavar="ROW", help="This row; may be given again.")
@click.option("--seed", type=int, help="Other seeds; scores of other seeds are not compared.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the model, as in max_tokens=300; may be given again.",
)
@click.option("--base-url", metavar="URL", help="Where a model of openai/ is.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/bench"),
    show_default=True,
    help="Where run folders, scorecards and the page go.",
)
@click.option("--yes", is_flag=True, help="Play also what takes more than 1,000 model calls.")
@json_option
@quiet_option
def command(
    models: tuple[str, ...],
    file: Path | None,
    only: tuple[str, ...],
    seed: int | None,
    settings: tuple[str, ...],
    base_url: str | None,
    out: Path,
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Score a model on twelve short worlds: a skill each, beside chance and a strong script.

    MODEL is ENGINE/NAME, a run folder, a behaviour, `random` or `oracle`; WHO,ROW=WHO takes another
    one in a row. A scorecard that was made before (its folder or file) is read. Of two models the
    differences are paired by task. The same command again goes on where it stopped.
    """
    if len(models) > 2:
        raise click.UsageError(f"one model or two are compared; got {len(models)}")
    battery = load_battery(file or shipped_battery(), only, seed)
    options = _options(settings, base_url)
    made: dict[str, Scenario] = {}  # all cells share the scenarios
    sides = [_Side.of(word, battery, options, out, made) for word in models]
    if options and not any(side.cells for side in sides):
        raise click.UsageError(
            "--set and --base-url are for models that play; these are scorecards"
        )
    _say(sides, yes)
    words = click.get_current_context().params
    for side in sides:
        if code := side.play(_typed(words), quiet):
            return code
    cards = [side.card for side in sides]
    if len(cards) == 2:
        check_same_code(*cards)
    page = write_report(
        out=out / "report.html", sections=sections_of(battery, cards), title="Scorecard"
    )
    _show(battery, sides, page, as_json)
    return 0


def _typed(params: Mapping[str, Any]) -> str:
    """The command once more."""
    named = {"--battery": params["file"], "--seed": params["seed"]}
    named |= {"--base-url": params["base_url"], "--out": params["out"]}
    several = {"--only": params["only"], "--set": params["settings"]}
    words = [*params["models"], *(["--yes"] if params["yes"] else [])]
    words += [word for key, value in named.items() if value is not None for word in (key, value)]
    words += [word for key, values in several.items() for value in values for word in (key, value)]
    return shlex.join(["gem-ma", "bench", *map(str, words)])


def _options(settings: Sequence[str], base_url: str | None) -> dict[str, Any]:
    """The options of the policy, nested by dots; values are YAML. Raises ConfigError."""
    options: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    for word in settings:
        key, equals, value = word.partition("=")
        *sections, last = key.split(".")
        if not all((equals, last, *sections)):
            raise click.UsageError(f"--set {word}: wanted is KEY=VALUE, as in max_tokens=300")
        document = read(value, f"--set {key}")
        document.refuse()
        target = options
        for section in sections:
            # what is not a mapping was set whole
            inner = target.setdefault(section, {})
            target = inner if isinstance(inner, dict) else {last: inner}
        if last in target:
            raise click.UsageError(f"--set {word}: it was set before, whole or in part")
        target[last] = document.value
    return options


class _Cell(NamedTuple):
    """A row and who plays it: the model, chance or the oracle."""

    row: str
    who: str
    opened: Opened
    path: Path
    weights: str | None  # what a run says of the model's


@dataclass
class _Side:
    """A model and its scorecard; `cells` are none where the scorecard is read. `others`: its rows
    that were not asked for, and stay."""

    battery: Battery
    card: Scorecard
    file: Path
    cells: Sequence[_Cell] = ()
    others: Mapping[str, dict[str, Record]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        word: str,
        battery: Battery,
        options: Mapping[str, Any],
        out: Path,
        made: dict[str, Scenario],
    ) -> _Side:
        """What a word means. Raises ConfigError, also where a scorecard is of another battery."""
        if (file := card_at(word)) is not None:
            card = read_card(file)
            card.check(battery, word)
            card.cells = {row: card.cells[row] for row in battery.rows if row in card.cells}
            return cls(battery, card, file)
        player = player_of(word, battery, options)
        card = empty_card(battery, player, options)
        folder = out / card.model
        file = folder / FILE
        others = {}
        if is_file(file):
            old = read_card(file)
            old.check(battery, file)
            # of two words that come to one name of a folder
            if old.who not in (None, card.who):
                raise ConfigError(
                    f"{file}: a scorecard of {old.who}, and this model is {card.who}; play it with"
                    " --out FOLDER"
                )
            others = {row: found for row, found in old.cells.items() if row not in battery.rows}
        cells = []
        for row in battery.rows:
            # the model first: what is wrong with it is found before others play
            for who, one in {MODEL: player, **battery.beside()}.items():
                loaded = battery.load(row, one)
                # all models share those who play beside
                path = cell_path(folder if who == MODEL else out / who, row, loaded)
                opened = open_config(loaded, made=made)
                cells.append(_Cell(row, who, opened, path, one.parts[row].weights))
        return cls(battery, card, file, cells, others)

    def record(self, cell: _Cell) -> Record | None:
        return record_of(cell.row, cell.who, self.battery, cell.opened, cell.path)

    @property
    def asked(self) -> list[_Cell]:
        """The cells that ask a model."""
        return [cell for cell in self.cells if cell.opened.loaded.config.policies]

    def guess(self) -> dict[str, Any]:
        """What these will take: calls, tokens, and USD (None without a price)."""
        sums: dict[str, Any] = {"requests": 0, "prompt": 0, "completion": 0, "usd": 0.0}
        for cell in self.asked:
            if _is_whole(self.record(cell)):
                continue
            config = cell.opened.loaded.config
            worlds = cell.opened.worlds
            sampling = {POLICY: config.policies[POLICY].sampling}
            found = guess(worlds.plans(), sampling, worlds.count())[POLICY]
            price = prices_of(config).get(POLICY)
            usage = Usage(found["prompt"], found["completion"])
            found["usd"] = None if price is None else price(usage)
            sums = {
                key: None if None in (sums[key], found[key]) else sums[key] + found[key]
                for key in sums
            }
        return sums

    def play(self, again: str, quiet: bool) -> int:
        """Plays what is not whole yet, and keeps the scorecard after each row; gives the exit code
        of a play that could not go on. Raises Interrupted after a signal, DataError where weights
        or code are others than when a row was played."""
        for cell in self.cells:
            code = 0
            record = self.record(cell)
            if _is_whole(record):
                # the same name may mean other weights, or other code, by now
                with cell.opened.folder(cell.path):
                    pass
            else:
                progress_line(f"{cell.row}, {cell.who} ...")
                code = play(
                    cell.opened.loaded,
                    cell.path,
                    retry_failed=True,
                    resume=again,
                    quiet=quiet,
                    say_score=False,
                    opened=cell.opened,
                )
                record = self.record(cell)
            # a model that never spoke has no score: its server was away, or nothing fits it
            if record is None or code:
                return code or 1
            if not _is_whole(record):
                progress_line(
                    f"{cell.row}, {cell.who}: {counted(record['faults'], 'play')} failed by no"
                    f" fault of an agent and count the least; to play them again: {again}"
                )
            self.card.cells.setdefault(cell.row, {})[cell.who] = record
            if cell.row in self.card.rows():
                write_card(self.file, replace(self.card, cells={**self.others, **self.card.cells}))
        return 0


def _is_whole(record: Record | None) -> bool:
    """Whether all plays of a cell have ended, none by a fault outside of the agents."""
    return record is not None and not record["faults"]


def _say(sides: Sequence[_Side], yes: bool) -> None:
    """Opens the models and tells the cost before anything is played. Raises ConfigError where it is
    more than should be spent unasked, DataError where a run has other weights by now."""
    calls = 0
    for side in sides:
        policies = Policies([cell.opened.loaded for cell in side.asked])
        for cell in side.asked:
            # opened once for all rows: weights are large
            cell.opened.policies = policies.of(cell.opened)
            check_weights(cell.opened, cell.weights)
        found = side.guess()
        if found["requests"]:
            price = "price unknown" if found["usd"] is None else f"${found['usd']:.2f}"
            progress_line(
                f"cost of {side.card.model}: about {found['requests']} model calls,"
                f" {found['prompt']} tokens read, {found['completion']} sampled, {price}"
            )
        calls += found["requests"]
    if calls > ASK and not yes:
        raise ConfigError(
            f"about {calls} model calls are more than {ASK}; play fewer rows with --only ROW, or go"
            " on with --yes"
        )


def _show(battery: Battery, sides: Sequence[_Side], page: Path, as_json: bool) -> None:
    cards = [side.card for side in sides]
    if as_json:
        told: dict[str, Any] = {
            "report": str(page),
            "battery": battery.digest,
            "models": [
                {"model": one.card.model, "scorecard": str(one.file)}
                | {"rows": row_facts(battery, one.card)}
                for one in sides
            ],
        }
        if len(cards) == 2:
            told["differences"] = row_differences(battery, *cards)
        emit_json(told)
        return
    for table in tables_of(battery, cards):
        emit(f"{table.caption}\n{columns(table.rows, table.columns)}\n")
    places = [("cost", cost_text(card)) for card in cards if cost_text(card)]
    places += [("scorecard", str(side.file)) for side in sides]
    emit(columns([*places, ("report", str(page))]))
