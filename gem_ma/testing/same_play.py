"""An environment's episode beside the kernel's, under the same seed and words: same turns, same
sums, same ends (rules 3, 4, 6, 7 and 9). It knows episodes as they were seen, not how they were
played.
"""

from __future__ import annotations

from collections.abc import Mapping

from gem_ma.testing.kit import Kit
from gem_ma.testing.traces import Trace
from gem_ma.testing.watch import Played, messages_of


def compare(kit: Kit, name: str, played: Played, known: Trace, seed: int) -> None:
    """An environment's episode beside the kernel's."""
    for number, (turn, expected) in enumerate(zip(played.turns, known.turns, strict=False)):
        step = known.steps[number]
        # after the first difference the plays are different ones, and all that follows would be
        # told too
        if turn[0] != expected[0]:
            message = (
                f"{name}: the agents act in the kernel's order; {turn[0]} acts where {expected[0]}"
                " is asked"
            )
            kit.fail(9, message, agent=turn[0], step=step, seed=seed, key=(name, "order"))
            break
        if turn[1] != expected[1]:
            _wrong_observation(kit, name, turn[0], played, known, step, seed)
            break
        if turn[2] != expected[2]:
            message = (
                f"{name}: the mask is what the Ask calls legal; got {turn[2]}, not {expected[2]}"
            )
            kit.fail(9, message, agent=turn[0], step=step, seed=seed, key=(name, "mask"))
            break
    else:
        if len(played.turns) != len(known.turns):
            message = (
                f"{name}: an episode has the kernel's turns; {len(played.turns)} instead of"
                f" {len(known.turns)}"
            )
            kit.fail(9, message, step=known.length, seed=seed, key=(name, "turns"))
        for agent, observation in played.final.items():
            if messages_of(observation) != known.views.get(agent):
                _wrong_observation(kit, name, agent, played, known, known.length, seed)
                break
    # an environment may add rewards in another order, and sums round otherwise then
    totals = known.totals(kit.agents)
    for agent, total in totals.items():
        got = played.totals.get(agent, 0.0)
        if agent in played.totals and abs(got - total) > 1e-9 * max(1.0, abs(total)):
            message = (
                f"{name}: an agent's rewards sum to its entries in the ledger, {total:g}; got"
                f" {got:g}"
            )
            kit.fail(7, message, agent=agent, seed=seed, key=(name, "sum"))
    for agent, how in played.ended.items():
        by_rule = (known.over or agent in known.left) and agent not in known.cut
        expected_end = "terminated" if by_rule else "truncated"
        if how != expected_end:
            message = (
                f"{name}: a play that ends by itself terminates its agents, a limit truncates them;"
                f" {how}, not {expected_end}"
            )
            kit.fail(6, message, agent=agent, seed=seed, key=(name, "how"))


def _foreign(kit: Kit, name: str, played: Played, known: Trace, seed: int) -> None:
    """Rule 4: whatever is wrong with observations, none holds what only another agent was shown."""
    contents = {
        agent: {message["content"] for message in view} for agent, view in known.views.items()
    }
    seen = [(turn[0], turn[1]) for turn in played.turns] + [
        (agent, messages_of(observation)) for agent, observation in played.final.items()
    ]
    for agent, observation in seen:
        foreign = set().union(
            *(texts for other, texts in contents.items() if other != agent)
        ) - contents.get(agent, set())
        if any(
            isinstance(message, Mapping) and message.get("content") in foreign
            for message in observation or ()
        ):
            kit.fail(
                4,
                f"{name}: nobody sees what only another is shown",
                agent=agent,
                seed=seed,
                key=(name, "foreign"),
            )
            return


def _wrong_observation(
    kit: Kit, name: str, agent: str, played: Played, known: Trace, step: int, seed: int
) -> None:
    message = f"{name}: an observation is the agent's transcript, nothing more, less or older"
    kit.fail(3, message, agent=agent, step=step, seed=seed, key=(name, "transcript"))
    kit.fail(
        9,
        f"{name}: all environments show an agent the same",
        agent=agent,
        step=step,
        seed=seed,
        key=(name, "shown"),
    )
    _foreign(kit, name, played, known, seed)
