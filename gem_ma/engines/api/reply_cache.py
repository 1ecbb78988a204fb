"""Replies in a folder, each under the digest of what it answers: the same request with the same
seed is bought once.

One JSON file per reply, written aside and renamed, so that any number of processes may share the
folder. An unreadable file is a miss.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import DataError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.types import Reply
from gem_ma.record.codec import REPLY
from gem_ma.system.files import make_folder, read, replace_file


class ReplyCache:
    """`folder` is made. Raises DataError where it cannot be."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{folder}: no reply cache can be kept there ({error.strerror or error}); name"
                " another folder (cache: FOLDER)"
            ) from error

    @staticmethod
    def key(body: Mapping[str, Any], seed: int) -> str:
        """The digest of a request body and the seed of its request."""
        # sorted: the same request, however its options were written in the config
        written = json.dumps([body, seed], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()

    def get(self, key: str) -> Reply | None:
        """The kept reply, without the attempts that it took, or None."""
        try:
            entry: Reply = REPLY.read(load_json(read(self._file(key), self.folder)))
        except Exception:
            # not there, or whatever a damaged file makes its readers raise: it is bought again
            return None
        return replace(entry, attempts=())

    def put(self, key: str, reply: Reply) -> None:
        """Keeps a reply. A folder that cannot be written costs the cache, not the reply."""
        file = self._file(key)
        try:
            make_folder(file.parent, self.folder)
            text = dump_json(REPLY.write(reply)) + "\n"
            # a name of its own: several processes may write the same reply at the same time. Not
            # synced: what a power cut takes is bought again
            replace_file(
                file, text.encode(), self.folder, aside=f".{uuid.uuid4().hex}.part", synced=False
            )
        except OSError:
            return

    def _file(self, key: str) -> Path:
        # 256 folders: some file systems are slow with a hundred thousand files in one
        return self.folder / key[:2] / f"{key[2:]}.json"
