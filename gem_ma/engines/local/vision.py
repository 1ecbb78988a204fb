"""The `vision` engine: a vision-language model in this process, which sees the images of messages.

Knows images, ids and weights; knows no scenarios. In the prompt an image is as many image ids as
the processor makes patches of it, where the chat template puts it. The pixels go to the model
beside them, so the record needs only the ids, and the images by their digests.

Requests are sampled one after another, each with its KV cache: rows with images of different
sizes share no batch. Log-probabilities are those of the distribution that was sampled from;
`score` recomputes them in one pass with the pixels. It plays and scores; it is not trainable.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.engines.local.chat import Chat
from gem_ma.engines.local.decoding import Decoder
from gem_ma.engines.local.images import Images, image_processor, images_of
from gem_ma.engines.local.loading import How, import_stack, load_model
from gem_ma.engines.local.model_folder import check_folder, find_model
from gem_ma.engines.local.rendering import ChatOptions
from gem_ma.engines.local.sampling import Draw, Source, drawn, stopped
from gem_ma.engines.local.settings import Memory
from gem_ma.engines.local.vocabulary import Vocabulary, end_ids
from gem_ma.errors import ConfigError, EngineError
from gem_ma.types import Image, Reply, Request, Usage

CLASS = "AutoModelForImageTextToText"
# Ids beside the image token that only stand around images, by their names in a model's config.
AROUND = ("video_token_id", "vision_start_token_id", "vision_end_token_id")


class Vision:
    """A local vision-language model as an engine: `vision/PATH`. Options as of `transformers/PATH`;
    needs the vision extra.

    Raises DataError where the folder is missing or damaged, ConfigError where its processor or
    its kind of model is not supported.
    """

    # As of the transformers engine: what a recorded config says is not touched by it.
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
        # Before the weights, which may take minutes: a folder without a processor fails at once.
        processor = image_processor(transformers, folder, name, policy)
        self.tokenizer, self.model = load_model(
            self.torch, transformers, folder, policy, how, CLASS
        )
        self.device, where = how.device, f"policy {policy!r}"
        self.image_id = self._image_id(processor)
        self.images = Images(processor, self.image_id, self.device, where)
        # Some versions of the library need the type of each id, to count places.
        self._typed = "mm_token_type_ids" in inspect.signature(self.model.forward).parameters
        ends = end_ids(self.tokenizer, self.model.generation_config.eos_token_id, name, where)
        self.chat = Chat(
            self.tokenizer,
            ends,
            ChatOptions(template, keep_thinking, tool_format),
            f"{where} ({name})",
            vision=(self.tokenizer.convert_ids_to_tokens(self.image_id), self.images.ids),
        )
        self.vocabulary = self._vocabulary()
        self.decoder = self._decoder()
        self.lock = threading.RLock()

    def _image_id(self, processor: Any) -> int:
        """The token that stands for images. Raises ConfigError for models of another kind."""
        token = getattr(self.model.config, "image_token_id", None)
        places = getattr(getattr(self.model, "model", None), "get_rope_index", None)
        if not isinstance(token, int) or not hasattr(processor, "merge_size") or places is None:
            raise ConfigError(
                f"policy {self.policy!r}: {self.path} names no image token or no grid of patches;"
                " models of the Qwen-VL family do"
            )
        return token

    def _vocabulary(self) -> Vocabulary:
        """As of a model without images, and ids of images are never sampled: no pixels would
        stand behind them."""
        size = int(self.model.get_output_embeddings().weight.shape[0])
        around = (getattr(self.model.config, name, None) for name in AROUND)
        never = [token for token in (*around, self.image_id) if token is not None]
        return Vocabulary.of(self.chat, size, never)

    def _decoder(self) -> _Seeing:
        positions = int(self.model.config.get_text_config().max_position_embeddings)
        banned = self.vocabulary.mask(self.torch, self.device)
        # Rows never share a pass here, so there is nothing to pad.
        memory = Memory(padded_tokens=1)
        return _Seeing(self.torch, self.model, self.vocabulary, banned, memory, positions=positions)

    def image_ids(self, image: Image) -> tuple[int, ...]:
        """What stands for the image in a prompt. Raises EngineError for what is no image."""
        return self.images.ids(image)

    def _inputs(self, ids: Sequence[int], images: Sequence[Image]) -> dict[str, Any]:
        """What the model takes for these ids [T] and the images that stand in them, in order."""
        row = self.torch.tensor([list(ids)], device=self.device)
        types = {"mm_token_type_ids": (row == self.image_id).int()} if self._typed else {}
        pixels: dict[str, Any] = {}
        # The model's own count of places: an image lies on a grid, so its ids share places.
        if images:
            seen = [self.images.pixels(image) for image in images]
            grids = self.torch.cat([grid for _, grid in seen])
            pixels = {
                "pixel_values": self.torch.cat([values for values, _ in seen]),
                "image_grid_thw": grids,
            }
            places, _ = self.model.model.get_rope_index(row, image_grid_thw=grids, **types)
        else:
            places = self.torch.arange(len(ids), device=self.device).expand(3, 1, -1)
        # Places are explicit: the model would take those of its last call.
        return {"input_ids": row, **pixels, **types, "position_ids": places}

    # -- requests ---------------------------------------------------------------------------------

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """One reply per request, in their order; in the place of a request that cannot be shown
        its EngineError. A lone request raises its error."""
        with self.lock:
            answers: list[Reply | Exception] = []
            for request in requests:
                try:
                    answers.append(self._answer(request))
                except EngineError as error:
                    # The fault of this request alone: the others are answered.
                    if len(requests) == 1:
                        raise
                    answers.append(error)
            return answers

    def _answer(self, request: Request) -> Reply:
        prompt = self.chat.prompt(request)
        images = images_of(request.messages)
        source = Source(where=f"policy {self.policy!r}")
        draw = self.decoder.draw(prompt, request.sampling, request.seed, source)
        if draw.room:  # none is left where the prompt fills the context
            self.decoder.see(draw, self._inputs(prompt, images))
        text = self.vocabulary.cut(draw.ids, request.sampling.stop)
        text, calls = self.chat.read(text, request.tools, draw.finish)
        reply = Reply(
            text=text,
            tool_calls=calls,
            prompt_ids=prompt,
            token_ids=tuple(draw.ids),
            logprobs=tuple(draw.logprobs),
            finish=draw.finish,
            policy=self.policy,
            version=self.version,
            usage=Usage(len(prompt), len(draw.ids)),
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
            out = self.model(**self._inputs([*prompt, *ids], images), use_cache=False)
            # The logits at a place are those of the id behind it.
            logits = out.logits[0, len(prompt) - 1 : -1].float() + self.decoder.banned
            scores = (logits / temperature).log_softmax(-1)
            return [float(row[token]) for row, token in zip(scores, ids, strict=True)]


class _Seeing(Decoder):
    """Samples single rows that see images."""

    def see(self, draw: Draw, inputs: dict[str, Any]) -> None:
        """Samples this row to its end; `inputs` are the prompt with its pixels."""
        torch = self.torch
        # An image takes fewer places than ids, so the next place is not the number of ids.
        place = int(inputs["position_ids"].max())
        with torch.inference_mode():
            out = self.model(**inputs, use_cache=True)
            while True:
                chosen, logprobs = drawn(torch, out.logits[:, -1].float() + self.banned, [draw])
                draw.take(chosen[0], logprobs[0])
                if chosen[0] in self.ends or stopped(draw, self.text):
                    draw.finish = "stop"
                    return
                if not draw.room:
                    return
                place += 1
                # Three axes (time, height, width), which are equal for text.
                places = torch.full((3, 1, 1), place, device=self.device)
                last = torch.tensor([chosen], device=self.device)
                out = self.model(
                    input_ids=last,
                    position_ids=places,
                    past_key_values=out.past_key_values,
                    use_cache=True,
                )
