"""A chat template is somebody else's program; here it gets a budget. Loops, calls and the
characters that it makes each take from it.

Jinja's sandbox keeps a template from files and attributes, not from endless loops or `'a' *
10**10`. So a template is compiled with counters: every loop pays for what it walks over, every
call for being made, every text and list for its length, *before* it is made where it could be
great. No clock and no second process: a template that fits the budget renders as before, and one
that does not fails at the same place on every machine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, wraps
from typing import Any

from gem_ma.errors import EngineError

# loop turns, calls and characters of one rendering; a talk of 400 turns with ten tools takes about
# 200,000
BUDGET = 5_000_000
# units of a call, of a filter; entries of a list, or characters, that are looked through for one
# unit
CALL, FILTER, LOOKS = 60, 10, 8
GREATEST_BITS = 100_000  # of a whole number
_WIDTH = re.compile(r"\d{5,}|\*|(?<=[:.<>^=]){")  # of a field in a format
# filters that do not walk over what they get
_PEEKS = frozenset(["length", "count", "first", "last", "default", "d", "attr", "safe"])
_WALKS = frozenset(
    (
        "list",
        "items",
        "map",
        "select",
        "reject",
        "selectattr",
        "rejectattr",
        "reverse",
        "sort",
        "unique",
        "groupby",
        "batch",
        "slice",
        "min",
        "max",
    )
)


class TemplateLimit(EngineError):
    """A chat template asks for more than its budget."""


class _Purse(threading.local):
    left = BUDGET


_PURSE = _Purse()


def charge(units: int) -> None:
    """Takes from the budget of the rendering. Raises TemplateLimit where it is spent."""
    _PURSE.left -= units
    if _PURSE.left < 0:
        raise TemplateLimit(f"it takes more than {BUDGET} loop turns, calls and characters")


def refill() -> None:
    """A rendering begins."""
    _PURSE.left = BUDGET


def _weigh(value: Any) -> int:
    """Characters that a value may take up as text, shared parts counted as often as they are
    shown; no more than just beyond the budget."""
    if isinstance(value, str):
        return len(value)
    total, waiting = 0, [value]
    while waiting and total <= _PURSE.left:
        one = waiting.pop()
        total += len(one) if isinstance(one, str) else 4
        if isinstance(one, Mapping):
            total += 4 * len(one)
            waiting += [*one.keys(), *one.values()] if len(one) <= _PURSE.left else []
        elif isinstance(one, (list, tuple)):
            total += len(one)
            waiting += one if len(one) <= _PURSE.left else []
        elif isinstance(one, int):
            total += one.bit_length() // 3
    return total


def _each(value: Any) -> Iterator[Any]:
    for one in value:
        charge(1)
        yield one


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 0


def _allow(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Charges what a filter or a method of a text could make of its value: its length, times
    every number and every length that it is given."""
    most = max(1, _size(value))
    for one in (*args, *kwargs.values()):
        if isinstance(one, int):
            most *= max(1, min(abs(one), BUDGET + 1))
        elif isinstance(one, str) and len(one) > 1:
            most *= len(one)
    if most > BUDGET:
        charge(most)


def _widths(form: Any) -> int:
    """Characters that the fields of a format ask for; one that takes its width from an argument
    asks for more than there is."""
    found = _WIDTH.findall(str(form))
    return sum(BUDGET + 1 if width in "*{" or len(width) > 8 else int(width) for width in found)


def _filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    skipped = int(getattr(function, "jinja_pass_arg", None) is not None)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = args[skipped:]
        value = given[0] if given else None
        if hasattr(value, "__next__"):  # what a generator holds must be known before it is used
            value = list(_each(value))
            args = (*args[:skipped], value, *args[skipped + 1 :])
        # the others make a text of it
        charge(
            FILTER
            + (0 if name in _PEEKS else 2 * _size(value) if name in _WALKS else _weigh(value))
        )
        if name == "format":
            charge(_widths(value))
        if name != "default":
            _allow(value, given[1:], kwargs)
        result = function(*args, **kwargs)
        charge(1 + _size(result))
        return result

    return run


def _binary(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, (str, bytes)):
        charge(_weigh(right) + len(left) + _widths(left))
    elif operator == "+":
        charge(_size(left) + _size(right))
    elif operator == "*" and isinstance(left, int) and isinstance(right, int):
        charge((left.bit_length() + right.bit_length() > GREATEST_BITS) * (BUDGET + 1))
    elif operator == "*":
        charge(
            max(_size(left), _size(right))
            * max([0, *(min(one, BUDGET + 1) for one in (left, right) if isinstance(one, int))])
        )
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        charge((left.bit_length() * max(0, right) > GREATEST_BITS) * (BUDGET + 1))


@cache
def _environment() -> Any:
    """The environment in which transformers compiles chat templates, with counters."""
    from copy import copy

    from jinja2 import nodes, pass_context
    from jinja2.visitor import NodeTransformer
    from transformers.utils import chat_template_utils

    @pass_context  # keeps the compiler from computing it once and for all
    def counted(_: Any, value: Any) -> Any:
        if hasattr(value, "__len__"):
            charge(len(value))
            return value
        return _each(value)

    @pass_context
    def compared(_: Any, value: Any) -> Any:
        charge(_size(value) // LOOKS)
        return value

    @pass_context
    def joined(_: Any, parts: Any) -> str:
        charge(_weigh(parts))
        return "".join(map(str, parts))

    @pass_context
    def shown(_: Any, value: Any) -> str:
        charge(_weigh(value))
        return str(value)

    @pass_context
    def written(_: Any, length: int) -> str:
        charge(length)
        return ""

    def through(name: str, node: Any) -> Any:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

    class Counting(NodeTransformer):
        def visit_For(self, node: Any) -> Any:  # noqa: N802  (jinja's names)
            self.generic_visit(node)
            node.iter = through("zq_counted", node.iter)
            return node

        def visit_Concat(self, node: Any) -> Any:  # noqa: N802  (jinja's names)
            self.generic_visit(node)
            return through("zq_joined", nodes.List(node.nodes, lineno=node.lineno))

        def visit_Compare(self, node: Any) -> Any:  # noqa: N802  (jinja's names)
            self.generic_visit(node)
            for operand in node.ops:
                operand.expr = through("zq_compared", operand.expr)
            return node

        def visit_Output(self, node: Any) -> Any:  # noqa: N802  (jinja's names)
            self.generic_visit(node)
            length = sum(
                len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData)
            )
            node.nodes = [
                part if isinstance(part, nodes.TemplateData) else through("zq_shown", part)
                for part in node.nodes
            ]
            if length:
                node.nodes.append(through("zq_written", nodes.Const(length, lineno=node.lineno)))
            return node

    plain = chat_template_utils._cached_compile_jinja_template("").environment

    class Guarded(type(plain)):  # type: ignore[misc]
        intercepted_binops = frozenset(("*", "**", "%", "+"))

        def _parse(self, source: str, name: Any, filename: Any) -> Any:
            return Counting().visit(super()._parse(source, name, filename))

        def wrap_str_format(self, value: Any) -> Any:
            inner = super().wrap_str_format(value)
            text = getattr(value, "__self__", "")
            if inner is None:
                return None

            def run(*args: Any, **kwargs: Any) -> Any:
                charge(_weigh(args) + _weigh(kwargs) + _widths(text))
                return inner(*args, **kwargs)

            return run

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _binary(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            value = getattr(__obj, "__self__", None)
            if isinstance(value, (str, bytes, list, tuple, dict)):
                if getattr(__obj, "__name__", "") in ("join", "format", "format_map", "extend"):
                    args = tuple(list(one) if hasattr(one, "__next__") else one for one in args)
                    charge(_weigh(args) + _weigh(kwargs))
                _allow(value, args, kwargs)
            charge(CALL + sum(map(_size, args)))
            result = super().call(__context, __obj, *args, **kwargs)
            charge(_size(result))
            return result

    guarded = copy(plain)
    guarded.__class__ = Guarded
    guarded.cache = None
    guarded.globals = {name: value for name, value in plain.globals.items() if name != "lipsum"}
    own = {
        "zq_counted": counted,
        "zq_compared": compared,
        "zq_joined": joined,
        "zq_shown": shown,
        "zq_written": written,
    }
    guarded.filters = {
        name: _filter(name, function) for name, function in plain.filters.items()
    } | own
    return guarded


_COMPILED: dict[str, Any] = {}


@cache
def _hook() -> None:
    """Lets transformers use what is compiled here, for the templates that were given to `guard`
    and no other."""
    from transformers.utils import chat_template_utils

    compiled = chat_template_utils._compile_jinja_template
    chat_template_utils._compile_jinja_template = lambda source: (
        _COMPILED.get(source) or compiled(source)
    )


def guard(template: Any) -> None:
    """From now on this template (a text, or several by name) is rendered on a budget, through
    `apply_chat_template` of any tokenizer."""
    from jinja2 import TemplateError

    for source in template.values() if isinstance(template, Mapping) else (template,):
        if isinstance(source, str) and source not in _COMPILED:
            refill()
            with suppress(TemplateError):  # a broken one is refused where it is rendered
                _COMPILED[source] = _environment().from_string(source)
            _hook()
