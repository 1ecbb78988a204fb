"""Which tasks are played: a folder's own form decides how it is read, and `semantics` how its
tools behave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gem_ma.scenarios.service_desk.retail.benchmark.tau2_data import Tau2Bench
from gem_ma.scenarios.service_desk.retail.benchmark.tau2_view import AsTau2
from gem_ma.scenarios.service_desk.retail.benchmark.taubench import TauBench
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld
from gem_ma.scenarios.service_desk.retail.store.source import TAU2_VARIABLE, VARIABLE
from gem_ma.scenarios.service_desk.retail.store.store import SEMANTICS
from gem_ma.scenarios.service_desk.retail.store.tau2 import typed_base
from gem_ma.scenarios.service_desk.retail.store.tau2_source import is_tau2

from gem_ma.kernel.errors import ConfigError

GENERATED = "own"
FIXED, TAU1, TAU2 = "fixed", "tau1", "tau2"
Source = TauBench | Tau2Bench | OwnWorld | AsTau2


def open_source(
    data: Any, scoring: str, semantics: Any, generated: Callable[[str], OwnWorld]
) -> Source:
    """The source of the tasks. `own` makes the generated shop under the semantics it is given.

    Raises ConfigError for options that do not go together, DataError for a missing or damaged
    folder.
    """
    if semantics is not None and (not isinstance(semantics, str) or semantics not in SEMANTICS):
        raise ConfigError(f"scenario.semantics: there is {', '.join(SEMANTICS)}; got {semantics!r}")
    if scoring == TAU2 and semantics not in (None, TAU2):
        raise ConfigError(
            f"scenario.scoring: 'tau2' goes with the semantics 'tau2'; got semantics {semantics!r}"
        )
    wanted = TAU2 if scoring == TAU2 else semantics
    folder: Any = data if data is not None else _named(wanted)
    if not isinstance(folder, (str, os.PathLike)):
        raise ConfigError(
            f"scenario.data: a folder, or {GENERATED!r} for the generated shop; got {data!r}"
        )
    folder = os.fsdecode(folder)
    if folder == GENERATED:
        return AsTau2(generated(FIXED)) if wanted == TAU2 else generated(wanted or FIXED)
    if wanted == FIXED:
        raise ConfigError(
            "scenario.semantics: 'fixed' is for the generated shop; a benchmark's data take its"
            " own, 'tau1' or 'tau2'"
        )
    if is_tau2(folder) or (data is None and folder == os.environ.get(TAU2_VARIABLE)):
        if wanted not in (None, TAU2):
            raise ConfigError(
                f"scenario.semantics: the data of tau2-bench take 'tau2'; got {semantics!r}"
            )
        return Tau2Bench(folder)
    bench = TauBench(folder)
    if wanted != TAU2:
        return bench
    # what cannot be typed is told at once
    typed_base(bench.base, f"{bench.tables_at}{bench.named}")
    return AsTau2(bench)


def _named(wanted: str | None) -> str:
    """The folder that the environment names, that of the wanted benchmark first; else the
    generated shop."""
    first, second = (TAU2_VARIABLE, VARIABLE) if wanted == TAU2 else (VARIABLE, TAU2_VARIABLE)
    if wanted == TAU1:
        return os.environ.get(VARIABLE) or GENERATED
    return os.environ.get(first) or os.environ.get(second) or GENERATED
