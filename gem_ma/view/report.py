"""The report of one or several runs: one static HTML file with scores, learning curves and transcripts in lanes.

It reads run folders (episodes, metrics, summary) and nothing else; it needs no server, makes no request and opens from a disk. Every plot has its
numbers as a table below it. A page holds at most `EPISODES` transcripts of a run, spread from its first episode to its last, and says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.errors import StoreError
from gem_ma.evaluation.judge import Judge
from gem_ma.evaluation.metrics import Success, interval_text
from gem_ma.store import read_ends, read_episodes, read_manifest, read_media
from gem_ma.types import End
from gem_ma.view.curves import Curves, chart
from gem_ma.view.details import baselines, details
from gem_ma.view.learning import flat_metrics, flatten, own_curves, score_of, series_of
from gem_ma.view.page import Html, page, table, text
from gem_ma.view.svg import interval_mark
from gem_ma.view.transcript import transcript

EPISODES = 50  # transcripts of one run
FAILED = 10  # failed ones on top of them
MAX_BYTES = 6_000_000  # of transcripts in one page
_SCORES = ("success", "return", "nash_conv", "nash_conv_averaged", "ok", "failed")  # of an exam

Runs = Sequence[Path] | Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table of plain values."""

    columns: Sequence[object]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page. `runs` (paths, or label -> path) are summarised in one table and their transcripts go into the viewer below.

    `own_curves`: also draw what each run wrote to metrics.jsonl. `command` is shown as what made these numbers.
    """

    heading: str
    text: str = ""
    runs: Runs = ()
    curves: Sequence[Curves] = ()
    tables: Sequence[Rows] = ()
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
) -> Path:
    """Writes the page and gives its path: `out`, else `report.html` in the (first) run folder. A page that stood there is replaced in one step.

    Each run becomes a section of its own, judged by `judge` (or `success` alone); `sections` follow. Raises StoreError where a run cannot be read
    or the page cannot be written.
    """
    runs = [Path(run)] if isinstance(run, (str, Path)) else [Path(one) for one in run]
    alone = len(runs) == 1 and not sections
    whole = [*(_section_of(path, judge if judge is not None else Judge(success), alone) for path in runs), *sections]
    first = next((path for section in whole for path in _named(section.runs).values()), None)
    if out is None and first is None:
        raise StoreError("a report without runs needs a path to write to")
    target = Path(out) if out is not None else Path(first or ".") / "report.html"
    name = title or (runs[0].resolve().name if alone else whole[0].heading if len(whole) == 1 else "gem_ma report")
    data: list[dict[str, Any]] = []
    parts = [_section(number, section, data) for number, section in enumerate(whole)]
    html = page(name, _body(name, whole, parts, data), {"runs": data})
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(html, encoding="utf-8")
        os.replace(temporary, target)
    except OSError as error:
        raise StoreError(f"{target}: {error.strerror or error}") from error
    return target


def learning_curves(runs: Mapping[str, Sequence[Path]], key: str, title: str, **options: Any) -> Curves:
    """A chart out of metrics.jsonl: label -> run folders, one per seed; `key` as in `returns/listener`, x is the key `step`."""
    lines = {label: [series_of(flat_metrics(path)).get(key, []) for path in paths] for label, paths in runs.items()}
    return Curves(title, lines, **options)


# -- a section ----------------------------------------------------------------------------------------------------------------


def _section(number: int, section: Section, data: list[dict[str, Any]]) -> str:
    parts = [f'<section id="part-{number}"><h2>{text(section.heading)}</h2>']
    parts += [f"<p>{text(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph.strip()]
    named = _named(section.runs)
    if named:
        learned = [label for label, path in named.items() if _manifest(path).get("command") == "train"]
        loaded = {label: _load(label, path, section.hooks, label in learned, data) for label, path in named.items()}
        for label in learned if section.own_curves else ():
            name = label if len(named) > 1 else ""
            parts += [_before_and_after(name, named[label]), baselines(f"{name}: " if name else "", _summary_file(named[label]))]
        scored = {label: one for label, one in loaded.items() if label not in learned}
        parts += [_scores(scored)] if scored else []
        for label, one in scored.items():
            found = "".join(details(label if len(scored) > 1 else "", one))
            folded = f"<details><summary>{text(label)}: more scores</summary>{found}</details>"
            parts.append(folded if found and len(scored) > 1 else found)
        parts += [
            f'<p class="hint">{text(label)} played {_counts(one)} (ok / failed / excluded) episodes while it learned.</p>'
            for label, one in loaded.items()
            if label in learned
        ]
    parts += [table(rows.columns, rows.rows, caption=rows.caption) for rows in section.tables]
    parts += section.figures
    parts += [chart(curves) for curves in section.curves]
    if section.own_curves:
        parts += [own_curves(label if len(named) > 1 else "", path) for label, path in named.items()]
    if section.command:
        parts.append(f'<p class="hint">Made by <code>{text(section.command)}</code></p>')
    return "".join([*parts, "</section>"])


def _named(runs: Runs) -> dict[str, Path]:
    if isinstance(runs, Mapping):
        return {label: Path(path) for label, path in runs.items()}
    return {Path(path).resolve().name: Path(path) for path in runs}


def _load(label: str, path: Path, judge: Judge, learned: bool, data: list[dict[str, Any]]) -> dict[str, Any]:
    """The run's summary (of a training run its counts only); its transcripts are added to `data`."""
    ends = read_ends(path)
    known = None if learned else _stored_summary(path, len(ends), judge)
    ids, last = list(ends), len(ends) - 1
    wanted = {ids[round(at * last / (EPISODES - 1))] for at in range(EPISODES)} if len(ids) > EPISODES else set(ids)
    wanted |= set([id_ for id_, end in ends.items() if end is End.FAILED][:FAILED])
    episodes = list(read_episodes(path, None if known is None and not learned else wanted))
    used, size = sum(run["size"] for run in data), 0
    shown: list[dict[str, Any]] = []
    for episode in episodes:
        if episode.id in wanted:
            one = transcript(episode, judge.success(episode) if judge.success and episode.end.scored else None, lambda digest: _media(path, digest))
            size += len(json.dumps(one))
            if used + size > MAX_BYTES and shown:
                break
            shown.append(one)
    if shown:
        whole = len(shown) == len(ids)
        note = f"all {len(ids)} episodes" if whole else f"{len(shown)} of {len(ids)} episodes, spread from first to last; all are in episodes.jsonl"
        data.append({"name": label, "note": note, "episodes": shown, "size": size})
    if learned:
        failed, ok = sum(end is End.FAILED for end in ends.values()), sum(end.scored for end in ends.values())
        return {"ok": ok, "failed": failed, "excluded": len(ends) - ok - failed}
    return known or judge.summarise(episodes)


def _summary_file(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads((path / "summary.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _stored_summary(path: Path, episodes: int, judge: Judge) -> dict[str, Any] | None:
    """summary.json where it is a summary of `evaluation.metrics` of these episodes, else None."""
    stored = _summary_file(path)
    wanted = {"measures"} if judge.measures or judge.labels else set()  # an older version wrote none
    whole = (
        wanted | {"ok", "failed", "excluded", "returns", "success", "score", "turns", "ends"} <= stored.keys() and stored.get("episodes") == episodes
    )
    return stored if whole and (stored["success"] is not None or judge.success is None) else None


def _before_and_after(label: str, path: Path) -> Html:
    """What learning changed, out of a training run's summary.json: every score of the first exam beside the last."""
    stored = _summary_file(path)
    first, last = (flatten(stored[name]) if isinstance(stored.get(name), dict) else {} for name in ("before", "after"))
    rows = [[key.replace("/", " "), _plain(first.get(key)), _plain(value)] for key, value in last.items() if score_of(key) in _SCORES]
    if not rows:
        return Html("")
    learned = ", ".join(map(str, stored["learned"])) or "nothing" if isinstance(stored.get("learned"), list) else "not told"
    caption = f"{f'{label}: ' if label else ''}before the first and after the last update; learned: {learned}"
    return table(["score", "before", "after"], rows, caption=caption)


def _plain(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "n/a" if value is None else str(value)


def _media(path: Path, digest: str) -> bytes | None:
    try:
        return read_media(path, digest)
    except StoreError:
        return None


def _scores(summaries: Mapping[str, Mapping[str, Any]]) -> Html:
    """One row per run: counts first, then each score with its interval."""
    agents = list(dict.fromkeys(agent for summary in summaries.values() for agent in summary["returns"]))
    judged = any(summary["success"] for summary in summaries.values())
    partial = any(summary["failed"] or summary["excluded"] for summary in summaries.values())
    bounds = [bound for s in summaries.values() for one in s["returns"].values() for bound in (one["low"], one["high"]) if bound is not None]
    columns = ["run", "ok / failed / excluded", *(["success"] if judged else []), *(["success, failed = 0"] if judged and partial else [])]
    columns += [f"return {agent}" for agent in agents]
    rows: list[list[object]] = []
    for label, summary in summaries.items():
        row: list[object] = [label, _counts(summary)]
        if judged:
            row.append(_interval(summary["success"], 0.0, 1.0))
            if partial:
                row.append(
                    "n/a" if not summary["score"] or summary["score"]["failed_as_zero"] is None else f"{summary['score']['failed_as_zero']:.3f}"
                )
        row += [_interval(summary["returns"].get(agent), min(bounds, default=0.0), max(bounds, default=1.0)) for agent in agents]
        rows.append(
            [*row, "n/a" if summary["turns"] is None else f"{summary['turns']:.1f}", ", ".join(f"{e} {n}" for e, n in summary["ends"].items())]
        )
    methods = {one["method"] for s in summaries.values() for one in (s["success"], *s["returns"].values()) if one and one["n"]}
    caption = f"Mean with 95 % interval ({', '.join(sorted(methods))}) over the ok episodes; failed and excluded ones are counted beside it."
    return table([*columns, "turns", "ends"], rows, caption=caption)


def _counts(summary: Mapping[str, Any]) -> Html:
    failed = f'<span class="bad">{text(summary["failed"])}</span>' if summary["failed"] else "0"
    return Html(f"{text(summary['ok'])} / {failed} / {text(summary['excluded'])}")


def _interval(estimate: Mapping[str, Any] | None, low: float, high: float) -> Html:
    return Html(f'<span class="interval">{text(interval_text(estimate))}</span>{interval_mark(estimate, low, high)}') if estimate else text("n/a")


# -- the page -----------------------------------------------------------------------------------------------------------------


def _body(title: str, sections: Sequence[Section], parts: Sequence[str], data: list[dict[str, Any]]) -> str:
    links = "".join(f'<a href="#part-{at}">{text(section.heading)}</a>' for at, section in enumerate(sections))
    links += '<a href="#transcripts">Transcripts</a>' if data else ""
    count = sum(len(run["episodes"]) for run in data)
    head = f'<header><h1>{text(title)}</h1><nav class="toc meta" aria-label="Parts">{links}</nav></header>'
    viewer = (
        '<section id="transcripts"><h2>Transcripts</h2><p class="hint">'
        "One lane per agent, step by step, with what each turn paid at the right. "
        "<kbd>j</kbd> and <kbd>k</kbd> go to the next and the previous episode, <kbd>v</kbd> shows what each agent saw, <kbd>/</kbd> searches.</p>"
        '<noscript><p class="warn">Transcripts need scripts; scores and curves above do not.</p></noscript>'
        '<div id="viewer"><nav id="episodes" aria-label="Episodes"><select id="pick" aria-label="Run"></select>'
        '<input id="words" type="search" placeholder="Search" aria-label="Search in episodes"><ul id="list"></ul><p class="hint" id="note"></p></nav>'
        '<article id="episode" aria-live="polite"></article></div></section>'
    )
    foot = f"<footer><p>Written by gem_ma. {count} transcripts in this file; it makes no request.</p></footer>"
    return f"{head}<main>{''.join(parts)}{viewer if data else ''}</main>{foot}"


def _section_of(path: Path, judge: Judge, alone: bool) -> Section:
    """A run as a section of its own."""
    manifest = _manifest(path)
    made, command = manifest.get("versions"), manifest.get("command")
    version = made.get("gem_ma", "?") if isinstance(made, dict) else "?"
    facts = f"Begun {manifest.get('created', 'at an unknown time')} with gem_ma {version}." if manifest else ""
    again = f"gem-ma {command} {path / 'resolved.yaml'}" if command in ("run", "train") else ""
    return Section("Scores" if alone else path.resolve().name, facts, runs=(path,), judge=judge, command=again)


def _manifest(path: Path) -> dict[str, Any]:
    return read_manifest(path) if (path / "manifest.json").exists() else {}
