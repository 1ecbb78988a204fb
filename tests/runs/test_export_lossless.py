"""Whatever a play holds, its export holds: texts letter for letter, tokens as sampled, and rewards
of turns that sum to the return."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.kernel.types import Malformed, Turn
from gem_ma.record.codec import dump_episode
from gem_ma.runs.export.tables import episode_row, turn_rows
from gem_ma.runs.export.writing import Wish, export
from gem_ma.scores.judge import Judge
from tests.drawn_plays import Drawn

SHOP = ("assistant", "user")
WON = Judge(success=lambda episode: episode.seed % 2 == 0)


@pytest.fixture(params=range(8))
def episodes(request: pytest.FixtureRequest) -> list[Episode]:
    return Drawn(request.param).run()


@pytest.fixture(params=range(8))
def talks(request: pytest.FixtureRequest) -> list[Episode]:
    return Drawn(request.param, SHOP).run()


def exported(episodes: list[Episode], form: str, which: str | None = None) -> str:
    """What an export of these plays writes, which is strict JSON in UTF-8."""
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place, "run.jsonl"), Path(place, "out")
        source.write_text("".join(dump_episode(one) + "\n" for one in episodes), encoding="utf-8")
        agents = tuple(dict.fromkeys(agent for one in episodes for agent in one.cast))
        export(source, out, WON, Wish(form, which, agents))
        if form == "jsonl":
            assert list(gem_ma.read_episodes(source)) == episodes
        return out.read_bytes().decode()


def said(turn: Turn) -> str:
    """An act as a chat has it: a call that could not be read stands in the text it came from."""
    calls = turn.action.tool_calls
    return turn.action.text + "".join(call.text for call in calls if isinstance(call, Malformed))


def parsed(text: str) -> list[dict[str, Any]]:
    return [load_json(line) for line in text.split("\n") if line]


def test_lines_are_the_record(episodes: list[Episode]) -> None:
    lines = "".join(dump_episode(one) + "\n" for one in episodes)
    assert exported(episodes, "jsonl") == lines


def test_a_conversation_has_every_word_token_and_reward(episodes: list[Episode]) -> None:
    rows = iter(parsed(exported(episodes, "messages")))
    for episode in episodes:
        for agent in (name for name in episode.cast if name in {t.agent for t in episode.turns}):
            row, turns = next(rows), [turn for turn in episode.turns if turn.agent == agent]
            assert (row["agent"], row["seed"]) == (agent, str(episode.seed))
            words = [row["messages"][turn["message"]]["content"] for turn in row["turns"]]
            assert words == [said(turn) for turn in turns]
            assert [reply["token_ids"] for turn in row["turns"] for reply in turn["replies"]] == [
                list(reply.token_ids) for turn in turns for reply in turn.replies
            ]
            assert [reply["logprobs"] for turn in row["turns"] for reply in turn["replies"]] == [
                list(reply.logprobs) for turn in turns for reply in turn.replies
            ]
            paid = row["before"] + sum(turn["reward"] for turn in row["turns"])
            assert paid == pytest.approx(episode.returns()[agent], rel=1e-9, abs=1e-3)
            shown = json.dumps(row["messages"], ensure_ascii=False)
            for message in episode.transcript(agent):
                assert json.dumps(message.text, ensure_ascii=False)[1:-1] in shown
    assert next(rows, None) is None


def test_only_won_plays_are_imitated(episodes: list[Episode]) -> None:
    rows = parsed(exported(episodes, "sft"))
    won = [one for one in episodes if one.end.scored and one.seed % 2 == 0]
    assert len(rows) == sum(len({turn.agent for turn in one.turns}) for one in won)
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)


def test_preferences_name_two_plays_of_one_start(episodes: list[Episode]) -> None:
    for row in parsed(exported(episodes, "preference")):
        assert row["margin"] > 0 and row["chosen"] != row["rejected"]


def test_benchmarks_get_every_word_too(talks: list[Episode]) -> None:
    first, second = (load_json(exported(talks, form)) for form in ("tau1", "tau2"))
    for episode, one, two in zip(talks, first, second["simulations"], strict=True):
        acts = [m["content"] or "" for m in two["messages"] if m["role"] != "tool"]
        assert acts == [said(turn) for turn in episode.turns]
        own = [said(turn) for turn in episode.turns if turn.agent == "assistant"]
        spoken = [m["content"] or "" for m in one["traj"] if m["role"] == "assistant"]
        assert [text for text in own if text not in spoken] == []


def test_rows_of_a_table_have_what_was_said_sampled_and_paid(episodes: list[Episode]) -> None:
    for episode in episodes:
        row = episode_row(episode, WON.success or (lambda one: None))
        assert load_json(json.dumps(row)) == row
        assert [turn["text"] for turn in row["turns"]] == [t.action.text for t in episode.turns]
        replies = [reply for turn in row["turns"] for reply in turn["replies"]]
        assert [reply["token_ids"] for reply in replies] == [
            list(reply.token_ids) for turn in episode.turns for reply in turn.replies
        ]
        assert len(list(turn_rows(episode, lambda one: None))) == len(episode.turns)
