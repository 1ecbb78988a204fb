"""`gem-ma show RUN --episode WHICH`: one play as text, with its verdict, the reasons for it, and
every reward where it was paid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gem_ma.episode import Episode
    from gem_ma.evaluation.judge import Judge
    from gem_ma.types import Message, Turn

KINDS = ("lost", "failed", "cut")  # instead of an id: the first such episode
MAX_TEXT = 4_000  # characters of one message on a terminal; --json has all


def show_episode(path: Path, which: str, judge: Judge, as_json: bool) -> None:
    """Prints the episode. Raises ConfigError where the run has none like it."""
    from gem_ma.cli.terminal import columns, emit, emit_json

    episode, same = find(path, which, judge)
    if as_json:
        from gem_ma.codec import dump_episode
        from gem_ma.json_text import load_json

        record = load_json(dump_episode(episode))
        emit_json({"verdict": dict(verdict(episode, judge)), "episode": record})
        return
    rows = [
        ("episode", name_of(episode)),
        *verdict(episode, judge),
        ("scenario", f"{episode.scenario} (version {episode.version})"),
    ]
    rows += [
        (agent, f"{seat.behaviour}{f', policy {seat.policy}' if seat.policy else ''}")
        for agent, seat in episode.cast.items()
    ]
    rows += [(f"more {which}", ", ".join(same))] * bool(same)
    emit("\n".join([columns(rows), "", *lines(episode)]))


def find(path: Path, which: str, judge: Judge) -> tuple[Episode, list[str]]:
    """The first episode that `which` means, and the names of some others that it means too.

    `which` is one of KINDS, a task (`test/153`, or `153`), a task with its repeat
    (`test/153#1`), or a seed.
    """
    from gem_ma.errors import ConfigError
    from gem_ma.store import read_episodes

    if which == "lost" and judge.success is None:
        raise ConfigError(
            f"{path}: no play can be called lost, since its scenario has no notion of success or is"
            " not installed; name a task instead"
        )
    first: Episode | None = None
    others: list[str] = []
    names: list[str] = []
    # one by one: a record may be larger than the memory
    for episode in read_episodes(path):
        if means(which, episode, judge):
            if first is None:
                first = episode
            # a few of each: a run may have thousands
            elif len(others) < 10:
                others.append(name_of(episode))
        elif len(names) < 5:
            names.append(name_of(episode))
    if first is None:
        hint = f"; it has, among others, {', '.join(names)}" if names else ""
        fault = f"no episode is {which}" if which in KINDS else f"no episode {which!r}"
        raise ConfigError(f"{path}: {fault}{hint}")
    return first, others


def means(which: str, episode: Episode, judge: Judge) -> bool:
    """Whether `which` (see `find`) means this episode."""
    if which == "failed":
        return not episode.end.scored
    if which == "cut":
        return episode.end.bootstraps
    if which == "lost":
        return episode.end.scored and judge.success is not None and judge.success(episode) is False
    task, _, repeat = which.partition("#")
    if repeat and repeat != str(episode.repeat):
        return False
    # tables show `test/153`; people type `153`
    return task in (
        episode.task,
        episode.task.rpartition("/")[2],
        str(episode.seed),
        f"{episode.task}/{episode.seed}",
    )


def name_of(episode: Episode) -> str:
    """`task#repeat`, as it can be typed. Where every play has the same task the seed tells them
    apart."""
    return f"{episode.task}/{episode.seed}" + (f"#{episode.repeat}" if episode.repeat else "")


def verdict(episode: Episode, judge: Judge) -> list[tuple[str, str]]:
    """What came of the play, and why, as rows of a table."""
    from gem_ma.evaluation.groups import labels_of

    success = judge.success(episode) if judge.success is not None and episode.end.scored else None
    word = "failed" if not episode.end.scored else "cut" if episode.end.bootstraps else "ended"
    rows = [
        ("verdict", {True: "success", False: "lost", None: word}[success]),
        ("end", episode.end.value),
    ]
    rows += [("error", episode.error or "")] * bool(episode.error)
    if judge.labels is not None and episode.end.scored:
        rows += [
            (name, ", ".join(values)) for name, values in labels_of(episode, judge.labels).items()
        ]
    if judge.measures is not None and episode.end.scored:
        # most measures are 0 in one play, and those say nothing
        rows += [(name, f"{value:g}") for name, value in judge.measures(episode).items() if value]
    return [
        *rows,
        *((f"return {agent}", f"{value:g}") for agent, value in episode.returns().items()),
    ]


def lines(episode: Episode) -> Iterator[str]:
    """The talk: per step what each agent was shown that nobody here said, what it said, and what
    was paid."""
    spoken: dict[str, str] = {}  # agent -> its last words, which the others see again
    # step -1 of the ledger is what was paid before anybody was asked
    yield from _paid(episode, -1)
    # agents of one step acted at once: none of them saw the others' words
    for step, turns in groupby(episode.turns, key=lambda turn: turn.step):
        yield f"--- step {step} " + "-" * 40
        for turn in turns:
            yield from _shown(turn.agent, turn.observed, spoken)
            yield from _acted(turn)
            spoken[turn.agent] = turn.action.text
        yield from _paid(episode, step)
    for agent, messages in episode.final.items():
        yield from _shown(agent, messages, spoken)


def _shown(agent: str, messages: Iterable[Message], spoken: dict[str, str]) -> Iterator[str]:
    for message in messages:
        parts = (message.content,) if isinstance(message.content, str) else message.content
        text = "".join(
            part if isinstance(part, str) else f"<image {part.digest[:12]}>" for part in parts
        )
        # what another agent said stands in the talk already, where it acted
        if message.sender not in spoken or spoken[message.sender] != text:
            yield f"  {agent} is shown by {message.sender}: {_cut(text)}"


def _acted(turn: Turn) -> Iterator[str]:
    from gem_ma.types import ToolCall

    if turn.action.text or not turn.action.tool_calls:
        is_illegal = turn.legal is not None and turn.action.parsed is None
        note = " (none of the legal moves)" if is_illegal else ""
        yield f"{turn.agent}: {_cut(turn.action.text)}{note}"
    for call in turn.action.tool_calls:
        if isinstance(call, ToolCall):
            words = f"{call.name} {_json(call.arguments)}"
        else:
            words = f"unreadable call ({call.reason}): {call.text}"
        yield f"{turn.agent} calls {_cut(words)}"
    drafts = len(turn.replies) - 1
    if drafts > 0:
        replies = "reply" if drafts == 1 else "replies"
        yield (
            f"  ({drafts} more {replies} of a model in this turn:"
            " gem-ma show RUN --episode ... --json)"
        )


def _paid(episode: Episode, step: int) -> Iterator[str]:
    for entry in episode.ledger:
        if entry.step == step:
            yield f"  reward {entry.agent} {entry.value:+g}{f' ({entry.why})' if entry.why else ''}"


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]} ... [{len(text) - MAX_TEXT} more characters: --json]"
