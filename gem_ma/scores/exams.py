"""Exams of a training: every score with its interval, by the rule of a run, and the last exam
against the first one, play by play. Exams ask the same seeds, so what differs is what was learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.comparison import SURE, compare_cells, difference_of, few
from gem_ma.scores.groups import ONE_PLAY, RETURN, SUCCESS, interval_text, same_play
from gem_ma.scores.judge import Judge
from gem_ma.scores.studies import Cell, cell_of, score_of
from gem_ma.scores.together import is_of_group, shown

Plays = dict[str, Any]  # what of an exam is kept to compare another one with, as JSON values
MOST_SCORES = 8  # of an exam in a table, beside success and returns of agents
_KEPT = ("difference", "low", "high", "p", "p_adjusted", "method", "tasks", "pairs")


def exam_cell(episodes: Sequence[Episode], judge: Judge, *, greedy: bool = False) -> Cell:
    """The scores of these plays; `greedy`: nobody has sampled, so that they may be copies of one.
    Raises ScenarioError, as `Judge.summarise`."""
    rows = [*map(judge.rows(strict=True).of, episodes)]
    # where players change seats each seating has a play of its own
    first = {str(episode.cast): episode for episode in reversed(episodes)}
    again = len(first) < len(episodes)
    if greedy and again and all(same_play(first[str(one.cast)], one) for one in episodes):
        for row in rows:
            row.copy = True
    return cell_of(rows, judge)


def scores_in(cell: Cell) -> dict[str, Any]:
    """`scores`: name -> mean, of all but success and the agents' returns; `intervals`: name ->
    [low, high] of these too, a bound null where the data cannot give it. Returns of many agents are
    left out."""
    found = {name: score_of(cell.summary, name) for name in _names(cell)}
    told = {name: estimate for name, estimate in found.items() if estimate is not None}
    measures = cell.summary["measures"]
    own = [n for n in told if n in measures or not (n == SUCCESS or _is_of_agent(n))]
    return {
        "scores": {name: told[name]["mean"] for name in own},
        "intervals": {name: [one["low"], one["high"]] for name, one in told.items()},
    }


def plays_of(cell: Cell) -> Plays:
    """What of an exam is compared with the last one."""
    ids = list(dict.fromkeys(id_ for values in cell.values.values() for id_ in values))
    values = {name: [*map(cell.values[name].get, ids)] for name in _names(cell)}
    return {"ids": [list(id_) for id_ in ids], "values": values, "one_play": cell.one_play}


def changes(first: Plays, last: Cell) -> dict[str, Any]:
    """Score -> the last exam less the first, over the plays of both: `difference low high p
    p_adjusted method tasks pairs`, as in `gem_ma.scores.comparison`."""
    ids = [(str(task), int(seed), int(repeat)) for task, seed, repeat in first["ids"]]
    values = {
        name: {id_: one for id_, one in zip(ids, column, strict=True) if one is not None}
        for name, column in first["values"].items()
    }
    before = Cell(last.summary, values, kinds=last.kinds, one_play=first["one_play"])
    rows = compare_cells(before, last)["scores"]
    return {name: {key: row[key] for key in _KEPT} for name, row in rows.items()}


def estimate_in(exams: Mapping[str, Any], exam: str, score: str) -> dict[str, float | None] | None:
    """`mean low high` of a score in the exams of one step: of an exam such as `sampled`, else what
    was computed exactly, whose bounds are None. None without such a score."""
    held = exams.get(exam)
    found = dict(_scores(held)) if isinstance(held, Mapping) else {}
    bounds = held.get("intervals", {}).get(score) if isinstance(held, Mapping) else None
    value = found.get(score)
    if value is None and isinstance(held, Mapping) and score in held:
        value = held[score]  # such as `turns`, a mean without an interval
    value = exams.get(score) if value is None else value
    if not isinstance(value, (int, float)):
        return None
    low, high = bounds or (None, None)
    return {"mean": float(value), "low": low, "high": high}


def measured_in(exams: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Name -> (exam, score) of what a training is judged by in these exams, as `estimate_in` takes
    them: success and returns of every sampled exam, and what was computed exactly."""
    found: dict[str, tuple[str, str]] = {}
    for exam, held in exams.items():
        if not isinstance(held, Mapping):
            found[exam] = ("", exam)
        elif exam.startswith("sampled"):
            world = exam.removeprefix("sampled").strip()
            listed = [
                name
                for name, value in _scores(held)
                if value is not None and (name == SUCCESS or name.startswith(RETURN))
            ]
            found |= {f"{world} {name}".strip(): (exam, name) for name in listed}
    return found


def _names(cell: Cell) -> list[str]:
    return few([*cell.values], cell.summary["measures"])


def _is_of_agent(score: str) -> bool:
    return score.startswith(RETURN) and not is_of_group(score)


# -- printing --------------------------------------------------------------------------------------


class ExamRow(NamedTuple):
    """One score of the first exam and of the last, in words."""

    name: str
    before: str
    after: str
    change: str = ""
    p: str = ""


def exam_rows(summary: Mapping[str, Any]) -> list[ExamRow]:
    """The rows of a training's summary, in the order of its exams: counts, success, returns, other
    scores, and what was computed exactly. A summary of an older version has no intervals."""
    before, after = summary["before"], summary["after"]
    rows: list[ExamRow] = []
    for name, exam in after.items():
        first = before.get(name)
        if not isinstance(exam, Mapping):
            known = first if isinstance(first, (int, float)) else None
            rows.append(ExamRow(name, decimal(known, exam), decimal(exam, known)))
            continue
        first = first if isinstance(first, Mapping) else {}
        told = summary.get("changes", {}).get(name, {})
        rows.append(ExamRow(f"{name}: episodes", _counts(first), _counts(exam)))
        # of several worlds together only success means something; each has its own rows below
        apart = any(other.startswith(f"{name} ") for other in after)
        scores = _scores(exam, apart)
        sure = [s for s, change in told.items() if (change["p_adjusted"] or 1) < SURE]
        chosen = _chosen([score for score, _ in scores], exam.get("scores", {}), sure)
        left = len(scores) - len(chosen)
        for score, value in scores:
            if score not in chosen:
                continue
            change = told.get(score, {})
            # a score that is the same in every play tests nothing
            is_told = bool(change) and (change["p_adjusted"] or change["method"] == ONE_PLAY)
            earlier = dict(_scores(first, apart)).get(score)
            rows.append(
                ExamRow(
                    f"{name}: {score}",
                    _text(first, score, value),
                    _text(exam, score, earlier),
                    _change(change, earlier, value) if is_told else "",
                    f"{change['p_adjusted']:.4f}" if is_told and change["p_adjusted"] else "",
                )
            )
        rows += [ExamRow(f"{name}: others", "", f"{left} more in summary.json")] if left else []
    return rows


def _change(change: Mapping[str, Any], before: float | None, after: float | None) -> str:
    """The difference of the plays that both exams scored; how many, where the means are of others
    too: a play may have failed, or hold nothing to measure."""
    told = difference_of(change)
    if before is None or after is None or change["difference"] is None:
        return told
    whole = after - before
    rounding = 1e-6 * max(1.0, abs(whole))
    return told if abs(whole - change["difference"]) <= rounding else f"{told} of {change['pairs']}"


def _chosen(listed: list[str], others: Mapping[str, Any], sure: list[str]) -> set[str]:
    """All of these scores but for some of many `others`: those that changed for sure come first."""
    many = sorted((s for s in listed if s in others), key=lambda score: score not in sure)
    return {*listed} - {*many[MOST_SCORES:]}


def _scores(exam: Mapping[str, Any], apart: bool = False) -> list[tuple[str, float | None]]:
    success = exam.get("success")
    listed = [(SUCCESS, success)] if success is not None else []
    others = exam.get("scores", {})
    groups = [name for name in others if name.startswith(RETURN) and is_of_group(name)]
    paid = {f"{RETURN}{agent}": value for agent, value in exam.get("return", {}).items()}
    chosen = () if apart else shown([*paid], groups)
    listed += [(name, others.get(name, paid.get(name))) for name in chosen]
    return [*listed, *(pair for pair in others.items() if pair[0] not in groups)]


def _text(exam: Mapping[str, Any], score: str, other: float | None) -> str:
    value = dict(_scores(exam)).get(score)
    low, high = exam.get("intervals", {}).get(score) or (None, None)
    if value is None or low is None or high is None:
        return decimal(value, other)
    return interval_text({"mean": value, "low": low, "high": high})


def _counts(exam: Mapping[str, Any]) -> str:
    if "ok" not in exam:
        return "n/a"
    return f"{exam['ok']} ok / {exam['failed']} failed / 0 excluded"
