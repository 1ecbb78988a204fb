"""What may change when a run goes on: an override on the command line, noted in the manifest;
never an edit of resolved.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gem_ma.cli.main import group
from gem_ma.cli.stopping import exit_code
from gem_ma.kernel.errors import GemMaError
from gem_ma.runs.store import names, read_manifest


def gem_ma(*words: object) -> tuple[int, str]:
    """Exit code and message of a command, in this process."""
    result = CliRunner().invoke(group, [str(word) for word in words], standalone_mode=False)
    if isinstance(result.exception, GemMaError):
        return exit_code(result.exception), str(result.exception)
    assert result.exception is None, result.exception
    return int(result.return_value or 0), result.output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    assert gem_ma("run", "dilemma", "-n", "3", "--out", tmp_path / "run", "--quiet")[0] == 0
    return tmp_path / "run"


EDITS = {
    "a seed": lambda text: text.replace("seed: 0", "seed: 4"),
    "more tasks": lambda text: text.replace("tasks: 3", "tasks: 9"),
    # one that no result depends on
    "a limit": lambda text: text.replace("concurrency: ", "concurrency: 1"),
    "another player": (
        lambda text: text.replace("behaviour: tit_for_tat", "behaviour: always_defect").replace(
            "random_legal", "silent"
        )
    ),
    "a key less": lambda text: text.replace("  max_failed: 0\n", ""),
    "the scenario": lambda text: text.replace("id: dilemma", "id: kuhn_poker"),
}


@pytest.mark.parametrize(
    ("edit", "again"), [*((edit, "resume") for edit in EDITS), ("a seed", "run")]
)
def test_an_edited_resolved_file_is_refused_and_nothing_is_played(
    run: Path, edit: str, again: str
) -> None:
    file, lines = run / "resolved.yaml", (run / "episodes.jsonl").read_bytes()
    before = file.read_text()
    file.write_text(EDITS[edit](before))
    if file.read_text() == before:
        pytest.skip("this run has no such line")
    words = ["resume", run] if again == "resume" else ["run", "dilemma", "-n", "3", "--out", run]
    code, said = gem_ma(*words, "--quiet")
    assert code == 2 and "resolved.yaml" in said, said
    assert (run / "episodes.jsonl").read_bytes() == lines
    file.write_text(before)
    assert gem_ma(*words, "--quiet")[0] == 0


def test_another_layout_of_the_same_settings_is_no_edit(run: Path) -> None:
    file = run / "resolved.yaml"
    file.write_text("# looked at by hand\n" + file.read_text())
    assert gem_ma("resume", run, "--quiet")[0] == 0


def test_a_folder_of_an_older_version_has_no_digest_and_goes_on(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["resolved"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert gem_ma("resume", run, "--quiet")[0] == 0


def test_a_setting_that_no_result_depends_on_is_typed_and_one_that_changes_results_is_refused(
    run: Path,
) -> None:
    assert gem_ma("resume", run, "run.concurrency=2", "limits.usd=5", "--quiet")[0] == 0
    assert "resumed" not in read_manifest(run)
    code, said = gem_ma("resume", run, "run.seed=9", "--quiet")
    assert code == 2 and "run.seed (was 0, now 9)" in said


@pytest.mark.long
def test_what_may_change_at_resume_is_noted_and_holds_from_then_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "run.episodes_per_task"
    monkeypatch.setattr(names, "RESUME_KEYS", (key,))
    monkeypatch.setattr("gem_ma.runs.store.manifest.RESUME_KEYS", (key,))
    resolved = (run / "resolved.yaml").read_bytes()
    assert gem_ma("resume", run, f"{key}=2", "--quiet")[0] == 0
    assert len((run / "episodes.jsonl").read_bytes().splitlines()) == 6
    (noted,) = read_manifest(run)["resumed"]
    assert noted["changed"] == {key: [1, 2]} and noted["at"]
    assert (run / "resolved.yaml").read_bytes() == resolved
    assert gem_ma("resume", run, "--quiet")[0] == 0  # two episodes a task are its settings now
    assert len(read_manifest(run)["resumed"]) == 1
    assert gem_ma("run", "dilemma", "-n", "3", "--out", run, "--quiet")[0] == 2
    assert gem_ma("resume", run, f"{key}=3", "--quiet")[0] == 0
    assert [one["changed"][key] for one in read_manifest(run)["resumed"]] == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    "damage",
    [
        1,
        "x",
        {},
        [1],
        [{"changed": 1}],
        [{"changed": {"run.seed": 1}}],
        [{"changed": {"no.such": [1, 2]}}],
    ],
)
def test_a_damaged_note_is_one_line(run: Path, damage: object) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "resumed": damage}))
    code, said = gem_ma("resume", run, "--quiet")
    assert code in (1, 2) and "\n" not in said.strip(), said
