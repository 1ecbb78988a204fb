"""A policy reads a lost play and names the act that lost it; logs of others, and what names their
faults without reading them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from benchmarks.readers import LOGS, SETS, constants, logs, planted
from gem_ma import make
from gem_ma.engines.base import Policy
from gem_ma.kernel.types import Reply, Request
from gem_ma.scores.judge import Said, fault_of, read_fault, said_in

ACTS = (Said(0, "planner", "Cut the blue wire."), Said(1, "hand", "x" * 900))


@dataclass
class Answers:
    """An engine that says one thing, and keeps what it was asked."""

    text: str
    asked: list[Request] = field(default_factory=list)

    async def sample(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(self.text)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("step 1: hand", (1, "hand")),
        ("Step 0: planner.", (0, "planner")),
        ("**step 1: hand**", (1, "hand")),
        ("step 1: planner", None),
        ("step 7: hand", None),
        ("", None),
        ("step 0: planner, or step 1: hand", None),
    ],
)
def test_a_reader_names_an_act_that_is_there_or_nothing(
    said: str, named: tuple[int, str] | None
) -> None:
    engine = Answers(said)
    fault = asyncio.run(read_fault(Policy("reader", engine), ACTS, "Disarm it.", most=100))
    assert (None if fault is None else (fault.step, fault.agent)) == named
    (request,) = engine.asked
    assert request.legal == ("step 0: planner", "step 1: hand")
    shown = request.messages[0].text
    assert shown.startswith("Disarm it.\nstep 0: planner: Cut the blue wire.\nstep 1: hand: x")
    assert shown.count("x") < 120  # so much of each act and no more
    assert fault is None or fault.why == said


def test_a_play_without_acts_is_not_read() -> None:
    engine = Answers("step 0: planner")
    assert asyncio.run(read_fault(Policy("reader", engine), ())) is None
    assert not engine.asked


def test_a_planted_act_is_shown_with_its_calls_and_blamed_by_the_rules() -> None:
    shop = make("retail", data="own")
    found = asyncio.run(planted(shop, 2))
    assert found
    for episode, step in found:
        acts = {act.step: act for act in said_in(episode)}
        assert acts[step].agent == "assistant" and "transfer_to_human_agents {" in acts[step].text
        fault = fault_of(episode, shop.fault)
        assert fault is not None and (fault.step, fault.agent) == (step, "assistant")


def test_constants_name_the_shares_of_who_and_when_that_are_known() -> None:
    if not LOGS.is_dir():
        pytest.skip(f"the logs of Who&When do not lie in {LOGS.name} beside the checkout")
    known = {SETS[0]: (126, 0.492, 0.270), SETS[1]: (58, None, 1 / 58)}
    for name, (count, agents, steps) in known.items():
        plays = logs(LOGS, name)
        assert len(plays) == count
        assert all(0 <= each.truth[0] < len(each.acts) for each in plays)
        pairs = [
            (each.truth, one)
            for each, one in zip(plays, constants(plays)["first speaker, step 1"], strict=True)
        ]
        assert sum(true[0] == one[0] for true, one in pairs) / count == pytest.approx(
            steps, abs=5e-4
        )
        if agents is not None:
            right = sum(true[1] == one[1] for true, one in pairs)
            assert right / count == pytest.approx(agents, abs=5e-4)
    # 123 of 126 labels agree with who speaks there
    agreed = [each.acts[each.truth[0]].agent == each.truth[1] for each in logs(LOGS, SETS[0])]
    assert sum(agreed) == 123
