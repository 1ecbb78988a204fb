"""Players of the games for one agent (`gem_ma.scenarios.games`): for each a simple heuristic and a
strong player, which read the texts as a model does; random legal play is `random_legal`."""
