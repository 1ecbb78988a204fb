"""A table of plays, of one run or of several: columns of choice, a filter in words, any order. It
reads the rows of the index (`gem_ma.scores.rows`) once, keeps their columns until the record
changes, and opens no play."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, repeat
from operator import attrgetter, eq, ge, gt, is_not, itemgetter, le, lt, ne
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.kernel.spelling import nearest
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    page_address,
    refused,
    run_address,
    served,
    whole_number,
)
from gem_ma.pages.static.folder import TrainingSteps, kinds_of
from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.pages.static.scores import link_to
from gem_ma.pages.static.transcript import number
from gem_ma.record.codec import ENDS
from gem_ma.runs.store import read_rows
from gem_ma.runs.store.index import uncollected
from gem_ma.scores.columns import Used
from gem_ma.scores.groups import Id
from gem_ma.scores.rows import UNSCORED, PlayRow

if TYPE_CHECKING:
    from gem_ma.pages.live.run import Run
    from gem_ma.pages.live.site import Site

Value = str | float
Column = Sequence[Value | None]  # what each play has there, None where it has nothing
Columns = Mapping[str, Column]  # all of one length; one at least

MOST_RUNS = 40
MOST_PLAYS = 200_000  # of all runs together: each is held with all of its columns
FEW = 200  # rows of a page
_PART = re.compile(r'("[^"]*"|[^\s"<>=!]+)(<=|>=|!=|=|<|>)("[^"]*"|[^\s"]+)|"([^"]*)"|(\S+)')
_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    ">": gt,
    "<=": le,
    ">=": ge,
}


class Plays(NamedTuple):
    """The plays of a table. `runs`: the place of the first play of each run, the address of the
    run's page, and the name of its folder."""

    columns: Columns
    ids: Sequence[Id]
    runs: Sequence[tuple[int, str, str]]

    def address(self, at: int) -> str:
        """Where the page of the play at a place is."""
        _, to, name = self.runs[bisect_right(self.runs, at, key=itemgetter(0)) - 1]
        return to + link_to(name, "~".join(map(str, self.ids[at])))


def plays_page(site: Site, asked: Asked) -> Answer:
    """`/plays?run=&where=&sort=&column=&from=`: the plays of these runs; one line where that cannot
    be."""
    names = list(dict.fromkeys(asked.runs))
    try:
        if not 0 < len(names) <= MOST_RUNS:
            raise ConfigError(f"choose 1 to {MOST_RUNS} runs in the list of all runs")
        plays = _plays_of(site, names)
    except GemMaError as error:
        return refused("Plays", error)
    where = asked.query.get("where", "")
    fault = ""
    conditions: list[Condition] = []
    try:
        conditions = parsed(where)
    except ConfigError as error:
        fault = str(error)
    # held against nothing, a condition is so of no play, or of all
    fault = fault or strange(where, plays.columns)
    found: Sequence[int] = range(len(plays.ids))
    for holds in conditions:
        found = list(compress(found, map(holds(plays.columns).__getitem__, found)))
    known = list(plays.columns)
    shown = [name for name in asked.columns if name in known] or usual(known)
    sort = asked.query.get("sort", "")
    first = whole_number(asked.query.get("from", "0"))
    ways = {"where": where, "sort": sort, "from": str(first + FEW)}
    body = render(
        "plays",
        names=names,
        where=where,
        fault=fault,
        columns=[(name, name in shown) for name in known],
        sorts=[("", "the order of the record"), *_sorts(known)],
        sort=sort,
        count=len(found),
        whole=len(plays.ids),
        plays=_table(plays, ordered(plays.columns, found, sort)[first : first + FEW], shown),
        more=page_address("plays", names, **ways) if first + FEW < len(found) else "",
    )
    title = f"Plays of {names[0]}" if len(names) == 1 else f"Plays of {len(names)} runs"
    return served(title, body)


def _table(plays: Plays, some: Sequence[int], shown: Sequence[str]) -> Html:
    rows: list[list[object]] = []
    for at in some:
        task, seed, _ = plays.ids[at]
        head = (
            f'<a href="{text(plays.address(at))}" title="{text(f"seed {seed}")}">{text(task)}</a>'
        )
        rows.append([Html(head), *(_told(plays.columns[name][at]) for name in shown)])
    return table(["play", *shown], rows) if rows else Html("")


def _told(value: Value | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value)


# -- the plays -------------------------------------------------------------------------------------


class _Counts(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a `Tally`."""

    plays: int = 0
    turns: int = 0
    steps: int = 0
    calls: int = 0


class _Nothing(msgspec.Struct, gc=False):
    """Of a mapping that is passed over."""


class _Shown(PlayRow, array_like=True, gc=False):
    """A row with all that the table shows decoded at once."""

    tally: _Counts | None = None  # type: ignore[assignment]
    usages: dict[str, list[Used]] | None = None  # type: ignore[assignment]
    groups: _Nothing = msgspec.field(default_factory=_Nothing)  # type: ignore[assignment]


def _plays_of(site: Site, names: Sequence[str]) -> Plays:
    """Those of the runs of these names. Raises ConfigError where they are too many, StoreError."""
    found: list[Kept] = []
    runs: list[tuple[int, str, str]] = []
    count = 0
    for name in names:
        run, rest = site.run([part for part in name.split("/") if part] or [""])
        if rest:
            raise ConfigError(f"{name}: no such run folder")
        with run.lock:
            ids, columns = _kept(run, MOST_PLAYS - count)
        if len(names) > 1:
            columns = {"run": [name] * len(ids), **columns}
        runs.append((count, run_address(name), run.path.name))
        found.append((ids, columns))
        count += len(ids)
    if len(found) == 1:
        return Plays(found[0][1], found[0][0], runs)
    together = dict.fromkeys(chain.from_iterable(columns for _, columns in found))
    whole = {
        name: [*chain.from_iterable(columns.get(name, [None] * len(ids)) for ids, columns in found)]
        for name in together
    }
    return Plays(whole, [*chain.from_iterable(ids for ids, _ in found)], runs)


Kept = tuple[Sequence[Id], Columns]
_ID = attrgetter("task", "seed", "repeat")


@uncollected()
def _kept(run: Run, most: int) -> Kept:
    """The ids of a run's plays and their columns, read where its record has changed since."""
    state = run.state()
    if run.table is None or run.table[0] != state:
        run.table = None
        # the last attempt of each
        listed = read_rows(run.path, _Shown)
        rows = dict(zip(map(_ID, listed), listed, strict=True))
        _check_count(len(rows), most)
        columns = _columns_of(list(rows.values()), run.steps(len(rows)))
        run.table = state, (list(rows), columns)
    kept: Kept = run.table[1]
    _check_count(len(kept[0]), most)
    return kept


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise ConfigError(
            f"these runs have more than {MOST_PLAYS} plays; choose fewer, or ask them in SQL:"
            " gem-ma export RUN --to parquet"
        )


def _columns_of(rows: Sequence[_Shown], steps: TrainingSteps) -> Columns:
    """What rows tell of their plays. Labels may have several values; a line that holds no play has
    its id alone."""
    tasks, seeds, repeats = (
        list(map(attrgetter(name), rows)) for name in ("task", "seed", "repeat")
    )
    ends, successes, returns, tallies, usages, errors = (
        list(map(attrgetter(name), rows))
        for name in ("end", "success", "returns", "tally", "usages", "error")
    )
    # a loop over all plays takes long, and hardly any have what few columns tell
    pairs = list(zip(ends, successes, strict=True))
    verdicts = {
        (end, success): ", ".join(kinds_of(ENDS[end], success)) if end else None
        for end, success in set(pairs)
    }
    columns: dict[str, Column] = {
        "task": tasks,
        "seed": list(map(str, seeds)),
        "repeat": repeats,
        "verdict": list(map(verdicts.__getitem__, pairs)),
        "end": [end or None for end in ends],
    }
    more = [(f"return {name}", column) for name, column in _spread([of or {} for of in returns])]
    more += [
        (name, [None if words is None else ", ".join(words) for words in column])
        for name, column in _spread([row.labels for row in rows])
    ]
    more += _spread([row.measures for row in rows])
    unscored = UNSCORED | {""}
    counted = [
        tally if end not in unscored else None for tally, end in zip(tallies, ends, strict=True)
    ]
    uses = [*zip(usages, tallies, strict=True)]
    tokens = {
        name: [_tokens(used or {}, of) if tally else None for used, tally in uses]
        for name, of in TOKENS.items()
    }
    more += [
        ("turns", [tally.turns if tally else None for tally in counted]),
        ("model calls", [tally.calls if tally else None for tally in counted]),
        *((name, column if any(column) else [None] * len(rows)) for name, column in tokens.items()),
        ("error", [error.splitlines()[0] if error else None for error in errors]),
    ]
    if steps.ends:
        played = [steps.of(at) for at in range(len(rows))]
        more.append(("step", [int(one["step"]) if one else None for one in played]))
        more.append(("weights", [one.get("weights") for one in played]))
    for name, column in more:
        # a measure may be called as a column of ours, which then holds what it lacks
        before = columns.get(name)
        pairs_of = zip(column, before, strict=True) if before else ()
        columns[name] = [a if a is not None else b for a, b in pairs_of] if before else column
    return {
        name: column
        for name, column in columns.items()
        if name == "task" or any(map(is_not, column, repeat(None)))
    }


def _spread(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Each name that one of these has, with what all have there."""
    for name in dict.fromkeys(chain.from_iterable(parts)):
        try:
            yield name, list(map(itemgetter(name), parts))
        except KeyError:  # some have it not
            yield name, [part.get(name) for part in parts]


# as a data frame has it, tokens are those that were sampled
TOKENS = {"tokens": attrgetter("completion"), "tokens read": attrgetter("prompt")}


def _tokens(usages: Mapping[str, Sequence[Used]], of: Callable[[Used], int | None]) -> int | None:
    """The sum of one count; None where a server did not say how many."""
    counts = list(map(of, chain(*usages.values())))
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def usual(known: Sequence[str]) -> list[str]:
    """The columns of a page for which none were chosen."""
    first = ("run", "verdict", "step", "weights", "end", "blame", "cause", "turns", "tokens")
    returns = [name for name in known if name.startswith("return ")][:4]
    return [*(name for name in first if name in known), *returns]


# -- filter and order ------------------------------------------------------------------------------


Condition = Callable[[Columns], Sequence[bool]]


def parsed(where: str) -> list[Condition]:
    """A filter in words: `verdict=lost turns>8 "hard violations">=1 refund`, of which all must
    hold. Each condition says of which plays it is so. Raises ConfigError where a quote has no end.

    >>> plays = {"turns": [9, 7], "verdict": ["lost", None]}
    >>> [holds(plays) for holds in parsed("turns>8 Lost x=1")]
    [[True, False], [True, False], [False, False]]
    """
    if where.count('"') % 2:
        raise ConfigError('a name or value with spaces stands between two "')
    found: list[Condition] = []
    for name, sign, value, quoted, word in _PART.findall(where):
        if sign:
            found.append(partial(_compared, name.strip('"'), sign, value.strip('"')))
        else:
            found.append(partial(_hold, (quoted or word).lower()))
    return found


def strange(where: str, columns: Columns) -> str:
    """What a filter names that no play has, or wants of a number that is none; "" where all is
    well.

    >>> strange("turns>8", {"turns": [9, 7]}), strange("turnz>8", {"turns": [9, 7]})
    ('', "no play has 'turnz' (did you mean 'turns'?)")
    """
    for quoted, sign, typed, *_ in _PART.findall(where) if where.count('"') % 2 == 0 else ():
        name, value = quoted.strip('"'), typed.strip('"')
        column = columns.get(name)
        if sign and column is None:
            return f"no play has {name!r}{nearest(name, columns, listed=False)}"
        if sign and column is not None and not any(isinstance(one, str) for one in column):
            try:
                float(value)
            except ValueError:
                return f"{name} is a number, and {value!r} is none"
    return ""


def _compared(name: str, sign: str, value: str, columns: Columns) -> list[bool]:
    column = columns.get(name)
    if column is None:
        column = [None] * len(next(iter(columns.values())))
    # many plays have the same: each value is compared once
    answers = {known: _is_so(known, sign, value) for known in set(column)}
    return [answers[known] for known in column]


def _is_so(known: Value | None, sign: str, value: str) -> bool:
    if known is None:  # nothing is known of it: that differs from any value
        return sign == "!="
    if isinstance(known, str):
        # one of several values is enough, as of `lost, cut`
        said = [known, *known.split(", ")]
        if sign in ("=", "!="):
            return (value in said) is (sign == "=")
        return _COMPARE[sign](known, value)
    try:
        return _COMPARE[sign](known, float(value))
    except ValueError:
        return sign == "!="


def _hold(word: str, columns: Columns) -> list[bool]:
    """Which plays have the word in one of their texts."""
    found = [False] * len(next(iter(columns.values())))
    for column in columns.values():
        has = {value: isinstance(value, str) and word in value.lower() for value in set(column)}
        if any(has.values()):
            found = [held or has[value] for held, value in zip(found, column, strict=True)]
    return found


def ordered(columns: Columns, plays: Sequence[int], sort: str) -> Sequence[int]:
    """Some plays by the column that `sort` names, the largest first where `-` stands before it;
    those that have nothing there come last."""
    column = columns.get(sort.removeprefix("-"))
    if column is None:
        return plays
    words = [at for at in plays if isinstance(column[at], str)]
    numbers = [at for at in plays if isinstance(column[at], (int, float))]
    for some in (numbers, words):
        some.sort(key=column.__getitem__, reverse=sort.startswith("-"))  # type: ignore[arg-type]
    return [*numbers, *words, *(at for at in plays if column[at] is None)]


def _sorts(known: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (sign + name, f"{name}, {words}")
        for name in known
        for sign, words in (("-", "largest first"), ("", "smallest first"))
    ]
