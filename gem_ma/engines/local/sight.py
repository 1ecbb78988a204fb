"""Ids that say which image they are of, and what a vision-language model is fed for them.

In a record an image is as many image tokens as the model sees patches, whatever it shows. Between
the record and the module each of them is the *seen id* of its image instead: a number far above any
vocabulary, made from the digest (`gem_ma.engines.local.images.seen_id`). So equal ids are equal
sights. Whatever works on ids (rows that share a prompt, probes, draws that are repeated) needs to
know nothing of images, and the pixels come in where ids meet the module: here.

Knows ids, images and grids; knows no weights and no conversations.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.images import SEEN, Images, Picture, images_of, seen_id
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Image, Message

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
        """These images, opened. Whoever goes on to use their ids must hold the result. Raises
        EngineError for anything that is not an image."""
        return [self.images.picture(image) for image in images]

    def with_pictures(
        self, ids: Sequence[int], messages: Sequence[Message]
    ) -> tuple[tuple[int, ...], list[Picture]]:
        """The prompt of these messages, with seen ids; and its images, to be held. Raises
        EngineError for anything that is not an image."""
        pictures = self.open(images_of(messages))
        return self.seen(ids, [picture.image.digest for picture in pictures]), pictures

    def seen(self, ids: Sequence[int], digests: Sequence[str]) -> tuple[int, ...]:
        """These ids, with seen ids in the places of image tokens; `digests` of the images, in the
        order in which they stand there.

        Raises EngineError where somebody holds no such image, or ids and images do not go together.
        """
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
