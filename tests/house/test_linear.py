"""No text of an agent costs more than linear time: every expression of the code on texts made
against it, every reader on runs of each character.

Growth, not seconds: a text of twice the length may cost three times as much, and what is fast is
no suspect. `benchmarks/clock.py` has seconds.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import random
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from gem_ma.agents import labels, marks, text_protocol
from gem_ma.scenarios.code.answers import program_of
from gem_ma.scenarios.questions.graders import GRADERS, read, score
from gem_ma.scenarios.questions.items import Item
from gem_ma.scenarios.service_desk.agents import retail_details, retail_reading

import gem_ma
from gem_ma import Action, Limits, Plan, Reply, play
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.parsing import (
    FORMATS,
    clean,
    parse_action,
    parse_legal,
    parse_tool_calls,
    split_reasoning,
)
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.types import Sampling
from tests.pumps import UNITS, Late, slow, superlinear

ROOT = Path(gem_ma.__file__).resolve().parents[1]
ROOMS = ("gem_ma", "agents", "scenarios")
USES = re.compile(
    r"\bimport re\b|\.(?:" + "match|fullmatch|search|finditer|findall|subn?|split" + r")\b"
)
ANCHORED = {"match", "fullmatch"}  # they begin at one place only
SEARCHING = {"search", "finditer", "findall", "sub", "subn", "split"}


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """(path, tree) of every file that may use an expression."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    texts = {path: path.read_text() for path in (*paths, ROOT / "tests/phone_desk.py")}
    return tuple(
        (str(path.relative_to(ROOT)), ast.parse(text))
        for path, text in texts.items()
        if USES.search(text)
    )


def module_of(path: str) -> str:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith(("gem_ma", "tests")) else f"gem_ma.{name}"


@cache
def expressions() -> dict[tuple[str, int], tuple[str, set[str]]]:
    """(pattern, flags) -> where it stands, and by which methods it may be used.

    Inline ones are read from the source; compiled ones are taken from the modules, wherever they
    are held, with the methods that the code calls on a name like theirs. One that is handed on
    as a value may be used in any way.
    """
    found: dict[tuple[str, int], tuple[str, set[str]]] = {}
    used: dict[str, set[str]] = {}
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ANCHORED | SEARCHING:
                held = node.value
                name = (
                    held.id
                    if isinstance(held, ast.Name)
                    else held.attr
                    if isinstance(held, ast.Attribute)
                    else ""
                )
                used.setdefault(path + name if name.startswith("_") else name, set()).add(node.attr)
            if (
                isinstance(node, ast.Call)
                and node.args
                and ast.unparse(node.func) in {f"re.{name}" for name in ANCHORED | SEARCHING}
            ):
                inline(found, path, node)
    for path, _ in sources():
        if "re.compile" not in (ROOT / path).read_text():
            continue  # it holds none, and what it imports may cost seconds
        for name, pattern in held_in(module_of(path)):
            how = (
                used.get(path + name if name.startswith("_") else name, SEARCHING)
                & (ANCHORED | SEARCHING)
                or SEARCHING
            )
            where, before = found.get((pattern.pattern, pattern.flags), (f"{path} {name}", set()))
            found[pattern.pattern, pattern.flags] = (where, before | how)
    return found


def inline(found: dict[tuple[str, int], tuple[str, set[str]]], path: str, node: ast.Call) -> None:
    if not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
        return  # made of parts at run time; the readers below meet it
    named = {
        one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr.isupper()
    }
    flags = sum(int(getattr(re, name)) for name in named if hasattr(re, name))
    pattern = re.compile(node.args[0].value, flags)
    found[pattern.pattern, pattern.flags] = (f"{path}:{node.lineno}", {node.func.attr})  # type: ignore[attr-defined]


def held_in(name: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    if name.endswith("__main__") or ".vllm" in name or name.startswith("gem_ma.cli"):
        return
    try:
        module = importlib.import_module(name)
    except ImportError:  # an extra that is not here
        return
    for key, value in vars(module).items():
        yield from patterns(key, value, 3)


def patterns(name: str, value: Any, depth: int) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
    elif depth and isinstance(value, dict):
        for inner in value.values():
            yield from patterns("", inner, depth - 1)
    elif depth and isinstance(value, (tuple, list)):
        for inner in value:
            yield from patterns("", inner, depth - 1)
    elif (
        depth
        and (isinstance(value, type) or hasattr(value, "__dataclass_fields__"))
        and str(getattr(value, "__module__", "")).startswith("gem_ma")
    ):
        names = getattr(value, "__slots__", ()) if not hasattr(value, "__dict__") else vars(value)
        # a list: a model that pydantic has not built yet builds itself as it is looked at
        for key, inner in [(key, getattr(value, key, None)) for key in [*names]]:
            yield from patterns(key, inner, depth - 1)


@pytest.mark.longest
@pytest.mark.parametrize("part", range(2))  # each process imports all modules for it
def test_every_expression_of_the_code_is_linear(part: int) -> None:
    found = sorted(
        (place, pattern, flags, how) for (pattern, flags), (place, how) in expressions().items()
    )
    bad = {}
    for place, pattern, flags, how in found[part::2]:
        if (text := slow(re.compile(pattern, flags), how)) is not None:
            bad[place] = (pattern[:60], text)
    assert not bad


def run(before: str, unit: str, size: int) -> str:
    return before + (unit * (size // len(unit) + 1))[:size]


# -- readers -------------------------------------------------------------------------------------

LEGAL = ("check", "bet", "fold", "player 1", "a" * 30)
ASKED = [Item("What?", ("42",), ("1", "42"), grader) for grader in GRADERS]
READERS: dict[str, Callable[[str], Any]] = {
    **{f"calls {name}": lambda text, name=name: parse_tool_calls(text, name) for name in FORMATS},
    **{
        f"cut calls {name}": lambda text, name=name: parse_tool_calls(text, name, finish="length")
        for name in FORMATS
    },
    "reasoning": split_reasoning,
    "reasoning opened": lambda text: split_reasoning(text, opened=True),
    "legal": lambda text: parse_legal(text, LEGAL),
    "action": lambda text: parse_action(text, LEGAL),
    "clean": clean,
    "response": labels.response,
    "verdict": labels.verdict,
    "labelled action": labels.action,
    "marks": marks.removed,
    "escaped": marks.escaped,
    "choice": lambda text: text_protocol._choice(text, LEGAL),
    "requests": retail_reading.requests,
    "address": retail_details.address,
    "json": lambda text: load_json(dump_json(text)),
    "question": lambda text: [score(asked, read(asked, text)) for asked in ASKED],
    "program": lambda text: program_of(text, "def f():\n", "f"),
}


def readers_of_talk() -> dict[str, Callable[[str], Any]]:
    """The readers of service talks, past their caches."""
    from gem_ma.scenarios.service_desk.desk.log import Event
    from gem_ma.scenarios.service_desk.reading import acts, answers, founded, phrases, values
    from gem_ma.scenarios.service_desk.retail.domain import naming
    from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL
    from gem_ma.scenarios.service_desk.watching.ledger import Ledger

    task = retail().tasks("train")[0]

    def watched(text: str) -> None:
        """A customer, an assistant and the customer again say it: each is held against the rest."""
        ledger = Ledger(task, RETAIL)
        for step, agent in enumerate(("user", "assistant", "user")):
            ledger.see(Event(step, "said", agent, text))

    return {
        "ledger": watched,
        "acts": lambda text: acts.read.__wrapped__(text, RETAIL),
        "answer": getattr(answers.answer, "__wrapped__", answers.answer),
        "numbers": values._numbers.__wrapped__,
        "mentions": naming.mentions.__wrapped__,
        "plain": phrases.plain,
        "sums": lambda text: founded.worked_out([text], set()),
        "told": lambda text: values.tells("625.60", [text]),
        "shown": lambda text: founded.Basis().add(text),
    }


# of `readers_of_talk`
SPOKEN = ("ledger", "acts", "answer", "numbers", "mentions", "plain", "sums", "told", "shown")


@pytest.mark.parametrize("name", [*READERS, *SPOKEN])
def test_every_reader_is_linear_on_runs_of_each_kind_of_character(name: str) -> None:
    reader = READERS.get(name) or readers_of_talk()[name]
    for unit in UNITS:
        for before in (
            ("", "[TOOL_CALLS]a", "<tool_call>", "Action: ")
            if "call" in name or "action" in name
            else ("",)
        ):
            growth = superlinear(
                reader,
                lambda size, unit=unit, before=before: (
                    before + (unit * (size // len(unit) + 1))[:size] + "~"  # an end that fails
                ),
                size=2_000 if name == "ledger" else 4_000,  # it reads three messages, in many ways
                floor_s=0.05,
            )
            assert growth is None, (before, unit, growth)  # the first: each more costs seconds


@pytest.mark.parametrize("opened", [False, True])
def test_thoughts_are_told_apart_in_linear_time_however_their_tags_lie(opened: bool) -> None:
    head = "<|start|>assistant<|channel|>analysis<|message|>"
    units = ("</think>", "<think>a</think>\n", "<think>a ", "the </think> is <think>")
    units += ("`</think>` ", "```\n<think>", "<tool_call><think>", head, f"{head}x<|end|>")
    for unit in (*units, "analysisassistantfinal"):
        growth = superlinear(
            partial(split_reasoning, opened=opened),
            lambda size, unit=unit: run("", unit, size),
            size=4_000,
            floor_s=0.05,
        )
        assert growth is None, (unit, growth)


# -- plays ---------------------------------------------------------------------------------------


class Repeats:
    """A behaviour, or an engine, that says one text over and over."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def act(self, asked: Any) -> Action:
        return Action(self.text)

    async def sample(self, request: Any) -> Reply:
        return Reply(self.text)


@cache
def retail() -> Any:
    from gem_ma.registry import make

    return make("retail")


def played(cast: dict[str, Seat], text: str, steps: int) -> None:
    speaking = {
        agent: lambda *_, **__: Repeats(text)
        for agent, seat in cast.items()
        if seat.behaviour == "says"
    }
    plan = Plan(retail(), cast, limits=Limits(max_steps=steps, max_said=None))
    episode = asyncio.run(play(plan, {"m": Policy("m", Repeats(text), Sampling())}, speaking))
    if episode.error == "Late: ":
        raise Late
    assert episode.error is None, episode.error


TALKS = {
    "customer to scripted": {"assistant": Seat("retail_scripted"), "user": Seat("says")},
    "assistant to customer": {"assistant": Seat("says"), "user": Seat("retail_user")},
    "model as customer": {"assistant": Seat("says"), "user": Seat("retail_user_verify", "m")},
}


@pytest.mark.long
@pytest.mark.parametrize("talk", list(TALKS))
def test_a_play_is_linear_in_what_is_said_in_it(talk: str) -> None:
    bad = {}
    for unit in random.Random(talk).sample(UNITS, 4):  # all of them in the benchmark
        looks = (
            superlinear(
                lambda text: played(TALKS[talk], text, 4), partial(run, "", unit), floor_s=0.3
            )
            for _ in range(3)
        )
        # a busy machine may blur one look, not three
        found = list(takewhile(lambda growth: growth is not None, looks))
        if len(found) == 3:
            bad[unit] = found
    assert not bad
