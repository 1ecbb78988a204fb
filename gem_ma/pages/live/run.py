"""One run folder that is being looked at: its episodes, what the viewer keeps beside them, and what
the scripts of its page ask for. It knows no other run, and nothing of HTTP."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from gem_ma import credit
from gem_ma.config.settings import Config
from gem_ma.credit.estimators import estimate, estimator
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
from gem_ma.kernel.types import Reply, Turn
from gem_ma.pages.live import forks
from gem_ma.pages.live.forks import REPEATS, Fork, base_of, forked, read_forks, room, write_fork
from gem_ma.pages.static import notes
from gem_ma.pages.static.folder import (
    Loaded,
    causes_of,
    episode_of,
    kinds_of,
    manifest,
    resolved,
    stored_summary,
    summary_file,
)
from gem_ma.pages.static.notes import Note, note_of, read_notes, write_note
from gem_ma.pages.static.transcript import key_of, number
from gem_ma.record.codec import ENDS, load_episode
from gem_ma.record.json_text import load_json
from gem_ma.runs.store import read_ends
from gem_ma.runs.stored import record_for_page
from gem_ma.scores.groups import lost_ids
from gem_ma.scores.judge import Judge
from gem_ma.scores.studies import Cell
from gem_ma.system import files
from gem_ma.system.files import lines, oserror, stream
from gem_ma.training.schedule.settings import discounts, settings_of

# -- the index of a file ---------------------------------------------------------------------------

# Where each episode lies, and what a list shows of it, without decoding the plays: 10,000 episodes
# cost a fraction of a second. The file may be growing: `Index.refresh` reads on.


EpisodeId = tuple[str, int, int]
# as the store writes them; `end` and `error` follow the ledger, and no text holds a bare quote
_HEAD = re.compile(rb'\{"schema":[12],"id":(\["(?:[^"\\]|\\.)*",-?\d+,-?\d+\]),"')
_CAST = re.compile(rb',"cast":(\{.*?\}),"calls":\[')
_LEDGER = re.compile(rb',"ledger":(\[[^\]]*\]),"end":"(\w+)","error":')
_NEAR = 20_000  # bytes from the beginning of a line in which the ledger mostly ends


DAMAGED = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)  # of a line


class Entry(NamedTuple):
    """One episode: its id, how it ended, what each agent was paid, and its bytes in the file."""

    id: EpisodeId
    end: End
    totals: dict[str, float]
    start: int
    size: int


class Index:
    """The episodes of a run folder, in the order of the file. An episode that was played again
    stands once, as its last line has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "episodes.jsonl"
        self.entries: dict[EpisodeId, Entry] = {}
        self.damaged: list[str] = []  # lines that do not hold an episode, in words
        self._read = self._lines = 0  # bytes of whole lines, and how many
        self._changed = 0  # when the file was changed last, in ns

    @property
    def size(self) -> int:
        """Bytes that have been read."""
        return self._read

    def refresh(self) -> None:
        """Reads what was added. A damaged line costs its episode; raises StoreError where the
        file cannot be read."""
        with oserror(self.file), stream(self.file, self.folder, through=True) as opened:
            now = os.fstat(opened.fileno())
            mended = self.damaged and now.st_mtime_ns != self._changed
            # cut, exchanged or mended since: from the beginning
            if now.st_size < self._read or mended:
                self.entries = {}
                self.damaged = []
                self._read = 0
                self._lines = 0
            self._changed = now.st_mtime_ns
            opened.seek(self._read)
            for line in lines(opened, self.file):
                # the last one may be half written at this moment
                if not line.endswith(b"\n"):
                    break
                self._lines += 1
                try:
                    entry = self._entry(line)
                    self.entries[entry.id] = entry
                except (StoreError, *DAMAGED) as error:
                    self.damaged.append(f"{self.file}: line {self._lines}: {error}")
                self._read += len(line)

    def episode(self, id_: EpisodeId) -> Episode:
        """The whole of one. Raises StoreError where there is none, or for damage."""
        if (entry := self.entries.get(id_)) is None:
            raise StoreError("there is no such episode")
        with oserror(self.file), stream(self.file, self.folder) as opened:
            opened.seek(entry.start)
            line = opened.read(entry.size)
        episode = load_episode(line)
        if episode.id != id_:
            raise StoreError(f"{self.file}: was exchanged while it was read; load the page again")
        return episode

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def _entry(self, line: bytes) -> Entry:
        head = _HEAD.match(line)
        cast = _CAST.search(line, 0, _NEAR)
        tail = _LEDGER.search(line, cast.end() if cast else 0, _NEAR)
        if head and cast and tail and tail[2].decode() in ENDS:
            # at once: a call costs more than what it reads here
            parts = load_json(b"[%b,%b,%b]" % (head[1], cast[1], tail[1]))
            (task, seed, repeat) = parts[0]
            paid = _totals(parts[1], parts[2])
            where = self._read, len(line)
            return Entry((task, seed, repeat), ENDS[tail[2].decode()], paid, *where)
        # of an older version, with a reason that holds a bracket, or a long one
        episode = load_episode(line)
        return Entry(episode.id, episode.end, episode.returns(), self._read, len(line))


def _totals(agents: Iterable[str], ledger: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    paid: dict[str, list[float]] = {agent: [] for agent in agents}
    for entry in ledger:
        paid[entry["agent"]].append(float(entry["value"]))
    return {agent: math.fsum(values) for agent, values in paid.items()}


MOST_DAMAGE = 5  # lines of one kind that a page names
# episodes of a run without a summary that are judged for its page, and the bytes of the largest
JUDGED = 2_000
JUDGED_BYTES = 1 << 22


class Run:
    """One run folder that is being looked at."""

    def __init__(self, path: Path, scenario: str | None = None) -> None:
        """`scenario`: the user names the code that judges and forks, in place of the folder's."""
        self.path = path
        self.lock = Lock()
        self.index = Index(path)
        self.stamp = stamp_of(path / "manifest.json")
        self._unjudged: list[str] = []  # what is damaged of how its plays came out
        self._changed: list[str] = []  # what of its code or data is not what it was
        warn = self._unjudged.append
        record = record_for_page(path, self._changed.append, warn, scenario, self._count)
        self.judge: Judge = record.judge
        self.config: Config | None = record.config
        self.worlds = record.worlds
        self.forks: dict[EpisodeId, Fork] = {}
        self.notes: dict[str, Note] = {}
        self._unread: list[str] = []  # what is damaged in these two
        self._stamps: tuple[object, ...] = ()
        self.learned = manifest(path).get("command") == "train"
        self.several = bool(resolved(path).get("scenarios"))
        # its scores for comparisons, with what tells whether its file has changed since
        self.cell: tuple[tuple[object, ...], Cell] | None = None

    def _count(self) -> int:
        """How many episodes there are. Raises StoreError where a line is damaged."""
        self.index.refresh()
        # read in another way, which says what to do about it
        return len(read_ends(self.path) if self.index.damaged else self.index.entries)

    def refresh(self) -> None:
        """Reads what was added since, and notes and forks anew where somebody else, or an editor,
        changed them. Raises StoreError for a damaged record."""
        self.index.refresh()
        now = stamp_of(self.path / notes.FILE), stamp_of(self.path / forks.FILE)
        if now != self._stamps:
            self._stamps = now
            self._unread = []
            self.forks = read_forks(self.path, self._unread.append)
            self.notes = read_notes(self.path, self._unread.append)

    def damage(self) -> list[str]:
        """What of this run cannot be shown, a line each, the first of each kind."""
        lines: list[str] = []
        for kind in (self._changed, self._unjudged, self.index.damaged, self._unread):
            left = len(kind) - MOST_DAMAGE
            lines += [*kind[:MOST_DAMAGE], *([f"and {left} more"] if left > 0 else [])]
        return lines

    def finished(self) -> bool:
        return files.is_file(self.path / "summary.json", self.path)

    def load(self, name: str, path: Path, judge: Judge, was_learned: bool, room: int) -> Loaded:
        """As `gem_ma.pages.static.folder.load`, but all episodes, and none of them with its
        turns."""
        count = len(self.index.entries)
        summary = None if was_learned else stored_summary(path, count, judge)
        size = max((entry.size for entry in self.index), default=0)
        if summary is None and not was_learned and count <= JUDGED and size <= JUDGED_BYTES:
            summary = judge.summarise(self._readable())
        listed = {"name": name, "note": "", "totals": {}, "episodes": self.stubs(0, summary)}
        if summary is None:
            ok = sum(entry.end.scored for entry in self.index)
            summary = {"ok": ok, "failed": count - ok, "excluded": 0}
        return Loaded(summary, listed)

    def _readable(self) -> Iterator[Episode]:
        """All episodes but those that are damaged inside, which their own page tells."""
        for entry in [*self.index]:
            with suppress(StoreError):
                yield self.index.episode(entry.id)

    def stubs(self, first: int, summary: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """What the list shows of the episodes from this place on; lost ones first."""
        rows = ((summary or {}).get("lost") or {"episodes": []})["episodes"]
        lost = {(row["task"], row["seed"], row["repeat"]): row for row in rows}
        ids, named_all = lost_ids(summary or {})
        judged = bool(summary and summary.get("success")) and named_all
        made = [] if first else [self.fork_stub(fork) for fork in self.forks.values()]
        for entry in [*self.index][first:]:
            row = lost.get(entry.id)
            won = True if judged and entry.end.scored else None
            success = False if entry.id in ids else won
            causes = causes_of(row["labels"], summary)[0] if row else {}
            stub = _stub(entry, kinds_of(entry.end, success), causes, row or {})
            made.append(self._noted(stub))
        if first:
            return made
        order = {"lost": 0, "failed": 1, "cut": 2, "excluded": 2}
        return sorted(
            made, key=lambda stub: 4 if "fork" in stub else order.get(stub["kinds"][0], 3)
        )

    def fork(self, wish: Mapping[str, Any], trusted: bool) -> dict[str, Any]:
        """Plays a fork, keeps it, and gives what the list shows of it. Raises ConfigError,
        StoreError, ReplayError."""
        if self.worlds is None:
            raise ConfigError("its scenario may not be asked: gem-ma view RUN --scenario FILE")
        id_ = id_of(str(wish["key"]))
        base = self.forks.get(id_) or base_of(self.index.episode(id_))
        made = forked(base, self.worlds, room(self.forks), wish, trusted)
        write_fork(self.path, made)
        self.forks[made.episode.id] = made
        return self.fork_stub(made)

    def fork_stub(self, fork: Fork) -> dict[str, Any]:
        played = fork.episode
        entry = Entry(played.id, played.end, played.returns(), 0, 0)
        success = self.judge.success(played) if self.judge.success and played.end.scored else None
        number = played.repeat - REPEATS + 1
        name = f"fork {number}, {fork.agent} at step {fork.step}"
        # of a kind of its own, which no count of the run holds
        stub = _stub(entry, ["fork"], {}, {"error": played.error})
        came = kinds_of(played.end, success)
        beside = {"of": key_of(*fork.of), "step": fork.step, "agent": fork.agent, "came": came}
        named = {"id": f"{played.task} · {name}", "task": name, "fork": beside}
        return self._noted({**stub, **named})

    def annotate(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Puts a note on an episode (`key text tags`) and gives it as it is kept. Raises
        ConfigError, StoreError."""
        id_ = id_of(str(wish["key"]))
        if id_ not in self.index.entries and id_ not in self.forks:
            raise StoreError("there is no such episode")
        note = note_of(wish)
        write_note(self.path, key_of(*id_), note)
        self.notes[key_of(*id_)] = note
        return {"text": note.text, "tags": note.tags}

    def _noted(self, stub: dict[str, Any]) -> dict[str, Any]:
        """The stub with its note and tags; a tag is a chip, as a cause is."""
        note = self.notes.get(stub["key"], Note())
        return {**stub, "causes": stub["causes"] + note.chips, "note": note.text}

    def episode(self, id_: EpisodeId) -> dict[str, Any]:
        summary = None if self.learned else summary_file(self.path) or None
        if (fork := self.forks.get(id_)) is not None:
            page = episode_of(self.path, fork.episode, None, self.judge)
            stub = self.fork_stub(fork)
            return {**page, **{key: stub[key] for key in ("id", "task", "fork")}}
        played = self.index.episode(id_)
        page = episode_of(self.path, played, summary, self.judge)
        taught = self.config.train.policies if self.config and self.config.train else ()
        seats = {seat.policy for seat in played.cast.values()}
        return {**page, "learned": [name for name in taught if self.learned and name in seats]}

    def tokens(self, id_: EpisodeId, policy: str) -> dict[str, Any]:
        assert self.config is not None
        found = self.index.episode(id_)
        batch = [*self._beside(found, policy)]
        return learned(found, batch, policy, self.config, pieces_of(self.path, policy))

    def _beside(self, episode: Episode, policy: str) -> Iterator[Episode]:
        """The plays of the same weights. A step's plays lie together in the file."""
        assert self.config is not None and self.config.train is not None
        ids = [*self.index.entries]
        width = 2 * self.config.train.episodes
        place = ids.index(episode.id)
        version = version_of(episode, policy)
        for id_ in ids[max(0, place - width) : place + width]:
            other = episode if id_ == episode.id else self.index.episode(id_)
            if version_of(other, policy) == version:
                yield other


def _stub(
    entry: Entry, kinds: list[str], causes: Mapping[str, Any], row: Mapping[str, Any]
) -> dict[str, Any]:
    """What the list, and the table of lost episodes, tell of one. `row`: what the summary has of
    a lost one."""
    task, seed, repeat = entry.id
    return {
        "key": key_of(*entry.id),
        "id": f"{task} · seed {seed}" + (f" · repeat {repeat}" if repeat else ""),
        "task": task + (f", repeat {repeat}" if repeat else ""),
        "seed": str(seed),
        "end": entry.end.value,
        "kinds": kinds,
        "causes": [f"{name}: {value}" for name, values in causes.items() for value in values],
        "weights": "",
        "error": row.get("error"),
        "measures": [[name, number(value)] for name, value in row.get("measures", {}).items()],
        "agents": [{"name": name, "total": number(paid)} for name, paid in entry.totals.items()],
    }


def id_of(key: str) -> EpisodeId:
    """The episode that a key of the page names. Raises StoreError where it names none."""
    task, _, rest = key.rpartition("~")
    task, _, seed = task.rpartition("~")
    try:
        return task, int(seed), int(rest)
    except ValueError:
        raise StoreError("there is no such episode") from None


def stamp_of(path: Path) -> tuple[object, ...]:
    """What tells a file from the one that stood there before; () where none is."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


# -- tokens ----------------------------------------------------------------------------------------

# What a learned policy sampled in one episode of a training, and what credit and estimator made of
# the turn. Advantages stand in no record: they are computed again from the recorded plays of the
# same weights, by the run's own settings, which is exact for estimators without a memory.


Pieces = Callable[[Turn, Reply], list[str]]
MOST = 4_000  # tokens of an episode that are sent


def learned(
    episode: Episode, batch: Sequence[Episode], policy: str, config: Config, pieces: Pieces
) -> dict[str, Any]:
    """The turns that train `policy`, each with `reward`, `return`, `advantage` and its tokens
    `[text, log-probability]`. `batch`: the plays that it was learned with, this one among them."""
    if config.train is None or policy not in config.train.policies:
        return {"policy": policy, "turns": [], "note": f"{policy} does not learn in this run"}
    settings = settings_of(config.train, policy)
    version = version_of(episode, policy)
    step = 0 if version is None else version
    how = settings.credit
    gamma = discounts(settings.credit.gamma, step)
    try:
        table = credit.turns(
            batch,
            policy,
            rule=how.rule,
            gamma=gamma,
            team=how.team,
            truncated=how.truncated,
        )
        advantages, note = _advantages(table, settings, gamma, how.cut)
    except (GemMaError, ArithmeticError) as error:
        return {"policy": policy, "turns": [], "note": str(error)}
    rows = [row for row in range(len(table.turns)) if table.episodes[row].id == episode.id]
    turns = []
    left = MOST
    for row in rows:
        turn = table.turns[row]
        replies = [reply for reply in turn.replies if reply.policy == policy]
        tokens = [token for reply in replies for token in _tokens(turn, reply, pieces)]
        turns.append(
            {
                "step": int(table.step[row]),
                "agent": str(table.agent[row]),
                "k": int(table.k[row]),
                "version": int(table.version[row]),
                "reward": float(table.reward[row]),
                "return": float(table.ret[row]),
                "advantage": None if advantages is None else float(advantages[row]),
                "tokens": tokens[: max(0, left)],
            }
        )
        left -= len(tokens)
    plays = f"{len(batch)} plays by {policy} v{version}"
    return {"policy": policy, "turns": turns, "note": f"{note} over {plays}", "weights": version}


def version_of(episode: Episode, policy: str) -> int | None:
    """Which weights of a policy played; None where it said nothing."""
    replies = (reply for turn in episode.turns for reply in turn.replies)
    return next((reply.version for reply in replies if reply.policy == policy), None)


def _advantages(table: TurnTable, settings: Any, gamma: Any, cut: str) -> tuple[Any, str]:
    named = settings.estimator
    if estimator(named.name).critic:
        return None, "advantages need the critic of that moment, which no record keeps; returns"
    values, state = estimate(
        named.name, table, named.key, {}, gamma=gamma, cut=cut, **named.options
    )
    begun = ", begun here (its running state is not in the record)" if state else ""
    shaped = "; shaping is left out" if named.shaping is not None else ""
    return values, f"advantages by {named.name}{begun}{shaped}"


def _tokens(turn: Turn, reply: Reply, pieces: Pieces) -> list[list[Any]]:
    logprobs: list[float | None] = [*(reply.logprobs or ())]
    logprobs += [None] * (len(reply.token_ids) - len(logprobs))
    return [
        [text, None if logprob is None else round(float(logprob), 5)]
        for text, logprob in zip(pieces(turn, reply), logprobs, strict=True)
    ]


def pieces_of(run: Path, policy: str) -> Pieces:
    """How ids of a policy read: with the tokenizer that lies beside its weights, of a table the
    legal answers; else `#ID`."""
    file = run / "models" / policy / "tokenizer.json"
    known: Any = None
    if file.is_file() and not file.is_symlink():
        try:
            from tokenizers import Tokenizer

            known = Tokenizer.from_file(str(file))
        # not installed, or no tokenizer of this kind: the numbers stand for themselves
        except Exception:
            known = None

    def pieces(turn: Turn, reply: Reply) -> list[str]:
        ids = list(reply.token_ids)
        if known is not None:
            return [known.decode([id_], skip_special_tokens=False) or f"#{id_}" for id_ in ids]
        # a table samples the number of a legal answer
        if turn.legal and len(ids) == 1 and ids[0] < len(turn.legal):
            return [turn.legal[ids[0]]]
        return [f"#{id_}" for id_ in ids]

    return pieces
