"""What was paid, by turn: the reward ledger of an episode, folded into rewards and returns of one
agent's own turns. Here too: the table of turns, and estimators.

Imports records and settings; pure numpy. Axes: N trained turns of a batch, K own turns of one agent
in one episode. An agent that calls a tool is asked again, so a tool call is a turn, and gamma
discounts over own turns: not over tokens, not over steps.

Rules, by which entries turn k of agent i receives, when i acted at steps s_1 < ... < s_K:

- until_next_turn: everything paid to i from step s_k up to just before s_(k+1); the last turn takes
  all that follows.
- own_step: only what is paid at step s_k; the rest is reported as `elsewhere`.
- terminal_to_last: everything from s_1 on, on the last turn.
- team_mix(w): first v_i <- (1-w) v_i + w mean_team(v) entry by entry, then until_next_turn; keeps
  the sum of each team.

What is paid before s_1 belongs to no turn (no action of i caused it) and is kept in `before`.

Decisions: docs/decisions.md#credit
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import Truncated, mix_of
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError

__all__ = ["Credit", "Gamma", "credit", "discount_of", "returns", "turns"]

# of sums of floats, relative to what was paid; see `_check_sum`
TOLERANCE = 1e-9
Gamma = float | Mapping[str, float]
Team = Sequence[str] | Callable[[Episode, str], str]


class Credit(NamedTuple):
    """The rewards [K] of one agent's own turns, what was paid before its first turn, and what
    `own_step` leaves out."""

    rewards: NDArray[np.float64]
    before: float
    elsewhere: float


def credit(
    episode: Episode, agent: str, rule: str = "until_next_turn", team: Team | None = None
) -> Credit:
    """Folds the ledger into the rewards of the agent's own turns. An agent that never acted has no
    rewards and all in `before`.

    `team` is who shares under team_mix (default: the whole cast); or a scenario's `team`, so that
    each of its teams shares, and who has none keeps what it is paid.
    """
    steps = [turn.step for turn in episode.turns if turn.agent == agent]
    mix = _mix(rule)
    sharing = _teams(episode, team).get(agent, ())
    rewards: list[list[float]] = [[] for _ in steps]
    before: list[float] = []
    elsewhere: list[float] = []
    for step, value in _paid(episode, agent, mix, sharing):
        # the last own turn at or before this step: an entry never pays a turn that comes after it
        k = int(np.searchsorted(steps, step, side="right")) - 1
        if k < 0:
            before.append(value)
        elif rule == "own_step" and steps[k] != step:
            elsewhere.append(value)
        else:
            rewards[-1 if rule == "terminal_to_last" else k].append(value)
    return Credit(
        # fsum: exact, so that the order of the ledger changes no advantage
        np.array([math.fsum(part) for part in rewards], np.float64),
        math.fsum(before),
        math.fsum(elsewhere),
    )


def returns(
    rewards: Sequence[float] | NDArray[np.float64], gamma: float = 1.0, tail_value: float = 0.0
) -> NDArray[np.float64]:
    """Discounted returns-to-go over own turns [K]: G_k = r_k + gamma G_(k+1), with G_(K+1) =
    tail_value.

    >>> [round(g, 2) for g in returns([-.1, -.1, 1], gamma=.9).tolist()]
    [0.62, 0.8, 1.0]
    """
    result = np.zeros(len(rewards))
    # float64, since gamma multiplies what is left at every turn of a long episode
    following = tail_value
    for k in range(len(rewards) - 1, -1, -1):
        following = result[k] = float(rewards[k]) + gamma * following
    return result


def turns(
    episodes: Sequence[Episode],
    policy: str,
    *,
    rule: str = "until_next_turn",
    gamma: Gamma = 1.0,
    team: Team | None = None,
    tails: Mapping[tuple[int, str], float] | None = None,
    truncated: str = "zero",
) -> TurnTable:
    """The table of all turns that train `policy`: its seats' turns that hold a reply sampled by it.
    Rows in the order of the record.

    Turns before an episode's last fork stand in the record of the play that was forked, and give
    no rows here. Credit and returns are taken over *all* own turns of the agent, trained or not.
    FAILED and INTERRUPTED episodes that seat the policy give no rows and are counted. Where an
    agent's part was cut (`Episode.goes_on`), the return continues with `tails[(episode index,
    agent)]` (a critic's value of the view as if it were asked now; absent or the agent had left:
    0); `truncated="drop"` leaves such episodes out instead, counted. Raises ConfigError for an
    unknown rule, an unusable gamma or an agent without one, ArithmeticError where reward is lost
    or made.
    """
    mix = _mix(rule)
    if truncated not in get_args(Truncated):
        raise ConfigError(f"truncated is {' or '.join(get_args(Truncated))}; got {truncated!r}")
    rows: list[dict[str, Any]] = []
    before: dict[tuple[int, str], float] = {}
    elsewhere: dict[tuple[int, str], float] = {}
    excluded: Counter[str] = Counter()
    for index, episode in enumerate(episodes):
        agents = [agent for agent, seat in episode.cast.items() if seat.policy == policy]
        if not agents:
            continue
        is_cut = episode.end.bootstraps or any(agent in episode.cut for agent in agents)
        if not episode.end.scored or (truncated == "drop" and is_cut):
            # counted by how they ended: a step that loses half must not look like a small one
            excluded[episode.end.value] += 1
            continue
        # a team's sum can only be checked over all of it
        whom = episode.cast if mix else agents
        shares = _teams(episode, team)
        folded = {agent: credit(episode, agent, rule, shares.get(agent, ())) for agent in whom}
        _check_sum(episode, folded, mix)
        fresh: list[dict[str, Any]] = []
        for agent in agents:
            part = folded[agent]
            before[index, agent] = part.before
            elsewhere[index, agent] = part.elsewhere
            # a part that came to its own end is worth nothing more
            tail = (tails or {}).get((index, agent), 0.0) if episode.goes_on(agent) else 0.0
            gains = returns(part.rewards, discount_of(gamma, agent), tail)
            fresh += _rows(index, episode, agent, policy, part, gains, tail)
        # stable: agents of one step keep the order of the cast
        rows += sorted(fresh, key=lambda row: int(row["step"]))
    return TurnTable.of(rows, before, elsewhere, excluded)


def _rows(
    index: int,
    episode: Episode,
    agent: str,
    policy: str,
    part: Credit,
    gains: NDArray[np.float64],
    tail: float,
) -> list[dict[str, Any]]:
    """The rows of one agent's turns that hold a reply of the policy."""
    alone = f"{episode.scenario}/{episode.id[0]}/{episode.seed}"
    group = alone if episode.group is None else episode.group
    total = math.fsum((*part.rewards, part.before, part.elsewhere))
    # turns before the last fork were sampled in the play that was forked, and are learned there
    first = max((step for step, _ in episode.forks), default=0)
    turns = [turn for turn in episode.turns if turn.agent == agent]
    same = {
        "source": episode,
        "episode": index,
        "agent": agent,
        "policy": policy,
        "group": group,
        "scenario": episode.world or episode.scenario,
        "task": episode.id[0],
        "K": len(turns),
        "total": total,
        "tail_value": tail,
        "value": 0.0,  # until a critic has
    }
    rows = []
    for k, turn in enumerate(turns):
        sampled = [reply for reply in turn.replies if reply.policy == policy]
        if not sampled or turn.step < first:
            continue
        rows.append(
            {
                **same,
                "turn": turn,
                "k": k,
                "step": turn.step,
                "reward": float(part.rewards[k]),
                "ret": float(gains[k]),
                "version": sampled[0].version,
                "cut": any(reply.finish == "length" for reply in sampled),
            }
        )
    return rows


def _teams(episode: Episode, team: Team | None) -> dict[str, Sequence[str]]:
    """Agent -> who shares with it, itself among them; one that shares with nobody is left out.
    Raises ConfigError for a team of strangers."""
    if callable(team):
        members: dict[str, list[str]] = {}
        for agent in episode.cast:
            members.setdefault(team(episode, agent), []).append(agent)
        return {agent: of for name, of in members.items() if name for agent in of}
    sharing = tuple(episode.cast if team is None else team)
    if strangers := [member for member in sharing if member not in episode.cast]:
        raise ConfigError(
            f"the team names {', '.join(strangers)}; agents of {episode.scenario} are"
            f" {', '.join(episode.cast)}"
        )
    return dict.fromkeys(sharing, sharing)


def _mix(rule: str) -> float:
    """The weight of team_mix, 0 for the other rules. Raises ConfigError."""
    try:
        return mix_of(rule)
    except ValueError as error:
        raise ConfigError(f"a credit rule {error}; got {rule!r}") from error


def _paid(episode: Episode, agent: str, mix: float, team: Sequence[str]) -> list[tuple[int, float]]:
    """(step, value) of every ledger entry that pays the agent, team shares included."""
    if not mix or agent not in team:
        return [(entry.step, entry.value) for entry in episode.ledger if entry.agent == agent]
    # team_mix over all members, the agent itself among them, keeps the team's sum
    share = mix / len(team)
    shared = [entry for entry in episode.ledger if entry.agent in team]
    return [(e.step, e.value * (share + (1 - mix if e.agent == agent else 0.0))) for e in shared]


def _check_sum(episode: Episode, folded: Mapping[str, Credit], mix: float) -> None:
    """No reward is lost or made: per agent, or over the team where it shares."""
    paid = {name: [e.value for e in episode.ledger if e.agent == name] for name in folded}
    sums = {n: [*part.rewards.tolist(), part.before, part.elsewhere] for n, part in folded.items()}
    if mix:
        paid = {"the cast": [v for part in paid.values() for v in part]}
        sums = {"the cast": [v for part in sums.values() for v in part]}
    for name, values in sums.items():
        difference = math.fsum(values) - math.fsum(paid[name])
        # `not <=` and no `>`: a NaN is caught too
        if not abs(difference) <= TOLERANCE * max(1.0, math.fsum(map(abs, paid[name]))):
            where = f"{episode.scenario}, episode {episode.id}"
            raise ArithmeticError(
                f"{where}: {name} was paid {math.fsum(paid[name])} and credited {math.fsum(values)}"
            )


def discount_of(gamma: Gamma, agent: str) -> float:
    """The discount of one agent. Raises ConfigError where there is none or it is not a share."""
    if isinstance(gamma, Mapping):
        if agent not in gamma:
            raise ConfigError(
                f"gamma names no value for agent {agent!r}; it has {', '.join(gamma) or 'none'}"
            )
        gamma = gamma[agent]
    if not 0 <= gamma <= 1:
        raise ConfigError(f"gamma of agent {agent!r} lies in 0..1; got {gamma}")
    return float(gamma)
