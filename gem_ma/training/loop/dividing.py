"""What lies in parts in several processes, on its way into a checkpoint: all of them write into one
folder, and the first makes the checkpoint of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gem_ma.training.learner.capabilities import Shards
from gem_ma.training.learner.shards import write_shards
from gem_ma.training.loop.checkpoint import begin_checkpoint
from gem_ma.training.loop.roles import Learner
from gem_ma.training.processes.teams import Team


def begun_parts(
    learners: Mapping[str, Learner], root: Path | None, step: int, team: Team
) -> Path | None:
    """The folder into which all processes have written their parts; None where nothing lies in
    parts, or no record is kept. All processes call it. `root`: the run folder, which all see."""
    divided = {
        name: learner
        for name, learner in learners.items()
        if isinstance(learner, Shards) and learner.group is not None
    }
    if root is None or not divided:
        return None
    tensors = {
        f"{name}/{key}": tensor
        for name, learner in divided.items()
        for key, tensor in learner.tensors().items()
    }
    made = begin_checkpoint(root / "checkpoints", step) if team.first else None
    # JSON: the path travels as text, and nobody writes before the folder is there
    begun = Path(team.agree(str(made)))
    # sorted: a run that went on has its tensors in another order, and writes the same bytes
    write_shards(begun, dict(sorted(tensors.items())), next(iter(divided.values())).group)
    return begun
