"""The `vision` engine: a vision-language model in this process, shown the images of messages
through its own processor.

Knows images, ids and weights; knows no scenarios. In the prompt an image is as many image ids as
the processor makes patches of it, where the chat template puts it; the pixels go to the model
beside them, so the record needs no more than the ids and the images by their digests. Supported are
models whose processor tells a grid of patches per image (`image_grid_thw`: the Qwen-VL family).

Requests are sampled one after another, each with its KV cache: rows with images of different
sizes share no batch. Log-probabilities are those of the distribution that was sampled from;
`score` recomputes them in one pass with the pixels. It plays and scores; it is not trainable.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.engines.local.chat import Chat, ChatOptions
from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.loading import How, first_line, import_stack, load_model, quiet
from gem_ma.engines.local.model_folder import check_folder, find_model
from gem_ma.engines.local.sampling import Draw, Source, drawn, stopped
from gem_ma.engines.local.shared_model import spoken
from gem_ma.errors import ConfigError, DataError, EngineError
from gem_ma.installing import install
from gem_ma.types import Image, Message, Reply, Request, Usage

KEPT_IMAGES = 64  # whose pixels are kept, the oldest goes first
MOST_PIXELS = 64_000_000  # of an image before the processor makes it smaller


class Vision:
    """A local vision-language model as an engine: `vision/PATH`. Options as of `transformers/PATH`;
    needs the vision extra.

    Raises DataError where the folder is missing or damaged, ConfigError where its processor or
    its kind of model is not supported.
    """

    config_defaults: Mapping[str, Any] = {"device": "auto"}
    seeded = False

    def __init__(
        self,
        name: str,
        *,
        policy: str = "",
        dtype: str = "float32",
        device: str = "cpu",
        template: dict[str, Any] | str | None = None,
        keep_thinking: bool = True,
        tool_format: str = "auto",
    ) -> None:
        self.path, self.policy, self.version = name, policy, 0
        how = How(dtype, device).check(policy)
        folder = find_model(name, policy)
        check_folder(folder, policy)
        self.torch, transformers = import_stack()
        if importlib.util.find_spec("PIL") is None:
            raise ConfigError(
                f"the vision engine needs Pillow to read images: {install('train', 'vision')}"
            )
        try:
            with quiet(transformers):
                self.processor = transformers.AutoImageProcessor.from_pretrained(
                    folder, local_files_only=True, backend="pil"
                )
        except Exception as error:  # whatever a damaged file makes the loader raise
            raise DataError(
                f"policy {policy!r}: {name} has no image processor that can be loaded"
                f" ({first_line(error)})"
            ) from error
        self.tokenizer, self.model = load_model(
            self.torch, transformers, folder, policy, how, "AutoModelForImageTextToText"
        )
        self.device = device = how.device
        image_id = getattr(self.model.config, "image_token_id", None)
        places = getattr(getattr(self.model, "model", None), "get_rope_index", None)
        if (
            not isinstance(image_id, int)
            or not hasattr(self.processor, "merge_size")
            or places is None
        ):
            raise ConfigError(
                f"policy {policy!r}: {name} tells no image token or no grid of patches; models of"
                " the Qwen-VL family do"
            )
        self.image_id = image_id
        self._typed = "mm_token_type_ids" in inspect.signature(self.model.forward).parameters
        self._pixels: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        configured = self.model.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        self.ends = frozenset(
            int(token) for token in [*ids, self.tokenizer.eos_token_id] if token is not None
        )
        if not self.ends:
            raise DataError(
                f"policy {policy!r}: {name} names no end-of-turn token; set eos_token_id in"
                " generation_config.json"
            )
        shown = self.tokenizer.convert_ids_to_tokens(self.image_id)
        where = f"policy {policy!r} ({name})"
        self.chat = Chat(
            self.tokenizer,
            self.ends,
            ChatOptions(template, keep_thinking, tool_format),
            where,
            vision=(shown, self.image_ids),
        )
        self.decoder = _Seeing(
            self.torch,
            self.model,
            banned=self._banned(),
            ends=self.ends,
            positions=int(self.model.config.get_text_config().max_position_embeddings),
            device=device,
            padded_tokens=1,
            text=lambda ids, stop: spoken(self.chat, self.ends, ids, stop),
        )
        self.lock = threading.RLock()

    def _banned(self) -> Any:
        """[vocabulary] float32: -inf at ids that are never sampled, images among them, else 0."""
        mask = self.torch.zeros(
            self.model.get_output_embeddings().weight.shape[0],
            dtype=self.torch.float32,
            device=self.device,
        )
        mask[len(self.tokenizer) :] = -self.torch.inf
        never = {
            token
            for token in self.chat.template.controls
            if token not in self.ends | self.chat.marks
        }
        others = {
            getattr(self.model.config, name, None)
            for name in ("video_token_id", "vision_start_token_id", "vision_end_token_id")
        }
        mask[
            sorted(
                {
                    token
                    for token in never | others | {self.image_id}
                    if token is not None and token < len(mask)
                }
            )
        ] = -self.torch.inf
        return mask

    # -- images -----------------------------------------------------------------------------------

    def image_ids(self, image: Image) -> tuple[int, ...]:
        """What stands for the image in a prompt: its token, once for each patch that the model
        sees. Raises EngineError for what is no image."""
        grid = self._seen(image)[1]
        return (self.image_id,) * (int(grid.prod()) // int(self.processor.merge_size) ** 2)

    def _seen(self, image: Image) -> tuple[Any, Any]:
        """(pixels [patches, values], grid [1, 3]) of an image."""
        known = self._pixels.get(image.digest)
        if known is None:
            known = self._read(image)
            self._pixels[image.digest] = known
            while len(self._pixels) > KEPT_IMAGES:
                self._pixels.popitem(last=False)
        return known

    def _read(self, image: Image) -> tuple[Any, Any]:
        from PIL import Image as Picture

        where = f"policy {self.policy!r}: the image {image.digest[:12]}"
        if not image.data:
            raise EngineError(
                f"{where} is known by its digest only; its bytes are in the run folder's media/"
            )
        try:
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

    def _inputs(self, ids: Sequence[int], images: Sequence[Image]) -> dict[str, Any]:
        """What the model takes for these ids [T] and the images that stand in them, in order."""
        row = self.torch.tensor([list(ids)], device=self.device)
        given: dict[str, Any] = {"input_ids": row}
        if images:
            seen = [self._seen(image) for image in images]
            given |= {
                "pixel_values": self.torch.cat([one for one, _ in seen]),
                "image_grid_thw": self.torch.cat([grid for _, grid in seen]),
            }
        types = {"mm_token_type_ids": (row == self.image_id).int()} if self._typed else {}
        if images:
            places, _ = self.model.model.get_rope_index(
                row, image_grid_thw=given["image_grid_thw"], **types
            )
        else:
            places = self.torch.arange(len(ids), device=self.device).expand(3, 1, -1)
        # explicit: the model would take those of its last call
        return given | types | {"position_ids": places}

    # -- requests ---------------------------------------------------------------------------------

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """One reply per request, in their order; the EngineError of a request that cannot be
        shown in its place. A lone request raises its error."""
        with self.lock:
            answers: list[Reply | Exception] = []
            for request in requests:
                try:
                    answers.append(self._answer(request))
                except EngineError as error:  # this request's own fault
                    if len(requests) == 1:
                        raise
                    answers.append(error)
            return answers

    def _answer(self, request: Request) -> Reply:
        prompt = self.chat.prompt(request)
        images = images_of(request.messages)
        draw = self.decoder.draw(
            prompt, request.sampling, request.seed, Source(where=f"policy {self.policy!r}")
        )
        if draw.room:
            self.decoder.see(draw, self._inputs(prompt, images))
        text, calls = self.chat.read(
            spoken(self.chat, self.ends, draw.ids, request.sampling.stop),
            request.tools,
            draw.finish,
        )
        usage = Usage(len(prompt), len(draw.ids))
        reply = Reply(
            text,
            calls,
            prompt,
            tuple(draw.ids),
            tuple(draw.logprobs),
            draw.finish,
            self.policy,
            self.version,
            usage,
        )
        self.chat.sampled(request, reply)
        return reply

    def recall(self, request: Request, reply: Reply) -> None:
        """A reply out of a record, in a play that goes on from it: the next prompt of this
        conversation begins with its ids."""
        with self.lock:
            self.chat.recall(request, reply)

    def forget(self) -> None:
        """See `Remembers`: the KV of a request goes with it."""

    def drawn(self) -> dict[str, int]:
        """See `Configured`: nothing is drawn."""
        return {}

    def score(
        self,
        prompt: Sequence[int],
        ids: Sequence[int],
        images: Sequence[Image] = (),
        temperature: float = 1.0,
    ) -> list[float]:
        """Log-probabilities of `ids` after `prompt`, in which these images stand in order: one
        pass over all with the pixels."""
        with self.lock, self.torch.inference_mode():
            logits = self.model(**self._inputs([*prompt, *ids], images), use_cache=False).logits[
                0, len(prompt) - 1 : -1
            ]
            scores = ((logits.float() + self.decoder.banned) / temperature).log_softmax(-1)
            return [float(row[token]) for row, token in zip(scores, ids, strict=True)]


class _Seeing(Decoder):
    """Samples single rows that see images."""

    def see(self, draw: Draw, inputs: dict[str, Any]) -> None:
        """Samples this row to its end; `inputs` are the prompt with its pixels."""
        torch = self.torch
        # an image takes fewer places than ids, so what follows is not at the number of ids
        place = int(inputs["position_ids"].max())
        with torch.inference_mode():
            out = self.model(**inputs, use_cache=True)
            while True:
                chosen, logprobs = drawn(torch, out.logits[:, -1].float() + self.banned, [draw])
                draw.ids += chosen
                draw.logprobs += logprobs
                draw.room -= 1
                if chosen[0] in self.ends or stopped(draw, self.text):
                    draw.finish = "stop"
                    return
                if not draw.room:
                    return
                place += 1
                places = torch.full((3, 1, 1), place, device=self.device)
                last = torch.tensor([chosen], device=self.device)
                out = self.model(
                    input_ids=last,
                    position_ids=places,
                    past_key_values=out.past_key_values,
                    use_cache=True,
                )


def images_of(messages: Sequence[Message]) -> list[Image]:
    """The images of a conversation, in their order."""
    return [
        part
        for message in messages
        if not isinstance(message.content, str)
        for part in message.content
        if isinstance(part, Image)
    ]
