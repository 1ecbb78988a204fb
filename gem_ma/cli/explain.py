"""`gem-ma explain RUN --episode WHICH`: which turn, message or agent made a play come out so, by
forks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from gem_ma.cli.completion import run_names
from gem_ma.cli.episode import find, means, name_of, verdict
from gem_ma.cli.runs import played_run
from gem_ma.cli.stopping import Stopping
from gem_ma.cli.terminal import (
    Progress,
    columns,
    counted,
    emit,
    emit_json,
    json_option,
    one_line,
    progress_line,
    quiet_option,
)
from gem_ma.driver.behaviour import as_factory, needs_policy
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import ToolCall, Turn
from gem_ma.pages.static.explained import (
    GIVEN,
    MANY_HEADS,
    Decisive,
    acts_of,
    decided_at,
    whom_most,
)
from gem_ma.pages.static.notes import EXPLAINED, add_row
from gem_ma.runs.explaining import (
    REPLIES,
    Cost,
    Explained,
    Kind,
    kinds_of_agents,
    open_explained,
)
from gem_ma.runs.playing import wait
from gem_ma.runs.store import read_rows, rows_by
from gem_ma.runs.stored import open_record
from gem_ma.scores import attribution
from gem_ma.scores.attribution import Forks
from gem_ma.scores.groups import interval_text
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Brief, last_attempts

ASK = 1_000  # model calls from which on --yes is wanted
MOST_TEXT = 60  # letters of an act in a table
MOST_ACTS = 200  # of the fork that was won
MOST_AGENTS = 4  # columns of a table
EXAMPLE = """\b
Examples:
  gem-ma explain runs/kuhn_poker-0f2a11c4 --given view
  gem-ma explain RUN --episode lost --against retail_scripted --agent assistant
  gem-ma explain RUN --episode 3 --agents --against random_legal"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a play."""

    what: str  # turns | messages | agents
    plays: int
    given: attribution.Given
    against: str | None
    agent: str | None
    other_deal: bool


@click.command(epilog=EXAMPLE)
@click.argument("run", shell_complete=run_names)
@click.option(
    "--episode",
    "which",
    metavar="WHICH",
    help="won, lost, failed, cut, a task or a seed, as for gem-ma show; else the first that is lost"
    ", or the first.",
)
@click.option("--turns", "asked", flag_value="turns", multiple=True, help="Every turn (default).")
@click.option(
    "--messages",
    "asked",
    flag_value="messages",
    multiple=True,
    help="Every message, against silence.",
)
@click.option(
    "--agents", "asked", flag_value="agents", multiple=True, help="Every agent (Shapley values)."
)
@click.option(
    "--plays", type=click.IntRange(min=2), default=32, show_default=True, help="Pairs of each."
)
@click.option(
    "--given",
    type=click.Choice(tuple(GIVEN)),
    default="state",
    show_default=True,
    help="The hidden deal as it lay, or all deals that an agent could not tell from it.",
)
@click.option(
    "--against",
    metavar="BEHAVIOUR",
    help="Who acts instead: of a lost play the decisive turn is found; of --agents the baseline.",
)
@click.option("--agent", metavar="NAME", help="The turns or messages of this agent alone.")
@click.option("--other-deal", is_flag=True, help="Of --messages: what it says in another deal.")
@click.option("--yes", is_flag=True, help=f"Do not stop above {ASK} model calls.")
@json_option
@quiet_option
def command(
    run: str,
    which: str | None,
    asked: tuple[str, ...],
    plays: int,
    given: attribution.Given,
    against: str | None,
    agent: str | None,
    other_deal: bool,
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say what made one play of RUN come out so: a value with its interval for each turn, message
    or agent, by forks of the play. Code that its config names is run.

    The value of a turn is the return of its agent, less what it would have been had its act been
    drawn once more. With --against and a lost play: the last turn from which that behaviour, taking
    over, still wins. What comes out is kept in explained.jsonl, and shown by report and view.
    """
    if len(set(asked)) > 1:
        raise ConfigError(f"--{asked[0]} and --{asked[1]}: one at a time; type the command twice")
    what = asked[0] if asked else "turns"
    wish = Wish(what, plays, given, against, agent, other_deal)
    _check(wish)
    path = played_run(run, "explained")
    record = open_record(path, progress_line)
    episode, _ = find(path, which or _first(path, record.judge), record.judge)
    explained = open_explained(path, episode)
    cost = _cost(explained, wish)
    _say(cost, yes)
    with Progress(cost.forks, quiet=quiet, unit="forks") as progress:
        forks = explained.forks(cost, lambda made: progress.end(made.end.value))
        if (path / REPLIES).is_dir():
            Stopping.latest = "go on with the same command: what the endpoint answered is kept"
        row = wait(_explain(explained, forks, wish))
        if forks.faults:
            ((row["fault"], _),) = forks.faults.most_common(1)
    if stopped := progress.ends[End.INTERRUPTED.value]:
        progress_line(f"the cost is reached: {counted(stopped, 'fork')} stopped before the end")
    row = {"episode": list(episode.id), "acts": acts_of(episode), **row}
    try:
        add_row(path / EXPLAINED, row)
    finally:  # what may have been paid for is shown also where it cannot be kept
        if as_json:
            emit_json(row)
        else:
            head = [("episode", name_of(episode)), *verdict(episode, record.judge)]
            emit("\n".join([columns(head), "", *_lines(row, episode, explained.world.scenario)]))
    return 0


def _first(path: Path, judge: Judge) -> str:
    """The play that is meant where none is named: the first that is lost, else the first."""
    is_judged = judge.success is not None
    told = rows_by(path, Judge(judge.success)) if is_judged else read_rows(path, Brief)
    rows: Sequence[Brief] = last_attempts(told)
    if not rows:
        raise ConfigError(f"{path}: it has no plays yet")
    lost = [row for row in rows if means("lost", row)]
    return name_of((lost or rows)[0])


def _check(wish: Wish) -> None:
    """Raises ConfigError for options that do not go together."""
    if wish.against is not None and needs_policy(wish.against, as_factory(wish.against)):
        raise ConfigError(f"--against {wish.against}: it samples from a policy; name a bot")
    if wish.what == "agents" and wish.against is None:
        raise ConfigError(
            "--agents: say who sits in place of an agent that is left out, as in"
            " --against random_legal"
        )
    if wish.what == "messages" and (wish.against is not None or wish.given == "view"):
        raise ConfigError(
            "--messages: a message is held against silence or, with --other-deal, against another"
            " one, as it lay; leave out --against and --given"
        )
    if wish.other_deal and wish.what != "messages":
        raise ConfigError("--other-deal: goes with --messages; leave it out")


def _cost(explained: Explained, wish: Wish) -> Cost:
    episode = explained.episode
    turns = [turn for turn in episode.turns if wish.agent in (None, turn.agent)]
    if wish.what == "agents":
        players, _ = attribution.game_of(explained.world.scenario, episode, wish.agent)
        return explained.cost(kinds_of_agents(players, wish.plays))
    if not turns and wish.agent in (None, *episode.cast):
        who = f"--agent {wish.agent}: it" if wish.agent else f"{name_of(episode)}: this play"
        raise ConfigError(f"{who} has no turn that could be explained")
    is_said = wish.what == "messages"
    kinds = explained.kinds_of_turns(turns, wish.plays, wish.against, is_said)
    if wish.given == "view" or wish.other_deal:
        # a play from another deal, before each pair; how many are not alike nobody knows
        kinds += [Kind(wish.plays * len(turns))]
    agent = _loser(explained, wish)
    if agent is not None:
        own = [turn.step for turn in episode.turns if turn.agent == agent]
        kinds += [Kind(wish.plays, step, mute=frozenset([agent])) for step in own]
    return explained.cost(kinds)


def _loser(explained: Explained, wish: Wish) -> str | None:
    """Whose decisive turn is looked for: of a lost play, the agent that is named, or the only one.
    Raises ConfigError where several act and none is named."""
    episode = explained.episode
    if wish.what != "turns" or wish.against is None:
        return None
    if explained.world.scenario.success(episode) is not False:
        return None
    agents = list(dict.fromkeys(turn.agent for turn in episode.turns))
    if wish.agent is not None or len(agents) == 1:
        return wish.agent or agents[0]
    raise ConfigError(
        f"--against {wish.against}: say for whom it takes over, with --agent {' | '.join(agents)}"
    )


def _say(cost: Cost, yes: bool) -> None:
    """Tells the cost. Raises ConfigError where it is more than should be spent unasked."""
    if not cost.calls:
        return
    calls, tokens = cost.most
    price = "" if cost.usd is None else f", ${cost.usd:.2f}"
    used = "tokens unknown" if cost.tokens is None else f"{cost.tokens} tokens"
    words = f"about {cost.calls} model calls, {used}{price}"
    stop = f"{calls} calls" + ("" if tokens is None else f" or {tokens} tokens")
    progress_line(f"cost: {words} for {counted(cost.forks, 'fork')}; it stops at {stop}")
    if cost.calls > ASK and not yes:
        raise ConfigError(
            f"{words} are more than {ASK} calls; play fewer with --plays, or go on with --yes"
        )


async def _explain(explained: Explained, forks: Forks, wish: Wish) -> dict[str, Any]:
    """What is kept of it, as JSON values."""
    values: Any
    row: dict[str, Any] = {"what": wish.what, "given": wish.given, "against": wish.against}
    plays = wish.plays
    if wish.what == "agents":
        shares = await attribution.agent_values(
            forks, str(wish.against), plays=plays, given=wish.given, whose=wish.agent
        )
        values = {agent: each._asdict() for agent, each in shares.shares.items()}
        return row | {
            "whose": wish.agent,
            "exact": shares.exact,
            "everybody": shares.everybody,
            "nobody": shares.nobody,
            "values": values,
        }
    if wish.what == "messages":
        instead: attribution.Instead = "other deal" if wish.other_deal else "silence"
        said = await attribution.message_values(
            forks, plays=plays, instead=instead, agent=wish.agent
        )
        values = [
            {
                "step": one.step,
                "agent": one.agent,
                "values": {agent: each._asdict() for agent, each in one.values.items()},
            }
            for one in said
        ]
        return row | {"instead": instead, "values": values}
    turns = await attribution.turn_values(
        forks, plays=plays, given=wish.given, instead=wish.against, agent=wish.agent
    )
    row["values"] = [{"step": one.step, "agent": one.agent, **one.value._asdict()} for one in turns]
    agent = _loser(explained, wish)
    if agent is not None:
        turn, tried = await attribution.decisive_turn(
            forks, agent, str(wish.against), success=explained.world.scenario.success, plays=plays
        )
        row["decisive"] = {
            "agent": agent,
            "step": None if turn is None else turn.step,
            "tried": [
                {"step": w.step, "won": w.won, "plays": w.plays, "failed": w.failed} for w in tried
            ],
            "fork": _acts_since(tried[-1]) if turn is not None else [],
        }
    return row


def _acts_since(wins: attribution.Wins) -> list[dict[str, Any]]:
    """What was done in a fork that was won, from where the other behaviour took over."""
    turns = [turn for turn in wins.best.turns if turn.step >= wins.step] if wins.best else []
    return [
        {"step": turn.step, "agent": turn.agent, "text": told(turn, 5 * MOST_TEXT)}
        for turn in turns[:MOST_ACTS]
    ]


def _lines(row: Mapping[str, Any], episode: Episode, scenario: Scenario) -> list[str]:
    """The table, what it says in a sentence, and what it does not say."""
    roles = {agent: scenario.role(episode, agent) for agent in episode.cast}
    names = {agent: f"{agent} ({role})" if role else agent for agent, role in roles.items()}
    did = {(turn.step, turn.agent): told(turn) for turn in episode.turns}
    failed = _failed(row["values"])
    condition = GIVEN[row["given"]]
    if row["what"] == "agents":
        rows = [[names[agent], _text(value)] for agent, value in row["values"].items()]
        is_known = row["everybody"] is not None
        whole = f"{row['everybody'] - row['nobody']:.3g}" if is_known else "n/a"
        rows.append(["all of it", whole])
        of = f"return of {one_line(row['whose'], MOST_TEXT)}" if row["whose"] else "mean return"
        lines = [columns(rows, ("agent", f"share of the {of}, {row['against']} instead"))]
    elif row["what"] == "messages":
        rows = [
            [str(v["step"]), names[v["agent"]], did[v["step"], v["agent"]], *_felt(v, names)]
            for v in row["values"]
        ]
        heads = [f"for {agent}" for agent in episode.cast]
        if len(heads) > MOST_AGENTS:
            heads = MANY_HEADS
        lines = [columns(rows, ("step", "agent", "said", *heads))]
        condition = f"{condition}, against {row['instead']}"
    else:
        rows = [
            [str(v["step"]), names[v["agent"]], did[v["step"], v["agent"]], _text(v)]
            for v in row["values"]
        ]
        lines = [columns(rows, ("step", "agent", "did", "value"))]
        condition = f"{condition}, against {row['against'] or 'its own act, drawn once more'}"
    lines.append(f"\n{condition}; 95 % intervals")
    if failed:
        why = (
            " (or the other deal has no such message)" if row.get("instead") == "other deal" else ""
        )
        if row.get("fault"):
            why += f"; mostly {one_line(row['fault'], 5 * MOST_TEXT).rstrip(': ')}"
        lines.append(f"{counted(failed, 'fork')} failed and are left out{why}")
    if row["given"] == "view" and row["what"] == "turns":
        unseen = sum(value["mean"] is None and not value["failed"] for value in row["values"])
        if unseen:
            lines.append(
                f"{counted(unseen, 'turn')} without a value: hardly any deal that was looked at"
                " showed the agent what it had seen"
            )
    if "decisive" in row:
        decisive = msgspec.convert(row["decisive"], Decisive)
        lines.append("".join(decided_at(decisive, row["against"])))
        if decisive.fork:
            acts = [[str(a.step), a.agent, one_line(a.text, MOST_TEXT)] for a in decisive.fork]
            lines.append("\n" + columns(acts, ("step", "agent", "a fork from there that is won")))
    return lines


def _felt(message: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """What a message changed for each agent; of many for itself, and for whom it did most."""
    values = message["values"]
    if len(values) <= MOST_AGENTS:
        return [_text(value) for value in values.values()]
    most = whom_most(message["agent"], {agent: one["mean"] for agent, one in values.items()})
    return [_text(values[message["agent"]]), names[most], _text(values[most])]


def told(turn: Turn, most: int = MOST_TEXT) -> str:
    """What was done, in one line."""
    calls = [call.name for call in turn.action.tool_calls if isinstance(call, ToolCall)]
    words = " ".join([turn.action.text, *(f"{name}()" for name in calls)]).strip()
    return one_line(words or "(nothing)", most)


def _text(value: Mapping[str, Any]) -> str:
    if value["mean"] is None:
        return "n/a"
    return interval_text(value)


def _failed(values: Any) -> int:
    """All failed forks in the values of a row."""
    # by agent: what a message was for each of them, or what each adds, is told by the same forks
    if isinstance(values, dict):
        return max((each["failed"] for each in values.values()), default=0)
    return sum(_failed(one["values"]) if "values" in one else one["failed"] for one in values)
