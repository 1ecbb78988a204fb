"""One episode's database with its tools: `call`, `digest`, `reset`. A pure function of the base
and the calls; it never raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.retail.store.fixed import FIXED, validate
from gem_ma.scenarios.service_desk.retail.store.source import load_tables, naming
from gem_ma.scenarios.service_desk.retail.store.specs import Spec, bind
from gem_ma.scenarios.service_desk.retail.store.tau2 import digest, typed_base
from gem_ma.scenarios.service_desk.retail.store.tau2_calls import call as tau2_call
from gem_ma.scenarios.service_desk.retail.store.tau2_source import is_tau2, load_typed
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2
from gem_ma.scenarios.service_desk.retail.store.tools import TAU1

from gem_ma.kernel.errors import ConfigError

SEMANTICS: dict[str, dict[str, Spec]] = {"tau1": TAU1, "fixed": FIXED, "tau2": TAU2}


class RetailStore:
    """The retail database and its 16 tools.

    >>> store = RetailStore.load("../tau-bench")              # doctest: +SKIP
    >>> store.call("get_order_details", {"order_id": "#W0"})  # doctest: +SKIP
    'Error: order not found'
    """

    __slots__ = ("_tools", "overlay", "semantics")

    def __init__(self, base: Base, semantics: str = "tau1") -> None:
        """A store over tables that may be shared. `semantics`: `tau1` or `tau2` (as these
        benchmarks behave), or `fixed` (our own world's rules).

        Under `tau2` the tables are typed ones (`as_tau2`).
        """
        if not isinstance(semantics, str) or semantics not in SEMANTICS:
            raise ConfigError(f"semantics: there is {', '.join(SEMANTICS)}; got {semantics!r}")
        self.overlay, self.semantics, self._tools = Overlay(base), semantics, SEMANTICS[semantics]

    @classmethod
    def load(cls, folder: str | Path, semantics: str = "tau1") -> RetailStore:
        """A store over users.json, orders.json and products.json of a folder or of a tau-bench
        checkout, or over db.json of tau2-bench's data.

        Read once per process. Raises DataError where a file is missing or damaged, ConfigError
        for tau2-bench's data under other semantics.
        """
        if is_tau2(folder):
            if semantics != "tau2":
                raise ConfigError(f"semantics: tau2-bench's data takes 'tau2'; got {semantics!r}")
            return cls(load_typed(folder), semantics)
        base = load_tables(folder)
        return cls(
            typed_base(base, f"{folder}{naming(folder)}") if semantics == "tau2" else base,
            semantics,
        )

    def call(self, tool: str, kwargs: Any) -> str:
        """What the tool answers; an error is a text that begins with `Error: `. Never raises."""
        try:
            if self.semantics == "tau2":
                return tau2_call(self.overlay, tool, kwargs)
            spec = self._tools.get(tool) if isinstance(tool, str) else None
            if spec is None:
                return f"Unknown action {tool}"
            if self.semantics == "fixed":
                validate(tool, kwargs)
            return spec.function(self.overlay, **bind(spec, kwargs))
        except Exception as error:
            return f"Error: {_text(error)}"

    def digest(self) -> str:
        """The benchmark's own SHA-256 of the whole database as it stands."""
        return digest(self.overlay) if self.semantics == "tau2" else self.overlay.digest()

    def reset(self) -> None:
        """The database as it was loaded."""
        self.overlay.reset()

    def copy(self) -> RetailStore:
        """A store in the same state that shares the base and no later change."""
        twin = RetailStore(self.overlay.base, self.semantics)
        twin.overlay = self.overlay.copy()
        return twin

    def mutates(self, tool: str) -> bool:
        """Whether the tool can change the database."""
        return isinstance(tool, str) and tool in self._tools and self._tools[tool].mutates

    def terminates(self, tool: str) -> bool:
        """Whether the tool ends the conversation."""
        return isinstance(tool, str) and tool in self._tools and self._tools[tool].terminates


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # an argument whose own text cannot be made
        return type(error).__name__
