"""Several scenarios in one config: who comes when, who sits where, what is recorded of which world,
what is compared with what, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from gem_ma import Ask, Reward, Scenario, credit
from gem_ma.cli.main import main
from gem_ma.config.loading import load, load_study
from gem_ma.config.seats import key_of, seats_of
from gem_ma.config.settings import Config
from gem_ma.credit.estimators import groups, key_among_worlds
from gem_ma.driver.rollout import Plan
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.pages.static.learning import place_of
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.runs.cells import check_measures, open_cells
from gem_ma.runs.plans import evaluation_plans, open_policies
from gem_ma.runs.store import read_episodes, read_manifest, read_metrics, read_summary
from gem_ma.runs.worlds import Worlds, due, taking_turns, worlds_of
from gem_ma.scores.groups import units
from gem_ma.scores.judge import Judge
from gem_ma.training.loop.exams import exam_plans
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.train import run_training
from tests.broken_runs import Killed, opened

MIXED = """
scenarios:
  small: {id: guess_number, numbers: 3, turns: 2, tasks: 6, weight: 2}
  large: {id: guess_number, numbers: 5, turns: 3, tasks: 4}
  cards: {id: kuhn_poker, tasks: 5}
agents:
  "*": {policy: main}
policies:
  main: {model: table/softmax}
train:
  policies: [main]
  steps: 4
  episodes: 16
  lr: 1.0
evaluate: {episodes: 8, every: 2}
"""
BOTS = ["agents.*=random_legal", "train=null"]
BROKEN = "tests.config.test_several_worlds:Broken"


class Broken(Scenario):
    """A world that never works."""

    agents = ("a", "b")

    def play(self, rng: object, task: object) -> Play:
        yield Ask({"a": "?"}, legal=("x",))
        raise RuntimeError("this world never works")


class Rich(Scenario):
    """One choice for two agents at once, paid a hundred times what the other worlds pay."""

    agents = ("player", "other")

    def play(self, rng: object, task: object) -> Play:
        said = yield Ask(dict.fromkeys(self.agents, "x or y?"), legal=("x", "y"))
        for agent, action in said.items():
            yield Reward({agent: 100.0 * (action.parsed == "x")}, why="x")


def written(folder: Path, text: str = MIXED) -> str:
    path = folder / "mixed.yaml"
    path.write_text(text)
    return str(path)


def mixed(folder: Path, *overrides: str) -> Config:
    return load(written(folder), overrides).config


def refused(folder: Path, *overrides: str, text: str = MIXED) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, text), overrides)
    return str(caught.value)


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: str, code: int = 0) -> str:
        assert main([*words]) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return call


# -- who comes when ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [{"a": 1}, {"a": 3, "b": 1}, {"a": 0.1, "b": 0.2, "c": 0.7}, dict.fromkeys("abcdefghij", 1)],
)
def test_a_world_is_never_far_from_its_share(weights):
    seen, total = Counter[str](), sum(weights.values())
    for number in range(600):
        name, before = due(weights, number)
        assert before == seen[name]  # so the plays of a world are numbered without a gap
        seen[name] += 1
        for world, weight in weights.items():
            assert abs(seen[world] - (number + 1) * weight / total) < max(1, len(weights) / 4)


def test_the_order_in_which_worlds_are_written_means_nothing():
    one, other = {"a": 2.0, "b": 0.5, "c": 1.0}, {"c": 1.0, "b": 0.5, "a": 2.0}
    assert [due(one, n) for n in range(50)] == [due(other, n) for n in range(50)]


@pytest.mark.parametrize("how", ["fixed", "random", "swap"])
def test_weights_are_shares_of_plays_however_many_agents_change_seats(tmp_path, how):
    settings = mixed(tmp_path, f"train.seats={how}", "train.group_size=2")
    worlds, seen = worlds_of(settings), Counter[str]()
    for step in range(8):
        plans = training_plans(worlds, settings.train, step)
        assert len(plans) == len({plan.id for plan in plans}) == settings.train.episodes
        assert plans == training_plans(worlds, settings.train, step)
        seen.update(plan.world for plan in plans)
        groups = {}
        for plan in plans:
            groups.setdefault(plan.group, set()).add((plan.world, plan.scenario.id))
        assert all(len(worlds) == 1 for worlds in groups.values())
    assert seen == {"small": 64, "large": 32, "cards": 32}


def test_a_world_is_played_as_if_it_were_alone(tmp_path):
    settings = mixed(tmp_path)
    worlds = worlds_of(settings)
    plans = list(worlds.plans())
    assert len(plans) == worlds.count() == len({plan.id for plan in plans}) == 15
    # a run that was stopped holds a share of each
    assert Counter(plan.world for plan in plans[:8]) == {"small": 4, "large": 2, "cards": 2}
    alone = load("guess_number", ["scenario.numbers=5", "scenario.turns=3", "scenario.tasks=4"])
    theirs = list(worlds_of(alone.config).plans())
    mine = [plan for plan in plans if plan.world == "large"]
    assert [(p.task, p.seed, p.options) for p in mine] == [
        (p.task, p.seed, p.options) for p in theirs
    ]
    assert [plan.id[0] for plan in mine] == ["large/test/0"] * 4


def one_by_one(worlds: Worlds) -> list[Plan]:
    """Their plans by the rule alone: whose turn each one is."""
    left = {
        world.name: list(evaluation_plans(world.config, world.scenario)) for world in worlds.played
    }
    weights, plans, number = {world.name: world.weight for world in worlds.played}, [], 0
    while left:
        name = due(weights, number).name
        number += 1
        if left[name]:
            plans.append(replace(left[name].pop(0), world=name))
        else:
            del left[name], weights[name]
            number = 0
    return plans


@pytest.mark.parametrize("weights", [(2, 1, 1), (0.1, 0.2, 0.7), (1e-9, 0.333, 1e9), (1, 5, 1)])
def test_what_is_left_of_a_run_is_what_its_plans_are_less_those_that_are_done(tmp_path, weights):
    shares = [
        f"scenarios.{name}.weight={weight}"
        for name, weight in zip(("small", "large", "cards"), weights, strict=True)
    ]
    worlds = worlds_of(
        mixed(tmp_path, *shares, "run.episodes_per_task=3", "scenarios.cards.tasks=40")
    )
    plans = one_by_one(worlds)
    assert list(worlds.plans()) == plans and worlds.count() == len(plans) == 150
    assert len({plan.world for plan in plans[-20:]}) < 3  # one was at its end before the others
    for done in (plans[:70], plans[::2], plans[100:], plans, []):
        count, left = worlds.left({plan.id for plan in done})
        rest = [plan for plan in plans if plan not in done]
        assert list(left) == rest and count == len(rest)


@pytest.mark.parametrize(
    "weights", [{"a": 1}, {"a": 0.1, "b": 0.2, "c": 0.7}, {"a": 0.75, "b": 7.5}]
)
def test_turns_that_come_again_are_those_that_were_due(weights):
    taken = list(islice(taking_turns(weights), 1_000))
    assert taken == [due(weights, number).name for number in range(1_000)]


# -- who sits where ------------------------------------------------------------------------------


def test_a_name_goes_before_patterns_and_more_letters_before_fewer():
    names = ["*", "player_?", "play*", "player_1"]
    assert [key_of(agent, names) for agent in ("player_1", "player_0", "player", "user")] == [
        "player_1", "player_?", "play*", "*",
    ]  # fmt: skip
    assert key_of("user", ["player"]) is None
    assert seats_of(["a", "b"], {"*": 1}, {"a": 2}) == {"a": 1, "b": 1}  # one world's seats first


def test_seats_by_pattern_and_seats_of_one_world(tmp_path):
    own = "scenarios.cards.agents.player_1=random_legal"
    settings = mixed(tmp_path, own, "agents.player_0=first_legal")
    cards, small = worlds_of(settings).played[2], worlds_of(settings).played[0]
    assert {agent: seat.behaviour for agent, seat in cards.config.agents.items()} == {
        "player_0": "first_legal", "player_1": "random_legal",
    }  # fmt: skip
    assert small.config.agents["player"].policy == "main"


def test_a_pattern_is_a_seat_of_a_single_scenario_too(tmp_path, called):
    text = "scenario: {id: kuhn_poker, tasks: 3}\nagents: {'player_*': random_legal}\n"
    printed = json.loads(
        called("run", written(tmp_path, text), "--out", str(tmp_path / "r"), "--json")
    )
    assert printed["ok"] == 3 and printed["returns"].keys() == {"player_0", "player_1"}


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed,fault",
    [
        (["scenarios.small.weight=0"], "scenarios.small.weight: should be greater than 0; got 0"),
        (["scenarios.1.weight=-1"], "scenarios.large.weight: should be greater than 0; got -1"),
        (["scenarios.small.weight=.inf"], ".inf is not a finite number"),
        (["scenario.id=kuhn_poker"], "a config has `scenario:` or `scenarios:`"),
        (["scenarios={}"], "scenarios: names no scenario"),
        (["scenarios=null"], "scenario: is missing"),
        (["scenarios=[kuhn_poker, kuhn_poker]"], "two scenarios are called 'kuhn_poker'"),
        (["scenarios={a.b: {id: kuhn_poker}}"], "letters, digits, _ and - only"),
        (["scenarios=[[kuhn_poker]]"], "wants a scenario: an id, or a block"),
        (["scenarios.small.nubmers=3"], "scenarios.small.nubmers: unknown key (did you mean"),
        (["scenarios.cards.agents.player=first_legal"], "no agent of guess_number, kuhn_poker"),
        (["agents.users=first_legal"], "agents.users: no agent of guess_number, kuhn_poker"),
        (["agents={player: {policy: main}}"], "scenarios.cards: no seat for 'player_0', 'player_1'"),
        (["evaluate.scenarios.x={id: kuhn_poker, weight: 2}"], "an exam has no weights"),
        (["evaluate.scenarios=[khun_poker]"], "no scenario is called 'khun_poker'"),
        (["train.credit.team=[player_0]"], "train.credit.team[0]: small has no agent 'player_0'"),
        (["scenarios.small.tasks=[0, 5]"], "scenarios.small.tasks[1]: no task 5"),
        (["train.episodes=9", "train.seats=swap"], ""),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_clear_line(tmp_path, typed, fault):
    if not fault:  # sides of different worlds: seen once the scenarios are made
        settings = mixed(tmp_path, *typed)
        with pytest.raises(ConfigError, match="9 episodes cannot be divided into starts"):
            run_training(settings)
        return
    lines = refused(tmp_path, *typed).splitlines()
    assert sum(fault in line for line in lines) == 1 and len(lines) <= 2, lines


def test_a_scenario_may_be_named_by_its_place_or_all_at_once(tmp_path):
    settings = mixed(tmp_path, "scenarios.0.numbers=4", "scenario.tasks=2")
    assert settings.scenarios["small"].options["numbers"] == 4
    assert [block.tasks for block in settings.scenarios.values()] == [2, 2, 2]
    short = "scenarios: [kuhn_poker, {id: guess_number, name: g}]\nagents: {'*': first_legal}"
    assert list(load(written(tmp_path, short)).config.scenarios) == ["kuhn_poker", "g"]


# -- what is recorded ----------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_of_several_worlds_is_scored_by_world(tmp_path, called):
    path, out = written(tmp_path), str(tmp_path / "run")
    printed = json.loads(called("run", path, *BOTS, "--out", out, "--json"))
    assert printed["worlds"].keys() == {"small", "large", "cards"}
    assert printed["worlds"]["cards"]["success"] is None and printed["worlds"]["small"]["ok"] == 6
    assert printed["success"]["n"] == 10  # of the worlds that know success
    assert (
        "cards player_0" in printed["returns"] and "small guesses blindly" in printed["baselines"]
    )
    assert printed["worlds"]["small"]["returns"].keys() == {"player"}
    episodes = list(read_episodes(Path(out)))
    assert Counter(episode.world for episode in episodes) == {"small": 6, "large": 4, "cards": 5}
    assert all(load_episode(dump_episode(episode)) == episode for episode in episodes)
    assert read_manifest(Path(out))["scenarios"]["cards"]["id"] == "kuhn_poker"
    for command in (["show", out], ["run", path, *BOTS, "--out", out]):
        table = called(*command)
        assert (
            "success small" in table and "world cards" in table and "return large player" in table
        )
    assert "small/test/0" in called("show", out, "--episode", "small/test/0")
    # more tasks of each are the same run
    called("run", path, *BOTS, "--out", out, "-n", "7")
    assert len(list(read_episodes(Path(out)))) == 21
    called("resume", out, "scenarios.cards.tasks=9")
    assert read_summary(Path(out))["worlds"]["cards"]["ok"] == 9
    listed = json.loads(called("list", "runs", "--root", str(tmp_path), "--json"))
    assert listed[0]["scenario"] == "small, large, cards"
    page = (Path(out) / "report.html").read_text()
    assert "cards: kuhn_poker version 1" in page


def test_a_line_of_a_single_scenario_says_nothing_of_worlds(tmp_path, called):
    called("run", "kuhn_poker", "-n", "1", "--out", str(tmp_path / "r"))
    line = json.loads((tmp_path / "r" / "episodes.jsonl").read_text())
    assert "world" not in line and line["id"][0] == line["task"] == "test/0"
    assert "worlds" not in read_summary(tmp_path / "r")


@pytest.mark.long
def test_seeds_of_a_world_with_one_task_are_its_units(tmp_path, called):
    # six seeds of one task, beside a world of tasks: still six independent draws
    out = tmp_path / "run"
    several = "scenarios.sums={id: arithmetic, tasks: 3}"
    called("run", written(tmp_path), *BOTS, several, "--out", str(out))
    by_world = Counter((e.world, e.task) for e in read_episodes(out))
    assert len(by_world) == 3 + 3 and by_world["small", "test/0"] == 6
    worlds = worlds_of(mixed(tmp_path))
    one = Judge.of(worlds.played[0].scenario)
    own = [episode for episode in read_episodes(out) if episode.world == "small"]
    assert read_summary(out)["worlds"]["small"]["success"] == one.summarise(own)["success"]
    assert len(set(units(one.id for one in read_episodes(out)))) == 6 + 4 + 5 + 3


@pytest.mark.long
def test_a_world_that_only_fails_takes_none_of_the_others_with_it(tmp_path, called):
    text = MIXED.replace("id: kuhn_poker, tasks: 5", f"id: '{BROKEN}', tasks: 5")
    path, out = written(tmp_path, text), str(tmp_path / "r")
    printed = json.loads(called("run", path, "--out", out, "--json", code=1))
    assert printed["failed"] == 5 and printed["ok"] == 10
    assert printed["worlds"]["cards"]["failed"] == 5 and printed["worlds"]["large"]["ok"] == 4
    summary = run_training(load(written(tmp_path, text)).config)
    assert summary["after"]["sampled cards"]["failed"] == 8
    assert summary["after"]["sampled small"]["ok"] == 8 and summary["changed"] == ["main"]


@pytest.mark.long
def test_a_study_may_vary_one_world_or_all(tmp_path, called):
    text = MIXED[: MIXED.index("train:")].replace("{policy: main}", "random_legal")
    grid = "grid: {scenarios.small.numbers: [3, 4], scenario.split: [test, dev]}\n"
    study = load_study(written(tmp_path, text + grid))
    sizes = {
        names: (
            cell.config.scenarios["small"].options["numbers"],
            cell.config.scenarios["cards"].split,
        )
        for names, cell in study.cells.items()
    }
    assert sizes == {(n, s): (int(n), s) for n in ("3", "4") for s in ("test", "dev")}
    printed = json.loads(
        called("study", written(tmp_path, text + grid), "--out", str(tmp_path / "s"), "--json",
               "--measure", "return cards player_0")
    )  # fmt: skip
    assert all("return cards player_0" in cell["scores"] for cell in printed["cells"])
    # its mean was n/a, and its difference a number
    opened = open_cells(load_study(written(tmp_path, text + grid + "study: {repeats: 2}\n")))
    with pytest.raises(ConfigError, match=r"pass\^2: there is none over several scenarios"):
        check_measures(["pass^2"], opened)


# -- what is learned -----------------------------------------------------------------------------


@pytest.mark.longest
def test_one_table_learns_two_worlds_at_once_and_is_examined_in_a_third(tmp_path):
    text = MIXED.replace("steps: 4", "steps: 50").replace("lr: 1.0", "lr: 0.3")
    text = text.replace("table/softmax}", "table/softmax, optimizer: adam}")
    settings = load(
        written(tmp_path, text),
        ["train.episodes=64", "evaluate.episodes=128", "evaluate.every=null",
         "evaluate.scenarios.new={id: guess_number, numbers: 7, turns: 3}"],
    ).config  # fmt: skip
    summary = run_training(settings)
    before, after = summary["before"], summary["after"]
    for world, least in (("small", 0.9), ("large", 0.75)):
        assert after[f"sampled {world}"]["success"] > max(
            least, before[f"sampled {world}"]["success"] + 0.2
        )
    assert after["nash_conv cards"] < before["nash_conv cards"] - 0.2
    # a table knows nothing of what it never met
    assert after["sampled new"]["success"] == before["sampled new"]["success"]
    # the sum is of the worlds that are trained on
    assert after["sampled"]["episodes"] == 3 * 128 and "new" not in str(after["sampled"])


@pytest.mark.long
def test_a_single_scenario_is_examined_elsewhere_as_it_is_at_home(tmp_path):
    text = """
scenario: {id: guess_number, numbers: 3, turns: 2}
agents: {"*": {policy: main}}
policies: {main: {model: table/softmax}}
train: {policies: [main], steps: 3, episodes: 16, lr: 1.0}
evaluate: {episodes: 16}
"""
    home = load(written(tmp_path, text)).config
    away = load(written(tmp_path, text), ["evaluate.scenarios=[kuhn_poker]"]).config
    alone, both = run_training(home)["after"], run_training(away)["after"]
    # an exam elsewhere changes no number that stood there before
    assert {key: both[key] for key in alone} == alone
    assert both["sampled kuhn_poker"]["return"].keys() == {"player_0", "player_1"}
    assert both["nash_conv kuhn_poker"] == pytest.approx(0.916667, abs=1e-6)


def test_a_world_that_is_trained_on_may_be_examined_otherwise(tmp_path):
    settings = mixed(tmp_path, "evaluate.scenarios.small={id: guess_number, numbers: 4}")
    examined = {world.name: world for world in worlds_of(settings).examined}
    assert examined["small"].scenario.numbers == 4 and examined.keys() == {
        "small",
        "large",
        "cards",
    }
    assert len(exam_plans(examined["small"].config, examined["small"].scenario)) == 8


@pytest.mark.longest
def test_a_run_with_further_exams_goes_on_and_can_be_repeated(tmp_path, called):
    exams = ["evaluate.scenarios=[tic_tac_toe]", "train.save_every=1"]
    out, again = str(tmp_path / "run"), str(tmp_path / "again")
    called("train", written(tmp_path), *exams, "train.steps=1", "--out", out)
    called("resume", out, "train.steps=2")
    called("train", f"{out}/resolved.yaml", "train.steps=2", "--out", again)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == (
        tmp_path / "again" / "episodes.jsonl"
    ).read_bytes()
    after = read_summary(tmp_path / "run")["after"]
    assert after == read_summary(tmp_path / "again")["after"] and "sampled tic_tac_toe" in after


@pytest.mark.long
@pytest.mark.parametrize("name,key", [("rebn", None), ("dr_grpo", "global"), ("rae", None)])
def test_rewards_of_one_world_move_no_advantage_of_another(tmp_path, name, key):
    def moved(scale: str, *more: str) -> dict[str, float]:
        text = MIXED.replace("id: kuhn_poker, tasks: 5", f"id: '{__name__}:Rich'")
        typed = [f"train.estimator.name={name}", f"scenarios.small.win={scale}", *more]
        # one bound on the gradient of all worlds would couple them again
        typed += ["train.loss={minibatches: 1, grad_clip: 1.0e+9}"]
        typed += [f"train.estimator.key={key}"] * (key is not None)
        settings = load(written(tmp_path, text), ["train.steps=1", *typed]).config
        policies = open_policies(settings)
        run_training_with(settings, policies)
        table = policies["main"].core
        # kuhn_poker is not there, so only its choices are two
        return {k: v.tolist() for k, v in table.logits.items() if len(v) == 2}

    assert moved("1.0") == moved("9.0") != {}
    if name != "rae":  # asked for, they are compared
        assert moved("1.0", "train.estimator.groups=all") != moved("1.0")


@pytest.mark.long
def test_two_worlds_of_one_scenario_are_two_groups(tmp_path, called):
    called("run", written(tmp_path), "train=null", "--out", str(tmp_path / "run"))
    table = credit.turns(list(read_episodes(tmp_path / "run")), "main")
    assert set(table.scenario) == {"small", "large", "cards"}
    for name in ("rebn", "grpo", "rae"):
        key = key_among_worlds(name, None, "scenario")
        worlds: dict[int, set[str]] = {}
        for number, world in zip(groups(table, key), table.scenario, strict=True):
            worlds.setdefault(int(number), set()).add(str(world))
        assert all(len(several) == 1 for several in worlds.values())


def run_training_with(settings: Config, policies: object) -> None:
    import asyncio

    from gem_ma.training.train import train

    asyncio.run(train(settings, worlds_of(settings), policies, None))


class Three(Scenario):
    """Three agents, asked one after the other."""

    agents = ("a", "b", "c")

    def play(self, rng: object, task: object) -> Play:
        for agent in self.agents:
            yield Ask({agent: "x or y?"}, legal=("x", "y"))


@pytest.mark.long
def test_worlds_of_one_two_and_three_agents_change_seats(tmp_path):
    three = f"scenarios.three={{id: '{__name__}:Three', weight: 2}}"
    settings = mixed(tmp_path, three, "train.seats=swap", "train.episodes=36")
    worlds, seen = worlds_of(settings), Counter[str]()
    for step in range(3):
        plans = training_plans(worlds, settings.train, step)
        seen.update(plan.world for plan in plans)
        starts = Counter((plan.world, plan.seed) for plan in plans)
        # every start from every side
        sides = {"small": 1, "large": 1, "cards": 2, "three": 3}
        assert all(count == sides[world] for (world, _), count in starts.items())
    assert seen == {"small": 36, "large": 18, "cards": 18, "three": 36}
    assert run_training(mixed(tmp_path, three, "train.seats=swap", "train.steps=1",
                              "train.episodes=36"))["changed"] == ["main"]  # fmt: skip


@pytest.mark.longest
@pytest.mark.parametrize(
    "typed",
    [
        ["train.seats=swap", "train.estimator.name=rae"],
        ["train.opponents={latest: 0.4, uniform: 0.4, anchors: 0.2}", "train.pool.every=1"],
        ["train.overlap=true", "train.fork={width: 2}"],
    ],
)
def test_a_killed_training_of_a_mixture_ends_as_an_unbroken_one(tmp_path, typed):
    settings = mixed(tmp_path, "train.save_every=1", *typed)

    def trained(path: Path, on_step: object = None) -> list[bytes]:
        with opened(path, settings) as folder:
            run_training(settings, folder, on_step=on_step)
        return [(path / f).read_bytes() for f in ("episodes.jsonl", "metrics.jsonl")]

    def kill(step: int, metrics: object) -> None:
        if step == 2:
            raise Killed

    whole = trained(tmp_path / "whole")
    with pytest.raises(Killed):
        trained(tmp_path / "broken", kill)
    assert trained(tmp_path / "broken") == whole
    rows = list(read_metrics(tmp_path / "whole"))
    steps = [row for row in rows if row["kind"] == "train"]
    assert all(row["worlds"].keys() == {"small", "large", "cards"} for row in steps)
    assert any("sampled cards" in row for row in rows if row["kind"] == "evaluation")


def test_plans_of_one_scenario_are_what_they_were():
    settings = load("guess_number_table").config
    plans = training_plans(
        Worlds.of(settings, worlds_of(settings).played[0].scenario), settings.train, 3
    )
    # taken before there were several worlds: runs of older versions go on with these
    assert [(p.id, p.group) for p in plans[:2]] == PLANS


PLANS = [
    (("train/0", 5302482959648185400, 0), None),
    (("train/0", 7096190245015685204, 0), None),
]


def test_curves_of_worlds_stand_in_the_charts_of_scores():
    assert place_of("worlds/cards/return/player_0") == ("Scores", "return in cards", "player_0")
    assert place_of("greedy cards/return/x") == ("Scores", "return in cards", "greedy x")
    assert place_of("sampled cards/success") == ("Scores", "success", "sampled cards")
    assert place_of("nash_conv cards") == ("Scores", "nash_conv", "cards")
