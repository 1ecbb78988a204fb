"""The cells of a study at play: their scenarios, the engines that they share, and one run folder
for each. What is done is never played again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem_ma.config.loading import Loaded, LoadedStudy
from gem_ma.driver.rollout import Plan, play
from gem_ma.driver.seats import policies_of
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode, Limits, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.spelling import nearest
from gem_ma.runs.costs import costs_of, other_models
from gem_ma.runs.open import Opened, one_process, open_config
from gem_ma.runs.plans import budget_of, evaluation_plans
from gem_ma.runs.playing import play_into
from gem_ma.runs.store import RunFolder, read_manifest, read_tags, run_path, write_file
from gem_ma.runs.worlds import World, Worlds
from gem_ma.scores.groups import RETURN, SUCCESS
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import PlayRow
from gem_ma.scores.sides import Sides, mix_table, with_sides
from gem_ma.scores.studies import Cell, cell_of, scores_of, study_summary, tries_of
from gem_ma.scores.together import EQUALITY
from gem_ma.scores.tournaments import (
    gap_of,
    halves,
    matches_of,
    next_pair,
    played,
    results_of,
    tournament_table,
    wins_of,
)
from gem_ma.system.files import make_folder
from gem_ma.wrappers.around import rules_of

Names = tuple[str, ...]  # of a cell, one per axis
PLAYER = "return player"  # of a tournament, a head
OPPONENT = "return opponent"
_NO_SEATS: dict[str, Any] = {"agents": {}, "scenarios": {}}


def cell_path(path: Path, names: Sequence[str], loaded: Loaded) -> Path:
    """The run folder of a cell."""
    # a file system takes 255 bytes a name; the digest tells apart what is cut alike
    return run_path("-x-".join(names)[:120], loaded.identity(), root=path)


def study_path(loaded: LoadedStudy) -> Path:
    """The folder of a study: named by what all of its cells share, so that a grid that grows
    keeps its folder."""
    # without the grid: a cell more or less is the same study
    return run_path(
        loaded.stem, {**loaded.shared, "study": {"repeats": loaded.sections.study.repeats}}
    )


def keep_config(loaded: LoadedStudy, path: Path) -> None:
    """Writes the study's config into its folder, what was typed beside it in comments."""
    text = loaded.text if loaded.text.endswith("\n") else loaded.text + "\n"
    # as comments: the file stays what was written, and says what was typed beside it
    typed = "".join(f"# override {json.dumps(override)}\n" for override in loaded.overrides)
    write_file(path / "config.yaml", text + typed)


def keep_comparison(
    loaded: LoadedStudy,
    cells: Mapping[Names, Cell],
    measures: Sequence[str],
    path: Path,
    command: str,
) -> dict[str, Any]:
    """Compares the cells as the sections of the study want them, and writes study.json; `command`
    is what does it again."""
    tests = loaded.sections.report.tests
    sided = {names: with_sides(cell, loaded.sides.get(names, {})) for names, cell in cells.items()}
    known = {score for cell in sided.values() for score in cell.values}
    # a measure that applied to no play is a score without a number
    unknown: dict[str, dict[Any, float]] = {name: {} for name in measures if name not in known}
    sided = {at: replace(cell, values={**cell.values, **unknown}) for at, cell in sided.items()}
    compared = study_summary(
        loaded.axes,
        sided,
        loaded.reference,
        first=returns_of_sides(loaded),
        paired_by=loaded.sections.study.paired_by,
        measures=measures,
        resamples=tests.n,
        # for many comparisons at once, as in Holm (1979)
        correct=tests.correct,
    )
    mixed = _mixed(loaded, sided, tests.n) if "mix" in loaded.axes else None
    rated = None
    if "player" in loaded.axes:
        seats = {names: seated(names, loaded.sides[names]) for names in cells}
        found = {names: played(cell.results, seats[names]) for names, cell in cells.items()}
        paid = [(one.values[PLAYER], one.values[OPPONENT]) for one in sided.values() if one.results]
        gaps = [gap for pair in paid for gap in halves(*pair)]
        # a pair that has not met yet tells nothing of that
        copied = all(cell.one_play for cell in cells.values() if cell.results)
        rated = tournament_table(found, copied, gaps)
    # of all commands so far: what is typed later is added
    tags = [tag for cell in cells.values() for tag in read_tags(read_manifest(path / cell.run))]
    summary = {"schema": 1, "name": loaded.stem, "tags": list(dict.fromkeys(tags))}
    # all are played
    summary |= {"command": command, "planned": sum(x.summary["episodes"] for x in cells.values())}
    summary |= {**compared, "mix": mixed}
    summary["tournament"] = rated
    # NaN is not JSON, and most readers refuse it
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_file(path / "study.json", text)
    return summary


def _mixed(loaded: LoadedStudy, cells: Mapping[Names, Cell], resamples: int) -> dict[str, Any]:
    """`mix_table`, with `halves`: what the first half of the seats is paid more a head, in the two
    cells in which one player has all of them. In the others the seats of the two differ."""
    sides = loaded.sides[loaded.reference]
    found = mix_table(cells, [*sides], resamples=resamples)
    seats = [agent for agents in sides.values() for agent in agents]
    half = len(seats) // 2
    gaps = []
    alike = [cell for names, cell in cells.items() if not all(loaded.sides[names].values())]
    for cell in alike:
        paid = with_sides(cell, {"half": seats[:half], "rest": seats[half:]}).values
        gaps += halves(paid.get(f"{RETURN}half", {}), paid.get(f"{RETURN}rest", {}))
    return {**found, "halves": gap_of(gaps, all(cell.one_play for cell in alike))}


def returns_of_sides(loaded: LoadedStudy) -> list[str]:
    """The scores of those who share the seats, the one that is compared first; [] of a grid."""
    returns = [f"{RETURN}{side}" for side in loaded.sides.get(loaded.reference, ())]
    # the first cell of a mix has nobody of the player that is counted
    return returns[::-1] if "mix" in loaded.axes else returns


class Policies:
    """Open policies of the cells: the same model with the same options is opened once, and kept
    while a later cell needs it."""

    def __init__(self, cells: Sequence[Loaded]) -> None:
        self.open: dict[str, Policy] = {}
        # what each cell that is still to come needs
        self.left = [set(self._keys(cell).values()) for cell in cells]
        self.budget = budget_of(cells[0].config) if cells else None  # one for all cells

    def of(self, opened: Opened) -> dict[str, Policy]:
        """The policies that this cell samples from, the next of the cells."""
        loaded = opened.loaded
        keys = self._keys(loaded)
        needed = set().union(*self.left)
        # what no later cell needs gives its memory back before the next one is opened
        self.open = {key: policy for key, policy in self.open.items() if key in needed}
        self.left = self.left[1:]
        for name, key in keys.items():
            if key not in self.open:
                alone = loaded.config.model_copy(
                    update={**_NO_SEATS, "policies": {name: loaded.config.policies[name]}}
                )
                # each alone: the others may be open already, for an earlier cell
                self.open[key] = opened.of_policies(alone, (name,), self.budget)[name]
        return {name: self.open[key] for name, key in keys.items()}

    @staticmethod
    def _keys(loaded: Loaded) -> dict[str, str]:
        """Policy -> everything that decides how it samples."""
        config = loaded.config
        # a policy that no seat of the cell uses costs no memory
        wanted = set().union(*(policies_of(settings.seat) for settings in config.seats))
        # how patient a request is belongs to the engine, so that it decides whether one is shared
        retry = config.retry.model_dump_json()
        return {
            name: f"{name} {settings.model_dump_json()} {retry}"
            for name, settings in config.policies.items()
            if name in wanted
        }


def open_cells(loaded: LoadedStudy, *, offline: bool = False) -> dict[Names, Opened]:
    """Every cell, opened; cells with the same options share one scenario, and its data."""
    made: dict[str, Scenario] = {}
    for cell in loaded.cells.values():
        one_process(cell, "a study plays its cells in one process")
    return {
        names: open_config(cell, seats=False, offline=offline, made=made)
        for names, cell in loaded.cells.items()
    }


def check_measures(
    names: Sequence[str], cells: Mapping[Names, Opened], sides: Sequence[str] = ()
) -> None:
    """Raises ConfigError, before anything is played, for a score that no cell will have; `sides`
    are those of `returns_of_sides`.

    What a scenario measures is known from a play: one of two decision points, with silent
    agents, which is not kept.
    """
    if not names:
        return
    known: dict[str, None] = dict.fromkeys(sides)
    # cells that share a scenario have the same scores, so one play of it is enough
    different = {
        tuple(id(rules_of(world.scenario)) for world in opened.worlds.played): at
        for at, opened in cells.items()
    }
    for cell in different.values():
        try:
            for world in cells[cell].worlds.played:
                known |= dict.fromkeys(_scores_of(world))
        except Exception:
            # the play itself will say what is wrong; the names are checked again at its end
            return
    tries = min(cell.loaded.config.run.episodes_per_task for cell in cells.values())
    several = any(cell.worlds.several for cell in cells.values())
    for name in names:
        if several and tries_of(name):
            raise ConfigError(
                f"--measure {name}: there is none over several scenarios, whose tasks may be tried"
                " more or less often; study them one by one"
            )
        if name not in known and SUCCESS in known and (wanted := tries_of(name)):
            if wanted <= tries:
                continue
            raise ConfigError(
                f"--measure {name}: a task has {tries} tries; set study.repeats={wanted} or more"
            )
        if name not in known:
            raise ConfigError(
                f"--measure {name}: no cell will have such a score{nearest(name, known)}"
            )


def _scores_of(world: World) -> list[str]:
    """The names of the scores that plays of a world will have."""
    judge = Judge.of(world.scenario)
    episode = _tried(world)
    row = judge.rows(strict=True).of(episode)
    row.world = world.name
    judged = dict.fromkeys((SUCCESS, f"{SUCCESS} {world.name}".strip()))
    scores, _ = scores_of([row], Judge(worlds={world.name: judge}))
    # a measure that is None, since it does not apply to this play, may apply to others
    measured = judge.measures(episode) if judge.measures is not None else ()
    names = [*(judged if judge.success is not None else ()), *scores, *map(world.named, measured)]
    # of a play in which nobody is paid there is none
    shared = len(world.scenario.agents) > 1 and not judge.kinds.fixed
    return [*names, *([world.named(EQUALITY)] if shared else [])]


def _tried(world: World) -> Episode:

    plan = next(evaluation_plans(world.config, world.scenario))
    silent = dict.fromkeys(world.scenario.agents, Seat("silent"))
    return asyncio.run(play(replace(plan, cast=silent, limits=Limits(max_steps=2)), {}))


class Playing:
    """What all cells of one command share while they are played."""

    def __init__(
        self,
        stopping: Any,
        progress: Any,
        measures: Sequence[str],
        fresh: bool,
        page: Callable[[Path, Judge], Any] | None = None,
    ) -> None:
        """`page` writes the page of a run folder; None: no cell gets one."""
        self.stopping = stopping
        self.progress = progress
        self.measures = measures
        self.fresh = fresh
        self.page = page
        self.made: dict[Names, Cell] = {}
        self.is_tournament = False

    async def all(self, opened: Mapping[Names, Opened], path: Path, study: LoadedStudy) -> None:
        """Plays the cells one after the other, all on one loop, since they share engines; what came
        of each goes into `made`, up to a signal. Of a tournament with a number of plays the pairs
        that tell most play on."""
        self.is_tournament = "player" in study.axes
        cells = [each.loaded for each in opened.values()]
        counts: dict[Names, int] = {}
        tournament = study.sections.tournament
        if self.is_tournament and tournament is not None and tournament.plays is not None:
            # twice, so that all stay open: any pair may be the next one
            policies = Policies([*cells, *cells])
            for each in opened.values():
                each.policies = policies.of(each)
            counts = await self._unsure_first(opened, path, study, tournament.plays)
        policies = Policies(cells)
        for names, each in opened.items():
            if self.stopping.signal:
                return
            if not counts:
                each.policies = policies.of(each)
            place = cell_path(path, names, each.loaded)
            self.made[names] = await self.cell(each, place, counts.get(names))

    async def _unsure_first(
        self, opened: Mapping[Names, Opened], path: Path, study: LoadedStudy, plays: int
    ) -> dict[Names, int]:
        """Plays a batch of each pair, then of the pair that tells most, and so on; gives how many
        plays each cell has. Each choice follows from the plays before it alone, so that a study
        which is taken up makes the same ones."""
        batch = study.sections.tournament.batch if study.sections.tournament is not None else 1
        counts = dict.fromkeys(opened, 0)
        won: dict[Names, Mapping[Names, float]] = {}
        pairs = [names for names in opened if [*opened].index(names) < [*opened].index(names[::-1])]
        waiting = list(pairs)
        while not self.stopping.signal:
            pairs = [pair for pair in pairs if counts[pair] < opened[pair].worlds.count()]
            left = plays - sum(counts.values())
            if not pairs or left < 2:
                break
            pair = waiting.pop(0) if waiting else next_pair(won.values(), pairs)
            more = batch * opened[pair].loaded.config.run.episodes_per_task
            for names in (pair, pair[::-1]):
                cell = opened[names]
                most = min(counts[names] + min(more, left // 2), cell.worlds.count())
                place = cell_path(path, names, cell.loaded)
                rows = await self._more(cell, place, counts[names], most)
                counts[names] = most
                found = played(results_of(rows), seated(names, study.sides[names]))
                won[names] = wins_of(
                    match
                    for play in cell.worlds.ids(most)
                    for match in matches_of(play, found.get(play, ()))
                )
        return counts

    async def _more(self, opened: Opened, path: Path, since: int, most: int) -> list[PlayRow]:
        """Plays what a cell's run folder lacks of its first `most` plays; gives all of its rows.
        `since`: how many of them are there."""
        make_folder(path, path.parent)
        with opened.folder(path, self.fresh and not since) as folder:
            left = await self._played(opened, folder, most)
            self.progress.skip(most - since - left)
            return folder.scored(opened.worlds.judge)

    async def _played(self, opened: Opened, folder: RunFolder, most: int | None) -> int:
        """Plays what the folder lacks of the first `most` plays; gives how many that were."""
        left, plans = opened.worlds.left(folder.done(), most)
        if left:
            going: Iterable[Plan] = self.stopping.until_stopped(plans)
            concurrency = min(opened.loaded.config.run.concurrency, left)
            await play_into(folder, going, opened.policies, concurrency, self.progress)
        return left

    async def cell(self, opened: Opened, path: Path, most: int | None = None) -> Cell:
        """Plays what this cell's run folder lacks and gives what came of it; `most`: how many of
        its plays have been played already, and are all."""
        loaded = opened.loaded
        worlds = opened.worlds
        make_folder(path, path.parent)  # no link below the study's folder
        with opened.folder(path, self.fresh and most is None) as folder:
            planned = worlds.count() if most is None else most
            left = 0
            if most is None:
                left = await self._played(opened, folder, None)
                self.progress.skip(planned - left)
            # from the folder, since earlier commands have played some of it
            rows = folder.scored(worlds.judge)
            cell = cell_of(
                rows,
                worlds.judge,
                world=_world(worlds),
                run=path.name,
                measures=self.measures,
                episodes=folder.episodes,
            )
            if self.is_tournament:
                cell = replace(cell, results=results_of(rows))
            # a cell that was finished before keeps its page: a large study is taken up in seconds;
            # of one that has grown nobody knows whether its page has seen all plays
            is_new = left or most is not None or not (path / "summary.json").exists()
            no_page = self.page is not None and not (path / "report.html").exists()
            if not self.stopping.signal and (is_new or no_page):
                planned = max(planned, len(folder.done()))
                folder.write_summary(_summary(cell, loaded, rows, planned), of_all=True)
                if self.page is not None:
                    self.page(path, worlds.judge)
        return cell


def seated(names: Names, sides: Sides) -> dict[str, str]:
    """Agent -> the player that has its seat, of those who share the seats."""
    return {
        agent: player
        for player, agents in zip(names, sides.values(), strict=True)
        for agent in agents
    }


def _world(worlds: Worlds) -> str:
    """Which tasks and data a cell plays on: only cells of the same world are compared by task."""
    facts = []
    for world in worlds.played:
        settings = world.config.only
        # the provenance holds digests: a split of other data is another world
        about = [settings.id, settings.split, settings.options, world.scenario.provenance()]
        facts.append([world.name, *about] if world.name else about)
    # one scenario as it always was: old folders of cells are compared with new ones
    return json.dumps(facts if worlds.several else facts[0], sort_keys=True, default=str)


def _summary(cell: Cell, loaded: Loaded, rows: list[PlayRow], planned: int) -> dict[str, Any]:
    return {
        "planned": planned,
        **cell.summary,
        **costs_of(loaded.config, rows),
        **other_models(loaded.config, cell.summary),
    }
