"""The scenarios that come with gem_ma: id -> "module:Class"."""

if __name__ != "gem_ma.scenarios":
    raise ImportError(f"import this package as gem_ma.scenarios, not {__name__}")

CATALOG = {
    "dilemma": "gem_ma.scenarios.dilemma:Dilemma",
    "guess_number": "gem_ma.scenarios.guess_number:GuessNumber",
    "kuhn_poker": "gem_ma.scenarios.kuhn_prices:PricedKuhn",
    "referential": "gem_ma.scenarios.referential:Referential",
    "retail": "gem_ma.scenarios.retail.scenario:Retail",
    "retail_one_order": "gem_ma.scenarios.retail.counter:RetailOneOrder",
    "stop_or_go": "gem_ma.scenarios.stop_or_go:StopOrGo",
    "tic_tac_toe": "gem_ma.scenarios.tic_tac_toe:TicTacToe",
}
