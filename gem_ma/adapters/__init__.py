"""Environments of other libraries as scenarios: `openspiel:kuhn_poker`, `gymnasium:FrozenLake-v1`.

`CATALOG` says which class opens what stands behind a prefix; it is called with the rest of the id
and the options, as `OpenSpiel("goofspiel", num_cards=4)`. An adapter imports its library when it
is made, never when it is listed, and each library is an extra of the prefix's name.
"""

CATALOG: dict[str, str] = {
    "openspiel": "gem_ma.adapters.openspiel:OpenSpiel",
    "reasoning_gym": "gem_ma.adapters.reasoning_gym:ReasoningGym",
}
