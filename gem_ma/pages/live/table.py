"""A table of plays, of one run or of several: columns of choice, a filter in words, any order. It
reads the rows of the index (`gem_ma.scores.rows`), and opens no play."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, NamedTuple

from gem_ma.kernel.errors import ConfigError, GemMaError
from gem_ma.pages.live.answers import (
    Answer,
    Asked,
    page_address,
    refused,
    run_address,
    served,
    whole_number,
)
from gem_ma.pages.static.folder import kinds_of
from gem_ma.pages.static.page import Html, render, table, text
from gem_ma.pages.static.scores import link_to
from gem_ma.pages.static.transcript import number
from gem_ma.record.codec import ENDS
from gem_ma.runs.store import read_rows
from gem_ma.scores.rows import PlayRow, tally_in, usages_in

if TYPE_CHECKING:
    from gem_ma.pages.live.site import Site

Value = str | float
Fields = Mapping[str, Value]  # column -> what a play has there; absent where it has nothing

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


class Play(NamedTuple):
    """One play of the table: where its page is, and its fields."""

    address: str
    fields: Fields


def plays_page(site: Site, asked: Asked) -> Answer:
    """`/plays?run=&where=&sort=&column=&from=`: the plays of these runs; one line where that cannot
    be."""
    names = list(dict.fromkeys(asked.runs))
    try:
        if not 0 < len(names) <= MOST_RUNS:
            raise ConfigError(f"choose 1 to {MOST_RUNS} runs in the list of all runs")
        plays = list(
            islice(
                (play for name in names for play in _plays_of(site, name, len(names) > 1)),
                MOST_PLAYS + 1,
            )
        )
        if len(plays) > MOST_PLAYS:
            raise ConfigError(
                f"these runs have more than {MOST_PLAYS} plays; choose fewer, or ask them in SQL:"
                " gem-ma export RUN --to parquet"
            )
    except GemMaError as error:
        return refused("Plays", error)
    where = asked.query.get("where", "")
    fault = ""
    conditions: list[Callable[[Fields], bool]] = []
    try:
        conditions = parsed(where)
    except ConfigError as error:
        fault = str(error)
    found = [play for play in plays if all(is_so(play.fields) for is_so in conditions)]
    known = columns_of(plays)
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
        whole=len(plays),
        plays=_table(ordered(found, sort)[first : first + FEW], shown),
        more=page_address("plays", names, **ways) if first + FEW < len(found) else "",
    )
    title = f"Plays of {names[0]}" if len(names) == 1 else f"Plays of {len(names)} runs"
    return served(title, body)


def _table(plays: Sequence[Play], shown: Sequence[str]) -> Html:
    rows: list[list[object]] = []
    for play in plays:
        task = text(play.fields["task"])
        seed = text(f"seed {play.fields['seed']}")
        head = Html(f'<a href="{text(play.address)}" title="{seed}">{task}</a>')
        rows.append([head, *(_told(play.fields.get(name)) for name in shown)])
    return table(["play", *shown], rows) if rows else Html("")


def _told(value: Value | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value)


# -- the plays -------------------------------------------------------------------------------------


def _plays_of(site: Site, name: str, several: bool) -> Iterator[Play]:
    run, rest = site.run([part for part in name.split("/") if part] or [""])
    if rest:
        raise ConfigError(f"{name}: no such run folder")
    with run.lock:
        run.refresh()
        rows = {row.id: row for row in read_rows(run.path, PlayRow)}  # the last attempt of each
        steps = run.steps(len(rows))
    begin = {"run": name} if several else {}
    to = run_address(name)
    for at, row in enumerate(rows.values()):
        key = f"{row.task}~{row.seed}~{row.repeat}"
        fields = {**begin, **fields_of(row), **steps.of(at)}
        if "step" in fields:
            fields["step"] = int(fields["step"])
        yield Play(to + link_to(run.path.name, key), fields)


def fields_of(row: PlayRow) -> dict[str, Value]:
    """What a row tells of its play. Labels may have several values."""
    fields: dict[str, Value] = {"task": row.task, "seed": str(row.seed)}
    if row.repeat:
        fields["repeat"] = row.repeat
    if not row.end:  # a line that holds no play
        return fields
    fields["verdict"] = ", ".join(kinds_of(ENDS[row.end], row.success))
    fields["end"] = row.end
    if not row.is_whole:
        return fields
    fields |= {f"return {agent}": paid for agent, paid in (row.returns or {}).items()}
    fields |= {name: ", ".join(values) for name, values in row.labels.items()}
    fields |= row.measures
    tally = tally_in(row)
    fields |= {"turns": tally.turns} if row.is_scored else {}
    fields |= {"model calls": tally.calls} if tally.calls else {}
    used = [use for uses in usages_in(row).values() for use in uses]
    if tokens := sum((use.prompt or 0) + (use.completion or 0) for use in used):
        fields["tokens"] = tokens
    if row.error:
        fields["error"] = row.error.splitlines()[0]
    return fields


def columns_of(plays: Iterable[Play]) -> list[str]:
    """All columns that some play has, in the order in which they come."""
    names: dict[str, None] = {}
    for play in plays:
        names.update(dict.fromkeys(play.fields))
    return list(names)


def usual(known: Sequence[str]) -> list[str]:
    """The columns of a page for which none were chosen."""
    first = ("run", "verdict", "step", "weights", "end", "blame", "cause", "turns", "tokens")
    returns = [name for name in known if name.startswith("return ")][:4]
    return [*(name for name in first if name in known), *returns]


# -- filter and order ------------------------------------------------------------------------------


def parsed(where: str) -> list[Callable[[Fields], bool]]:
    """A filter in words: `verdict=lost turns>8 "hard violations">=1 refund`, of which all must
    hold. Raises ConfigError where a quote has no end.

    >>> [is_so({"turns": 9, "verdict": "lost"}) for is_so in parsed("turns>8 Lost x=1")]
    [True, True, False]
    """
    if where.count('"') % 2:
        raise ConfigError('a name or value with spaces stands between two "')
    found: list[Callable[[Fields], bool]] = []
    for name, sign, value, quoted, word in _PART.findall(where):
        if sign:
            found.append(partial(_compared, name.strip('"'), sign, value.strip('"')))
        else:
            found.append(partial(_holds, (quoted or word).lower()))
    return found


def _compared(name: str, sign: str, value: str, fields: Fields) -> bool:
    known = fields.get(name)
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


def _holds(word: str, fields: Fields) -> bool:
    return any(isinstance(value, str) and word in value.lower() for value in fields.values())


def ordered(plays: Sequence[Play], sort: str) -> Sequence[Play]:
    """By the column that `sort` names, the largest first where `-` stands before it; plays that
    have nothing there come last."""
    name = sort.removeprefix("-")
    having = [play for play in plays if name in play.fields]
    if not having:
        return plays
    numbers = [play for play in having if not isinstance(play.fields[name], str)]
    words = [play for play in having if isinstance(play.fields[name], str)]
    for some in (numbers, words):
        some.sort(key=lambda play: play.fields[name], reverse=sort.startswith("-"))
    return [*numbers, *words, *(play for play in plays if name not in play.fields)]


def _sorts(known: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (sign + name, f"{name}, {words}")
        for name in known
        for sign, words in (("-", "largest first"), ("", "smallest first"))
    ]
