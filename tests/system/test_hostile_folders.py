"""A run folder may come from a stranger: whatever stands in place of a file or folder of ours,
nothing outside is touched and nothing hangs."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from gem_ma.kernel.errors import StoreError
from gem_ma.system import files
from tests.hostile import KINDS, Folders, entries, make, one_line, plant, state

OPENED = ("episodes.jsonl", "metrics.jsonl", ".lock")  # by every writer
BESIDE = ("interrupted.jsonl", "forks.jsonl", "timings.jsonl", "episodes.torn", "metrics.torn", "media", "models", "league", ".summary.json.tmp")  # fmt: skip
# where several folders hold the same files: steps, baselines, cells
TWINS = re.compile(r"step-\d+|(?<=baselines/)[a-z-]+[0-9a-f]{8}|^(loyal|random)-[0-9a-f]{8}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return make(tmp_path_factory.mktemp("whole"))


def copied(whole: Folders, name: str, target: Path) -> Folders:
    # without their times and modes, which nothing here reads and which take a third of the copying
    shutil.copytree(whole.root / name, target / name, copy_function=shutil.copyfile)
    for config in whole.root.glob("*.yaml"):
        shutil.copyfile(config, target / config.name)
    return Folders(target)


def places(folder: Path, what: str) -> list[str]:
    """Every entry but twins, and what may stand beside. They are opened by one module: each is a
    link, and one of the other kinds; what every writer opens is each of them."""
    last = {TWINS.sub("", entry): entry for entry in entries(folder)}
    beside = BESIDE if folder.name != "study" else ()
    found = [*last.values(), *(name for name in beside if name not in last)]
    if what in ("link", "hard link"):
        return found
    others = [kind for kind in KINDS if kind not in ("link", "hard link")]
    return [
        entry
        for number, entry in enumerate(found)
        if entry in OPENED or others[number % len(others)] == what
    ]


@pytest.mark.long
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("name", ["run", "train", "study"])
def test_nothing_outside_is_touched_and_nothing_hangs(
    whole: Folders, tmp_path: Path, name: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for number, entry in enumerate(places(whole.root / name, what)):
        here, outside = tmp_path / str(number), tmp_path / f"outside-{number}"
        folders = copied(whole, name, here)
        place = folders.root / name / entry
        # what is written without a rename
        in_place = place.suffix in (".jsonl", ".torn") or place.name == ".lock"
        if (what == "hard link" and not in_place) or not plant(place, what, outside):
            continue
        before = state(outside)
        commands = folders.commands(name)
        codes = {
            words[0]: one_line(capsys, words) for words in commands[: 4 if name == "run" else 3]
        }
        assert state(outside) == before, (entry, codes)
        sure = {"hard link": place.name in OPENED, "folder": "/" not in entry and "." in entry}.get(
            what, True
        )
        assert (
            all(code for command, code in codes.items() if command not in ("list", "show"))
            or not sure
        ), (entry, codes)
        shutil.rmtree(here)


@pytest.mark.long
@pytest.mark.parametrize("what", ["link", "pipe", "device", "folder"])
def test_checking_the_config_of_a_run_follows_no_link(
    whole: Folders, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = copied(whole, "run", tmp_path)
    plant(tmp_path / "run" / "resolved.yaml", what, tmp_path / "outside")
    assert one_line(capsys, folders.commands("run")[-1])


def test_a_run_folder_that_the_user_names_by_a_link_is_the_one_behind_it(
    whole: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(whole, "run", tmp_path)
    (tmp_path / "named").symlink_to("run")
    for words in (
        ["show", "named"],
        ["resume", "named", "--quiet"],
        ["run", "guess_number", "-n", "2", "--out", "named", "--quiet"],
    ):
        assert (
            one_line(capsys, [word.replace("named", str(tmp_path / "named")) for word in words])
            == 0
        )
    assert (tmp_path / "named").is_symlink()


@pytest.mark.parametrize("place", ["run", "run/models", "run/models/main"])
def test_a_model_in_a_run_folder_is_opened_without_following_links_and_one_elsewhere_may_be_one(
    whole: Folders, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole.root / "train", tmp_path / "run")
    (tmp_path / place).rename(tmp_path / "moved")
    (tmp_path / place).symlink_to(tmp_path / "moved")
    words = [
        "run",
        "kuhn_poker",
        "-n",
        "1",
        "--quiet",
        "--out",
        str(tmp_path / "out"),
        "agents.player_0.behaviour=direct",
    ]
    code = one_line(capsys, [*words, f"agents.player_0.model=table/{tmp_path}/run/models/main"])
    assert code == (0 if place == "run" else 2)


def test_a_cache_of_replies_follows_no_link_and_hangs_on_no_pipe(tmp_path: Path) -> None:
    from gem_ma.engines.api.reply_cache import ReplyCache
    from gem_ma.kernel.types import Reply

    cache, victim = ReplyCache(tmp_path / "cache"), tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "cache" / "aa").symlink_to(victim)
    cache.put("aa" + "0" * 62, Reply("x"))
    assert cache.get("aa" + "0" * 62) is None and not list(victim.iterdir())
    (tmp_path / "cache" / "bb").mkdir()
    os.mkfifo(tmp_path / "cache" / "bb" / f"{'0' * 62}.json")
    assert cache.get("bb" + "0" * 62) is None
    cache.put("cc" + "0" * 62, Reply("x"))
    assert cache.get("cc" + "0" * 62) == Reply("x")


@pytest.mark.parametrize(
    ("held", "named", "told"),
    [
        ("run/notes.jsonl", "notes.jsonl", "run/notes.jsonl"),
        ("run", ".lock", "run/.lock"),
        ("run", "run/.lock", "run/.lock"),
        ("run", "here.txt", "here.txt"),
        ("away/run", "away", "away"),
        ("run", None, "run"),
    ],
)
def test_what_the_system_refuses_is_named_as_it_is_found_from_here(
    held: str, named: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("here.txt").touch()
    with pytest.raises(StoreError) as caught, files.oserror(Path(held)):
        raise PermissionError(errno.EACCES, "Permission denied", named)
    assert str(caught.value) == f"{told}: Permission denied"
