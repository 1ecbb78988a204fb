"""Plays plans into an open run folder, for every command that plays: run, study, train's baselines.

Knows no command line and prints no score.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, aclosing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_ma.config.check import single
from gem_ma.config.loading import Loaded, load
from gem_ma.config.playing import AgentSettings
from gem_ma.config.seats import key_of
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy, asks_person
from gem_ma.engines.capabilities import Priced
from gem_ma.engines.small.replay import Remembered, digest_of
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import BudgetError, EndpointError, GemMaError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Reply, Request
from gem_ma.record.codec import REPLY
from gem_ma.runs.costs import costs_of, other_models
from gem_ma.runs.open import Opened
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import World, Worlds, seats_by_name
from gem_ma.scores.groups import Id
from gem_ma.system.files import MOST_LINE, append, is_file, read, remove

if TYPE_CHECKING:
    from gem_ma.runs.processes import Processes

# Plays in which a person has a seat, at a terminal or in a browser: which config is played. Who
# asks the person, and where, it does not know.

SEEDS = 10**6  # starts to draw from; a short number can be typed again


def drawn_seed() -> int:
    """A start that nobody has chosen."""
    return random.SystemRandom().randrange(SEEDS)


def with_person(
    source: str, words: Sequence[str], agent: str, *, plays: int = 1, seed: int
) -> Loaded:
    """The config of some plays with a person as `agent`; `words` are overrides. Raises ConfigError
    and DataError as `load` does."""
    loaded = load(source, words).without_training()
    # baselines are for scores, and nobody waits for them after a game
    chosen = ["run.baselines=false", f"run.seed={seed}"]
    for world in Opened.of(loaded.config, loaded.base).worlds.played:
        chosen += _tasks(world, words, plays, seed)
    for key, seat in places_of(agent, loaded).items():
        chosen.append(seated_as(key, seat, model="human/me"))
    return load(source, (*words, *chosen)).without_training()


def places_of(agent: str, loaded: Loaded) -> dict[str, AgentSettings]:
    """Key -> the seat that an agent has there; a seat of a scenario's own goes before that of
    all."""
    config = loaded.config
    key = f"agents.{in_quotes(agent)}"
    if not config.scenarios:
        seats = seats_by_name(config, base=loaded.base)
        return {key: seats[agent]} if agent in seats else {}
    places: dict[str, AgentSettings] = {}
    for world in Opened.of(config, loaded.base).worlds.played:
        if agent in world.config.agents:
            own = key_of(agent, config.scenarios[world.name].agents) is not None
            place = f"scenarios.{world.name}.{key}" if own else key
            places.setdefault(place, world.config.agents[agent])
    return places


def seated_as(key: str, before: AgentSettings, **who: str) -> str:
    """The override that seats somebody at a key, with the tools of who sat there before."""
    tools = [tool.model_dump() for tool in before.tools]
    return f"{key}={json.dumps({**who, 'tools': tools} if tools else who)}"


def _tasks(world: World, words: Sequence[str], plays: int, seed: int) -> list[str]:
    """Which tasks are played: those that were typed, else some that the seed draws; in a scenario
    of one task the seed alone makes the difference."""
    key = f"scenarios.{world.name}.tasks=" if world.name else "scenario.tasks="
    if any(word.startswith((key, "scenario.tasks=")) for word in words):
        return []
    tasks = world.scenario.tasks(world.config.only.split)
    if single(tasks):
        return [f"{key}{plays}"]
    drawn = random.Random(seed).sample(range(len(tasks)), min(plays, len(tasks)))
    return [f"{key}{drawn}"]


# The score of a run folder: what all of its episodes come to, with what they cost.


def score_of(loaded: Loaded, worlds: Worlds, folder: RunFolder) -> dict[str, Any]:
    """The summary of all episodes of the folder, whichever command played them."""
    rows = folder.scored(worlds.judge)
    summary = {
        # a folder may hold more than this config asks for, and all of it is scored
        "planned": max(worlds.count(), len(folder.done())),
        **worlds.judge.summary(rows, folder.episodes),
        **costs_of(loaded.config, rows),
    }
    return summary | other_models(loaded.config, summary)


# `interrupted.jsonl` of a run folder: replies that plays have got and that no episode on record
# holds yet, by the seed of their request.
# They are not part of the record; a resumed run takes them instead of sampling anew. A reply is
# written as it comes, so that a process that is killed loses none; a line `ended` says that the
# replies of a play before it are of no use any more. A line that cannot be read costs its reply,
# nothing else. Nothing is forced to the disk: this outlives the process, not a power cut.

NAME = "interrupted.jsonl"


def keep_reply(path: Path, request: Request, reply: Reply) -> None:
    """Appends a reply. Where the disk refuses, it is not kept, and its play goes on with it."""
    _append(
        path,
        {
            "asked": digest_of(request),
            "conversation": request.conversation,
            "reply": REPLY.write(reply),
        },
    )


def forget_replies(path: Path, episode: tuple[str, int, int]) -> None:
    """After this play has ended: what it got is on record, or is to be sampled anew."""
    if is_file(path / NAME, path):
        _append(path, {"ended": "/".join(map(str, episode))})


def remove_replies(path: Path) -> None:
    """Once every play has ended. Raises StoreError where the disk refuses."""
    remove(path / NAME, path)


def read_replies(path: Path) -> dict[str, Reply]:
    """Digest of a request -> reply, of plays that have not ended; {} where none were kept."""
    file = path / NAME
    if not is_file(file, path):
        return {}
    lines = read(file, path, MOST_LINE).split(b"\n")
    replies: dict[str, Reply] = {}
    ended: set[str] = set()
    # backwards: an `ended` line is met before the replies that it makes void
    for line in reversed(lines):
        with suppress(Exception):  # empty, torn, or whatever else makes a reader raise
            entry: dict[str, Any] = load_json(line)
            if "ended" in entry:
                ended.add(str(entry["ended"]))
            elif ended.isdisjoint(
                accumulate(str(entry.get("conversation", "")).split("/"), "{}/{}".format)
            ):
                # the latest reply to a request is the one that its play went on with
                replies.setdefault(str(entry["asked"]), REPLY.read(entry["reply"]))
    return replies


def _append(path: Path, line: dict[str, Any]) -> None:
    with suppress(OSError):
        # a torn line before stays alone
        append(path / NAME, f"\n{dump_json(line)}\n".encode(), path)


TICK_S = 1.0  # between two drawings of the progress line while no play ends


class Silent:
    """What a command shows and asks while it plays: nothing. `gem-ma` has its own, with a progress
    line, signals and baselines."""

    signal = 0  # what stopped it

    def started(self, path: Path) -> None:
        """The run folder is open: from here on there is something to go on with."""

    def note(self, line: str) -> None:
        """Something that the user should read."""

    def until_stopped(self, plans: Iterable[Plan]) -> Iterable[Plan]:
        """The plans, until a signal comes."""
        return plans

    @contextmanager
    def playing(self, planned: int, played: int) -> Iterator[Any]:
        """While it plays: the progress, with `skip`, `hide`, `start`, `end` and `tick`."""
        yield self

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the plays to their end."""
        wait(work)

    def baselines(self, opened: Opened, path: Path) -> dict[str, Any] | None:
        """Scores to set beside that of the run; None for none."""
        return None

    def skip(self, count: int) -> None: ...
    def hide(self) -> None: ...
    def start(self, plan: Any) -> None: ...
    def end(self, outcome: str) -> None: ...
    def tick(self) -> None: ...


class Played(NamedTuple):
    """A run folder after a command: its score, whether all was played, and the error of a spent
    budget or of an endpoint out of reach, which ends the play and loses nothing."""

    summary: dict[str, Any]
    complete: bool
    limit: GemMaError | None


def play_run(
    opened: Opened, path: Path, *, fresh: bool = False, retry_failed: bool = False, watch: Any
) -> Played:
    """Plays what the run folder lacks and scores all that it holds: the body of `gem-ma run` and of
    `gem_ma.run`. `watch` is a `Silent` or as one."""
    if opened.loaded.config.run.processes > 1:
        from gem_ma.runs.processes import check_processes

        check_processes(opened.policies)
    with opened.folder(path, fresh) as folder:
        watch.started(path)
        limit: GemMaError | None = None
        try:
            _play_rest(opened, folder, retry_failed, watch)
        except (BudgetError, EndpointError) as error:
            # caught here, so that what was played before it is scored and kept
            limit = error
        summary = score_of(opened.loaded, opened.worlds, folder)
        complete = not watch.signal and limit is None
        if complete and (scores := watch.baselines(opened, path)) is not None:
            summary["baselines"] = scores
            complete = not watch.signal
        if complete:
            folder.write_summary(summary, of_all=True)
    return Played(summary, complete, limit)


def _play_rest(opened: Opened, folder: RunFolder, retry_failed: bool, watch: Any) -> None:
    worlds = opened.worlds
    done = folder.done()
    if retry_failed:
        done -= folder.failed()
    planned = worlds.count()
    if len(done) > planned:
        watch.note(
            f"{folder.path} holds {len(done)} episodes already; all of them are scored, not only"
            f" the {planned} asked for now"
        )
    # plans are made as they are played: a large run would hold all of them in memory
    left, plans = worlds.left(done) if done else (planned, worlds.plans())
    if left:
        run = opened.loaded.config.run
        concurrency = min(run.concurrency, left)
        number = min(run.processes, concurrency)
        remember = partial(_remembering, folder)
        with ExitStack() as stack:
            others: Processes | None = None
            if number > 1:
                from gem_ma.runs.processes import Processes  # most runs have one

                # before the progress line, which may have a thread
                others = stack.enter_context(Processes(opened, folder, number, remember))
            progress = stack.enter_context(watch.playing(planned, planned - left))
            going = watch.until_stopped(plans)
            policies = opened.policies
            watch.run(play_into(folder, going, policies, concurrency, progress, others))


async def play_into(
    folder: RunFolder,
    plans: Iterable[Plan],
    policies: Mapping[str, Policy],
    concurrency: int,
    progress: Any,
    others: Processes | None = None,
) -> None:
    """Plays the plans, in `others` where there are some, and appends every episode as it ends.

    Raises EndpointError where a model cannot be reached. Once `limits:` are reached no plan is
    begun, what runs may end, and BudgetError follows. Replies of an endpoint are kept as they
    come (`interrupted.jsonl`) until their play has ended: whatever stops it, SIGKILL too,
    playing on buys none of them twice.
    """
    people = asks_person(policies)
    if people:
        # a progress line that is drawn anew would erase what they type, and two plays at once
        # would mix on one screen
        progress.hide()
        concurrency = 1
    play = partial(play_many, started=progress.start, concurrency=concurrency)
    keep: Callable[[list[Any]], None] = folder.append
    if others is None:
        play = partial(play, policies=_remembering(folder, policies))
    else:
        keep = folder.add  # they come with their rows and lines
        play = partial(play, player=others.play)
    forget = partial(forget_replies, folder.path) if is_paid(policies) else None
    # while one long play runs no play ends, and the line would look stuck
    ticking = asyncio.ensure_future(_tick(progress))
    try:
        refusal = await _record(keep, plans, play, progress, people, forget)
    finally:
        ticking.cancel()
        if others is not None:
            others.close()
    if refusal:
        shared = "" if others is None else f" (a share of it: {others.number} processes play)"
        raise BudgetError(refusal + shared)
    # every play has ended, so nothing is left that a later command could buy twice
    remove_replies(folder.path)


def outcome(end: End) -> str:
    """What the progress line counts an episode as: ok, failed or excluded."""
    if end is End.FAILED:
        return "failed"
    return "ok" if end.scored else "excluded"


def is_paid(policies: Mapping[str, Policy]) -> bool:
    """Whether replies of one of them cost something: of one at an endpoint."""
    return any(isinstance(policy.engine, Priced) for policy in policies.values())


def _remembering(folder: RunFolder, policies: Mapping[str, Policy]) -> Mapping[str, Policy]:
    """The policies, those that are paid with engines that write each reply down and answer from
    what is written."""
    if not is_paid(policies):
        return policies
    bought = read_replies(folder.path)
    keep = partial(keep_reply, folder.path)
    return {
        name: replace(policy, engine=Remembered(policy.engine, bought, keep))
        if isinstance(policy.engine, Priced)
        else policy
        for name, policy in policies.items()
    }


async def _record(
    keep: Callable[[list[Any]], None],
    plans: Iterable[Plan],
    play: Callable[[Iterable[Plan]], AsyncIterator[Any]],
    progress: Any,
    people: Sequence[Any],
    forget: Callable[[Id], None] | None,
) -> str:
    """Keeps the episodes as they end, then forgets their replies; gives why the budget refused one,
    or ""."""
    refusal = ""
    # asked before each plan is begun: after a refusal none is, and those that run may end
    allowed = takewhile(lambda _: not refusal, plans)
    # a person reads how a play ended before the next one asks
    batches = ([plan] for plan in allowed) if people else [allowed]
    async with aclosing(_one_after_another(play, batches)) as episodes:
        async for episode in episodes:
            if episode.end is End.INTERRUPTED:  # by the budget: it is played again
                refusal = refusal or str(episode.error).removeprefix("BudgetError: ")
                continue
            keep([episode])
            if forget is not None:  # later: a kill between the two buys nothing twice
                forget(episode.id)
            for person in people:
                person.show_end(episode)
            progress.end(outcome(episode.end))
    return refusal


async def _one_after_another(
    play: Callable[[Iterable[Plan]], AsyncIterator[Episode]],
    batches: Iterable[Iterable[Plan]],
) -> Any:
    """The episodes of these batches of plans; a batch is begun when the episodes of the one before
    have been taken."""
    for plans in batches:
        # closed by hand: an abandoned async generator is closed by the loop, some time later
        async with aclosing(play(plans)) as episodes:  # type: ignore[type-var]
            async for episode in episodes:
                yield episode


async def _tick(progress: Any) -> None:

    while True:
        await asyncio.sleep(TICK_S)
        progress.tick()


def wait(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine. A notebook runs a loop already, so there it gets a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # a second loop cannot run inside of the first one, in its thread
    begun: Future[tuple[asyncio.AbstractEventLoop, Any]] = Future()

    async def told() -> Any:
        begun.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as thread:
        # a thread begins without the caller's context variables (PEP 567); a seat that another
        # program plays is known by one
        ended = thread.submit(copy_context().run, asyncio.run, told())
        try:
            return ended.result()
        except BaseException:
            if not ended.done():  # Ctrl-C reaches the caller alone, and would wait for the end
                loop, task = begun.result()
                with suppress(RuntimeError):  # it has ended since
                    loop.call_soon_threadsafe(task.cancel)
            raise
