"""What a run's model calls cost, and which models answered them, for the summaries of `run`,
`study` and `show`.

`recorded` is the summary that the run has written and is given by whoever only reads its folder:
an engine that is code of the folder is not loaded then, and is what the run said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.config.playing import PolicySettings
from gem_ma.config.settings import Config
from gem_ma.engines.capabilities import Priced, Weighs, declares
from gem_ma.engines.endpoint.endpoint import Price
from gem_ma.kernel.types import Usage
from gem_ma.registry import known, load
from gem_ma.scores.columns import costs
from gem_ma.scores.rows import PlayRow, last_attempts, usages_in


def costs_of(
    config: Config,
    rows: Iterable[PlayRow],
    recorded: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`{"costs": ...}` by agent of the plays of these rows, with the prices that the config names;
    {} where no policy is at an endpoint or has a price."""
    priced = {name: policy.options.get("price") for name, policy in config.policies.items()}
    # without a price the tokens are still worth telling
    is_bought = any(_is_bought(policy, recorded is None) for policy in config.policies.values())
    if not any(priced.values()) and not is_bought and "costs" not in (recorded or {}):
        return {}

    used = map(usages_in, last_attempts(rows))
    return {"costs": costs(used, prices_of(config))}


def prices_of(config: Config) -> dict[str, Callable[[Usage], float | None]]:
    """What a reply of each policy with a price cost, in USD."""
    return prices_in({name: policy.options for name, policy in config.policies.items()})


def prices_in(
    policies: Mapping[str, Mapping[str, Any]],
) -> dict[str, Callable[[Usage], float | None]]:
    """The same, by the settings of the policies: they are known where the config cannot be made,
    since its scenario is code of the folder."""
    priced = {name: settings.get("price") for name, settings in policies.items()}
    prices = {name: Price.of(price, f"policy {name!r}") for name, price in priced.items()}
    return {name: price.of_usage for name, price in prices.items() if price is not None}


def other_models(
    config: Config, summary: Mapping[str, Any], recorded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`{"other_models": {policy: {name: replies}}}`: where a server says that another model
    answered than the one that was asked; {} where none.

    A dated name of the same model (`gpt-4o` asked, `gpt-4o-2024-08-06` answered) counts too: it
    is what was measured.
    """
    answered = {}
    known_to_differ = (recorded or {}).get("other_models") or ()
    for name, models in summary.get("served", {}).items():
        # a record may name a policy that its config has no more
        if name not in config.policies:
            continue
        if name not in known_to_differ and not _is_bought(config.policies[name], recorded is None):
            continue
        asked = config.policies[name].model.partition("/")[2]
        # most servers answer with the name that was asked, some without the provider before it
        same = (asked, asked.rpartition("/")[2])
        others = {model: count for model, count in models.items() if model not in same}
        if others:
            answered[name] = others
    return {"other_models": answered} if answered else {}


def _is_bought(policy: PolicySettings, runs_code: bool) -> bool:
    """Whether a policy samples for money from weights that are somebody else's; False for an
    engine that could not be asked without running what a config names, unless that is wanted."""
    kind = policy.model.partition("/")[0]
    if not runs_code and not known("engines", kind):
        return False
    engine = load("engines", kind)
    return declares(engine, Priced) and not declares(engine, Weighs)
