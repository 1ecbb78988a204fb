"""The wheel holds exactly what is tracked, and a module exists once, in a checkout and
installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKED = ("gem_ma", "scenarios", "agents", "configs", "docs")


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with the working tree's tracked files, built into an sdist and from it a wheel."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout: it compares the wheel with the tracked files")
    clone = tmp_path_factory.mktemp("clone")
    for name in run("git", "ls-files").stdout.split("\n"):
        if name and (ROOT / name).is_file():
            target = clone / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    made = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", clone / "dist", clone)
    assert made.returncode == 0, made.stderr
    return clone


@pytest.mark.longest
def test_the_wheel_holds_exactly_the_tracked_files(built: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = [
        name for name in run("git", "ls-files", *PACKED).stdout.split() if (ROOT / name).is_file()
    ]
    assert packed == {name if name.startswith("gem_ma/") else f"gem_ma/{name}" for name in tracked}


@pytest.mark.longest
def test_the_source_archive_builds_the_wheel_and_holds_no_run_folder(built: Path) -> None:
    (archive,) = (built / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert any(name.endswith("/scenarios/__init__.py") for name in names)
    assert not [name for name in names if name.split("/")[1] == "runs"]


@pytest.mark.longest
def test_an_installed_wheel_finds_scenarios_agents_and_configs_from_anywhere(
    built: Path, tmp_path: Path
) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, 'site'); import gem_ma; from importlib.resources import"
        " files;from gem_ma.registry import catalog, load;[load(kind, name) for kind in"
        " ('scenarios', 'agents') for name in catalog(kind)];print(gem_ma.__file__,"
        " len(list(files('gem_ma.configs').iterdir())))"
    )
    done = run(sys.executable, "-P", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "site" in done.stdout


@pytest.mark.parametrize("module", ["scenarios.kuhn", "agents.bots", "gem_ma.gem_ma.types"])
def test_a_module_cannot_exist_twice(module: str) -> None:
    done = run(sys.executable, "-c", f"import {module}")
    assert done.returncode != 0
    assert "import this package as gem_ma" in done.stderr
