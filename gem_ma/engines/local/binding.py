"""Bound answers: which requests of a policy are sampled among legal strings or valid tool calls
alone, and why others are left free.

The sampler asks before it samples, and the learner when it scores, so both see the same mask.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gem_ma.engines.local.sampling import MOST_TREES, Choices, IdSet, Tree, Walk, allowed_along
from gem_ma.engines.local.tool_grammar import ToolGrammar
from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.vocabulary import Vocabulary
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Request, Sampling, Tool

LOG = logging.getLogger(__name__)
WAYS = (None, "auto", "legal", "tools")


def check_constrain(constrain: object, policy: str) -> None:
    """Raises ConfigError for anything that is not a value of the option `constrain`."""
    if constrain not in WAYS:
        raise ConfigError(
            f"policy {policy!r}: constrain is `auto`, `legal`, `tools` or null; got {constrain!r}"
        )


class Bound(NamedTuple):
    """How one request is sampled. `choices`: the ids that may come next, None = any. `longest`:
    tokens that the longest answer needs, 0 where an answer may be cut."""

    choices: Tree | Walk | None
    sampling: Sampling
    longest: int


class Binding:
    """The option `constrain` of one policy. `place` names its model.

    `legal` samples only ids that spell one of the legal strings, where the agent is asked with
    such. `tools` samples only calls that fit the offered tools, where some are
    (`gem_ma.engines.local.tool_grammar`). `auto` does `legal` where it can, see `binds`. None:
    nothing is bound.

    Raises ConfigError where `tools` does not go with this tokenizer.
    """

    def __init__(
        self, constrain: str | None, chat: Chat, vocabulary: Vocabulary, policy: str, place: str
    ) -> None:
        self.constrain = constrain
        self.chat = chat
        self.policy = policy
        self._vocabulary = vocabulary
        self._where = f"policy {policy!r} ({place})"
        self.choices = self._choices()
        # Legal strings that `auto` leaves free, and why.
        self._free: dict[tuple[str, ...], str] = {}
        self.grammar: ToolGrammar | None = None  # compiled for this option alone: it takes a while
        if constrain == "tools":
            banned = np.zeros(vocabulary.size, np.bool_)
            banned[sorted(vocabulary.banned)] = True
            self.grammar = ToolGrammar(chat, banned, policy)

    def _choices(self) -> Choices:
        return Choices(
            self.chat.answer, self._vocabulary.banned.isdisjoint, self._vocabulary.cut, self._where
        )

    def beside(self, chat: Chat, vocabulary: Vocabulary) -> Binding:
        """The same for another chat on an equal tokenizer; grammars are compiled once for both."""
        other = copy.copy(self)
        # the learner's thread must not use the sampler's chat
        other.chat = chat
        other._vocabulary = vocabulary
        other.choices = other._choices()
        return other

    def binds(self, legal: tuple[str, ...], tools: Sequence[Tool] = ()) -> bool:
        """Whether answers to these legal strings are sampled among them alone.

        `auto` leaves a choice free where tools are offered beside it, and where the chat template
        lets the model think before it answers. It also does, with one note, where the tokenizer
        cannot spell one of the strings, or spells it so that it is read as another text.
        """
        if self.constrain != "auto":
            return self.constrain == "legal"
        if tools or self.chat.may_think or legal in self._free:
            return False
        try:
            self.choices.tree(legal)
        except ConfigError as error:
            why = str(error).partition("; ")[0]  # less its advice, which is for `legal`
            # A game may offer other strings at every turn, and the reason is the same.
            if why not in self._free.values():
                LOG.warning("%s: such choices are sampled freely (constrain: auto)", why)
            # Bounded: strings that name prices or orders never come twice.
            if len(self._free) < MOST_TREES:
                self._free[legal] = why
            return False
        return True

    def allowed(
        self, legal: Sequence[str] | None, ids: Sequence[int], tools: Sequence[Tool] = ()
    ) -> tuple[tuple[int, ...] | IdSet | None, ...] | None:
        """What each of these sampled ids was chosen among, where the policy is bound to these
        legal strings or tools; None = among all."""
        # In the same order as in `bound`, or the learner would score under another mask.
        if self.grammar is not None:
            return self.grammar.along(tools, ids) if tools else None
        if not legal or not self.binds(tuple(legal), tools):
            return None
        return allowed_along(self.choices.tree(tuple(legal))[0], ids)

    def bound(self, request: Request) -> Bound:
        """How this request is sampled. Raises ConfigError where it cannot be bound."""
        if self.grammar is not None and request.tools:
            return self._bound_to_tools(request, self.grammar)
        if not request.legal or not self.binds(request.legal, request.tools):
            return Bound(None, request.sampling, 0)
        tree, longest = self.choices.tree(request.legal)
        if self.constrain == "auto":
            # As far as max_tokens and the context go; an answer is cut there as a free one is.
            longest = 0
        if longest > request.sampling.max_tokens:
            raise ConfigError(
                f"policy {self.policy!r}, agent {request.agent!r}: max_tokens is"
                f" {request.sampling.max_tokens}, and the longest of its legal strings has"
                f" {longest} tokens, the end of turn included"
            )
        # A stop string would cut a legal one in two; the end of turn stops the row anyway.
        return Bound(tree, replace(request.sampling, stop=()), longest)

    def _bound_to_tools(self, request: Request, grammar: ToolGrammar) -> Bound:
        walk = grammar.walk(request.tools)
        if any(request.sampling.stop):
            raise ConfigError(
                f"policy {self.policy!r}, agent {request.agent!r}: a stop string would cut a tool"
                " call in two; leave out `stop`, or `constrain: tools`"
            )
        return Bound(walk, request.sampling, 0)
