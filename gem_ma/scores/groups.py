"""Numbers and groups that a scenario names itself: its measures with intervals, success within each
group, what the lost episodes have in common.

`labels` of a summary: label -> {values: {value: {episodes, success, lost, share}}, lost,
unlabelled, won_unlabelled}. `success` is the interval over judged episodes that carry the value
(an episode may carry several values); `lost` of a value counts the lost episodes that carry it,
`share` is its part of all lost ones with its interval; `unlabelled` and `won_unlabelled` count
the lost and the won ones without this label. An episode is lost where it was judged and did not
succeed, and where it FAILED.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.spelling import decimal

if TYPE_CHECKING:
    from gem_ma.scores.rows import PlayRow

# -- copies ----------------------------------------------------------------------------------------

# Where nobody samples, and world and players draw nothing that shows, thirty seeds are thirty
# copies of one play, and tell no more than one of them.


ONE_PLAY = "deterministic: 1 play"  # the method of an interval that such plays have not


def is_sampled(episode: Episode) -> bool:
    """Whether a policy has a seat."""
    return any(seat.policy or seat.policies for seat in episode.cast.values())


def same_play(first: Episode, other: Episode) -> bool:
    """Whether two plays are copies: of one task, and alike in all that was shown, offered, done and
    paid. Equal returns alone say nothing."""
    return _record(first) == _record(other)


def _record(episode: Episode) -> tuple[Any, ...]:
    return (
        episode.task,
        episode.world,
        episode.end,
        episode.cast,
        episode.ledger,
        episode.turns,
    )


def as_one_play(scores: Any) -> Any:
    """The scores of such plays: every interval in them is of one play, and has no bounds."""
    if not isinstance(scores, dict):
        return scores
    if {"mean", "low", "high", "n", "method"} <= scores.keys():
        one = {**scores, "low": None, "high": None, "n": min(1, scores["n"]), "method": ONE_PLAY}
        return {key: as_one_play(value) for key, value in one.items()}
    return {key: as_one_play(value) for key, value in scores.items()}


# -- kinds of scores: declared by the scenario, never read off the values --------------------------

SUCCESS = "success"
RETURN = "return "  # how the score of an agent's return begins


@dataclass(frozen=True, slots=True)
class Kinds:
    """Patterns of score names (`*` stands for any text): `Scenario.rates`, `more_is_better`,
    `less_is_better`. `fixed`: the rules share returns, in equal parts or to a sum of 0, so that
    welfare and equality say nothing. `worlds`: those of each world of a run of several, whose
    scores bear its name.

    >>> kinds = Kinds(rates=("part *",), less=("violations *",))
    >>> kinds.is_rate("part facts"), kinds.is_rate("return a")
    (True, False)
    >>> kinds.better("violations AUTH"), kinds.better("turns")
    ('less', '')
    >>> Kinds(worlds={"small": kinds}).is_rate("small part facts")
    True
    """

    rates: Sequence[str] = ()
    more: Sequence[str] = ()
    less: Sequence[str] = ()
    fixed: bool = False
    worlds: Mapping[str, Kinds] = field(default_factory=dict)

    def is_rate(self, score: str) -> bool:
        """Whether every value of this score lies between 0 and 1 by what it is."""
        if score == SUCCESS or _named(score, self.rates):
            return True
        return any(kinds.is_rate(own) for kinds, own in self._at_home(score))

    def better(self, score: str) -> str:
        """`more`, `less`, or "" where nothing is declared. More success and more return are always
        better."""
        if score == SUCCESS or score.startswith(RETURN) or _named(score, self.more):
            return "more"
        if _named(score, self.less):
            return "less"
        return next((kinds.better(own) for kinds, own in self._at_home(score)), "")

    def of_world(self, world: str) -> Kinds:
        """Those of a play of this world."""
        return self.worlds.get(world, Kinds()) if self.worlds else self

    def _at_home(self, score: str) -> Iterator[tuple[Kinds, str]]:
        """Of the world that the score names: its kinds, and what the score is called there."""
        first, _, rest = score.partition(" ")
        world, _, name = rest.partition(" ")
        if first in self.worlds:
            yield self.worlds[first], rest
        elif world in self.worlds:  # success small, return small ann
            yield self.worlds[world], f"{first} {name}".strip()


def _named(score: str, patterns: Sequence[str]) -> bool:
    # fnmatchcase: plain fnmatch ignores case on some systems, and names would differ by machine
    return any(fnmatchcase(score, pattern) for pattern in patterns)


Success = Callable[[Episode], bool | None]
Measures = Callable[[Episode], Mapping[str, float | None]]
Labels = Callable[[Episode], Mapping[str, str | Sequence[str]]]

LARGEST = 1e300  # number of a play, either way: the sum of a million of them is finite
MANY_ZEROS = 3  # from this number on, measures that are 0 everywhere share a row
MOST_ZEROS = 6  # named in that row
_PLAIN = Kinds()
FAILED = End.FAILED.value
CAUSES = ("blame", "cause")  # labels of these names are always read as causes


def one_world(ids: Iterable[tuple[Any, ...]]) -> str | None:
    """The world of all these plays, by their tasks; None where they are of several, or none."""
    worlds = {id_[0].rpartition("/")[0].rpartition("/")[0] for id_ in ids}
    return worlds.pop() if len(worlds) == 1 else None


def units(ids: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The independent unit of each play, by its task (with its world), seed and so on: its task, or
    its seed where its world has one task only."""
    listed = [(id_[0].rpartition("/")[0], id_) for id_ in ids]
    tasks: dict[str, set[str]] = {}
    for world, id_ in listed:
        tasks.setdefault(world, set()).add(id_[0])
    single = {world for world, names in tasks.items() if len(names) == 1}
    # seeds of one task are independent draws; repeats of one seed are not
    return [id_[:2] if world in single else id_[:1] for world, id_ in listed]


def statistics() -> Any:
    """`gem_ma.scores.stats`: who shows a summary that stands waits for no numpy."""
    from gem_ma.scores import stats

    return stats


def finite(value: float) -> float | None:
    """The number, or None where JSON cannot hold it."""
    return value if math.isfinite(value) else None


def interval(
    values: Sequence[float], plays: Sequence[Episode | PlayRow], *, rate: bool
) -> dict[str, Any]:
    """The mean of one value per play as `{mean, low, high, n, method, rate}`; `rate` says
    whether it lies in 0..1 by what it is."""
    if not values:
        return {"mean": None, "low": None, "high": None, "n": 0, "method": "none", "rate": rate}

    found = statistics().mean_interval(values, units(play.id for play in plays), rate=rate)
    return as_json(found, len(values), rate)


def as_json(estimate: Any, n: int, rate: bool) -> dict[str, Any]:
    """An estimate of so many values; a bound that it cannot give is null."""
    return {
        "mean": estimate.mean,
        "low": finite(estimate.low),
        "high": finite(estimate.high),
        "n": n,
        "method": estimate.method,
        "rate": rate,
    }


def interval_text(estimate: Mapping[str, Any]) -> str:
    """`0.85 [0.64, 0.95]`; n/a without a value or a bound.

    >>> interval_text({"mean": 0.85, "low": 0.64, "high": 0.948})
    '0.850 [0.640, 0.948]'
    """
    if estimate["mean"] is None:
        return "n/a (no episode to score)"
    if estimate.get("method") == ONE_PLAY:
        return f"{decimal(estimate['mean'])} ({ONE_PLAY})"
    numbers = (estimate["mean"], estimate["low"], estimate["high"])
    bounds = (
        "n/a"
        if not all(number is not None and math.isfinite(number) for number in numbers)
        else f"{decimal(estimate['low'], *numbers)}, {decimal(estimate['high'], *numbers)}"
    )
    beside = () if bounds == "n/a" else numbers
    return f"{decimal(numbers[0], *beside)} [{bounds}]"


def returns_of(episode: Episode) -> dict[str, float]:
    """The return of each agent. Raises ScenarioError where payments, each of them finite, add up
    to something of which no mean can be taken."""
    returns = episode.returns()
    for agent, value in returns.items():
        if not abs(value) <= LARGEST:
            where = f"{episode.scenario}: task {episode.id[0]}, seed {episode.seed}"
            raise ScenarioError(
                f"{where}, repeat {episode.repeat}: the payments of {agent!r} add up to {value};"
                f" a return is a number from -{LARGEST:g} to {LARGEST:g}"
            )
    return returns


def verdict_of(success: Success, episode: Episode) -> bool | None:
    """Whether a play was won; None where the scenario does not say. Raises ScenarioError where it
    raises, or gives something else: a share of a success is a measure."""
    won: Any = _answer("success", success, episode)
    if won is None:
        return None
    try:
        # 1 and 1.0 are meant so, and numpy has a bool of its own
        is_one = not isinstance(won, str) and float(won) in (0.0, 1.0)
    except (TypeError, ValueError, OverflowError):
        is_one = False
    if not is_one:
        raise ScenarioError(
            f"{_where('success', episode)} returned {won!r}; True, False or None is wanted, and a"
            " score between them belongs into measures()"
        )
    return bool(won)


def values_of(episode: Episode, measures: Measures) -> dict[str, float]:
    """The measures that apply to an episode. Raises ScenarioError where the scenario gives
    something of which no mean can be taken."""
    values = {}
    for name, value in dict(_asked("measures", measures, episode)).items():
        if value is None:
            continue
        try:
            number = float(value)
        except OverflowError:  # a whole number that no float holds, nor a line its digits
            value = number = math.inf
        # numpy scalars pass; texts and lists end here
        except (TypeError, ValueError):
            # one message for values that are not numbers or too large
            number = math.nan
        if not isinstance(name, str) or not abs(number) <= LARGEST:
            raise ScenarioError(
                f"{_where('measures', episode)}: {name!r} is {value!r}; a measure is a number from"
                f" -{LARGEST:g} to {LARGEST:g}, or None where it does not apply"
            )
        values[clean(name)] = number
    return values


def measured(plays: Sequence[PlayRow], kinds: Kinds = _PLAIN) -> dict[str, Any]:
    """Name -> interval over the plays to which the measure applies, with `better` (`more`, `less`)
    where that is declared.

    Names stand in order of first appearance. Raises ScenarioError where a measure that is
    declared to be a rate is not.
    """
    rows: dict[str, tuple[list[float], list[PlayRow]]] = {}
    for play in plays:
        for name, value in play.measures.items():
            row = rows.setdefault(name, ([], []))
            row[0].append(value)
            row[1].append(play)
    intervals = {}
    for name, (values, carriers) in rows.items():
        check_rate(name, values, carriers, kinds)
        better = kinds.better(name)
        intervals[name] = interval(values, carriers, rate=kinds.is_rate(name)) | (
            {"better": better} if better else {}
        )
    return intervals


def check_rate(score: str, values: Sequence[float], plays: Sequence[PlayRow], kinds: Kinds) -> None:
    """Raises ScenarioError where a score that the scenario declares to be a rate has a value
    outside of 0..1."""
    if kinds.is_rate(score):
        for value, play in zip(values, plays, strict=True):
            if not 0 <= value <= 1:
                raise ScenarioError(
                    f"{_where('measures', play)}: {score!r} is {value!r}, but `rates` declares"
                    " it; a rate lies between 0 and 1"
                )


def labels_of(episode: Episode, labels: Labels) -> dict[str, tuple[str, ...]]:
    """Label -> its values of this episode, each once."""
    result = {}
    for name, label in dict(_asked("labels", labels, episode)).items():
        values = (
            (label,)
            if isinstance(label, str)
            else tuple(label)
            if isinstance(label, (list, tuple, set, frozenset))
            else None
        )
        if (
            not isinstance(name, str)
            or values is None
            or not all(isinstance(value, str) for value in values)
        ):
            raise ScenarioError(
                f"{_where('labels', episode)}: {name!r} is {label!r}; a label is text, or several"
                " texts"
            )
        # a set has another order in every process, so it gets one; a list keeps the author's
        distinct = tuple(
            dict.fromkeys(
                map(clean, sorted(values) if isinstance(label, (set, frozenset)) else values)
            )
        )
        if distinct:
            result[clean(name)] = distinct
    return result


def labels_if_any(episode: Episode, labels: Labels) -> dict[str, tuple[str, ...]]:
    """The labels of an episode that FAILED: a record that broke off may lack what the scenario
    reads."""
    try:
        return labels_of(episode, labels)
    except ScenarioError:
        return {}


def labelled(
    ok: Sequence[PlayRow], failed: Sequence[PlayRow], judged: Sequence[PlayRow]
) -> dict[str, Any]:
    """Every label with its values, the most frequent first."""
    won = {id(play): play.success for play in judged}
    # failed ones too: why they were lost may be all that is known of them
    carried = [*ok, *failed]
    lost = [play for play in carried if play.end == FAILED or won.get(id(play)) is False]
    carriers: dict[str, dict[str, list[PlayRow]]] = {}
    for play in carried:
        for label, named in play.labels.items():
            for value in named:
                carriers.setdefault(label, {}).setdefault(value, []).append(play)
    result: dict[str, Any] = {}
    for label, with_values in carriers.items():
        values: dict[str, Any] = {}
        for value, with_it in with_values.items():
            scored = [play for play in with_it if id(play) in won]
            outcomes = [float(bool(play.success)) for play in scored]
            # 1 or 0 for each lost episode, so that the share has an interval
            lost_here = [float(value in play.labels.get(label, ())) for play in lost]
            values[value] = {
                "episodes": len(with_it),
                "success": interval(outcomes, scored, rate=True),
                "lost": int(sum(lost_here)),
                "share": interval(lost_here, lost, rate=True),
            }
        # ties by name, so that two runs print alike
        order = sorted(values, key=lambda value: (-values[value]["episodes"], value))
        result[label] = {
            "values": {value: values[value] for value in order},
            "lost": len(lost),
            "unlabelled": sum(label not in play.labels for play in lost),
            "won_unlabelled": sum(
                label not in play.labels for play in carried if won.get(id(play))
            ),
        }
    return result


def is_zero(interval: Mapping[str, Any]) -> bool:
    """Whether a measure is 0 in every episode, or as good as that: its mean is 0 and so is one
    end of its interval."""
    return interval["mean"] == 0 and (interval["low"] == 0 or interval["low"] == interval["high"])


def is_constant(label: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Whether a label distinguishes nothing: all ok episodes carry the one value that it has."""
    return len(label["values"]) == 1 and all(
        value["episodes"] >= summary["ok"] for value in label["values"].values()
    )


def is_cause(label: str, groups: Mapping[str, Any]) -> bool:
    """Whether a label says why an episode was lost, and not what kind it is of: no episode that
    succeeded carries it."""
    # a label that winners carry too is a kind of task, not a reason for losing
    won = any(value["success"]["mean"] for value in groups["values"].values())
    return label in CAUSES or (not won and groups["won_unlabelled"] > 0)


def group_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) rows of a summary's measures and labels for printing."""
    rows = _measure_rows(summary)
    for label, groups in summary.get("labels", {}).items():
        if is_cause(label, groups):
            rows += cause_rows({"labels": {label: groups}})
        elif is_constant(groups, summary):
            continue
        elif summary.get("success") is not None:
            rows += [
                (f"success, {label} {value}", _of(counts["success"]))
                for value, counts in groups["values"].items()
                if counts["success"]["n"]
            ]
        else:
            values = groups["values"].items()
            rows.append((label, ", ".join(f"{name} {had['episodes']}" for name, had in values)))
    return rows


def cause_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those of `group_rows` that say why plays were lost."""
    return [
        (f"{label} of {groups['lost']} lost", _causes(groups))
        for label, groups in summary.get("labels", {}).items()
        if is_cause(label, groups)
    ]


def _measure_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    measures = summary.get("measures", {})
    zero = [name for name, estimate in measures.items() if is_zero(estimate)]
    # a scenario may count twenty kinds of fault: those that never happened share one row
    if len(zero) < MANY_ZEROS:
        zero = []
    rows = []
    for name, estimate in measures.items():
        if name not in zero:
            part = estimate["n"] < summary["ok"]  # of some episodes: the row says of how many
            rows.append((name, _of(estimate) if part else interval_text(estimate)))
    if zero:
        more = f" and {len(zero) - MOST_ZEROS} more" if len(zero) > MOST_ZEROS else ""
        rows.append(("0 in every episode", ", ".join(zero[:MOST_ZEROS]) + more))
    return rows


def _of(estimate: Mapping[str, Any]) -> str:
    return f"{interval_text(estimate)} of {estimate['n']}"


def _causes(groups: Mapping[str, Any]) -> str:
    """The values of a label that says why episodes were lost, with their shares."""
    texts = [f"{value} {interval_text(counts['share'])}" for value, counts in _by_loss(groups)]
    if groups["unlabelled"]:
        # or the shares would seem to explain all that was lost
        texts.append(f"none named {groups['unlabelled'] / groups['lost']:.3f}")
    return ", ".join(texts) or "none"


def _by_loss(label: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(
        ((value, counts) for value, counts in label["values"].items() if counts["lost"]),
        key=lambda pair: (-pair[1]["lost"], pair[0]),
    )


def _answer(what: str, hook: Callable[[Episode], Any], episode: Episode) -> Any:
    try:
        return hook(episode)
    except Exception as error:
        # an author's code may raise anything; which episode it was is worth more than a traceback
        raise ScenarioError(
            f"{_where(what, episode)} raised {type(error).__name__}: {error}"
        ) from error


def _asked(what: str, hook: Callable[[Episode], Any], episode: Episode) -> Any:
    answer = _answer(what, hook, episode)
    if not isinstance(answer, Mapping):
        raise ScenarioError(
            f"{_where(what, episode)} returned {type(answer).__name__}; a mapping is wanted"
        )
    return answer


def _where(what: str, play: Episode | PlayRow) -> str:
    task, seed, repeat = play.id
    return f"{play.scenario}: {what}() of task {task}, seed {seed}, repeat {repeat}"


# -- lost episodes ---------------------------------------------------------------------------------

# One row each: which they are, what the scenario says about them, what they were paid. Pages about
# a run read these rows, so they need no scenario.


Id = tuple[str, int, int]  # task, seed, repeat
MOST = 1_000  # rows of one run; `count` counts all
OTHERS = 50_000  # of the rest the ids alone, so that every play is known as won or lost


def lost_episodes(
    failed: Sequence[PlayRow], judged: Iterable[PlayRow], kinds: Kinds
) -> dict[str, Any]:
    """`{count, episodes}`; judged ones first. Each row: `task seed repeat end returns labels
    measures error`. Where there are more than rows, `others`: [task, seed, repeat] of the next."""
    # judged ones first: under `MOST` it is failures that are cut off, which say least about agents
    lost = [play for play in judged if not play.success] + list(failed)
    rows = [
        {
            "task": play.task,
            "seed": play.seed,
            "repeat": play.repeat,
            "end": play.end,
            "returns": play.returns,
            **_facts(play.labels, play.measures, kinds.of_world(play.world), play.error),
        }
        for play in lost[:MOST]
    ]
    others = [list(play.id) for play in lost[MOST:OTHERS]]
    return {"count": len(lost), "episodes": rows, **({"others": others} if others else {})}


def lost_rows(summary: Mapping[str, Any] | None) -> dict[Id, Mapping[str, Any]]:
    """What a summary tells of lost episodes, by their ids; raises as `lost_ids` does."""
    lost = (summary or {}).get("lost") or {"episodes": []}
    return {(row["task"], row["seed"], row["repeat"]): row for row in lost["episodes"]}


def lost_ids(summary: Mapping[str, Any]) -> tuple[set[Id], bool]:
    """The ids of the lost episodes that a summary names, and whether these are all there are.
    Raises KeyError, TypeError or ValueError where the summary is damaged."""
    lost = summary.get("lost") or {"count": 0}
    ids = {*lost_rows(summary)}
    ids |= {(task, seed, repeat) for task, seed, repeat in lost.get("others", ())}
    return ids, len(ids) == lost["count"]


def facts_of(
    episode: Episode, measures: Measures | None, labels: Labels | None, kinds: Kinds
) -> dict[str, Any]:
    """`labels`, `measures` and the first line of the `error` of one episode, as a row of the lost
    ones has them. Raises ScenarioError."""
    failed = episode.end is End.FAILED
    named: Mapping[str, Sequence[str]] = {}
    # a play that broke off may lack what the scenario reads, so it is asked with care
    if labels is not None:
        named = labels_if_any(episode, labels) if failed else labels_of(episode, labels)
    measured = values_of(episode, measures) if measures is not None and episode.end.scored else {}
    return _facts(named, measured, kinds.of_world(episode.world), episode.error)


def _facts(
    named: Mapping[str, Sequence[str]],
    measured: Mapping[str, float],
    kinds: Kinds,
    error: str | None,
) -> dict[str, Any]:
    """Measures that are 0 are left out, but for those of which more is better. What speaks against
    the play comes first."""
    better = {name: kinds.better(name) for name in measured}
    # twenty kinds of fault that never happened would hide the one that did
    shown = {name: value for name, value in measured.items() if value or better[name] == "more"}
    against = [
        name
        for name, value in shown.items()
        if (not value if better[name] == "more" else better[name] == "less")
    ]
    return {
        "labels": {name: list(values) for name, values in named.items()},
        "measures": {name: shown[name] for name in dict.fromkeys([*against, *shown])},
        "error": (error or "").split("\n", 1)[0][:500],
    }
