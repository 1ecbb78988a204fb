"""The data sets that `make data` fetches: every right answer gets 1, junk and trivial programs 0."""

from __future__ import annotations

import asyncio
import json
import os
import random
import string
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.questions.graders import is_right, read, score
from gem_ma.scenarios.questions.mathematics import same

from gem_ma import Game, Plan, Seat, make, play_many
from tests.junk import junk

DATA = Path(__file__).parents[2] / ".data"
FETCH = Path(__file__).with_name("fetch_data.py")
needs_math = pytest.mark.skipif(
    find_spec("math_verify") is None, reason="needs math-verify (make data)"
)
pytestmark = pytest.mark.worlds


def data(name: str) -> str:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path.name} is not there; type `make data`")
    return str(path)


def test_what_is_fetched_twice_is_the_same(tmp_path: Path) -> None:
    """With other addresses of objects, and other seeds of what the generator does not seed."""
    data("mathematics.jsonl")
    (tmp_path / "wheels").symlink_to(DATA / "wheels")  # so that nothing is downloaded
    command = [sys.executable, "-W", "ignore", str(FETCH), str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, check=True)
    for file in DATA.glob("*.jsonl"):
        assert file.read_bytes() == (tmp_path / file.name).read_bytes(), file.name


async def returns(scenario: Any, player: str) -> list[float]:
    agent = scenario.agents[0]
    plans = [
        Plan(scenario, {agent: Seat(player)}, f"all/{at}", 1)
        for at in range(len(scenario.tasks("all")))
    ]
    episodes = [episode async for episode in play_many(plans, {})]
    return [sum(entry.value for entry in episode.ledger) for episode in episodes]


def test_human_evals_own_solutions_pass_and_an_empty_function_does_not() -> None:
    scenario = make("code", data=data("human_eval.jsonl"), limits={"timeout_s": 20.0})
    assert asyncio.run(returns(scenario, "code_oracle")) == [1.0] * 164
    assert asyncio.run(returns(scenario, "code_stub")) == [0.0] * 164


def test_human_evals_share_of_assertions_is_whole_for_its_own_solutions() -> None:
    scenario = make(
        "code", data=data("human_eval.jsonl"), credit="share", limits={"timeout_s": 20.0}
    )
    assert asyncio.run(returns(scenario, "code_oracle")) == [1.0] * 164


@pytest.mark.parametrize(("name", "number"), [("mmlu_dev.jsonl", 282), ("mathematics.jsonl", 762)])
def test_right_answers_get_one_and_junk_nothing(name: str, number: int) -> None:
    items = make("questions", data=data(name)).tasks("all")
    assert len(items) == number
    rng = random.Random(0)
    for asked in items:
        for right in (
            asked.right[0],
            f"Because of this and of that and more.\n\nAnswer: {asked.right[0]}",
            f"\\boxed{{{asked.right[0]}}}",
        ):
            assert score(asked, read(asked, right)) == 1, asked
        others = rng.sample(items, 3)
        for text in [
            *rng.sample([text for text in junk(asked) if len(text) < 5_000], 25),
            *(other.right[0] for other in others),
        ]:
            # `True` is junk, and the right answer of some
            if not is_right(asked, read(asked, text)):
                assert score(asked, read(asked, text)) == 0, (asked, text)


def test_trivial_answers_get_no_more_than_their_chance() -> None:
    scenario = make("questions", data=data("mmlu_dev.jsonl"))
    means = {
        player: sum(paid := asyncio.run(returns(scenario, player))) / len(paid)
        for player in (
            "question_oracle",
            "question_echo",
            "question_constant",
            "question_random",
            "first_legal",
        )
    }
    assert (means["question_oracle"], means["question_echo"]) == (1, 0)
    assert means["question_constant"] < 0.05  # `0` is a choice of some
    assert all(0.15 < means[player] < 0.35 for player in ("question_random", "first_legal"))


@needs_math
def test_a_formula_in_another_form_is_right_and_a_bomb_costs_its_time_alone() -> None:
    scenario = make("questions", data=data("mathematics.jsonl"), grader="math", timeout_s=3.0)
    items = [asked for asked in scenario.tasks("all") if "polynomials__expand" in asked.kind]
    items = [asked for asked in items if "i" not in asked.right[0]]  # LaTeX's imaginary unit
    assert len(items) >= 10
    for asked in items[:4]:
        other = " + ".join(
            f"({part})" for part in reversed(asked.right[0].replace("- ", "+ -").split("+ "))
        )
        for said, worth in (
            (other, 1),
            (f"{asked.right[0]} + 1", 0),
            ("9^{9^{9^9}}", 0),
            (other, 1),
        ):
            game = Game(scenario, asked, seed=0)
            game.send({"solver": f"\\boxed{{{said}}}".replace("**", "^").replace("*", "")})
            assert game.ledger[0].value == worth, (asked, said)


@needs_math
@pytest.mark.parametrize("name", string.ascii_letters.replace("I", ""))  # sympy's i
def test_a_letter_is_a_variable_and_no_unit(name: str) -> None:
    for right, said in (
        ("-102*{} - 161", "-161-102{}"),
        ("-102*{} - 161", "(-161) + (-102{} )"),
        ("{}**2 + 3*{}", "{}({}+3)"),
        ("3*{} + 2*k", "2k + 3 {}"),
        ("3*{}**2/2", "1.5{}^2"),
    ):
        assert same(right.replace("{}", name), said.replace("{}", name)), said
    for right, said in (
        ("-102*{} - 161", "-161"),
        ("3*{}", "3"),
        ("2*{}", "3{}"),
        ("{}**2", "2{}"),
    ):
        assert not same(right.replace("{}", name), said.replace("{}", name)), said


@needs_math
def test_what_latex_joins_to_a_number_stays_as_it_is() -> None:
    assert same("3", r"\log_2 8") and same("x/2", r"\frac12x")
    assert same("x**12*y", "x^12y") and same("2*pi*r", "2pi r")


@needs_math
def test_every_right_answer_is_equal_to_itself_by_every_grader() -> None:
    for grader in ("math", "exact", "contains", "f1"):
        for name in ("mathematics.jsonl", "mmlu_dev.jsonl"):
            for asked in make("questions", data=data(name), grader=grader).tasks("all"):
                assert score(asked, asked.right[0]) == 1, (grader, asked)


def test_calls_of_bfcl_are_right_and_calls_of_other_questions_are_not() -> None:
    scenario = make("questions", data=data("bfcl.jsonl"), grader="calls", shuffle=None)
    items = scenario.tasks("all")
    assert len(items) == 2311
    wrong = Counter[str]()
    for at, asked in enumerate(items):
        for said, worth in ((asked.right[0], 1.0), (items[at - 7].right[0], 0.0), ("", 0.0)):
            game = Game(scenario, asked, seed=0)
            game.send({"solver": said})
            if game.ledger[0].value != worth and said != asked.right[0] * (worth == 0.0):
                wrong[f"{asked.kind} {worth:g}"] += 1
    print(wrong)
    assert not wrong


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow (make data)")
def test_parquet_holds_what_the_lines_hold(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    rows = [
        json.loads(line)
        for line in Path(data("mmlu_dev.jsonl")).read_text(encoding="utf-8").splitlines()
    ]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "mmlu.parquet")
    assert make("questions", data=str(tmp_path / "mmlu.parquet")).tasks("all") == make(
        "questions", data=data("mmlu_dev.jsonl")
    ).tasks("all")
