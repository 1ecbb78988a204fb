"""docs/design.md: the walks of a newcomer are as long as the page says, short enough, and go where
the code goes."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gem_ma import Plan, Reply, Request, Seat, config, make, play
from gem_ma.engines.base import Policy
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import RunFolder
from gem_ma.training import entry
from gem_ma.training.loop.step import Step
from gem_ma.training.train import Trainer

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
BARS = {  # walk: most files, most lines
    "One turn": (9, 1500),
    "One training step": (14, 2000),
    "Another loss": (1, 400),
    "First reading": (9, 1800),
}
NEAR = 0.05  # share by which the page's numbers may be out of date
HOUSE = ("gem_ma", "scenarios", "agents")

# What runs on the way too, and why a reader may leave it closed. A name that ends with / is a room.
BESIDE_A_TURN = {
    "text in, and a legal string, a cut or a clean text out": ["gem_ma/kernel/parsing/"],
    "checks a value of an effect, and gives it back": ["gem_ma/kernel/effect_values.py"],
    "refuses, or does nothing": ["gem_ma/driver/limits.py", "gem_ma/driver/limits.py"],
    "returns at once where the scenario calls nothing": ["gem_ma/driver/calling.py"],
    "returns at once where no behaviour wants to hear": ["gem_ma/driver/seats.py"],
    "a tuple that is not copied": ["gem_ma/kernel/transcript.py"],
    "fields with names: the record that is made of it": ["gem_ma/kernel/episode.py"],
    "before the first turn: names to objects": ["gem_ma/driver/behaviour.py", "gem_ma/registry.py"],
    "knobs of experiments; it hands on to kuhn.py": ["scenarios/kuhn_prices.py"],
}
BESIDE_A_STEP = {
    "attends, and is no part of the method": [
        "gem_ma/training/loop/attendant.py",
        "gem_ma/training/loop/beginning.py",
        "gem_ma/training/loop/dividing.py",
        "gem_ma/training/loop/notes.py",
        "gem_ma/training/loop/taught.py",
        "gem_ma/training/selfplay/",
    ],
    "numbers that are logged": [
        "gem_ma/scores/",
        "gem_ma/training/tracking/",
        "gem_ma/training/loop/measures.py",
        "gem_ma/training/loop/metrics.py",
        "gem_ma/training/loop/timings.py",
    ],
    "writes what it is handed": [
        "gem_ma/record/choices.py",
        "gem_ma/record/codec.py",
        "gem_ma/record/token_chains.py",
        "gem_ma/system/files.py",
        "gem_ma/record/json_text.py",
        "gem_ma/record/images.py",
        "gem_ma/record/shapes.py",
        "gem_ma/runs/store/",
        "gem_ma/training/learner/table_files.py",
        "gem_ma/training/loop/checkpoint.py",
    ],
    "a value of the config, or one that it may let change": [
        "gem_ma/config/",
        "gem_ma/training/schedule/alternation.py",
        "gem_ma/training/loop/anchoring.py",
        "gem_ma/training/schedule/curriculum.py",
        "gem_ma/training/schedule/discounts.py",
        "gem_ma/training/schedule/rates.py",
    ],
    "the same plays side by side, or shared by processes": [
        "gem_ma/driver/many.py",
        "gem_ma/engines/batching.py",
        "gem_ma/training/loop/overlap.py",
        "gem_ma/training/loop/played.py",
        "gem_ma/training/loop/playing.py",
        "gem_ma/training/loop/plays.py",
        "gem_ma/training/processes/",
    ],
    "how the policy is sampled": ["gem_ma/engines/small/table.py"],
    "the same turns as columns": [
        "gem_ma/credit/digests.py",
        "gem_ma/training/learner/sampled.py",
        "gem_ma/training/learner/table_batch.py",
        "gem_ma/credit/table.py",
    ],
    "finds the estimator by its name, and its groups of turns": ["gem_ma/credit/estimators/"],
    "arithmetic that its name says": [
        "gem_ma/training/learner/adam.py",
        "gem_ma/training/learner/divergences.py",
        "gem_ma/training/learner/slopes.py",
        "gem_ma/training/learner/token_weights.py",
    ],
    "looks whether the tokens are what the learner takes them for": [
        "gem_ma/training/learner/mismatch.py"
    ],
    "the average of what was published, for exams": ["gem_ma/training/learner/table_average.py"],
}
NEITHER = "a file runs that neither the walk of docs/design.md has, nor a list of this test"
# on the way to the step, not in it
BEFORE_THE_STEP = {"gem_ma/cli/train.py", "gem_ma/training/entry.py"}


def lines_of(path: str) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def walk(name: str) -> dict[str, int]:
    """The files of a walk with the lines that the page claims, in its order."""
    section = re.split(r"^### ", PAGE, flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(name)]
    rows = re.findall(r"^\| `([^`]+)` \| ([\d,]+) \|", text, re.MULTILINE)
    return {path: int(lines.replace(",", "")) for path, lines in rows}


@contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Adds the files of the house whose functions run meanwhile."""

    def called(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        # what is imported on the way would count whole, whoever needs it
        if event == "call" and frame.f_code.co_name != "<module>" and path.is_relative_to(ROOT):
            place = path.relative_to(ROOT)
            if place.parts[0] in HOUSE:
                files.add(place.as_posix())

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


def unread(files: set[str], *beside: dict[str, list[str]]) -> set[str]:
    """The files that no list of what may stay closed has."""
    closed = [name for lists in beside for names in lists.values() for name in names]
    # a finder, which runs at any import that a test before has not made
    closed += ["gem_ma/envs/gymnasium_ids.py"]
    return {
        path
        for path in files
        if not any(
            path == name or (name.endswith("/") and path.startswith(name)) for name in closed
        )
    }


class LastOption:
    """An engine that takes the last legal string."""

    async def sample(self, request: Request) -> Reply:
        assert request.legal is not None
        return Reply(text=request.legal[-1], policy=request.policy)


def files_of_a_play() -> set[str]:
    cast = {agent: Seat("direct", "main") for agent in ("player_0", "player_1")}
    plan = Plan(make("kuhn_poker"), cast)
    policies, files = {"main": Policy("main", LastOption())}, set[str]()
    asyncio.run(play(plan, policies))  # the first play imports; that is no part of a turn
    with traced(files):
        episode = asyncio.run(play(plan, policies))
    assert episode.turns and episode.end.scored
    return files


def files_of_a_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    files: set[str] = set()

    class Traced(Trainer):
        async def play(self, step: Step) -> None:
            self.trace = traced(files)
            self.trace.__enter__()
            await super().play(step)

        async def record(self, step: Step) -> None:
            await super().record(step)
            self.trace.__exit__(None, None, None)

    monkeypatch.setattr(entry, "Trainer", Traced)
    short = ("train.steps=1", "train.episodes=8", "evaluate.episodes=2", "evaluate.every=~")
    settings = config.load("kuhn_table", short).config
    resolved = settings.model_dump(mode="json")
    with RunFolder.open(folder, config_text="", resolved=resolved) as opened:
        policies, scenario = open_policies(settings), scenario_of(settings)
        asyncio.run(entry.train(settings, scenario, policies, opened))
    return files


@pytest.mark.parametrize("name", BARS)
def test_a_walk_is_as_short_as_the_page_says(name: str) -> None:
    claimed, (most_files, most_lines) = walk(name), BARS[name]
    assert claimed
    real = {path: lines_of(path) for path in claimed}
    assert len(real) <= most_files
    assert sum(real.values()) <= most_lines
    for path, lines in claimed.items():
        assert abs(lines - real[path]) <= max(2, NEAR * real[path]), (path, real[path])


def test_the_heads_of_the_walks_add_up() -> None:
    heads = re.findall(r"^### (.+): (\d+) files?, ([\d,]+) lines", PAGE, re.MULTILINE)
    assert [name for name, _, _ in heads] == list(BARS)
    for name, files, lines in heads:
        claimed = walk(name)
        assert (int(files), int(lines.replace(",", ""))) == (len(claimed), sum(claimed.values()))


def test_a_turn_goes_where_its_walk_goes() -> None:
    listed, ran = set(walk("One turn")), files_of_a_play()
    assert unread(ran, BESIDE_A_TURN) == listed, NEITHER


def test_a_training_step_goes_where_its_walk_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, ran = set(walk("One training step")), files_of_a_step(tmp_path / "run", monkeypatch)
    turn = set(walk("One turn"))
    # how one turn goes is a walk of its own; what both pass is in both
    assert unread(ran, BESIDE_A_TURN, BESIDE_A_STEP) <= listed | turn, NEITHER
    assert listed - ran <= BEFORE_THE_STEP


def test_what_may_stay_closed_is_there_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = files_of_a_play() | files_of_a_step(tmp_path / "run", monkeypatch)
    for lists in (BESIDE_A_TURN, BESIDE_A_STEP):
        for name in (name for names in lists.values() for name in names):
            assert any(path == name or path.startswith(name) for path in ran), name


def test_the_first_reading_is_that_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    order = readme.split("Read in this order:")[1].split("\n\n")[0].split(". ")[0]
    assert ["README.md", *re.findall(r"`([^`]+)`", order)] == list(walk("First reading"))
