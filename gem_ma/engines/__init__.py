"""Engines: how a policy samples. Engine name -> "module:Class"; heavy imports happen in the
constructor, never here.

A folder holds one engine, or several that share all they have, and imports no other's. What several
need lies in `endpoint` (who asks a server) and in `models` (who has a model's folder).

Decisions: docs/decisions.md#engines
"""

CATALOG = {
    "human": "gem_ma.engines.small.human:Human",
    "litellm": "gem_ma.engines.api.litellm:LiteLLM",
    "openai": "gem_ma.engines.api.openai:OpenAI",
    "replay": "gem_ma.engines.small.replay:Replay",
    "scripted": "gem_ma.engines.small.scripted:Scripted",
    "table": "gem_ma.engines.small.table:Table",
    "tinker": "gem_ma.engines.tinker.engine:Tinker",
    "transformers": "gem_ma.engines.local.transformers:Transformers",
    "vision": "gem_ma.engines.local.transformers:Vision",
    "vllm": "gem_ma.engines.vllm.engine:VLLM",
}
