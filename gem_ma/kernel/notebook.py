"""An episode as lanes of HTML, for a notebook: a column per agent, a row per step, what each was
shown in grey above what it did, and what was paid at the right.

Agents, scenarios and data wrote every text here, so each is escaped, and there are neither scripts
nor addresses in it. Long texts and plays are cut, and the cut is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Any

# characters of one message; steps of a play
MOST_TEXT = 1_200
MOST_STEPS = 60
_CELL = "vertical-align:top;text-align:left;padding:4px 8px;border-top:1px solid #8884;"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;"
_SEEN_STYLE = f"opacity:.65;font-size:90%;{_TEXT}"
_ACT_STYLE = f"border-left:3px solid #888a;padding-left:6px;{_TEXT}"


def lanes(episode: Any) -> str:
    """One `Episode` as a table of HTML."""
    agents = list(episode.cast)
    heads = "".join(f'<th style="{_CELL}">{escape(agent)}</th>' for agent in agents)
    rows = [f'<tr><th style="{_CELL}">step</th>{heads}<th style="{_CELL}">paid</th></tr>']
    rows += [_row("", {}, agents, _paid(episode, -1))] if _paid(episode, -1) else []
    steps = [(step, list(turns)) for step, turns in groupby(episode.turns, lambda turn: turn.step)]
    for step, turns in steps[:MOST_STEPS]:
        cells = {turn.agent: _turn(turn) for turn in turns}
        rows.append(_row(str(step), cells, agents, _paid(episode, step)))
    if len(steps) > MOST_STEPS:
        rows.append(_row("...", {}, agents, f"{len(steps) - MOST_STEPS} more steps"))
    final = {agent: _seen(messages) for agent, messages in episode.final.items() if messages}
    rows += [_row("end", final, agents, "")] if final else []
    head = escape(repr(episode))
    return f'<div><p><code>{head}</code></p><table style="width:100%">{"".join(rows)}</table></div>'


def _row(step: str, cells: dict[str, str], agents: Iterable[str], paid: str) -> str:
    parts = [step, *(cells.get(agent, "") for agent in agents), escape(paid)]
    return "<tr>" + "".join(f'<td style="{_CELL}">{part}</td>' for part in parts) + "</tr>"


def _turn(turn: Any) -> str:
    """What an agent was shown and did at one step."""
    acts = [_cut(turn.action.text)] if turn.action.text else []
    for call in turn.action.tool_calls:
        # one that could not be read has its text and a reason
        arguments = getattr(call, "arguments", None)
        acts.append(f"{call.name} {_cut(str(arguments))}" if arguments is not None else call.text)
    if turn.illegal:
        acts.append("(none of the legal moves)")
    text = escape("\n".join(acts) or "(said nothing)")
    return f'{_seen(turn.observed)}<div style="{_ACT_STYLE}">{text}</div>'


def _seen(messages: Iterable[Any]) -> str:
    return "".join(
        f'<div style="{_SEEN_STYLE}"><b>{escape(message.sender)}</b>'
        f" {escape(_cut(message.text))}</div>"
        for message in messages
    )


def _paid(episode: Any, step: int) -> str:
    return "; ".join(
        f"{entry.agent} {entry.value:+g}" + (f" ({_cut(entry.why)})" if entry.why else "")
        for entry in episode.ledger
        if entry.step == step
    )


def _cut(text: str) -> str:
    left = len(text) - MOST_TEXT
    return text if left <= 0 else f"{text[:MOST_TEXT]} ... [{left} more characters]"
