"""The JSON Schema of a config, for editors: made from the settings, so that it says what they say.

It is looser than `gem-ma check`, which also knows what fits a scenario, a behaviour and an engine;
nothing that loads is refused by it. Short forms, which are written out before the settings see
them, are added here.
"""

from __future__ import annotations

from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.studies import StudySections

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}


def config_schema() -> Schema:
    """The schema of a config that plays, learns or is a study."""
    schema = Config.model_json_schema()
    study = StudySections.model_json_schema()
    sections: Schema = schema["properties"] | study["properties"]
    # what an `extends:` brings is not seen here, so no section is wanted
    sections["extends"] = {
        **TEXT,
        "description": "A config in this folder, which this one changes.",
    }
    blocks: Schema = schema["$defs"] | study["$defs"]
    _agents(blocks["AgentSettings"])
    sections["scenario"] = _or_text(sections["scenario"], "The id of a scenario.")
    named = sections["scenarios"]
    listed: Schema = {"type": "array", "items": {"anyOf": [TEXT, {"type": "object"}]}}
    sections["scenarios"] = {"anyOf": [named, listed]}
    for holder in (sections, blocks["WorldSettings"]["properties"]):
        if "agents" in holder:
            inner = holder["agents"]["additionalProperties"]
            # a behaviour, a model or `human`
            holder["agents"]["additionalProperties"] = _or_text(inner, "Who plays it.")
    return {
        "$schema": DIALECT,
        "title": "A config of gem_ma",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
        "$defs": blocks,
    }


def _agents(block: Schema) -> None:
    """The short forms of a seat: `model:` for a policy of its own, tools by their names."""
    block["properties"]["model"] = {
        **TEXT,
        "description": "ENGINE/NAME: short for a frozen policy of its own.",
    }
    tools = block["properties"]["tools"]
    # `python`, or {python: {options}} with nothing or some below it
    tools["items"] = {"anyOf": [TEXT, {"type": "object"}]}


def _or_text(schema: Schema, meaning: str) -> Schema:
    return {"anyOf": [{**TEXT, "description": meaning}, schema]}
