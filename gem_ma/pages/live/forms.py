"""Play in the browser without scripts: the forms of a play, and what their fields mean. A browser
sends them by itself; the answer is the page again.

It knows fields and markup, nothing of games or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.errors import StoreError
from gem_ma.pages.static.page import Html, text

MOST_MOVES = 120  # buttons; the others are typed, as on the page with scripts
_SEAT = "who."  # before the name of an agent: who plays it


def choose_form(names: Sequence[str], wanted: str) -> Html:
    """Which scenario: sent as an address, which changes nothing."""
    options = "".join(_option(name, name == wanted) for name in names)
    return Html(
        '<form class="play" method="get" action="/play"><label>scenario'
        f' <select name="scenario">{options}</select></label> {_button("choose")}</form>'
    )


def begin_form(scenario: str, cast: Mapping[str, Any], agent: str, token: str) -> Html:
    """Which agent, against whom. `cast`: `agents` with who plays them by default, `behaviours`."""
    agents = cast["agents"]
    seats = "".join(
        f'<label>{text(name)} is played by <input name="{_SEAT}{text(name)}" placeholder='
        f'"{text(plays)}" list="known"></label>'
        for name, plays in agents
    )
    known = "".join(f'<option value="{text(name)}">' for name in cast["behaviours"])
    options = "".join(_option(name, name == agent) for name, _ in agents)
    return _form(
        "begin",
        {"scenario": scenario},
        token,
        f'<p>{text(scenario)}</p><label>you are <select name="agent">{options}</select></label>'
        f'{seats}<datalist id="known">{known}</datalist><label>seed <input name="seed"'
        f' inputmode="numeric" placeholder="drawn"></label>{_button("begin")}',
    )


def turn_form(name: str, state: Mapping[str, Any], token: str, fault: str = "") -> Html:
    """What may be done at this moment of a play. `fault`: why the last answer was none."""
    note = f'<p class="bad" role="status">{text(fault)}</p>' if fault else ""
    if state["end"] is not None:
        return Html(note + _ended(name, state["end"]))
    asked = state["asked"]
    if asked is None:
        again = f'<a href="/play/{text(name)}">look again</a>'
        return Html(f"{note}<p>The others play: {again}.</p>")
    fields = {"turn": asked["turn"]}
    legal = asked["legal"] or []
    # by place: not every letter of a move comes back from a form as it was sent
    moves = "".join(
        f'<button class="chip" name="move" value="{place}">{text(move or "(nothing)")}</button>'
        for place, move in enumerate(legal[:MOST_MOVES])
    )
    buttons = _form(f"{name}/answer", fields, token, f'<div class="moves">{moves}</div>')
    tools = "".join(f"<li>{text(line)}</li>" for _, line in asked["tools"])
    listed = f"<p>A line that opens with / calls a tool:</p><ul>{tools}</ul>" if tools else ""
    label = "or type a move, or its number" if legal else "your answer"
    box = f'<label>{label} <textarea name="text" rows="2"></textarea></label>{_button("send")}'
    typed = _form(f"{name}/answer", fields, token, listed + box)
    leave = _form(f"{name}/end", {}, token, _button("give up"))
    return Html(note + (buttons if legal else "") + typed + leave)


def begin_wish(fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `begin_form` as a page with scripts would send them. Raises KeyError."""
    agent = fields["agent"]
    # an agent may have the name of another field
    who = {
        key.removeprefix(_SEAT): name.strip()
        for key, name in fields.items()
        if key.startswith(_SEAT) and key != _SEAT + agent
    }
    return {"scenario": fields["scenario"], "agent": agent, "seed": fields["seed"], "who": who}


def answer_wish(fields: Mapping[str, str], state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `turn_form` as a page with scripts would send them in this state. Raises
    KeyError, ValueError, StoreError."""
    turn = int(fields["turn"])
    asked = state["asked"]
    typed = fields.get("text", "").replace("\r\n", "\n")
    if "move" in fields:
        # sent twice, or too late: the moves of another turn are other moves
        if asked is None or asked["turn"] != turn:
            raise StoreError("this turn is over already")
        legal = asked["legal"] or []
        place = int(fields["move"])
        if not 0 <= place < len(legal):
            raise StoreError("there is no such move")
        typed = legal[place]
    return {"turn": turn, "text": typed, "from": 0}


def _ended(name: str, end: Mapping[str, Any]) -> str:
    how = f" ({end['how']})" if end.get("how") else ""
    rows = [*end["totals"]]
    if end.get("won") is not None:
        rows.insert(0, ["success", "yes" if end["won"] else "no"])
    facts = "".join(f"<div><dt>{text(key)}</dt><dd>{text(of)}</dd></div>" for key, of in rows)
    error = f'<p class="bad">{text(end["error"])}</p>' if end["error"] else ""
    whole = f'<p><a href="/run/{text(name)}">the whole play, with what the others saw</a></p>'
    return f'<p>The play is over{text(how)}.</p>{error}<dl class="facts">{facts}</dl>{whole}'


def _form(to: str, fields: Mapping[str, object], token: str, inside: str) -> Html:
    hidden = "".join(
        f'<input type="hidden" name="{text(key)}" value="{text(value)}">'
        for key, value in {"token": token, **fields}.items()
    )
    return Html(
        f'<form class="play" method="post" action="/play/{text(to)}">{hidden}{inside}</form>'
    )


def _option(name: str, chosen: bool) -> str:
    return f'<option value="{text(name)}"{" selected" if chosen else ""}>{text(name)}</option>'


def _button(words: str) -> str:
    return f'<button class="chip" type="submit">{words}</button>'
