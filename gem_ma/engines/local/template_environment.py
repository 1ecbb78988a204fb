"""Jinja with counters: the environment in which transformers compiles chat templates, but every
loop, call, filter, operator and output takes from the budget of `template_budget`.

Counters are put into the parsed template as filters of ours, since the compiler offers no other
place for them. Imported only where there is a template to compile: it needs jinja2 and
transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime
from functools import cache, wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from gem_ma.engines.local.template_budget import (
    CALL,
    FILTER,
    charge,
    charge_operator,
    charge_result,
    each,
    size,
    weight,
    widths,
)

NOW = datetime(2024, 7, 26)  # `DAY` of `chat_template`, for templates that ask for the time
LOOKS = 8  # entries of a list, or characters, that a comparison looks through for one unit
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
# methods that gather all that is in their arguments
_GATHER = ("join", "format", "format_map", "extend")


# -- counters, as filters ------------------------------------------------------------------------
# `pass_context` keeps the compiler from computing a filter of constants once and for all.


@pass_context
def _counted(_: Any, value: Any) -> Any:
    if hasattr(value, "__len__"):
        charge(len(value))
        return value
    return each(value)


@pass_context
def _compared(_: Any, value: Any) -> Any:
    charge(size(value) // LOOKS)
    return value


@pass_context
def _joined(_: Any, parts: Any) -> str:
    charge(weight(parts))
    return "".join(map(str, parts))


@pass_context
def _rendered(_: Any, value: Any) -> str:
    charge(weight(value))
    return str(value)


@pass_context
def _written(_: Any, length: int) -> str:
    charge(length)
    return ""


COUNTERS = {
    "zq_counted": _counted,
    "zq_compared": _compared,
    "zq_joined": _joined,
    "zq_shown": _rendered,
    "zq_written": _written,
}


def _through(name: str, node: Any) -> Any:
    """A node behind one of the counters."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Counting(NodeTransformer):
    """Puts counters into a parsed template. The names of the methods are jinja's."""

    def visit_For(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        node.iter = _through("zq_counted", node.iter)
        return node

    def visit_Concat(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        return _through("zq_joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        for operand in node.ops:
            operand.expr = _through("zq_compared", operand.expr)
        return node

    def visit_Output(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        length = sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _through("zq_shown", part)
            for part in node.nodes
        ]
        # the template's own text is not wrapped: one charge for all of it is cheaper
        if length:
            node.nodes.append(_through("zq_written", nodes.Const(length, lineno=node.lineno)))
        return node


# -- filters, operators and calls ----------------------------------------------------------------


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for what it reads and what it makes."""
    # some take the context or the environment first, and their value behind it
    skipped = int(getattr(function, "jinja_pass_arg", None) is not None)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        inputs = args[skipped:]
        value = inputs[0] if inputs else None
        if hasattr(value, "__next__"):  # what a generator holds must be known before it is used
            value = list(each(value))
            args = (*args[:skipped], value, *args[skipped + 1 :])
        charge(FILTER + _read_by(name, value))
        if name == "format":
            charge(widths(value))
        if name != "default":
            charge_result(value, inputs[1:], kwargs)
        result = function(*args, **kwargs)
        charge(1 + size(result))
        return result

    return run


def _read_by(name: str, value: Any) -> int:
    """Units for what a filter reads of its value; one that is in no list makes a text of it."""
    if name in _PEEKS:
        return 0
    return 2 * size(value) if name in _WALKS else weight(value)


class _Counts(SandboxedEnvironment):
    """What is put in front of the class of an environment, so that it counts."""

    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def _parse(self, source: str, name: Any, filename: Any) -> Any:
        return _Counting().visit(super()._parse(source, name, filename))

    def wrap_str_format(self, value: Any) -> Any:
        inner = super().wrap_str_format(value)
        text = getattr(value, "__self__", "")
        if inner is None:
            return None

        def run(*args: Any, **kwargs: Any) -> Any:
            charge(weight(args) + weight(kwargs) + widths(text))
            return inner(*args, **kwargs)

        return run

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        charge_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    # two underscores: a template may call with keywords that are named as these are
    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        value = getattr(__obj, "__self__", None)
        if isinstance(value, (str, bytes, list, tuple, dict)):
            if getattr(__obj, "__name__", "") in _GATHER:
                args = tuple(list(item) if hasattr(item, "__next__") else item for item in args)
                charge(weight(args) + weight(kwargs))
            charge_result(value, args, kwargs)
        charge(CALL + sum(map(size, args)))
        result = super().call(__context, __obj, *args, **kwargs)
        charge(size(result))
        return result


@cache
def environment() -> Any:
    """The environment in which transformers compiles chat templates, with counters."""
    plain = _library()._cached_compile_jinja_template("").environment
    # A copy that changes its class: which options and filters the library gives its environment is
    # in its own code, and changes with its version.
    guarded = copy(plain)
    guarded.__class__ = type("Counting", (_Counts, type(plain)), {})
    guarded.cache = None  # the copy would share it with the library's own
    # lipsum makes any number of words out of nothing
    guarded.globals = {name: value for name, value in plain.globals.items() if name != "lipsum"}
    # the same conversation has the same ids tomorrow
    guarded.globals["strftime_now"] = NOW.strftime
    guarded.filters = {
        **{name: _paid(name, function) for name, function in plain.filters.items()},
        **COUNTERS,
    }
    return guarded


# -- the way in ----------------------------------------------------------------------------------

COMPILED: dict[str, Any] = {}  # source -> the template with counters


def compile_guarded(source: str) -> None:
    """From now on transformers renders this source with counters; others as before."""
    _hook()
    COMPILED[source] = environment().from_string(source)


@cache
def _hook() -> None:
    library = _library()
    compiled = library._compile_jinja_template
    library._compile_jinja_template = lambda source: COMPILED.get(source) or compiled(source)


def _library() -> Any:
    from transformers.utils import chat_template_utils

    return chat_template_utils
