"""What the provenance of a data folder reads: a commit inside `.git`, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gem_ma.scenarios.service_desk.retail.store.source import commit_of, read_bytes

from gem_ma.kernel.errors import DataError

COMMIT, LONG = "0123456789abcdef" * 2 + "01234567", "0123456789abcdef" * 4


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "data" / ".git" / "refs" / "heads" / "work").mkdir(parents=True)
    (tmp_path / "secret").write_text("root:x:0:0")
    (tmp_path / "commit").write_text(COMMIT)
    return tmp_path / "data"


def git(folder: Path, **files: str) -> str | None:
    for name, text in files.items():
        (
            folder
            / ".git"
            / name.replace("__", "/").replace("_", "-" if name == "packed_refs" else "_")
        ).write_text(text)
    return commit_of(folder)


@pytest.mark.parametrize("commit", [COMMIT, LONG])
def test_a_commit_is_found_where_git_puts_it(checkout: Path, commit: str) -> None:
    assert git(checkout, HEAD=f"{commit}\n") == commit
    assert (
        git(
            checkout,
            HEAD="ref: refs/heads/work/a-b.c\n",
            packed_refs=f"# pack-refs\n{commit} refs/heads/work/a-b.c\n",
        )
        == commit
    )
    (checkout / ".git/refs/heads/work/a-b.c").write_text(f"{commit}\n")
    assert git(checkout, packed_refs="") == commit
    assert commit_of(checkout / "absent", checkout) == commit


HEADS = [
    "ref: ../../secret",
    "ref: /etc/passwd",
    "ref: refs/../../../secret",
    "ref: HEAD",
    "ref: refs/heads/.hidden",
    "root:x:0:0",
    "",
    COMMIT[:-1],
    COMMIT + "z",
]


@pytest.mark.parametrize("head", HEADS)
def test_nothing_but_a_commit_of_this_checkout_is_read(checkout: Path, head: str) -> None:
    assert git(checkout, HEAD=head) is None


@pytest.mark.parametrize("planted", ["HEAD", "refs/heads/main", "packed-refs", "refs", ".git"])
@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_file_of_git_is_not_opened(
    checkout: Path, tmp_path: Path, planted: str, what: str
) -> None:
    (checkout / ".git/HEAD").write_text("ref: refs/heads/main")
    (checkout / ".git/refs/heads/main").write_text(COMMIT)
    place = checkout / ".git" / planted if planted != ".git" else checkout / ".git"
    if planted == "packed-refs":
        (checkout / ".git/refs/heads/main").unlink()
    if place.exists():
        place.rename(tmp_path / "moved")
    if what == "link":
        place.symlink_to(
            tmp_path / "moved" if (tmp_path / "moved").exists() else tmp_path / "commit"
        )
    elif what == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert commit_of(checkout) is None


def test_a_worktree_says_nothing_of_the_folder_it_points_to(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git/HEAD").write_text(COMMIT)
    (checkout / ".git").rename(tmp_path / "elsewhere")
    (checkout / ".git").write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    assert commit_of(checkout) is None


def test_a_pipe_or_a_device_among_the_tables_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "users.json")
    for path in (tmp_path / "users.json", Path("/dev/zero"), tmp_path):
        with pytest.raises(DataError, match="not a regular file"):
            read_bytes(path)
