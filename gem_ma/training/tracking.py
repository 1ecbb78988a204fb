"""Watching a run: every row of numbers goes to the run folder, and from there to all trackers,
behind one `log(values, step)`.

`metrics.jsonl` and `timings.jsonl` are the truth and always written. A tracker (TensorBoard, wandb,
trackio, a live table, a user's own) gets the same rows as flat names, such as `policy/main/kl`. No
tracker can change a run: one that raises is reported once and dropped, and a run that is resumed
gives each tracker only the rows that it lacks.

`train.log` is a list of names, or name -> options; a name is one of `TRACKERS`, or
`package.module:factory`, called as `factory(facts, **options)`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import RunFolder, read_timings, result_settings
from gem_ma.system.extras import install
from gem_ma.system.files import append, make_folder, names, read_json, remove, replace_file

# name -> options; each is a library and an extra of the package
TRACKERS: Mapping[str, tuple[str, ...]] = {
    "tensorboard": (),
    "trackio": ("project", "name", "group", "space_id"),
    "wandb": ("project", "name", "group", "entity", "mode", "tags", "notes", "job_type"),
}
PROJECT = "gem_ma"
LOGIN_S = 30  # an unattended run must not wait for somebody to log in

Chosen = Sequence[str] | Mapping[str, Mapping[str, Any]]
Note = Callable[[str], None]


class Tracker(Protocol):
    """Whoever listens to a run. `values` are finite numbers by flat name; `step` never
    decreases, and several calls may share one."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What a tracker knows of its run when it is opened.

    `id` stays the same however often the run is resumed. `settings`: dotted key -> value of all
    that changes results, so no secret and no address. `times`: step -> seconds since the epoch at
    which it ended, of the steps whose rows are sent once more.
    """

    path: Path
    id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.resolve().name


def options_of(chosen: Chosen) -> dict[str, dict[str, Any]]:
    """Name -> options. Raises ConfigError, before anything is played, for a tracker that is
    unknown, not installed or given an unknown option."""
    named = chosen if isinstance(chosen, Mapping) else {name: {} for name in chosen}
    listed: dict[str, dict[str, Any]] = {name: dict(options) for name, options in named.items()}
    for name, options in listed.items():
        # a factory of the user's: its options are its own business
        if ":" in name:
            _factory(name)
            continue
        if name not in TRACKERS:
            raise ConfigError(
                f"train.log: no tracker is called {name!r}; trackers are {', '.join(TRACKERS)}, or"
                " package.module:factory"
            )
        for option in options:
            if option not in TRACKERS[name]:
                known = f"it has {', '.join(TRACKERS[name]) or 'none'}"
                raise ConfigError(f"train.log.{name}.{option}: {name} has no such option; {known}")
        # found, not imported: TensorBoard takes a second
        if sys.modules.get(name) is None and find_spec(name) is None:
            raise ConfigError(
                f"train.log: {name} needs a library that is not installed: {install(name)}"
            )
    return listed


def _factory(name: str) -> Callable[..., Tracker]:
    module, _, attribute = name.partition(":")
    try:
        factory: Callable[..., Tracker] = getattr(import_module(module), attribute)
    # ValueError: an empty module name
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"train.log: tracker {name!r} cannot be found: {error}") from error
    return factory


class Tracking:
    """The one log of a run. `folder` None keeps no record; `watchers` are trackers that are open
    already and get every row, old ones first.

    A context manager: leaving it closes all trackers.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        chosen: Chosen = (),
        *,
        watchers: Mapping[str, Tracker] | None = None,
        settings: Mapping[str, Any] | None = None,
        on_note: Note | None = None,
    ) -> None:
        self._folder = folder
        self._chosen = options_of(chosen)
        # keys and addresses change no result, so they never reach a tracker
        self._settings = result_settings(settings or {})
        self._on_note = on_note
        self._trackers: dict[str, Tracker] = dict(watchers or {})
        self._has: dict[str, Delivered] = {name: Delivered() for name in self._trackers}
        self._id = ""

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *exc: object) -> None:
        # a copy: one that raises is dropped from the mapping
        for name in list(self._trackers):
            self._ask(name, "close")
        self._trackers = {}  # a late `log` finds nobody, instead of a closed library

    def start(self, step: int) -> None:
        """Opens the trackers and sends them the rows of the folder that they lack; the run goes on
        after `step`."""
        if self._folder is None:
            return
        # rows after the checkpoint are of steps that will be done once more
        timings = {n: row for n, row in read_timings(self._folder.path).items() if n <= step}
        if self._chosen:
            ends = ((n, row.get("at")) for n, row in timings.items())
            self._open(self._folder.path, {n: at for n, at in ends if isinstance(at, (int, float))})
        if not self._trackers:
            return
        now = None
        for row in self._folder.metrics():
            row_step = row["step"] if isinstance(row.get("step"), int) else 0
            if now is not None and row_step != now and now in timings:
                # timings come after the rows of their step, as they did when it ran
                self._tell(timings[now], now)
            now = row_step
            self._tell(row, row_step)
        if now is not None and now in timings:
            self._tell(timings[now], now)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """One row of metrics.jsonl, values nested as they come. Raises StoreError where it
        cannot be written."""
        # last, so that no value can claim another step
        row = {**values, "step": step}
        if self._folder is not None:
            self._folder.log(row)
        self._tell(row, step)

    def note(self, line: str) -> None:
        if self._on_note is not None:
            self._on_note(line)

    def time(self, values: Mapping[str, Any], step: int) -> None:
        """One row of timings.jsonl, which is apart because no two runs agree on it."""
        row = {"step": step, **values}
        # not by `RunFolder.log`: no checkpoint counts on these lines, so none is refused for them
        if self._folder is not None:
            path = self._folder.path
            append(path / "timings.jsonl", (json.dumps(row) + "\n").encode(), path)
        self._tell(row, step)

    def _open(self, path: Path, times: Mapping[int, float]) -> None:
        delivered: Any = {}
        with contextlib.suppress(OSError):  # a StoreError is one
            delivered = read_json(path / "tracking.json", path)
        if not isinstance(delivered, dict):
            delivered = {}
        self._id = str(delivered.get("id") or uuid.uuid4().hex[:12])
        for name, options in self._chosen.items():
            try:
                facts = Facts(path, self._id, self._settings, times)
                with _no_stdout():
                    factory = _factory(name) if ":" in name else OPENERS[name]
                    self._trackers[name] = factory(facts, **options)
            except Exception as error:  # of a library: it may raise anything
                self._drop(name, error)
                continue
            # it begins with nothing, as its files are made again
            anew = getattr(self._trackers[name], "anew", False)
            had = None if anew else delivered.get("delivered")
            self._has[name] = Delivered.read(had, name)
        self._keep()

    def _tell(self, row: Mapping[str, Any], step: int) -> None:
        if not self._trackers:
            return
        label = label_of(row)
        values = flat(row)
        waiting = [name for name in self._trackers if values and self._has[name].wants(step, label)]
        for name in waiting:
            if self._ask(name, "log", dict(values), step):
                self._has[name].got(step, label)
        # watchers begin anew with every process, so nothing is noted of them
        if any(name in self._chosen for name in waiting):
            self._keep()

    def _ask(self, name: str, what: str, *args: Any) -> bool:
        """Whether the tracker did what it was asked."""
        try:
            with _no_stdout():
                getattr(self._trackers[name], what)(*args)
        except Exception as error:
            self._drop(name, error)
            return False
        return True

    def _drop(self, name: str, error: Exception) -> None:
        """The run goes on without a tracker whose library raised; no such fault gets past here."""
        self._trackers.pop(name, None)
        fault = " ".join(str(error).split())[:200]
        self.note(
            f"tracker {name} is off: {type(error).__name__}: {fault}; training goes on,"
            " metrics.jsonl has every number (train.log)"
        )

    def _keep(self) -> None:
        """Writes to tracking.json which rows each tracker has; a failure costs no run."""
        if self._folder is None or not self._chosen:
            return
        delivered = {name: self._has[name].state() for name in self._chosen if name in self._has}
        path = self._folder.path
        note = (json.dumps({"id": self._id, "delivered": delivered}) + "\n").encode()
        # not synced: a lost note costs a tracker some rows twice, a sync each row a disk access
        with contextlib.suppress(OSError):
            replace_file(path / "tracking.json", note, path, synced=False)


@contextlib.contextmanager
def _no_stdout() -> Iterator[None]:
    """Trackers chat; stdout is the result of a command and stays clean."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


_APART = ("kind", "step", "policies", "at")


def flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of one row, by the name that a curve has wherever it is drawn
    (docs/watching.md); words, gaps and the step itself are left out.

    >>> flat({"kind": "train", "step": 3, "return": {"a": 1.0}, "policies": {"main": {"kl": 0.5}}})
    {'policy/main/kl': 0.5, 'train/return/a': 1.0}
    >>> flat({"kind": "evaluation", "step": 3, "sampled": {"success": None, "ok": 8}})
    {'evaluation/sampled/ok': 8.0}
    >>> alarm = {"kind": "alarm", "step": 3, "policy": "main", "signal": "deaf"}
    >>> flat({**alarm, "value": 0.01, "limit": 0.05})
    {'alarm/main/deaf': 0.01}
    >>> flat({"step": 3, "at": 1.7e9, "play_s": 0.2})
    {'time/play_s': 0.2}
    """
    # timings have no kind: they are rows of another file
    kind = str(row.get("kind", "time"))
    if kind == "alarm":
        # one curve per signal; its limit is left to whoever draws
        return dict(_numbers(row.get("value"), f"alarm/{row.get('policy')}/{row.get('signal')}"))
    found = dict(_numbers(row.get("policies", {}), "policy"))
    return found | dict(
        _numbers({key: value for key, value in row.items() if key not in _APART}, kind)
    )


def _numbers(value: Any, name: str) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in _numbers(item, f"{name}/{key}")]
    # a tracker may draw NaN as 0, so a gap stays a gap
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return [(name, float(value))]
    return []


@dataclass(slots=True)
class Delivered:
    """Which rows a tracker has, so that a resume sends it only those that it lacks: all before
    `step`, and of `step` those with these labels."""

    step: int = -1
    labels: set[str] = field(default_factory=set)

    def wants(self, step: int, label: str) -> bool:
        # steps never decrease, so one number tells of all rows before it
        return step > self.step or (step == self.step and label not in self.labels)

    def got(self, step: int, label: str) -> None:
        if step > self.step:
            self.step = step
            self.labels = set()
        self.labels.add(label)

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "labels": sorted(self.labels)}

    @classmethod
    def read(cls, delivered: Any, name: str) -> Delivered:
        """Of one tracker in tracking.json; a note that is damaged says nothing, so all is sent."""
        state = delivered.get(name) if isinstance(delivered, dict) else None
        if (
            not isinstance(state, dict)
            or not isinstance(state.get("step"), int)
            or not isinstance(state.get("labels"), list)
        ):
            return cls()
        return cls(state["step"], set(map(str, state["labels"])))


def label_of(row: Mapping[str, Any]) -> str:
    """What sets a row apart from the others of its step."""
    return "/".join(str(row[key]) for key in ("kind", "policy", "signal") if key in row) or "time"


# The libraries, each imported where it is named.


class TensorBoard:
    """Event files in `tensorboard/` of the run folder, one event a row.

    They can be made again from metrics.jsonl (`anew`), so a resume replaces them by one file with
    every step once. It begins with a session start at step 0, so that a TensorBoard that has read
    the old file drops what it read.
    """

    anew = True

    def __init__(self, facts: Facts) -> None:
        # imported late: it takes a second and loads a hundred modules
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        path = facts.path / "tensorboard"
        make_folder(path, path.parent)
        for old in names(path, path.parent):
            # nothing else in the folder is ours
            if old.startswith("events.out.tfevents."):
                remove(path / old, path.parent)
        self._event = event_pb2
        self._summary = summary_pb2
        self._times = facts.times
        self._writer = EventFileWriter(str(path))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=0, session_log=start))

    def log(self, values: Mapping[str, float], step: int) -> None:
        made = self._summary.Summary
        summary = made(value=[made.Value(tag=n, simple_value=v) for n, v in values.items()])
        # rows that are sent once more keep the time at which they were made
        when = self._times.get(step, time.time())
        self._writer.add_event(self._event.Event(wall_time=when, step=step, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class LibraryRun:
    """The open run of a library, `log(values, step=)` and `finish()`, as a tracker."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()  # returns when all is written or sent


def wandb_run(facts: Facts, **options: Any) -> LibraryRun:
    """Weights & Biases: a run of its own, or the one of this folder again. `WANDB_MODE` and the
    option `mode` are honoured; a project is the option, else WANDB_PROJECT, else gem_ma."""
    import wandb

    named = {"project": os.environ.get("WANDB_PROJECT") or PROJECT, "name": facts.name, **options}
    quiet = {"console": "off", "silent": True, "login_timeout": LOGIN_S}
    return LibraryRun(
        wandb.init(
            id=facts.id,
            # the same run again, or a new one where the project lost it
            resume="allow",
            dir=str(facts.path),
            config=dict(facts.settings),
            settings=quiet,
            **named,
        )
    )


def trackio_run(facts: Facts, **options: Any) -> LibraryRun:
    """trackio, in its own data folder (`TRACKIO_DIR`). The name holds the id, since trackio knows a
    run by its name."""
    import trackio

    named = {"project": PROJECT, "name": f"{facts.name}-{facts.id}", **options}
    run = trackio.init(
        config=dict(facts.settings),
        # the same run again, or a new one where its database is gone
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
        **named,
    )
    return LibraryRun(run)


OPENERS: Mapping[str, Callable[..., Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": trackio_run,
    "wandb": wandb_run,
}
