"""`interrupted.jsonl` of a run folder: replies that plays had got when the run stopped, by the seed of their request.

They are no part of the record; a resumed run takes them instead of sampling anew. A line that cannot be read costs its reply, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gem_ma.codec import REPLY, dump_json, load_json
from gem_ma.engines.replay import Recorded
from gem_ma.files import append, is_file, read

NAME = "interrupted.jsonl"


def keep_replies(path: Path, replies: Mapping[int, Recorded]) -> None:
    """Appends replies. Raises StoreError where the disk refuses."""
    if not replies:
        return
    lines = [dump_json({"seed": seed, "legal": one.legal, "reply": REPLY.write(one.reply)}) + "\n" for seed, one in replies.items()]
    append(path / NAME, ("\n" + "".join(lines)).encode(), path)  # a torn line before stays alone


def read_replies(path: Path) -> dict[int, Recorded]:
    """Request seed -> reply; {} where none were kept."""
    file = path / NAME
    if not is_file(file, path):
        return {}
    found: dict[int, Recorded] = {}
    for line in read(file, path).split(b"\n"):
        try:
            one = load_json(line)
            found[int(one["seed"])] = Recorded(REPLY.read(one["reply"]), None if one["legal"] is None else tuple(map(str, one["legal"])))
        except Exception:  # empty, torn, or whatever else makes a reader raise
            continue
    return found
