"""The scenarios that come with gem_ma: id -> "module:Class"."""

if __name__ != "gem_ma.scenarios":
    raise ImportError(f"import this package as gem_ma.scenarios, not {__name__}")

CATALOG = {
    "dilemma": "gem_ma.scenarios.dilemma:Dilemma",
    "kuhn_poker": "gem_ma.scenarios.kuhn:Kuhn",
    "referential": "gem_ma.scenarios.referential:Referential",
    "retail": "gem_ma.scenarios.retail.scenario:Retail",
    "retail_one_order": "gem_ma.scenarios.retail.counter:RetailOneOrder",
}
