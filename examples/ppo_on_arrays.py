"""PPO in one file, in the manner of CleanRL, on a game of this library: a baseline without texts.

    python examples/ppo_on_arrays.py [--steps 65536] [--seed 0]

`gem_ma.discrete` gives numbered actions with a mask, and a vector of what the agent sees. Eight
copies are stepped side by side; x plays tic-tac-toe against a random o. Needs torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

import gem_ma

COPIES, LENGTH, EPOCHS, MINIBATCH = 8, 128, 6, 256
GAMMA, LAMBDA, CLIP, ENTROPY, LEARNING_RATE = 1.0, 0.95, 0.2, 0.005, 1e-3


def game() -> gymnasium.Env[Any, Any]:
    return gem_ma.discrete("tic_tac_toe", agent="x", others={"o": "random_legal"}, window=16)


class Player(nn.Module):
    """A policy and a value on one vector [width]."""

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()

        def net(outputs: int) -> nn.Module:
            hidden = [nn.Linear(width, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
            return nn.Sequential(*hidden, nn.Linear(128, outputs))

        self.policy, self.value = net(actions), net(1)

    def choose(self, vectors: torch.Tensor, masks: torch.Tensor) -> Categorical:
        # an illegal action has no probability, and no gradient
        return Categorical(logits=self.policy(vectors).masked_fill(~masks, -1e9))


def advantages(paid: Any, ended: Any, values: Any, last: Any) -> torch.Tensor:
    """Generalised advantage estimates [LENGTH, COPIES] (Schulman et al. 2016)."""
    made, carried = torch.zeros_like(values), torch.zeros(COPIES)
    for step in reversed(range(LENGTH)):
        after = values[step + 1] if step + 1 < LENGTH else last
        goes_on = 1.0 - ended[step]
        surprise = paid[step] + GAMMA * after * goes_on - values[step]
        made[step] = carried = surprise + GAMMA * LAMBDA * goes_on * carried
    return made


def update(player: Player, optimizer: torch.optim.Optimizer, batch: dict[str, Any]) -> None:
    """Some epochs of the clipped objective over a batch of LENGTH * COPIES turns."""
    count = len(batch["actions"])
    for _ in range(EPOCHS):
        for rows in torch.randperm(count).split(MINIBATCH):
            choice = player.choose(batch["vectors"][rows], batch["masks"][rows])
            ratio = (choice.log_prob(batch["actions"][rows]) - batch["logprobs"][rows]).exp()
            gain = batch["advantages"][rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            value = player.value(batch["vectors"][rows]).squeeze(-1)
            loss = -torch.min(ratio * gain, clipped * gain).mean()
            loss = loss + 0.5 * (value - batch["returns"][rows]).pow(2).mean()
            loss = loss - ENTROPY * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(player.parameters(), 0.5)
            optimizer.step()


def learn(steps: int, seed: int) -> list[float]:
    """The mean return of x in each batch, while it learns."""
    torch.manual_seed(seed)
    # reset within the step that ended a game: no turn of a batch is an empty one
    envs = SyncVectorEnv([game] * COPIES, autoreset_mode=AutoresetMode.SAME_STEP)
    player = Player(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(player.parameters(), lr=LEARNING_RATE)
    seen, info = envs.reset(seed=seed)
    curve = []
    for _ in range(steps // (LENGTH * COPIES)):
        rows: dict[str, list[torch.Tensor]] = {}
        for _ in range(LENGTH):
            vectors = torch.as_tensor(np.asarray(seen), dtype=torch.float32)
            masks = torch.as_tensor(np.stack(info["action_mask"])).bool()
            with torch.no_grad():
                choice = player.choose(vectors, masks)
                actions = choice.sample()
                values = player.value(vectors).squeeze(-1)
            seen, paid, terminated, truncated, info = envs.step(actions.numpy())
            ended = torch.as_tensor(terminated | truncated).float()
            turn = {"vectors": vectors, "masks": masks, "actions": actions, "values": values}
            turn |= {"logprobs": choice.log_prob(actions), "ended": ended}
            turn["paid"] = torch.as_tensor(paid, dtype=torch.float32)
            for name, value in turn.items():
                rows.setdefault(name, []).append(value)
        batch = {name: torch.stack(values) for name, values in rows.items()}
        with torch.no_grad():
            last = player.value(torch.as_tensor(np.asarray(seen), dtype=torch.float32)).squeeze(-1)
        gains = advantages(batch["paid"], batch["ended"], batch["values"], last)
        batch |= {"advantages": gains, "returns": gains + batch["values"]}
        curve.append(float(batch["paid"].sum() / batch["ended"].sum()))
        update(player, optimizer, {name: values.flatten(0, 1) for name, values in batch.items()})
    envs.close()
    return curve


def main(words: Sequence[str] | None = None) -> float:
    """Prints the curve and gives its end: the mean of the last four batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=65_536)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    curve = learn(asked.steps, asked.seed)
    for number in range(0, len(curve), max(1, len(curve) // 8)):
        print(f"{number * LENGTH * COPIES:>8} turns  return of x {curve[number]:.3f}")
    end = float(np.mean(curve[-4:]))
    print(f"     end  return of x {end:.3f}")
    return end


if __name__ == "__main__":
    main()
