"""Generated arithmetic, who plays it, and how a tiny model writes the calls that it takes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from gem_ma import make
from gem_ma.cli.main import group
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Action, Asked, Message, ToolCall
from gem_ma.registry import load
from gem_ma.testing import check_scenario
from gem_ma.tools.belt import WithTools
from gem_ma.tools.python import Python


@pytest.mark.parametrize("options", [{}, {"numbers": 5, "digits": 1}, {"operations": ["-"]}])
def test_an_expression_is_worth_what_python_says_and_is_in_one_split(options):
    from gem_ma.scenarios.arithmetic import value

    scenario = make("arithmetic", tasks=800, **options)
    texts = {
        split: [scenario.expression(task) for task in scenario.tasks(split)]
        for split in ("train", "test")
    }
    for text in texts["train"]:
        assert value(text) == eval(text)  # of our own making
    assert not set(texts["train"]) & set(texts["test"])


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        ("{}", 1.0),
        ("It is {}.", 1.0),
        (" {} \n", 1.0),
        ("{task} = {}", 1.0),
        ("{task} = {} = 3", 0.0),
        ("3 * 4 = 12, so it is {task} = {}.", 1.0),
        ("I add 3 and 4. The answer is {}", 1.0),
        ("{task}\nAnswer: {:,}", 1.0),
        ("={}", 1.0),
        ("{} = {task}", 0.0),
        ("answer: {} or 3", 0.0),
        ("{task} is {}", 0.0),
        ("0 {}", 0.0),
        ("{} or 3", 0.0),
        ("", 0.0),
        ("9" * 5000, 0.0),
        ("many", 0.0),
    ],
)
def test_the_one_number_of_an_answer_is_read(answer, paid):
    scenario = make("arithmetic", operations=["*"])
    game = Game(scenario, "test:0", 0)
    task = scenario.expression("test:0")
    game.send({"solver": answer.format(eval(task), task=task)})
    assert [entry.value for entry in game.ledger] == [paid]


def test_a_difference_below_zero_is_a_number():
    scenario = make("arithmetic", operations=["-"])
    task = next(t for t in scenario.tasks("test") if eval(scenario.expression(t)) < 0)
    for sign in ("-", "- "):  # as a tokenizer of words may write it
        game = Game(scenario, task, 0)
        game.send({"solver": f"{sign}{-eval(scenario.expression(task))}"})
        assert game.ledger[0].value == 1.0


@pytest.mark.longest
def test_the_rules_hold_and_options_are_checked():
    assert 9 in check_scenario("arithmetic", seeds=range(4)).passed


@pytest.mark.parametrize("value", [None, [], ["/"], [["+"]], {"+": 1}])
def test_wrong_operations_are_one_line(value):
    with pytest.raises(ConfigError, match=r"scenario.operations: a list of \+, -, \*; got [^\n]*$"):
        make("arithmetic", operations=value)


@pytest.mark.parametrize("name", ["numbers", "digits", "tasks"])
@pytest.mark.parametrize("value", [0, 2.0, "2", True])
def test_wrong_counts_are_one_line(name, value):
    with pytest.raises(ConfigError, match=r"scenario: 2 to 9 numbers of 1 to 9 digits[^\n]*$"):
        make("arithmetic", **{name: value})


def act(player, *new, tools=(), seen=()):
    asked = Asked(tuple(new), (*seen, *new), None, tools, 0)
    coroutine = player.act(asked)
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def test_the_calculator_copies_asks_and_reads_unless_it_slips():
    calculator = load("agents", "calculator")
    question, tools = Message("47 * 86 = ?"), Python.tools
    right = calculator("solver", None, random.Random(0))
    assert act(right, question, tools=tools).tool_calls[0].arguments == {"code": "47 * 86"}
    assert act(right, Message.tool("1", "4042\n"), tools=tools).text == "4042"
    assert act(right, question).text.isdigit()  # without the tool
    guesser = calculator("solver", None, random.Random(0), guesses=1.0)
    assert act(guesser, question, tools=tools).text.isdigit()
    slips = calculator("solver", None, random.Random(0), slips=1.0)
    codes = {act(slips, question, tools=tools).tool_calls[0].arguments["code"] for _ in range(20)}
    assert len(codes) > 5 and all(len(code) == 7 for code in codes)
    for wrong in ({"slips": 2}, {"guesses": True}, {"guesses": "often"}):
        with pytest.raises(ConfigError, match="probability"):
            calculator("solver", None, random.Random(0), **wrong)


@pytest.mark.long
@pytest.mark.parametrize("size", ["word", "nano"])
def test_a_call_that_a_tiny_model_is_shown_is_read_as_that_call(size, tmp_path: Path):
    """Whatever the tokenizer does to white space between pieces."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.transformers import Transformers

    path = tmp_path / "model"
    made = CliRunner().invoke(
        group,
        ["new", "model", str(path), "--scenario", "arithmetic", "--tool", "python", "--size", size],
    )
    assert made.exit_code == 0, made.output
    engine = Transformers(str(path), policy="solver")
    scenario = WithTools(make("arithmetic"), {"solver": [Python()]})
    for task in scenario.tasks("test")[:4]:
        code = make("arithmetic").expression(task)
        call = ToolCall("call_0", "python", {"code": code})
        ids = engine.chat.answer("", (call,), Python.tools)
        assert not engine.vocabulary.banned & set(ids)  # every word of it is known
        _, (read,), _ = engine.chat.read(engine.vocabulary.cut(ids), Python.tools)
        assert (read.name, read.arguments["code"].strip()) == ("python", code)
        game = Game(scenario, task, 0)
        game.send({"solver": Action("", (read,))})
        assert game.new("solver")[-1].text == f"{eval(code)}\n"
        game.close()


def test_a_tool_that_is_none_is_refused(tmp_path: Path):
    args = ["new", "model", str(tmp_path / "m"), "--scenario", "arithmetic"]
    for more in (
        ["--tool", "abacus"],
        ["--tool", "python", "--clone", "calculator"],
        ["--tool", f"python={tmp_path}"],
        ["--tool", "search"],
        ["--tool", "search=nowhere"],
    ):
        refused = CliRunner().invoke(group, [*args, *more])
        assert refused.exit_code == 2 and "--" in refused.output
