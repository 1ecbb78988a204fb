"""TensorBoard: event files in `tensorboard/` of the run folder, one event per row.

They can be made again from metrics.jsonl: resuming a run replaces them by one file that holds every
step once. It begins with a session start at step 0, so that a TensorBoard that has read the old
file drops what it read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from gem_ma.system.files import make_folder, names, remove
from gem_ma.training.tracking import Facts


class TensorBoard:
    """A tracker. `anew`: it wants all rows from the first."""

    anew = True

    def __init__(self, path: Path, times: Mapping[int, float]) -> None:
        # imported late: it takes a second and loads a hundred modules
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        make_folder(path, path.parent)
        for old in names(path, path.parent):
            # nothing else in the folder is ours
            if old.startswith("events.out.tfevents."):
                remove(path / old, path.parent)
        self._event = event_pb2
        self._summary = summary_pb2
        self._times = times
        self._writer = EventFileWriter(str(path))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=0, session_log=start))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One event; on the disk when this returns."""
        scalars = [
            self._summary.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
        # rows that are sent once more keep the time at which they were made
        when = self._times.get(step, time.time())
        self._writer.add_event(
            self._event.Event(
                wall_time=when, step=step, summary=self._summary.Summary(value=scalars)
            )
        )
        self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()


def open_tracker(facts: Facts) -> TensorBoard:
    """A new event file in the run folder; older ones are removed."""
    return TensorBoard(facts.path / "tensorboard", facts.times)
