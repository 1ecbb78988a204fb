"""Does every key of `agents:` seat somebody, and is it plain whom? Part of `fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gem_ma.config.document import COMMAND_LINE, Document, Keys, dotted, section
from gem_ma.config.seating import fits, keys_of, letters
from gem_ma.config.worlds_written import seats


def check_used(
    document: Document, agents: Mapping[Keys, Sequence[str]], casts: Mapping[Keys, dict[str, Keys]]
) -> None:
    """Adds a fault for every key that fits agents and seats none, because others go before it, and
    for two patterns of which none goes before the other. `agents` and the places of their seats
    are by world; where those of one cannot be known, nothing is called unused."""
    used = {path for cast in casts.values() for path in cast.values()} | document.copied
    for path, values in seats(document) if all(agents.values()) else ():
        key = str(path[-1])
        section_of = path[:-1]
        fitting = [
            (world, agent)
            for world, names in agents.items()
            for agent in names
            if section_of in (("agents",), (*world, "agents")) and fits(agent, key)
        ]
        before = {casts[world][agent] for world, agent in fitting if agent in casts[world]}
        layer = _layer(document, path)
        # what is typed later may take all seats of what stood there before
        if fitting and path not in used and all(_layer(document, o) <= layer for o in before):
            others = ", ".join(
                f"{dotted(o)} ({document.place(o)})" for o in sorted(before, key=str)
            )
            document.fault(
                path,
                "seats nobody, since a name goes before a pattern and a longer pattern before a"
                f" shorter: take it out, or {others}",
            )
        for agent in dict.fromkeys(agent for _, agent in fitting):
            keys = keys_of(agent, section(document, *section_of))
            rival = keys[1] if len(keys) > 1 and keys[1] == key else key
            is_tie = agent not in keys and letters(rival) == letters(keys[0]) and rival != keys[0]
            if is_tie and document.get(*section_of, keys[0]) != values:
                document.fault(path, f"{agent!r} fits {keys[0]!r} too: write {agent!r} out")
                break


def _layer(document: Document, path: Keys) -> int:
    """The later a seat was written, the higher: a file that is extended, the file, the cell of a
    study, the command line."""
    place = document.place(path)
    if place.file == COMMAND_LINE:
        return 3
    return 2 if path in document.cell else int(place.file == document.place(()).file)
