"""Who plays whom: seats, turns to learn, the pool and its draws, and that all of it is resumed
exactly."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario, config, credit
from gem_ma.config.settings import Config
from gem_ma.config.training import PoolSettings, TrainSettings
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import read_episodes, read_metrics
from gem_ma.runs.worlds import worlds_of
from gem_ma.scores.ratings import games, ratings
from gem_ma.training.loop.exams import _against_anchors, exam_plans
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.checks import checked
from gem_ma.training.schedule.plans import casts, training_plans
from gem_ma.training.schedule.settings import learning, settings_of
from gem_ma.training.selfplay.league import League, prioritised
from gem_ma.training.train import run_training, train
from tests.broken_runs import break_off, broken_and_whole, steps_of, trained

SMALL = (
    "train.steps=6",
    "train.episodes=16",
    "train.save_every=2",
    "evaluate.episodes=8",
    "evaluate.every=3",
)
MIXED = (
    "train.opponents={latest: 0.4, uniform: 0.2, prioritised: 0.2, anchors: {random_legal: 0.2,"
    " first_legal: 0}}"
)
TWO = """
scenario: {id: kuhn_poker}
agents:
  player_0: {policy: one}
  player_1: {policy: two}
policies:
  one: {model: table/softmax}
  two: {model: table/softmax}
train: {policies: [one, two], lr: 3.0, loss: {minibatches: 1}}
"""


def kuhn(*overrides: str) -> Config:
    return config.load("kuhn_table", [*SMALL, "train.pool.every=1", *overrides]).config


@pytest.fixture
def two(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    return lambda *overrides: config.load(file, [*SMALL, *overrides]).config


# -- seats ---------------------------------------------------------------------------------------


def test_swap_plays_every_start_once_from_each_side(two):
    settings = two("train.seats=swap")
    plans = training_plans(worlds_of(settings), settings.train, 1)
    assert len(plans) == 16 == len({plan.id for plan in plans})
    starts = {}
    for plan in plans:
        starts.setdefault((plan.task, plan.seed), []).append(
            tuple(seat.policy for seat in plan.cast.values())
        )
    assert list(starts.values()) == [[("one", "two"), ("two", "one")]] * 8
    assert {plan.group for plan in plans} == {None}


def test_groups_share_start_and_cast_under_swap(two):
    settings = two("train.seats=swap", "train.group_size=2")
    plans = training_plans(worlds_of(settings), settings.train, 0)
    groups = {}
    for plan in plans:
        groups.setdefault(plan.group, set()).add((plan.seed, tuple(map(str, plan.cast.values()))))
    assert len(groups) == 8 and all(len(shared) == 1 for shared in groups.values())
    assert len({plan.id for plan in plans}) == 16


def test_random_seats_are_a_function_of_seed_and_start():
    cast = {"a": Seat(policy="x"), "b": Seat(policy="y"), "c": Seat("bot")}
    drawn = [casts(cast, "random", 5, start)[0] for start in range(300)]
    assert drawn == [casts(cast, "random", 5, start)[0] for start in range(300)]
    counts = Counter(tuple(map(str, one.values())) for one in drawn)
    assert len(counts) == 6 and min(counts.values()) > 25  # every order, about 50 times each
    assert drawn != [casts(cast, "random", 6, start)[0] for start in range(300)]
    assert [list(one.values()) for one in casts(cast, "swap", 0, 0)][1] == [
        cast["b"],
        cast["c"],
        cast["a"],
    ]
    assert casts(cast, "fixed", 0, 9) == [cast]


@pytest.mark.long
def test_the_record_says_who_sat_where_and_each_policy_learns_from_both_seats(two, tmp_path):
    trained(tmp_path / "run", two("train.seats=swap"))
    played = list(read_episodes(tmp_path / "run"))
    for name in ("one", "two"):
        table = credit.turns(played, name)
        assert set(table.agent.tolist()) == {"player_0", "player_1"}
        assert all(reply.policy == name for turn in table.turns for reply in turn.replies)
    after = json.loads((tmp_path / "run" / "summary.json").read_bytes())["after"]
    assert set(after["sampled"]["players"]["one"]) == {"player_0", "player_1"}
    assert after["exact_return one"] == pytest.approx(-after["exact_return two"])


@pytest.mark.longest
def test_one_shared_policy_learns_both_roles_of_a_team():
    """What it is asked tells it its role: a speaker's and a listener's views are rows of one
    table."""
    warm = (
        "{cast: {speaker: {behaviour: noisy_speaker}, listener: {behaviour: noisy_listener}},"
        " episodes: 512}"
    )
    shared = (
        "agents.listener.policy=speaker",
        "train.policies=[speaker]",
        f"train.warm_start={{speaker: {warm}}}",
    )
    settings = config.load(
        "referential_table",
        [*shared, "train.steps=30", "evaluate.episodes=128", "evaluate.every=~"],
    ).config
    summary = run_training(settings)
    assert (
        summary["before"]["sampled"]["success"] < 0.4 < 0.8 < summary["after"]["sampled"]["success"]
    )


# -- turns to learn ------------------------------------------------------------------------------


@pytest.mark.long
def test_alternating_policies_wait_bit_equal(two, tmp_path):
    settings = two("train.alternate={two: 2, one: 1}", "train.save_every=1")
    trained(tmp_path / "run", settings)
    weights = [
        {
            name: (
                (
                    tmp_path / "run" / "checkpoints" / f"step-{step:06d}" / f"{name}.table.json"
                ).read_bytes()
            )
            for name in ("one", "two")
        }
        for step in range(7)
    ]
    moved = [
        "".join(name[0] for name in ("one", "two") if a[name] != b[name])
        for a, b in pairwise(weights)
    ]
    assert moved == ["t", "t", "o", "t", "t", "o"]
    lines = steps_of(tmp_path / "run")
    assert [list(line["policies"]) for line in lines] == [["two"], ["two"], ["one"]] * 2


def test_policies_without_a_turn_always_learn():
    settings = TrainSettings(policies=["a", "b", "c"], alternate={"a": 1, "b": 2})
    assert [learning(settings, step) for step in range(4)] == [
        ("a", "c"),
        ("b", "c"),
        ("b", "c"),
        ("a", "c"),
    ]
    assert learning(TrainSettings(policies=["a", "b"]), 3) == ("a", "b")


@pytest.mark.long
def test_settings_of_one_policy_replace_single_keys(two, tmp_path):
    own = (
        "train.per_policy={two: {lr: 0.5, loss: {entropy: 0.2}, estimator: {name: rae}, credit:"
        " {gamma: 0.9}}}"
    )
    settings = two(own)
    mine = settings_of(settings.train, "two")
    assert (
        mine.lr,
        mine.loss.entropy,
        mine.loss.minibatches,
        mine.estimator.name,
        mine.credit.gamma,
    ) == (0.5, 0.2, 1, "rae", 0.9)
    assert settings_of(settings.train, "one") == settings.train
    trained(tmp_path / "run", settings)
    line = next(line for line in read_metrics(tmp_path / "run") if line["kind"] == "train")
    assert (line["policies"]["one"]["lr"], line["policies"]["two"]["lr"]) == (3.0, 0.5)
    state = json.loads(
        (tmp_path / "run" / "checkpoints" / "step-000006" / "trainer.json").read_bytes()
    )["estimators"]
    assert state["one"] == {} and state["two"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.alternate={three: 1}",
            "train.alternate.three: no policy of train.policies has this name; they are one, two",
        ),
        (
            "train.per_policy={one: {loss: {entrop: 1}}}",
            "train.per_policy.one.loss.entrop: unknown key",
        ),
        (
            "train.per_policy={one: {loss: {clip: -1}}}",
            "train.per_policy.one.loss.clip: .*greater than 0",
        ),
        ("train.per_policy={one: {estimator: {name: grpo}}}", "share a start"),
        (
            "train.seats=swap train.episodes=15",
            "15 episodes cannot be divided into starts, which have 2 seatings",
        ),
        (
            "agents.player_0.tools=[python] train.seats=swap",
            "tools stay with the agent; give all agents of a world the same tools",
        ),
        ("train.opponents={latest: 0.5}", "sum to 1; here to 0.5"),
        (
            "train.opponents={latest: 1.0, anchors: {one: 0}}",
            "an anchor stands still, and this policy learns",
        ),
        (
            "train.opponents={latest: 1.0, anchors: {direct: 0}}",
            "samples from a policy; name the policy instead",
        ),
        ("train.opponents={latest: 1.0, anchors: {nobody: 0}}", "no behaviour is called 'nobody'"),
        (
            "train.policies=[one] train.opponents={latest: 0.5, uniform: 0.5}",
            "no other agent is played by one; use anchors",
        ),
        ("train.alternate={one: 0}", "at least 1 step"),
    ],
)
def test_what_no_league_can_be_is_refused_in_one_line(two, override, message):
    with pytest.raises(ConfigError, match=message):
        settings = two(
            *override.split(" train.")[:1],
            *(f"train.{rest}" for rest in override.split(" train.")[1:]),
        )
        checked(settings, settings.policies)


# -- opponents -----------------------------------------------------------------------------------


def league_of(settings: Config, tmp_path: Path, snapshots: int = 0) -> tuple[League, Policy]:
    policies = open_policies(settings)
    league = League(settings, settings.train, policies, tmp_path)
    engine = policies["main"].engine
    for step in range(snapshots):
        engine.version, engine.logits[step] = step, np.array([float(step), 0.0])
        league.snapshot(step)
    return league, policies["main"]


def test_opponents_come_in_their_shares_one_per_start_and_from_the_whole_pool(tmp_path):
    league, _ = league_of(kuhn(MIXED), tmp_path, snapshots=10)
    kinds, members, sides = Counter(), Counter(), Counter()
    for step in range(200):
        seats = league.opponents(step, ("main",))
        for start in range(step * 10, step * 10 + 10):
            cast = seats(start)
            assert cast == seats(start)
            names = [seat.policy or seat.behaviour for seat in cast.values()]
            assert "main" in names  # somebody learns
            other = next((name for name in names if name != "main"), "main")
            kinds[other.partition("@")[0] + "@" * ("@" in other)] += 1
            if "@" in other:
                members[other] += 1
            if other != "main":
                sides[names.index(other)] += 1
    assert kinds["main"] / 2000 == pytest.approx(0.4, abs=0.04)
    assert kinds["main@"] / 2000 == pytest.approx(0.4, abs=0.04)
    assert kinds["random_legal"] / 2000 == pytest.approx(0.2, abs=0.03)
    assert "first_legal" not in kinds  # a share of 0: met in exams only
    # 80 each
    assert set(members) == {f"main@{n}" for n in range(10)} and min(members.values()) > 40
    assert abs(sides[0] - sides[1]) < 150


def test_the_harder_or_the_more_even_member_is_drawn_more_often(tmp_path):
    league, _ = league_of(kuhn("train.opponents={prioritised: 1.0}"), tmp_path, snapshots=3)
    league.recent = {
        ("main", "main@0"): 18.0,
        ("main@0", "main"): 0.0,
        ("main", "main@1"): 2.0,
        ("main@1", "main"): 16.0,
    }
    assert [league.win_rate("main", f"main@{n}") for n in range(3)] == [
        pytest.approx(0.95),
        pytest.approx(0.15),
        0.5,
    ]
    drawn = Counter()
    for step in range(300):
        seats = league.opponents(step, ("main",))
        drawn.update(
            seat.policy
            for start in range(step * 8, step * 8 + 8)
            for seat in seats(start).values()
            if "@" in (seat.policy or "")
        )
    weights = [0.05**2, 0.85**2, 0.5**2]
    for n, weight in enumerate(weights):
        assert drawn[f"main@{n}"] / drawn.total() == pytest.approx(weight / sum(weights), abs=0.05)
    assert prioritised([0.95, 0.15, 0.5], PoolSettings(prioritised="even")) == pytest.approx(
        [0.0475, 0.1275, 0.25]
    )


def test_only_the_newest_members_are_drawn_and_few_are_open_at_once(tmp_path):
    settings = kuhn("train.opponents={uniform: 1.0}", "train.pool.size=6", "train.pool.loaded=2")
    league, _ = league_of(settings, tmp_path, snapshots=10)
    assert [member.version for member in league.drawn_from("main")] == [4, 5, 6, 7, 8, 9]
    met = set()
    for step in range(40):
        plans = training_plans(
            worlds_of(settings), settings.train, step, league.opponents(step, ("main",))
        )
        members = league.opened(plans)
        assert 1 <= len(members) <= 2 >= len(league._open)
        met |= set(members)
    assert met == {f"main@{n}" for n in range(4, 10)}
    # none is deleted
    assert sorted(path.name for path in (tmp_path / "league").iterdir()) == [
        f"main@{n}" for n in range(10)
    ]


def test_snapshots_are_taken_in_time_and_only_when_the_weights_are_new(tmp_path):
    league, main = league_of(kuhn("train.opponents={uniform: 1.0}", "train.pool.every=5"), tmp_path)
    for step in range(11):
        league.snapshot(step)  # nothing has changed
    assert [(member.name, member.step) for member in league.members] == [("main@0", 0)]
    main.engine.version, main.engine.logits[1] = 7, np.array([1.0, 2.0])
    league.snapshot(11)
    league.snapshot(15)
    assert [(member.name, member.step) for member in league.members] == [
        ("main@0", 0),
        ("main@7", 15),
    ]


@pytest.mark.long
def test_opponents_are_never_trained_on_and_stay_bit_equal(tmp_path):
    settings = kuhn(MIXED, "train.seats=swap")
    trained(tmp_path / "run", settings)
    played = list(read_episodes(tmp_path / "run"))
    table = credit.turns(played, "main")
    assert {reply.policy for turn in table.turns for reply in turn.replies} == {"main"}
    frozen = [
        reply
        for episode in played
        for turn in episode.turns
        for reply in turn.replies
        if "@" in reply.policy
    ]
    assert frozen and all(reply.version == int(reply.policy.partition("@")[2]) for reply in frozen)
    lines = steps_of(tmp_path / "run")
    own = sum(
        reply.policy == "main"
        for episode in played
        for turn in episode.turns
        for reply in turn.replies
    )
    assert sum(line["policies"]["main"]["turns"] for line in lines) == own
    # what plays as main@4 is what was learned up to step 4, also after it played
    for step in (0, 2, 4, 6):
        file = (tmp_path / "run" / "league" / f"main@{step}").read_bytes()
        assert (
            file
            == (
                tmp_path / "run" / "checkpoints" / f"step-{step:06d}" / "main.table.json"
            ).read_bytes()
        )


@pytest.mark.long
def test_the_standing_is_that_of_the_recorded_games(tmp_path):
    trained(tmp_path / "run", kuhn(MIXED, "train.episodes=64"))
    last = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "league"][-1]
    rated = ratings(games(read_episodes(tmp_path / "run")), resamples=20)
    assert last["ratings"] == {
        name: pytest.approx(rating.points, abs=0.06) for name, rating in rated.items()
    }
    assert all(rating.low < rating.high for rating in rated.values())
    summary = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert summary["league"]["ratings"] == last["ratings"] and last["members"] == 7


@pytest.mark.long
def test_every_anchor_is_met_in_exams_from_each_side_on_the_same_seeds(tmp_path):
    settings = kuhn(MIXED, "evaluate.episodes=32")
    scores = trained(tmp_path / "run", settings)["after"]
    assert {"against random_legal", "against first_legal"} <= scores.keys()
    one = scores["against first_legal"]
    assert one["episodes"] == 32 and set(one["return"]) == {"main"} == set(one["standard_error"])
    assert set(one["players"]["main"]) == {"player_0", "player_1"}
    assert not any(
        "first_legal" in {seat.behaviour for seat in e.cast.values()}
        for e in read_episodes(tmp_path / "run")
    )


def test_no_play_against_an_anchor_is_counted_twice_where_players_change_seats(two):
    settings = two(
        "train.opponents={latest: 0.5, anchors: {random_legal: 0.5}}", "train.seats=swap"
    )
    asked = []

    class Watched(LocalPlayers):
        async def play(self, plans, **how):
            plans = list(plans)
            asked.append(plans)
            return await super().play(plans, **how)

    world = worlds_of(settings).examined[0]
    players = Watched(settings, open_policies(settings))
    scores = asyncio.run(_against_anchors(world, players))
    [plans] = asked
    starts = Counter((plan.seed, plan.repeat) for plan in plans)
    assert len(plans) == 8 == scores["against random_legal"]["episodes"]
    assert len({seed for seed, _ in starts}) == 4 and set(starts.values()) == {1}


def test_nobody_is_examined_against_anchors_where_nobody_learns():
    scores = run_training(
        kuhn(
            MIXED,
            "train.opponents={latest: 0.5, anchors: {random_legal: 0.5}}",
            "train.policies=[]",
        )
    )["after"]
    assert "sampled" in scores and not any(key.startswith("against") for key in scores)


@pytest.mark.long
def test_a_frozen_policy_may_be_an_anchor_without_a_seat(tmp_path):
    file = tmp_path / "anchor.yaml"
    file.write_text(
        "scenario: {id: kuhn_poker}\nagents: {player_0: {policy: main}, player_1: {policy: main}}\n"
        "policies: {main: {model: table/softmax}, old: {model: table/softmax}}\n"
        "train: {policies: [main], lr: 3.0, opponents: {latest: 0.5, anchors: {old: 0.5}}}\n"
    )
    settings = config.load(file, list(SMALL)).config
    summary = trained(tmp_path / "run", settings)
    assert summary["changed"] == ["main"] and summary["unchanged"] == ["old"]
    assert any(
        seat.policy == "old"
        for episode in read_episodes(tmp_path / "run")
        for seat in episode.cast.values()
    )


@pytest.mark.long
def test_separate_policies_meet_snapshots_of_each_other(two, tmp_path):
    settings = two(
        "train.opponents={latest: 0.5, uniform: 0.5}",
        "train.pool.every=2",
        "train.alternate={one: 3, two: 3}",
    )
    trained(tmp_path / "run", settings)
    seated = [
        {agent: seat.policy for agent, seat in episode.cast.items()}
        for episode in read_episodes(tmp_path / "run")
    ]
    first, later = seated[:48], seated[48:]
    assert {cast["player_0"] for cast in first} == {"one"}
    assert {cast["player_1"].partition("@")[0] for cast in first} == {"two"}
    assert {cast["player_1"] for cast in later} == {"two"}
    assert any("one@" in cast["player_0"] for cast in later)


@pytest.mark.long
def test_three_agents_each_meet_a_member_of_their_own():
    class Trio(Scenario):
        agents = ("a", "b", "c")

        def play(self, rng, task):
            said = yield Ask(dict.fromkeys(self.agents, "?"), legal=("left", "right"))
            yield Reward({agent: float(said[agent].parsed == "left") for agent in self.agents})

    values = {
        "scenario": {"id": "x"},
        "agents": {agent: {"policy": "main"} for agent in "abc"},
        "policies": {"main": {"model": "table/softmax"}},
    }
    league = {"opponents": {"latest": 0.2, "uniform": 0.8}, "pool": {"every": 1}, "seats": "random"}
    values |= {
        "train": {"policies": ["main"], "steps": 5, "episodes": 12, "lr": 3.0, **league},
        "evaluate": {"episodes": 12},
    }
    settings = Config.model_validate(values)
    # without a folder the pool is a temporary one
    summary = asyncio.run(train(settings, Trio(), open_policies(settings), None))
    assert summary["changed"] == ["main"] and summary["league"]["members"] >= 3
    assert (
        summary["after"]["sampled"]["return"]["c"]
        > 0.8
        > summary["before"]["sampled"]["return"]["c"]
    )


# -- exploiters ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_seat_that_does_not_learn_in_a_world_has_no_snapshots(tmp_path):
    file = tmp_path / "worlds.yaml"
    alone = "{id: kuhn_poker, agents: {player_1: random_legal}}"
    worlds = f"scenarios: {{both: {{id: kuhn_poker}}, alone: {alone}}}"
    file.write_text(TWO.replace("scenario: {id: kuhn_poker}", worlds))
    shares = "train.opponents={latest: 0.2, uniform: 0.6, anchors: {first_legal: 0.2}}"
    trained(tmp_path / "run", config.load(file, [*SMALL, shares]).config)
    met = {}
    for episode in read_episodes(tmp_path / "run"):
        seats = (seat.policy or seat.behaviour for seat in episode.cast.values())
        met.setdefault(episode.world, set()).update(seats)
    assert met["alone"] == {"one", "random_legal", "first_legal"}
    assert {"one@0", "two@0"} <= met["both"]


@pytest.mark.longest
def test_an_exploiter_of_a_frozen_policy_comes_near_the_best_reply(two):
    summary = run_training(
        two(
            "train.policies=[two]",
            "train.seats=swap",
            "train.steps=40",
            "train.episodes=96",
            "train.lr=5",
            "evaluate.every=~",
        )
    )
    before, after = summary["before"], summary["after"]
    assert summary["unchanged"] == ["one"]
    # of an untrained table
    assert (
        before["best_return two"]
        == after["best_return two"]
        == pytest.approx(0.916667 / 2, abs=1e-6)
    )
    assert before["exact_return two"] == pytest.approx(0)
    assert after["exact_return two"] > 0.8 * after["best_return two"]


# -- resuming ------------------------------------------------------------------------------------


@pytest.mark.longest
@pytest.mark.parametrize("at", [1, 4])  # while one checkpoint is there, and after others
def test_a_league_that_is_killed_ends_as_an_unbroken_one(tmp_path, at):
    collapsing = (
        "train.lr=1000.0",
        "train.loss.entropy=0.0",
        "train.episodes=128",
    )
    settings = kuhn(MIXED, "train.seats=swap", *collapsing)
    broken_and_whole(tmp_path, settings, at)


@pytest.mark.long
@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_a_snapshot_that_is_gone_or_changed_is_told_with_its_path(tmp_path, harm):
    settings = kuhn("train.opponents={uniform: 1.0}", "train.pool.size=1", "train.pool.every=2")
    break_off(tmp_path / "run", settings, 3)
    file = tmp_path / "run" / "league" / "main@2"
    (
        file.unlink()
        if harm == "gone"
        else file.write_text(
            file.read_text().replace('"logits": {', '"logits": {"1": [0.0, 1.0], ')
        )
    )
    with pytest.raises(DataError, match=r"main@2: .*(is gone|not those that were written)"):
        trained(tmp_path / "run", settings)


# -- language models -----------------------------------------------------------------------------


@pytest.mark.longest
def test_language_models_meet_their_snapshots(kuhn_model, tmp_path):
    settings = config.load(
        "kuhn_table",
        [
            f"policies.main.model=transformers/{kuhn_model}",
            "policies.main.max_tokens=4",
            "train.steps=2",
            "train.episodes=8",
            "train.lr=0.001",
            "train.save_every=1",
            "train.opponents={latest: 0.5, uniform: 0.5}",
            "train.pool.every=1",
            "train.pool.loaded=1",
            "evaluate.episodes=4",
        ],
    ).config
    summary = broken_and_whole(tmp_path, settings, 1)
    played = list(read_episodes(tmp_path / "whole"))
    assert summary["changed"] == ["main"] and summary["league"]["members"] == 3
    assert any("@" in (seat.policy or "") for episode in played for seat in episode.cast.values())
    assert (tmp_path / "whole" / "league" / "main@0" / "model.safetensors").is_file()


@pytest.mark.long
def test_the_shipped_league_plays_both_sides_and_prints_its_exploitability(tmp_path):
    settings = config.load(
        "kuhn_league", ["train.steps=4", "train.episodes=32", "evaluate.episodes=16"]
    ).config
    summary = trained(tmp_path / "run", settings)
    assert {"nash_conv", "nash_conv_averaged", "against random_legal"} <= summary["after"].keys()
    mean = summary["averaged"]["main"]  # a model like any other
    again = config.load(
        "kuhn_table",
        [
            f"policies.main.model={mean['engine']}/{tmp_path / 'run' / mean['path']}",
            "train.policies=[]",
        ],
    ).config
    assert run_training(again)["before"]["nash_conv"] == pytest.approx(
        summary["after"]["nash_conv_averaged"]
    )
    plans = exam_plans(settings, scenario_of(settings))
    assert len(plans) == 16 and len({plan.id for plan in plans}) == 16
    assert len(asyncio.run(LocalPlayers(settings, open_policies(settings)).play(plans))) == 16
