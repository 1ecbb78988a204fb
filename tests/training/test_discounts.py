"""Discounts that move, teams that share and rewards that are shaped: from the config to the
record, and exact after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.cli.main import main
from gem_ma.config.learning import CreditSettings, EstimatorSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit import turns
from gem_ma.credit.estimators import ESTIMATORS, shaped
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.store import read_episodes
from gem_ma.runs.worlds import Worlds, worlds_of
from gem_ma.training.schedule.checks import check_credit
from gem_ma.training.schedule.settings import discounts, settings_of
from gem_ma.training.train import run_training
from tests.broken_runs import broken_and_whole, steps_of, trained

SMALL = (
    "train.steps=4",
    "train.episodes=8",
    "train.save_every=2",
    "evaluate.episodes=8",
    "train.warm_start={}",
    "train.lr_final=1.0",
)


def small(*overrides: str, name: str = "referential_table") -> Config:
    return config.load(name, [*SMALL, *overrides]).config


def lines(path: Path, policy: str) -> list[dict[str, Any]]:
    return [line["policies"][policy] for line in steps_of(path)]


# -- schedules -----------------------------------------------------------------------------------


def test_a_schedule_is_linear_over_its_steps_and_stays_at_its_end() -> None:
    rising = {"from": 0.9, "to": 1.0, "steps": 60}
    assert discounts(rising, 0) == 0.9
    assert discounts(rising, 59) == discounts(rising, 1000) == 1.0
    assert [discounts(rising, step) for step in range(60)] == pytest.approx(
        [0.9 + 0.1 * step / 59 for step in range(60)], abs=1e-12
    )
    assert discounts({"from": 1.0, "to": 0.0, "steps": 5}, 1) == 0.75
    assert discounts(0.3, 7) == 0.3
    assert discounts({"a": rising, "b": 0.5}, 59) == {"a": 1.0, "b": 0.5}


@pytest.mark.parametrize(
    ("gamma", "message"),
    [
        (1.5, "the discount lies in 0..1"),
        (-0.1, "the discount lies in 0..1"),
        ({}, "names no agent"),
        ({"a": 2.0}, "the discount of a lies in 0..1"),
        ({"from": 0.9, "to": 1.1, "steps": 5}, "the discount lies in 0..1"),
        ({"from": 0.9, "to": 1.0}, "the schedule has the keys from, to and steps; here from, to"),
        (
            {"from": 0.9, "to": 1.0, "steps": 5, "warm": 1.0},
            "the schedule has the keys from, to and steps",
        ),
        (
            {"from": 0.9, "to": 1.0, "steps": 1},
            "steps of the schedule is a whole number, 2 or more",
        ),
        (
            {"from": 0.9, "to": 1.0, "steps": 2.5},
            "steps of the schedule is a whole number, 2 or more",
        ),
        (
            {"a": {"from": 0.9, "steps": 5}},
            "the schedule of a has the keys from, to and steps; here from, steps",
        ),
        ({"a": {}}, "the schedule of a has the keys from, to and steps; here none"),
    ],
)
def test_a_discount_that_is_none_is_refused_by_name(gamma: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CreditSettings(gamma=gamma)


def test_a_wrong_discount_is_told_with_its_key_before_anything_is_played() -> None:
    for override, said in (
        (
            "train.credit.gamma={from: 0.9, to: 1.0}",
            "train.credit.gamma: the schedule has the keys from, to and steps",
        ),
        ("train.credit.gamma={from: 0.9, to: 1.0, steps: soon}", "train.credit.gamma"),
        (
            "train.credit.gamma=high",
            "train.credit.gamma: wants a number or keys with values; got 'high'",
        ),
        (
            "train.credit.gamma={speeker: 0.9}",
            (
                "train.credit.gamma.speeker: no agent of referential has this name (did you mean"
                " 'speaker'?)"
            ),
        ),
        (
            "train.per_policy.speaker.credit.gamma={listner: 0.9}",
            "train.per_policy.speaker.credit.gamma.listner: no agent of referential has this name",
        ),
        (
            "train.credit.rule=team_mix(1.5)",
            "train.credit.rule: wants until_next_turn, own_step, terminal_to_last, or team_mix",
        ),
        (
            "train.credit.team=[speaker, lister]",
            "train.credit.team[1]: no agent of referential has this name",
        ),
        ("train.estimator.shaping={form: bold, alpha: 1}", "train.estimator.shaping.form"),
        ("train.estimator.shaping={form: margin}", "train.estimator.shaping.alpha: is missing"),
    ):
        with pytest.raises(ConfigError) as caught:
            small(override)
        assert said in str(caught.value), override


@pytest.mark.long
def test_every_step_learns_with_its_own_discount_and_says_which(tmp_path: Path) -> None:
    """A step of a schedule is the step of a run whose discount is that number."""
    gamma = "train.credit.gamma={speaker: {from: 0.5, to: 1.0, steps: 3}, listener: 0.25}"
    trained(tmp_path / "run", small(gamma, "train.estimator.name=reinforce"))
    assert [line["gamma"] for line in lines(tmp_path / "run", "speaker")] == [
        {"speaker": g} for g in (0.5, 0.75, 1.0, 1.0)
    ]
    assert [line["gamma"] for line in lines(tmp_path / "run", "listener")] == [
        {"listener": 0.25}
    ] * 4
    for_all = small("train.credit.gamma={from: 0.0, to: 1.0, steps: 4}", name="guess_number_table")
    trained(tmp_path / "all", for_all)
    assert [line["gamma"] for line in lines(tmp_path / "all", "player")] == pytest.approx(
        [0.0, 1 / 3, 2 / 3, 1.0]
    )


@pytest.mark.long
def test_a_schedule_of_equal_ends_is_the_number_itself(tmp_path: Path) -> None:
    for name, gamma in (
        ("number", "0.9"),
        ("schedule", "{from: 0.9, to: 0.9, steps: 2}"),
        ("other", "{from: 0.9, to: 0.5, steps: 2}"),
    ):
        trained(tmp_path / name, small(f"train.credit.gamma={gamma}", name="guess_number_table"))
    same, schedule, other = (
        (tmp_path / name / "episodes.jsonl").read_bytes()
        for name in ("number", "schedule", "other")
    )
    assert same == schedule != other


def test_a_policy_may_have_a_schedule_of_its_own() -> None:
    settings = TrainSettings.model_validate(
        {
            "policies": ["a", "b"],
            "per_policy": {"a": {"credit": {"gamma": {"from": 0.0, "to": 1.0, "steps": 3}}}},
        }
    )
    assert discounts(settings_of(settings, "a").credit.gamma, 1) == 0.5
    assert discounts(settings_of(settings, "b").credit.gamma, 1) == 1.0


def test_shaped_scenarios_refuse_a_discount_that_moves_away_from_theirs() -> None:
    class Paid(Scenario):
        """Shapes its rewards for .9."""

        agents = ("speaker", "listener")
        discounts = {"speaker": 0.9}
        id = "paid"

    for gamma, learned in (
        ("{from: 0.9, to: 1.0, steps: 60}", "0.9 to 1"),
        ("{speaker: {from: 0.5, to: 0.9, steps: 5}, listener: 1.0}", "0.5 to 0.9"),
        ("{from: 0.9, to: 0.9, steps: 60}", ""),
        ("0.9", ""),
        ("1.0", "1"),
        ("{speaker: 0.5, listener: 0.9}", "0.5"),
        ("{speaker: 0.9, listener: {from: 0.5, to: 0.9, steps: 5}}", ""),
    ):
        settings = small(f"train.credit.gamma={gamma}")
        assert settings.train is not None
        if learned:
            with pytest.raises(
                ConfigError,
                match=(
                    "shapes the rewards of 'speaker' for a discount of 0.9, and it would learn"
                    f" with {learned};"
                ),
            ):
                check_credit(Worlds.of(settings, Paid()), settings.train)
        else:
            check_credit(Worlds.of(settings, Paid()), settings.train)
    frozen = small("train.policies=[listener]")
    check_credit(Worlds.of(frozen, Paid()), frozen.train)


def test_an_agent_without_a_discount_is_told_before_a_step() -> None:
    with pytest.raises(
        ConfigError, match="gamma names no value for agent 'speaker'; it has listener"
    ):
        run_training(
            small("train.credit.gamma={listener: 0.9}"),
            on_step=lambda *_: pytest.fail("a step was taken"),
        )
    run_training(
        small("train.credit.gamma={listener: 0.9}", "train.policies=[listener]", "train.steps=1")
    )


# -- teams and cut plays -------------------------------------------------------------------------


@pytest.mark.long
def test_a_team_shares_its_rewards_from_the_config_on(tmp_path: Path) -> None:
    own, mixed, apart = (tmp_path / name for name in ("own", "mixed", "apart"))
    trained(own, small("train.estimator.name=reinforce", "train.credit.rule=team_mix(0)"))
    trained(mixed, small("train.estimator.name=reinforce", "train.credit.rule=team_mix(1)"))
    trained(
        apart,
        small(
            "train.estimator.name=reinforce",
            "train.credit.rule=team_mix(1)",
            "train.credit.team=[speaker]",
        ),
    )
    plain, all_shared, alone = (
        (path / "episodes.jsonl").read_bytes() for path in (own, mixed, apart)
    )
    assert alone == plain  # a team of one has nobody to share with
    assert [e.returns()["speaker"] for e in read_episodes(mixed)] == [
        e.returns()["listener"] for e in read_episodes(mixed)
    ]
    assert all_shared == plain  # referential pays both alike, so that sharing changes nothing
    table = turns(list(read_episodes(own)), "speaker", rule="team_mix(0.5)", team=["speaker"])
    assert table.total.tolist() == turns(list(read_episodes(own)), "speaker").total.tolist()


@pytest.mark.long
def test_episodes_that_the_driver_cut_can_teach_nothing_and_are_counted(tmp_path: Path) -> None:
    cut = ("run.max_steps=1", "train.policies=[speaker]", "train.steps=1")
    trained(tmp_path / "zero", small(*cut))
    trained(tmp_path / "drop", small(*cut, "train.credit.truncated=drop"))
    (zero,), (drop,) = lines(tmp_path / "zero", "speaker"), lines(tmp_path / "drop", "speaker")
    assert (zero["turns"], zero["excluded"]) == (8, 0)
    assert (drop["turns"], drop["excluded"]) == (0, 8)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ((), "speaker, listener learn"),
        (("train.estimator.name=gae",), ""),
        (("train.credit.truncated=drop",), ""),
        (("train.per_policy.speaker.estimator.name=gae",), "and listener learn"),
        (("run.max_steps=9",), ""),
    ],
)
def test_many_cut_episodes_are_told_once(overrides: tuple[str, ...], names: str) -> None:
    import asyncio

    from gem_ma.runs.plans import open_policies, scenario_of
    from gem_ma.training.train import train

    settings = small("run.max_steps=1", "train.steps=2", *overrides)
    notes: list[str] = []
    asyncio.run(
        train(settings, scenario_of(settings), open_policies(settings), None, on_note=notes.append)
    )
    told = [note for note in notes if "were cut by run.max_steps" in note]
    assert len(told) == bool(names)
    assert not names or (
        told[0].startswith("step 1: 8 of 8 episodes were cut") and names in told[0]
    )


# -- shaping -------------------------------------------------------------------------------------


@pytest.mark.long
def test_shaping_changes_what_is_learned_and_nothing_that_is_recorded_or_examined(
    tmp_path: Path,
) -> None:
    plain, none, much = (tmp_path / name for name in ("plain", "none", "much"))
    trained(plain, small("train.estimator.name=reinforce"))
    trained(
        none,
        small(
            "train.estimator.name=reinforce", "train.estimator.shaping={form: margin, alpha: 0.0}"
        ),
    )
    summary = trained(
        much,
        small(
            "train.estimator.name=reinforce", "train.estimator.shaping={form: margin, alpha: 3.0}"
        ),
    )
    assert (
        (plain / "episodes.jsonl").read_bytes()
        == (none / "episodes.jsonl").read_bytes()
        != (much / "episodes.jsonl").read_bytes()
    )
    episodes = list(read_episodes(much))
    logged, past = lines(much, "listener"), None
    for step, line in enumerate(logged):
        batch = [e.returns()["listener"] for e in episodes[8 * step : 8 * step + 8]]
        mean = sum(batch) / 8
        assert line["return_raw"] == pytest.approx(mean)
        assert line["return_shaped"] == pytest.approx(
            mean if past is None else mean + 3 * (mean - past)
        )
        past = sum(e.returns()["listener"] for e in episodes[: 8 * step + 8]) / (8 * step + 8)
    assert [line["return"]["listener"] for line in steps_of(much)] == pytest.approx(
        [line["return_raw"] for line in logged]
    )
    assert "return_raw" not in lines(plain, "listener")[0]
    assert 0 <= summary["after"]["sampled"]["return"]["listener"] <= 1


@pytest.mark.long
@pytest.mark.parametrize("form", ["margin", "quality"])
@pytest.mark.parametrize("name", ["rae", "gae", "at_grpo"])
def test_shaping_goes_on_after_a_resume_as_if_nothing_had_happened(
    tmp_path: Path, form: str, name: str
) -> None:
    group = ["train.group_size=4"] if name == "at_grpo" else []
    settings = small(
        f"train.estimator={{name: {name}, shaping: {{form: {form}, alpha: 0.7}}}}",
        "train.steps=5",
        *group,
    )
    broken_and_whole(tmp_path, settings)
    state = json.loads((tmp_path / "whole" / "checkpoints/step-000005/trainer.json").read_bytes())[
        "estimators"
    ]
    past = [e.returns()["speaker"] for e in read_episodes(tmp_path / "whole")]
    assert state["speaker@shaping"] == pytest.approx(
        {"referential/speaker#mean": sum(past) / 40, "referential/speaker#n": 40}
    )


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if not one.ledger])
def test_every_estimator_takes_shaped_rewards(name: str, tmp_path: Path) -> None:
    needs = "train.fork={width: 4}" if ESTIMATORS[name].tree else "train.group_size=4"
    trained(
        tmp_path / "run",
        small(
            "train.steps=2",
            f"train.estimator={{name: {name}, shaping: {{form: margin, alpha: 0.5}}}}",
            needs,
        ),
    )
    first, second = lines(tmp_path / "run", "listener")
    assert first["return_shaped"] == first["return_raw"]
    assert second["return_shaped"] == pytest.approx(
        second["return_raw"] + 0.5 * (second["return_raw"] - first["return_raw"])
    )


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if one.ledger])
def test_an_estimator_that_reads_the_ledger_itself_refuses_shaping(name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"train.estimator.shaping: {name} reads the ledger itself"
    ):
        run_training(
            small(
                "train.fork={width: 2}",
                f"train.estimator={{name: {name}, shaping: {{form: margin, alpha: 0.5}}}}",
            )
        )


def test_shaping_of_one_policy_is_its_own() -> None:
    settings = TrainSettings(
        policies=["a", "b"],
        per_policy={"a": {"estimator": {"shaping": {"form": "quality", "alpha": 0.5}}}},
    )  # type: ignore[dict-item]
    assert settings_of(settings, "a").estimator == EstimatorSettings.model_validate(
        {"shaping": {"form": "quality", "alpha": 0.5}}
    )
    assert settings_of(settings, "b").estimator.shaping is None


def test_the_shaped_forms_are_those_of_their_formulas() -> None:
    episodes = list(_played())
    state = {"referential/speaker#mean": 0.25, "referential/speaker#n": 4.0}
    table = turns(episodes, "speaker")
    for form, extra in (
        ("margin", lambda r, q: r - q),
        ("quality", lambda r, q: q * r - (1 - q) * (1 - r)),
    ):
        made, _ = shaped(table, form, 0.5, state=state)
        assert made.total.tolist() == pytest.approx([r + 0.5 * extra(r, 0.25) for r in table.total])


def _played() -> list[Any]:
    import asyncio

    from gem_ma.runs.plans import open_policies
    from gem_ma.training.loop.local import LocalPlayers
    from gem_ma.training.schedule.plans import training_plans

    settings = small()
    assert settings.train is not None
    plans = training_plans(worlds_of(settings), settings.train, 0)
    return asyncio.run(LocalPlayers(settings, open_policies(settings)).play(plans))


@pytest.mark.parametrize(
    ("credit", "scenario", "said"),
    [
        ("{rule: team_mix(1), team: teams}", "public_goods", "public_goods has no teams"),
        ("{team: teams}", "werewolf", "nothing is shared under until_next_turn"),
        ("{team: [player_0]}", "werewolf", "nothing is shared under until_next_turn"),
        ("{rule: team_mix(1), team: team}", "werewolf", "train.credit.team"),
    ],
)
def test_teams_that_share_are_there_and_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], credit: str, scenario: str, said: str
) -> None:
    arguments = ["train", written_teams(tmp_path, scenario), f"train.credit={credit}"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.longest
def test_wolves_share_and_villagers_share(tmp_path: Path) -> None:
    words = [
        "train",
        written_teams(tmp_path, "werewolf"),
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*words, "train.credit={rule: team_mix(0.5), team: teams}"]) == 0


def written_teams(tmp_path: Path, scenario: str) -> str:
    (tmp_path / "teams.yaml").write_text(
        f"scenario: {{id: {scenario}}}\nagents: {{player_*: {{policy: main}}}}\n"
        "policies: {main: {model: table}}\ntrain: {steps: 1, episodes: 4, policies: [main]}\n"
        "evaluate: {episodes: 4}\nrun: {baselines: false}\n"
    )
    return str(tmp_path / "teams.yaml")
