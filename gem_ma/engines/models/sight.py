"""Ids that say which image they are of, and what a vision-language model is fed for them.

In a record an image is as many image tokens as the model sees patches, whatever it shows. Between
the record and the module each of them is the *seen id* of its image instead: a number far above any
vocabulary, made from the digest (`seen_id`). So equal ids are equal sights, and whatever works on
ids needs to know nothing of images. Supported are processors that give a grid of patches per image
(`image_grid_thw`: the Qwen-VL family).
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import io
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.models.loading import first_line, quiet
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Image, Message
from gem_ma.record.shapes import images_in
from gem_ma.system.extras import install

RECENT = 64  # images that stay open when nobody holds them; the oldest goes first
KEPT_BYTES = 1 << 28  # of pixels; what was needed longest ago is computed again
# Of an image, before the processor makes it smaller: a small file may unpack to any size.
MOST_PIXELS = 64_000_000
SEEN = 1 << 52  # seen ids begin here


def image_processor(transformers: Any, folder: Path, name: str, policy: str) -> Any:
    """The image processor of a model folder. Raises ConfigError, DataError."""
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
    """The id that stands for the image of this digest between a record and a module."""
    # 48 bits, which no two images of a run share; below 2 ** 53 on any way through JSON.
    return SEEN + int.from_bytes(hashlib.sha256(digest.encode()).digest()[:6], "big")


class Picture:
    """An image as the model sees it: `rows` x `columns` patches, one id each."""

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
        """What stands for the image in a prompt: its token, once for each patch."""
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


Ids = NDArray[np.int64]


PIXELS = ("pixel_values", "image_grid_thw")  # names of inputs that are of images, not of ids
# Ids beside the image token that only stand around images, by their names in a model's config.
AROUND = ("video_token_id", "vision_start_token_id", "vision_end_token_id")


class Sight:
    """What the images of one model become. `typed`: the model wants the type of each id beside it,
    which some versions of the library do."""

    def __init__(self, images: Images, *, typed: bool) -> None:
        self.images = images
        self.token = images.token
        self.typed = typed

    # -- ids --------------------------------------------------------------------------------------

    def open(self, images: Sequence[Image]) -> list[Picture]:
        """These images, opened; whoever goes on to use their ids must hold the result."""
        return [self.images.picture(image) for image in images]

    def with_pictures(
        self, ids: Sequence[int], messages: Sequence[Message]
    ) -> tuple[tuple[int, ...], list[Picture]]:
        """The prompt of these messages, with seen ids; and its images, to be held."""
        pictures = self.open(images_of(messages))
        return self.seen(ids, [picture.image.digest for picture in pictures]), pictures

    def seen(self, ids: Sequence[int], digests: Sequence[str]) -> tuple[int, ...]:
        """These ids, with seen ids in the places of image tokens; `digests` of the images in their
        order. Raises EngineError where ids and images do not go together."""
        pictures = [self.images.held(seen_id(digest)) for digest in digests]
        names = [picture.id for picture in pictures for _ in range(picture.patches)]
        marked = sum(token == self.token for token in ids)
        if marked != len(names):
            raise EngineError(
                f"{self.images.where}: a prompt has {marked} image tokens, and its"
                f" {len(digests)} images take {len(names)}"
            )
        left = iter(names)
        return tuple(next(left) if token == self.token else token for token in ids)

    def shift(self, ids: Sequence[int]) -> int:
        """What must be added to the number of these ids for the place of the next one: an image
        lies on a grid, so it takes fewer places than ids."""
        row = np.array(ids, np.int64)
        return sum(_shift(picture) for _, picture in self._blocks(row))

    def behind(self, ids: Sequence[int]) -> int:
        """The number of ids up to the end of the last image; 0 without one."""
        return max((place + 1 for place, token in enumerate(ids) if token >= SEEN), default=0)

    # -- the module -------------------------------------------------------------------------------

    def inputs(
        self, torch: Any, ids: Ids, places: Ids | None = None, branch: Ids | None = None
    ) -> dict[str, Any]:
        """What the model takes for rows of ids [B, T]: ids, places on three axes, pixels.

        `places` [B, T]: of each id, as if images took a place an id. `branch` [B, T]: as in a
        `Pack`; what lies behind an image of a branch is moved in that branch alone.
        """
        if places is None:
            places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        axes = np.repeat(places[None], 3, 0)
        marks = ids >= SEEN
        pictures = list[Picture]()
        for row in np.flatnonzero(marks.any(1)):
            mine = None if branch is None else branch[row]
            for start, picture in self._blocks(ids[row]):
                _place(axes[:, row], start, picture, mine)
                pictures.append(picture)
        tensors = {
            "input_ids": np.where(marks, self.token, ids),
            "position_ids": axes,
            **({"mm_token_type_ids": marks.astype(np.int32)} if self.typed else {}),
        }
        device = self.images.device
        inputs = {name: torch.from_numpy(value).to(device) for name, value in tensors.items()}
        if pictures:
            # In the order of the rows: the model puts them at the image tokens in that order.
            pixels, grids = zip(*(self.images.pixels(one.image) for one in pictures), strict=True)
            inputs |= {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.cat(grids)}
        return inputs

    def _blocks(self, row: Ids) -> Iterator[tuple[int, Picture]]:
        """Where each image begins in a row of ids [T], and the image."""
        places = np.flatnonzero(row >= SEEN)
        while len(places):
            start = int(places[0])
            picture = self.images.held(int(row[start]))
            block = row[start : start + picture.patches]
            # A pass that begins or ends inside an image would get pixels for other ids.
            if len(block) < picture.patches or (block != row[start]).any():
                raise EngineError(f"{self.images.where}: a row holds a part of an image")
            yield start, picture
            places = places[picture.patches :]


def sight_of(model: Any, processor: Any, device: str, where: str, name: str) -> Sight:
    """The sight of a model. Raises ConfigError for models of another kind than Qwen-VL's."""
    token = getattr(model.config, "image_token_id", None)
    places = getattr(getattr(model, "model", None), "get_rope_index", None)
    if not isinstance(token, int) or not hasattr(processor, "merge_size") or places is None:
        raise ConfigError(
            f"{where}: {name} names no image token or no grid of patches; models of the Qwen-VL"
            " family do"
        )
    typed = "mm_token_type_ids" in inspect.signature(model.forward).parameters
    return Sight(Images(processor, token, device, where), typed=typed)


def around_images(model: Any) -> list[int]:
    """Ids that are never sampled: no pixels would stand behind them."""
    names = ("image_token_id", *AROUND)
    return [token for name in names if (token := getattr(model.config, name, None)) is not None]


def _shift(picture: Picture) -> int:
    # What follows begins behind the longer side of the grid.
    return max(picture.rows, picture.columns) - picture.patches


def _place(axes: Ids, start: int, picture: Picture, branch: Ids | None) -> None:
    """Lays an image of a row [3, T] on its grid, and moves up what follows it. The axes are time,
    height and width; in a text all three count alike."""
    end = start + picture.patches
    first = int(axes[0, start])
    height, width = np.divmod(np.arange(picture.patches), picture.columns)
    axes[:, start:end] = first
    axes[1, start:end] += height
    axes[2, start:end] += width
    behind = np.arange(axes.shape[1]) >= end
    if branch is not None and branch[start]:
        behind &= branch == branch[start]
    axes[:, behind] += _shift(picture)
