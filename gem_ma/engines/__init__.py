"""Engines: how a policy samples. Engine name -> "module:Class"; heavy imports happen in the
constructor, never here."""

CATALOG = {
    "human": "gem_ma.engines.human:Human",
    "openai": "gem_ma.engines.openai:OpenAI",
    "replay": "gem_ma.engines.replay:Replay",
    "scripted": "gem_ma.engines.scripted:Scripted",
    "table": "gem_ma.engines.table:Table",
    "transformers": "gem_ma.engines.transformers:Transformers",
    "vision": "gem_ma.engines.vision:Vision",
    "vllm": "gem_ma.engines.vllm:VLLM",
}
