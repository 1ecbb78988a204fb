"""What a tool is to the desk: its function, the names of its arguments, and what a call with
others is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Function = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Spec:
    """A tool: its function, its arguments in order, and what the call can do."""

    name: str
    function: Function
    arguments: tuple[str, ...]
    mutates: bool = False
    terminates: bool = False

    @property
    def qualified(self) -> str:
        """How the benchmark's error texts call the function."""
        return "".join(word.capitalize() for word in self.name.split("_")) + ".invoke()"

    def fits(self, called: str, arguments: Mapping[str, Any]) -> None:
        """Raises TypeError as Python does, for a function of this name, where an argument is
        unknown or missing."""
        for name in arguments:
            if name not in self.arguments:
                raise TypeError(f"{called} got an unexpected keyword argument '{name}'")
        missing = [repr(name) for name in self.arguments if name not in arguments]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise TypeError(
                f"{called} missing {len(missing)} required positional argument{plural}:"
                f" {listed(missing)}"
            )


def spec(function: Function) -> Spec:
    """The spec of a tool function; its parameters after the first are the arguments."""
    code = function.__code__
    name = function.__name__
    writes = name.startswith(("cancel_", "modify_", "exchange_", "return_"))
    return Spec(
        name, function, code.co_varnames[1 : code.co_argcount], writes, name.startswith("transfer_")
    )


def bind(tool: Spec, arguments: Any) -> Mapping[str, Any]:
    """The arguments as keywords. Raises TypeError in the words of Python 3.11, whichever Python
    runs."""
    path = f"tau_bench.envs.retail.tools.{tool.name}.{tool.qualified}"
    if not isinstance(arguments, Mapping):
        raise TypeError(
            f"{path} argument after ** must be a mapping, not {type(arguments).__name__}"
        )
    if "data" in arguments:
        raise TypeError(f"{path} got multiple values for keyword argument 'data'")
    for name in arguments:
        if not isinstance(name, str):
            raise TypeError("keywords must be strings")
    tool.fits(tool.qualified, arguments)
    return arguments


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, and c`.

    >>> listed(["a", "b", "c"])
    'a, b, and c'
    """
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"
