"""Scenarios around scenarios, for any rules: `scenario.wrappers: [{retry: 2}, {time_limit: 50}]`,
or `make("kuhn_poker", wrappers=[...])`.

The first stands next to the rules, each further one around those before it. id -> "module:Class";
a class is called as `Class(inner, **options)`, or with one value where that is all that is typed.
"""

# names as text, so that none is imported before it is used
CATALOG = {
    "retry": "gem_ma.wrappers.retry:Retry",
    "reward": "gem_ma.wrappers.reward:reward",
    "teamwork": "gem_ma.wrappers.teamwork:Teamwork",
    "time_limit": "gem_ma.wrappers.around:TimeLimit",
    "hide_names": "gem_ma.wrappers.hide_names:HideNames",
}
