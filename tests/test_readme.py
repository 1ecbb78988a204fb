"""Every block of the README does what it says: Python runs as it stands, commands run, configs are valid."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = [line.split("#")[0].strip() for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]


def test_the_python_blocks_run_in_order() -> None:
    names: dict[str, object] = {"__name__": "readme"}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "README.md", "exec"), names)  # our own text, not a model's
    assert names["terminated"] in (True, False)


def test_the_yaml_blocks_are_configs(tmp_path: Path) -> None:
    from gem_ma.config import load

    for kind, text in BLOCKS:
        if kind == "yaml":
            path = tmp_path / "readme.yaml"
            path.write_text(text, encoding="utf-8")
            assert load(path).config.train is not None


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("gem-ma ") and "train configs/" not in line and "demo" not in line])
def test_a_command_of_the_readme_ends_well(line: str, tmp_path: Path) -> None:
    arguments = shlex.split(line.replace("models/", f"{tmp_path}/models/"))[1:]
    if arguments[0] == "run":
        arguments += ["--out", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run([sys.executable, "-m", "gem_ma", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("gem-ma train")])
def test_a_training_of_the_readme_is_a_valid_config(line: str, tmp_path: Path) -> None:
    from gem_ma.config import load

    _, _, source, *overrides = shlex.split(line)
    assert load(ROOT / source, overrides).config.train is not None


def test_the_readme_names_no_file_that_is_not_there() -> None:
    for name in re.findall(r"`((?:gem_ma|scenarios|agents|configs|docs|tests)/[\w./-]*)`", README):
        assert (ROOT / name).exists(), name
