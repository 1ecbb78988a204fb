"""Episodes out of parquet files, as `gem-ma export --to parquet` and `--to hf` write them. Every
row holds the line of its episode, so nothing of it is lost."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.record.codec import load_episode
from gem_ma.system.extras import install

RECORD = "record"  # the column of the lines
PLAYS = "plays.parquet"  # the file of the plays, where turns and calls stand beside it
DATA = "data"  # the folder of the files of an export for Hugging Face's datasets


def arrow() -> Any:
    """pyarrow. Raises ConfigError with what to type where it is missing."""
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(
            f"parquet files need pyarrow: {install('parquet')}; jsonl needs nothing"
        ) from None
    return pyarrow


def table_files(path: Path) -> list[Path]:
    """The parquet files that a path means: itself, or those of an exported folder; [] for any
    other path."""
    if path.suffix == ".parquet" or _begins_as_parquet(path):
        return [path]
    if not path.is_dir():
        return []
    return [path / PLAYS] if (path / PLAYS).is_file() else sorted((path / DATA).glob("*.parquet"))


def _begins_as_parquet(path: Path) -> bool:
    # an export has the name that its user typed
    if not path.is_file():  # to open a pipe would wait for its writer
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:  # whoever reads it as lines says what is wrong
        return False


def read_table(
    files: list[Path], only: Container[tuple[str, int, int]] | None = None
) -> Iterator[Episode]:
    """The episodes of these files, one at a time; those of `only` where it is there. Raises
    StoreError for a file that is none of ours."""
    pa = arrow()
    from pyarrow import parquet

    for file in files:
        try:
            table = parquet.ParquetFile(file)
            if RECORD not in table.schema_arrow.names:
                raise StoreError(f"{file}: no column {RECORD!r}: gem-ma export did not write it")
            for batch in table.iter_batches(batch_size=16, columns=[RECORD]):
                for line in batch.column(0).to_pylist():
                    episode = load_episode(line)
                    if only is None or episode.id in only:
                        yield episode
        except (pa.ArrowException, OSError) as error:
            what = str(error).splitlines()[0]
            raise StoreError(f"{file}: cannot be read as parquet: {what}") from error
