"""Wrappers around any rules: what each does, that they compose, and which orders are refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.kuhn import Kuhn

from gem_ma import (
    Action,
    Ask,
    Call,
    Game,
    Leave,
    Malformed,
    Message,
    Plan,
    Reward,
    Scenario,
    Seat,
    Tell,
    Tool,
    ToolCall,
    make,
    play,
    replay,
)
from gem_ma.config import load
from gem_ma.config.document import write
from gem_ma.kernel.episode import End, Limits
from gem_ma.kernel.errors import CallError, ConfigError, ConformanceError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.registry import as_scenario, wrapped
from gem_ma.runs.plans import cast_of, evaluation_plans, scenario_of
from gem_ma.scores.judge import Judge
from gem_ma.testing import check_scenario
from gem_ma.tools.belt import WithTools

CONFIG = """
scenario:
  id: kuhn_poker
  tasks: 4
  wrappers: {wrappers}
agents: {{player_0: random_legal, player_1: first_legal}}
"""


class Duel(Scenario):
    """Two rounds for both at once, with a call of the outside between them."""

    agents = ("p_1", "p_10")
    ends_within, chance, zero_sum = 2, False, True

    def play(self, rng: random.Random, task: Any) -> Any:
        yield Tell({"p_1": Message("p_10 is here, p_1", "p_10")})
        for number in (1, 2):
            says = yield Ask(dict.fromkeys(self.agents, f"round {number}"), ("hit p_1", "hit p_10"))
            try:
                yield Call(int, "x" if number == 2 else "1")
            except CallError:
                yield Tell({"p_1": "the call failed"})
            won = float(says["p_1"].parsed == "hit p_10") * number
            yield Reward({"p_1": won, "p_10": -won}, why="hit")

    def success(self, episode: Any) -> bool:
        return any(entry.why == "hit" and entry.value == 2 for entry in episode.ledger)


def around(*wrappers: Any, scenario: Scenario | None = None) -> Scenario:
    return wrapped(scenario or as_scenario(Duel), wrappers)


def over(scenario: Scenario, *steps: Mapping[str, Any]) -> Game:
    game = Game(scenario)
    for step in steps:
        game.send(step)
    return game


def paid(game: Game, agent: str) -> list[float]:
    return [entry.value for entry in game.ledger if entry.agent == agent]


HIT = {"p_1": "hit p_10", "p_10": "hit p_1"}


def test_a_retry_asks_the_one_who_erred_and_no_other() -> None:
    game = over(
        around({"retry": {"times": 2, "penalty": 0.5}}), {"p_1": "dunno", "p_10": "hit p_1"}
    )
    assert list(game.pending) == ["p_1"] and "hit p_1, hit p_10" in game.view("p_1")[-1].text
    assert "none of" not in str(game.view("p_10"))
    game.send({"p_1": "hit p_10"})
    game.send({"p_1": "a", "p_10": "b"})
    game.send({"p_1": "a", "p_10": "hit p_1"})
    game.send({"p_1": "still nothing"})
    assert game.over
    assert paid(game, "p_1") == [-0.5, 1, -0.5, -0.5, 0]
    assert paid(game, "p_10") == [-1, -0.5, 0]
    assert not game.scenario.zero_sum and game.scenario.ends_within == 6


def test_a_call_that_cannot_be_read_is_tried_again_and_one_that_can_is_not() -> None:
    class Clerk(Duel):
        def play(self, rng: random.Random, task: Any) -> Any:
            said = yield Ask({"p_1": "go"}, tools=(Tool("look"),))
            yield Tell({"p_1": f"rules saw {said['p_1'].tool_calls}"})

    scenario = around({"retry": 1}, scenario=as_scenario(Clerk))
    game = over(scenario, {"p_1": Action("", (Malformed("{", "bad_json"),))})
    assert "bad_json" in game.view("p_1")[-1].text and game.pending["p_1"].tools
    game.send({"p_1": Action("", (ToolCall("1", "look", {}),))})
    assert game.over and "look" in game.view("p_1")[-1].text
    assert over(scenario, {"p_1": "a word"}).over  # free text is for the rules to judge
    # of a tool that nobody has it is none of the legal strings
    call = Action("", (ToolCall("1", "look", {}),))
    assert list(over(around("retry"), {"p_1": call, "p_10": "hit p_1"}).pending) == ["p_1"]


@pytest.mark.parametrize(
    ("wrappers", "entries"),
    [
        ([{"reward": {"scale": 0.5}}], [0.5, 1]),
        ([{"reward": {"clip": [-1, 1.5]}}], [1, 1.5]),
        ([{"reward": "sign"}], [1, 1]),
        ([{"reward": {"per_step": -0.1}}], [-0.1, 1, -0.1, 2]),
        ([{"reward": "final"}], [0, 0, 3]),
        # the order is the one that is typed
        ([{"reward": {"scale": 10}}, {"reward": {"clip": [-12, 12]}}], [10, 12]),
        ([{"reward": {"clip": [-12, 12]}}, {"reward": {"scale": 10}}], [10, 20]),
        ([{"reward": "final"}, {"reward": "sign"}], [0, 0, 1]),
        ([{"reward": "sign"}, {"reward": "final"}], [0, 0, 2]),
        ([{"reward": {"per_step": -0.5}}, {"reward": {"scale": 2}}], [-1, 2, -1, 4]),
        ([{"reward": {"scale": 2}}, {"reward": {"per_step": -0.5}}], [-0.5, 2, -0.5, 4]),
    ],
)
def test_rewards_are_changed_and_the_rules_judge_what_they_paid(
    wrappers: list[Any], entries: list[float]
) -> None:
    scenario = around(*wrappers)
    game = over(scenario, HIT, HIT)
    assert game.over and paid(game, "p_1") == entries
    plan = Plan(scenario, dict.fromkeys(scenario.agents, Seat("first_legal")))
    bots = {"p_1": lambda *_, **__: _Says("hit p_10"), "p_10": lambda *_, **__: _Says("hit p_1")}
    episode = load_episode(dump_episode(asyncio.run(play(plan, behaviours=bots))))
    assert episode.ledger == tuple(game.ledger)
    success = Judge.of(scenario).success
    assert success is not None and success(episode)


class _Says:
    def __init__(self, text: str) -> None:
        self.text = text

    async def act(self, asked: Any) -> str:
        return self.text


def test_sums_that_stay_sums_keep_what_is_declared() -> None:
    kept = {"scale": -2}, "final"
    lost = "sign", {"clip": [-1, 1]}, {"per_step": 1}
    assert all(around({"reward": transform}).zero_sum for transform in kept)
    assert not any(around({"reward": transform}).zero_sum for transform in lost)
    assert around({"retry": 3}).zero_sum and around("hide_names").zero_sum


def test_who_leaves_is_paid_the_sum_before() -> None:
    class Leaving(Duel):
        def play(self, rng: random.Random, task: Any) -> Any:
            yield Ask({"p_1": "go"})
            yield Reward({"p_1": 2, "p_10": 1})
            yield Leave("p_1")
            yield Ask({"p_10": "go"})
            yield Reward({"p_10": 1})

    game = over(
        around({"reward": "final"}, scenario=as_scenario(Leaving)), {"p_1": ""}, {"p_10": ""}
    )
    assert game.over and paid(game, "p_1") == [0, 2] and paid(game, "p_10") == [0, 0, 2]
    assert [entry.step for entry in game.ledger if entry.why == "wrapper: sum"] == [0, 1]


def test_a_time_limit_is_a_truncation_and_counts_retries() -> None:
    scenario = around({"retry": 1}, {"time_limit": 2})
    assert scenario.limits == Limits(max_steps=2) and scenario.ends_within is None
    plan = Plan(scenario, dict.fromkeys(scenario.agents, Seat("silent")))
    episode = asyncio.run(play(plan))
    assert episode.end is End.MAX_STEPS and len({turn.step for turn in episode.turns}) == 2
    # the shorter one holds, whoever declares it
    assert around({"time_limit": 9}).ends_within == 2
    scenario.limits = Limits(max_steps=1)
    assert WithTools(scenario, {}).limits == Limits(max_steps=1)


def test_names_are_hidden_and_put_back() -> None:
    game = Game(around("hide_names"))
    told = game.view("p_1")[0]
    assert told.sender == "opponent_1" and told.text == "opponent_1 is here, p_1"
    assert game.pending["p_1"].legal == ("hit p_1", "hit opponent_1")
    assert game.pending["p_10"].legal == ("hit opponent_1", "hit p_10")
    game.send({"p_1": "hit opponent_1", "p_10": "hit opponent_1"})
    assert paid(game, "p_1") == [1] and "p_10" not in str(game.view("p_1"))


@pytest.mark.parametrize(
    "wrappers", [("hide_names",), ("hide_names", "retry"), ("retry", "hide_names")]
)
def test_a_play_of_hidden_names_is_judged_with_the_names(wrappers: Any) -> None:
    class Judged(Duel):
        """What was hit, as measures read it; and what was shown, offered and said."""

        def measures(self, episode: Any) -> dict[str, float | None]:
            hits = [turn.action.parsed for turn in episode.turns if turn.agent == "p_1"]
            read = repr((episode.turns, episode.final))
            return {"hits": hits.count("hit p_10"), "hidden": read.count("opponent")}

        def fault(self, episode: Any) -> Any:
            return 0, "p_1", next(turn.action.text for turn in episode.turns)

    scenario = around(*wrappers, scenario=Judged())
    bots = dict.fromkeys(scenario.agents, lambda *_, **__: _Says("hit opponent_1"))
    plan = Plan(scenario, dict.fromkeys(scenario.agents, Seat("bot")))
    episode = asyncio.run(play(plan, behaviours=bots))
    assert episode.turns[0].action.parsed == "hit opponent_1"
    assert scenario.measures(episode) == {"hits": 2, "hidden": 0}
    assert scenario.fault(episode) == (0, "p_1", "hit p_10")


def test_names_in_tools_are_hidden_and_a_word_is_no_name() -> None:
    class Words(Scenario):
        """One agent is called as a word of the language."""

        agents = ("black", "white", "b_2")

        def play(self, rng: random.Random, task: Any) -> Any:
            parameters = {"type": "object", "properties": {"to": {"enum": ["b_2", "white"]}}}
            tool = Tool("send", "Sends to b_2.", parameters)
            said = yield Ask({"black": ("black or white", Message("hm", "white"))}, tools=(tool,))
            yield Tell({"b_2": str(said["black"].tool_calls[0].arguments)})

    game = Game(around("hide_names", scenario=as_scenario(Words)))
    assert game.view("black")[0].text == "black or white"
    assert game.view("black")[1].sender == "opponent_1"
    [tool] = game.pending["black"].tools
    assert tool.description == "Sends to opponent_2." and "b_2" not in str(tool.parameters)
    game.send({"black": Action("", (ToolCall("1", "send", {"to": ["opponent_2"]}),))})
    assert (
        "b_2" in game.turns[0].action.tool_calls[0].arguments["to"]
        or "b_2" in game.view("b_2")[-1].text
    )


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([{"time_limit": 5}, {"retry": 1}], r"wrappers\[1\]: .*behind retry"),
        ([{"time_limit": 5}, {"reward": "sign"}, {"retry": 1}], r"wrappers\[2\]: .*behind retry"),
        ([{"retry": 1}, {"retry": 1}], r"wrappers\[1\]: .*more times"),
        ([{"time_limit": 5}, {"time_limit": 3}], r"wrappers\[1\]: .*the shorter one"),
        (["hide_names", "hide_names"], r"wrappers\[1\]: .*write one"),
        ([{"reward": "final"}, {"reward": "final"}], r"wrappers\[1\]: .*write one"),
        ([{"reward": {"scale": 2, "clip": [0, 1]}}], r"wrappers\[0\]: .*order"),
        ([{"reward": {"scale": 0}}], r"wrappers\[0\]: .*other than 0"),
        ([{"reward": {"scale": float("inf")}}], r"wrappers\[0\]: .*other than 0"),
        ([{"reward": {"clip": [1, -1]}}], r"wrappers\[0\]: .*low below high"),
        ([{"reward": {"clip": 3}}], r"wrappers\[0\]: .*low below high"),
        ([{"reward": {"squash": 3}}], r"wrappers\[0\]: .*no 'squash'"),
        ([{"reward": "scale"}], r"wrappers\[0\]: reward: scale"),
        (["reward"], r"wrappers\[0\]: reward: one transform"),
        ([{"retry": 0}], r"wrappers\[0\]: retry: times"),
        ([{"retry": True}], r"wrappers\[0\]: retry: times"),
        ([{"retry": {"penalty": -1}}], r"wrappers\[0\]: retry: penalty"),
        ([{"retry": {"tims": 2}}], r"wrappers\[0\]: .*did you mean 'times'"),
        ([{"time_limit": 0}], r"wrappers\[0\]: time_limit"),
        (["time_limit"], r"wrappers\[0\]: .*steps"),
        (["rety"], r"wrappers\[0\]: no wrapper is called 'rety' .*'retry'"),
        ([{"retry": 1, "reward": "sign"}], r"wrappers\[0\]: one wrapper"),
        ([3], r"wrappers\[0\]: one wrapper"),
        ([{None: 1}], r"wrappers\[0\]: the name of a wrapper is a text; got None"),
        (["json:loads"], r"wrappers\[0\]: wrapper 'json:loads' raised TypeError"),
        (["os:getpid"], r"wrappers\[0\]: "),
        ([{"reward": [1]}], r"wrappers\[0\]: reward: a transform has a name"),
        ("hide_names", r"wrappers: a list"),
    ],
)
def test_what_makes_no_sense_is_one_line(wrappers: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make("kuhn_poker", wrappers=wrappers)
    assert len(str(caught.value).splitlines()) == 1


def test_a_config_names_the_wrapper_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(wrappers="[{time_limit: 5}, {retry: 1}]"))
    with pytest.raises(
        ConfigError, match=r"c\.yaml:5: scenario\.wrappers\[1\]: retry stands around"
    ):
        load(file)
    file.write_text(CONFIG.format(wrappers="{retry: 1}"))
    with pytest.raises(ConfigError, match=r"c\.yaml:5: scenario\.wrappers: wants a list"):
        load(file)


def test_a_config_wraps_and_its_record_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gem_ma.wrappers.retry import Retry\nclass Mine(Retry):\n    pass\n"
    )
    wrappers = "['mine.py:Mine', {reward: {scale: 0.5}}, {reward: sign}]"
    (tmp_path / "c.yaml").write_text(CONFIG.format(wrappers=wrappers))
    loaded = load(tmp_path / "c.yaml")
    (tmp_path / "again.yaml").write_text(write(loaded.resolved()))
    again = load(tmp_path / "again.yaml")
    scenario = scenario_of(again.config)
    assert scenario.id == "kuhn_poker" and cast_of(again.config)
    plan = next(iter(evaluation_plans(again.config, scenario)))
    episode = asyncio.run(play(plan))
    assert {abs(entry.value) for entry in episode.ledger} == {1.0}
    assert episode.options["wrappers"] == loaded.config.scenario.wrappers or "mine.py" in str(
        episode.options
    )
    bare = CONFIG.replace("  wrappers: {wrappers}\n", "").format()
    (tmp_path / "bare.yaml").write_text(bare)
    assert loaded.identity() != load(tmp_path / "bare.yaml").identity()
    (tmp_path / "none.yaml").write_text(CONFIG.format(wrappers="[]"))
    # a config without wrappers is called what it always was
    assert load(tmp_path / "none.yaml").identity() == load(tmp_path / "bare.yaml").identity()
    assert "wrappers" not in str(load(tmp_path / "bare.yaml").identity())


STACK = (
    {"retry": {"times": 1, "penalty": 0.25}},
    {"reward": {"scale": 0.5}},
    {"reward": {"per_step": -0.01}},
    {"reward": {"clip": [-1, 1]}},
    {"reward": "final"},
    "hide_names",
    {"time_limit": 40},
)


@pytest.mark.longest
@pytest.mark.parametrize("name", ["kuhn_poker", "referential", "guess_number", "tic_tac_toe"])
def test_a_stack_of_wrappers_keeps_all_rules(name: str) -> None:
    scenario = make(name, wrappers=STACK)
    report = check_scenario(scenario, seeds=range(3), limits=Limits(max_steps=12))
    # the wrapped scenario travels into fresh processes, deal and all
    assert not any("fresh" in why for why in report.untested.get(1, ()))
    assert (4 in report.passed) == (name in ("kuhn_poker", "referential"))


@pytest.mark.longest
def test_secrets_are_dealt_anew_through_wrappers() -> None:
    class Shows(Kuhn):
        """Tells player_1 the card of player_0 at the start."""

        def play(self, rng: random.Random, task: Any) -> Any:
            cards = self.deal(random.Random(rng.random()), task)
            yield Tell({"player_1": cards["player_0"]})
            yield from super().play(rng, task)

    with pytest.raises(ConformanceError, match="rule 4"):
        check_scenario(
            around({"retry": 1}, "hide_names", scenario=as_scenario(Shows)), seeds=range(3)
        )


def test_a_play_through_a_stack_is_forked_exactly() -> None:
    scenario = make("dilemma", wrappers=STACK)
    game = Game(scenario, seed=3)
    for number in range(5):
        game.send(dict.fromkeys(game.pending, ("cooperate", "hm")[number % 2]))
    fork = game.fork(2)
    assert fork.step == 2 and fork.pending == over_at(scenario, 3, 2).pending
    again = replay(scenario, None, 3, game.turns, game.calls)
    assert again.ledger == game.ledger and again.pending == game.pending


def over_at(scenario: Scenario, seed: int, steps: int) -> Game:
    game = Game(scenario, seed=seed)
    for number in range(steps):
        game.send(dict.fromkeys(game.pending, ("cooperate", "hm")[number % 2]))
    return game
