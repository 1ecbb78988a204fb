"""Tab in a shell: commands, options, scenarios, configs and runs are offered; whatever lies
around, the answer is quick and never fails."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gem_ma.cli.completion import SHELLS
from tests.command_line import environment, gem_ma


def offered(words: str, cwd: Path) -> tuple[int, set[str], str]:
    """What bash is offered after these words, the last of them half typed."""
    request = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_GEM_MA_COMPLETE": "bash_complete",
    }
    done = gem_ma(cwd=cwd, **request)
    return (
        done.returncode,
        {line.partition(",")[2] for line in done.stdout.splitlines()},
        done.stderr,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str, tmp_path: Path) -> None:
    printed = gem_ma("completion", shell, cwd=tmp_path)
    asked = gem_ma(cwd=tmp_path, _GEM_MA_COMPLETE=f"{shell}_source")
    for done in (printed, asked):
        assert done.returncode == 0 and "_GEM_MA_COMPLETE" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("gem-ma ru", {"run"}),
        ("gem-ma run --fr", {"--fresh"}),
        # scenarios, configs, and the paths that begin so
        ("gem-ma run kuhn", {"kuhn_poker", "kuhn_table", "kuhn_of_mine.py", "kuhn_notes/"}),
        ("gem-ma train gue", {"guess_number"}),
        ("gem-ma run zzz", {"zzz"}),  # no name begins so: the shell offers its own files
        ("gem-ma resume mi", {"mine-01"}),
        ("gem-ma show runs/mi", {"runs/mine-01"}),
        ("gem-ma list con", {"configs"}),
        ("gem-ma completion z", {"zsh"}),
    ],
)
def test_what_is_offered(words: str, wanted: set[str], tmp_path: Path) -> None:
    lying_around(tmp_path)
    code, offers, said = offered(words, tmp_path)
    assert code == 0 and wanted <= offers and said == ""


def lying_around(folder: Path) -> None:
    (folder / "runs" / "mine-01").mkdir(parents=True)
    # what stands in it is nobody's business here
    (folder / "runs" / "mine-01" / "manifest.json").write_text("no JSON {")
    (folder / "kuhn_notes").mkdir()
    for name in ("kuhn_of_mine.py", "kuhn_notes.txt"):
        (folder / name).write_text("")


@pytest.mark.longest
@pytest.mark.parametrize(
    ("words", "wanted", "unwanted"),
    [
        (
            "gem-ma run kuhn",
            {"kuhn_poker", "kuhn_table", "kuhn_of_mine.py", "kuhn_notes/"},
            {"kuhn_notes.txt"},
        ),
        ("gem-ma resume runs/mi", {"runs/mine-01"}, set()),
        # bash offers its own files where it is offered nothing
        ("gem-ma check ./kuhn_n", set(), {"kuhn_poker"}),
    ],
)
def test_what_a_real_bash_is_left_with(
    words: str, wanted: set[str], unwanted: set[str], tmp_path: Path
) -> None:
    """The script of the shell throws some answers away, so its answer counts and not what the
    program printed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    lying_around(tmp_path)
    (tmp_path / "gem-ma").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gem_ma "$@"\n')
    (tmp_path / "gem-ma").chmod(0o755)
    typed = words.split(" ")
    script = gem_ma("completion", "bash", cwd=tmp_path).stdout
    script += (
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; compopt() {{ :; }}; _gem_ma_completion"
        " ./gem-ma\n"
    )
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    offers = set(done.stdout.split("\n")) - {""}
    assert done.returncode == 0 and done.stderr == ""
    assert wanted <= offers and not unwanted & offers and (wanted or not offers)


def test_a_tab_runs_no_code_of_the_folder_and_outlives_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('ran')")
    (tmp_path / "runs").write_text("a file")
    for words in (
        "gem-ma run trap.py",
        "gem-ma run tr",
        "gem-ma show ru",
        "gem-ma nonsense x",
        "gem-ma run trap:X --o",
    ):
        code, _, said = offered(words, tmp_path)
        assert code == 0 and said == "", words
