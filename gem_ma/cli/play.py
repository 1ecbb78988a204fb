"""`gem-ma play`: a person takes a seat at the terminal, the others play as they are set."""

from __future__ import annotations

from pathlib import Path

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.episode import name_of
from gem_ma.cli.run import play
from gem_ma.cli.seats import seated
from gem_ma.cli.terminal import OPEN, base_url_option, columns, emit, json_option
from gem_ma.config.loading import Loaded, load
from gem_ma.kernel.spelling import nearest
from gem_ma.runs.playing import drawn_seed, with_person
from gem_ma.runs.store import read_episodes, read_summary, run_path
from gem_ma.runs.worlds import seats_by_name

EXAMPLE = """\b
Examples:
  gem-ma play kuhn_poker --as player_0
  gem-ma play retail --as user --assistant openai/gpt-4.1-mini"""


@click.command(epilog=EXAMPLE, context_settings=OPEN)
@click.argument("source", shell_complete=sources, metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE|--AGENT WHO]...")
@base_url_option
@click.option("--as", "agent", metavar="AGENT", help="Your seat.  [default: the only agent]")
@click.option("-n", "--plays", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), help="The start.  [default: drawn]")
@click.option("--out", type=click.Path(), help="The run folder.  [default: runs/play-...]")
@json_option
def command(
    source: str,
    overrides: tuple[str, ...],
    base_urls: tuple[str, ...],
    agent: str | None,
    plays: int,
    seed: int | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Play one agent of a scenario or a config yourself.

    What is new for you is shown, then you type: a move or its number, a tool call, or a text. A
    typing error is not a move and is asked again. Every play has a new start, unless --seed names
    one; it is recorded as any run, and a model plays another seat by --AGENT ENGINE/NAME.
    """
    if seed is None:
        seed = drawn_seed()
    source, words = seated(source, overrides, base_urls)
    seat = _seat_of(load(source, words, typed=True), agent)
    loaded = with_person(source, words, seat, plays=plays, seed=seed)
    path = Path(out) if out else run_path(f"play-{loaded.stem}", loaded.identity())
    code = play(loaded, path, as_json=as_json, quiet=True, say_score=as_json)
    if not as_json:
        _show(path, seat, seed)
    return code


def _seat_of(loaded: Loaded, agent: str | None) -> str:
    """The seat that is wanted. Raises UsageError for any other."""
    agents = list(seats_by_name(loaded.config, base=loaded.base))
    if agent is None and len(agents) == 1:
        return agents[0]
    if agent is None:
        raise click.UsageError(f"--as AGENT says who you are: {', '.join(agents)}")
    if agent not in agents:
        raise click.UsageError(f"--as {agent}: no agent has this name{nearest(agent, agents)}")
    return agent


def _show(path: Path, seat: str, seed: int) -> None:
    """What came of it, in few lines: the person has just seen the play."""
    summary = read_summary(path) or {}
    rows = []
    if summary.get("success") is not None and summary["success"]["mean"] is not None:
        rows.append(("success", f"{summary['success']['mean']:g} of {summary['success']['n']}"))
    if seat in summary.get("returns", {}) and summary["returns"][seat]["mean"] is not None:
        rows.append((f"your return ({seat})", f"{summary['returns'][seat]['mean']:g}"))
    rows += [("the same start", f"--seed {seed}"), ("run folder", str(path))]
    for episode in read_episodes(path):
        rows.append(("look at it", f"gem-ma show {path} --episode {name_of(episode)}"))
    emit(columns(rows))
