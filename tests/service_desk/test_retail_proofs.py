"""Proofs of generated tasks: all hold for what is emitted, and each catches the task that was
broken for it by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, permutations
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.customer_traits import PRESETS
from gem_ma.scenarios.service_desk.desk.preferences import Candidate, Program
from gem_ma.scenarios.service_desk.desk.task import GoldCall
from gem_ma.scenarios.service_desk.grading.proofs import PROOFS, Unproved
from gem_ma.scenarios.service_desk.retail import Retail, Task, Wish
from gem_ma.scenarios.service_desk.retail.domain.grading import changes
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS
from gem_ma.scenarios.service_desk.retail.shop.describe import every
from gem_ma.scenarios.service_desk.retail.shop.prove import prove, trial, world_of
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

from gem_ma import Plan, play
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.errors import DataError
from tests.retail_worlds import EVERYTHING
from tests.service_desk.test_retail_world import ALL, RICH


def broken(task: Task, **changed: Any) -> str:
    """The name of the proof that a changed task fails."""
    with pytest.raises(Unproved) as caught:
        prove(replace(task, **changed), ALL.world(task))
    assert f"task {task.id} is not {caught.value.proof}: " in str(caught.value)
    return caught.value.proof


def pick(test: Callable[[Task], Any]) -> Task:
    return next(task for task in chain(RICH, ALL.tasks("train")) if test(task))


def lone(kind: str, **fields: Any) -> Task:
    """A task of one plain wish of this kind."""

    def fits(task: Task) -> bool:
        wish = task.wishes[0]
        plain = len(task.wishes) == 1 and wish.before_change is None and not wish.choices
        return (
            wish.kind == kind
            and plain
            and all(getattr(wish, name) == value for name, value in fields.items())
        )

    return pick(fits)


@pytest.mark.longest
def test_every_emitted_task_holds_its_proofs_again() -> None:
    for task in RICH:
        assert prove(task, ALL.world(task)) == task.proof
        assert list(task.proof) == list(PROOFS)


def test_a_task_is_proved_from_itself_alone() -> None:
    for task in RICH[:3]:
        assert world_of(task).tables == ALL.world(task).tables
        assert prove(task) == task.proof
    with pytest.raises(DataError, match=r"does not say its world"):
        prove(replace(RICH[0], raw={}))


def test_the_proofs_hold_under_the_benchmarks_tools_too() -> None:
    shop = Retail(data="own", semantics="tau1").source
    for task in shop.tasks("val")[:8]:
        assert prove(task, shop.world(task), "tau1") == task.proof


# -- each proof catches its own fault ------------------------------------------------------------


@pytest.mark.long
def test_a_call_that_fails_is_caught() -> None:
    task = lone("cancel_pending_order")
    wrong = [
        (
            GoldCall(call.name, {**call.arguments, "order_id": "#W0000000"})
            if "order_id" in call.arguments
            else call
        )
        for call in task.actions
    ]
    assert broken(task, actions=tuple(wrong)) == "solvable"


def test_a_solution_that_the_grader_does_not_take_is_caught() -> None:
    assert broken(lone("cancel_pending_order"), flags=("gold_write_error",)) == "solvable"


def test_a_write_that_changes_nothing_is_caught() -> None:
    task = lone("cancel_pending_order")
    address = {
        part: ALL.world(task).tables["users"][task.user_id]["address"][part] for part in ADDRESS
    }
    extra = GoldCall("modify_user_address", {"user_id": task.user_id, **address})
    assert broken(task, actions=(*task.actions, extra)) == "necessary"


def test_a_fact_that_is_told_with_another_is_caught() -> None:
    task = lone("question")
    assert broken(task, outputs=(*task.outputs, *task.outputs)) == "necessary"


def test_a_task_that_an_echo_solves_is_caught() -> None:
    task = lone("question", intent="amount_paid")
    assert (
        broken(task, instruction=f"{task.instruction} You believe it was {task.outputs[0]}.")
        == "idle"
    )


def test_a_refusal_that_needs_no_word_is_caught() -> None:
    task = lone("impossible", instead=None)
    assert broken(task, goal="served", flags=(), outputs=()) == "idle"


def test_an_ambiguous_wish_is_caught() -> None:
    task = pick(
        lambda task: any(
            len(wish.choices) > 0 and "new_item_ids" in wish.arguments for wish in task.wishes
        )
    )
    wishes = tuple(replace(wish, choices=()) for wish in task.wishes)
    assert broken(task, wishes=wishes) == "unique"


def test_an_order_that_is_described_like_another_is_caught() -> None:
    def alike(task: Task) -> Iterator[str]:
        """Products that two of the customer's orders hold, one of them wished for by number."""
        tables = ALL.world(task).tables
        held = [
            {item["name"] for item in tables["orders"][key]["items"]}
            for key in tables["users"][task.user_id]["orders"]
        ]
        for wish in task.wishes[:1]:
            if (
                wish.intent == "cancel"
                and wish.writes
                and wish.words["order"].startswith("order #")
            ):
                mine = {
                    item["name"] for item in tables["orders"][wish.arguments["order_id"]]["items"]
                }
                yield from sorted(name for name in mine if sum(name in names for names in held) > 1)

    task = pick(lambda task: next(alike(task), ""))
    name = next(alike(task))
    words = {
        **task.wishes[0].words,
        "order": f"the order with {'an' if name[0] in 'AEIOU' else 'a'} {name}",
    }
    assert broken(task, wishes=(replace(task.wishes[0], words=words), *task.wishes[1:])) == "unique"


def test_an_item_that_is_described_wrongly_is_caught() -> None:
    task = lone("return_delivered_order_items")
    wish = task.wishes[0]
    items = tuple(
        replace(item, options={**item.options, next(iter(item.options)): "odd"})
        for item in wish.words["items"]
    )
    assert broken(task, wishes=(replace(wish, words={**wish.words, "items": items}),)) == "unique"


def test_a_wrong_answer_is_caught() -> None:
    task = lone("question", intent="cheapest_variant")
    assert (
        broken(task, outputs=("1.00",), wishes=(replace(task.wishes[0], outputs=("1.00",)),))
        == "unique"
    )


def test_a_handover_is_the_last_request_and_alone_solves_only_what_is_nothing_else() -> None:
    mixed = pick(lambda task: task.goal == "transferred")
    assert mixed.wishes[-1].reason == "beyond_tools"
    assert mixed.wishes[-1].after == tuple(range(len(mixed.wishes) - 1)) != ()
    assert broken(mixed, goal="served") in ("solvable", "idle", "unique")
    shop = OwnWorld(knobs={"intents": ["beyond_tools"]})
    alone = shop.tasks("val")[0]
    assert [call.name for call in alone.actions if call.name.startswith("transfer")] == [
        "transfer_to_human_agents"
    ]
    assert prove(mixed, ALL.world(mixed))["idle"] == prove(alone, shop.world(alone))["idle"] + 1


@pytest.mark.long
def test_a_refusal_of_what_can_be_done_is_caught() -> None:
    task = lone("impossible", intent="cancel", reason="cancel_reason")
    arguments = {**task.wishes[0].arguments, "reason": "no longer needed"}
    assert broken(task, wishes=(replace(task.wishes[0], arguments=arguments),)) == "unique"


def test_a_text_that_leaves_something_out_is_caught() -> None:
    task = lone("exchange_delivered_order_items")
    for sentence in task.instruction.split(". ")[1:]:
        short = task.instruction.replace(f". {sentence}", "", 1)
        assert broken(task, instruction=short if short.endswith(".") else f"{short}.") == "told"


def test_a_text_that_says_something_else_is_caught() -> None:
    task = lone("cancel_pending_order")
    reason = task.wishes[0].words["reason"]
    other = "ordered by mistake" if reason == "no longer needed" else "no longer needed"
    assert broken(task, instruction=task.instruction.replace(reason, other)) == "told"
    assert broken(task, instruction=f"{task.instruction} You are in a hurry.") == "told"


def test_a_text_with_what_no_customer_knows_is_caught() -> None:
    task = lone("return_delivered_order_items")
    item = task.wishes[0].words["items"][0]
    item_id = task.wishes[0].arguments["item_ids"][0]
    wish = replace(task.wishes[0], words={**task.wishes[0].words, "method": "your card"})
    assert (
        broken(task, instruction=task.instruction.replace(item.name, f"{item.name} {item_id}", 1))
        == "told"
    )
    assert broken(task, wishes=(wish,)) in ("unique", "told")


def test_a_forgotten_number_that_is_told_is_caught() -> None:
    task = pick(
        lambda task: any(slot.name == "order_id" and not slot.known for slot in task.knowledge)
    )
    knowledge = tuple(replace(slot, known=True) for slot in task.knowledge)
    assert broken(task, knowledge=knowledge) == "told"


def test_writes_whose_order_matters_are_caught() -> None:
    task = pick(lambda task: any(wish.after and wish.writes for wish in task.wishes))
    assert broken(task, wishes=tuple(replace(wish, after=()) for wish in task.wishes)) == "stable"


def test_a_wrong_argument_that_solves_it_too_is_caught() -> None:
    task = lone("cancel_pending_order")
    write = task.actions[-1]
    other = {"no longer needed": "ordered by mistake", "ordered by mistake": "no longer needed"}[
        write.arguments["reason"]
    ]
    assert (
        broken(task, ends=((GoldCall(write.name, {**write.arguments, "reason": other}),),))
        == "sharp"
    )


# -- against a second, slow way ------------------------------------------------------------------


def test_dropping_turning_and_mistaking_writes_is_what_a_plain_replay_finds() -> None:
    """Every proof about writes once more, by plain replays from the start."""

    def end(base: Any, calls: Any) -> Any:
        store = RetailStore(base, "fixed")
        for call in calls:
            store.call(call.name, dict(call.arguments))
        return changes(store.overlay)

    for task in RICH[:25]:
        base, case = ALL.world(task), trial(task, ALL.world(task))
        writes = [call for call in task.actions if RetailStore(base, "fixed").mutates(call.name)]
        wanted = end(base, writes)
        assert case.goals[0] == wanted
        assert all(
            end(base, writes[:place] + writes[place + 1 :]) != wanted
            for place in range(len(writes))
        )
        if not any(wish.after for wish in task.wishes):
            assert all(end(base, order) == wanted for order in permutations(writes))
        for place, call in enumerate(writes):
            for name in (*ADDRESS, "reason", "payment_method_id"):
                if name in call.arguments and not any(wish.choices for wish in every(task.wishes)):
                    wrong = GoldCall(
                        call.name, {**call.arguments, name: f"{call.arguments[name]}x"}
                    )
                    assert end(base, [*writes[:place], wrong, *writes[place + 1 :]]) != wanted


def test_choices_are_all_accepted_and_nothing_else_is() -> None:
    task = pick(lambda task: any(len(wish.choices) > 1 for wish in task.wishes))
    case = trial(task, ALL.world(task))
    wish = next(wish for wish in task.wishes if wish.choices)
    writes = case.writes
    place = next(
        place for place, call in enumerate(writes) if dict(call.arguments) == dict(wish.arguments)
    )
    reached = [
        case.replayed(place, [GoldCall(wish.kind, choice), *writes[place + 1 :]])
        for choice in wish.choices
    ]
    assert all(end in case.goals for end in reached)
    assert len(reached) + 1 <= len(case.goals)


def test_what_was_thrown_away_is_counted_by_proof() -> None:
    shop = OwnWorld(knobs={**RICH[0].raw["knobs"], "ties": 1.0})
    kept = shop.tasks("train")[:15]
    assert shop.rejected["kept"] == len(kept) == 15
    assert set(shop.rejected) <= {"kept", "drawn", "new", *PROOFS}


# -- preference programs -------------------------------------------------------------------------


def slow_best(program: Program, now: dict[str, str], candidates: list[Candidate]) -> list[str]:
    """The same by comparing each two candidates."""

    def beats(one: Candidate, other: Candidate) -> bool:
        for name, value in program.prefers:
            mine, its = one.options.get(name) == value, other.options.get(name) == value
            if mine != its:
                return mine
        if program.tie == "any":
            return False
        if program.tie == "keep":
            return sum(now.get(n) == v for n, v in one.options.items()) > sum(
                now.get(n) == v for n, v in other.options.items()
            )
        return one.price < other.price if program.tie == "cheapest" else one.price > other.price

    fit = [entry for entry in candidates if program.required.items() <= entry.options.items()]
    return [one.key for one in fit if not any(beats(other, one) for other in fit)]


def test_a_preference_program_picks_what_beats_all_others() -> None:
    axes = {"a": "xyz", "b": "pq", "c": "mn"}
    candidates = [
        Candidate(
            f"{a}{b}{c}",
            {"a": a, "b": b, "c": c},
            float(len(a + b) + axes["a"].index(a) * 3 % 4 + axes["b"].index(b)),
        )
        for a in axes["a"]
        for b in axes["b"]
        for c in axes["c"]
        if a + b != "xq"
    ]
    now, seen = {"a": "x", "b": "q", "c": "n"}, Counter[int]()
    for required in ({}, {"a": "y"}, {"a": "x", "b": "q"}, {"b": "q"}):
        for prefers in ((), (("b", "q"),), (("b", "q"), ("c", "m")), (("a", "x"), ("b", "q"))):
            for tie in ("keep", "cheapest", "dearest", "any"):
                program = Program(required, prefers, tie)
                best = program.best(now, candidates)
                assert sorted(best) == sorted(slow_best(program, now, candidates))
                seen[len(best)] += 1
    assert {0, 1, 2} <= set(seen)


def test_a_fallback_is_what_is_served_and_asked_for_second() -> None:
    tasks = [task for task in RICH if any(wish.instead for wish in task.wishes)]
    assert len(tasks) > 10
    for task in tasks:
        wish: Wish = next(wish for wish in task.wishes if wish.instead)
        assert wish.instead is not None
        assert any(
            call.name == wish.instead.kind and dict(call.arguments) == dict(wish.instead.arguments)
            for call in task.actions
        )
        assert task.goal in ("served", "transferred")


# -- played --------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", list(PRESETS))
def test_an_oracle_and_the_scripted_customer_play_every_task_out_whatever_its_character(
    preset: str,
) -> None:
    """The proof that needs both sides; `gem-ma check retail --examine user` makes it for any
    other user."""
    shop = Retail(data="own", knobs=EVERYTHING)
    shop.id = "retail"
    cast = {
        "assistant": Seat("retail_oracle"),
        "user": Seat("retail_user", options={"preset": preset}),
    }
    for index in range(6):
        episode = asyncio.run(
            play(Plan(shop, cast, f"shift/{index}" if index % 2 else f"val/{index}", 0))
        )
        assert shop.success(episode) is True, (episode.task, preset)
        assert episode.end is End.TERMINATED
        measures = shop.measures(episode)
        if preset == "faithful":
            assert (measures["hard violations"], measures["user faults"]) == (0, 0), episode.task


@pytest.mark.long
def test_a_task_whose_parts_contradict_each_other_is_not_proved() -> None:
    shop, caught = OwnWorld(), 0
    for task in shop.tasks("train")[:20]:
        base, calls = shop.world(task), task.actions
        writes = [
            place
            for place, call in enumerate(calls)
            if call.name.startswith(("cancel_", "modify_", "return_", "exchange_"))
        ]
        others = [replace(task, actions=calls[:place] + calls[place + 1 :]) for place in writes[:1]]
        others += [replace(task, outputs=("987654.32", *task.outputs[1:]))] if task.outputs else []
        others.append(replace(task, goal="served" if task.goal != "served" else "refused"))
        others.append(replace(task, user_id="nobody_here_0000"))
        prove(task, base)
        for other in others:
            with pytest.raises(Unproved):
                prove(other, base)
        caught += len(others)
    assert caught > 60
