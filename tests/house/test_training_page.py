"""docs/training.md: every command is one that training takes, and the table of estimators is the
registry's."""

import inspect
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from gem_ma.config.loading import load
from gem_ma.credit.estimators import ESTIMATORS, columns
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.schedule.checks import check_discounts, checked
from gem_ma.training.train import Trainer

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()] + re.findall(
    r"`(gem-ma train [^`]+)`", PAGE
)
TRAINED = [line for line in dict.fromkeys(COMMANDS) if re.match(r"gem-ma (train|check) ", line)]


@pytest.mark.parametrize("line", TRAINED)
def test_a_command_of_the_page_is_one_that_training_takes(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # shipped configs are found by their names from anywhere
    source, *overrides = [
        word
        for word in shlex.split(line, comments=True)[2:]
        if word not in ("--processes", "2", "--ray", "local")
    ]
    loaded = load(source, overrides)
    settings = checked(loaded.config, loaded.config.policies)
    check_discounts(worlds_of(loaded.config), settings)


def test_the_page_has_many_commands() -> None:
    assert len(TRAINED) > 20


def test_the_table_of_estimators_is_the_registry() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| `") and line.count("|") == 9
    ]
    table = {row[0].strip("`"): row[2:] for row in rows}
    assert list(table) == list(ESTIMATORS)
    where = {
        "ret": "turns",
        "reward": "turns",
        "rows": "turns",
        "gae": "turns",
        "total": "episodes",
        "": "",
    }
    words = {True: "yes", False: "no"}
    for name, found in ESTIMATORS.items():
        key, options, zero, offset, scale, unbiased = table[name]
        assert key == (", ".join(columns(found.key)) or "none"), name
        assert options.strip("`") == ", ".join(found.options), name
        assert zero == where[found.centred], name
        assert (offset, scale, unbiased) == (
            words[found.offset],
            words[found.scale],
            words[found.unbiased],
        ), name
    loud = re.search(r"exact zeros, except under ([^.]+)\.", PAGE)
    assert loud is not None and re.findall(r"`(\w+)`", loud[1]) == [
        name for name, found in ESTIMATORS.items() if not found.silent and not found.critic
    ]


def test_the_loop_of_the_page_is_the_loop_of_the_file() -> None:
    page, source = PAGE, textwrap.dedent(inspect.getsource(Trainer.train))
    loop = page.split("```text\n")[1].split("```")[0].strip().splitlines()
    assert source.splitlines()[-len(loop) :] == [f"    {line}" for line in loop]
    assert len(loop) <= 15
