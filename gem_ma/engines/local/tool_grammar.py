"""Constrained tool calls: which ids may come next so that every call that an answer opens is one of
an offered tool, with arguments of its schema.

Free text is free: only after `<tool_call>` is the answer bound, until the call is closed. The
grammar is llguidance's (extra `grammar`). It is narrower than a schema in three things, for the
sake of what can be read: objects hold no properties that were not declared (unless the schema says
that they may), numbers without bounds get wide ones, and white space in JSON is bounded.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.sampling import IdSet
from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.loading import needed
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.strict_json import MAX_CALLS
from gem_ma.kernel.types import Tool

# bounds of numbers: what a float holds exactly, and what is written without an exponent
WHOLE = 2**53
REAL = 1e15
SPACE = r"[\x20\x0A\x0D\x09]{1,8}"  # a model in doubt writes white space for ever


def grammar_of(tools: Iterable[Tool], closing: str) -> str:
    """What may follow `<tool_call>`, in llguidance's form of Lark. Arguments are grammars of
    their own, so `$ref` inside them holds."""
    offered = list({tool.name: tool for tool in tools}.values())
    # any ids that spell it, not only those that the tokenizer would write
    lines = ['%llguidance {"no_forcing": true}']
    lines += [f"start: space call space {closing}", r"space: (/[ \t\r\n]/)~0..2"]
    lines.append("call: " + " | ".join(f"call_{number}" for number in range(len(offered))))
    for number, tool in enumerate(offered):
        parts = (
            "{",
            '"name"',
            ":",
            json.dumps(tool.name, ensure_ascii=False),
            ",",
            '"arguments"',
            ":",
        )
        spelled = " space ".join(json.dumps(part, ensure_ascii=False) for part in parts)
        lines.append(f'call_{number}: {spelled} space arguments_{number} space "}}"')
        schema = {
            **arguments_schema(tool.parameters),
            "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": SPACE},
        }
        lines.append(f"arguments_{number}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments: an object, closed and with bounded numbers, see the module.

    >>> arguments_schema({"properties": {"x": {"type": "integer", "minimum": 0}}})
    {'properties': {'x': {'type': 'integer', 'minimum': 0, 'maximum': 9007199254740992}},
    'additionalProperties': False, 'type': 'object'}
    """
    plain = json.loads(json.dumps(parameters, default=dict))  # scenarios may freeze their schemas
    # a schema that composes objects cannot be closed place by place: each part would refuse what
    # another part declares
    narrow: dict[str, Any] = _narrowed(plain, closes=not _composed(plain))
    if narrow.get("type", "object") == "object":
        return {**narrow, "type": "object"}
    return {"allOf": [{"type": "object"}, narrow]}


COMPOSED = ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "unevaluatedProperties")
# keys that hold a list of schemas, schemas by name, and one schema
OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
OF_NAMED = ("properties", "$defs", "definitions")
OF_SCHEMA = ("items", "additionalProperties")


def _composed(node: Any) -> bool:
    """Whether properties are declared in several places for one object, which must then stay
    open to each other's."""
    if isinstance(node, list):
        return any(map(_composed, node))
    if not isinstance(node, dict):
        return False
    return (
        "allOf" in node
        or ("properties" in node and any(key in node for key in COMPOSED))
        or any(map(_composed, node.values()))
    )


def _narrowed(node: Any, *, closes: bool) -> Any:
    if not isinstance(node, dict):
        return node
    made = dict(node)
    for key in OF_SCHEMAS:
        if isinstance(node.get(key), list):
            made[key] = [_narrowed(inner, closes=closes) for inner in node[key]]
    for key in OF_NAMED:
        if isinstance(node.get(key), dict):
            made[key] = {name: _narrowed(inner, closes=closes) for name, inner in node[key].items()}
    for key in OF_SCHEMA:
        if key in node:
            made[key] = _narrowed(node[key], closes=closes)
    if closes and isinstance(node.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made | _bounds(node)


def _bounds(node: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds for a number that has none: unbounded digits are endless, and read as infinity."""
    types = node.get("type")
    kinds: Collection[Any] = [types] if isinstance(types, str) else ()
    if isinstance(types, list):
        kinds = types
    bound = REAL if "number" in kinds else WHOLE if "integer" in kinds else None
    if bound is None or "enum" in node or "const" in node:
        return {}
    lowest = _bound(node, ("minimum", "exclusiveMinimum"))
    highest = _bound(node, ("maximum", "exclusiveMaximum"))
    added: dict[str, Any] = {}
    # a bound of ours beyond the schema's own would leave nothing between them
    if lowest is None and (highest is None or highest > -bound):
        added["minimum"] = -bound
    if highest is None and (lowest is None or lowest < bound):
        added["maximum"] = bound
    return added


def _bound(node: Mapping[str, Any], keys: Iterable[str]) -> float | None:
    return next(
        (
            node[key]
            for key in keys
            if isinstance(node.get(key), (int, float)) and not isinstance(node[key], bool)
        ),
        None,
    )


# the oldest goes first
KEPT_GRAMMARS = 256
KEPT_SETS = 2048
KEPT_ANSWERS = 2048
OPENING = "<tool_call>"
CLOSING = "</tool_call>"
# what a tokenizer must be able to write
SAMPLE = '{"name": "a_b", "arguments": {"x": [1, -2.5, true, null], "y": "z"}}'

Key = TypeVar("Key")
Value = TypeVar("Value")
_TAG = OPENING.encode()
_THINK = b"<think>"
_THOUGHT = b"</think>"


class ToolGrammar:
    """The masks of one policy's tool calls. `banned` [vocabulary]: true at ids that are never
    sampled. Raises ConfigError without llguidance, for a tool format other than hermes, and for a
    tokenizer that cannot write calls."""

    def __init__(self, chat: Chat, banned: NDArray[np.bool_], policy: str) -> None:
        where = f"policy {policy!r}: constrain: tools"
        with needed(f"{where} needs llguidance", "grammar"):
            import llguidance
            from llguidance.hf import from_tokenizer
        if chat.tool_format != "hermes":
            raise ConfigError(
                f"{where} knows the tool format hermes; this policy's is {chat.tool_format}: leave"
                " it out"
            )
        self.where = where
        self._library = llguidance
        try:
            self._tokenizer = from_tokenizer(chat.tokenizer, eos_token=sorted(chat.ends))
            written = chat.tokenizer(OPENING + SAMPLE + CLOSING, add_special_tokens=False)[
                "input_ids"
            ]
        except (ValueError, RuntimeError, AttributeError) as error:
            raise ConfigError(
                f"{where}: the grammar cannot read this tokenizer ({str(error)[:100]}); leave"
                " it out"
            ) from error
        if chat.text(written) != OPENING + SAMPLE + CLOSING or banned[written].any():
            raise ConfigError(
                f"{where}: the tokenizer has no words for a tool call in JSON; use a byte-level"
                " model, or leave it out"
            )
        self._may = ~banned
        self._may[sorted(chat.ends)] = False  # a turn does not end inside a call
        # a closing tag that is a control token is one id; letters that spell it are not the tag
        close = chat.tokenizer.convert_tokens_to_ids(CLOSING)
        known = close is not None and close != chat.tokenizer.unk_token_id
        special = known and self._tokenizer.is_special_token(close)
        self._close = f'("{CLOSING}" | {CLOSING})' if special else f'"{CLOSING}"'
        self.bytes = [b""] * len(banned)
        for token in np.flatnonzero(self._may[: self._tokenizer.vocab_size]).tolist():
            self.bytes[token] = self._tokenizer.decode_bytes([token])
        for token in chat.marks:
            self.bytes[token] = str(chat.tokenizer.convert_ids_to_tokens(token)).encode()
        # the only ids that can end an opening
        self._closers = [
            (token, word) for token, word in enumerate(self.bytes) if _TAG[-1:] in word
        ]
        self._lock = Lock()  # a learner may walk while a sampler does
        self._grammars: OrderedDict[str, Any] = OrderedDict()
        self._sets: OrderedDict[bytes, IdSet] = OrderedDict()
        self._answers: OrderedDict[tuple[str, tuple[int, ...]], tuple[IdSet | None, ...] | None] = (
            OrderedDict()
        )
        self.free = {
            full: [self._outside(banned, matched, full) for matched in range(len(_TAG))]
            for full in (False, True)
        }

    def walk(self, tools: Sequence[Tool]) -> ToolWalk:
        """The walk of an answer that is offered these tools. Raises ConfigError for a schema
        that the grammar cannot express."""
        return ToolWalk(self, self._matcher(_key(tools), tools))

    def along(self, tools: Sequence[Tool], ids: Sequence[int]) -> tuple[IdSet | None, ...] | None:
        """What was allowed at each of these ids, None = anything; None in all where they leave
        the grammar and so were never bound by it."""
        key = (_key(tools), tuple(ids))
        with self._lock:
            if key in self._answers:
                return self._answers[key]
        walk = self.walk(tools)
        sets = list[IdSet | None]()
        for token in ids:
            allowed = walk.among()
            if allowed is not None and token not in allowed:
                break
            sets.append(allowed)
            walk.after(token)
        result = tuple(sets) if len(sets) == len(ids) else None
        with self._lock:
            _keep(self._answers, key, result, KEPT_ANSWERS)
        return result

    def among(self, matcher: Any) -> IdSet:
        """The ids that may follow inside a call. Raises EngineError where there are none."""
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        # the library knows the tokenizer's ids, not the rows that pad the embedding behind them
        may = np.zeros(len(self._may), np.bool_)
        allowed = np.unpackbits(bits, bitorder="little").astype(np.bool_)[: len(may)]
        may[: len(allowed)] = allowed
        may &= self._may
        if matcher.is_error() or not may.any():
            raise EngineError(
                f"{self.where}: no id can go on with the tool call;"
                f" {matcher.get_error()[:200] or 'the tokenizer lacks a word for it'}"
            )
        return self._set(may)

    def _set(self, may: NDArray[np.bool_]) -> IdSet:
        """The set of these ids, kept once: most places of most answers share a few sets."""
        made = IdSet(may)
        with self._lock:
            known = self._sets.get(made.bits)
            return known if known is not None else _keep(self._sets, made.bits, made, KEPT_SETS)

    def _outside(self, banned: NDArray[np.bool_], matched: int, full: bool) -> IdSet | None:
        """What free text may go on with after the first `matched` bytes of an opening: no id
        that runs past the opening's end, where the call begins; with `full`, none that completes
        it. None where that is everything.
        """
        left = _TAG[matched:]
        barred = [
            token
            for token, word in self._closers
            if _runs(word, left, full) or _TAG in word[: None if full else -1]
        ]
        may = ~banned
        may[barred] = False
        return self._set(may) if barred else None

    def _matcher(self, key: str, tools: Sequence[Tool]) -> Any:
        with self._lock:
            known = self._grammars.get(key)
        if known is None:
            # one by one first, so that the message names the tool that is at fault
            for tool in tools:
                self._compiled(
                    [tool], f"{self.where}: the schema of tool {tool.name!r} cannot be a grammar"
                )
            known = self._compiled(tools, f"{self.where}: the tools together cannot be a grammar")
            with self._lock:
                _keep(self._grammars, key, known, KEPT_GRAMMARS)
        return known.deep_copy()

    def _compiled(self, tools: Sequence[Tool], what: str) -> Any:
        made = self._library.LLMatcher(self._tokenizer, grammar_of(tools, self._close), log_level=0)
        if made.is_error():
            why = next((line.strip() for line in made.get_error().splitlines() if line.strip()), "")
            raise ConfigError(f"{what}: {why[:300]}; change it, or leave out `constrain: tools`")
        return made


class ToolWalk:
    """One answer under way. `among()` is asked before each id, `after(id)` is called behind it."""

    __slots__ = ("_calls", "_grammar", "_inside", "_matcher", "_start", "_tail", "_thinks")

    def __init__(self, grammar: ToolGrammar, matcher: Any) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._inside: Any = None  # the matcher of the call that is open
        # of the answer, until it is known whether that opens a thought
        self._start: bytes | None = b""
        self._thinks = False
        self._tail = b""
        self._calls = 0

    def among(self) -> IdSet | None:
        """The ids that may come next; None = anything that is ever sampled."""
        if self._inside is not None:
            return self._grammar.among(self._inside)
        if self._thinks:  # calls in thoughts are thoughts
            return None
        matched = next(
            (
                size
                for size in range(min(len(_TAG) - 1, len(self._tail)), 0, -1)
                if self._tail.endswith(_TAG[:size])
            ),
            0,
        )
        return self._grammar.free[self._calls >= MAX_CALLS][matched]

    def after(self, token: int) -> None:
        """Goes on past an id that `among` allowed."""
        if self._inside is not None:
            self._inside.consume_token(token)
            if self._inside.is_stopped():
                self._inside = None
                self._tail = b""
                self._calls = self._calls + 1
            return
        word = self._grammar.bytes[token]
        self._tail += word
        if self._start is not None:
            self._start = (self._start + word).lstrip()
            if self._start.startswith(_THINK):
                self._thinks = True
                self._start = None
            elif not _THINK.startswith(self._start):
                self._start = None
        if self._thinks and _THOUGHT in self._tail:
            self._thinks = False
            self._tail = self._tail.partition(_THOUGHT)[2]
        if not self._thinks and _TAG in self._tail:
            self._inside = self._matcher.deep_copy()  # each call begins at the beginning
        self._tail = self._tail[-len(_TAG) :]


def _runs(word: bytes, left: bytes, full: bool) -> bool:
    """Whether this word ends an opening of which `left` is left, and goes on past it; with
    `full`, whether it ends it."""
    return word.startswith(left) and (full or len(word) > len(left))


def _keep(known: OrderedDict[Key, Value], key: Key, value: Value, limit: int) -> Value:
    known[key] = value
    if len(known) > limit:
        known.popitem(last=False)
    return value


def _key(tools: Sequence[Tool]) -> str:
    return json.dumps([[tool.name, tool.parameters] for tool in tools], default=dict)
