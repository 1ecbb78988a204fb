"""Who listens to a training run: names, what is delivered once and only once, and that no
listener can hurt a run."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.store import read_metrics, read_timings
from gem_ma.runs.store.names import result_digest
from gem_ma.system.extras import install
from gem_ma.training.tracking import Facts, Tracking, flat, options_of
from tests.broken_runs import opened, trained

SMALL = (
    "train.steps=6",
    "train.episodes=8",
    "train.save_every=2",
    "evaluate.episodes=8",
    "evaluate.every=3",
    "train.warm_start.speaker.episodes=8",
)
# what the listeners of this module were told, (name, step) by (name, step)
HEARD: list[tuple[str, int]] = []
OPENED: list[Facts] = []


def small(*overrides: str) -> Config:
    return config.load(
        "referential_table", [*SMALL, "train.warm_start.listener.episodes=8", *overrides]
    ).config


class Listener:
    """Keeps what it is told."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        HEARD.extend((name, step) for name in values)
        values.clear()  # type: ignore[attr-defined]  # what it does to its copy is its own affair

    def close(self) -> None:
        HEARD.append(("closed", -1))


class Broken:
    """Fails from the third row on."""

    def __init__(self) -> None:
        self.rows = 0

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.rows += 1
        print("chatter")
        if self.rows > 2:
            raise RuntimeError("the server\nsaid no")

    def close(self) -> None:
        raise OSError("cannot even close")


def listener(facts: Facts) -> Listener:
    OPENED.append(facts)
    return Listener()


def broken(facts: Facts, at_once: bool = False) -> Broken:
    if at_once:
        raise ValueError("no luck")
    return Broken()


@pytest.fixture(autouse=True)
def silence() -> None:
    HEARD.clear()
    OPENED.clear()
    sys.modules["test_listeners"] = types.ModuleType("test_listeners")
    vars(sys.modules["test_listeners"]).update(listener=listener, broken=broken)


LISTEN = "train.log=[test_listeners:listener]"


# -- names ---------------------------------------------------------------------------------------


def test_every_kind_of_row_has_flat_names_of_finite_numbers_only() -> None:
    row = {
        "kind": "train",
        "step": 2,
        "success": None,
        "ok": True,
        "policies": {"a": {"return": {"x": 1, "y": float("nan")}, "lr": 0.5}},
        "note": "z",
    }
    assert flat(row) == {"policy/a/return/x": 1.0, "policy/a/lr": 0.5, "train/ok": 1.0}
    assert flat({"kind": "league", "step": 2, "ratings": {"main@4": 1000.0}}) == {
        "league/ratings/main@4": 1000.0
    }
    assert flat({"step": 2, "at": 5.0, "play_s": 1.0, "padding": {"a": 0.25}}) == {
        "time/play_s": 1.0,
        "time/padding/a": 0.25,
    }


# -- what is refused before a run ----------------------------------------------------------------


def test_an_unknown_tracker_or_option_is_refused_with_its_key() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"train.log: no tracker is called 'tensorbord'; trackers are tensorboard, trackio,"
            r" wandb, or package"
        ),
    ):
        options_of(["tensorbord"])
    with pytest.raises(
        ConfigError, match=r"train.log.wandb.projct: wandb has no such option; it has project, name"
    ):
        options_of({"wandb": {"projct": "x"}})
    with pytest.raises(ConfigError, match="tracker 'no_such_module:x' cannot be found"):
        options_of(["no_such_module:x"])


def test_a_missing_library_is_one_line_with_the_command_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "gem_ma.training.tracking.find_spec",
        lambda name, *rest: None if name == "wandb" else real(name, *rest),
    )
    with pytest.raises(ConfigError) as error:
        trained(tmp_path / "run", small("train.log=wandb"))
    assert (
        str(error.value)
        == f"train.log: wandb needs a library that is not installed: {install('wandb')}"
    )
    assert not list(read_metrics(tmp_path / "run"))


def test_who_listens_does_not_change_the_run_folder() -> None:
    plain, heard = (
        small(*more).model_dump(mode="json")
        for more in ((), ("train.log={wandb: {mode: offline}, tensorboard: }",))
    )
    assert heard["train"]["log"] == {"wandb": {"mode": "offline"}, "tensorboard": {}}
    assert result_digest(plain) == result_digest(heard)
    assert small("train.log=trackio").train.log == ["trackio"]  # type: ignore[union-attr]


# -- what is delivered ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_listener_gets_every_number_of_the_run_once_and_changes_nothing(tmp_path: Path) -> None:
    trained(tmp_path / "alone", small())
    trained(tmp_path / "heard", small(LISTEN))
    for file in ("metrics.jsonl", "episodes.jsonl"):
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "heard" / file).read_bytes()
    rows = [(name, row["step"]) for row in read_metrics(tmp_path / "heard") for name in flat(row)]
    times = [
        (name, step) for step, row in read_timings(tmp_path / "heard").items() for name in flat(row)
    ]
    assert sorted(HEARD) == sorted([*rows, *times, ("closed", -1)])
    assert ("policy/speaker/kl", 1) in HEARD and ("time/play_s", 6) in HEARD
    steps = [step for _, step in HEARD[:-1]]
    assert steps == sorted(steps)


class Stop(Exception):
    pass


def stop_at(step: int) -> Any:
    def on_step(now: int, metrics: dict[str, Any]) -> None:
        if now == step:
            raise Stop

    return on_step


@pytest.mark.long
def test_a_run_taken_up_again_gives_each_tracker_only_what_it_has_not_got(tmp_path: Path) -> None:
    trained(tmp_path / "whole", small(LISTEN))
    whole = sorted(HEARD)
    HEARD.clear()
    with pytest.raises(Stop):
        # its checkpoint is of step 2: step 3 is made twice
        trained(tmp_path / "run", small(LISTEN), on_step=stop_at(3))
    assert ("policy/speaker/kl", 3) in HEARD
    HEARD.remove(("closed", -1))
    trained(tmp_path / "run", small(LISTEN))
    without_rates = [
        [one for one in heard if "_per_s" not in one[0]] for heard in (sorted(HEARD), whole)
    ]
    assert without_rates[0] == without_rates[1]
    assert OPENED[1].id == OPENED[2].id != OPENED[0].id
    assert "policies.speaker.model" in OPENED[1].settings
    assert not any("api_key" in key for key in OPENED[1].settings)


@pytest.mark.long
def test_a_tracker_named_later_gets_the_steps_before_it_too(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        trained(tmp_path / "run", small(), on_step=stop_at(4))
    trained(tmp_path / "run", small(LISTEN))
    assert [step for name, step in HEARD if name == "policy/speaker/kl"] == [1, 2, 3, 4, 5, 6]
    assert [step for name, step in HEARD if name == "evaluation/sampled/ok"] == [0, 3, 6]
    assert [step for name, step in HEARD if name == "time/step_s"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.long
def test_damaged_notes_and_timings_cost_no_run(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        trained(tmp_path / "run", small(LISTEN), on_step=stop_at(4))
    for damage in ("{", '{"id": 3, "delivered": {"test_listeners:listener": {"step": "x"}}}', "[]"):
        (tmp_path / "run" / "tracking.json").write_text(damage)
        (tmp_path / "run" / "timings.jsonl").write_bytes(
            b'\xff\n{"step": 1, "play_s": "x"}\n[1]\n{"st'
        )
        with (
            opened(tmp_path / "run", small()) as folder,
            Tracking(folder, ["test_listeners:listener"]) as tracking,
        ):
            tracking.start(4)
    assert trained(tmp_path / "run", small(LISTEN))["steps"] == 6


# -- faults --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("at_once", [False, True])
def test_a_tracker_that_fails_is_told_once_and_the_run_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at_once: bool
) -> None:
    import asyncio

    from gem_ma.runs.plans import scenario_of
    from gem_ma.training.train import train

    trained(tmp_path / "alone", small())
    settings = small(
        f"train.log={{test_listeners:broken: {{at_once: {str(at_once).lower()}}},"
        " test_listeners:listener: }"
    )
    notes: list[str] = []
    policies: Mapping[str, Policy] = open_policies(settings)
    with opened(tmp_path / "run", settings) as folder:
        asyncio.run(train(settings, scenario_of(settings), policies, folder, on_note=notes.append))
    said = "ValueError: no luck" if at_once else "RuntimeError: the server said no"
    assert notes == [
        f"tracker test_listeners:broken is off: {said}; training goes on, metrics.jsonl has every"
        " number (train.log)"
    ]
    assert capsys.readouterr().out == ""
    # the other one hears on
    assert [step for name, step in HEARD if name == "policy/speaker/kl"] == [1, 2, 3, 4, 5, 6]
    for file in ("metrics.jsonl", "episodes.jsonl", "summary.json"):
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()


@pytest.mark.long
def test_wandb_goes_on_in_its_run_and_may_fail_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Any]] = []

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            HEARD.extend((name, step) for name in values)
            if step == 5:
                raise ConnectionError("gone")

        def finish(self) -> None:
            HEARD.append(("finished", -1))

    module = types.ModuleType("wandb")
    vars(module)["init"] = lambda **given: begun.append(given) or Run()
    monkeypatch.setitem(sys.modules, "wandb", module)
    settings = small("train.log={wandb: {project: p, mode: offline}}")
    with pytest.raises(Stop):
        trained(tmp_path / "run", settings, on_step=stop_at(3))
    assert HEARD.pop() == ("finished", -1)
    trained(tmp_path / "run", settings)
    assert [step for name, step in HEARD if name == "policy/listener/kl"] == [1, 2, 3, 4, 5]
    assert begun[0]["id"] == begun[1]["id"] and {one["resume"] for one in begun} == {"allow"}
    assert begun[0]["project"] == "p"
    assert begun[0]["mode"] == "offline"
    assert begun[0]["name"] == "run"


# -- TensorBoard, for real -----------------------------------------------------------------------


def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Tag -> (step, value, wall time) as the library reads them back."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: dict[str, list[tuple[int, float, float]]] = {}
    files = list(folder.glob("events.out.tfevents.*"))
    for event in EventFileLoader(str(files[0])).Load() if len(files) == 1 else ():
        for value in event.summary.value:
            number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
            found.setdefault(value.tag, []).append((event.step, number, event.wall_time))
    return found


@pytest.mark.long
def test_event_files_hold_every_number_of_metrics_once_also_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="an extra: pip install gem-ma[tensorboard]")
    settings = small("train.log=tensorboard")
    with pytest.raises(Stop):
        trained(tmp_path / "run", settings, on_step=stop_at(3))
    ended = read_timings(tmp_path / "run")[1]["at"]
    trained(tmp_path / "run", settings)
    found = scalars(tmp_path / "run" / "tensorboard")
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in read_metrics(tmp_path / "run"):
        for name, value in flat(row).items():
            wanted.setdefault(name, []).append((row["step"], value))
    assert {name for name in found if not name.startswith("time/")} == set(wanted)
    for name, points in wanted.items():
        assert [step for step, _, _ in found[name]] == [step for step, _ in points]
        assert [value for _, value, _ in found[name]] == pytest.approx(
            [value for _, value in points], rel=1e-6
        )
    assert [step for step, _, _ in found["time/play_s"]] == [1, 2, 3, 4, 5, 6]
    # an old step keeps its time
    assert found["policy/speaker/kl"][0][2] == pytest.approx(ended, abs=0.01)


@pytest.mark.long
def test_the_note_of_who_has_what_is_json_and_without_settings(tmp_path: Path) -> None:
    trained(tmp_path / "run", small(LISTEN))
    note = json.loads((tmp_path / "run" / "tracking.json").read_text())
    assert note["delivered"] == {
        "test_listeners:listener": {"step": 6, "labels": ["evaluation", "time", "train"]}
    }
    assert set(note) == {"id", "delivered"}
