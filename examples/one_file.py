"""The whole method in one file: self-play on Kuhn poker with numpy and this library's kernel.

    python examples/one_file.py [--steps 500] [--seed 0]

One softmax table plays both sides. Every step: (1) play a batch of hands, (2) credit each turn with
the rewards that follow it, (3) turn returns into advantages and take a gradient step, (4) play on
with the new table, (5) record. `gem-ma train kuhn_table` does the same with the parts of the
library: seats, leagues, language models, checkpoints.

The score is exact: NashConv, what the two players could gain in all by best replies, in chips; 0 is
an equilibrium. The table of now cycles around it, the average of all tables approaches it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gem_ma import Game, make
from gem_ma.scores.exploitability import exploitability

HANDS = 128  # of a step
RATE, ENTROPY, NOISE = 8.0, 0.05, 1e-8


@dataclass
class Turn:
    """One decision: what was seen, the move that was drawn, and what was paid afterwards."""

    seen: str
    move: int
    moves: int
    reward_to_go: float = 0.0


class Table:
    """A softmax policy: logits of the moves by what an agent has seen so far."""

    def __init__(self) -> None:
        self.logits: dict[str, np.ndarray] = {}
        self.sums: dict[str, np.ndarray] = {}  # of all probabilities that were played

    def probabilities(self, seen: str, moves: int) -> np.ndarray:
        logits = self.logits.setdefault(seen, np.zeros(moves))
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def remember(self) -> None:
        """Adds the table of now to its average."""
        for seen, logits in self.logits.items():
            now = self.probabilities(seen, len(logits))
            self.sums[seen] = self.sums.get(seen, np.zeros(len(logits))) + now

    def average(self, seen: str, moves: int) -> np.ndarray:
        sums = self.sums.get(seen, np.ones(moves))
        return sums / sums.sum()


def key(view: Sequence) -> str:
    """What an agent has seen and done, as one string: its information set."""
    return " | ".join(f"{message.sender}: {message.text}" for message in view)


def play_hand(game: Game, table: Table, rng: np.random.Generator) -> dict[str, list[Turn]]:
    """Plays one hand to its end. The kernel shows each agent only what it may see."""
    turns: dict[str, list[Turn]] = {agent: [] for agent in game.scenario.agents}
    paid = 0  # entries of the reward ledger that are credited already
    while True:
        # A reward belongs to every earlier turn of its agent: gamma is 1.
        for entry in game.ledger[paid:]:
            for turn in turns[entry.agent]:
                turn.reward_to_go += entry.value
        paid = len(game.ledger)
        if not game.pending:  # the hand is over
            return turns
        said = {}
        for agent, asked in game.pending.items():
            seen, moves = key(game.view(agent)), len(asked.legal)
            move = int(rng.choice(moves, p=table.probabilities(seen, moves)))
            turns[agent].append(Turn(seen, move, moves))
            said[agent] = asked.legal[move]
        game.send(said)


def advantages(turns: list[Turn]) -> np.ndarray:
    """Return Batch Normalization (GEM, arXiv 2510.01051), within each information set: the
    returns less their mean. All are divided by their common spread, so the rate fits any stakes."""
    returns = np.array([turn.reward_to_go for turn in turns])
    groups: dict[str, list[int]] = {}
    for index, turn in enumerate(turns):
        groups.setdefault(turn.seen, []).append(index)
    centred = returns.copy()
    for indices in groups.values():
        centred[indices] -= returns[indices].mean()
    return centred / (returns.std() + NOISE)


def update(table: Table, turns: list[Turn], pulls: np.ndarray, rate: float) -> None:
    """REINFORCE with an entropy bonus: one gradient step on the mean over all turns."""
    gradients = {seen: np.zeros_like(logits) for seen, logits in table.logits.items()}
    for turn, pull in zip(turns, pulls, strict=True):
        chances = table.probabilities(turn.seen, turn.moves)
        # d log p(move) / d logits is (one-hot of the move) - p
        gradient = -pull * chances
        gradient[turn.move] += pull
        logs = np.log(chances)
        # d entropy / d logits is -p (log p + entropy)
        gradient -= ENTROPY * chances * (logs - chances @ logs)
        gradients[turn.seen] += gradient / len(turns)
    for seen, gradient in gradients.items():
        table.logits[seen] += rate * gradient


def nash_conv(scenario, policy) -> float:
    """Exact, in chips: the game is small enough to list."""

    def strategy(agent: str, view: Sequence, legal: Sequence[str]) -> Sequence[float]:
        return policy(key(view), len(legal))

    return exploitability(scenario, strategy).nash_conv


def main() -> None:
    parser = argparse.ArgumentParser(description="Self-play on Kuhn poker in one file.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    scenario, table = make("kuhn_poker"), Table()
    rng = np.random.default_rng(options.seed)
    print("step  NashConv of now  of the average")
    for step in range(options.steps):
        turns: list[Turn] = []
        for hand in range(HANDS):
            seed = options.seed * 10**9 + step * HANDS + hand
            played = play_hand(Game(scenario, seed=seed), table, rng)  # 1 play, 2 credit
            turns += [turn for own in played.values() for turn in own]
        rate = RATE * (1 - 0.7 * step / options.steps)  # a falling rate narrows the cycle
        update(table, turns, advantages(turns), rate)  # 3 update; 4: the table is what plays
        table.remember()
        if (step + 1) % max(1, options.steps // 5) == 0:  # 5 record
            now = nash_conv(scenario, table.probabilities)
            print(f"{step + 1:4}  {now:15.3f}  {nash_conv(scenario, table.average):14.3f}")


if __name__ == "__main__":
    main()
