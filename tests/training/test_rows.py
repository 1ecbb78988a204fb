"""Token rows: what is trained, what is not, when a row forks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.training.learner.rows import rows
from tests.plays import recorded


class Table:
    """The two columns that rows read."""

    def __init__(self, *pairs: tuple[Episode, Turn]) -> None:
        self.episodes = tuple(episode for episode, _ in pairs)
        self.turns = tuple(turn for _, turn in pairs)


def reply(prompt: str, said: str, policy: str = "main", **more: Any) -> Reply:
    """Ids are characters: prompt "ab", said "c"."""
    ids = tuple(map(ord, said))
    return Reply(
        said,
        (),
        tuple(map(ord, prompt)),
        ids,
        tuple(-ord(c) / 100 for c in said),
        policy=policy,
        **more,
    )


def turn(step: int, *replies: Reply, agent: str = "a") -> Turn:
    return Turn(step, agent, (), None, (), Action(), replies)


def episode(seed: int = 0) -> Episode:
    return recorded({"a": Seat(), "b": Seat()}, scenario="s", seed=seed)


def text(ids: Any) -> str:
    return "".join(map(chr, ids))


def test_a_conversation_that_grows_is_one_row_masked_on_sampled_ids_only() -> None:
    played = episode()
    made = rows(
        Table(
            (played, turn(0, reply("?", "hi."))),
            (played, turn(2, reply("?hi.!", "yo.", version=3))),
        ),
        [1.0, -2.0],
        "main",
    )
    (row,) = made.rows
    assert text(row.ids) == "?hi.!yo."
    assert row.mask.tolist() == [False, True, True, True, False, True, True, True]
    assert row.advantage.tolist() == [0, 1, 1, 1, 0, -2, -2, -2]
    assert row.turn.tolist() == [-1, 0, 0, 0, -1, 1, 1, 1]
    assert row.version.tolist() == [0, 0, 0, 0, 0, 3, 3, 3]
    assert row.logprob.tolist() == [0, -1.04, -1.05, -0.46, 0, -1.21, -1.11, -0.46]
    assert (made.restarts, made.tokens, row.episode) == (0, 6, played.id)


def test_a_prompt_that_does_not_continue_starts_a_row_and_counts_as_a_fork() -> None:
    played = episode()
    made = rows(
        Table((played, turn(0, reply("?", "hi."))), (played, turn(1, reply("?Hi.!", "yo.")))),
        [1.0, 1.0],
        "main",
    )
    assert [text(row.ids) for row in made.rows] == ["?hi.", "?Hi.!yo."]
    assert [text(row.ids[row.mask]) for row in made.rows] == ["hi.", "yo."]
    assert made.restarts == 1


def test_a_prompt_that_is_shorter_than_what_was_there_forks() -> None:
    played = episode()
    made = rows(
        Table((played, turn(0, reply("?", "hi."))), (played, turn(1, reply("?h", "yo.")))),
        [1.0, 1.0],
        "main",
    )
    assert made.restarts == 1
    assert [text(row.ids) for row in made.rows] == ["?hi.", "?hyo."]


def test_another_policys_replies_are_context_and_never_trained() -> None:
    played = episode()
    mixed = turn(0, reply("?", "draft.", "frozen"), reply("?draft.", "hi."))
    made = rows(Table((played, mixed)), [1.0], "main")
    assert [(text(row.ids), text(row.ids[row.mask])) for row in made.rows] == [
        ("?draft.hi.", "hi.")
    ]
    assert rows(Table((played, mixed)), [1.0], "nobody").rows == ()


def test_every_call_of_one_act_carries_its_turns_advantage() -> None:
    played = episode()
    act = turn(0, reply("?", "draft."), reply("check:", "hi."), reply("check:hi.", "ok."))
    made = rows(Table((played, act)), [0.5], "main")
    assert [text(row.ids) for row in made.rows] == ["?draft.", "check:hi.ok."]
    assert made.restarts == 1
    assert {value for row in made.rows for value in row.advantage[row.mask]} == {0.5}
    assert {value for row in made.rows for value in row.turn[row.mask]} == {0}


def test_agents_and_episodes_have_rows_of_their_own() -> None:
    one, two = episode(1), episode(2)
    table = Table(
        (one, turn(0, reply("?", "x."))),
        (one, turn(1, reply("?x.", "y."), agent="b")),
        (two, turn(0, reply("?x.", "z."))),
    )
    made = rows(table, [1.0, 2.0, 3.0], "main")
    assert [(row.episode, text(row.ids)) for row in made.rows] == [
        (one.id, "?x."),
        (one.id, "?x.y."),
        (two.id, "?x.z."),
    ]
    assert made.restarts == 0


def test_equal_episode_objects_in_one_batch_stay_apart() -> None:
    one, two = episode(1), episode(1)
    made = rows(
        Table((one, turn(0, reply("?", "x."))), (two, turn(0, reply("?", "x.")))),
        [1.0, 2.0],
        "main",
    )
    assert [row.advantage.max() for row in made.rows] == [1.0, 2.0]


@pytest.mark.parametrize("seed", range(20))
def test_every_sampled_id_is_trained_exactly_once(seed: int) -> None:
    rng = random.Random(seed)
    pairs, sampled = [], []
    for number in range(4):
        played, so_far = episode(number), {"a": "", "b": ""}
        for step in range(rng.randint(1, 6)):
            agent = rng.choice("ab")
            replies = []
            for _ in range(rng.randint(0, 2)):
                if rng.random() < 0.2:
                    so_far[agent] = ""  # history rewritten
                one = reply(
                    so_far[agent] + "".join(rng.choices("pq", k=3)),
                    "".join(rng.choices("xyz", k=rng.randint(1, 4))),
                    rng.choice(["main", "old"]),
                )
                so_far[agent] = text(one.prompt_ids) + text(one.token_ids)
                replies.append(one)
            pairs.append((played, turn(step, *replies, agent=agent)))
            sampled += [text(one.token_ids) for one in replies if one.policy == "main"]
    order = list(range(len(pairs)))
    advantages = [float(at + 1) for at in order]
    made = rows(Table(*pairs), advantages, "main")
    assert made.tokens == len("".join(sampled))
    assert sorted("".join(text(row.ids[row.mask]) for row in made.rows)) == sorted("".join(sampled))
    for row in made.rows:
        assert not row.mask[0]
        assert (row.advantage[row.mask] == row.turn[row.mask] + 1).all()
        assert (row.logprob[row.mask] == -row.ids[row.mask] / 100).all()


def test_a_prompt_that_did_not_fit_trains_nothing() -> None:
    made = rows(
        Table((episode(), turn(0, reply("?", "", finish="context_overflow")))), [1.0], "main"
    )
    assert (made.rows, made.tokens, made.restarts) == ((), 0, 0)


@pytest.mark.parametrize(
    "bare",
    [
        Reply("hi", policy="main"),
        Reply("hi", (), (1,), (2,), (), policy="main"),
        Reply("", (), (1,), (), (), policy="main"),
    ],
)
def test_a_reply_without_ids_or_logprobs_is_refused_with_policy_and_episode(bare: Reply) -> None:
    with pytest.raises(ConfigError, match=r"'main'.*train/0.*'a'.*step 4"):
        rows(Table((episode(), turn(4, bare))), [1.0], "main")


def test_lengths_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="got 2 for 1 turns"):
        rows(Table((episode(), turn(0, reply("?", "x")))), [1.0, 2.0], "main")
    with pytest.raises(DataError, match="2 token ids and 1 log-probabilities"):
        rows(
            Table((episode(), turn(0, Reply("", (), (1,), (2, 3), (-1.0,), policy="main")))),
            [1.0],
            "main",
        )
    assert rows(Table(), np.zeros(0), "main").rows == ()
