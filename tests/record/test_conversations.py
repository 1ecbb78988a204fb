"""Prompts in a line: a conversation's ids stand there once, and come back in full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.record.codec import digest, dump_episode, from_json, load_episode, to_json
from gem_ma.record.token_chains import BACK, LEAST, common
from tests.plays import recorded


def episode(*replies: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Episode:
    """Turns of (agent, prompt, sampled ids), one reply each."""
    made = tuple(
        Turn(
            step,
            agent,
            (),
            None,
            (),
            Action("x"),
            (
                Reply(
                    "x",
                    prompt_ids=prompt,
                    token_ids=ids,
                    logprobs=(-0.5,) * len(ids),
                    policy="main",
                ),
            ),
        )
        for step, (agent, prompt, ids) in enumerate(replies)
    )
    return recorded({"a": Seat("direct", "main"), "b": Seat()}, made, scenario="game")


def talk(turns: int, new: int = 40, threads: int = 1, rewrites: int = 0) -> Episode:
    """An agent that holds conversations in turn, each growing by `new` ids; the last `rewrites`
    ids of a prompt are written anew every time."""
    held: list[tuple[int, ...]] = [(thread,) * LEAST for thread in range(threads)]
    made = []
    for turn in range(turns):
        thread = turn % threads
        kept = held[thread][: len(held[thread]) - rewrites]
        prompt = kept + tuple(range(1000 * turn, 1000 * turn + new))
        held[thread] = (*prompt, turn, turn + 1)
        made.append(("a", prompt, (turn, turn + 1)))
    return episode(*made)


ID = st.integers(0, 3)
REPLY = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 9),
    st.integers(0, 60),
    st.lists(ID, max_size=60),
    st.lists(ID, max_size=4),
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(REPLY, max_size=14))
def test_whatever_prompts_share_a_line_gives_them_back_in_full(drawn: list[Any]) -> None:
    made: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
    for agent, back, count, new, ids in drawn:
        base = (*made[-back][1], *made[-back][2]) if 0 < back <= len(made) else ()
        made.append((agent, (*base[:count], *new), tuple(ids)))
    one = episode(*made)
    assert load_episode(dump_episode(one)) == one == from_json(to_json(one))
    in_full = json.loads(json.dumps(to_json(one)))
    for turn, (_, prompt, _) in zip(in_full["turns"], made, strict=True):
        for reply in turn["replies"]:
            reply.pop("prompt_of", None)
            reply["prompt_ids"] = list(prompt)
    # a line of an older version
    assert from_json(in_full) == one and digest(from_json(in_full)) == digest(one)


@pytest.mark.parametrize(("threads", "rewrites"), [(1, 0), (1, 3), (2, 0), (BACK, 1)])
def test_a_line_grows_with_the_turns_and_not_with_their_square(threads: int, rewrites: int) -> None:
    short, long = (
        len(dump_episode(talk(turns, threads=threads, rewrites=rewrites))) for turns in (24, 96)
    )
    assert long <= 5 * short  # four times the turns; in full it would be about twelve times


def test_a_short_prompt_is_written_as_it_is() -> None:
    line = dump_episode(episode(("a", (7,), (1,)), ("a", (7, 1, 2), (1,))), 1)
    assert "prompt_of" not in line and '"prompt_ids":[7,1,2]' in line


DAMAGE: dict[str, Any] = {
    "too far back": [2, 5],
    "no reply": [0, 5],
    "more than it has": [1, 10_000],
    "a negative count": [1, -1],
    "one number": [1],
    "text": "ab",
    "truth": [True, 1],
    "nothing": None,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_reference_that_leads_nowhere_is_an_error_that_names_it(damage: str) -> None:
    data = to_json(talk(2))
    data["turns"][1]["replies"][0]["prompt_of"] = DAMAGE[damage]
    with pytest.raises(StoreError, match=r"turns\[1\].replies\[0\].prompt_of: "):
        from_json(data)


@pytest.mark.parametrize("damage", ["x", [1, "x"]])
def test_damaged_ids_are_named_as_ever(damage: Any) -> None:
    for name in ("prompt_ids", "token_ids"):
        data = to_json(talk(3))
        data["turns"][0]["replies"][0][name] = damage
        with pytest.raises(StoreError, match=r"turns\[[012]\]"):
            from_json(data)


@pytest.mark.long
@given(st.lists(ID), st.lists(ID), st.lists(ID))
def test_the_common_beginning_is_that_of_a_slow_loop(
    begins: list[int], one: list[int], other: list[int]
) -> None:
    left, right = [*begins, *one], [*begins, *other]
    slow = next(
        (at for at, (x, y) in enumerate(zip(left, right, strict=False)) if x != y),
        min(len(left), len(right)),
    )
    assert common(left, right) == slow
