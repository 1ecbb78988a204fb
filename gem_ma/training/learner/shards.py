"""Weights and moments that lie in parts in several processes, as files of a checkpoint: each
process writes its parts, any number of processes reads them.

torch's distributed checkpoints, in safetensors, so nothing is unpickled. Knows tensors by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import DataError
from gem_ma.training.processes.teams import lost

SHARD = "shard-"  # what the names of these files begin with


def write_shards(folder: Path, tensors: Mapping[str, Any], group: Any) -> None:
    """Writes the parts of this process into a folder that all processes see; all call it together,
    and it returns when all have written."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with lost():
        dcp.save(dict(tensors), storage_writer=writer, process_group=group)


def shapes_of(paths: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in these files. Raises DataError."""
    with _damage():
        found = _reader(paths).read_metadata().state_dict_metadata
        return {name: tuple(held.size) for name, held in found.items()}


def read_shards(paths: Sequence[Path], wanted: Mapping[str, Any], group: Any = None) -> None:
    """Fills these tensors, whole ones or parts of them. `group` None: this process alone reads.
    Raises DataError where one is missing, damaged or of another shape."""
    import torch.distributed.checkpoint as dcp

    with _damage():
        dcp.load(
            dict(wanted),
            storage_reader=_reader(paths),
            process_group=group,
            no_dist=group is None,
        )


def _reader(paths: Sequence[Path]) -> Any:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    reader = HuggingFaceStorageReader(str(paths[0].parent))
    # other files of a checkpoint are safetensors too
    reader.fs.ls = lambda _: [str(path) for path in paths]
    return reader


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # safetensors and torch raise their own kinds
        line = (str(error).strip() or "no message").splitlines()[0]
        raise DataError(
            f"the parts of a checkpoint cannot be read ({type(error).__name__}: {line})"
        ) from error
