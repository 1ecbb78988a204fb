"""The pages of the viewer as functions of a path: what is there, read at this moment. It knows run
folders, nothing of HTTP.

A name in a path is one that its folder lists; nothing else is opened, no link is followed, and no
code of a folder is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from typing import Any
from urllib.parse import quote

from gem_ma.config.settings import StudyReportSettings
from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    html,
    json,
    link,
    meant,
    missing,
    moved,
    run_address,
    whole_number,
)
from gem_ma.pages.live.compared import compare_page
from gem_ma.pages.live.leagues import league_page, run_links
from gem_ma.pages.live.overlays import curves_page
from gem_ma.pages.live.plays import Plays
from gem_ma.pages.live.run import Run, id_of
from gem_ma.pages.live.studied import study_address, study_page
from gem_ma.pages.live.table import plays_page
from gem_ma.pages.static.folder import manifest
from gem_ma.pages.static.page import Html, page, render, table, templates, text
from gem_ma.pages.static.report import run_page, write_report
from gem_ma.pages.static.study import write_study
from gem_ma.pages.static.transcript import number
from gem_ma.registry import names_code
from gem_ma.runs.store.listing import STUDY, Listing, find_studies, list_runs, since_compared
from gem_ma.runs.store.used import scenario_versions
from gem_ma.runs.stored import record_for_page
from gem_ma.system import files
from gem_ma.system.files import stamp_of


class Site:
    """What stands below one folder. `only`: the names of its runs that are offered; all where
    empty."""

    def __init__(
        self,
        root: Path,
        only: tuple[str, ...] = (),
        *,
        scenario: str | None = None,
        trusted: bool = False,
    ) -> None:
        """`scenario`: the code that judges and forks runs of it, as the user named it; `trusted`:
        forks may use the models, tools and code that a run names."""
        self.root = root
        self.only = only
        self.scenario = scenario
        self.trusted = trusted
        # what a page sends along when it changes something; no other page can read it
        self.token = token_urlsafe(24)
        self.runs: dict[Path, Run] = {}
        self.listed: Listing = {}
        self.plays = Plays(root, scenario)
        self.lock = Lock()
        templates()  # now, and not while somebody waits for the first page

    def close(self) -> None:
        """Ends the plays that wait for somebody."""
        self.plays.close()

    def answer(
        self,
        path: str,
        query: Mapping[str, str],
        runs: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> Answer:
        """What stands at a path: `/`, `/run/NAME`, `/run/NAME/episode?key=`,
        `/run/NAME/tokens?key=&policy=`, `/run/NAME/calls?key=&step=&agent=`,
        `/run/NAME/since?from=`, `/run/NAME/list?chip=&words=&from=`, and what `PAGES` names.
        `runs`, `columns`: every `run=` and `column=` of the address."""
        try:
            parts = [part for part in path.split("/") if part]
            if not parts:
                return html(list_page(self.root, self.only, self.listed))
            if parts[0] == "play":
                made = self.plays.answer(parts[1:], query, self.token)
                return html(made) if isinstance(made, str) else json(made)
            if parts[0] in PAGES:
                return PAGES[parts[0]](self, Asked(parts[1:], query, list(runs), columns))
            if parts[0] != "run" or len(parts) < 2:
                return missing("there is no such page")
            run, what = self.run(parts[1:])
            with run.lock:
                run.refresh()
                return self._of(run, what, query)
        except GemMaError as error:
            return Answer(404, "text/plain; charset=utf-8", f"{error}\n".encode())

    def change(self, path: str, body: Any) -> Answer:
        """What is done at a path: `/run/NAME/fork` with `key step agent text who`, `/run/NAME/note`
        with `key text tags`. Whoever calls it has checked that the page itself asks."""
        try:
            parts = [part for part in path.split("/") if part]
            if parts[:1] == ["play"]:
                return json(self._play(parts[1:], body))
            if len(parts) < 3 or parts[0] != "run":
                return missing("there is no such page")
            run, what = self.run(parts[1:])
            with run.lock:
                run.refresh()
                if what == "fork":
                    return json(run.fork(body, self.trusted))
                if what == "note":
                    return json(run.annotate(body))
            return missing("there is nothing to change")
        # first: some of them are ValueErrors
        except GemMaError as error:
            return Answer(409, "text/plain; charset=utf-8", f"{error}\n".encode())
        except (KeyError, TypeError, ValueError):
            return Answer(400, "text/plain; charset=utf-8", b"a field is missing or wrong")

    def submit(self, path: str, fields: Mapping[str, str]) -> Answer:
        """What a form without scripts does: paths below `/play`. Whoever calls it has checked that
        a page of this site sends it."""
        try:
            parts = [part for part in path.split("/") if part]
            if parts[:1] != ["play"]:
                return missing("there is no such page")
            done = self.plays.submit(parts[1:], fields, self.token)
            if isinstance(done, str):
                return html(done)
            if parts[1:] == ["begin"]:
                self._offer(done.name)
            return moved(f"/play/{quote(done.name, safe='')}")
        except GemMaError as error:
            return Answer(409, "text/plain; charset=utf-8", f"{error}\n".encode())
        except (KeyError, TypeError, ValueError):
            return Answer(400, "text/plain; charset=utf-8", b"a field is missing or wrong")

    def _play(self, parts: list[str], wish: Any) -> dict[str, Any]:
        done = self.plays.change(parts, wish)
        if "name" in done:
            self._offer(done["name"])
        return done

    def _offer(self, name: str) -> None:
        """Opens the run of a new play, too, where one run alone was named."""
        if self.only:
            self.only = (*self.only, name)

    def _of(self, run: Run, what: str, query: Mapping[str, str]) -> Answer:
        if not what:
            live = {"live": True, "finished": run.finished(), "token": self.token}
            live["forks"] = run.worlds is not None
            links = run_links(run.path, run.path.relative_to(self.root).as_posix())
            head = render("ways", links=links, warnings=run.damage())
            return html(run_page(run.path, run.judge, run.load, live, head))
        if what == "since":
            first = whole_number(query.get("from", "0"))
            return json({"episodes": run.since(max(1, first)), "finished": run.finished()})
        if what == "list":
            first = whole_number(query.get("from", "0"))
            words = query.get("words", "").lower().split()
            return json(run.list.found(query.get("chip", ""), words, max(0, first)))
        id_ = id_of(query.get("key", ""))
        if what == "episode":
            return json(run.episode(id_))
        if what == "calls":
            step = whole_number(query.get("step", ""))
            return json(run.calls(id_, step, query.get("agent", ""), self.trusted))
        if what == "tokens" and run.config is not None:
            return json(run.tokens(id_, query.get("policy", "")))
        return missing("there is no such page")

    def folder(self, parts: list[str]) -> tuple[Path, list[str]]:
        """The run folder that the parts of a path lead to, and the parts behind it. Raises
        StoreError where there is none."""
        place = self.root
        rest = list(parts)
        if self.only and not meant(rest[0], self.only):
            raise StoreError(f"{rest[0]}: is not among the runs that are shown")
        # only what a folder lists is a name, so `..` and the like are not names
        while rest and (name := meant(rest[0], files.names(place))):
            if not files.is_folder(place / name, self.root):
                break
            place /= name
            del rest[0]
            if files.is_file(place / "manifest.json", self.root):
                break
        if not files.is_file(place / "manifest.json", self.root) or len(rest) > 1:
            raise StoreError(f"{'/'.join(parts)}: no such run folder")
        return place, rest

    def run(self, parts: list[str]) -> tuple[Run, str]:
        """The run that the parts of a path lead to, and what is wanted of it."""
        place, rest = self.folder(parts)
        with self.lock:
            # a folder of this name may be another run by now
            old = self.runs.get(place)
            if old is None or old.stamp != stamp_of(place / "manifest.json"):
                self.runs[place] = Run(place, self._judging(place))
            return self.runs[place], "".join(rest)

    def _judging(self, place: Path) -> str | None:
        """The scenario that the user named, where it judges this run: the one that is viewed, else
        those that played it. The rules of another game would call any play won or lost."""
        played = scenario_versions(manifest(place))
        # where further code played no single name judges all
        alone = all(name == self.scenario or not names_code(name) for name in played)
        return self.scenario if self.only or (self.scenario in played and alone) else None


# pages that show more than one run, by the first word of their path
PAGES: dict[str, Callable[[Site, Asked], Answer]] = {
    "compare": compare_page,
    "curves": curves_page,
    "league": league_page,
    "plays": plays_page,
    "study": study_page,
}


# -- the list of runs, each with a box to choose it for a page of several --------------------------


HEAD = ("run", "scenario", "score", "episodes", "cast", "models", "begun", "tags", "state")


def list_page(
    root: Path,
    only: tuple[str, ...] = (),
    earlier: Listing | None = None,
    *,
    bundle: Path | None = None,
) -> str:
    """The page; `only`: the names of the runs that are offered, all where empty; `earlier`: what
    was read for it before; `bundle`: the folder of pages that it lies in and leads to, without a
    form. The cells of a study are folded under its name."""
    there = {} if only else find_studies(root)
    rows: dict[str, list[list[object]]] = {name: [] for name in there}
    others: list[list[object]] = []
    for path, run in _listed(root, only, earlier):
        study = next((name for name in there if name and path.startswith(f"{name}/")), None)
        row = _row(run, path, study, bundle)
        (others if study is None else rows[study]).append(row)
    grouped = [
        (
            name or root.resolve().name,
            study_address(name) if bundle is None else _page_in(bundle, name),
            len(cells),
            _table(cells),
        )
        for name, cells in rows.items()
    ]
    count = len(others) + sum(map(len, rows.values()))
    # with a single run there is nothing to choose, and a bundle compares none
    bundled = bundle is not None
    fields = {"count": count, "chooses": count > 1 and not bundled, "bundled": bundled}
    body = render("list", root=root, studies=grouped, runs=_table(others), **fields)
    return page("Runs", body, {"runs": []}, live=not bundled)


def _table(rows: list[list[object]]) -> Html:
    """The table of some runs, less the columns in which none of them has anything; "" of none."""
    if not rows:
        return Html("")
    kept = [at for at in range(len(HEAD)) if any(row[at] for row in rows)]
    return table([HEAD[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _listed(
    root: Path, only: tuple[str, ...], earlier: Listing | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every run that is offered, by its path below the folder."""
    # of a single run no others are offered, nor the cells of a study beside it
    for place in dict.fromkeys((root, *({} if only else find_studies(root)).values())):
        for run in list_runs(place, earlier):
            if not only or run["name"] in only:
                yield Path(run["run"]).relative_to(root).as_posix(), run


def _page_in(bundle: Path, path: str) -> str:
    """Where a bundle has the page of a run or study, by its path below the folder; "" where it
    could not be written."""
    there = (bundle / path / "report.html").is_file()
    return f"./{quote(path, errors='replace')}/report.html" if there else ""


def _row(
    run: Mapping[str, Any], path: str, study: str | None = None, bundle: Path | None = None
) -> list[object]:
    if run["error"]:
        return [text(path), *[""] * (len(HEAD) - 2), run["error"]]
    pairs = {key: _pairs(run[key]) for key in ("cast", "models")}
    score = ", ".join(f"{key} {number(round(value, 3))}" for key, value in run["score"].items())
    tags = ", ".join(run["tags"])
    state = "" if run["finished"] else "not ended"
    begun = Html(f"<time>{text(run['created'][:16].replace('T', ' '))}</time>")
    box = f'<input type="checkbox" name="run" value="{text(path)}" aria-label="{text(path)}">'
    told = path if study is None else path.removeprefix(f"{study}/")
    name = Html(f"{box} {link(told, run_address(path))}")
    if bundle is not None:
        to = _page_in(bundle, path)
        name = link(told, to) if to else text(told)
    return [name, run["scenario"], score, run["episodes"], *pairs.values(), begun, tags, state]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in values.items())


def write_bundle(root: Path, to: Path, say: Callable[[str], None]) -> Path:
    """Writes a folder of pages that need no server, and gives its first one: the list of the runs
    below `root`, and the report of each run and study. `say` is told what of a run differs from
    what it was, or cannot be shown. Raises ConfigError where it would lie among the runs,
    StoreError where a page cannot be written."""
    if to.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{to}: lies in {root}, whose own pages it would replace")
    for path, run in _listed(root, (), None):
        try:
            if run["error"]:
                raise StoreError(str(run["error"]))
            place = root / path
            judge = record_for_page(place, say, say).judge
            write_report(place, to / path / "report.html", judge=judge)
        except GemMaError as error:  # a broken one may not keep the others from being shown
            say(str(error))
    settings = StudyReportSettings()  # all there is
    for name, place in find_studies(root).items():
        out = to / (name or ".") / "report.html"
        try:
            with files.damage(place / STUDY):
                summary = files.read_json(place / STUDY, root)
                if line := since_compared(place, summary):
                    say(line)
                write_study(place, summary, tables=settings.tables, plots=settings.plots, out=out)
        except GemMaError as error:
            say(str(error))
    index = to / "index.html"
    with files.oserror(index):
        to.mkdir(parents=True, exist_ok=True)
        files.replace_file(index, list_page(root, bundle=to).encode(), to, synced=False)
    return index
