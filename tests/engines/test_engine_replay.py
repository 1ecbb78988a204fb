"""The replay engine repeats a recorded run without sampling."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.small.replay import Replay
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import DataError, EngineError
from gem_ma.kernel.types import Request
from gem_ma.record.codec import dump_episode
from gem_ma.registry import make
from tests.plays import played_all


def run(engine: Any, rounds: int = 4, repeats: int = 2, behaviours: Any = None) -> list[Episode]:
    scenario = make("dilemma", rounds=rounds)
    cast = dict.fromkeys(scenario.agents, Seat("direct", "main"))
    plans = [
        Plan(scenario, cast, seed=seed, repeat=repeat)
        for seed in range(3)
        for repeat in range(repeats)
    ]

    return sorted(
        played_all(plans, {"main": Policy("main", engine)}, behaviours=behaviours),
        key=lambda episode: episode.id,
    )


RECORDED = run(Scripted("random_legal"))


def best_of_two(agent: str, sample: Any, rng: Any, task: Any = None) -> Any:
    class Player:
        async def act(self, asked: Any) -> str:
            first, second = await asyncio.gather(
                *(sample(asked.transcript, legal=asked.legal, thread=str(n)) for n in range(2))
            )
            return max(first.text, second.text)

    return Player()


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_recorded_run_is_repeated_exactly(tmp_path: Path, whole_folder: bool) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text("".join(dump_episode(episode) + "\n" for episode in RECORDED), encoding="utf-8")
    engine = open_engine("main", f"replay/{tmp_path if whole_folder else file}")
    assert run(engine) == RECORDED
    assert len({tuple(turn.action.text for turn in episode.turns) for episode in RECORDED}) > 1


def test_several_model_calls_of_one_act_are_told_apart() -> None:
    behaviours = dict.fromkeys(("player_0", "player_1"), best_of_two)
    recorded = run(Scripted("random_legal"), behaviours=behaviours)
    assert run(Replay.of(recorded), behaviours=behaviours) == recorded


def test_a_side_that_was_played_without_a_model_answers_with_its_actions() -> None:
    scenario = make("dilemma", rounds=4)
    plan = Plan(
        scenario, {"player_0": Seat("random_legal"), "player_1": Seat("direct", "main")}, seed=5
    )
    before = asyncio.run(play(plan, {"main": Policy("main", Scripted("first_legal"))}))
    again = replace(
        plan, cast={"player_0": Seat("direct", "main"), "player_1": Seat("random_legal")}
    )
    after = asyncio.run(play(again, {"main": Policy("main", Replay.of([before], policy="main"))}))
    assert said(after, "player_0") == said(before, "player_0")
    assert said(after, "player_1") != said(before, "player_1")
    assert {reply.policy for turn in after.turns for reply in turn.replies} == {"main"}


def test_with_actions_what_was_done_in_the_end_is_answered() -> None:
    behaviours = dict.fromkeys(("player_0", "player_1"), best_of_two)
    recorded = run(Scripted("random_legal"), behaviours=behaviours)
    first, actions = run(Replay.of(recorded)), run(Replay.of(recorded, actions=True))
    assert [said(episode, "player_0") for episode in actions] == [
        said(episode, "player_0") for episode in recorded
    ]
    assert [said(episode, "player_0") for episode in first] != [
        said(episode, "player_0") for episode in recorded
    ]


def said(episode: Episode, agent: str) -> list[str]:
    return [turn.action.text for turn in episode.turns if turn.agent == agent]


def test_what_is_not_on_record_is_an_engine_error_of_that_episode_alone() -> None:
    episodes = run(Replay.of(RECORDED), repeats=3)
    assert [episode.end for episode in episodes if episode.repeat == 2] == [End.FAILED] * 3
    assert all(
        "the record holds no reply to this request" in (episode.error or "")
        for episode in episodes
        if episode.repeat == 2
    )
    assert [episode for episode in episodes if episode.repeat < 2] == RECORDED
    longer = run(Replay.of(RECORDED), rounds=5)
    assert {(episode.end, len(episode.turns)) for episode in longer} == {(End.FAILED, 8)}


def test_another_choice_than_on_record_is_refused() -> None:
    turn = RECORDED[0].turns[0]
    other = replace(RECORDED[0], turns=(replace(turn, legal=("yes", "no")), *RECORDED[0].turns[1:]))
    episodes = run(Replay.of([other, *RECORDED[1:]]))
    assert episodes[0].end is End.FAILED and "on record ('yes', 'no')" in (episodes[0].error or "")


def test_of_two_attempts_the_later_counts() -> None:
    first = replace(
        RECORDED[0],
        turns=tuple(
            replace(turn, replies=(replace(turn.replies[0], text="x"),))
            for turn in RECORDED[0].turns
        ),
    )
    assert run(Replay.of([first, *RECORDED])) == RECORDED


def test_a_request_by_hand_that_nobody_recorded_is_refused() -> None:
    with pytest.raises(EngineError, match="agent 'a', turn 0"):
        asyncio.run(Replay.of(RECORDED).sample(Request("a", ())))


def test_bad_files_are_data_errors_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*cannot be replayed: No such file"):
        open_engine("main", f"replay/{tmp_path}/nowhere")
    file = tmp_path / "episodes.jsonl"
    file.write_text(dump_episode(RECORDED[0]) + "\n{}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"episodes\.jsonl:2: "):
        open_engine("main", f"replay/{file}")


def test_a_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text(
        "".join(dump_episode(episode) + "\n" for episode in RECORDED)
        + dump_episode(RECORDED[0])[:100],
        encoding="utf-8",
    )
    assert run(Replay(str(file))) == RECORDED
