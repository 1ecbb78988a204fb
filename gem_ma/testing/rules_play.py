"""Rules 3, 4, 5, 6, 7 and 11 on the kernel: what can be said of single plays without any
environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gem_ma.kernel.effects import Scenario
from gem_ma.kernel.episode import End, Episode, Limits, Seat
from gem_ma.kernel.parsing.text import clean
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.players import JUNK, PLAYERS, TOOL_FUZZ, Cast, always, missing, wrong
from gem_ma.testing.traces import Trace
from gem_ma.wrappers.around import rules_of

MOST_TASKS = 100  # among which the key of a task is looked for


def liveness(kit: Kit) -> None:
    """Rule 11, and every other fault that the kernel itself refuses: each player plays."""
    for _ in kit.plays(PLAYERS, seconds=1.0):
        pass  # what fails is written down


def observation(kit: Kit) -> None:
    """Rule 3 on the kernel: what is shown can be written as JSON, and history is never shown
    again."""
    # player "marked" says texts that are found again wherever they are shown
    for seed, player, play in kit.plays(("random", "mixed", "marked"), kit.seeds[:3]):
        if player == "marked":
            _no_history(kit, play, seed)
            continue
        for agent, view in play.views.items():
            try:
                # as ASCII with escapes, and as it is: a lone surrogate passes only the first
                json.dumps(view).encode("utf-8")
                json.dumps(view, ensure_ascii=False).encode("utf-8")
            except (ValueError, TypeError) as error:
                kit.fail(
                    3,
                    f"what an agent is shown travels as JSON and UTF-8; {error}",
                    agent=agent,
                    seed=seed,
                )


def _no_history(kit: Kit, play: Trace, seed: int) -> None:
    marks = {text for _, _, legal, text in play.turns if text.startswith("mark")}
    for agent, view in play.views.items():
        often = [mark for mark in marks if sum(mark in message["content"] for message in view) >= 3]
        # one text may be quoted three times by a rule of the game; two are a history
        if len(often) >= 2:
            kit.fail(
                3,
                f"what is shown is new, the history is never shown again; {len(often)} texts were"
                " shown three times",
                agent=agent,
                seed=seed,
            )


def fuzz(kit: Kit) -> None:
    """Rule 5: no text raises, and each is a recorded turn."""
    for seed in kit.within(kit.seeds):
        for player in ("silent", "mixed", "fuzz0", "fuzz1", "fuzz2"):
            _fuzzed(kit, seed, Cast(player, seed, kit.agents), f"player {player}", kit.cap)
    # arguments that a model gets wrong in other ways than its texts
    # their streams differ, so that each plays other wrong arguments
    for number in range(TOOL_FUZZ):
        for caller in (missing, wrong):
            cast = Cast(caller, number, kit.agents)
            _fuzzed(
                kit,
                kit.seeds[number % len(kit.seeds)],
                cast,
                f"{caller.__name__} arguments of the offered tools",
                min(kit.cap, 24),
            )
    for text in JUNK:
        # also after a good first turn, where a scenario may trust what it has read
        for start in (0, 1):
            _fuzzed(
                kit,
                kit.seeds[0],
                Cast(always(text, start), 0, kit.agents),
                f"{text[:40]!r} from turn {start} on",
                min(kit.cap, 8),
            )


def _fuzzed(kit: Kit, seed: int, cast: Cast, who: str, cap: int) -> None:
    with suppress(Failed):
        game = kit.start(seed)
        while game.pending and game.step < cap:
            _recorded_turn(kit, game, cast, who)
        kit.close(game)


def _recorded_turn(kit: Kit, game: Any, cast: Cast, who: str) -> None:
    """One step; what the kernel writes down is what was asked and said, and nobody was shown
    another's action before."""
    step = game.step
    count = len(game.turns)
    seen = {agent: game.new(agent) for agent in game.pending}
    actions = {
        agent: cast.say(agent, asked.legal, asked.tools) for agent, asked in game.pending.items()
    }
    kit.send(game, actions, who)
    turns = game.turns[count:]
    # a kernel that drops or doubles an action would lose it in the record
    if [turn.agent for turn in turns] != list(actions) or game.step != step + 1:
        kit.fail(5, "every action is a recorded turn, whatever it says", step=step, seed=game.seed)
        return
    for turn in turns:
        text = turn.action.text
        whole = clean(actions[turn.agent])
        if (
            not turn.action.tool_calls
            and text != whole
            and not (turn.action.cut and whole.startswith(text))
        ):
            kit.fail(
                5,
                "every action is a recorded turn, whatever it says; the text differs",
                agent=turn.agent,
                step=step,
                seed=game.seed,
            )
        # what was new to it before it spoke is all that it may have answered to
        if turn.observed != seen[turn.agent]:
            message = (
                "those asked together act at once: nobody is shown anything between the Ask and the"
                " commit"
            )
            kit.fail(4, message, agent=turn.agent, step=step, seed=game.seed)


def _is_own_limit(limits: Any) -> bool:
    """A world may limit its decision points, nothing else: what is counted otherwise is the
    driver's."""
    if limits is None:
        return True
    steps = getattr(limits, "max_steps", None)
    return type(steps) is int and steps > 0 and limits == Limits(max_steps=steps)


def ending(kit: Kit) -> None:
    """Rule 6 on the kernel: `ends_within` holds under every player, and a play can be closed at
    every step."""
    # True is an int in Python
    within = kit.scenario.ends_within
    if within is not None and (
        not isinstance(within, int) or isinstance(within, bool) or within < 1
    ):
        kit.fail(6, f"ends_within is a number of decision points or None; got {within!r}")
        within = None
    if not _is_own_limit(kit.scenario.limits):
        kit.fail(6, f"limits is Limits(max_steps=N) or None; got {kit.scenario.limits!r}")
    for seed, player, play in kit.plays(PLAYERS if within is not None else ()):
        if play.length > (within or 0) or not play.over:
            took = f"it took {play.length}" if play.over else f"it goes on after {play.length}"
            message = (
                f"ends_within = {within} promises at most so many decision points (each Ask is"
                f" one), whoever plays; with player {player} {took}"
            )
            kit.fail(6, message, step=play.length, seed=seed, key="ends_within")
    for seed, player, play in kit.plays(("first", "random", "silent"), kit.seeds[:2]):
        with suppress(Failed):
            _close_everywhere(kit, seed, player, play.length)


def _close_everywhere(kit: Kit, seed: int, player: str, length: int) -> None:
    # each step plays all before it once more, so that a long play is closed at its first steps only
    for step in range(min(length, 12) + 1):
        game = kit.start(seed)
        kit.finish(game, Cast(player, seed, kit.agents), step)
        # a second close does nothing
        kit.close(game)
        kit.close(game)
        if game.pending:
            kit.fail(6, "nobody is asked after a play is closed", step=step, seed=seed)


def rewards(kit: Kit) -> None:
    """Rule 7 on the kernel: finite entries for known agents that are present; declared sums
    hold."""
    for seed, _, play in kit.plays(PLAYERS):
        for step, agent, value, _ in play.ledger:
            if agent not in kit.agents:
                kit.fail(
                    7,
                    f"rewards name agents of the scenario; the ledger pays {agent!r}",
                    step=step,
                    seed=seed,
                )
            # inf - inf and nan - nan are nan
            elif not isinstance(value, float) or value - value != 0:
                kit.fail(
                    7,
                    f"rewards are finite numbers; the ledger holds {value!r}",
                    agent=agent,
                    step=step,
                    seed=seed,
                )
                return
        totals = play.totals(kit.agents)
        # rounding grows with what was paid
        scale = 1e-9 * max(1.0, sum(abs(value) for _, _, value, _ in play.ledger))
        has_teams = kit.scenario.teams or _says(kit, "team")
        sums = kit.scenario.zero_sum and not has_teams
        if play.over and sums and abs(sum(totals.values())) > scale:
            kit.fail(
                7,
                f"declared zero_sum: an episode's rewards sum to 0, not {sum(totals.values()):g}",
                seed=seed,
                key="zero_sum",
            )
        if (
            play.over
            and kit.scenario.cooperative
            and max(totals.values()) - min(totals.values()) > scale
        ):
            kit.fail(
                7,
                f"declared cooperative: all agents are paid alike, not {totals}",
                seed=seed,
                key="cooperative",
            )
    _teams(kit)


def _says(kit: Kit, name: str) -> bool:
    """Whether the rules have a word of their own for it."""
    return getattr(type(rules_of(kit.scenario)), name) is not getattr(Scenario, name)


def _teams(kit: Kit) -> None:
    """Teams are of agents, teams and roles are words of a record, a zero sum is one of teams."""
    scenario = kit.scenario
    if not (scenario.teams or _says(kit, "team") or _says(kit, "role")):
        return
    for name, agents in scenario.teams.items():
        if isinstance(agents, str) or not {*agents} <= {*kit.agents} or not name:
            kit.fail(7, f"teams are {{name: agents of the scenario}}; {name!r} holds {agents!r}")
            return
    for seed in kit.within(kit.seeds):
        try:
            game = kit.start(seed)
            kit.finish(game, Cast("random", seed, kit.agents))
        except Failed:
            continue
        with kit.guarded("team() and role()", seed=seed, rule=7):
            episode = _recorded(kit, game, seed)
            if episode is None:
                kit.skip(7, "the tasks are not of a split, so records of them could not be read")
                return
            words = {agent: scenario.team(episode, agent) for agent in kit.agents}
            roles = [scenario.role(episode, agent) for agent in kit.agents]
            if not all(isinstance(word, str) for word in (*words.values(), *roles)):
                kit.fail(7, f"team() and role() give a text; got {words} and {roles}", seed=seed)
            elif scenario.zero_sum and game.over:
                _sum_of_teams(kit, episode, words)
        kit.close(game)


def _sum_of_teams(kit: Kit, episode: Episode, words: Mapping[str, str]) -> None:
    paid: dict[str, list[float]] = {}
    for agent, value in episode.returns().items():
        # an agent without a team stands alone
        paid.setdefault(words[agent] or f"{agent} alone", []).append(value)
    means = {team: sum(values) / len(values) for team, values in paid.items()}
    scale = 1e-9 * max(1.0, sum(abs(entry.value) for entry in episode.ledger))
    if abs(sum(means.values())) > scale:
        what = "declared zero_sum: the mean returns of an episode's teams sum to 0, not"
        kit.fail(7, f"{what} {means}", seed=episode.seed, key="zero_sum")


def _recorded(kit: Kit, game: Any, seed: int) -> Episode | None:
    """The record of a play; None where its task has no key."""
    held = kit.scenario.tasks("train")
    task = kit.task(seed)
    index = next((n for n in range(min(len(held), MOST_TASKS)) if held[n] == task), None)
    if index is None:
        return None
    return Episode(
        kit.scenario.id,
        kit.scenario.version,
        seed,
        f"train/{index}",
        0,
        None,
        {agent: Seat() for agent in kit.agents},
        tuple(game.turns),
        tuple(game.calls),
        (),
        {agent: game.new(agent) for agent in kit.agents},
        tuple(game.ledger),
        End.TERMINATED if game.over else End.MAX_STEPS,
    )
