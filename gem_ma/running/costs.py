"""What a run's model calls cost, and which models answered them, for the summaries of `run`,
`study` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gem_ma.config.settings import Config
    from gem_ma.episode import Episode


def costs_of(config: Config, episodes: Callable[[], Iterable[Episode]]) -> dict[str, Any]:
    """`{"costs": ...}` by agent, with the prices that the config names; {} where no policy is at
    an endpoint or has a price."""
    priced = {name: policy.options.get("price") for name, policy in config.policies.items()}
    if not any(priced.values()) and not any(
        policy.model.startswith("openai/") for policy in config.policies.values()
    ):
        return {}
    from gem_ma.engines.http.budget import Price
    from gem_ma.evaluation.costs import costs

    prices = {
        name: price
        for name, given in priced.items()
        if (price := Price.of(given, f"policy {name!r}")) is not None
    }
    return {"costs": costs(episodes(), {name: price.of_usage for name, price in prices.items()})}


def other_models(config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """`{"other_models": {policy: {name: replies}}}`: where a server says that another model
    answered than the one that was asked; {} where none.

    A dated name of the same model (`gpt-4o` asked, `gpt-4o-2024-08-06` answered) counts too: it
    is what was measured.
    """
    answered = {}
    for name, models in summary.get("served", {}).items():
        engine, _, asked = (
            config.policies[name].model.partition("/") if name in config.policies else ("", "", "")
        )
        others = {model: count for model, count in models.items() if model != asked}
        if engine == "openai" and others:
            answered[name] = others
    return {"other_models": answered} if answered else {}
