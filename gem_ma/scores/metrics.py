"""Episodes -> one summary: plain numbers with intervals, and how many episodes they leave out. It
reads records, never a scenario's state.

A mean stands over the episodes that ended by themselves or by a driver's limit (*ok*). FAILED
ones (code outside the agents) and INTERRUPTED ones (*excluded*) are counted beside it; the score
is given once more with every failed episode as 0, and with excluded ones at their worst and
best. Independent units are tasks; where a run plays a single task, its seeds. Plays that are
copies of one (`gem_ma.scores.groups`) have no interval.

Of a run of several worlds (`Episode.world`) every name of an agent, a measure and a label has its
world before it, and `worlds` has the scores of each world as if it had been played alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.kernel.episode import Episode
from gem_ma.scores.columns import Columns
from gem_ma.scores.groups import (
    FAILED,
    RETURN,
    Kinds,
    Labels,
    Measures,
    Success,
    as_json,
    as_one_play,
    check_rate,
    interval,
    labelled,
    lost_episodes,
    measured,
    statistics,
)
from gem_ma.scores.rows import ENDS, PlayRow, Rows, last_attempts, tally_in
from gem_ma.scores.together import EQUALITY, KINDS, Group, repeated

__all__ = ["Success", "summarise"]


def summarise(
    episodes: Iterable[Episode],
    success: Success | None = None,
    measures: Measures | None = None,
    labels: Labels | None = None,
    kinds: Kinds = Kinds(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """A JSON-able summary; `success` says whether an episode reached its goal (None = it cannot
    tell), `measures`, `labels` and `kinds` (which scores are rates) are the scenario's. One episode
    is held at a time.

    Keys: `episodes ok failed excluded tasks returns success score pass_hat_k pass_hat_k_intervals
    tries groups won together measures labels lost ends errors`, and those of
    `gem_ma.scores.columns`. An interval is `{mean, low, high, n, method, rate}`; a bound that the
    data cannot give is null, as is a mean over nothing. `groups`, `won` and `together` are told
    in `gem_ma.scores.together`, `labels` and `lost` in `gem_ma.scores.groups`. `worlds` is there
    where several were played: name -> the keys from `episodes` to `tries`, and `ends`. Raises
    ScenarioError, and whatever `success` raises.
    """
    made = Rows(success, measures, labels, strict=True)
    return summary_of([made.of(one) for one in episodes], kinds, is_judged=success is not None)


def summary_of(
    rows: Sequence[PlayRow],
    kinds: Kinds,
    *,
    is_judged: bool,
    episodes: Callable[[], Iterable[Episode]] = list,
) -> dict[str, Any]:
    """The summary of plays by their rows, in the order of their file, earlier attempts included.
    `is_judged`: whether there is a notion of success; `episodes` gives the last attempts, where
    rows cannot tell whether all are one play again."""
    counted = last_attempts(rows)
    copied = copied_worlds(rows, counted, episodes)
    columns = Columns()
    # most plays of bots add the same, so that each kind of them is added once
    alike: dict[tuple[object, ...], list[PlayRow]] = {}
    for row in counted:
        seats = tuple(row.returns or ())
        key = (bytes(row.tally), row.end, row.world, row.error, seats)
        alike.setdefault(key, []).append(row)
    for first, *others in alike.values():
        seated = map(first.whose, first.returns or ())
        end = ENDS[first.end]
        columns.add(tally_in(first), seated, end, first.error or "", 1 + len(others))
    # so that no sum depends on which episode ended first
    all_ = sorted(counted, key=lambda row: row.id)
    judged = [row for row in all_ if row.success is not None]
    failed = [row for row in all_ if row.end == FAILED]
    agents = list(dict.fromkeys(row.whose(agent) for row in all_ for agent in row.returns or ()))
    parts = [
        _part(all_, world, kinds.of_world(world), is_judged, world in copied)
        for world in dict.fromkeys(row.world for row in all_)
    ]
    return {
        **_together(all_, judged, parts, is_judged),
        **{key: _named(parts, key) for key in ("groups", "won", "together")},
        "measures": _named(parts, "measures"),
        "labels": _named(parts, "labels"),
        "lost": lost_episodes(failed, judged, kinds),
        "ends": dict(Counter(row.end for row in all_).most_common()),
        "errors": dict(Counter(map(_cause, failed)).most_common(10)),
        **columns.values(agents),
    }


def copied_worlds(
    rows: Iterable[PlayRow], counted: Sequence[PlayRow], episodes: Callable[[], Iterable[Episode]]
) -> set[str]:
    """The worlds of which there are several plays, and all are one play again."""
    first: dict[str, PlayRow] = {}
    for row in rows:
        first.setdefault(row.world, row)
    found = set()
    plays: dict[str, list[PlayRow]] = {}
    for row in counted:
        plays.setdefault(row.world, []).append(row)
    for world, listed in plays.items():
        is_known = listed[0] is first[world] and any(row.copy is False for row in listed)
        if len(listed) < 2 or is_known:
            continue
        # the play that others were compared with may have been played again
        is_alike = all(row.copy for row in listed) or _are_copies(world, episodes())
        found |= {world} if is_alike else set()
    return found


def _are_copies(world: str, episodes: Iterable[Episode]) -> bool:
    made = Rows()
    copies = (made.is_copy(one) for one in episodes if one.world == world)
    return all(copies)


def _scores(
    plays: list[PlayRow], judged: list[PlayRow], kinds: Kinds, is_judged: bool
) -> dict[str, Any]:
    """Counts, returns, success and pass^k of plays of one scenario."""
    ok = [play for play in plays if play.is_scored]
    failed = sum(play.end == FAILED for play in plays)
    agents = list(dict.fromkeys(agent for play in plays for agent in play.returns or ()))
    curve = _pass_hat_k(judged)
    excluded = len(plays) - len(ok) - failed
    # failed ones are not judged; `score` has them as 0
    won = [float(bool(play.success)) for play in judged]
    tested = interval(won, judged, rate=True)
    return {
        "episodes": len(plays),
        "ok": len(ok),
        "failed": failed,
        "excluded": excluded,
        "tasks": len({play.task for play in plays}),
        "returns": {agent: _return(agent, ok, failed, kinds) for agent in agents},
        "success": tested if is_judged else None,
        "score": _score(judged, failed, excluded) if is_judged else None,
        "pass_hat_k": [row["mean"] for row in curve],
        "pass_hat_k_intervals": curve,
        "tries": _tries(judged),
    }


class _Part(NamedTuple):
    """One world of a run: its scores, and the names that its scenario gives."""

    world: str  # "" where a run has one scenario
    scores: dict[str, Any]
    measures: dict[str, Any]
    labels: dict[str, Any]
    groups: dict[str, Any]
    won: dict[str, Any]
    together: dict[str, Any]


def _part(all_: list[PlayRow], world: str, kinds: Kinds, is_judged: bool, is_copied: bool) -> _Part:
    plays = [play for play in all_ if play.world == world]
    judged = [play for play in plays if play.success is not None]
    ok = [play for play in plays if play.is_scored]
    failed = [play for play in plays if play.end == FAILED]
    # one scenario may know success where another does not
    is_judged = is_judged and (bool(judged) or not world)
    scores = _scores(plays, judged, kinds, is_judged)
    scores["ends"] = dict(Counter(play.end for play in plays).most_common())
    parts = (
        scores,
        measured(ok, kinds),
        labelled(ok, failed, judged),
        *_of_several(ok, scores["returns"], kinds),
    )
    return _Part(world, *(map(as_one_play, parts) if is_copied else parts))


def _of_several(
    ok: Sequence[PlayRow], returns: Mapping[str, Any], kinds: Kinds
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Interval by group, with its `spread` and the number of its `agents` (their mean); by team,
    of the plays that it won; of welfare and equality."""
    members: dict[str, list[tuple[Group, PlayRow]]] = {}
    wins: dict[str, list[tuple[float, PlayRow]]] = {}
    numbers: dict[str, list[tuple[float, PlayRow]]] = {}
    for play in ok:
        for name, group in play.all_groups().items():
            members.setdefault(name, []).append((group, play))
        for team, share in play.won().items():
            wins.setdefault(team, []).append((share, play))
        for name, number in () if kinds.fixed else play.together().items():
            numbers.setdefault(name, []).append((number, play))
    names = [name for kind in KINDS for name in members if name.startswith(f"{kind} ")]
    whose = {name: [(play.id, group.members) for group, play in members[name]] for name in names}
    same = repeated(whose, [*returns])
    groups = {name: _group(name, members[name], kinds) for name in names if name not in same}
    # all of them have a row where they have no other, unless they are two
    whole = [name for name, group in groups.items() if group["agents"] == len(returns)]
    for name in whole if len(whole) < len(groups) or len(returns) < 3 else whole[1:]:
        del groups[name]
    return (
        groups,
        {team: _mean_of(of, rate=True) for team, of in wins.items()},
        # of fewer plays where equality does not apply to all
        {
            name: {**_mean_of(of, rate=name == EQUALITY), "of": len(ok)}
            for name, of in numbers.items()
        },
    )


def _group(name: str, found: list[tuple[Group, PlayRow]], kinds: Kinds) -> dict[str, Any]:
    heads = _mean_of([(group.mean, play) for group, play in found], kinds.is_rate(RETURN + name))
    several = [(group.spread, play) for group, play in found if group.agents > 1]
    agents = math.fsum(group.agents for group, _ in found) / len(found)
    return {**heads, "agents": agents, "spread": _mean_of(several) if several else None}


def _mean_of(found: Sequence[tuple[float, PlayRow]], rate: bool = False) -> dict[str, Any]:
    values, plays = zip(*found, strict=True)
    return interval(values, plays, rate=rate)


def _together(
    plays: list[PlayRow],
    judged: list[PlayRow],
    parts: list[_Part],
    is_judged: bool,
) -> dict[str, Any]:
    """The scores of the whole run; with those of its worlds where it has several."""
    if all(not part.world for part in parts):
        scores = parts[0].scores if parts else _scores([], [], Kinds(), is_judged)
        return {key: value for key, value in scores.items() if key != "ends"}
    scores = _scores(plays, judged, Kinds(), is_judged)
    # a return of one world says nothing of another's, and worlds differ in how often they are tried
    returns = {
        f"{part.world} {agent}": interval
        for part in parts
        for agent, interval in part.scores["returns"].items()
    }
    scores |= {"returns": returns, "pass_hat_k": [], "pass_hat_k_intervals": [], "tries": []}
    return {**scores, "worlds": {part.world: part.scores for part in parts}}


def _named(parts: list[_Part], what: str) -> dict[str, Any]:
    """The measures or labels of all worlds, each with its world before it."""
    return {
        f"{part.world} {name}" if part.world else name: value
        for part in parts
        for name, value in getattr(part, what).items()
    }


def _return(agent: str, ok: list[PlayRow], failed: int, kinds: Kinds) -> dict[str, Any]:
    played = [play for play in ok if agent in (play.returns or ())]
    values = [play.returns[agent] for play in played if play.returns]
    # a failed episode has no return: it is counted as 0 beside the mean, never in it
    total = len(values) + failed
    check_rate(RETURN + agent, values, played, kinds)
    return {
        **interval(values, played, rate=kinds.is_rate(RETURN + agent)),
        "failed_as_zero": math.fsum(values) / total if total else None,
    }


def _score(judged: list[PlayRow], failed: int, excluded: int) -> dict[str, float | None]:
    won = sum(bool(play.success) for play in judged)
    counted = len(judged) + failed
    # excluded ones were cut off from outside: whether they would have been won is unknown
    total = counted + excluded
    return {
        "failed_as_zero": won / counted if counted else None,
        "lowest": won / total if total else None,
        "highest": (won + excluded) / total if total else None,
    }


def _pass_hat_k(judged: list[PlayRow]) -> list[dict[str, Any]]:
    """Intervals of pass^1 ... pass^n over tasks, n = the fewest tries that a task has: a greater
    k is refused. [] for fewer than two tasks."""
    tries = Counter[str]()
    wins = Counter[str]()
    for play in judged:
        tries[play.task] += 1
        wins[play.task] += bool(play.success)
    # over one task the interval would say nothing of other tasks
    if len(tries) < 2:
        return []
    tasks = list(tries)
    made = [
        statistics().pass_hat_k_interval(
            [wins[task] for task in tasks], [tries[task] for task in tasks], k
        )
        for k in range(1, min(tries.values()) + 1)
    ]
    return [as_json(estimate, estimate.tasks, rate=True) for estimate in made]


def _tries(judged: list[PlayRow]) -> list[int]:
    """The fewest and the most judged tries of a task; [] where nothing is judged."""
    tries = Counter(play.task for play in judged)
    return [min(tries.values()), max(tries.values())] if tries else []


def _cause(play: PlayRow) -> str:
    """The first line of a play's error, without its seed: failures of one cause are counted
    together."""
    # every failure of one cause names another seed
    first = (play.error or "no message").split("\n", 1)[0]
    return re.sub(rf"seed {play.seed}, ", "", first)[:200]
