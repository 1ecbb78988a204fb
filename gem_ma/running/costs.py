"""What a run's model calls cost, and which models answered them, for the summaries of `run`,
`study` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gem_ma.config.playing import PolicySettings
    from gem_ma.config.settings import Config
    from gem_ma.episode import Episode
    from gem_ma.types import Usage


def costs_of(config: Config, episodes: Callable[[], Iterable[Episode]]) -> dict[str, Any]:
    """`{"costs": ...}` by agent, with the prices that the config names; {} where no policy is at
    an endpoint or has a price."""
    priced = {name: policy.options.get("price") for name, policy in config.policies.items()}
    # without a price the tokens are still worth telling
    if not any(priced.values()) and not any(map(_is_bought, config.policies.values())):
        return {}
    from gem_ma.evaluation.costs import costs

    return {"costs": costs(episodes(), prices_of(config))}


def prices_of(config: Config) -> dict[str, Callable[[Usage], float | None]]:
    """What a reply of each policy with a price cost, in USD."""
    from gem_ma.engines.http.budget import Price

    priced = {name: policy.options.get("price") for name, policy in config.policies.items()}
    prices = {name: Price.of(price, f"policy {name!r}") for name, price in priced.items()}
    return {name: price.of_usage for name, price in prices.items() if price is not None}


def other_models(config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """`{"other_models": {policy: {name: replies}}}`: where a server says that another model
    answered than the one that was asked; {} where none.

    A dated name of the same model (`gpt-4o` asked, `gpt-4o-2024-08-06` answered) counts too: it
    is what was measured.
    """
    answered = {}
    for name, models in summary.get("served", {}).items():
        # a record may name a policy that its config has no more
        if name not in config.policies or not _is_bought(config.policies[name]):
            continue
        asked = config.policies[name].model.partition("/")[2]
        # most servers answer with the name that was asked, some without the provider before it
        same = (asked, asked.rpartition("/")[2])
        others = {model: count for model, count in models.items() if model not in same}
        if others:
            answered[name] = others
    return {"other_models": answered} if answered else {}


def _is_bought(policy: PolicySettings) -> bool:
    """Whether a policy samples for money from weights that are somebody else's."""
    from gem_ma.engines.capabilities import Priced, Weighs, declares
    from gem_ma.registry import known, load

    kind = policy.model.partition("/")[0]
    if not known("engines", kind):  # code of a run folder, which reading does not run
        return False
    engine = load("engines", kind)
    return declares(engine, Priced) and not declares(engine, Weighs)
