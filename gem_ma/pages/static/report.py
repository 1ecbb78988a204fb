"""The report of one or several runs: one static HTML file with what was run, scores, lost episodes,
learning curves and transcripts in lanes.

It reads run folders (episodes, metrics, summary, manifest) and nothing else; it needs no server,
makes no request and opens from a disk. Every plot has its numbers as a table below it. Which
episodes it holds, lost ones first, is decided in `gem_ma.pages.static.folder`, and it says which it
leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import StoreError
from gem_ma.pages.static.facts import command_of, facts_block, lead_of
from gem_ma.pages.static.figures import Curves, chart
from gem_ma.pages.static.folder import Loaded, load, manifest, resolved, summary_file
from gem_ma.pages.static.page import Html, page, render, table, text, warning
from gem_ma.pages.static.scores import (
    baselines,
    by_world,
    counts,
    details,
    lost_table,
    of_groups,
    scores,
)
from gem_ma.runs.store import read_metrics
from gem_ma.scores.judge import Judge
from gem_ma.scores.metrics import Success
from gem_ma.system.files import damage, replace_file

MAX_BYTES = 6_000_000  # of transcripts in one page; browsers open more than this slowly

Runs = Sequence[Path] | Mapping[str, Path]
Load = Callable[[str, Path, Judge, bool, int], Loaded]


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table of plain values."""

    columns: Sequence[object]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page. `runs` (paths, or label -> path) are summarised in one table and their
    transcripts go into the viewer below.

    `own_curves`: also draw what each run wrote to metrics.jsonl. `command` is shown as what made
    these numbers.
    """

    heading: str
    text: str = ""
    runs: Runs = ()
    curves: Sequence[Curves] = ()
    tables: Sequence[PlainTable] = ()
    figures: Sequence[Html] = ()  # markup that is ready
    success: Success | None = None
    command: str = ""
    own_curves: bool = True
    judge: Judge | None = None  # in place of `success`: measures and labels, too

    @property
    def hooks(self) -> Judge:
        return self.judge if self.judge is not None else Judge(self.success)


def write_report(
    run: Path | str | Sequence[Path] = (),
    out: Path | None = None,
    title: str | None = None,
    *,
    sections: Sequence[Section] = (),
    success: Success | None = None,
    judge: Judge | None = None,
    head: Html = Html(""),  # noqa: B008 (a constant)
    facts: Html = Html(""),  # noqa: B008 (a constant)
) -> Path:
    """Writes the page and gives its path: `out`, else `report.html` in the (first) run folder. A
    page that stood there is replaced in one step.

    Each run becomes a section of its own, judged by `judge` (or `success` alone); `sections`
    follow; `head` stands below the title, `facts` of what was run at the end. Raises StoreError
    where a run cannot be read or the page cannot be written.
    """
    runs = [Path(path) for path in ([run] if isinstance(run, (str, Path)) else run)]
    alone = len(runs) == 1 and not sections
    hooks = judge if judge is not None else Judge(success)
    whole = [*(_section_of(path, hooks, alone) for path in runs), *sections]
    # where nothing is said the page lies beside what it is about
    first = next((path for section in whole for path in _named(section.runs).values()), None)
    if out is None and first is None:
        raise StoreError("a report without runs needs a path to write to")
    target = Path(out) if out is not None else Path(first or ".") / "report.html"
    heading = whole[0].heading if len(whole) == 1 else "gem_ma report"
    name = title or (runs[0].resolve().name if alone else heading)
    # each run has an equal share, so that the last is not left without any
    made = _Page(alone, MAX_BYTES // max(1, sum(len(_named(section.runs)) for section in whole)))
    parts = []
    for number, section in enumerate(whole):
        # a summary of another shape, or a sum that is not finite
        with damage(next(iter(_named(section.runs).values()), target)):
            parts.append(_section(number, section, made))
    facts = made.facts.get(runs[0].resolve().name, facts) if alone else facts
    head = head or (made.lead if alone else head)
    html = page(name, _body(name, head, whole, parts, made.data, facts=facts), {"runs": made.data})
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # a report can be made again: it needs no wait for the disk
        replace_file(target, html.encode("utf-8"), target.parent, synced=False)
    # it names its file already
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{target}: {error.strerror or error}") from error
    return target


def run_page(path: Path, judge: Judge, loader: Load, live: Mapping[str, Any], links: Html) -> str:
    """The page of one run for a server: `loader` in place of `load`, what the script is told of
    the server (`live`), and what leads to other pages."""
    section = _section_of(path, judge, True)
    made = _Page(True, MAX_BYTES, loader)
    parts = [_section(0, section, made)]
    name = path.resolve().name
    foot = "Read by gem-ma view as it stands now."
    facts = made.facts.get(name, Html(""))
    body = _body(name, Html(links + made.lead), [section], parts, made.data, foot, facts)
    return page(name, body, {"runs": made.data, **live}, live=True)


def sections_page(
    title: str, sections: Sequence[Section], head: Html, foot: str, facts: Html
) -> str:
    """A page of sections without runs, for a server; `facts` of what was run end it."""
    made = _Page(False, MAX_BYTES)
    parts = [_section(number, section, made) for number, section in enumerate(sections)]
    body = _body(title, head, sections, parts, made.data, foot, facts)
    return page(title, body, {"runs": made.data}, live=True)


# -- a section -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Page:
    """What grows while the sections are made. `alone`: one run, whose facts end the page, and whose
    `lead` heads it; `room`: bytes of transcripts of one run."""

    alone: bool
    room: int
    load: Load = load
    data: list[dict[str, Any]] = field(default_factory=list)  # of the script: a run's transcripts
    facts: dict[str, Html] = field(default_factory=dict)
    lead: Html = Html("")


def _section(number: int, section: Section, made: _Page) -> Html:
    named = _named(section.runs)
    parts = _run_parts(section, named, made) if named else []
    parts += [table(rows.columns, rows.rows, caption=rows.caption) for rows in section.tables]
    parts += section.figures
    parts += [chart(curves) for curves in section.curves]
    if section.own_curves:
        parts += [
            _own_curves(label if len(named) > 1 else "", path) for label, path in named.items()
        ]
    # last: who reads a page asks first what came out
    parts += [] if made.alone else [made.facts[label] for label in named]
    return render("section", number=number, section=section, parts=parts)


def _own_curves(label: str, path: Path) -> Html:
    """Its curves, where it has learned; where their numbers are damaged one line tells it, and the
    rest is shown."""
    try:
        if next(read_metrics(path), None) is None:
            return Html("")
        # late: most runs learn nothing, and it knows how studies compare
        from gem_ma.pages.static.learning import own_curves

        return own_curves(label, path)
    except StoreError as error:
        return warning(f"{error}; no curve is drawn")


def _run_parts(section: Section, named: Mapping[str, Path], made: _Page) -> list[Html]:
    """Scores, lost episodes and what stands below them, of the runs of a section."""
    learned = [label for label, path in named.items() if manifest(path).get("command") == "train"]
    # all of them first: facts and tables below name runs by what the viewer calls them
    loaded: dict[str, Loaded] = {}
    for label, path in named.items():
        # links name runs by their label, so that each is there once
        taken = any(run["name"] == label for run in made.data)
        name = f"{label} ({len(made.data) + 1})" if taken else label
        loaded[label] = made.load(name, path, section.hooks, label in learned, made.room)
        # a run of which nothing can be shown is not offered in the viewer
        made.data += [loaded[label].island] if loaded[label].island["episodes"] else []
    for label, path in named.items():
        stored = {**summary_file(path), **loaded[label].summary}
        told = manifest(path), resolved(path), stored
        made.facts[label] = facts_block(label, *told, folded=not made.alone)
        made.lead = lead_of(*told)
    parts: list[Html] = []
    if learned and section.own_curves:
        from gem_ma.pages.static.learning import before_and_after
    # its plays were of a policy that changed; what counts is before and after
    for label in learned if section.own_curves else ():
        name = label if len(named) > 1 else ""
        stored = summary_file(named[label])
        parts += [before_and_after(name, stored), baselines(f"{name}: " if name else "", stored)]
    # a run that is still played may be counted only
    scored = {
        label: run.summary
        for label, run in loaded.items()
        if label not in learned and "score" in run.summary
    }
    parts += [scores(scored), of_groups(scored)] if scored else []
    parts += [by_world(label if len(scored) > 1 else "", run) for label, run in scored.items()]
    parts += [lost_table(loaded[label].island, named=len(scored) > 1) for label in scored]
    for label, summary in scored.items():
        more = "".join(details(label if len(scored) > 1 else "", summary))
        folded = f"<details><summary>{text(label)}: more scores</summary>{more}</details>"
        parts.append(Html(folded if more and len(scored) > 1 else more))
    words = "(ok / failed / excluded) episodes while it learned."
    parts += [
        Html(f'<p class="hint">{text(label)} played {counts(loaded[label].summary)} {words}</p>')
        for label in learned
    ]
    return parts


def _named(runs: Runs) -> dict[str, Path]:
    if isinstance(runs, Mapping):
        return {label: Path(path) for label, path in runs.items()}
    return {Path(path).resolve().name: Path(path) for path in runs}


# -- the page ------------------------------------------------------------------------------------


def _body(
    title: str,
    head: Html,
    sections: Sequence[Section],
    parts: Sequence[Html],
    data: list[dict[str, Any]],
    foot: str = "",
    facts: Html = Html(""),  # noqa: B008 (a constant)
) -> Html:
    headings = [section.heading for section in sections]
    # what the page holds, which may be less than the runs have
    count = sum(len(run["episodes"]) for run in data)
    return render(
        "report",
        title=title,
        head=head,
        headings=headings,
        parts=parts,
        count=count,
        foot=foot,
        facts=facts,
    )


def _section_of(path: Path, judge: Judge, alone: bool) -> Section:
    """A run as a section of its own."""
    return Section(
        "Scores" if alone else path.resolve().name,
        runs=(path,),
        judge=judge,
        command=command_of(manifest(path), path),
    )
