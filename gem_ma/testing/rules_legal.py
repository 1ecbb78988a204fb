"""Rule 10 on the kernel: legal strings are distinct texts, and each can be played."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.parsing.text import fold
from gem_ma.kernel.types import Action
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.traces import Trace

PLAIN = ("first", "random", "mixed")
LEGAL_S = 2.0  # CPU time after which no further decision point is tried string by string
NONSENSE = "zq#0"  # what no scenario takes

# How a scenario says no. One that answers a legal string like nonsense may still take it, where
# its answer never changes: only a refusal in words is held against it.
_REFUSAL = re.compile(
    r"illegal|invalid|unreadable|no such|you (?:cannot|can't) (?:do|say|play|choose) (?:that|this)"
    r"|not (?:an? )?(?:legal|allowed|valid|possible|permitted|understood|readable|accepted)"
    r"|not (?:an? )?recogni[sz]ed|try again|please (?:answer|choose|use|say)"
    r"|(?:that|this) (?:is not?|isn't) |wrong (?:format|move|answer)",
    re.IGNORECASE,
)
# As often these tell what is true in the game ("X is not a wolf"):
# a refusal where they name the act.
_OF_THE_ACT = re.compile(
    r"is not? |isn't|cannot|can't|refus|unknown|unclear|once more|must be", re.IGNORECASE
)
_ACT = "\0"  # in the place of what was said


def legal_strings(kit: Kit) -> None:
    """Rule 10: legal strings are distinct after folding, the parser reads each, and the scenario
    takes each."""
    # plays of single strings, over all seeds
    budget = 400
    started = time.process_time()
    closed = False
    seen: set[Any] = set()
    for seed, _, play in kit.plays(PLAIN):
        for (agent, _, legal, _), step in zip(play.turns, play.steps, strict=True):
            if legal is None:
                continue
            closed = True
            # reading a list does not depend on the play
            if legal not in seen:
                seen.add(legal)
                _readable(kit, legal, agent, step, seed)
            if (
                budget > 0
                and time.process_time() - started < LEGAL_S
                and (legal, agent, step) not in seen
            ):
                seen.add((legal, agent, step))
                # each string costs a play; a list of hundreds would take all the time
                budget -= min(len(legal), 24)
                with suppress(Failed):
                    _takes_each(kit, play, agent, step, seed, legal)
    if not closed:
        kit.skip(10, "no Ask has a legal list")


def _readable(kit: Kit, legal: tuple[str, ...], agent: str, step: int, seed: int) -> None:
    if len({fold(choice) for choice in legal}) != len(legal):
        kit.fail(
            10,
            f"legal strings stay distinct when case and white space are folded; got {legal}",
            agent=agent,
            step=step,
            seed=seed,
        )
    for choice in legal:
        if parse_legal(choice, legal) != choice:
            kit.fail(
                10,
                f"the parser reads a legal string as itself, not {choice!r}",
                agent=agent,
                step=step,
                seed=seed,
            )


def _takes_each(
    kit: Kit, play: Trace, agent: str, step: int, seed: int, legal: tuple[str, ...]
) -> None:
    """Plays each legal string at this decision point; a scenario that answers one as it answers
    nonsense does not take it."""
    answers = {
        choice: _answered(kit, play, agent, step, seed, choice)
        for choice in (*legal[:24], NONSENSE)
    }
    for choice in legal[:24]:
        same = answers[choice] == answers[NONSENSE]
        refused = _refuses(answers[choice][0][agent])
        # where all are answered alike, the answer does not depend on what was said
        if same and refused and any(answers[other] != answers[NONSENSE] for other in legal[:24]):
            kit.fail(
                10,
                f"a legal string is never refused; {choice!r} is answered like nonsense",
                agent=agent,
                step=step,
                seed=seed,
            )


def _refuses(texts: list[str]) -> bool:
    """Whether this says no to an act, of what was told to who did it."""
    return any(
        _REFUSAL.search(text) or (_ACT in text and _OF_THE_ACT.search(text)) for text in texts
    )


def _answered(kit: Kit, play: Trace, agent: str, step: int, seed: int, choice: str) -> Any:
    """What everybody is shown, who is asked next and what is paid after `agent` said `choice`
    here."""
    # a new play, not a fork: rule 8 may be broken
    game = kit.start(seed)
    actions: dict[int, dict[str, Action | str]] = {}
    for (who, *_), place, action in zip(play.turns, play.steps, play.actions, strict=True):
        actions.setdefault(place, {})[who] = action
    # the same actions as in the play that is known, up to this decision point
    for place in range(step):
        kit.send(game, actions[place])
    count = len(game.ledger)
    before = {who: len(game.view(who)) for who in kit.agents}
    kit.send(
        game,
        {**actions[step], agent: choice},
        f"playing the legal string {choice!r}",
        10 if choice != NONSENSE else 5,
    )
    turn = next(turn for turn in reversed(game.turns) if turn.agent == agent)
    if choice != NONSENSE and turn.action.parsed != choice and not turn.action.tool_calls:
        kit.fail(
            10,
            f"a legal string that is played is recorded as such, not as illegal: {choice!r}",
            agent=agent,
            step=step,
            seed=seed,
        )
    acted = {who: int(who in actions[step]) for who in kit.agents}
    # what was said is shown to others in the same words: it must not tell two choices apart
    seen = {
        who: [m.text.replace(choice, _ACT) for m in game.view(who)[before[who] + acted[who] :]]
        for who in kit.agents
    }
    after = seen, list(game.pending), [(e.agent, e.value) for e in game.ledger[count:]], game.over
    game.close()
    return after
