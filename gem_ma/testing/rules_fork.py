"""Rule 8: a fork is a replay that shares nothing with its parent, at every step.

Calls are counted where they are made, so that a kernel that runs one again is seen however it
does so. Random streams that `play` makes for itself are watched while it runs: what they give
after the first Ask cannot be reseeded by a fork.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gem_ma.kernel.scenario import Scenario
from gem_ma.testing.calls import counting, remembering
from gem_ma.testing.clock import time_limit
from gem_ma.testing.kit import Failed, Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.traces import Trace, difference, trace
from gem_ma.wrappers.around import layers_of

# a fork plays all before it once more, so that the cost grows with the square of the steps
SEEDS = 3
STEPS = 8


def fork(kit: Kit) -> None:
    """Forks at every step of some plays."""
    for seed in kit.within(kit.seeds[:SEEDS]):
        for player in ("first", "random", "mixed"):
            runs: list[int] = []
            try:
                scenario = counting(remembering(kit.scenario, {}), runs)
            except TypeError:
                scenario = kit.scenario
                kit.skip(
                    8,
                    "the scenario object takes no further attributes, so its calls were not"
                    " counted",
                )
            with suppress(Failed):
                _everywhere(kit, scenario, seed, player, runs)
        own_streams(kit, seed)


class _Still:
    """What a play looked like at one step."""

    def __init__(self, game: Any) -> None:
        self.trace: Trace = trace(game)
        self.rng = game.rng.getstate()
        self.asked = {
            agent: (asked.legal, tuple(tool.name for tool in asked.tools))
            for agent, asked in game.pending.items()
        }
        # as text: a result may be edited in place later
        self.calls = tuple((call.step, repr(call.value), call.error) for call in game.calls)


def _everywhere(kit: Kit, scenario: Scenario, seed: int, player: str, runs: list[int]) -> None:
    game = kit.start(seed, scenario=scenario)
    cast = Cast(player, seed, kit.agents)
    stills = [_Still(game)]
    _fork_now(kit, game, stills[-1], runs)
    while game.pending and game.step < min(kit.cap, STEPS):
        kit.finish(game, cast, game.step + 1)
        stills.append(_Still(game))
        _fork_now(kit, game, stills[-1], runs)
    # once more from the end: a fork goes back to any step, not only to the open one
    for step, still in enumerate(stills[:-1]):
        other = _forked(kit, game, step)
        if other is not None:
            _compare(
                kit,
                still,
                other,
                step,
                seed,
                "a fork at an earlier step stands where its parent stood",
            )
            _play_out(kit, game, other, step, seed, stills[-1])
            other.close()
    now = trace(game)
    kit.same(
        8, "a fork leaves its parent untouched", stills[-1].trace, now, seed=seed, key="parent"
    )
    game.close()


def _forked(kit: Kit, game: Any, step: int | None, reseed: str | None = None) -> Any:
    try:
        with time_limit(20):
            return game.fork(step) if reseed is None else game.fork(step, seed=reseed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        kit.error(error, "a fork", step=step, seed=game.seed, rule=8)
        return None


def _fork_now(kit: Kit, game: Any, still: _Still, runs: list[int]) -> None:
    """Two forks at the open step, played on by the same player: alike, and apart from their
    parent."""
    before = len(runs)
    seed = game.seed
    step = game.step

    def fail(message: str) -> None:
        kit.fail(8, message, step=step, seed=seed)

    first = _forked(kit, game, None)
    second = _forked(kit, game, None)
    if first is None or second is None:
        return
    if len(runs) != before:
        fail("a fork feeds recorded call results, it never runs a call again")
    if first is game or first.rng is game.rng or first.rng is second.rng:
        fail("a fork has a random generator of its own, not its parent's")
    _compare(kit, still, first, step, seed, "a fork stands where its parent stands")
    for other in (first, second):
        _finish(kit, other, seed, step)
    alike = "two forks with the same actions are the same play"
    kit.same(8, alike, trace(first), trace(second), seed=seed, key="two forks")
    # only now: what a fork shares with its parent shows when the fork is played
    after = _Still(game)
    parts = (after.rng, after.asked, after.calls)
    if difference(still.trace, after.trace) or (still.rng, still.asked, still.calls) != parts:
        fail("a fork shares nothing with its parent: playing it leaves the parent where it was")
    _reseeded(kit, game, still)


def _reseeded(kit: Kit, game: Any, still: _Still) -> None:
    """A fork with a stream of its own: it draws otherwise, and can be forked again."""
    seed = game.seed
    step = game.step
    reseeded = _forked(kit, game, None, "another stream")
    if reseeded is None:
        return
    # else every branch of a fork in training would play the same dice
    if reseeded.rng.getstate() == still.rng:
        kit.fail(
            8,
            "a fork with a seed of its own draws from another stream than its parent",
            step=step,
            seed=seed,
        )
    _finish(kit, reseeded, seed, step)
    again = _forked(kit, reseeded, None)
    if again is not None:
        replayed = trace(again)
        kit.same(8, "a reseeded fork replays", trace(reseeded), replayed, seed=seed, key="reseeded")


def _finish(kit: Kit, game: Any, seed: int, step: int) -> None:
    # a stream of its own: the parent's words would lead it to the parent's end
    cast = Cast("random", f"{seed}/fork/{step}", kit.agents)
    kit.finish(game, cast, game.step + 6, "a fork")
    kit.close(game, "closing a fork")


def _compare(kit: Kit, still: _Still, other: Any, step: int, seed: int, rule: str) -> None:
    key = (rule, "trace")
    if not kit.same(8, rule, still.trace, trace(other), seed=seed, key=key, step=step):
        return
    if {
        a: (p.legal, tuple(t.name for t in p.tools)) for a, p in other.pending.items()
    } != still.asked:
        kit.fail(8, f"{rule}; another Ask is open", step=step, seed=seed, key=(rule, "asked"))
    # what is drawn inside of a Call is missing in the fork, which does not run it
    elif other.rng.getstate() != still.rng:
        message = (
            f"{rule}; the state of rng differs: never draw from rng inside a Call, nor copy it"
        )
        kit.fail(8, message, step=step, seed=seed, key=(rule, "rng"))


def _play_out(kit: Kit, parent: Any, other: Any, step: int, seed: int, last: _Still) -> None:
    """The fork, given its parent's later actions, becomes its parent; calls after the step run
    anew and may answer otherwise."""
    # a call of the outside world may answer otherwise now, and that is not a fault
    if last.calls and last.calls[-1][0] >= step:
        return
    turns = [turn for turn in parent.turns if turn.step >= step]
    while turns and other.pending:
        group = {turn.agent: turn.action for turn in turns if turn.step == other.step}
        kit.send(other, group, "a fork with its parent's actions", 8)
        turns = [turn for turn in turns if turn.step >= other.step]
    same = "a fork with its parent's actions becomes its parent"
    kit.same(8, same, last.trace, trace(other), seed=seed, key="play out")


# -- random streams of the scenario's own --------------------------------------------------------


class _Watched(random.Random):
    """A generator that counts what it gives; the sequences are those of `random.Random`."""

    # of the class: the author's code makes them, and no one hands them over
    made: list[_Watched] = []

    def __init__(self, *args: Any) -> None:
        self.draws = self.seeded = 0
        super().__init__(*args)
        self.seeded = 0  # the first seed is the one it was made with
        _Watched.made.append(self)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        self.seeded += 1
        super().seed(*args, **kwargs)

    # a copy of another stream comes in this way
    def setstate(self, state: Any) -> None:
        self.seeded += 1
        super().setstate(state)

    def random(self) -> float:
        self.draws += 1
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        self.draws += 1
        return super().getrandbits(k)


@contextmanager
def _watching(scenario: Scenario) -> Iterator[None]:
    original = random.Random
    homes = [
        vars(module)
        for cls in type(scenario).__mro__
        if (module := sys.modules.get(cls.__module__)) is not None
    ]
    # `from random import Random` made a name of its own in the author's module
    homes = [home for home in homes if home.get("Random") is original and home is not vars(random)]
    _Watched.made = []
    random.Random = _Watched  # type: ignore[misc, assignment]
    for home in homes:
        home["Random"] = _Watched
    try:
        yield
    finally:
        random.Random = original  # type: ignore[misc]
        for home in homes:
            home["Random"] = original
        _Watched.made = []


def own_streams(kit: Kit, seed: int) -> None:
    """Randomness comes from rng alone: after the first Ask no other stream of the scenario gives
    anything."""
    # a wrapper that plays the rules again gives them streams anew; of those it draws nothing itself
    layers = layers_of(kit.scenario)
    rules = next(one for one in layers if not getattr(one, "looks_back", False))
    if rules is not kit.scenario:
        kit = Kit(rules, kit.tasks, kit.seeds, kit.cap, kit.game, findings=kit.findings)
    # before the watch begins: its streams are not the scenario's
    cast = Cast("random", seed, kit.agents)
    try:
        with _watching(kit.scenario):
            game = kit.start(seed)
            # draws before the first Ask are part of the start, which a fork repeats
            counts = {id(stream): stream.draws for stream in _Watched.made}
            kit.finish(game, cast)
            late = [
                stream
                for stream in _Watched.made
                if stream is not game.rng and stream.draws > counts.get(id(stream), 0)
            ]
            # the kernel gives `rng` its seed before `play` gets it, so that any further one is the
            # author's
            if late or (isinstance(game.rng, _Watched) and game.rng.seeded):
                message = (
                    "randomness comes from rng as it is, never seeded by play(), nor from a copy or"
                    " a second stream that a reseeded fork cannot reach"
                )
                kit.fail(8, message, seed=seed)
            game.close()
    except Failed:
        return
    except Exception as error:
        kit.error(error, "a watched play", seed=seed)
