"""Writes one export: a run folder's episodes, in one of the formats, to a file or a folder that
stands there whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.parsing.strict_json import dump_json
from gem_ma.kernel.types import Turn, spoken
from gem_ma.record.codec import dump_episode
from gem_ma.runs.export.chats import chat, conversation, identity, seen_before, speakers
from gem_ma.runs.export.frames import Facts, write_tables
from gem_ma.runs.export.tables import write_csv, write_table
from gem_ma.runs.export.taus import tau1, tau2
from gem_ma.runs.store import read_episodes, read_media
from gem_ma.runs.store.tables import DATA
from gem_ma.scores.judge import Judge
from gem_ma.system.files import oserror

# Pairs of acts: two plays of one start, an agent that saw the same in both, and chose otherwise.
# What follows the choice decides which of the two is preferred, so a pair says as much as the
# episodes that it comes from. A pair holds one act on each side: a longer completion would hold
# words of others, which a policy is not to be trained on.

Won = Callable[[Episode], bool | None]


def pairs(
    episodes: Iterable[Episode], won: Won, agents: Iterable[str] = ()
) -> Iterator[dict[str, Any]]:
    """`prompt chosen rejected tools agent margin`, and what names the two episodes.

    Of the plays of one start (task and seed, or `group`) the best is paired with each that came to
    less, by success where any of them is judged, else by the agent's return. A pair whose talk
    parted before the agent chose otherwise is none.
    """
    starts: dict[tuple[str, int | str], list[Episode]] = {}
    for episode in episodes:
        if episode.end.scored:
            starts.setdefault((episode.id[0], episode.group or episode.seed), []).append(episode)
    for plays in starts.values():
        # a play that nobody can judge is worth neither more nor less than one that was won
        judged = [(float(success), play) for play in plays if (success := won(play)) is not None]
        for agent in speakers(plays[0], agents):
            worth = judged or [(play.returns().get(agent, 0.0), play) for play in plays]
            (most, better), *others = sorted(worth, key=lambda one: one[0], reverse=True)
            for less, worse in others:
                pair = _pair(better, worse, agent) if less < most else None
                if pair is not None:
                    yield {**pair, "margin": most - less}


def _pair(better: Episode, worse: Episode, agent: str) -> dict[str, Any] | None:
    turns = [[turn for turn in play.turns if turn.agent == agent] for play in (better, worse)]
    for first, second in zip(*turns, strict=False):
        if (first.observed, first.legal) != (second.observed, second.legal):
            return None
        if _same(first, second):
            continue
        names = identity(worse)
        return {
            "prompt": chat(seen_before(better, first), agent),
            "chosen": chat([spoken(agent, first.action)], agent),
            "rejected": chat([spoken(agent, second.action)], agent),
            "tools": [tool.schema for tool in first.tools],
            "agent": agent,
            **identity(better),
            "rejected_seed": names["seed"],
            "rejected_repeat": names["repeat"],
        }
    return None


def _same(first: Turn, second: Turn) -> bool:
    """Whether two acts say and call the same; ids of calls are drawn by servers."""
    acts = [
        (turn.action.text, [(getattr(c, "name", ""), getattr(c, "arguments", c)) for c in calls])
        for turn in (first, second)
        for calls in [turn.action.tool_calls]
    ]
    return acts[0] == acts[1]


ONE_FILE = (".parquet", ".pq")  # a name that ends so wants whole plays in one file
# format -> how the name of its file ends; "" = a folder
FORMATS = {
    "jsonl": ".jsonl",
    "parquet": "",
    "hf": "",
    "csv": ".csv",
    "messages": ".jsonl",
    "sft": ".jsonl",
    "preference": ".jsonl",
    "tau1": ".json",
    "tau2": ".json",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be exported: a format of FORMATS; which episodes (all, or by how they were judged;
    None = what the format is for); whose conversations."""

    format: str
    which: str | None = None
    agents: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None  # of the run, for tau2
    row: Callable[[Episode], Mapping[str, Any]] | None = None  # of one play, for csv
    played: Facts | None = None  # for the three tables of parquet


def export(run: Path, out: Path, judge: Judge, wish: Wish) -> dict[str, Any]:
    """Writes `out`, which may not exist, and gives `{out, format, episodes, rows, of}`: how many
    episodes were taken, how many rows came of them, and of how many episodes they were taken.

    Raises ConfigError where the format cannot hold such plays or its library is missing,
    StoreError where something cannot be read or written.
    """
    won = judge.success or (lambda episode: None)
    usual = "all" if wish.format != "sft" else "won" if judge.success else "played"
    which = wish.which or usual
    if which in ("won", "lost") and judge.success is None:
        raise ConfigError(
            f"{run}: which plays were {which} is unknown: its scenario has no notion of success,"
            " or is not installed"
        )
    source = _Source(run, which, won)
    with whole_or_not(out) as part:
        if wish.format == "parquet" and wish.played and out.suffix not in ONE_FILE:
            write_tables(run.resolve().name, source, won, wish.played, part)
            rows = source.count
        else:
            rows = _write(source, part, wish)
    counts = {"episodes": source.count, "rows": rows, "of": source.seen}
    return {"out": str(out), "format": wish.format, **counts}


@contextmanager
def whole_or_not(out: Path) -> Iterator[Path]:
    """A hidden path beside `out`, which becomes `out` at the end; after a failure neither is there.
    Raises ConfigError where `out` exists."""
    if out.exists():
        raise ConfigError(f"{out}: stands there already; name another file by --out")
    part = out.with_name(f".{out.name}.part")
    with oserror(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            os.replace(part, out)
        except StoreError:  # it names its own file, the one that was read
            raise
        except OSError as error:
            error.filename = str(out)  # the file that was wanted, not the hidden one
            raise
        finally:
            # a killed export leaves a hidden file, never half of a named one
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)


class _Source:
    """The chosen episodes of a run, read anew at every walk; how many the last one gave, and of
    how many. `which`: all, won, lost, or played (an error ended none of them)."""

    def __init__(self, run: Path, which: str, won: Callable[[Episode], bool | None]) -> None:
        self.run = run
        self.won = won
        self.count = 0
        self.seen = 0
        self._which = which

    def __iter__(self) -> Iterator[Episode]:
        self.count = self.seen = 0
        for episode in read_episodes(self.run):
            self.seen += 1
            if self._is_wanted(episode):
                self.count += 1
                yield episode

    def _is_wanted(self, episode: Episode) -> bool:
        if self._which in ("all", "played"):
            return self._which == "all" or episode.end.scored
        success = self.won(episode) if episode.end.scored else False
        return success is (self._which == "won")


def _write(source: _Source, out: Path, wish: Wish) -> int:
    if wish.format == "parquet":
        write_table(source, source.won, out)
        return source.count
    if wish.format == "csv" and wish.row is not None:
        return write_csv(map(wish.row, source), out)
    if wish.format == "hf":
        return _write_folder(source, out)
    if wish.format in ("tau1", "tau2"):
        made: Any = tau1(source, source.won)
        if wish.format == "tau2":
            made = tau2(source, source.won, wish.facts)
        out.write_text(
            json.dumps(made, ensure_ascii=False, allow_nan=False, indent=1) + "\n", "utf-8"
        )
        return source.count
    count = 0
    with out.open("w", encoding="utf-8", newline="\n") as file:
        for line in _lines(source, wish):
            file.write(line + "\n")
            count += 1
    return count


def _lines(source: _Source, wish: Wish) -> Iterator[str]:
    if wish.format == "jsonl":
        yield from map(dump_episode, source)
    elif wish.format == "preference":
        yield from map(dump_json, pairs(source, source.won, wish.agents))
    else:
        for episode in source:
            for agent in speakers(episode, wish.agents):
                row = _talk(episode, agent, source.won, until_last=wish.format == "sft")
                yield dump_json(row)


def _talk(
    episode: Episode, agent: str, won: Callable[[Episode], bool | None], *, until_last: bool
) -> dict[str, Any]:
    row = conversation(episode, agent)
    if until_last:
        # what came after its last word teaches it nothing
        row["messages"] = row["messages"][: row["turns"][-1]["message"] + 1]
    seat = episode.cast[agent]
    facts = {
        "agent": agent,
        "behaviour": seat.behaviour,
        "policy": seat.policy,
        "end": episode.end.value,
        "success": won(episode) if episode.end.scored else None,
        "return": episode.returns()[agent],
    }
    return {**row, **identity(episode), **facts}


CARD = """---
configs:
- config_name: default
  data_files:
{files}---

{count} episodes of {scenarios}, written by gem_ma. A row is an episode: `turns` holds what each
agent said, what that turn was paid and which tokens a policy sampled; `record` is the whole of it,
which `gem_ma.read_episodes` reads back.
"""


def _write_folder(source: _Source, out: Path) -> int:
    """A folder that `datasets.load_dataset` opens: a file per split, and a card that names
    them."""
    ids: dict[str, set[tuple[str, int, int]]] = {}
    scenarios: dict[str, None] = {}
    for episode in source:
        ids.setdefault(episode.task.partition("/")[0], set()).add(episode.id)
        scenarios[episode.scenario] = None
    (out / DATA).mkdir(parents=True)
    files = ""
    names = _safe_names(ids)
    for split, wanted in ids.items():
        # read once more for each split, so that no more than a few episodes are held
        chosen = (episode for episode in source if episode.id in wanted)
        write_table(chosen, source.won, out / DATA / f"{names[split]}.parquet")
        # quoted: `no` is false in YAML, and `1` a number
        files += f'  - split: "{names[split]}"\n    path: "{DATA}/{names[split]}.parquet"\n'
    named = ", ".join(json.dumps(name, ensure_ascii=False) for name in scenarios) or "nothing"
    count = sum(map(len, ids.values()))
    text = CARD.format(files=files, count=count, scenarios=named)
    (out / "README.md").write_text(text, encoding="utf-8")
    _copy_images(source.run, out)
    return count


def _safe_names(splits: Iterable[str]) -> dict[str, str]:
    """Split -> the name of its file and of the split in a data set: letters, digits and `_`, and
    each name once, whatever a record calls its splits."""
    names: dict[str, str] = {}
    taken = {"all"}  # datasets means the union of all splits by it, and takes no file of this name
    for split in splits:
        # a file's name has 255 bytes at most, and a letter four; some disks know no case
        plain = re.sub(r"\W", "_", split[:50]) or "plays"
        name = plain
        while name.lower() in taken:
            name = f"{name}_{len(taken)}"
        taken.add(name.lower())
        names[split] = name
    return names


def _copy_images(run: Path, out: Path) -> None:
    """The run's images, under the digests that its messages name."""
    names: Sequence[str] = os.listdir(run / "media") if (run / "media").is_dir() else ()
    for name in names:
        (out / "media").mkdir(exist_ok=True)
        (out / "media" / name).write_bytes(read_media(run, name))


def has_images(run: Path) -> bool:
    """Whether a run stores images, which a single file does not hold."""
    return (run / "media").is_dir() and any(os.scandir(run / "media"))
