"""The commands from Python: what they give, that they are taken up by the commands, and that asking
for a name costs nothing that it does not need."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.cli.main import main
from gem_ma.config.settings import Config
from gem_ma.runs.playing import wait

KUHN = ["train.steps=2", "train.episodes=8", "evaluate.episodes=4"]


@pytest.mark.long
def test_training_gives_the_summary_and_a_folder_that_the_command_takes_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[int] = []
    summary = gem_ma.train(
        "kuhn_table", KUHN, out=tmp_path / "run", on_step=lambda step, metrics: steps.append(step)
    )
    assert steps == [1, 2] and summary["run"] == str(tmp_path / "run")
    assert summary["steps"] == 2 and summary["learned"] == summary["changed"] == ["main"]
    again = gem_ma.train("kuhn_table", KUHN, out=tmp_path / "run", on_step=lambda *_: 1 / 0)
    assert again["after"] == json.loads(json.dumps(summary["after"]))  # nothing was learned anew
    typed = ["train", "kuhn_table", *KUHN, "--out", str(tmp_path / "run"), "--json", "--quiet"]
    assert main(typed) == 0
    assert json.loads(capsys.readouterr().out)["after"] == again["after"]


def test_a_run_gives_its_score_and_plays_only_what_is_left(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = gem_ma.run("dilemma", ["scenario.tasks=2"], out=out)
    assert (first["run"], first["episodes"], first["failed"]) == (str(out), 2, 0)
    assert gem_ma.run("dilemma", ["scenario.tasks=3"], out=out)["episodes"] == 3
    written = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert written["episodes"] == 3
    assert len(list(gem_ma.read_episodes(out))) == 3


def test_a_notebook_whose_loop_runs_already_can_play(tmp_path: Path) -> None:
    async def cell() -> dict[str, Any]:
        return gem_ma.run("dilemma", ["scenario.tasks=1"], out=tmp_path / "run")

    assert asyncio.run(cell())["episodes"] == 1


def test_what_the_caller_has_set_is_set_in_the_thread_of_a_notebook_too() -> None:
    place: ContextVar[str] = ContextVar("place", default="nowhere")

    async def work() -> str:
        return place.get()

    async def cell() -> str:
        place.set("here")
        return str(wait(work()))

    assert asyncio.run(cell()) == "here"


def test_a_config_may_be_a_name_a_loaded_one_or_made_in_python(tmp_path: Path) -> None:
    loaded = gem_ma.load_config("kuhn_table", ["run.seed=7"])
    made = Config.model_validate(loaded.config.model_dump())
    for number, source in enumerate((loaded, made)):
        assert gem_ma.load_config(source).config.run.seed == 7
        assert list(gem_ma.open_policies(source)) == ["main"]
        score = gem_ma.run(gem_ma.load_config(source), out=tmp_path / str(number))
        assert score["failed"] == 0
    with pytest.raises(gem_ma.ConfigError, match="too late"):
        gem_ma.load_config(loaded, ["run.seed=8"])


def test_every_public_name_is_there() -> None:
    assert [name for name in gem_ma.__all__ if not hasattr(gem_ma, name)] == []
    wanted = {
        "Play",
        "ConfigError",
        "check_scenario",
        "load_config",
        "open_policies",
        "run",
        "train",
    }
    assert wanted <= set(gem_ma.__all__) and len(set(gem_ma.__all__)) == len(gem_ma.__all__)
