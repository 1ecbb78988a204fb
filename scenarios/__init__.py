"""The scenarios that come with gem_ma: id -> "module:Class"."""

if __name__ != "gem_ma.scenarios":
    raise ImportError(f"import this package as gem_ma.scenarios, not {__name__}")

CATALOG = {
    "arithmetic": "gem_ma.scenarios.arithmetic:Arithmetic",
    "auction": "gem_ma.scenarios.parties.auction:Auction",
    "code": "gem_ma.scenarios.code.scenario:Code",
    "commons": "gem_ma.scenarios.parties.commons:Commons",
    "crosswords": "gem_ma.scenarios.games.crosswords:Crosswords",
    "dilemma": "gem_ma.scenarios.dilemma:Dilemma",
    "fifteen_puzzle": "gem_ma.scenarios.games.fifteen_puzzle:FifteenPuzzle",
    "game2048": "gem_ma.scenarios.games.game2048:Game2048",
    "guess_number": "gem_ma.scenarios.guess_number:GuessNumber",
    "hangman": "gem_ma.scenarios.games.hangman:Hangman",
    "hanoi": "gem_ma.scenarios.games.hanoi:Hanoi",
    "kuhn_poker": "gem_ma.scenarios.kuhn_prices:PricedKuhn",
    "market": "gem_ma.scenarios.parties.market:Market",
    "mastermind": "gem_ma.scenarios.games.mastermind:Mastermind",
    "matrix": "gem_ma.scenarios.parties.matrix:Matrix",
    "minesweeper": "gem_ma.scenarios.games.minesweeper:Minesweeper",
    "negotiation": "gem_ma.scenarios.parties.negotiation:Negotiation",
    "network": "gem_ma.scenarios.parties.network:Network",
    "questions": "gem_ma.scenarios.questions.scenario:Questions",
    "referential": "gem_ma.scenarios.referential:Referential",
    "retail": "gem_ma.scenarios.service_desk.retail.scenario:Retail",
    "retail_one_order": "gem_ma.scenarios.service_desk.retail.counter:RetailOneOrder",
    "shapes": "gem_ma.scenarios.shapes:Shapes",
    "sokoban": "gem_ma.scenarios.games.sokoban:Sokoban",
    "stop_or_go": "gem_ma.scenarios.stop_or_go:StopOrGo",
    "sudoku": "gem_ma.scenarios.games.sudoku:Sudoku",
    "terminal": "gem_ma.scenarios.terminal.scenario:Terminal",
    "tic_tac_toe": "gem_ma.scenarios.tic_tac_toe:TicTacToe",
    "werewolf": "gem_ma.scenarios.parties.werewolf:Werewolf",
    "word_search": "gem_ma.scenarios.games.word_search:WordSearch",
    "wordle": "gem_ma.scenarios.games.wordle:Wordle",
}
