"""What one policy sampled, as other trainers take it: one sample per seat and row, with ids, mask,
log-probabilities, rewards and advantages per token.

>>> from gem_ma import credit, estimators
>>> table = credit.turns([], "player")  # of recorded episodes
>>> samples(table, estimators.estimate("rebn", table)[0], "player")
[]

Axes: P ids of the prompt, T ids of the response. Three facts hold for every list of samples:

- The mask covers each id that the policy sampled exactly once, and no other id.
- A frozen seat, a person and a script give no sample.
- Per agent and episode, `token_rewards` and `unplaced` sum to what the ledger paid the agent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_ma.credit.table import TurnTable
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.rows import Bound, Row, rows


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A prompt [P] and what followed it [T]: sampled ids and, between them, what others said and
    what the chat template wrote.

    An agent whose history was rewritten (a window, a summary) has several rows in one episode:
    `part` counts them from 0, `parts` says how many there are. `unplaced` is what the agent was
    paid without a sampled id to pay it to: before its first turn, or at a turn that something
    else took for it. It stands at part 0.
    """

    agent: str
    policy: str
    episode: tuple[str, int, int]  # task, seed, repeat: the id of the plan
    scenario: str
    group: str  # episodes that an estimator compares
    part: int
    parts: int
    prompt_ids: NDArray[np.int64]  # [P]
    response_ids: NDArray[np.int64]  # [T]
    mask: NDArray[np.bool_]  # [T]: sampled by the policy, so trained
    logprobs: NDArray[np.float64]  # [T]: nats, as sampled; 0 off the mask
    token_rewards: NDArray[np.float64]  # [T]: a turn's reward, on its last sampled id
    token_advantages: NDArray[np.float64]  # [T]: a turn's advantage, on each of its sampled ids
    turn: NDArray[np.int64]  # [T]: the agent's own turns, counted from 0; -1 off the mask
    version: NDArray[np.int64]  # [T]: of the weights that sampled; -1 off the mask
    unplaced: float
    total: float  # what the agent was paid in the whole episode
    truncated: bool  # the agent's part was cut, so a return would go on
    restricted: bool  # some id was sampled among a part of the vocabulary only


def samples(
    table: TurnTable,
    advantages: Sequence[float] | NDArray[np.float64],
    policy: str,
    bound: Bound | None = None,
) -> list[Sample]:
    """The samples of a policy, from its turns [N] and one advantage for each [N]; rows of one
    agent follow each other.

    `bound` is that of the policy's engine, where it constrains what is sampled. Raises what
    `rows` raises: ConfigError for a reply without ids or log-probabilities, DataError where the
    two do not fit together, ValueError where the lengths differ; and ConfigError for images.
    """
    _check_words(table, policy)
    made = rows(table, advantages, policy, bound).rows
    seats = [_seat(row, table) for row in made]
    # a turn of several model calls is paid once, in the row where its last call stands
    paid_in = {turn: number for number, row in enumerate(made) for turn in set(_turns(row))}
    placed: dict[tuple[int, str], list[float]] = {seat: [] for seat in seats}
    for turn, number in paid_in.items():
        placed[seats[number]].append(float(table.reward[turn]))
    result = []
    parts = dict.fromkeys(seats, 0)
    for number, (row, seat) in enumerate(zip(made, seats, strict=True)):
        paid = [turn for turn in set(_turns(row)) if paid_in[turn] == number]
        part = (parts[seat], seats.count(seat))
        result.append(_sample(row, table, paid, part, math.fsum(placed[seat])))
        parts[seat] += 1
    return result


def _check_words(table: TurnTable, policy: str) -> None:
    """Raises ConfigError for a prompt that shows images: a row is ids alone, and who learns from
    it would score the words as if nothing had been seen."""
    for turn, episode in zip(table.turns, table.episodes, strict=True):
        if any(reply.policy == policy and reply.images for reply in turn.replies):
            raise ConfigError(
                f"policy {policy!r}, episode {episode.id}, agent {turn.agent!r}: its prompts show"
                " images, which other trainers are not handed; play it without them, or train with"
                " gem-ma train"
            )


def _turns(row: Row) -> list[int]:
    """Of each sampled id of a row, the number of its turn in the table."""
    numbers: list[int] = row.turn[row.mask].tolist()
    return numbers


def _seat(row: Row, table: TurnTable) -> tuple[int, str]:
    turn = _turns(row)[0]
    return int(table.episode[turn]), str(table.agent[turn])


def _sample(
    row: Row, table: TurnTable, paid: Sequence[int], part: tuple[int, int], placed: float
) -> Sample:
    """The sample of a row; `paid` are the turns whose reward belongs here, `placed` what the seat
    was paid in all of its rows."""
    start = int(row.mask.argmax())
    mask = row.mask[start:]
    turns = row.turn[start:]
    rewards = np.zeros(len(mask))
    for turn in paid:
        rewards[np.flatnonzero(turns == turn)[-1]] = table.reward[turn]
    first = _turns(row)[0]
    episode = table.episodes[first]
    total = float(table.total[first])
    return Sample(
        agent=str(table.agent[first]),
        policy=str(table.policy[first]),
        episode=row.episode,
        scenario=str(table.scenario[first]),
        group=str(table.group[first]),
        part=part[0],
        parts=part[1],
        prompt_ids=row.ids[:start],
        response_ids=row.ids[start:],
        mask=mask,
        logprobs=row.logprob[start:],
        token_rewards=rewards,
        token_advantages=row.advantage[start:],
        turn=np.where(mask, table.k[turns], -1),
        version=np.where(mask, row.version[start:], -1),
        unplaced=total - placed if part[0] == 0 else 0.0,
        total=total,
        truncated=episode.goes_on(str(table.agent[first])),
        restricted=any(row.allowed),
    )
