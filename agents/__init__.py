"""The behaviours that come with gem_ma: id -> "module:factory". A factory is called as `factory(agent, sample, rng, task=None, **options)`."""

if __name__ != "gem_ma.agents":
    raise ImportError(f"import this package as gem_ma.agents, not {__name__}")

CATALOG = {
    "direct": "gem_ma.agents.direct:Direct",
    "random_legal": "gem_ma.agents.bots:RandomLegal",
    "first_legal": "gem_ma.agents.bots:FirstLegal",
    "silent": "gem_ma.agents.bots:Silent",
    "noisy_kuhn": "gem_ma.agents.kuhn:NoisyKuhn",
    "noisy_listener": "gem_ma.agents.referential:NoisyListener",
    "noisy_speaker": "gem_ma.agents.referential:NoisySpeaker",
    "tool_calling": "gem_ma.agents.tool_calling:ToolCalling",
    "act": "gem_ma.agents.text_protocol:Act",
    "react": "gem_ma.agents.text_protocol:React",
    "few_shot": "gem_ma.agents.few_shot:FewShot",
    "user_llm": "gem_ma.agents.user_llm:UserLLM",
    "user_react": "gem_ma.agents.user_llm:UserReact",
    "user_verify": "gem_ma.agents.user_llm:UserVerify",
    "user_reflection": "gem_ma.agents.user_llm:UserReflection",
    "retail_user": "gem_ma.agents.retail_user:RetailUser",
    "retail_oracle": "gem_ma.agents.retail_oracle:RetailOracle",
    "retail_scripted": "gem_ma.agents.retail_scripted:RetailScripted",
    "retail_forgets_to_confirm": "gem_ma.agents.retail_weaker:RetailForgetsToConfirm",
    "retail_wrong_item": "gem_ma.agents.retail_weaker:RetailWrongItem",
    "retail_transfers_early": "gem_ma.agents.retail_weaker:RetailTransfersEarly",
    "retail_drops_write": "gem_ma.agents.retail_weaker:RetailDropsWrite",
    "retail_refuses_more": "gem_ma.agents.retail_weaker:RetailRefusesMore",
    "retail_forgets_requests": "gem_ma.agents.retail_weaker:RetailForgetsRequests",
    "retail_trusts_the_user": "gem_ma.agents.retail_weaker:RetailTrustsTheUser",
    "retail_nothing": "gem_ma.agents.retail_baselines:RetailNothing",
    "retail_transfer": "gem_ma.agents.retail_baselines:RetailTransfer",
    "retail_refuse": "gem_ma.agents.retail_baselines:RetailRefuse",
    "retail_echo": "gem_ma.agents.retail_baselines:RetailEcho",
}
