"""A play as anybody could see it, and the first difference of two. It knows no rule and no
finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.envs.observation import encode
from gem_ma.kernel.types import Action


@dataclass(frozen=True, slots=True)
class Trace:
    """One play as anybody could see it: turns (agent, observation, legal, text), then what was
    left to see, and the ledger."""

    turns: tuple[tuple[str, tuple[dict[str, str], ...], tuple[str, ...] | None, str], ...]
    steps: tuple[int, ...]  # of the turns
    views: dict[str, tuple[dict[str, str], ...]]
    ledger: tuple[tuple[int, str, float, str], ...]
    tools: tuple[tuple[str, ...], ...]  # names offered, per turn
    left: tuple[str, ...]
    over: bool
    # of the turns, with their tool calls: what is played again is this and not the texts
    actions: tuple[Action, ...] = field(compare=False, repr=False)
    cut: tuple[str, ...] = ()  # of those who left, whose part the world cut

    @property
    def length(self) -> int:
        """Decision points."""
        return self.steps[-1] + 1 if self.steps else 0

    def totals(self, agents: Sequence[str]) -> dict[str, float]:
        sums = dict.fromkeys(agents, 0.0)
        for _, agent, value, _ in self.ledger:
            sums[agent] = sums.get(agent, 0.0) + value
        return sums


def trace(game: Any) -> Trace:
    """The play so far, out of its record and its transcripts."""
    agents = tuple(game.scenario.agents)
    views = {
        agent: tuple(encode(message, agent) for message in game.view(agent)) for agent in agents
    }
    # how much of its view each agent has been shown before its next turn
    counts = dict.fromkeys(agents, 0)
    turns = []
    steps = []
    tools = []
    for turn in game.turns:
        upto = counts[turn.agent] + len(turn.observed)
        turns.append((turn.agent, views[turn.agent][:upto], turn.legal, turn.action.text))
        steps.append(turn.step)
        tools.append(tuple(tool.name for tool in turn.tools))
        # its own action stands in its view, after what it was shown
        counts[turn.agent] = upto + 1
    ledger = tuple((entry.step, entry.agent, entry.value, entry.why) for entry in game.ledger)
    return Trace(
        tuple(turns),
        tuple(steps),
        views,
        ledger,
        tuple(tools),
        # sorted: a set, whose order depends on the process
        tuple(sorted(game.left)),
        bool(game.over),
        tuple(turn.action for turn in game.turns),
        # a kernel that is under test may know none
        tuple(sorted(getattr(game, "cut", ()))),
    )


def difference(first: Trace, other: Trace) -> tuple[str, str | None, int | None] | None:
    """(what, agent, step) of the first difference of two plays; None where they are the same."""
    # turn by turn first: the earliest difference explains those after it
    for number, (left, right) in enumerate(zip(first.turns, other.turns, strict=False)):
        if left != right:
            what = next(
                name
                for name, a, b in zip(
                    ("who is asked", "what is shown", "what is legal", "what is said"),
                    left,
                    right,
                    strict=True,
                )
                if a != b
            )
            return f"{what} differs: {_short(left, right)}", left[0], first.steps[number]
        if first.tools[number] != other.tools[number]:
            return "the tools offered differ", left[0], first.steps[number]
    if len(first.turns) != len(other.turns):
        return (
            f"one play has {len(first.turns)} turns, the other {len(other.turns)}",
            None,
            min(first.length, other.length),
        )
    if first.ledger != other.ledger:
        return (
            f"the ledgers differ: {str(first.ledger)[:120]} and {str(other.ledger)[:120]}",
            None,
            first.length,
        )
    for agent, view in first.views.items():
        if view != other.views.get(agent):
            return (
                f"what is shown differs: {_messages(view, other.views.get(agent, ()))}",
                agent,
                first.length,
            )
    if (first.over, first.left, first.cut) != (other.over, other.left, other.cut):
        return "one play is over, the other is not, or other agents have left", None, first.length
    return None


def _short(left: tuple[Any, ...], right: tuple[Any, ...]) -> str:
    if left[0] == right[0] and left[1] != right[1]:
        return _messages(left[1], right[1])
    return next(
        f"{str(a)[:100]!r} and {str(b)[:100]!r}" for a, b in zip(left, right, strict=True) if a != b
    )


def _messages(left: Sequence[dict[str, str]], right: Sequence[dict[str, str]]) -> str:
    for a, b in zip(left, right, strict=False):
        if a != b:
            return f"{a.get('content', '')[:100]!r} and {b.get('content', '')[:100]!r}"
    return f"{len(left)} and {len(right)} messages"
