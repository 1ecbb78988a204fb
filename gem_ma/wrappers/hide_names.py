"""The names of the others, hidden from each agent."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

from gem_ma.kernel.effects import Ask, Effect, Play, Scenario, Tell
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Action, Message, Tool, ToolCall, Turn
from gem_ma.wrappers.around import Around, layers_of, relay
from gem_ma.wrappers.retry import by_agent

Words = Callable[[str], str]
# a name that no sentence holds by chance: `player_1`, not `black` or `user`
_UNMISTAKABLE = re.compile(r".*[\d_].*", re.DOTALL)


class HideNames(Around):
    """Each agent knows the others as `opponent_1`, `opponent_2` ... in the order of the scenario:
    as senders, and, where a name holds a digit or `_`, in texts, choices and tools too. What the
    agent answers is read with the names put back."""

    def __init__(self, inner: Scenario) -> None:
        if any(isinstance(layer, HideNames) for layer in layers_of(inner)):
            raise ConfigError("hide_names stands around hide_names: write one")
        super().__init__(inner)
        self.aliases = {agent: _aliases(agent, inner.agents) for agent in inner.agents}
        self._names = {
            agent: {alias: name for name, alias in aliases.items()}
            for agent, aliases in self.aliases.items()
        }
        self._last: tuple[Episode, Episode] | None = None  # a play is judged by many calls

    def play(self, rng: random.Random, task: Any) -> Play:
        return relay(self.played(rng, task), self._handled)

    def _handled(self, effect: Effect) -> Generator[Any, Any, Any]:
        if not isinstance(effect, (Ask, Tell)) or not isinstance(effect.to, Mapping):
            return (yield effect)
        hide = {agent: _words(self.aliases.get(agent, {})) for agent in effect.to}
        to = {
            agent: _hidden(shown, hide[agent], self.aliases.get(agent, {}))
            for agent, shown in effect.to.items()
        }
        if isinstance(effect, Tell):
            return (yield replace(effect, to=to))
        legal = by_agent(effect.legal, to)
        tools = by_agent(effect.tools, to)
        choices = {agent: _choices(legal.get(agent), hide[agent]) for agent in to}
        offered = {agent: _tools(tools.get(agent), hide[agent]) for agent in to}
        actions = yield Ask(to, choices, offered, effect.reveals)
        return {
            agent: self._read(agent, action, legal.get(agent), choices[agent])
            for agent, action in actions.items()
        }

    def _read(self, agent: str, action: Action, legal: Any, choices: Any) -> Action:
        """The action with the names put back."""
        named = _named(action, _words(self._names[agent]))
        parsed = action.parsed
        if parsed is not None and choices is not legal:
            parsed = list(legal)[list(choices).index(parsed)]
        return replace(named, parsed=parsed)

    def as_ruled(self, episode: Episode) -> Episode:
        if self._last is None or self._last[0] is not episode:
            ruled = replace(
                episode,
                turns=tuple(map(self._turn, episode.turns)),
                final={
                    agent: _hidden(shown, _words(self._names[agent]), self._names[agent])
                    for agent, shown in episode.final.items()
                },
            )
            self._last = episode, super().as_ruled(ruled)
        return self._last[1]

    def _turn(self, turn: Turn) -> Turn:
        """The turn with the names put back, as the rules have played it."""
        names = self._names[turn.agent]
        back = _words(names)
        action = _named(turn.action, back)
        return replace(
            turn,
            observed=_hidden(turn.observed, back, names),
            legal=None if turn.legal is None else tuple(map(back, turn.legal)),
            tools=_tools(turn.tools, back),
            action=action if action.parsed is None else replace(action, parsed=back(action.parsed)),
        )


def _aliases(agent: str, agents: tuple[str, ...]) -> dict[str, str]:
    names: dict[str, str] = {}
    word = "opponent"
    while any(name.startswith(word) for name in agents):
        word += "_"  # a scenario may have an agent of this name
    for other in agents:
        if other != agent:
            names[other] = f"{word}_{len(names) + 1}"
    return names


def _words(names: Mapping[str, str]) -> Words:
    """Replaces these names in a text, as whole words."""
    unmistakable = [name for name in names if _UNMISTAKABLE.fullmatch(name)]
    if not unmistakable:
        return lambda text: text
    # the longest first: player_10 is not player_1
    pattern = "|".join(map(re.escape, sorted(unmistakable, key=len, reverse=True)))
    found = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")
    return lambda text: found.sub(lambda match: names[match[0]], text)


def _named(action: Action, back: Words) -> Action:
    """The action with names in its text and in the arguments of its calls."""
    calls = tuple(
        replace(call, arguments=_deep(call.arguments, back)) if isinstance(call, ToolCall) else call
        for call in action.tool_calls
    )
    return replace(action, text=back(action.text), tool_calls=calls)


def _hidden(content: Any, hide: Words, aliases: Mapping[str, str]) -> Any:
    if isinstance(content, str):
        return hide(content)
    if isinstance(content, Message):
        parts = content.content
        hidden = (
            hide(parts)
            if isinstance(parts, str)
            else tuple(hide(part) if isinstance(part, str) else part for part in parts)
        )
        return replace(content, content=hidden, sender=aliases.get(content.sender, content.sender))
    if isinstance(content, (list, tuple)):
        return tuple(_hidden(part, hide, aliases) for part in content)
    return content  # the kernel says what is wrong with it


def _choices(legal: Any, hide: Words) -> Any:
    """The choices without names; themselves where none holds one, or two would become alike."""
    if not isinstance(legal, (list, tuple)) or not all(isinstance(each, str) for each in legal):
        return legal
    hidden = tuple(map(hide, legal))
    return legal if hidden == tuple(legal) or len(set(hidden)) < len(set(legal)) else hidden


def _tools(tools: Any, hide: Words) -> Any:
    if not isinstance(tools, (list, tuple)):
        return tools or ()
    return tuple(
        Tool(tool.name, hide(tool.description), _deep(dict(tool.parameters), hide))
        if isinstance(tool, Tool)
        else tool
        for tool in tools
    )


def _deep(value: Any, words: Words) -> Any:
    """A JSON value with its texts replaced."""
    if isinstance(value, str):
        return words(value)
    if isinstance(value, dict):
        return {key: _deep(each, words) for key, each in value.items()}
    return [_deep(each, words) for each in value] if isinstance(value, list) else value
