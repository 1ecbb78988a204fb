"""Episodes as rows of a table: one row an episode, its turns, rewards and tokens as nested columns,
and its line of the record, from which `gem_ma.read_episodes` reads it back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from gem_ma.credit import credit
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.parsing.strict_json import dump_json
from gem_ma.record.codec import dump_episode
from gem_ma.runs.export.chats import identity, tokens
from gem_ma.runs.store.tables import RECORD, arrow

Won = Callable[[Episode], bool | None]
Fields = dict[str, Any]
Rows = dict[str, list[Fields]]  # by table
# What is held at once, and a group of rows in a file: so many rows, or about so many bytes, since a
# long training talk may be megabytes. Groups of few rows make a long list of them, which is held.
ROWS = 8_192
BYTES = 4 << 20
ID_BYTES = 16  # of a token's id in the columns, beside what it takes in the record


def episode_row(episode: Episode, won: Won) -> Fields:
    """One episode as plain values: what names it, what came of it, and its turns."""
    returns = episode.returns()
    return {
        **identity(episode),
        "end": episode.end.value,
        "error": episode.error,
        "success": won(episode) if episode.end.scored else None,
        "returns": [{"agent": agent, "value": value} for agent, value in returns.items()],
        "cast": [
            {"agent": agent, "behaviour": seat.behaviour, "policy": seat.policy}
            for agent, seat in episode.cast.items()
        ],
        "turns": list(_turns(episode)),
    }


def _turns(episode: Episode) -> Iterator[Fields]:
    rewards = {agent: iter(credit(episode, agent).rewards) for agent in episode.cast}
    for turn in episode.turns:
        yield {
            "step": turn.step,
            "agent": turn.agent,
            "text": turn.action.text,
            "parsed": turn.action.parsed,
            "calls": json.dumps([_call(call) for call in turn.action.tool_calls]),
            "reward": float(next(rewards[turn.agent])),
            "replies": [tokens(reply) for reply in turn.replies],
        }


def _call(call: Any) -> Fields:
    if hasattr(call, "reason"):
        return {"malformed": call.text, "reason": call.reason}
    return {"name": call.name, "arguments": call.arguments}


def flat_row(episode: Episode, won: Won) -> Fields:
    """One row an episode, flat: for data frames. A return of a play that failed or was interrupted
    is None, as its success is: a mean over the column is then that of the summary."""
    whole = episode_row(episode, won)
    is_scored = episode.end.scored
    returns = {
        f"return {entry['agent']}": entry["value"] if is_scored else None
        for entry in whole.pop("returns")
    }
    seats: Fields = {}
    for agent, seat in episode.cast.items():
        seats |= {f"behaviour {agent}": seat.behaviour, f"policy {agent}": seat.policy}
    del whole["cast"]
    return {**whole, **returns, **seats, "turns": len(episode.turns)}


def turn_rows(episode: Episode, won: Won) -> Iterator[Fields]:
    """One row a turn, flat: for data frames."""
    whole = episode_row(episode, won)
    names = ("task", "seed", "repeat", "scenario", "success", "end")
    common = {name: whole[name] for name in names}
    for number, (row, turn) in enumerate(zip(whole["turns"], episode.turns, strict=True)):
        replies = row.pop("replies")
        sampled = [reply.sampled for reply in turn.replies]
        # the last reply is the one that was acted on; drafts and judgements came before it
        last = replies[-1] if replies else {}
        yield {
            **common,
            "turn": number,
            **row,
            "policy": last.get("policy"),
            "version": last.get("version"),
            # many servers count them and give no ids; a part would look like the whole
            "tokens": None if None in sampled else sum(filter(None, sampled)),
        }


# what a spreadsheet takes for the beginning of a formula, in the wide letters of Asia too
_FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


def write_csv(rows: Iterable[Mapping[str, Any]], out: Path) -> int:
    """Writes flat rows with all columns that any of them has, and gives their number. A text that
    a spreadsheet would run as a formula has an apostrophe before it; numbers stay numbers."""
    names: dict[str, None] = {}
    count = 0
    # a play may have measures that the first one has not, and all rows are not held
    with TemporaryFile("w+", encoding="utf-8") as held:
        for row in rows:
            names |= dict.fromkeys(row)
            held.write(dump_json(row) + "\n")
            count += 1
        held.seek(0)
        with out.open("w", encoding="utf-8", newline="") as file:
            # with both letters here either of them in a text is quoted, and ends no row
            table = csv.writer(file, lineterminator="\r\n")
            table.writerow(map(harmless, names))
            for line in held:
                known = json.loads(line)
                table.writerow([harmless(known.get(name)) for name in names])
    return count


def harmless(value: Any) -> Any:
    """A cell that no spreadsheet runs.

    >>> harmless("=1+1"), harmless(-0.5), harmless("won"), harmless(None)
    ("'=1+1", -0.5, 'won', None)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


_REPLY = {
    "policy": "string",
    "version": "int64",
    "finish": "string",
    "prompt_ids": ["int64"],
    "token_ids": ["int64"],
    "logprobs": ["float64"],
}
_TURN = {
    "step": "int64",
    "agent": "string",
    "text": "string",
    "parsed": "string",
    "calls": "string",
    "reward": "float64",
    "replies": [_REPLY],
}
# the same for every run, so that files of several runs go together
COLUMNS: dict[str, Any] = {
    "task": "string",
    "seed": "string",
    "repeat": "int64",
    "scenario": "string",
    "version": "int64",
    "end": "string",
    "error": "string",
    "success": "bool_",
    "returns": [{"agent": "string", "value": "float64"}],
    "cast": [{"agent": "string", "behaviour": "string", "policy": "string"}],
    "turns": [_TURN],
    RECORD: "string",
}


def _type(spelled: Any) -> Any:
    """The type of pyarrow that a name, [entry] or {field: type} stands for."""
    pa = arrow()
    if isinstance(spelled, list):
        return pa.list_(_type(spelled[0]))
    if isinstance(spelled, dict):
        return pa.struct([(name, _type(inner)) for name, inner in spelled.items()])
    return getattr(pa, spelled)()


def schema(columns: Mapping[str, Any]) -> Any:
    """The schema of a file with these columns. Raises ConfigError where pyarrow is missing."""
    return arrow().schema([(name, _type(spelled)) for name, spelled in columns.items()])


def _weight(row: Mapping[str, Any]) -> int:
    """About how many bytes a row of a whole episode holds."""
    replies = chain.from_iterable(turn["replies"] for turn in row["turns"])
    ids = sum(len(reply["prompt_ids"]) + len(reply["token_ids"]) for reply in replies)
    return len(row[RECORD]) + ID_BYTES * ids


def _batches(plays: Iterable[Rows]) -> Iterator[Rows]:
    """Rows of several plays, as many as are held at once. The first table of a play has it
    whole."""
    held: Rows = {}
    bytes_held = 0
    for play in plays:
        for name, rows in play.items():
            held.setdefault(name, []).extend(rows)
        bytes_held += _weight(next(iter(play.values()))[0])
        if bytes_held >= BYTES or sum(map(len, held.values())) >= ROWS:
            yield held
            held, bytes_held = {}, 0
    yield held


def write_files(plays: Iterable[Rows], files: Mapping[str, tuple[Path, Fields]]) -> None:
    """Writes the rows of plays, by table, into the parquet file of each table, which has these
    columns. Raises ConfigError where pyarrow is missing."""
    pa = arrow()
    from pyarrow import parquet

    schemas = {name: schema(columns) for name, (_, columns) in files.items()}
    with ExitStack() as stack:
        # an empty run is a file too, whose columns can be read
        writers = {
            name: stack.enter_context(
                parquet.ParquetWriter(file, schemas[name], compression="zstd")
            )
            for name, (file, _) in files.items()
        }
        for batch in _batches(plays):
            for name, rows in batch.items():
                if rows:
                    writers[name].write_table(pa.Table.from_pylist(rows, schema=schemas[name]))


def write_table(episodes: Iterable[Episode], won: Won, out: Path) -> None:
    """Writes a parquet file of whole episodes. Raises ConfigError where pyarrow is missing."""
    rows = ({**episode_row(one, won), RECORD: dump_episode(one)} for one in episodes)
    write_files(({"plays": [row]} for row in rows), {"plays": (out, COLUMNS)})
