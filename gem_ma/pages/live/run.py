"""One run folder that is being looked at: its episodes, what the viewer keeps beside them, and what
the scripts of its page ask for. It knows no other run, and nothing of HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

from gem_ma import credit
from gem_ma.config.settings import Config
from gem_ma.credit.estimators import estimate, estimator
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, GemMaError, StoreError
from gem_ma.kernel.types import Reply, Turn
from gem_ma.pages.live import forks
from gem_ma.pages.live.calls import calls, tokenizer
from gem_ma.pages.live.forks import REPEATS, Fork, base_of, forked, read_forks, room, write_fork
from gem_ma.pages.live.index import Entry, Index
from gem_ma.pages.static import notes
from gem_ma.pages.static.explained import Found, read_explained
from gem_ma.pages.static.folder import (
    Loaded,
    TrainingSteps,
    causes_of,
    episode_of,
    kinds_of,
    manifest,
    resolved,
    stored_summary,
    summary_file,
    training_steps,
)
from gem_ma.pages.static.notes import Note, note_of, read_notes, write_note
from gem_ma.pages.static.transcript import key_of, number
from gem_ma.runs.store import read_ends, read_rows
from gem_ma.runs.stored import record_for_page
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.groups import Id, lost_ids, lost_rows
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import PlayRow, last_attempts
from gem_ma.scores.studies import Cell
from gem_ma.system import files
from gem_ma.system.files import stamp_of
from gem_ma.system.parts import parts_of
from gem_ma.training.schedule.settings import discounts, settings_of

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
        self.is_named = scenario is not None  # what the run says of its plays is another's word
        self.config: Config | None = record.config
        self.worlds = record.worlds
        self.list = PlayList(self, None)
        self.forks: dict[Id, Fork] = {}
        self.notes: dict[str, Note] = {}
        self.explained: dict[Id, list[Found]] = {}
        self._unread: list[str] = []  # what is damaged in these three
        self._stamps: tuple[object, ...] = ()
        self.learned = manifest(path).get("command") == "train"
        self.several = bool(resolved(path).get("scenarios"))
        # its scores for comparisons, with what tells whether its file has changed since
        self.cell: tuple[tuple[object, ...], Cell] | None = None
        # the columns of its plays in a table, with the state of the files that they are of
        self.table: tuple[object, Any] | None = None

    def _count(self) -> int:
        """How many episodes there are. Raises StoreError where a line is damaged."""
        self.index.refresh()
        # read in another way, which says what to do about it
        return len(read_ends(self.path) if self.index.damaged else self.index.entries)

    def refresh(self) -> None:
        """Reads what was added since, and notes, forks and what was explained anew where somebody
        else, or an editor, changed them. Raises StoreError for a damaged record."""
        self.index.refresh()
        kept = (notes.FILE, forks.FILE, notes.EXPLAINED)
        now = tuple(stamp_of(self.path / name) for name in kept)
        if now != self._stamps:
            self._stamps = now
            self._unread = []
            self.forks = read_forks(self.path, self._unread.append)
            self.notes = read_notes(self.path, self._unread.append)
            self.explained = read_explained(self.path, self._unread.append)

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
        summary = None if was_learned else self._summary(judge, count)
        if summary is None and not was_learned and self._is_small(count):
            summary = judge.summarise(self._readable())
        self.list = PlayList(self, summary)
        if was_learned:
            self.list.steps = self.steps(count)
            self.list.places = {id_: at for at, id_ in enumerate(self.index.entries)}
        listed = {"name": name, "note": "", "totals": {}, **self.list.beginning()}
        listed["steps"] = len(self.list.steps.ends)
        if summary is None:
            ok = sum(entry.end.scored for entry in self.index)
            summary = {"ok": ok, "failed": count - ok, "excluded": 0}
        return Loaded(summary, listed)

    def steps(self, plays: int) -> TrainingSteps:
        """The steps of a training with so many plays; none of another run."""
        if not self.learned:
            return TrainingSteps([], [], [])
        return training_steps(self.path, plays, has_ended=self.finished())

    def state(self) -> object:
        """What tells the rows of its plays, and their steps, from those of another moment. Raises
        StoreError where the record is gone."""
        file = self.path / "episodes.jsonl"
        with files.oserror(file):
            parts = [part.state for part in parts_of(file, self.path)]
        beside = ("index.jsonl", "metrics.jsonl", "summary.json")
        return parts, [stamp_of(self.path / name) for name in beside]

    def _summary(self, judge: Judge, count: int) -> dict[str, Any] | None:
        """What the plays come to, where that is known without reading them."""
        if self.is_named:
            return None
        stored = stored_summary(self.path, count, judge)
        if stored is not None or self.index.damaged:
            return stored
        rows = read_rows(self.path, PlayRow)
        suffices = judge.rows().suffices
        return judge.summary(rows) if all(map(suffices, last_attempts(rows))) else None

    def _is_small(self, count: int) -> bool:
        size = max((entry.size for entry in self.index), default=0)
        return count <= JUDGED and size <= JUDGED_BYTES

    def _readable(self) -> Iterator[Episode]:
        """All episodes but those that are damaged inside, which their own page tells."""
        for entry in [*self.index]:
            with suppress(StoreError):
                yield self.index.episode(entry.id)

    def since(self, first: int) -> list[dict[str, Any]]:
        """What the list shows of the episodes from this place of the file on."""
        added = PlayList(self, None)
        return [added.stub(entry) for entry in islice(self.index, first, None)]

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
        entry = Entry(played.id, played.end, None, played.returns(), 0, 0)
        success = self.judge.success(played) if self.judge.success and played.end.scored else None
        number = played.repeat - REPEATS + 1
        name = f"fork {number}, {fork.agent} at step {fork.step}"
        # of a kind of its own, which no count of the run holds
        stub = _stub(entry, ["fork"], {}, {"error": played.error})
        came = kinds_of(played.end, success)
        beside = {"of": key_of(*fork.of), "step": fork.step, "agent": fork.agent, "came": came}
        named = {"id": f"{played.id[0]} · {name}", "task": name, "fork": beside}
        return self.noted({**stub, **named})

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

    def noted(self, stub: dict[str, Any]) -> dict[str, Any]:
        """The stub with its note and tags; a tag is a chip, as a cause is."""
        note = self.notes.get(stub["key"], Note())
        return {**stub, "causes": stub["causes"] + note.chips, "note": note.text}

    def episode(self, id_: Id) -> dict[str, Any]:
        told = not (self.learned or self.is_named)
        summary = summary_file(self.path) or None if told else None
        if (fork := self.forks.get(id_)) is not None:
            page = episode_of(self.path, fork.episode, None, self.judge)
            stub = self.fork_stub(fork)
            return {**page, **{key: stub[key] for key in ("id", "task", "fork")}}
        played = self.index.episode(id_)
        why = self.explained.get(id_, ())
        page = episode_of(self.path, played, summary, self.judge, why)
        taught = self.config.train.policies if self.config and self.config.train else ()
        seats = {seat.policy for seat in played.cast.values()}
        return {**page, "learned": [name for name in taught if self.learned and name in seats]}

    def calls(self, id_: Id, step: int, agent: str, trusted: bool) -> dict[str, Any]:
        """The model calls of a turn. Raises StoreError where there is none."""
        base = self.forks.get(id_) or base_of(self.index.episode(id_))
        return calls(
            self.path,
            base.episode,
            step,
            agent,
            worlds=self.worlds,
            first=base.first,
            trusted=trusted,
        )

    def tokens(self, id_: Id, policy: str) -> dict[str, Any]:
        assert self.config is not None
        found = self.index.episode(id_)
        batch = [*self._beside(found, policy)]
        pieces = pieces_of(self.path, policy)
        return learned(found, batch, policy, self.config, pieces, self.worlds)

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


PAGE = 2_000  # episodes that a page begins with; of the others the server finds those wanted
FOUND = 300  # that one answer holds
_RANKS = {"lost": 0, "failed": 1, "cut": 2, "excluded": 2}


class PlayList:
    """The list of a run's episodes, lost ones first, then failed and cut ones."""

    def __init__(self, run: Run, summary: Mapping[str, Any] | None) -> None:
        self.run = run
        self.summary = summary
        self._lost = lost_rows(summary)
        self._ids, named_all = lost_ids(summary or {})
        self._judged = bool(summary and summary.get("success")) and named_all
        self._kinds: dict[tuple[int, bool | None], list[str]] = {}
        self._order: tuple[int, list[Entry]] = (-1, [])
        self._rest: dict[tuple[object, ...], str] = {}
        self.steps = TrainingSteps([], [], [])
        self.places: dict[Id, int] = {}

    def kinds(self, entry: Entry) -> list[str]:
        """The chips that find an episode, less its causes."""
        success = None if self.run.is_named else entry.success
        if success is None:
            won = True if self._judged and entry.end.scored else None
            success = False if entry.id in self._ids else won
        key = id(entry.end), success
        if key not in self._kinds:  # a few for all of a million
            self._kinds[key] = kinds_of(entry.end, success)
        return self._kinds[key]

    def causes(self, entry: Entry) -> list[str]:
        """Why it was lost, and the tags of its note."""
        row = self._lost.get(entry.id)
        causes = causes_of(row["labels"], self.summary)[0] if row else {}
        said = [f"{name}: {value}" for name, values in causes.items() for value in values]
        notes = self.run.notes
        return (
            said + notes[key_of(*entry.id)].chips if notes and key_of(*entry.id) in notes else said
        )

    def stub(self, entry: Entry) -> dict[str, Any]:
        """What the list tells of an episode."""
        row = self._lost.get(entry.id)
        causes = causes_of(row["labels"], self.summary)[0] if row else {}
        stub = _stub(entry, self.kinds(entry), causes, row or {})
        return self.run.noted(stub | self._step(entry))

    def _step(self, entry: Entry) -> dict[str, str]:
        """The step of a training that it belongs to, and the weights that played it."""
        return self.steps.of(self.places[entry.id]) if entry.id in self.places else {}

    def ordered(self) -> list[Entry]:
        """All episodes in the order of the list."""
        if self._order[0] != self.run.index.size:
            ranked: list[list[Entry]] = [[] for _ in range(4)]
            for entry in self.run.index:
                ranked[_RANKS.get(self.kinds(entry)[0], 3)].append(entry)
            self._order = self.run.index.size, [entry for some in ranked for entry in some]
        return self._order[1]

    def beginning(self) -> dict[str, Any]:
        """The first of them, with all forks; of a long list also `count`, and `counts`: chip ->
        episodes."""
        entries = self.ordered()
        forks = [self.run.fork_stub(fork) for fork in self.run.forks.values()]
        shown = [self.stub(entry) for entry in entries[:PAGE]]
        if len(entries) <= PAGE:
            return {"episodes": shown + forks}
        alike = Counter(id(self.kinds(entry)) for entry in entries)
        counts = Counter[str]()
        for kinds in self._kinds.values():
            counts.update(dict.fromkeys(kinds, alike[id(kinds)]))
        for id_ in {*self._lost, *(id_of(key) for key in self.run.notes)}:
            if id_ in self.run.index.entries:
                counts.update(dict.fromkeys(self.causes(self.run.index.entries[id_]), 1))
        counts[""] = len(entries)
        return {"episodes": shown + forks, "count": len(entries), "counts": counts}

    def found(self, chip: str, words: Sequence[str], first: int) -> dict[str, Any]:
        """The episodes that carry a chip and hold all words, from the place `first` among them on,
        and `matching`: how many there are."""
        entries = self.ordered() if not words or chip else [*self.run.index]
        if chip:
            entries = [
                one for one in entries if chip in self.kinds(one) or chip in self.causes(one)
            ]
        if words:
            entries = [one for one in entries if self._holds(one, words)]
        some = entries[first : first + FOUND]
        return {"episodes": [self.stub(entry) for entry in some], "matching": len(entries)}

    def _holds(self, entry: Entry, words: Sequence[str]) -> bool:
        """Whether what the list shows of an episode holds each of these words."""
        task, seed, repeat = entry.id
        head = f"{task} · seed {seed} repeat {repeat} {task}~{seed}~{repeat}".lower()
        key = (id(self.kinds(entry)), id(entry.end), *entry.totals.items())
        if key not in self._rest:
            paid = (f"{agent} {number(total)}" for agent, total in entry.totals.items())
            self._rest[key] = " ".join((*self.kinds(entry), entry.end.value, *paid)).lower()
        text = f"{head} {self._rest[key]}"
        if entry.id in self._lost or self.run.notes:
            error = (self._lost.get(entry.id) or {}).get("error") or ""
            text = " ".join((text, *self.causes(entry), error)).lower()
        # `step=4` is a word of its own, or it would find step 40
        named = {f"{name}={value}".lower() for name, value in self._step(entry).items()}
        return all(
            word in named if word.startswith(("step=", "weights=")) else word in text
            for word in words
        )


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


def id_of(key: str) -> Id:
    """The episode that a key of the page names. Raises StoreError where it names none."""
    task, _, rest = key.rpartition("~")
    task, _, seed = task.rpartition("~")
    try:
        return task, int(seed), int(rest)
    except ValueError:
        raise StoreError("there is no such episode") from None


# -- tokens ----------------------------------------------------------------------------------------

# What a learned policy sampled in one episode of a training, and what credit and estimator made of
# the turn. Advantages stand in no record: they are computed again from the recorded plays of the
# same weights, by the run's own settings, which is exact for estimators without a memory.


Pieces = Callable[[Turn, Reply], list[str]]
MOST = 4_000  # tokens of an episode that are sent


def learned(
    episode: Episode,
    batch: Sequence[Episode],
    policy: str,
    config: Config,
    pieces: Pieces,
    worlds: Worlds | None = None,
) -> dict[str, Any]:
    """The turns that train `policy`, each with `reward`, `return`, `advantage` and its tokens
    `[text, log-probability]`. `batch`: the plays that it was learned with, this one among them.
    `worlds`: None where the scenario, whose teams may share, is not there."""
    if config.train is None or policy not in config.train.policies:
        return {"policy": policy, "turns": [], "note": f"{policy} does not learn in this run"}
    settings = settings_of(config.train, policy)
    version = version_of(episode, policy)
    step = 0 if version is None else version
    how = settings.credit
    team = how.team
    if team == "teams" and worlds is None:
        note = "who shares a team is told by the scenario, which is not there"
        return {"policy": policy, "turns": [], "note": note}
    gamma = discounts(settings.credit.gamma, step)
    try:
        table = credit.turns(
            batch,
            policy,
            rule=how.rule,
            gamma=gamma,
            team=worlds.team if team == "teams" and worlds is not None else how.team,
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
    known = tokenizer(run, policy)

    def pieces(turn: Turn, reply: Reply) -> list[str]:
        ids = list(reply.token_ids)
        if known is not None:
            return [known.decode([id_], skip_special_tokens=False) or f"#{id_}" for id_ in ids]
        # a table samples the number of a legal answer
        if turn.legal and len(ids) == 1 and ids[0] < len(turn.legal):
            return [turn.legal[ids[0]]]
        return [f"#{id_}" for id_ in ids]

    return pieces
