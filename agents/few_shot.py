"""An assistant that is shown how others did it: episodes of a file or of a run folder, as
conversations in the briefing.

Only episodes of the training split that paid the agent are taken, in the order of the file, one
per task: what is played must not stand in the briefing. Then it goes on as `tool_calling`, `act`
or `react`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gem_ma.agents.text_protocol import Act, React
from gem_ma.agents.thread import dialogue
from gem_ma.agents.tool_calling import ToolCalling

from gem_ma import Action, Asked, Episode, read_episodes
from gem_ma.kernel.errors import ConfigError, DataError, StoreError
from gem_ma.system.options import flat

# By protocol; the demonstrations come in front of whatever the protocol itself says.
PROTOCOLS: Mapping[str, Any] = {"tools": ToolCalling, "act": Act, "react": React}
RESULT_SHOWN = 1500  # characters of one tool result in a demonstration


@dataclass(frozen=True, slots=True)
class Selection:
    """Which demonstrations are shown: `shots` of them, of this split, each with a return of the
    agent `above` this one."""

    shots: int = 2
    split: str = "train"
    above: float = 0.0


class FewShot:
    """Is shown demonstrations, then plays as `tool_calling`, `act` or `react`. Options: see
    `__init__`."""

    needs_policy = True

    @flat
    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        *,
        demonstrations: str,
        selection: Selection = Selection(),
        protocol: Literal["tools", "act", "react"] = "tools",
        instructions: str = "",
    ) -> None:
        """`demonstrations`: a run folder or a file of episodes, one JSON per line, from the
        working folder; a config names the fields of `selection` (`shots: 3`). Raises ConfigError
        where there are too few such episodes, DataError for a file that is missing or damaged."""
        shots = selection.shots
        # True is not a count.
        if isinstance(shots, bool) or not isinstance(shots, int) or shots < 0:
            raise ConfigError(
                f"agent {agent!r}: shots is a whole number of at least 0; got {shots!r}"
            )
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"agent {agent!r}: protocol is one of {', '.join(PROTOCOLS)}; got {protocol!r}"
            )
        path = Path(demonstrations).expanduser()
        examples = _shots(agent, path, selection) if shots else ""
        whole = "\n\n".join(part for part in (instructions, examples) if part)
        # Without the task: none of the protocols reads it.
        self._inner = PROTOCOLS[protocol](agent, sample, rng, instructions=whole)

    async def act(self, asked: Asked) -> Action:
        acted: Action = await self._inner.act(asked)
        return acted


def _shots(agent: str, path: Path, selection: Selection) -> str:
    file = path / "episodes.jsonl" if path.is_dir() else path
    # The time of change is a part of the key: a file that grows is read anew.
    changed = file.stat().st_mtime_ns if file.is_file() else 0
    return _written(agent, path, changed, selection)


@lru_cache(maxsize=32)
def _written(agent: str, path: Path, changed: int, selection: Selection) -> str:
    """The demonstrations as text; read once per file, however many episodes are played."""
    count = selection.shots
    split = selection.split
    above = selection.above
    chosen: dict[str, Episode] = {}
    splits: set[str] = set()
    for episode in _episodes(agent, path):
        here = episode.task.rpartition("/")[0]
        splits.add(here)
        if (
            len(chosen) < count
            # From the same split alone, so that no task that is played stands in the briefing.
            and here == split
            and agent in episode.cast
            and episode.end.scored
            and episode.returns()[agent] > above
        ):
            # One per task: the first that was good enough.
            chosen.setdefault(episode.task, episode)
    if len(chosen) < count:
        # The likeliest cause is the split, so the message names those that the file has.
        hint = (
            f"it holds episodes of {', '.join(sorted(splits)) or 'no split'}; play demonstrations"
            " on that split, or name another one (split: ...)"
        )
        wanted = (
            f"{count} demonstrations of split {split!r} that paid {agent!r} more than {above:g}"
        )
        raise ConfigError(f"agent {agent!r}: {path}: {len(chosen)} of {wanted}; {hint}")
    parts = [
        f"Example {number}:\n{demonstration(episode, agent)}"
        for number, episode in enumerate(chosen.values(), 1)
    ]
    return (
        # Else models take the examples' customers for the present one.
        "How others did this, in other conversations. Nothing in them holds for the present"
        " one.\n\n" + "\n\n".join(parts)
    )


def _episodes(agent: str, path: Path) -> Iterator[Episode]:
    try:
        yield from read_episodes(path)
    except StoreError as error:  # of the run, not of one episode
        raise DataError(f"agent {agent!r}: demonstrations: {error}") from error


def demonstration(episode: Episode, agent: str) -> str:
    """What an agent saw and did, as a conversation; its briefing is left out, a long tool result
    is cut."""
    return dialogue(episode.transcript(agent), agent, results=RESULT_SHOWN)
