"""Rules 1, 2, 3, 5, 6, 7, 10 and 11 on the kernel: what can be said of a scenario without any
view."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
import time
from typing import Any

from gem_ma.parsing import clean, fold, parse_legal
from gem_ma.testing.calls import remembering
from gem_ma.testing.kit import Failed, Kit, Trace, difference, trace
from gem_ma.testing.players import JUNK, PLAYERS, TOOL_FUZZ, Cast, always, missing, wrong

PLAIN = ("first", "random", "mixed")
LEGAL_S = 2.0  # CPU time after which no further decision point is tried string by string
CHANCE_S = 1.0  # CPU time per player of the search for seeds that differ


def liveness(kit: Kit) -> None:
    """Rule 11, and every other fault that the kernel itself refuses: each player plays."""
    for seed in kit.within(kit.seeds, 1.0):
        for player in PLAYERS:
            try:
                kit.known(seed, player)
            except Failed:
                continue


def determinism(kit: Kit) -> None:
    """Rule 1: a play is a function of seed, task and actions."""
    for seed in kit.within(kit.seeds[:6]):
        for player in PLAIN:
            try:
                _same_again(kit, seed, player)
            except Failed:
                continue
    tasks_untouched(kit)
    for seed, other in kit.within(
        tuple(zip(kit.seeds, [*kit.seeds[1:], kit.seeds[0]], strict=True))
    ):
        for player in ("first", "random"):
            try:
                _interleaved(kit, seed, other, player)
            except Failed:
                continue
    _chance(kit)


def _same_again(kit: Kit, seed: int, player: str) -> None:
    one = kit.play(seed, player)
    _cut_short(kit, seed, player)
    two = kit.play(seed, player)
    if found := difference(one, two):
        kit.fail(
            1,
            f"the same seed, task and actions give the same play; {found[0]}",
            agent=found[1],
            step=found[2],
            seed=seed,
            key="again",
        )


def tasks_untouched(kit: Kit) -> None:
    """Rule 1: no play so far has edited a task, not even one that edits it but once."""
    for number, (task, before) in enumerate(zip(kit.tasks, kit.copies, strict=True)):
        if before is None:
            kit.skip(1, "a task cannot be copied, so it was not compared after the plays")
        elif not _equal(task, before[0]):
            seed = kit.seeds[number] if number < len(kit.seeds) else None
            kit.fail(
                1,
                f"a task is never edited in place; task {number} differs after a play",
                seed=seed,
                key="task",
            )


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) or repr(one) == repr(other) or _plain(one) == _plain(other)
    except Exception:
        return True


def _plain(value: Any) -> Any:
    if hasattr(value, "__dict__"):
        return type(value), {name: _plain(item) for name, item in vars(value).items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _cut_short(kit: Kit, seed: int, player: str) -> None:
    game = kit.start(seed)
    kit.finish(game, Cast(player, seed, kit.agents), 1)
    with kit.guarded("closing the play", seed=seed, rule=6):
        game.close()


def _interleaved(kit: Kit, seed: int, other: int, player: str) -> None:
    """Two plays of one object, a step of each in turn, against the same plays alone."""
    games = [kit.start(s) for s in (seed, other)]
    casts = [Cast(player, s, kit.agents) for s in (seed, other)]
    while any(game.pending and game.step < kit.cap for game in games):
        for game, cast in zip(games, casts, strict=True):
            kit.finish(game, cast, min(kit.cap, game.step + 1))
    for game, s in zip(games, (seed, other), strict=True):
        if found := difference(kit.known(s, player), trace(game)):
            message = (
                f"two plays of one object may interleave, state is local to play(); {found[0]}"
            )
            kit.fail(1, message, agent=found[1], step=found[2], seed=s, key="interleaved")
        with kit.guarded("closing the play", seed=s, rule=6):
            game.close()


def _chance(kit: Kit) -> None:
    """Different seeds differ exactly where chance is declared; the players' own streams are the
    same for all seeds."""
    if len(kit.seeds) < 3:
        kit.skip(1, "fewer than three seeds: nothing says whether they differ")
        return
    drew, differs, complete = False, False, True
    scenario = kit.scenario
    with contextlib.suppress(TypeError):
        scenario = remembering(scenario, {}, whatever_the_seed=True)
    for player, stream in (("first", 0), ("last", 0), *(("random", number) for number in range(4))):
        plays: list[Trace] = []
        for seed in kit.within(kit.seeds, CHANCE_S):
            try:
                game = kit.start(seed, scenario=scenario, task=kit.tasks[0])
                fresh = game.rng.getstate() if seed is None else random.Random(seed).getstate()
                kit.finish(game, Cast(player, stream, kit.agents))
                drew = drew or game.rng.getstate() != fresh
                plays.append(trace(game))
                with kit.guarded("closing the play", seed=seed, rule=6):
                    game.close()
            except Failed:
                continue
        odd = next(
            (number for number, play in enumerate(plays) if difference(plays[0], play)), None
        )
        differs = differs or odd is not None
        complete = complete and len(plays) == len(kit.seeds)
    if kit.scenario.chance and not differs and not complete:
        kit.skip(1, "plays fail or take too long to say whether seeds differ")
    if kit.scenario.chance and not differs and complete:
        how = "seeds change nothing that is seen" if drew else "play() never draws from rng"
        kit.fail(
            1,
            f"different seeds give different plays, or the scenario declares chance = False; {how}",
            seed=kit.seeds[0],
        )
    if not kit.scenario.chance and (differs or drew):
        kit.fail(
            1,
            "a scenario that declares chance = False plays alike under all seeds and never draws"
            " from rng",
            seed=kit.seeds[0],
        )


def global_state(kit: Kit) -> None:
    """Rule 2: global random state is neither touched nor read."""
    numpy = sys.modules.get("numpy") or _import_numpy()
    kept = random.getstate(), numpy.random.get_state()
    try:
        for seed in kit.within(kit.seeds[:4]):
            for player in ("random", "mixed"):
                plays = []
                for state in (1, 2):
                    random.seed(state)
                    numpy.random.seed(state)
                    before = random.getstate(), repr(numpy.random.get_state())
                    try:
                        plays.append(kit.play(seed, player))
                    except Failed:
                        continue
                    if random.getstate() != before[0]:
                        kit.fail(
                            2,
                            "no play touches the global state of `random`; all randomness comes"
                            " from rng",
                            seed=seed,
                        )
                    if repr(numpy.random.get_state()) != before[1]:
                        kit.fail(
                            2,
                            "no play touches the global state of `numpy.random`; all randomness"
                            " comes from rng",
                            seed=seed,
                        )
                if len(plays) == 2 and (found := difference(*plays)):
                    kit.fail(
                        2,
                        f"global random state has no influence on a play; {found[0]}",
                        agent=found[1],
                        step=found[2],
                        seed=seed,
                        key="read",
                    )
    finally:
        random.setstate(kept[0])
        numpy.random.set_state(kept[1])


def _import_numpy() -> Any:
    import numpy

    return numpy


def observation(kit: Kit) -> None:
    """Rule 3 on the kernel: what is shown can be written as JSON, and history is never shown
    again."""
    for seed in kit.within(kit.seeds[:3]):
        for player in ("random", "mixed"):
            try:
                play = kit.known(seed, player)
            except Failed:
                continue
            for agent, view in play.views.items():
                try:
                    json.dumps(view).encode("utf-8")
                    json.dumps(view, ensure_ascii=False).encode("utf-8")
                except (ValueError, TypeError) as error:
                    kit.fail(
                        3,
                        f"what an agent is shown travels as JSON and UTF-8; {error}",
                        agent=agent,
                        seed=seed,
                    )
        try:
            _no_history(kit, kit.known(seed, "marked"), seed)
        except Failed:
            continue


def _no_history(kit: Kit, play: Trace, seed: int) -> None:
    marks = {text for _, _, legal, text in play.turns if text.startswith("mark")}
    for agent, view in play.views.items():
        often = [mark for mark in marks if sum(mark in message["content"] for message in view) >= 3]
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
        for start in (0, 1):
            _fuzzed(
                kit,
                kit.seeds[0],
                Cast(always(text, start), 0, kit.agents),
                f"{text[:40]!r} from turn {start} on",
                min(kit.cap, 8),
            )


def _fuzzed(kit: Kit, seed: int, cast: Cast, who: str, cap: int) -> None:
    try:
        game = kit.start(seed)
        while game.pending and game.step < cap:
            _recorded_turn(kit, game, cast, who)
        with kit.guarded("closing the play", seed=seed, rule=6):
            game.close()
    except Failed:
        return


def _recorded_turn(kit: Kit, game: Any, cast: Cast, who: str) -> None:
    """One step; what the kernel writes down is what was asked and said, and nobody was shown
    another's action before."""
    step, count = game.step, len(game.turns)
    shown = {agent: game.new(agent) for agent in game.pending}
    said = {
        agent: cast.say(agent, asked.legal, asked.tools) for agent, asked in game.pending.items()
    }
    kit.send(game, said, who)
    turns = game.turns[count:]
    if [turn.agent for turn in turns] != list(said) or game.step != step + 1:
        kit.fail(5, "every action is a recorded turn, whatever it says", step=step, seed=game.seed)
        return
    for turn in turns:
        text, whole = turn.action.text, clean(said[turn.agent])
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
        if turn.observed != shown[turn.agent]:
            message = (
                "those asked together act at once: nobody is shown anything between the Ask and the"
                " commit"
            )
            kit.fail(4, message, agent=turn.agent, step=step, seed=game.seed)


def ending(kit: Kit) -> None:
    """Rule 6 on the kernel: `ends_within` holds under every player, and a play can be closed at
    every step."""
    within = kit.scenario.ends_within
    if within is not None and (
        not isinstance(within, int) or isinstance(within, bool) or within < 1
    ):
        kit.fail(6, f"ends_within is a number of decision points or None; got {within!r}")
        within = None
    for seed in kit.within(kit.seeds):
        for player in PLAYERS if within is not None else ():
            try:
                play = kit.known(seed, player)
            except Failed:
                continue
            if play.length > (within or 0) or not play.over:
                message = (
                    f"the play ends within {within} decision points under every player; with player"
                    f" {player} it does not"
                )
                kit.fail(6, message, step=play.length, seed=seed, key="ends_within")
    for seed in kit.within(kit.seeds[:2]):
        for player in ("first", "random", "silent"):
            try:
                _close_everywhere(kit, seed, player)
            except Failed:
                continue


def _close_everywhere(kit: Kit, seed: int, player: str) -> None:
    for step in range(min(kit.known(seed, player).length, 12) + 1):
        game = kit.start(seed)
        kit.finish(game, Cast(player, seed, kit.agents), step)
        with kit.guarded("closing the play", seed=seed, rule=6):
            game.close()
            game.close()
        if game.pending:
            kit.fail(6, "nobody is asked after a play is closed", step=step, seed=seed)


def rewards(kit: Kit) -> None:
    """Rule 7 on the kernel: finite entries for known agents that are present; declared sums
    hold."""
    for seed in kit.within(kit.seeds):
        for player in PLAYERS:
            try:
                play = kit.known(seed, player)
            except Failed:
                continue
            for step, agent, value, _ in play.ledger:
                if agent not in kit.agents:
                    kit.fail(
                        7,
                        f"rewards name agents of the scenario; the ledger pays {agent!r}",
                        step=step,
                        seed=seed,
                    )
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
            scale = 1e-9 * max(1.0, sum(abs(value) for _, _, value, _ in play.ledger))
            if play.over and kit.scenario.zero_sum and abs(sum(totals.values())) > scale:
                kit.fail(
                    7,
                    "declared zero_sum: an episode's rewards sum to 0, not"
                    f" {sum(totals.values()):g}",
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


_REFUSAL = re.compile(
    r"illegal|invalid|not (?:an?"
    r" )?(?:legal|allowed|valid|possible|permitted|understood|readable|recogni[sz]ed|accepted)|is"
    r" not? |isn't"
    r"|cannot|can't|refus|unknown|unclear|unreadable|no such|try again|once more|please"
    r" (?:answer|choose|use|say)|must be"
    r"|wrong (?:format|move|answer)",
    re.IGNORECASE,
)


def legal_strings(kit: Kit) -> None:
    """Rule 10: legal strings are distinct after folding, the parser reads each, and the scenario
    takes each."""
    budget, started = 400, time.process_time()
    closed = False
    seen: set[Any] = set()
    for seed in kit.within(kit.seeds):
        for player in PLAIN:
            try:
                play = kit.known(seed, player)
            except Failed:
                continue
            for (agent, _, legal, _), step in zip(play.turns, play.steps, strict=True):
                if legal is None:
                    continue
                closed = True
                if legal not in seen:
                    seen.add(legal)
                    _readable(kit, legal, agent, step, seed)
                if (
                    budget > 0
                    and time.process_time() - started < LEGAL_S
                    and (legal, agent, step) not in seen
                ):
                    seen.add((legal, agent, step))
                    budget -= min(len(legal), 24)
                    try:
                        _takes_each(kit, play, agent, step, seed, legal)
                    except Failed:
                        continue
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
    junk = "zq#0"
    answers = {
        choice: _answered(kit, play, agent, step, seed, choice) for choice in (*legal[:24], junk)
    }
    for choice in legal[:24]:
        same, refused = answers[choice] == answers[junk], _REFUSAL.search(str(answers[choice]))
        if same and refused and any(answers[other] != answers[junk] for other in legal[:24]):
            kit.fail(
                10,
                f"a legal string is never refused; {choice!r} is answered like nonsense",
                agent=agent,
                step=step,
                seed=seed,
            )


def _answered(kit: Kit, play: Trace, agent: str, step: int, seed: int, choice: str) -> Any:
    """What everybody is shown, who is asked next and what is paid after `agent` said `choice`
    here."""
    game = kit.start(seed)
    said: dict[int, dict[str, str]] = {}
    for (who, _, _, text), at in zip(play.turns, play.steps, strict=True):
        said.setdefault(at, {})[who] = text
    for at in range(step):
        kit.send(game, said[at])
    count, before = len(game.ledger), {who: len(game.view(who)) for who in kit.agents}
    kit.send(
        game,
        {**said[step], agent: choice},
        f"playing the legal string {choice!r}",
        10 if choice != "zq#0" else 5,
    )
    turn = next(turn for turn in reversed(game.turns) if turn.agent == agent)
    if choice != "zq#0" and turn.action.parsed != choice and not turn.action.tool_calls:
        kit.fail(
            10,
            f"a legal string that is played is recorded as such, not as illegal: {choice!r}",
            agent=agent,
            step=step,
            seed=seed,
        )
    own = {who: int(who in said[step]) for who in kit.agents}
    shown = {
        who: [m.text.replace(choice, "*") for m in game.view(who)[before[who] + own[who] :]]
        for who in kit.agents
    }
    after = shown, list(game.pending), [(e.agent, e.value) for e in game.ledger[count:]], game.over
    game.close()
    return after
