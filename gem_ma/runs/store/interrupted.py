"""`interrupted.jsonl` of a run folder: replies that plays have got and that no episode on record
holds yet, by the seed of their request.

They are not part of the record; a resumed run takes them instead of sampling anew. A reply is
written as it comes, so that a process that is killed loses none; a line `ended` says that the
replies of a play before it are of no use any more. A line that cannot be read costs its reply,
nothing else. Nothing is forced to the disk: this outlives the process, not a power cut.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from gem_ma.engines.small.replay import Recorded
from gem_ma.kernel.types import Request
from gem_ma.record.codec import REPLY
from gem_ma.record.json_text import dump_json, load_json
from gem_ma.system.files import MOST_LINE, append, is_file, read, remove

NAME = "interrupted.jsonl"


def keep_reply(path: Path, request: Request, got: Recorded) -> None:
    """Appends a reply. Where the disk refuses, it is not kept, and its play goes on with it."""
    _append(
        path,
        {
            "seed": request.seed,
            "conversation": request.conversation,
            "legal": got.legal,
            "reply": REPLY.write(got.reply),
        },
    )


def forget_replies(path: Path, episode: tuple[str, int, int]) -> None:
    """After this play has ended: what it got is on record, or is to be sampled anew."""
    if is_file(path / NAME, path):
        _append(path, {"ended": "/".join(map(str, episode))})


def remove_replies(path: Path) -> None:
    """Once every play has ended. Raises StoreError where the disk refuses."""
    remove(path / NAME, path)


def read_replies(path: Path) -> dict[int, Recorded]:
    """Request seed -> reply, of plays that have not ended; {} where none were kept."""
    file = path / NAME
    if not is_file(file, path):
        return {}
    lines = read(file, path, MOST_LINE).split(b"\n")
    replies: dict[int, Recorded] = {}
    ended: set[str] = set()
    # backwards: an `ended` line is met before the replies that it makes void
    for line in reversed(lines):
        with suppress(Exception):  # empty, torn, or whatever else makes a reader raise
            entry: dict[str, Any] = load_json(line)
            if "ended" in entry:
                ended.add(str(entry["ended"]))
            elif ended.isdisjoint(
                accumulate(str(entry.get("conversation", "")).split("/"), "{}/{}".format)
            ):
                # part of the request: the same words may be an answer to another choice
                legal = None if entry["legal"] is None else tuple(map(str, entry["legal"]))
                # the latest reply of a seed is the one that its play went on with
                replies.setdefault(int(entry["seed"]), Recorded(REPLY.read(entry["reply"]), legal))
    return replies


def _append(path: Path, line: dict[str, Any]) -> None:
    with suppress(OSError):
        # a torn line before stays alone
        append(path / NAME, f"\n{dump_json(line)}\n".encode(), path)
