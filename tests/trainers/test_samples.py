"""Samples for other trainers: every sampled id once, every reward once, nobody else's."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma import credit
from gem_ma.credit.estimators import estimate
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.trainers.samples import Sample, samples
from tests.plays import recorded

AGENTS = {"a": "learner", "b": "learner", "c": "frozen", "d": None}


@st.composite
def plays(draw: Any) -> Episode:
    """A play of two agents that learn, a frozen one and a script; prompts that grow or are
    rewritten, turns of several calls and of none, and rewards at any step."""
    steps = draw(st.integers(0, 8))
    histories = dict.fromkeys(AGENTS, (1,))
    turns = []
    for step in range(steps):
        agent = draw(st.sampled_from([*AGENTS]))
        replies = []
        for _ in range(draw(st.integers(0, 3)) if AGENTS[agent] else 0):
            rewritten = draw(st.integers(0, 4)) == 0
            prompt = (7, step) if rewritten else (*histories[agent], 50 + step)
            # a reply without an id: its prompt did not fit
            count = draw(st.integers(0, 3))
            ids = tuple(draw(st.lists(st.integers(2, 9), min_size=count, max_size=count)))
            finish = "stop" if ids else "context_overflow"
            logprobs = tuple(-0.1 * n for n in ids)
            policy = str(AGENTS[agent])
            replies.append(
                Reply("x", (), prompt, ids, logprobs, finish, policy=policy, version=step)
            )
            histories[agent] = (*prompt, *ids)
        turns.append(Turn(step, agent, (), None, (), Action(), tuple(replies)))
    ledger = draw(
        st.lists(
            st.tuples(
                st.integers(-1, max(steps, 1)),
                st.sampled_from([*AGENTS]),
                st.integers(-8, 8).map(lambda eighths: eighths / 8),
            ),
            max_size=8,
        )
    )
    return recorded(
        {agent: Seat(policy=policy) for agent, policy in AGENTS.items()},
        tuple(turns),
        tuple(Entry(*entry) for entry in sorted(ledger)),
        scenario="s",
        seed=draw(st.integers(0, 9)),
        end=draw(st.sampled_from([End.TERMINATED, End.MAX_STEPS, End.FAILED])),
    )


def taken(episodes: list[Episode], **how: Any) -> list[Sample]:
    table = credit.turns(episodes, "learner", **how)
    return samples(table, np.arange(1.0, len(table) + 1), "learner")


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(plays(), max_size=3))
def test_every_reward_and_every_sampled_id_stands_there_once(episodes: list[Episode]) -> None:
    made = taken(episodes)
    sampled: Counter[Any] = Counter()
    for episode in (episode for episode in episodes if episode.end.scored):
        for turn in episode.turns:
            for reply in (reply for reply in turn.replies if reply.policy == "learner"):
                sampled.update((turn.agent, turn.step, id) for id in reply.token_ids)
    # versions are steps here, so an id is known by its agent, its step and itself
    assert sampled == Counter(
        (sample.agent, int(version), int(id))
        for sample in made
        for version, id in zip(
            sample.version[sample.mask], sample.response_ids[sample.mask], strict=True
        )
    )
    owed = {
        (episode.seed, number, agent): math.fsum(
            entry.value for entry in episode.ledger if entry.agent == agent
        )
        for number, episode in enumerate(episodes)
        for agent in AGENTS
    }
    seats: dict[Any, list[Sample]] = {}
    for sample in made:  # a sample after part 0 belongs to the seat before it
        if sample.part == 0:
            seats[len(seats)] = []
        seats[len(seats) - 1].append(sample)
    for parts in seats.values():
        placed = math.fsum([*(s.token_rewards.sum() for s in parts), *(s.unplaced for s in parts)])
        assert placed == pytest.approx(parts[0].total, abs=1e-12)
        assert parts[0].total in [
            value
            for (seed, _, agent), value in owed.items()
            if seed == parts[0].episode[1] and agent == parts[0].agent
        ]
        assert [part.part for part in parts] == [*range(parts[0].parts)]


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.lists(plays(), max_size=3))
def test_off_the_mask_nothing_is_said(episodes: list[Episode]) -> None:
    for sample in taken(episodes):
        off = ~sample.mask
        assert sample.policy == "learner" and sample.agent in ("a", "b")
        assert sample.mask[0]  # the response begins with what was sampled
        for values in (sample.logprobs, sample.token_rewards, sample.token_advantages):
            assert len(values) == len(sample.response_ids) and not values[off].any()
        assert (sample.turn[off] == -1).all() and (sample.version[off] == -1).all()
        assert (sample.turn[sample.mask] >= 0).all() and len(sample.prompt_ids)
        rewarded = np.flatnonzero(sample.token_rewards)
        for place in rewarded:  # at the last id of its turn
            assert sample.turn[place] not in sample.turn[place + 1 :]


def played(*turns: Turn, ledger: Any = ()) -> Episode:
    paid = tuple(Entry(*entry) for entry in ledger)
    return recorded({"a": Seat(policy="learner")}, turns, paid, seed=3)


def said(step: int, *pairs: tuple[str, str]) -> Turn:
    replies = tuple(
        Reply(text, (), tuple(map(ord, prompt)), tuple(map(ord, text)), (-1.0,) * len(text),
              policy="learner", version=step)
        for prompt, text in pairs
    )  # fmt: skip
    return Turn(step, "a", (), None, (), Action(), replies)


def test_a_rewritten_history_is_two_parts_and_pays_each_turn_where_it_ends() -> None:
    episode = played(
        said(0, ("?", "x")),
        said(1, ("?x!", "yy"), ("new", "z")),
        ledger=[(-1, "a", 8.0), (0, "a", 1.0), (1, "a", 2.0)],
    )
    first, second = taken([episode])
    assert bytes(first.response_ids.astype(np.uint8)) == b"x!yy"
    assert first.token_rewards.tolist() == [1, 0, 0, 0] and first.unplaced == 8
    assert first.token_advantages.tolist() == [1, 0, 2, 2]
    # the turn of two calls is paid once, at the end of its last
    assert second.token_rewards.tolist() == [2] and second.unplaced == 0
    assert [(part.part, part.parts) for part in (first, second)] == [(0, 2), (1, 2)]


def test_a_row_of_an_endpoint_without_log_probabilities_is_refused_by_name() -> None:
    reply = Reply("x", (), (1,), (2,), (), policy="learner")
    episode = played(Turn(0, "a", (), None, (), Action(), (reply,)))
    with pytest.raises(ConfigError, match="no log-probabilities"):
        taken([episode])


# -- courses ---------------------------------------------------------------------------------------

TABLE = "guess_number_table"


def course(*overrides: str, **how: Any) -> Any:
    from gem_ma.trainers.course import Course

    return Course(TABLE, overrides, **how)


def test_starts_are_those_of_the_training_and_a_prompt_names_one() -> None:
    from gem_ma.trainers.course import Start

    made = course("train.episodes=8")
    starts = made.starts(20)
    assert len({start.seed for start in starts}) == 20
    assert starts[:8] == made.starts(8)
    assert [Start.of(str(start)) for start in starts] == starts
    assert Start.of("a task 7 player") == ("a task", 7, "player")
    for text in ("", "train/0", "train/0 x player"):
        with pytest.raises(DataError, match="a task, a seed and an agent"):
            Start.of(text)


def test_a_start_that_is_named_again_is_a_play_of_its_own_in_one_group() -> None:
    made = course("train.episodes=4")
    one, other = made.starts(2)
    episodes, ids = made.play([one, one, other, one])
    assert len(episodes) == 4 and len(set(ids)) == 4
    assert len({episode.group for episode in episodes}) == 2
    again, _ = made.play([one, one, other, one])
    # the same starts, and other draws
    assert not {episode.id for episode in episodes} & {episode.id for episode in again}


def test_no_play_has_the_id_of_another_however_many_a_call_plays() -> None:
    made = course("train.episodes=4")
    one, other = made.starts(2)
    batches = [[one] * 3, [one], [one, other, one], [other] * 5, [one] * 2, [other]]
    ids = [episode.id for batch in batches for episode in made.play(batch)[0]]
    assert len(ids) == len(set(ids)) == sum(map(len, batches))


def test_plays_that_nothing_is_learned_from_leave_the_course_as_it_was() -> None:
    made = course("train.episodes=4", "train.estimator.name=rae")
    starts = made.starts(2)
    made.learn(made.play(starts)[0])
    before, beside = made.progress(), made.aside()
    beside.learn(beside.play(starts * 3)[0])
    assert made.progress() == before != beside.progress()


def test_a_course_goes_on_where_its_progress_was_taken() -> None:
    import json

    made, again = (course("train.episodes=4", "train.estimator.name=rae") for _ in range(2))
    starts = made.starts(2)
    made.learn(made.play(starts)[0])
    again.restore(json.loads(json.dumps(made.progress())))
    assert again.progress() == made.progress() and made.state
    assert again.play(starts)[1] == made.play(starts)[1]


def test_a_prompt_of_an_agent_that_does_not_learn_is_refused() -> None:
    made = course()
    with pytest.raises(DataError, match="judge does not learn; player may stand there"):
        made.play([made.starts(1)[0]._replace(agent="judge")])
    for prompt in ([{"role": "user", "content": "train/0 7 player"}], None):
        with pytest.raises(DataError, match="a task, a seed and an agent"):
            type(made.starts(1)[0]).of(prompt)


def test_a_row_that_shows_images_is_refused_by_name() -> None:
    reply = Reply("x", (), (1,), (2,), (-1.0,), policy="learner", images=("d" * 64,))
    episode = played(Turn(0, "a", (), None, (), Action(), (reply,)))
    with pytest.raises(ConfigError, match="agent 'a': its prompts show images"):
        taken([episode])
    frozen = played(Turn(0, "a", (), None, (), Action(), (replace(reply, policy="other"),)))
    assert taken([frozen]) == []


def test_starts_that_differ_in_the_agent_alone_share_their_play() -> None:
    from gem_ma.trainers.course import Course

    made = Course("kuhn_table", ["train.opponents=null", "train.episodes=4"])
    assert len(made.agents) == 2
    starts = made.starts(4)
    episodes, ids = made.play(starts)
    assert len(episodes) == 2 and ids[0] == ids[1] != ids[2] == ids[3]


@pytest.mark.parametrize(
    ("config", "override", "word"),
    [
        ("kuhn_league", "run.seed=0", "train.opponents"),
        ("guess_number_forks", "run.seed=0", "train.fork"),
        ("guess_number_table", "train.overlap=true", "train.overlap"),
        ("guess_number_table", "train.curriculum={}", "train.curriculum"),
        ("guess_number_table", "train.refill=2", "train.refill"),
        ("guess_number_table", "train.estimator.name=gae", "a critic"),
        ("kuhn_table", "train.seats=swap", "train.seats"),
        ("kuhn_table", "train.loss={kl: 0.1, kl_in: reward}", "train.loss.kl_in"),
        ("kuhn_table", "train.loss.surrogate=dpo", "train.loss.surrogate: dpo (pairs)"),
        ("kuhn_table", "train.max_policy_lag=1", "train.max_policy_lag"),
        ("retail_scripted", "run.seed=0", "no section train"),
        ("referential_table", "run.seed=0", "policy=NAME"),
    ],
)
def test_what_another_trainer_would_not_do_is_refused(
    config: str, override: str, word: str
) -> None:
    from gem_ma.trainers.course import Course

    with pytest.raises(ConfigError, match=re.escape(word)):
        Course(config, [override])


def test_a_policy_that_does_not_learn_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'nobody' does not learn"):
        course(policy="nobody")


def test_the_advantages_are_those_of_the_estimator() -> None:
    rng, replies = random.Random(0), [("?", "x"), ("?", "yy")]
    episodes = [
        played(said(0, pair), ledger=[(0, "a", rng.random())]) for pair in replies for _ in range(4)
    ]
    table = credit.turns(episodes, "learner")
    advantages, _ = estimate("rebn", table)
    made = samples(table, advantages, "learner")
    assert [sample.token_advantages[0] for sample in made] == advantages.tolist()
