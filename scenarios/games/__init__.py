"""Twelve games for one agent, after those of GEM (gem-llm): the same rules, moves and sizes, with
`success` for winning only. `solo` holds what they share."""
