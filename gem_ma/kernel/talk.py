"""Talk among agents, inside of a play: who speaks when, who hears it, in which form.

`said = yield from talk(alive, "Discuss.")` in a scenario's `play`.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from gem_ma.kernel.effects import Ask, Content, Tell
from gem_ma.kernel.types import Message

FORMS = ("none", "signals", "free")
ORDERS = ("at once", "in turn", "bids")
# what an agent may bid for its turn to speak; the most speaks
BIDS = ("0", "1", "2", "3", "4")

Said = tuple[str, str]  # who, what


def talk(
    agents: Sequence[str],
    question: str | Mapping[str, Content],
    *,
    form: str = "free",
    signals: Sequence[str] | Mapping[str, Sequence[str]] = (),
    rounds: int = 1,
    order: str = "at once",
    hearers: Mapping[str, Sequence[str]] | None = None,
    rng: random.Random | None = None,
    most: int = 400,
) -> Generator[Any, Any, list[Said]]:
    """Lets agents speak, and gives [(agent, text)] in the order in which it was heard; silence is
    left out.

    `question`: what each speaker is asked, one for all or by agent. `form`: `none` says nothing,
    `signals` takes one of `signals`, the same for all or by agent, `free` any text, of which `most`
    characters are heard.
    `order`: all `at once`, each `in turn` after it has heard those before, or one a round by
    `bids`, ties by lot (`rng`, as `play` has it). `hearers`: agent -> who hears it (a team, a
    neighbour); else all `agents`. A message keeps its sender. Raises ValueError for another form
    or order, or bids without `rng`.

    >>> talking = talk(["ann", "bob"], "Say hello.", form="signals", signals=("hello", "no"))
    >>> sorted(next(talking).to)
    ['ann', 'bob']
    """
    if form not in FORMS or order not in ORDERS:
        raise ValueError(f"talk is {' | '.join(FORMS)}, {' | '.join(ORDERS)}; got {form}, {order}")
    if order == "bids" and rng is None:
        raise ValueError("talk by bids needs rng, which breaks ties")
    told = {agent: tuple((hearers or {}).get(agent, agents)) for agent in agents}
    closed = signals if isinstance(signals, Mapping) else tuple(signals)
    legal = closed if form == "signals" else None
    said: list[Said] = []
    for _ in range(0 if form == "none" else rounds):
        for speakers in (yield from _speakers(agents, order, rng)):
            asked = {
                agent: question if isinstance(question, str) else question[agent]
                for agent in speakers
            }
            actions = yield Ask(asked, legal=legal)
            texts = {
                agent: (actions[agent].parsed or "" if legal else actions[agent].text)[:most]
                for agent in speakers
            }
            spoken = [(agent, text) for agent, text in texts.items() if text.strip()]
            heard: dict[str, list[Message]] = {}
            for agent, text in spoken:
                # one message for all who hear it: of many agents there are n^2 hearings
                message = Message(text, agent)
                for hearer in told[agent]:
                    if hearer != agent:
                        heard.setdefault(hearer, []).append(message)
            if heard:
                yield Tell(heard)
            said += spoken
    return said


def _speakers(
    agents: Sequence[str], order: str, rng: random.Random | None
) -> Generator[Any, Any, list[Sequence[str]]]:
    """Who speaks in a round, those who speak at once together."""
    if order == "at once":
        return [agents]
    if rng is None or order == "in turn":
        return [(agent,) for agent in agents]
    bids = yield Ask(dict.fromkeys(agents, "How much do you want to speak?"), legal=BIDS)
    wanted = {agent: int(bids[agent].parsed or "0") for agent in agents}
    first = [agent for agent in agents if wanted[agent] == max(wanted.values())]
    # nobody speaks where nobody wants to
    return [(rng.choice(first),)] if any(wanted.values()) else []
