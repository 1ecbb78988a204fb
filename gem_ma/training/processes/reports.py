"""What a process says of the plays that it was given: their episodes, or the error that ended them.
JSON values, nothing is pickled."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Mapping
from typing import Any

from gem_ma.kernel import errors
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import EngineError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.images import shown_in, with_bytes

Report = dict[str, Any]


async def reported(playing: Awaitable[list[Episode]]) -> Report:
    """The report of these plays. Whatever is raised stands in it."""
    try:
        episodes = await playing
        # a line has their digests alone, and others learn from the episodes
        images = {image.digest: image.data for one in episodes for image in shown_in(one)}
        return {
            "kind": "",
            "fault": "",
            "lines": [dump_episode(episode) for episode in episodes],
            "images": {digest: b64encode(data).decode() for digest, data in images.items()},
        }
    except Exception as error:
        return {"kind": type(error).__name__, "fault": str(error), "lines": []}


def episodes_of(report: Mapping[str, Any]) -> list[Episode]:
    """The episodes of a report."""
    images = report.get("images", {})
    return [
        with_bytes(load_episode(line), lambda digest: b64decode(images[digest]))
        for line in report["lines"]
    ]


def error_of(report: Mapping[str, Any]) -> Exception:
    """The error of a report (`kind` is not empty), as an exception of this process."""
    kind = str(report["kind"])
    fault = str(report["fault"])
    # by name, out of our own module alone: what another process sent chooses no other class
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.GemMaError):
        return known(fault)
    return EngineError(f"{kind}: {fault}")
