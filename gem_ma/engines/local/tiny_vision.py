"""The eyes of a tiny model: a language model of Qwen2-VL's architecture, the image processor of its
folder, and the chat template that shows images.

Knows layer sizes; knows no scenario and no images.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# pixels of a patch, patches of a side that become one id: 16 x 16 pixels each
PATCH = 8
MERGED = 2
# of the vision tower, whose width is that of the text
DEPTH = 2
HEADS = 4
FEED_FORWARD = 2
# pixels of an image: smaller ones are enlarged, larger ones shrunk
LEAST_PIXELS = 16 * 16
MOST_PIXELS = 64 * 64
START = "<|vision_start|>"
END = "<|vision_end|>"
IMAGE = "<|image_pad|>"
VIDEO = "<|video_pad|>"
IMAGE_TOKENS = (START, END, IMAGE, VIDEO)
_CONTENT_MACRO = (
    "{%- macro shown(content) -%}"
    "{%- if content is string -%}{{- content -}}"
    "{%- else -%}{%- for part in content or [] -%}"
    "{%- if part['type'] == 'image' -%}{{- '" + START + IMAGE + END + "' -}}"
    "{%- else -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{%- endmacro -%}"
)


def showing(template: str) -> str:
    """A chat template of a tiny model, with images where they stand in a content."""
    # as the templates for words and for bytes write a content
    for content in ("(message['content'] or '')", "message['content'] +"):
        end = content[-2:] if content.endswith("+") else ""
        template = template.replace(content, f"shown(message['content']){end}")
    return _CONTENT_MACRO + template


def vision_config(transformers: Any, tokenizer: Any, text: dict[str, Any]) -> Any:
    """The config of a model that sees; `text` are the options of its language model."""
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    # Places on three axes share the halves of a head: a quarter is time, as in the large models.
    side = 3 * half // 8
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [half - 2 * side, side, side],
    }
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    return transformers.Qwen2VLConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config={
            "depth": DEPTH,
            "embed_dim": text["hidden_size"],
            "hidden_size": text["hidden_size"],
            "num_heads": HEADS,
            "mlp_ratio": FEED_FORWARD,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=text["tie_word_embeddings"],
        dtype="float32",
    )


def write_processor(folder: Path) -> None:
    """Writes what turns images into patches beside the weights."""
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGED,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": LEAST_PIXELS, "longest_edge": MOST_PIXELS},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
