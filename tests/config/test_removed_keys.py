"""Keys that a config no longer has: one line with the place and what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from gem_ma.config.loading import load
from gem_ma.config.schema import REMOVED, VALUES
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store.names import changed_keys

PAGE = (Path(__file__).parents[2] / "docs" / "config_changes.md").read_text()


OF_TRAINING = [removed for removed in REMOVED if removed.key.startswith("train.")]


@pytest.mark.parametrize("removed", OF_TRAINING, ids=lambda removed: removed.key)
def test_a_key_that_went_is_one_line_with_its_advice(removed, tmp_path: Path) -> None:
    assert f"| `{removed.key}` |" in PAGE and removed.instead in PAGE
    short = removed.key.removeprefix("train.").split(".")
    text = f"  {short[0]}:\n    {short[1]}: 7\n" + "    width: 2\n" * (short[0] == "fork")
    config = tmp_path / "old.yaml"
    config.write_text("extends: base.yaml\ntrain:\n  policies: [main]\n" + text)
    base = "scenario: {id: kuhn_poker}\nagents: {player_*: {policy: main}}\n"
    (tmp_path / "base.yaml").write_text(base + "policies: {main: {model: table/softmax}}\n")
    with pytest.raises(ConfigError) as caught:
        load(config)
    wanted = f"{config}:5: {removed.key}: this key is no longer there; {removed.instead}"
    assert str(caught.value) == wanted
    # a folder of an older run holds the value that asked for nothing
    config.write_text(config.read_text().replace(": 7\n", f": {_yaml(removed.off[0])}\n"))
    load(config)
    section = {"other": 1, short[1]: removed.off[0]}
    assert not changed_keys({"train": {short[0]: section}}, {"train": {short[0]: {"other": 1}}})


def _yaml(value: object) -> str:
    return "null" if value is None else str(value)


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_a_value_that_went_is_one_line_with_its_advice(key: str, value: str) -> None:
    assert f"| `{key}: {value}` |" in PAGE
    with pytest.raises(ConfigError, match=f"{key}: {value} is no longer there; use warn"):
        load("kuhn_table", [f"{key}={value}"], configs_first=True)


def test_what_one_policy_says_in_its_own_way_is_looked_at_too() -> None:
    key = "train.per_policy.main.loss.dual_clip"
    with pytest.raises(ConfigError, match=f"{key}: this key is no longer there; use surrogate"):
        load("kuhn_table", [f"{key}=3"], configs_first=True)
    load("kuhn_table", [f"{key}=null"], configs_first=True)


@pytest.mark.parametrize(
    "removed",
    [removed for removed in REMOVED if removed not in OF_TRAINING],
    ids=lambda removed: removed.key,
)
def test_an_option_of_a_scenario_that_went_has_its_advice_too(removed) -> None:
    assert f"| `{removed.key}` |" in PAGE and removed.instead in PAGE
    with pytest.raises(ConfigError) as caught:
        load("retail_scripted", [f"{removed.key}=7"])
    wanted = f"command line: {removed.key}: this key is no longer there; {removed.instead}"
    assert str(caught.value) == wanted
    for value in removed.off:
        load("retail_scripted", [f"{removed.key}={str(value).lower()}"])
