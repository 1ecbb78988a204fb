"""Alpha-rank and Nash averaging by OpenSpiel, for the tables that tests/scores/test_populations.py
reads: `make rankings` writes tests/scores/rankings.json."""

from __future__ import annotations

import json
from pathlib import Path

import cvxpy
import numpy as np
from open_spiel.python.algorithms import nash_averaging
from open_spiel.python.egt import alpharank

TIGHT = 1e-12  # cvxpy's own tolerances leave an error above 1e-6


def zero_sum(rng: np.random.Generator, count: int, whole: bool) -> np.ndarray:
    upper = np.triu(
        rng.integers(-3, 4, (count, count)) if whole else rng.normal(size=(count, count)), 1
    )
    return upper - upper.T


def tables() -> dict[str, list[np.ndarray]]:
    """Name -> one table of a symmetric game, or one for each population."""
    rng = np.random.default_rng(27)
    cycle = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    biased = np.array([[0.0, -0.5, 1.0], [0.5, 0.0, -0.1], [-1.0, 0.1, 0.0]])
    copied = np.zeros((4, 4))
    copied[:3, :3] = cycle
    copied[3, :3], copied[:3, 3] = cycle[2], cycle[:, 2]
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    made = {
        "rock paper scissors": [cycle],
        "biased rock paper scissors": [biased],
        "a copy of scissors": [copied],
        "transitive": [np.subtract.outer(np.arange(4.0), np.arange(4.0))],
        "prisoner's dilemma": [np.array([[3.0, 0.0], [5.0, 1.0]])],
        "matching pennies": [pennies, -pennies],
        "battle of the sexes": [np.diag([3.0, 2.0]), np.diag([2.0, 3.0])],
        "random, of one population": [rng.normal(size=(6, 6))],
        "random, of 3 x 4": [rng.normal(size=(3, 4)), rng.normal(size=(3, 4))],
        "random, of 2 x 3 x 2": [rng.normal(size=(2, 3, 2)) for _ in range(3)],
    }
    for count in (2, 3, 5, 8, 12):
        made[f"zero-sum, {count}"] = [zero_sum(rng, count, whole=False)]
        made[f"zero-sum in whole numbers, {count}"] = [zero_sum(rng, count, whole=True) + 0.0]
    return made


def rank(payoffs: list[np.ndarray]) -> dict[str, object]:
    found: dict[str, object] = {"tables": [one.tolist() for one in payoffs], "alpha_rank": []}
    shape = payoffs[0].shape[:1] if len(payoffs) == 1 else payoffs[0].shape
    for alpha, agents, noise in (
        (0.1, 50, None),
        (1.0, 10, None),
        (None, 50, 0.01),
        (None, 50, 0.2),
    ):
        options = {"use_inf_alpha": True, "inf_alpha_eps": noise} if noise else {"alpha": alpha}
        try:
            shares = alpharank.compute(payoffs, m=agents, **options)[2]
        except ValueError as error:  # of a chain that OpenSpiel cannot tell from two
            print(f"left out: alpha {alpha}: {error}")
            continue
        row = {"alpha": alpha, "agents": agents, "noise": noise}
        found["alpha_rank"].append({**row, "shares": shares.reshape(shape).tolist()})
    if len(payoffs) == 1 and np.array_equal(payoffs[0], -payoffs[0].T):
        weights = nash_averaging._max_entropy_symmetric_nash(payoffs[0], eps=0.0)[:, 0]
        found["nash"] = {"weights": weights.tolist(), "skills": (payoffs[0] @ weights).tolist()}
    return found


def main() -> None:
    solve = cvxpy.Problem.solve
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TIGHT)
    cvxpy.Problem.solve = lambda problem: solve(problem, solver=cvxpy.CLARABEL, **tight)
    made = {name: rank(payoffs) for name, payoffs in tables().items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in made.items())
    out = Path(__file__).parent.parent / "scores" / "rankings.json"
    out.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
