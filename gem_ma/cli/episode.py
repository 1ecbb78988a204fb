"""`gem-ma show RUN --episode WHICH`: one play in lanes, with its verdict, the reasons for it, and
every reward where it was paid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

from gem_ma.cli.episode_lanes import Lanes
from gem_ma.cli.terminal import columns, emit, emit_json, plain, progress_line
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.static.explained import Reason, read_explained, reasons
from gem_ma.runs.store import read_episodes, read_rows, rows_by
from gem_ma.scores.groups import labels_of
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import ENDS, Brief, last_attempts

KINDS = ("won", "lost", "failed", "cut")  # instead of an id: the first such episode
WIDTH = 100  # letters of a line where no terminal says how wide it is


def show_episode(
    path: Path,
    which: str,
    judge: Judge,
    as_json: bool,
    is_full: bool = False,
    *,
    anew: bool = False,
) -> None:
    """Prints the episode, with `is_full` its long texts too; `anew` as for `find`. Raises
    ConfigError where the run has none like it."""
    episode, same = find(path, which, judge, anew=anew)
    why: list[Reason] = []
    if dict(verdict(episode, judge))["verdict"] == "lost":
        explained = read_explained(path, progress_line).get(episode.id, ())
        why = reasons(episode, judge.faults, explained)
    if as_json:
        from gem_ma.record.codec import to_json

        told = {"verdict": dict(verdict(episode, judge)), "why": [one.sentence for one in why]}
        emit_json({**told, "episode": to_json(episode)})
        return
    rows = [
        ("episode", name_of(episode)),
        *verdict(episode, judge),
        ("scenario", f"{episode.scenario} (version {episode.version})"),
    ]
    rows += [
        (agent, f"{seat.behaviour}{f', policy {seat.policy}' if seat.policy else ''}")
        for agent, seat in episode.cast.items()
    ]
    rows += [(f"more {which}", ", ".join(same))] * bool(same)
    width = get_terminal_size((WIDTH, 0)).columns
    first = [line for one in why for line in wrap(plain(one.sentence), width)]
    lanes = Lanes(episode, width, is_full=is_full, marks=why).lines()
    emit("\n".join([*first, *([""] if first else []), columns(rows), "", *lanes]))


def find(path: Path, which: str, judge: Judge, *, anew: bool = False) -> tuple[Episode, list[str]]:
    """The first episode that `which` means, and the names of some others that it means too.

    `which` is one of KINDS, a task (`test/153`, or `153`), a task with its repeat
    (`test/153#1`), or a seed. `anew`: the plays are judged now, not as they were when they ended.
    """
    if which in ("won", "lost") and judge.success is None:
        raise ConfigError(
            f"{path}: no play can be called {which}, since its scenario has no notion of success or"
            " is not installed; name a task instead"
        )
    rows: Sequence[Brief] = (
        rows_by(path, Judge(judge.success), anew=anew)
        if which in ("won", "lost")
        else read_rows(path, Brief)
    )
    meant = [row for row in last_attempts(rows) if means(which, row)]
    if not meant:
        names = [name_of(row) for row in last_attempts(rows)[:5]]
        hint = f"; it has, among others, {', '.join(names)}" if names else ""
        fault = f"no episode is {which}" if which in KINDS else f"no episode {which!r}"
        raise ConfigError(f"{path}: {fault}{hint}")
    (first,) = read_episodes(path, {meant[0].id}, rows if rows[0].size else None)
    # a few of each: a run may have thousands
    return first, [name_of(row) for row in meant[1:11]]


def means(which: str, row: Brief) -> bool:
    """Whether `which` (see `find`) means this play."""
    if which == "failed":
        return not row.is_scored
    if which == "cut":
        return ENDS[row.end].bootstraps
    if which in ("won", "lost"):
        # only what was judged is either
        return row.success is (which == "won")
    task, _, repeat = which.partition("#")
    if repeat and repeat != str(row.repeat):
        return False
    # tables show `test/153`; people type `153`
    name, seed = row.task, str(row.seed)
    return task in (name, name.rpartition("/")[2], seed, f"{name}/{seed}") or (
        "/" in task and name.endswith(f"/{task}")
    )


def name_of(play: Episode | Brief) -> str:
    """`task#repeat`, as it can be typed. Where every play has the same task the seed tells them
    apart."""
    return f"{play.id[0]}/{play.seed}" + (f"#{play.repeat}" if play.repeat else "")


def verdict(episode: Episode, judge: Judge) -> list[tuple[str, str]]:
    """What came of the play, and why, as rows of a table."""
    success = judge.success(episode) if judge.success is not None and episode.end.scored else None
    word = "failed" if not episode.end.scored else "cut" if episode.end.bootstraps else "ended"
    rows = [
        ("verdict", {True: "success", False: "lost", None: word}[success]),
        ("end", episode.end.value),
    ]
    rows += [("error", episode.error or "")] * bool(episode.error)
    if judge.labels is not None and episode.end.scored:
        rows += [
            (name, ", ".join(values)) for name, values in labels_of(episode, judge.labels).items()
        ]
    if judge.measures is not None and episode.end.scored:
        # most measures are 0 in one play, and those say nothing
        rows += [(name, f"{value:g}") for name, value in judge.measures(episode).items() if value]
    return [
        *rows,
        *((f"return {agent}", f"{value:g}") for agent, value in episode.returns().items()),
    ]
