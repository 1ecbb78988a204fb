"""Rules 1 and 2 on the kernel: a play is a function of seed, task and actions, and of nothing that
the process holds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy

from gem_ma.testing.calls import remembering
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.traces import Trace, difference, trace

PLAIN = ("first", "random", "mixed")
CHANCE_S = 1.0  # CPU time per player of the search for seeds that differ


def determinism(kit: Kit) -> None:
    """Rule 1: a play is a function of seed, task and actions."""
    for seed in kit.within(kit.seeds[:6]):
        for player in PLAIN:
            with contextlib.suppress(Failed):
                _same_again(kit, seed, player)
    tasks_untouched(kit)
    for seed, other in kit.within(
        tuple(zip(kit.seeds, [*kit.seeds[1:], kit.seeds[0]], strict=True))
    ):
        for player in ("first", "random"):
            with contextlib.suppress(Failed):
                _interleaved(kit, seed, other, player)
    _chance(kit)


def _same_again(kit: Kit, seed: int, player: str) -> None:
    first = kit.play(seed, player)
    # a play that was left in the middle may leave something in the object
    _cut_short(kit, seed, player)
    second = kit.play(seed, player)
    same = "the same seed, task and actions give the same play"
    kit.same(1, same, first, second, seed=seed, key="again")


def tasks_untouched(kit: Kit) -> None:
    """Rule 1: no play so far has edited a task, not even one that edits it but once."""
    # `before` is a tuple of one, so that a task of None is told from one without a copy
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


def _equal(task: Any, other: Any) -> bool:
    try:
        # three ways, since a class without == is compared by identity
        return bool(task == other) or repr(task) == repr(other) or _plain(task) == _plain(other)
    except Exception:
        return True  # an author's == that raises says nothing about the task


def _plain(value: Any) -> Any:
    if hasattr(value, "__dict__"):
        return type(value), {name: _plain(item) for name, item in vars(value).items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _cut_short(kit: Kit, seed: int, player: str) -> None:
    game = kit.start(seed)
    kit.finish(game, Cast(player, seed, kit.agents), 1)
    kit.close(game)


def _interleaved(kit: Kit, seed: int, other: int, player: str) -> None:
    """Two plays of one object, a step of each in turn, against the same plays alone."""
    games = [kit.start(s) for s in (seed, other)]
    casts = [Cast(player, s, kit.agents) for s in (seed, other)]
    while any(game.pending and game.step < kit.cap for game in games):
        for game, cast in zip(games, casts, strict=True):
            kit.finish(game, cast, min(kit.cap, game.step + 1))
    for game, s in zip(games, (seed, other), strict=True):
        local = "two plays of one object may interleave, state is local to play()"
        kit.same(1, local, kit.known(s, player), trace(game), seed=s, key="interleaved")
        kit.close(game)


def _chance(kit: Kit) -> None:
    """Different seeds differ exactly where chance is declared; the players' own streams are the
    same for all seeds."""
    if len(kit.seeds) < 3:
        kit.skip(1, "fewer than three seeds: nothing says whether they differ")
        return
    drew = False
    differs = False
    complete = True
    offered = False
    # outside work that differs would look like chance
    scenario = kit.scenario
    with contextlib.suppress(TypeError):
        scenario = remembering(scenario, {}, whatever_the_seed=True)
    # bots that take the same move always, and some that do not: chance may show only off their way
    for player, stream in (("first", 0), ("last", 0), *(("random", number) for number in range(4))):
        plays: list[Trace] = []
        for seed in kit.within(kit.seeds, CHANCE_S):
            try:
                game = kit.start(seed, scenario=scenario, task=kit.tasks[0])
                fresh = game.rng.getstate() if seed is None else random.Random(seed).getstate()
                kit.finish(game, Cast(player, stream, kit.agents))
                # what was drawn may have changed nothing that is seen, as with one card left
                drew = drew or game.rng.getstate() != fresh
                plays.append(trace(game))
                offered = offered or any(turn.legal or turn.tools for turn in game.turns)
                kit.close(game)
            except Failed:
                continue
        differs = differs or any(difference(plays[0], play) for play in plays)
        complete = complete and len(plays) == len(kit.seeds)
    if kit.scenario.chance and not differs and not complete:
        kit.skip(1, "plays fail or take too long to say whether seeds differ")
    elif kit.scenario.chance and not differs and drew and not offered:
        # a secret number is drawn, and no player of the kit knows how a guess is written
        kit.skip(1, "answers are free text, and none of the kit's shows a difference between seeds")
    elif kit.scenario.chance and not differs:
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
    with restored_random():
        for seed in kit.within(kit.seeds[:4]):
            for player in ("random", "mixed"):
                plays = []
                # two states: a play that reads the global one differs between them
                for state in (1, 2):
                    before = seeded_random(state)
                    try:
                        plays.append(kit.play(seed, player))
                    except Failed:
                        continue
                    for name, old, new in zip(STREAMS, before, random_states(), strict=True):
                        if new != old:
                            kit.fail(
                                2,
                                f"no play touches the global state of `{name}`; all randomness"
                                " comes from rng",
                                seed=seed,
                            )
                if len(plays) == 2:
                    unread = "global random state has no influence on a play"
                    kit.same(2, unread, *plays, seed=seed, key="read")


STREAMS = ("random", "numpy.random")


def random_states() -> tuple[object, str]:
    """The states of `STREAMS`, to be compared; that of numpy has an array inside, so as text."""
    return random.getstate(), repr(numpy.random.get_state())


def seeded_random(seed: int) -> tuple[object, str]:
    """Seeds both, and gives their states."""
    random.seed(seed)
    numpy.random.seed(seed)
    return random_states()


@contextlib.contextmanager
def restored_random() -> Iterator[None]:
    """Both are at the end what they were."""
    states = random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
