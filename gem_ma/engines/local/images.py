"""The images of a vision-language model: bytes to pixels through the model's processor, and the ids
that stand for an image in a prompt.

Knows images, ids and grids of patches; knows no weights and no conversations. Supported are
processors that give a grid of patches per image (`image_grid_thw`: the Qwen-VL family).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gem_ma.engines.local.loading import first_line, quiet
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Image, Message
from gem_ma.record.images import images_in
from gem_ma.system.extras import install

RECENT = 64  # images that stay open when nobody holds them; the oldest goes first
KEPT_BYTES = 1 << 28  # of pixels; what was needed longest ago is computed again
# Of an image, before the processor makes it smaller: a small file may unpack to any size.
MOST_PIXELS = 64_000_000
SEEN = 1 << 52  # seen ids begin here


def image_processor(transformers: Any, folder: Path, name: str, policy: str) -> Any:
    """The image processor of a model folder. Raises ConfigError without Pillow, DataError where
    it cannot be loaded."""
    if importlib.util.find_spec("PIL") is None:
        raise ConfigError(
            f"the vision engine needs Pillow to read images: {install('train', 'vision')}"
        )
    try:
        with quiet(transformers):
            # Pillow's backend: the other one needs torchvision, and rounds otherwise.
            return transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, backend="pil"
            )
    except Exception as error:  # whatever a damaged file makes the loader raise
        raise DataError(
            f"policy {policy!r}: {name} has no image processor that can be loaded"
            f" ({first_line(error)})"
        ) from error


def seen_id(digest: str) -> int:
    """The id that stands for the image of this digest, between a record and a module: a number far
    above any vocabulary."""
    # 48 bits, which no two images of a run share; below 2 ** 53 on any way through JSON.
    return SEEN + int.from_bytes(hashlib.sha256(digest.encode()).digest()[:6], "big")


class Picture:
    """An image as the model sees it: `rows` x `columns` patches, one id each. There is one object
    for all equal images that somebody holds."""

    __slots__ = ("__weakref__", "columns", "id", "image", "rows")

    def __init__(self, image: Image, rows: int, columns: int) -> None:
        self.id = seen_id(image.digest)
        self.image = image
        self.rows = rows
        self.columns = columns

    @property
    def patches(self) -> int:
        """Ids that it takes in a prompt."""
        return self.rows * self.columns


class Images:
    """Reads images for one model. `token`: the id that stands for one patch that the model sees.
    `where` begins messages."""

    def __init__(self, processor: Any, token: int, device: str, where: str) -> None:
        self.processor = processor
        self.token = token
        self.device = device
        self.where = where
        # Rows that wait for an update hold their pictures; `_recent` holds the rest.
        self._open: WeakValueDictionary[int, Picture] = WeakValueDictionary()
        self._recent: OrderedDict[str, Picture] = OrderedDict()
        # An image stands in every later prompt of its conversation.
        self._pixels: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._bytes = 0
        # A learner may look at images in one thread while its sampler does in another.
        self._lock = threading.RLock()

    def ids(self, image: Image) -> tuple[int, ...]:
        """What stands for the image in a prompt: its token, once for each patch that the model
        sees. Raises EngineError for anything that is not an image."""
        return (self.token,) * self.picture(image).patches

    def picture(self, image: Image) -> Picture:
        """The image, opened. Raises EngineError for anything that is not an image."""
        with self._lock:
            known = self._open.get(seen_id(image.digest))
            if known is None:
                _, grid = self._read(image)
                # The model merges squares of patches into one each before it reads them.
                rows, columns = (
                    int(side) // int(self.processor.merge_size) for side in grid[0, 1:]
                )
                known = Picture(image, rows, columns)
                self._open[known.id] = known
            self._recent[image.digest] = known
            self._recent.move_to_end(image.digest)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
            return known

    def held(self, name: int) -> Picture:
        """The picture of this seen id. Raises EngineError where nobody holds it."""
        with self._lock:
            picture = self._open.get(name)
        if picture is None:
            raise EngineError(
                f"{self.where}: an image stands in a prompt that was in no message of the play"
            )
        return picture

    def pixels(self, image: Image) -> tuple[Any, Any]:
        """(pixels [patches, values], grid [1, 3]) of an image. Raises EngineError."""
        with self._lock:
            return self._read(image)

    def _read(self, image: Image) -> tuple[Any, Any]:
        values = self._pixels.get(image.digest)
        if values is None:
            values = self._pixels[image.digest] = self._opened(image)
            self._bytes += values[0].nbytes
            while self._bytes > KEPT_BYTES and len(self._pixels) > 1:
                _, (oldest, _) = self._pixels.popitem(last=False)
                self._bytes -= oldest.nbytes
        self._pixels.move_to_end(image.digest)
        return values

    def _opened(self, image: Image) -> tuple[Any, Any]:
        from PIL import Image as Pillow

        where = f"{self.where}: the image {image.digest[:12]}"
        if not image.data:
            raise EngineError(
                f"{where} is known by its digest only; its bytes are in the run folder's media/"
            )
        try:
            # Pillow reads the size from the head of the file; the pixels come with `convert`.
            with Pillow.open(io.BytesIO(image.data)) as opened:
                width, height = opened.size
                if width * height > MOST_PIXELS:
                    raise ValueError(f"{width} x {height} pixels, the limit is {MOST_PIXELS}")
                picture = opened.convert("RGB")
            made = self.processor(images=[picture], return_tensors="pt")
            return made["pixel_values"].to(self.device), made["image_grid_thw"].to(self.device)
        except Exception as error:  # whatever damaged bytes make the readers raise
            raise EngineError(
                f"{where} ({image.media_type}, {len(image.data)} bytes) cannot be read:"
                f" {first_line(error)}"
            ) from error


def images_of(messages: Sequence[Message]) -> list[Image]:
    """The images of a conversation, in their order."""
    return list(images_in(messages))
