"""The kit's own test: it passes what is right and catches every fault of `mutants`, by the rule that it breaks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mutants
import shapes

from gem_ma.errors import ConformanceError
from gem_ma.testing import RULES, Finding, Report, check_scenario

SEEDS = range(6)


def found(**arguments) -> set[int]:
    with pytest.raises(ConformanceError) as caught:
        check_scenario(seeds=SEEDS, **arguments)
    assert all(isinstance(finding, Finding) and finding.message for finding in caught.value.findings)
    return {finding.rule for finding in caught.value.findings}


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda shape: shape.__name__)
def test_a_correct_scenario_of_this_shape_passes(shape):
    report = check_scenario(shape, seeds=range(3))
    assert isinstance(report, Report) and set(report.speed) == {"kernel", "AEC", "Parallel"}


@pytest.mark.parametrize(("mutant", "rules"), mutants.AUTHORS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_authors_fault_is_caught(mutant, rules):
    assert rules & found(scenario=mutant, skip=set(RULES) - rules)


@pytest.mark.parametrize(("kind", "factory", "base", "rules"), mutants.VIEWS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_a_view_is_caught(kind, factory, base, rules):
    assert rules & found(scenario=base, **{kind: factory}, skip=set(RULES) - rules)


@pytest.mark.parametrize(("game", "base", "rules"), mutants.KERNELS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_a_kernel_is_caught(game, base, rules):
    assert rules & found(scenario=base, game=game, skip=set(RULES) - rules)
