"""The vision engine: images reach a small vision-language model, change what it says, and are
scored as they were sampled."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Image, Message, Request, Sampling

pytest.importorskip("transformers", reason="needs the train extra")
PIL = pytest.importorskip("PIL.Image", reason="needs the vision extra")

from gem_ma.engines.local.transformers import Vision  # noqa: E402

TEMPLATE = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m['role'] + '\\n' }}
{%- if m['content'] is string -%}{{ m['content'] }}
{%- else -%}
{%- for part in m['content'] -%}
{%- if part['type'] == 'image' -%}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else -%}{{ part['text'] }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


@pytest.fixture(scope="module")
def seeing_model(byte_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained vision-language model made from a config, with tokenizer and image processor,
    without a download."""
    import torch
    from transformers import (
        AutoTokenizer,
        GenerationConfig,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
    )

    folder = tmp_path_factory.mktemp("seeing")
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *TOKENS]})
    tokenizer.chat_template = TEMPLATE
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(TOKENS))
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
        "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.1,
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32, "patch_size": 14, "window_size": 56,
        "fullatt_block_indexes": [1], "initializer_range": 0.1,
    }  # fmt: skip
    ids = {
        "image_token_id": image,
        "video_token_id": video,
        "vision_start_token_id": start,
        "vision_end_token_id": end,
    }
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    )
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**processor, "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 16})
    )
    return folder


@pytest.fixture(scope="module")
def engine(seeing_model: Path) -> Vision:
    return Vision(str(seeing_model), policy="eye")


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (60, 30)) -> Image:
    written = io.BytesIO()
    PIL.new("RGB", size, colour).save(written, "PNG")
    return Image.of(written.getvalue())


RED, BLUE = picture((255, 0, 0)), picture((0, 0, 255), (56, 84))


def request(
    *messages: Message, seed: int = 0, conversation: str = "", max_tokens: int = 8, **sampling: Any
) -> Request:
    return Request(
        "a",
        messages,
        seed=seed,
        conversation=conversation,
        sampling=Sampling(max_tokens=max_tokens, **sampling),
        policy="eye",
    )


def gap(engine: Vision, reply: Any, images: list[Image], temperature: float = 1.0) -> float:
    """Between what was sampled and one pass over all, with the pixels."""
    pictures = engine.sight.open(images)  # held until the pass is done
    ids = [*reply.prompt_ids, *reply.token_ids]
    seen = engine.sight.seen(ids, [picture.image.digest for picture in pictures])
    with engine.lock, engine.torch.inference_mode(), engine.active():
        inputs = engine.sight.inputs(engine.torch, np.array([seen], np.int64))
        logits = engine.model(**inputs, use_cache=False).logits
    # the logits at a place are those of the id behind it
    scores = (logits[0, len(reply.prompt_ids) - 1 : -1].float() + engine.banned) / temperature
    chances = scores.log_softmax(-1)
    scored = [float(row[token]) for row, token in zip(chances, reply.token_ids, strict=True)]
    return max(abs(a - b) for a, b in zip(scored, reply.logprobs, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_logprobs_are_those_of_one_pass_with_the_pixels(
    engine: Vision, temperature: float
) -> None:
    for images in ([], [RED], [BLUE], [RED, BLUE], [RED, RED]):
        for seed in range(3):
            (reply,) = engine.sample_batch(
                [
                    request(
                        Message(("see ", *images, " and say")), seed=seed, temperature=temperature
                    )
                ]
            )
            assert len(reply.logprobs) == len(reply.token_ids) > 0
            assert gap(engine, reply, images, temperature) < 1e-5


@pytest.mark.long
def test_the_pixels_matter(engine: Vision) -> None:
    other = picture((0, 255, 0))
    (reply,) = engine.sample_batch([request(Message(("see", RED)))])
    assert engine.sight.images.ids(RED) == engine.sight.images.ids(
        other
    )  # same size, so the same ids
    assert gap(engine, reply, [RED]) < 1e-5 < 1e-3 < gap(engine, reply, [other])


def test_an_image_is_as_many_ids_as_the_model_sees_patches_where_the_template_puts_it(
    engine: Vision,
) -> None:
    # 28 x 56 and 84 x 56 pixels in squares of 28
    assert (len(engine.sight.images.ids(RED)), len(engine.sight.images.ids(BLUE))) == (2, 6)
    shown = engine.tokenizer.decode(
        engine.chat.render("a", (Message(("see ", RED, " now")), Message("and"), Message((BLUE,))))
    )
    assert shown == (
        "<|im_start|>user\nsee <|vision_start|><|image_pad|><|image_pad|><|vision_end|> now\nand\n"
        "<|vision_start|>"
        + "<|image_pad|>" * 6
        + "<|vision_end|><|im_end|>\n<|im_start|>assistant\n"
    )


def test_image_tokens_in_a_text_are_text_and_are_never_sampled(engine: Vision) -> None:
    ids = engine.chat.render("a", (Message(("<|image_pad|><|vision_start|>", RED)),))
    assert ids.count(engine.sight.token) == 2
    assert engine.decoder.banned[engine.sight.token] == -float("inf")
    (reply,) = engine.sample_batch([request(Message(("<|image_pad|>", RED)))])
    assert gap(engine, reply, [RED]) < 1e-5


def test_prompts_with_images_only_grow_and_a_later_image_is_seen(engine: Vision) -> None:
    first = request(Message(("see", RED)), conversation="c")
    (reply,) = engine.sample_batch([first])
    more = (Message(("see", RED)), Message(reply.text, "a"), Message((BLUE, "now")))
    (grown,) = engine.sample_batch([request(*more, conversation="c")])
    assert (
        grown.prompt_ids[: len(reply.prompt_ids) + len(reply.token_ids)]
        == reply.prompt_ids + reply.token_ids
    )
    assert grown.prompt_ids.count(engine.sight.token) == 8
    assert gap(engine, grown, [RED, BLUE]) < 1e-5


def test_a_request_samples_the_same_whatever_was_seen_before(engine: Vision) -> None:
    asked = [
        request(Message(("see", RED)), seed=1),
        request(Message("only text"), seed=2),
        request(Message((BLUE,)), seed=3),
    ]
    together = [reply.token_ids for reply in engine.sample_batch(asked)]
    assert together == [engine.sample_batch([one])[0].token_ids for one in asked]
    assert together[::-1] == [reply.token_ids for reply in engine.sample_batch(asked[::-1])]


def test_what_is_no_image_fails_alone_and_says_why(engine: Vision) -> None:
    bad, lost = Image.of(b"no picture"), Image(RED.digest[::-1])
    answers = engine.sample_batch(
        [request(Message((bad,))), request(Message((RED,))), request(Message((lost,)))]
    )
    assert isinstance(answers[0], EngineError) and "cannot be read" in str(answers[0])
    assert answers[1].token_ids
    assert isinstance(answers[2], EngineError) and "media/" in str(answers[2])
    with pytest.raises(EngineError, match="cannot be read"):
        engine.sample_batch([request(Message((bad,)))])


def test_a_prompt_longer_than_the_context_is_no_sample(engine: Vision) -> None:
    (reply,) = engine.sample_batch([request(Message(("x " * 600, RED)))])
    assert (reply.finish, reply.token_ids) == ("context_overflow", ())


class Show(Scenario):
    """One agent is shown two pictures, one after the other."""

    agents = ("looker",)

    def play(self, rng: Random, task: Any) -> Iterator[Any]:
        yield Ask({"looker": Message(("What is this?", RED))})
        yield Ask({"looker": Message(("And this?", BLUE))})
        yield Reward({"looker": 1.0}, why="looked")


@pytest.mark.long
def test_an_episode_with_images_is_played_and_its_record_is_scored_again(
    seeing_model: Path,
) -> None:
    opened = open_engine("eye", f"vision/{seeing_model}")
    plan = Plan(Show(), {"looker": Seat("direct", "eye")})
    episode = asyncio.run(play(plan, {"eye": Policy("eye", opened, Sampling(max_tokens=6))}))
    assert (episode.end, episode.error) == (End.TERMINATED, None)
    seen: list[Image] = []
    for turn in episode.turns:
        seen += [
            part for message in turn.observed for part in message.content if isinstance(part, Image)
        ]
        (reply,) = turn.replies
        assert gap(opened.engine, reply, seen) < 1e-5  # type: ignore[attr-defined]
    assert [image.digest for image in seen] == [RED.digest, BLUE.digest]
    assert (
        episode.turns[1].replies[0].prompt_ids[: len(episode.turns[0].replies[0].prompt_ids)]
        == episode.turns[0].replies[0].prompt_ids
    )


@pytest.mark.longest
def test_the_engine_for_text_names_the_one_for_images(seeing_model: Path) -> None:
    with pytest.raises(ConfigError, match="write model: vision/"):
        open_engine("eye", f"transformers/{seeing_model}")


def test_a_folder_without_an_image_processor_is_refused(byte_model: Path) -> None:
    with pytest.raises(DataError, match="no image processor"):
        Vision(str(byte_model), policy="eye")
