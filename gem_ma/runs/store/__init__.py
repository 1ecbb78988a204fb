"""The run folder: what was asked for, every episode that ended, the curves of training. It knows
files, ids and lines; not how to play.

    runs/<stem>-<digest>/
      config.yaml        as written
      resolved.yaml      complete, playable again
      manifest.json      versions, seeds, commit, digests of data and models
      episodes.jsonl     the truth: one line per ended episode, FAILED ones too; of a large run
                         its end, behind episodes-0001.jsonl ... (`gem_ma.system.parts`)
      metrics.jsonl      scalars by step
      interrupted.jsonl  replies of an endpoint to plays that were stopped in the middle, so that
                         a resumed run buys none twice
      index.jsonl        a row for each line of it: where it ends, how its play came out, what it
                         adds to a summary; made anew where it does not fit
      places.bin         of a large run the same of each play in columns, for who wants a few
      summary.json       the score, once the run has ended
      media/<sha256>     images
      checkpoints/       what a training goes on from
      .lock              held by the one writer

Rules of durability:
1. `episodes.jsonl` is only appended to, by one `write` of whole lines on an O_APPEND descriptor; it
   is synced at least every 32 episodes or, at the next append, once a second has passed, and at
   close; a folder is synced after a file is created or renamed in it.
2. A torn tail (last line without newline, or unreadable) moves to `episodes.torn` and its episode
   is played again. An unreadable line in the middle is damage: nothing is touched, the line is
   named.
3. Done = the ids in the file. A FAILED episode is done; a later line of the same id replaces it.
   Settings that change results may not change between the writers of one folder.
4. One writer: `flock` on `.lock`, freed by the kernel when its process dies. A forked child closes
   its copy.
5. A write that fails is cut back to the last whole line; where that fails too, the next opening
   finds a torn tail.
6. Nothing is deleted: `fresh` renames the old folder to `<name>.old-<n>`, a rewind moves lines
   to `*.torn`.
"""

from gem_ma.runs.store.disk import hold_folder, write_file
from gem_ma.runs.store.folder import RunFolder
from gem_ma.runs.store.lines import (
    older_summary,
    read_ends,
    read_episodes,
    read_manifest,
    read_media,
    read_metrics,
    read_resolved,
    read_rows,
    read_settings,
    read_summary,
    read_timings,
    standing_summary,
)
from gem_ma.runs.store.listing import is_study, list_runs, list_studies, since_compared
from gem_ma.runs.store.manifest import note_in_manifest, read_tags
from gem_ma.runs.store.names import result_digest, result_settings, run_path
from gem_ma.runs.store.verdicts import read_verdicts, rows_by

__all__ = [
    "RunFolder",
    "hold_folder",
    "is_study",
    "list_runs",
    "list_studies",
    "note_in_manifest",
    "older_summary",
    "read_ends",
    "read_episodes",
    "read_manifest",
    "read_media",
    "read_metrics",
    "read_resolved",
    "read_rows",
    "read_settings",
    "read_summary",
    "read_tags",
    "read_timings",
    "read_verdicts",
    "result_digest",
    "result_settings",
    "rows_by",
    "run_path",
    "since_compared",
    "standing_summary",
    "write_file",
]
