"""A table of plays, of one run or of several: columns of choice, a filter in words, any order. It
reads the rows of the index (`gem_ma.scores.rows`) once, keeps their columns until the record
changes, and opens no play."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress, repeat
from operator import attrgetter, eq, ge, gt, is_not, itemgetter, le, lt, ne
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
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
from gem_ma.runs.store import read_episodes, read_rows
from gem_ma.runs.store.index import EPISODES, map_rows, uncollected, written
from gem_ma.runs.store.lines import fitting_stamp
from gem_ma.scores.columns import Used
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import UNSCORED, PlayRow, Rows, complete

if TYPE_CHECKING:
    from gem_ma.pages.live.run import Run
    from gem_ma.pages.live.site import Site

Value = str | float
Column = Sequence[Value | None]  # what each play has there, None where it has nothing
Columns = Mapping[str, Column]  # all of one length; one at least

MOST_RUNS = 40
MOST_PLAYS = 200_000  # of all runs together: each is held with all of its columns
FEW = 200  # rows of a page
MOST_KEYS = 200  # of a struct
_PART = re.compile(r'("[^"]*"|[^\s"<>=!]+)(<=|>=|!=|=|<|>)("[^"]*"|[^\s"]+)|"([^"]*)"|(\S+)')
_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    ">": gt,
    "<=": le,
    ">=": ge,
}


class Ids(NamedTuple):
    """The ids of plays, part by part."""

    tasks: list[str]
    seeds: list[int]
    repeats: list[int]


class Plays(NamedTuple):
    """The plays of a table. `runs`: the place of the first play of each run, the address of the
    run's page, and the name of its folder."""

    columns: Columns
    ids: Ids
    runs: Sequence[tuple[int, str, str]]

    def address(self, at: int) -> str:
        """Where the page of the play at a place is."""
        _, to, name = self.runs[bisect_right(self.runs, at, key=itemgetter(0)) - 1]
        return to + link_to(name, "~".join(str(part[at]) for part in self.ids))


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
    found: Sequence[int] = range(len(plays.ids.tasks))
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
        whole=len(plays.ids.tasks),
        plays=_table(plays, ordered(plays.columns, found, sort)[first : first + FEW], shown),
        more=page_address("plays", names, **ways) if first + FEW < len(found) else "",
    )
    title = f"Plays of {names[0]}" if len(names) == 1 else f"Plays of {len(names)} runs"
    return served(title, body)


def _table(plays: Plays, some: Sequence[int], shown: Sequence[str]) -> Html:
    rows: list[list[object]] = []
    for at in some:
        task, seed, _ = (part[at] for part in plays.ids)
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


class _Nothing(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a mapping without keys."""


class _Passed(msgspec.Struct, gc=False):
    """Of a mapping that is passed over."""


class _Shown(PlayRow, array_like=True, gc=False):
    """A row with all that the table shows decoded at once."""

    tally: _Counts | None = None  # type: ignore[assignment]
    usages: dict[str, list[Used]] | None = None  # type: ignore[assignment]
    groups: _Passed = msgspec.field(default_factory=_Passed)  # type: ignore[assignment]


# mappings, whose keys are nearly always those of the rows before
_SPREAD: Mapping[str, Any] = {"returns": float, "labels": list[str], "measures": float}
_ROWS = msgspec.json.Decoder(_Shown)


class _Decoder:
    """Decodes rows in half the time: a mapping with keys that were met before becomes a struct."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, None]] = {name: {} for name in _SPREAD}
        self._quick: msgspec.json.Decoder[_Shown] = self._of_keys()

    def rows(self, block: bytes) -> list[_Shown]:
        """Those of some lines; their mappings are mappings still where keys are new."""
        try:
            return self._quick.decode_lines(block)
        except msgspec.ValidationError:
            rows = _ROWS.decode_lines(block)
        for name, keys in self._keys.items():
            keys.update(
                dict.fromkeys(chain.from_iterable(getattr(row, name) or () for row in rows))
            )
        if sum(map(len, self._keys.values())) <= MOST_KEYS:
            with suppress(ValueError):  # no field is called by a name with a quote in it
                self._quick = self._of_keys()
        return rows

    def _of_keys(self) -> msgspec.json.Decoder[_Shown]:
        kinds: list[tuple[str, Any, Any]] = []
        for name, keys in self._keys.items():
            fields = {f"f{number}": key for number, key in enumerate(keys)}
            kind = msgspec.defstruct(
                name,
                [(field, _SPREAD[name], None) for field in fields],
                bases=(_Nothing,),
                rename=fields,
                gc=False,
            )
            kinds.append((name, kind | None, msgspec.field(default_factory=kind)))
        made = msgspec.defstruct("Quick", kinds, bases=(_Shown,), array_like=True, gc=False)
        return msgspec.json.Decoder(made)


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
            columns = {"run": [name] * len(ids.tasks), **columns}
        runs.append((count, run_address(name), run.path.name))
        found.append((ids, columns))
        count += len(ids.tasks)
    if len(found) == 1:
        return Plays(found[0][1], found[0][0], runs)
    together = dict.fromkeys(chain.from_iterable(columns for _, columns in found))
    whole = {
        name: [
            *chain.from_iterable(
                columns.get(name, [None] * len(ids.tasks)) for ids, columns in found
            )
        ]
        for name in together
    }
    ids = Ids(*([*chain(*parts)] for parts in zip(*(ids for ids, _ in found), strict=True)))
    return Plays(whole, ids, runs)


Kept = tuple[Ids, Columns]
_OF_IDS = (0, "task"), (0, "seed"), (0, "repeat")


@uncollected()
def _kept(run: Run, most: int) -> Kept:
    """The ids of a run's plays and their columns, read where its record has changed since."""
    state = run.state()
    if run.table is None or run.table[0] != state:
        run.table = None
        # nobody is asked for the measures of a training, whose plays are many
        judge = Judge(run.judge.success) if run.learned else run.judge
        whole = _gathered(run.path, judge, anew=run.is_named)
        _check_count(len(whole), most)
        run.table = state, (whole.ids, whole.told(run.steps(len(whole))))
    kept: Kept = run.table[1]
    _check_count(len(kept[0].tasks), most)
    return kept


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise ConfigError(
            f"these runs have more than {MOST_PLAYS} plays; choose fewer, or ask them in SQL:"
            " gem-ma export RUN --to parquet"
        )


def _gathered(path: Path, judge: Judge, *, anew: bool = False) -> _Gathered:
    """What the plays of a run folder tell, less the attempts that others followed; judged where no
    row says how they came out, or all `anew`."""
    whole = _Gathered()
    made = judge.rows()
    found = None if anew else fitting_stamp(path / EPISODES)
    rows = _Decoder().rows
    # rows take several times the room of columns, and none outlives its block
    if (
        found is None
        or map_rows(path, *found, lambda block: whole.add(rows(block))) is None
        or not all(map(made.suffices, whole.kinds.values()))
    ):
        whole = _Gathered()
        whole.add(_ROWS.decode_lines(written(_judged(path, made, anew))))
    # a set of seeds costs a quarter of one of ids, and hardly ever are two alike
    if len(set(whole.ids.seeds)) < len(whole):
        last = {id_: at for at, id_ in enumerate(zip(*whole.ids, strict=True))}
        whole.keep(list(last.values()))
    return whole


def _judged(path: Path, made: Rows, anew: bool) -> list[PlayRow]:
    """The rows of a run's plays; those that lack what is wanted, or all `anew`, are read."""
    if anew:
        return [*map(made.of, read_episodes(path))]
    rows = read_rows(path, PlayRow)
    with suppress(StoreError):  # the page of the run names what is damaged
        complete(rows, made, partial(read_episodes, path))
    return rows


class _Gathered:
    """Columns that grow by blocks of plays, by the place of their kind in the table and name.
    `kinds`: one row of each of those that ended alike and tell alike much."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[object, ...], PlayRow] = {}
        self.ids = Ids([], [], [])
        self._columns: dict[tuple[int, str], list[Any]] = dict(zip(_OF_IDS, self.ids, strict=True))

    def __len__(self) -> int:
        return len(self.ids.tasks)

    def add(self, rows: Sequence[_Shown]) -> None:
        """Adds plays. What none of them has gets no column yet."""
        count = len(self)
        kinds = [(row.end, row.success, row.asked, row.returns is None) for row in rows]
        examples = dict(zip(kinds, rows, strict=True))
        self.kinds |= {kind: row for kind, row in examples.items() if row.end}
        verdicts = {kind: _verdict(row) for kind, row in examples.items()}
        verdict = (0, "verdict", list(map(verdicts.__getitem__, kinds)))
        for place, name, column in chain([verdict], _columns_of(rows)):
            whole = self._columns.get((place, name))
            if whole is None and any(map(is_not, column, repeat(None))):
                whole = self._columns[place, name] = [None] * count
            if whole is not None:
                whole += column
        for column in self._columns.values():
            column += [None] * (len(self) - len(column))

    def keep(self, plays: Sequence[int]) -> None:
        """Leaves these plays alone, in this order."""
        for column in self._columns.values():
            column[:] = [column[at] for at in plays]

    def told(self, steps: TrainingSteps) -> Columns:
        """All of them in the order of a table, with the steps of a training."""
        kinds = self._columns
        for name in TOKENS:
            if not any(kinds.get((4, name), ())):
                kinds.pop((4, name), None)
        if steps.ends:
            played = [steps.of(at) for at in range(len(self))]
            kinds[5, "step"] = [int(one["step"]) if one else None for one in played]
            kinds[5, "weights"] = [one.get("weights") for one in played]
        columns: dict[str, Column] = {}
        for kind, name in sorted(kinds, key=itemgetter(0)):
            column = kinds[kind, name]
            # a measure may be called as a column of ours, which then holds what it lacks
            if before := columns.get(name):
                pairs = zip(column, before, strict=True)
                column = [a if a is not None else b for a, b in pairs]
            columns[name] = column
        return columns


def _verdict(row: PlayRow) -> str | None:
    return ", ".join(kinds_of(ENDS[row.end], row.success)) if row.end else None


def _columns_of(rows: Sequence[_Shown]) -> Iterator[tuple[int, str, list[Any]]]:
    """What rows tell of their plays, each with the place of its kind. Labels may have several
    values; a line that holds no play has its id alone."""
    # each column in a loop of its own: `row.end` is read in a third of the time of an `attrgetter`
    yield 0, "task", [intern(row.task) for row in rows]
    yield 0, "seed", [row.seed for row in rows]
    yield 0, "repeat", [row.repeat for row in rows]
    yield 0, "end", [row.end or None for row in rows]
    for name, column in _spread([row.returns for row in rows]):
        yield 1, f"return {name}", column
    for name, column in _spread([row.labels for row in rows]):
        yield 2, name, [None if words is None else ", ".join(words) for words in column]
    for name, column in _spread([row.measures for row in rows]):
        yield 3, name, column
    unscored = UNSCORED | {""}
    counted = [row.tally if row.end not in unscored else None for row in rows]
    yield 4, "turns", [tally.turns if tally else None for tally in counted]
    yield 4, "model calls", [tally.calls if tally else None for tally in counted]
    for name, of in TOKENS.items():
        yield (
            4,
            name,
            [row.tally and (_tokens(row.usages, of) if row.usages else 0) for row in rows],
        )
    yield 4, "error", [row.error.splitlines()[0] if row.error else None for row in rows]


def _spread(parts: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Each key that one of these has, with what all have there."""
    some: Any = next((part for part in parts if part is not None), {})
    if isinstance(some, _Nothing):
        kind = type(some)
        nothing = kind()
        filled = [nothing if part is None else part for part in parts]
        for name, field in zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True):
            yield name, list(map(attrgetter(field), filled))
        return
    for name in dict.fromkeys(chain.from_iterable(filter(None, parts))):
        yield name, [part.get(name) if part else None for part in parts]


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
                _number(value)
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
        return _COMPARE[sign](known, _number(value))
    except ValueError:
        return sign == "!="


def _number(value: str) -> float:
    """What is typed as a number. A seed has more digits than a float holds. Raises ValueError."""
    return int(value) if value.lstrip("-").isdecimal() else float(value)


def _hold(word: str, columns: Columns) -> list[bool]:
    """Which plays have the word in one of their texts, or in their seed."""
    found = [False] * len(next(iter(columns.values())))
    for name, column in columns.items():
        texts = {value: str(value) if name == "seed" else value for value in set(column)}
        has = {
            value: isinstance(text, str) and word in text.lower() for value, text in texts.items()
        }
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
