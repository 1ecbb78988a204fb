"""The images of a vision-language model: bytes to pixels through the model's processor, and the ids
that stand for an image in a prompt.

Knows images, ids and grids of patches; knows no weights and no conversations. Supported are
processors that give a grid of patches per image (`image_grid_thw`: the Qwen-VL family).
"""

from __future__ import annotations

import importlib.util
import io
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_ma.engines.local.loading import first_line, quiet
from gem_ma.errors import ConfigError, DataError, EngineError
from gem_ma.installing import install
from gem_ma.types import Image, Message

KEPT_IMAGES = 64  # whose pixels are kept; the oldest goes first
# Of an image, before the processor makes it smaller: a small file may unpack to any size.
MOST_PIXELS = 64_000_000


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


class Images:
    """Reads images for one model. `token`: the id that stands for one patch that the model sees.
    `where` begins messages."""

    def __init__(self, processor: Any, token: int, device: str, where: str) -> None:
        self.processor, self.token, self.device, self.where = processor, token, device, where
        # By digest: an image stands in every later prompt of its conversation.
        self._read: OrderedDict[str, tuple[Any, Any]] = OrderedDict()

    def ids(self, image: Image) -> tuple[int, ...]:
        """What stands for the image in a prompt: its token, once for each patch that the model
        sees. Raises EngineError for what is no image."""
        _, grid = self.pixels(image)
        # The model merges squares of patches into one each before it reads them.
        return (self.token,) * (int(grid.prod()) // int(self.processor.merge_size) ** 2)

    def pixels(self, image: Image) -> tuple[Any, Any]:
        """(pixels [patches, values], grid [1, 3]) of an image. Raises EngineError."""
        known = self._read.get(image.digest)
        if known is None:
            known = self._read[image.digest] = self._opened(image)
            while len(self._read) > KEPT_IMAGES:
                self._read.popitem(last=False)
        return known

    def _opened(self, image: Image) -> tuple[Any, Any]:
        from PIL import Image as Picture

        where = f"{self.where}: the image {image.digest[:12]}"
        if not image.data:
            raise EngineError(
                f"{where} is known by its digest only; its bytes are in the run folder's media/"
            )
        try:
            # Pillow reads the size from the head of the file; the pixels come with `convert`.
            with Picture.open(io.BytesIO(image.data)) as opened:
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
    return [
        part
        for message in messages
        if not isinstance(message.content, str)
        for part in message.content
        if isinstance(part, Image)
    ]
