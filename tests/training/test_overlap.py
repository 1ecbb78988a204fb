"""Playing ahead: k publishes of lag, exact resumes; and episodes that
are too old are left out whole."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.record.codec import dump_episode
from gem_ma.runs.store import RunFolder, read_episodes
from gem_ma.training.loop.checkpoint import latest_checkpoint
from gem_ma.training.loop.step import FILE, Ahead, StepRollouts
from gem_ma.training.loop.updates import fresh, lag, warning
from gem_ma.training.schedule.settings import settings_of
from tests import broken_runs
from tests.broken_runs import break_off, broken_and_whole, for_both, steps_of, trained, truth
from tests.plays import recorded

small = partial(broken_runs.small, "train.overlap=true")


def ahead_of(path: Path) -> list[str]:
    """The files of what the last checkpoint holds of steps to come."""
    files = latest_checkpoint(path / "checkpoints").files
    return [name for name in files if name.startswith(FILE)]


# -- which weights play --------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("ahead", [1, 4])
def test_every_step_is_played_so_many_publishes_behind_as_it_is_ahead(tmp_path, ahead):
    trained(tmp_path / "run", small(f"train.overlap={ahead}"))
    first = None
    for number, line in enumerate(steps_of(tmp_path / "run")):
        for name in ("speaker", "listener"):
            assert line["policies"][name]["lags"] == {str(min(number, ahead)): 8}
            assert line["policies"][name]["lag"] == min(number, ahead)
    episodes = list(read_episodes(tmp_path / "run"))
    for number in range(6):
        played = {
            reply.version
            for e in episodes[8 * number : 8 * number + 8]
            for turn in e.turns
            for reply in turn.replies
        }
        first = first if first is not None else min(played)
        # 0, 0, 1, 2, ... for one step ahead: the version at the start of the update before
        assert played == {first + max(0, number - ahead)}
    assert len(episodes) == 48


@pytest.mark.long
def test_without_overlap_nothing_is_behind_and_nothing_is_kept(tmp_path):
    trained(tmp_path / "run", small("train.overlap=false"))
    assert all(
        line["policies"]["speaker"]["lag"] == 0 and "lags" not in line["policies"]["speaker"]
        for line in steps_of(tmp_path / "run")
    )
    assert not ahead_of(tmp_path / "run")


@pytest.mark.long
def test_the_sampler_tells_the_probabilities_of_its_own_version_and_the_difference_is_measured_and_weighed(
    tmp_path,
):
    runs = {}
    for name, cap in (("free", "null"), ("weighed", "1.0")):
        trained(tmp_path / name, small(f"train.loss.tis={cap}", "train.lr=2.0"))
        runs[name] = steps_of(tmp_path / name)
    assert [line["policies"]["speaker"]["mismatch_kl"] < 1e-12 for line in runs["free"]] == [
        True
    ] + [False] * 5
    assert (
        runs["free"][1]["policies"]["speaker"]["logprob_gap"]
        == runs["weighed"][1]["policies"]["speaker"]["logprob_gap"]
        > 1e-3
    )
    assert (
        runs["free"][1]["policies"]["speaker"]["loss"]
        != runs["weighed"][1]["policies"]["speaker"]["loss"]
    )


# -- resume --------------------------------------------------------------------------------------

SHAPES = {
    "both": (),
    "one learns": ("train.policies=[listener]",),
    "in turn": ("train.alternate={speaker: 2, listener: 1}", "train.max_policy_lag=0"),
    "a critic": ("train.estimator.name=gae",),
    "groups and forks": (
        "train.estimator.name=grpo",
        "train.group_size=4",
        "train.fork={width: 2}",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("shape", "ahead"), [*zip(SHAPES, (1, 2, 2, 1, 2), strict=True)])
def test_a_killed_run_ends_bit_for_bit_as_an_unbroken_one(tmp_path, shape, ahead):
    settings = small(*SHAPES[shape], f"train.overlap={ahead}")
    broken_and_whole(tmp_path, settings, 2, 5)


@pytest.mark.long
def test_a_run_that_is_killed_after_every_step_plays_the_same_episodes(tmp_path):
    settings = small("train.overlap=4", "train.save_every=1")
    broken_and_whole(tmp_path, settings, 1, 2, 3, 4, 5)


@pytest.mark.long
def test_with_a_league_a_killed_run_ends_bit_for_bit_as_an_unbroken_one(tmp_path):
    settings = small(
        "train.overlap=4",
        "train.opponents={latest: 0.5, prioritised: 0.5}",
        "train.pool={every: 2, loaded: 2}",
        name="kuhn_table",
    )
    broken_and_whole(tmp_path, settings)
    assert any(
        "@" in (seat.policy or "")
        for e in read_episodes(tmp_path / "whole")
        for seat in e.cast.values()
    )


@pytest.mark.long
def test_the_checkpoint_holds_what_was_played_ahead_until_nothing_is_left_to_learn(tmp_path):
    settings = small("train.overlap=2", "train.steps=7")
    break_off(tmp_path / "run", settings, 4)
    found = latest_checkpoint(tmp_path / "run" / "checkpoints")
    ahead, later = (StepRollouts.load(found.read(f"{FILE}{number}.jsonl")) for number in ("", "-2"))
    assert (ahead.step, len(ahead.plays), ahead.branches, ahead.forks) == (4, 8, (), None)
    assert later.step == 5
    assert len(list(read_episodes(tmp_path / "run"))) == 32  # they are not part of the record yet
    trained(tmp_path / "run", settings)
    assert [dump_episode(e) for e in read_episodes(tmp_path / "run")][32:40] == [
        dump_episode(e) for e in ahead.plays
    ]
    assert not ahead_of(tmp_path / "run")


def test_damaged_episodes_of_a_checkpoint_are_refused():
    for data in (b"", b"{}\n", b'{"step": 1, "plays": 1, "forks": null}\n{"id"\n', b"\xff"):
        with pytest.raises(DataError, match="the episodes that a checkpoint holds cannot be read"):
            StepRollouts.load(data)


# -- language models -----------------------------------------------------------------------------


def models_ahead(model: Path, *overrides: str) -> Config:
    warm = for_both("train.warm_start.AGENT.episodes=64", "train.warm_start.AGENT.steps=8")
    small = (
        "train.overlap=true",
        "train.steps=4",
        "train.episodes=16",
        "train.save_every=2",
        "evaluate.episodes=16",
    )
    return broken_runs.of_models(model, *warm, *small, *overrides)


@pytest.mark.longest
@pytest.mark.parametrize("ahead", [1, 2])
def test_language_models_learn_apart_from_what_is_sampled_and_resume_bit_for_bit(
    tmp_path, referential_model, ahead
):
    settings = models_ahead(
        referential_model,
        "train.policies=[listener]",
        "policies.listener.lora={rank: 4}" if ahead > 1 else "policies.listener.dtype=bfloat16",
        f"train.overlap={ahead}",
    )
    summary = broken_and_whole(tmp_path, settings)
    assert (summary["changed"], summary["unchanged"]) == (["listener"], ["speaker"])
    told = [line["policies"]["listener"] for line in steps_of(tmp_path / "whole")]
    assert [one["lag"] for one in told] == [min(number, ahead) for number in range(4)]
    assert [one["version"] for one in told] == [2, 3, 4, 5]


@pytest.mark.longest
def test_a_model_that_is_learned_apart_learns_the_same_first_step(tmp_path, referential_model):
    """The first step has nothing ahead, so it is the step of a run without overlap."""
    lines = {}
    for name, overlap in (("apart", "true"), ("alone", "false")):
        trained(
            tmp_path / name,
            models_ahead(
                referential_model, f"train.overlap={overlap}", "train.steps=2", "train.save_every=1"
            ),
        )
        lines[name] = steps_of(tmp_path / name)[0]["policies"]
        lines[name + " weights"] = (
            tmp_path / name / "checkpoints" / "step-000001" / "listener.model.safetensors"
        ).read_bytes()
    assert lines["apart weights"] == lines["alone weights"]
    assert lines["apart"]["listener"]["loss"] == lines["alone"]["listener"]["loss"]


# -- several things at a time --------------------------------------------------------------------


def steps_of_plays(*, fail: int | None = None) -> tuple[Ahead, dict[int, asyncio.Event], list[int]]:
    """Three steps that are begun; each ends when its event is set."""
    ahead, may, begun = Ahead(), {step: asyncio.Event() for step in (1, 2, 3)}, []

    def playing(step: int):
        async def play() -> StepRollouts:
            begun.append(step)
            await may[step].wait()
            if step == fail:
                raise KeyError(step)
            return StepRollouts(step, ())

        return play

    for step in may:
        ahead.begin(step, playing(step))
    return ahead, may, begun


def test_a_step_is_learned_while_later_ones_are_still_played():
    async def run() -> None:
        ahead, may, begun = steps_of_plays()
        may[1].set()
        assert (await ahead.take(1)).step == 1
        await asyncio.sleep(0.01)
        assert begun == [1, 2]  # one after the other
        assert ahead.missing(range(1, 6)) == [1, 4, 5]
        may[3].set()
        may[2].set()
        await ahead.settled()
        assert [played.step for played in ahead.ended()] == [2, 3]
        assert await ahead.take(7) is None

    asyncio.run(run())


def test_the_error_of_a_step_ends_what_was_to_come_and_is_raised_as_it_is():
    async def run() -> None:
        ahead, may, begun = steps_of_plays(fail=2)
        may[1].set()
        may[2].set()
        with pytest.raises(KeyError):
            await ahead.settled()
        assert begun == [1, 2]
        await ahead.__aexit__()

    asyncio.run(run())


def test_what_is_stopped_has_ended():
    async def run() -> None:
        ahead, _, begun = steps_of_plays()
        await asyncio.sleep(0)
        await ahead.__aexit__()
        assert begun == [1] and len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("fails", ["update", "play"])
def test_whichever_fails_the_run_ends_with_its_error(tmp_path, monkeypatch, fails):
    from gem_ma.training.loop import collector
    from gem_ma.training.loop.updates import Updates

    def broken(*given, **options):
        raise LookupError(fails)

    async def broken_play(*given, **options):
        raise LookupError(fails)

    if fails == "update":
        monkeypatch.setattr(Updates, "teach", broken)
    else:
        monkeypatch.setattr(collector, "grow", broken_play)
    with pytest.raises(LookupError, match=fails):
        trained(tmp_path / "run", small("train.overlap=2", *SHAPES["groups and forks"]))


@pytest.mark.long
def test_engines_that_cannot_stay_as_they_are_wait_for_the_plays(tmp_path, monkeypatch):
    """The same rule of versions, the same record."""
    from gem_ma.training.loop.local import LocalPlayers

    trained(tmp_path / "copies", small("train.overlap=2"))
    monkeypatch.setattr(LocalPlayers, "pinned", lambda self: None)
    trained(tmp_path / "waits", small("train.overlap=2"))
    assert truth(tmp_path / "copies") == truth(tmp_path / "waits")


# -- staleness -----------------------------------------------------------------------------------


def episode(*versions: int | None, policy: str = "main") -> Episode:
    """One turn per version; None is a turn of another policy."""
    turns = tuple(
        Turn(
            n,
            "a",
            (),
            None,
            (),
            Action("x"),
            (
                Reply(
                    "x", token_ids=(1,), policy=policy if v is not None else "other", version=v or 0
                ),
            ),
        )
        for n, v in enumerate(versions)
    )
    return recorded({"a": Seat("direct", policy)}, turns, scenario="s")


def test_the_lag_of_an_episode_is_that_of_its_oldest_own_turn():
    assert lag(episode(3, 5, None), "main", 5) == 2
    assert lag(episode(None), "main", 5) is None


def test_stale_episodes_are_left_out_whole_and_counted_by_length():
    batch = [episode(5), episode(3, 5, 5), episode(4, None, 5), episode(None), episode(2)]
    kept, metrics = fresh(batch, "main", 5, 1)
    assert kept == [batch[0], batch[2], batch[3]]
    assert metrics == {
        "lags": {"0": 1, "1": 1, "2": 1, "3": 1},
        "dropped_stale": 2,
        "dropped_turns": {"1": 1, "3": 1},
    }
    assert fresh(batch, "main", 5, None) == (batch, {"lags": metrics["lags"]})


def test_more_than_a_twentieth_too_old_is_told():
    told = {"lags": {"0": 19, "2": 1}, "dropped_stale": 1}
    assert warning("main", told, 1) is None
    assert (
        "policy main: 2 of 20 episodes were played with weights more than 1 publishes old"
        in str(warning("main", told | {"dropped_stale": 2}, 1))
    )


@pytest.mark.long
def test_a_policy_that_rests_keeps_fresh_what_was_played_ahead(tmp_path):
    """In turn by single steps every batch was played since the policy's own last publish; by two
    steps each second batch was not."""
    for turns, dropped in ((1, [0, 0, 0, 0, 0, 0]), (2, [0, 8, 0, 8, 0, 8])):
        path, notes = tmp_path / str(turns), []
        settings = small(
            f"train.alternate={{speaker: {turns}, listener: {turns}}}", "train.max_policy_lag=0"
        )
        asyncio.run(_noted(path, settings, notes))
        found = [next(iter(line["policies"].values())) for line in steps_of(path)]
        assert [one["dropped_stale"] for one in found] == dropped
        assert [one["dropped_turns"] for one in found] == [
            {"1": 8} if count else {} for count in dropped
        ]
        assert [one.get("optimizer_steps", 0) > 0 for one in found] == [
            not count for count in dropped
        ]
        # once per policy
        assert len([note for note in notes if "are not learned from" in note]) == (
            2 if turns == 2 else 0
        )
        assert len(list(read_episodes(path))) == 48  # the record keeps them


async def _noted(path: Path, settings: Config, notes: list[str]) -> None:
    from gem_ma.runs.plans import open_policies, scenario_of
    from gem_ma.training.train import train

    with RunFolder.open(path, config_text="", resolved=settings.model_dump(mode="json")) as folder:
        await train(
            settings, scenario_of(settings), open_policies(settings), folder, on_note=notes.append
        )


@pytest.mark.long
def test_a_bound_of_nothing_learns_from_every_second_step_and_publishes_only_then(tmp_path):
    trained(tmp_path / "run", small("train.max_policy_lag=0", "train.policies=[speaker]"))
    told = [line["policies"]["speaker"] for line in steps_of(tmp_path / "run")]
    assert [one["dropped_stale"] for one in told] == [0, 8, 0, 8, 0, 8]
    versions = [one["version"] for one in told]
    assert versions == [
        versions[0],
        versions[0],
        versions[0] + 1,
        versions[0] + 1,
        versions[0] + 2,
        versions[0] + 2,
    ]


@pytest.mark.long
def test_one_policy_may_have_a_bound_of_its_own(tmp_path):
    trained(
        tmp_path / "run",
        small("train.max_policy_lag=1", "train.per_policy.speaker.max_policy_lag=0"),
    )
    second = steps_of(tmp_path / "run")[1]["policies"]
    assert (second["speaker"]["dropped_stale"], second["listener"]["dropped_stale"]) == (8, 0)


CAPS = {
    (): 2.0,
    ("train.loss.epochs=2",): 2.0,
    ("train.loss.tis=null",): None,
    ("train.loss.tis=1.5",): 1.5,
    ("train.overlap=false",): None,
    ("train.overlap=false", "train.loss.tis=3.0"): 3.0,
}


@pytest.mark.parametrize("overrides", CAPS)
def test_what_older_weights_sampled_is_weighed_unless_the_config_says_otherwise(overrides):
    settings = small(*overrides)
    assert settings.train.loss.tis == CAPS[overrides]
    # as a resume reads resolved.yaml
    again = Config.model_validate(settings.model_dump(mode="json"))
    assert again == settings
    train = {"policies": ["speaker"], "overlap": True}
    built = [
        TrainSettings(**train),
        TrainSettings(**train, loss=LossSettings(epochs=2)),
        TrainSettings(**train, loss=LossSettings(tis=None)),
    ]
    assert [one.loss.tis for one in built] == [2.0, 2.0, None]


@pytest.mark.longest
def test_one_policy_may_weigh_otherwise_and_a_check_says_what_is_weighed(capsys):
    from gem_ma.cli.main import main

    settings = small("train.per_policy.speaker.loss.tis=null").train
    assert [settings_of(settings, name).loss.tis for name in ("speaker", "listener")] == [None, 2.0]
    assert (
        main(
            [
                "check",
                "referential_table",
                "train.overlap=true",
                "train.per_policy.speaker.loss.tis=null",
            ]
        )
        == 0
    )
    told = " ".join(capsys.readouterr().out.split())
    assert "off-policy" in told
    assert "listener by min(p / p sampled, 2)" in told
    assert "speaker not at all" in told
    assert main(["check", "referential_table"]) == 0
    assert "off-policy" not in capsys.readouterr().out
