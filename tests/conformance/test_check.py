"""The kit's own test: it passes what is right and catches every fault of `mutants`, by the rule
that it breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem_ma import Ask, Limits, Reward, Scenario, Tell
from gem_ma.cli.main import main
from gem_ma.kernel.errors import ConfigError, ConformanceError
from gem_ma.testing import RULES, Finding, Report, check_scenario
from tests.conformance import mutants, shapes

SEEDS = range(3)


def found(seeds=SEEDS, **arguments) -> set[int]:
    with pytest.raises(ConformanceError) as caught:
        check_scenario(seeds=seeds, **arguments)
    assert all(
        isinstance(finding, Finding) and finding.message for finding in caught.value.findings
    )
    return {finding.rule for finding in caught.value.findings}


@pytest.mark.longest
@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda shape: shape.__name__)
def test_a_correct_scenario_of_this_shape_passes(shape, monkeypatch):
    skip = () if shape in shapes.WHOLE else ("suites",)
    if skip:
        monkeypatch.setattr("gem_ma.testing.fresh.fresh", lambda kit, module: None)
    report = check_scenario(shape, seeds=range(3), limits=Limits(max_steps=12), skip=skip)
    assert isinstance(report, Report) and set(report.speed) == {"kernel", "AEC", "Parallel"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "rules"), mutants.AUTHORS, ids=lambda value: getattr(value, "__name__", "")
)
def test_an_authors_fault_is_caught(mutant, rules):
    assert rules & found(scenario=mutant, skip=set(RULES) - rules)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "factory", "base", "rules"),
    mutants.VIEWS,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_of_a_view_is_caught(kind, factory, base, rules):
    # each shows with two seeds; a third would take a third of the time again
    assert rules & found(range(2), scenario=base, **{kind: factory}, skip=set(RULES) - rules)


@pytest.mark.long
@pytest.mark.parametrize(
    ("game", "base", "rules"), mutants.KERNELS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_fault_of_a_kernel_is_caught(game, base, rules):
    assert rules & found(scenario=base, game=game, skip=set(RULES) - rules)


class Salted(shapes.Haggle):
    """Opens with words in the order of their hashes."""

    def opening(self, agent, secret):
        words = {"apple", "pear", "plum", "fig", "cherry"}
        return super().opening(agent, secret) + "-".join(words)


@pytest.mark.longest
def test_fresh_processes_are_tried_for_ids_classes_and_instances():
    only_first = set(RULES) - {1}
    assert found(scenario=Salted, skip=only_first) == {1}
    for scenario in (shapes.Alone, "kuhn_poker", shapes.Alone()):
        assert 1 not in check_scenario(scenario, seeds=SEEDS, skip=only_first).untested


def made_in_a_function():
    class Local(shapes.Alone):
        pass

    return Local


def with_a_helper_of_its_own():
    made = type("Made", (shapes.Alone,), {})()
    made.helper = object()
    return made


@pytest.mark.long
@pytest.mark.parametrize("make_one", [made_in_a_function, with_a_helper_of_its_own])
def test_what_cannot_travel_to_a_fresh_process_is_said_to_be_untested(make_one):
    untested = check_scenario(make_one(), seeds=SEEDS, skip=set(RULES) - {1}).untested
    assert "fresh processes" in untested[1][0]


@pytest.mark.long
def test_a_finding_names_rule_agent_step_and_the_smallest_seed():
    with pytest.raises(AssertionError) as caught:
        check_scenario(mutants.TellsTheSellersNumber, seeds=SEEDS, skip=set(RULES) - {4})
    (finding,) = caught.value.findings
    assert (finding.rule, finding.name, finding.agent, finding.step) == (
        4,
        "secrecy",
        "buyer",
        0,
    )
    assert finding.seed is not None
    assert str(caught.value).startswith(
        "rule 4 (secrecy): nobody sees another's secret; buyer is shown"
    )


@pytest.mark.long
def test_every_finding_is_listed_not_only_the_first():
    class Twice(mutants.IsNotZeroSum):
        """Two faults."""

        def legal(self, agent, secret):
            return ("offer 10", "Offer 10")

    assert found(scenario=Twice, skip=set(RULES) - {7, 10}) == {7, 10}


@pytest.mark.long
def test_the_report_says_what_was_not_tested():
    report = check_scenario(shapes.Alone, seeds=[3], skip=("suites", 8))
    assert report.untested[12] == ("skipped on request",)
    assert 8 not in report.passed
    assert "no deal" in report.untested[4][0]
    assert {1, 5, 9} <= set(report.passed)
    assert "fewer than three seeds" in " ".join(report.untested[1])
    assert "us per turn" in str(report)


@pytest.mark.long
def test_a_hanging_play_is_cut_and_found(monkeypatch):
    # of the clock, for what waits, and of the processor, for what computes, as this play does
    monkeypatch.setattr("gem_ma.testing.kit.PLAY_S", 0.5)
    monkeypatch.setattr("gem_ma.testing.kit.STEP_CPU_S", 0.5)

    class Hangs(shapes.Alone):
        """Never comes back."""

        def play(self, rng, task):
            yield Ask({"solver": "?"})
            while True:
                pass

    assert found(scenario=Hangs) == {11}


class NoPlay(Scenario):
    """Has no play."""

    agents = ("ann",)


class NoAgents(Scenario):
    """Has no agents."""

    def play(self, rng, task):
        yield Ask({"ann": "?"})


class Exits(Scenario):
    """Leaves the process."""

    agents = ("ann",)

    def play(self, rng, task):
        yield Ask({"ann": "?"})
        raise SystemExit(3)


class NoTasks(Exits):
    """Has no tasks."""

    def tasks(self, split):
        return ()


class RaisesWhenMade(Exits):
    """Cannot be made."""

    def __init__(self):
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [(NoPlay, 5), (NoAgents, 11), (Exits, 5), (NoTasks, 11), (RaisesWhenMade, 5)],
)
def test_what_cannot_even_start_is_a_finding(scenario, rule):
    # fresh processes see no more of it
    assert rule in found(scenario=scenario, skip={1})


def test_wrong_usage_is_one_clear_line():
    for arguments in (
        {"scenario": "kuhn"},
        {"scenario": 3},
        {"scenario": shapes.Alone, "seeds": ()},
        {"scenario": shapes.Alone, "skip": ("sweets",)},
    ):
        with pytest.raises(ConfigError):
            check_scenario(**arguments)


def test_a_misspelled_keyword_is_named():
    with pytest.raises(TypeError, match=r"check_scenario\(\) got an .* argument 'kernel'"):
        check_scenario(shapes.Alone, kernel=object)


@pytest.mark.long
def test_a_view_that_cannot_be_made_or_lacks_everything_is_found():
    def raises(scenario):
        raise RuntimeError("no view")

    assert found(
        scenario=shapes.Alone,
        aec=raises,
        parallel=lambda scenario: object(),
        gym=lambda scenario: None,
    ) >= {5}


@pytest.mark.longest
def test_the_pytest_plugin_adds_one_test_per_scenario(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "gem_ma.testing.pytest_plugin",
        "--gem-ma-check",
        "kuhn_poker",
        "--gem-ma-check",
        "nope",
        "--gem-ma-check",
        "dilemma",
        "--gem-ma-strict",
    ]
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert "rule 4 (secrecy) was not tested" in ran.stdout
    assert "2 failed, 1 passed" in ran.stdout and "no scenario is called 'nope'" in ran.stdout


class Vote(Scenario):
    """The village learns of whoever has most votes whether it is a wolf; one vote rarely decides.
    `answer`: what a voter is told besides."""

    agents = ("player_0", "player_1", "player_2", "player_3", "player_4")
    ends_within = 1
    chance = False
    answer = ""

    def play(self, rng, task):
        names = self.agents
        said = yield Ask(dict.fromkeys(names, "Vote."), legal=names)
        votes = [action.parsed or names[0] for action in said.values()]
        most = max(names, key=lambda name: (votes.count(name), name))
        news = f"{most} is no wolf. It is not known who is; the wolf cannot be seen."
        tells = dict.fromkeys(names, news)
        for name, action in said.items():
            if action.parsed in (None, "player_3") and self.answer:
                tells[name] = self.answer.format(said=action.text)
        yield Tell(tells)
        yield Reward({name: float(most != name) for name in names})


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ("", False),
        ("You cannot see the wolf", False),
        ("it must be player_4", False),
        ("{said} is no player", True),
        ("{said} must be a name", True),
        ("That is not a name", True),
        ("Try again", True),
        ("An illegal vote", True),
    ],
)
def test_a_truth_of_the_game_is_not_taken_for_a_refusal(answer, is_refusal):
    told = type("Told", (Vote,), {"answer": answer})
    skip = set(RULES) - {10}
    if is_refusal:
        assert found(scenario=told, skip=skip) == {10}
    else:
        assert 10 in check_scenario(told, seeds=SEEDS, skip=skip).passed


@pytest.mark.long
def test_a_rule_that_was_not_tested_is_not_counted_as_kept(capsys, monkeypatch):
    report = check_scenario("dilemma", seeds=SEEDS, skip=set(RULES) - {4, 7})
    assert report.passed == (7,) and "1 of 13 rules kept, 12 not tested" in str(report)
    assert any("4 (secrecy) was not tested: the scenario declares" in d for d in report.doubts)
    whole = Report("kuhn_poker", tuple(RULES), {1: ("a part of it",)})
    assert "13 of 13 rules kept\n" in str(whole) and not whole.doubts
    for made, code in ((report, 1), (whole, 0)):
        monkeypatch.setattr("gem_ma.cli.check.check_scenario", lambda *_, made=made, **__: made)
        assert main(["check", "dilemma", "--strict", "--quiet"]) == code
        assert main(["check", "dilemma", "--strict", "--quiet", "--json"]) == code
        said = capsys.readouterr()
        assert ("--strict: dilemma: rule 4" in said.err) == bool(code)
        assert f'"ok": {json.dumps(not code)}' in said.out
        assert main(["check", "dilemma", "--quiet"]) == 0


@pytest.mark.long
def test_a_play_that_is_longer_than_promised_says_how_long_it_is():
    told = type("Twice", (Vote,), {"play": twice})
    with pytest.raises(ConformanceError, match=r"each Ask is one.*player \w+ it took 2 \[step 2"):
        check_scenario(told, seeds=SEEDS, skip=set(RULES) - {6})


def twice(self, rng, task):
    for _ in range(2):
        yield Ask(dict.fromkeys(self.agents, "Vote."), legal=self.agents)
