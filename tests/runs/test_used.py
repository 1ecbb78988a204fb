"""Which files of the user's own a run has used: helpers, links, data that code opens, notebooks,
older folders; and what was said of plays, whose code is gone."""

from __future__ import annotations

import json
import linecache
import os
import py_compile
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from gem_ma import ConfigError, registry
from gem_ma import run as open_run
from gem_ma.cli import report
from gem_ma.config.playing import ScenarioSettings
from gem_ma.pages.static.report import write_report
from gem_ma.runs.store import used
from gem_ma.runs.store.used import NO_OPTIONS, as_played, is_as_played
from gem_ma.runs.stored import open_record
from gem_ma.runs.used import files_used
from tests.command_line import gem_ma
from tests.retail_data import TAU, needs_tau

RULES = """
from gem_ma import Ask, Reward, Scenario

class Game(Scenario):
    agents = ("a", "b")
    def tasks(self, split):
        return tuple(range(20))
    def play(self, rng, task):
        said = yield Ask({x: f"task {task}" for x in self.agents}, legal=("x", "y"))
        yield Reward({x: float(said[x].text == "x") for x in self.agents})
    def success(self, episode):
        return episode.returns()["a"] > 0
    def measures(self, episode):
        return {"worth": episode.seed % 7, "odd": None}
    def labels(self, episode):
        return {"cause": ["p", "q"]}
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", "/").replace("_dot_", ".")).write_text(text)
    return folder


def run(*seats: str, data: str = "") -> tuple[str, ...]:
    """The command of a small run of the dilemma."""
    cast = [f"agents.player_{place}={seat}" for place, seat in enumerate(seats)]
    return ("run", "dilemma", "-n", "2", *cast, "--out", "run", "--quiet")


FIRST = "def play(messages, legal, rng): return legal[0]\n"
LAST = "def play(messages, legal, rng): return legal[-1]\n"


def test_two_files_that_have_changed_places_are_not_the_same(tmp_path: Path) -> None:
    written(tmp_path, one_dot_py=FIRST, two_dot_py=LAST)
    command = run("one.py:play", "two.py:play")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    written(tmp_path, one_dot_py=LAST, two_dot_py=FIRST)
    assert "one.py changed" in gem_ma(*command, cwd=tmp_path).stderr


def test_a_module_that_is_found_while_it_plays_is_written_down_then(tmp_path: Path) -> None:
    seat = "from importlib import import_module\n" + FIRST.replace(
        "return", "return import_module('parts.' + 'one').same and"
    )
    (tmp_path / "parts").mkdir()
    written(tmp_path, seat_dot_py=seat, parts__one_dot_py="same = 1\n", other_dot_py="same = 1\n")
    command = run("seat.py:play", "seat.py:play")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    written(tmp_path, parts__one_dot_py="same = 2\n")
    assert "parts/one.py changed" in gem_ma(*command, cwd=tmp_path).stderr


def test_a_link_counts_by_what_it_leads_to_and_a_compiled_file_by_its_bytes(
    tmp_path: Path,
) -> None:
    (tmp_path / "parts").mkdir()
    written(tmp_path, parts__real_dot_py="X = 0\n", compiled_dot_py="Y = 0\n")
    (tmp_path / "linked.py").symlink_to("parts/real.py")
    compiled = tmp_path / "compiled.py"
    py_compile.compile(str(compiled), cfile=str(tmp_path / "compiled.pyc"))
    compiled.unlink()
    written(tmp_path, seat_dot_py="from linked import X\nfrom compiled import Y\n" + FIRST)
    command = run("seat.py:play", "first_legal")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    code = json.loads((tmp_path / "run/manifest.json").read_text())["files"]["code"]
    assert set(code) == {"seat.py", "parts/real.py", "compiled.pyc"}
    (tmp_path / "linked.py").unlink()
    written(tmp_path, linked_dot_py="X = 0\n")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0, "equal bytes at another place"
    written(tmp_path, linked_dot_py="X = 1\n")
    assert gem_ma(*command, cwd=tmp_path).returncode == 2


def test_what_runs_is_what_was_digested_whatever_python_has_cached(tmp_path: Path) -> None:
    helper, seat = tmp_path / "cached_helper.py", tmp_path / "caching.py"
    helper.write_text("VALUE = 1\n")
    py_compile.compile(str(helper))
    before = os.stat(helper)
    helper.write_text("VALUE = 2\n")
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    seat.write_text("import cached_helper\n")
    registry.load("agents", f"{seat}:cached_helper")
    assert sys.modules["cached_helper"].VALUE == 2


LOADING = {
    "a spec": """
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("rules", "rules.py")
module = module_from_spec(spec)
spec.loader.exec_module(module)
""",
    "a run": "import runpy\nrunpy.run_path('rules.py')\n",
    "an exec": "exec(open('rules.py').read())\n",
    "a library": "import numpy as np\nnp.loadtxt('rules.py', comments='#', dtype=str)\n",
    "a database": "import sqlite3\nsqlite3.connect('rules.py').close()\n",
}


@pytest.mark.parametrize("how", LOADING)
def test_a_file_counts_however_code_gets_at_it(how: str, tmp_path: Path) -> None:
    written(tmp_path, rules_dot_py="X=1\n", seat_dot_py=LOADING[how] + FIRST)
    command = run("seat.py:play", "first_legal")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    written(tmp_path, rules_dot_py="X=2\n")
    assert "rules.py changed" in gem_ma(*command, cwd=tmp_path).stderr


READS = """
import json, os
from pathlib import Path
from gem_ma import Ask, Reward, Scenario

class Game(Scenario):
    agents = ("a",)
    def tasks(self, split):
        return tuple(json.loads(p.read_text()) for p in sorted(Path(os.environ["WHERE"]).glob("*")))
    def play(self, rng, task):
        yield Ask({"a": "task"}, legal=("x", "y"))
        yield Reward({"a": float(task)})
    def success(self, episode):
        return episode.returns()["a"] > 1
"""


def test_the_files_that_a_scenario_reads_are_its_data(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    written(tmp_path, reads_dot_py=READS, first__1="1", first__2="2")
    command = ("run", "reads.py", "--out", "run", "--quiet")

    def told(where: str) -> str:
        return gem_ma(*command, cwd=tmp_path, WHERE=where).stderr.partition(" (")[0]

    assert told("first") == ""
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert told("copy") == "", "the same data in another folder"
    written(tmp_path, copy__3="3")
    assert told("copy") == "run: copy/3 is used now and was not when the run began"
    (tmp_path / "copy/3").unlink()
    (tmp_path / "copy/2").unlink()
    assert told("copy") == "run: first/2 is not used any more"
    written(tmp_path, first__2="5")
    assert told("first") == "run: first/2 changed since the run began"
    # nobody judges anew
    shown = gem_ma("show", "run", "--episode", "lost", cwd=tmp_path)
    assert "test/0" in shown.stdout and "first/2 changed" in shown.stderr


def test_the_verdict_of_a_play_is_kept_whole(tmp_path: Path) -> None:
    """Without the file that judged them plays have their success, measures and labels."""
    written(tmp_path, game_dot_py=RULES)
    seats = ("agents.a=random_legal", "agents.b=first_legal")
    command = ("run", "game.py", *seats, "--out", "run", "--quiet")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    judged = gem_ma("score", "run", "--scenario", "game.py", "--json", cwd=tmp_path)
    lanes = gem_ma("show", "run", "--episode", "test/3", "--scenario", "game.py", cwd=tmp_path)
    (tmp_path / "game.py").unlink()
    recorded = gem_ma("score", "run", "--json", cwd=tmp_path)
    whole, said = (json.loads(one.stdout) for one in (judged, recorded))
    assert said["measures"]["worth"]["n"] == 20 and said["labels"]["cause"]
    assert said == {key: whole[key] for key in said}
    assert gem_ma("show", "run", "--episode", "test/3", cwd=tmp_path).stdout == lanes.stdout


def test_verdicts_of_plays_that_are_made_again_are_taken_out(tmp_path: Path) -> None:
    written(tmp_path, game_dot_py=RULES)
    seats = ("agents.a=random_legal", "agents.b=first_legal")
    command = ("run", "game.py", *seats, "--out", "run", "--quiet")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    index = tmp_path / "run/index.jsonl"
    whole = index.read_bytes().splitlines(keepends=True)
    # as a kill leaves it: the last play is torn, and half a row stands behind that of no play
    plays = (tmp_path / "run/episodes.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run/episodes.jsonl").write_bytes(b"".join(plays[:-1]) + plays[-1][:40])
    index.write_bytes(b"".join(whole[:-1]) + b'[9,"x","failed","test/99",1,0]\n[9,"x","fa')
    (tmp_path / "run/summary.json").unlink()
    shown = gem_ma("show", "run", cwd=tmp_path)
    assert f"{len(plays) - 1} ok" in shown.stdout and not shown.stderr
    assert gem_ma("resume", "run", "--quiet", cwd=tmp_path).returncode == 0
    rows = [json.loads(line) for line in index.read_bytes().splitlines()]
    wanted = [json.loads(line) for line in whole]
    # the last one was played by another process, which compares it with no other
    assert [row[:12] + row[13:] for row in rows[:-1]] == [
        row[:12] + row[13:] for row in wanted[:-1]
    ]
    assert not gem_ma("show", "run", cwd=tmp_path).stderr


def test_an_edit_while_it_plays_is_told_at_its_end(tmp_path: Path) -> None:
    seat = "from pathlib import Path\n" + FIRST.replace(
        "return", "return Path('seat.py').write_text('other') and"
    )
    written(tmp_path, seat_dot_py=seat)
    done = gem_ma(*run("seat.py:play", "first_legal"), cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.startswith("seat.py changed since the run began")


def older(run: Path, rules: Path | None = None) -> None:
    """Takes away what older versions did not write down."""
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["files"], manifest["judged"]
    if rules is not None:
        digest = sha256(rules.read_bytes()).hexdigest()
        manifest["data"] = {"rules": {"source": rules.name, "digest": digest}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "index.jsonl").unlink()


def test_an_older_folder_is_read_and_goes_on_only_where_all_is_known(tmp_path: Path) -> None:
    written(tmp_path, seat_dot_py=FIRST)
    command = run("seat.py:play", "first_legal")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    older(tmp_path / "run")
    shown = gem_ma("show", "run", cwd=tmp_path)
    assert shown.returncode == 0 and "code of seat.py:play was not written down" in shown.stderr
    done = gem_ma(*command, cwd=tmp_path)
    assert done.returncode == 2 and "seat.py was not written down" in done.stderr
    # of the rules older versions kept the digest
    written(tmp_path, bare_dot_py=RULES)
    seats = ("agents.a=first_legal", "agents.b=first_legal")
    command = ("run", "bare.py", *seats, "--out", "bare", "--quiet")
    assert gem_ma(*command, "-n", "2", cwd=tmp_path).returncode == 0
    older(tmp_path / "bare", tmp_path / "bare.py")
    assert gem_ma(*command, "-n", "3", cwd=tmp_path).returncode == 0
    assert "files" in json.loads((tmp_path / "bare/manifest.json").read_text())
    with (tmp_path / "bare.py").open("a") as file:
        file.write("# edited\n")
    assert "bare.py changed" in gem_ma(*command, "-n", "3", cwd=tmp_path).stderr


def test_data_of_a_built_in_scenario_that_differ_judge_nothing(tmp_path: Path) -> None:
    rows = '{"question": "1+1", "answer": "2"}\n{"question": "1+2", "answer": "3"}\n'
    written(tmp_path, rows_dot_jsonl=rows)
    options = ("scenario.data=rows.jsonl", "scenario.split=all", "run.baselines=false")
    command = ("run", "questions", *options, "--out", "run", "--quiet")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    shown = gem_ma("show", "run", cwd=tmp_path)
    assert not shown.stderr
    written(tmp_path, rows_dot_jsonl=rows.replace("3", "4"))
    assert gem_ma(*command, cwd=tmp_path).returncode == 2
    for words in (("show",), ("score",), ("report",), ("show", "--episode", "lost")):
        done = gem_ma(*words[:1], "run", *words[1:], cwd=tmp_path)
        assert done.returncode == 0 and done.stderr.startswith("data changed since"), done.stderr
    assert gem_ma("show", "run", cwd=tmp_path).stdout == shown.stdout
    anew = gem_ma("score", "run", "--scenario", "questions", cwd=tmp_path)
    assert anew.returncode == 2 and anew.stderr.startswith("data changed since")


def test_a_score_is_shown_without_a_closer_look_only_where_all_is_as_it_was(tmp_path: Path) -> None:
    assert gem_ma(*run(), cwd=tmp_path).returncode == 0
    manifest, resolved = (tmp_path / "run" / name for name in ("manifest.json", "resolved.yaml"))
    texts = {file: file.read_text() for file in (manifest, resolved)}
    assert is_as_played(tmp_path / "run")
    facts = json.loads(texts[manifest])
    scenario = facts["scenario"]
    changed = [
        (manifest, json.dumps(facts | {"scenario": scenario | {"version": 1}})),
        (manifest, json.dumps(facts | {"scenario": scenario | {"id": "game.py"}})),
        (manifest, json.dumps(facts | {"data": {"digest": "0"}})),
        (manifest, json.dumps(facts | {"files": {"code": {"seat.py": "0"}}})),
        (manifest, json.dumps(facts | {"resumed": 7})),
        (manifest, json.dumps({key: facts[key] for key in facts if key != "scenario"})),
        (resolved, texts[resolved].replace("rounds: 5", "rounds: 6") + "\n#\nmore: 1\n"),
        (resolved, "scenario: ["),
    ]
    for file, text in changed:
        file.write_text(text)
        assert not is_as_played(tmp_path / "run"), text
        assert as_played(tmp_path / "run") is None, text
        file.write_text(texts[file])
    manifest.write_text(changed[0][1])
    told = gem_ma("show", "run", cwd=tmp_path)
    assert told.returncode == 0 and "began with version 1" in told.stderr
    wrapped = ("scenario.wrappers=[hide_names]", "run.baselines=false", "--out", "wrapped")
    assert gem_ma("run", "dilemma", "-n", "2", *wrapped, "--quiet", cwd=tmp_path).returncode == 0
    assert not is_as_played(tmp_path / "wrapped")


def test_a_page_of_a_run_that_is_as_played_needs_no_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("run", "guess_number", "-n", "9", "--out", "won", "--quiet")
    for words in ((*run(), "scenario.rounds=3"), more):
        assert gem_ma(*words, cwd=tmp_path).returncode == 0
    for path in (tmp_path / "run", tmp_path / "won"):
        shown = write_report(path, judge=open_record(path, pytest.fail).judge).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr("gem_ma.runs.stored.record_for_page", pytest.fail)
            assert report.command([str(path)], standalone_mode=False) == 0
        assert (path / "report.html").read_bytes() == shown
    played = as_played(tmp_path / "run")
    assert played is not None and played.rounds == 3
    assert {*NO_OPTIONS} == ScenarioSettings.model_fields.keys()
    # whoever wrote the digest anew, too, gets a closer look
    monkeypatch.setattr(used, "is_as_played", lambda path: True)
    resolved = tmp_path / "run" / "resolved.yaml"
    text = resolved.read_text()
    for old, new in (
        ("id: dilemma", "id: game.py:Game"),
        ("rounds: 3", "rounds: 3\n  strange: 1"),
        ("rounds: 3", "rounds: much"),
        ("tools: []", "tools: [python]"),
    ):
        assert old in text
        resolved.write_text(text.replace(old, new, 1))
        assert as_played(tmp_path / "run") is None, new


@needs_tau
def test_a_run_on_data_of_the_environment_is_read_without_it(tmp_path: Path) -> None:
    options = ("scenario.split=test", "agents.assistant=retail_oracle", "run.baselines=false")
    command = ("run", "retail", "-n", "2", *options, "--out", "run", "--quiet")
    assert gem_ma(*command, cwd=tmp_path, TAU_BENCH_PATH=str(TAU)).returncode == 0
    for words in (("show", "run"), ("show", "run", "--episode", "test/1"), ("score", "run")):
        judged = gem_ma(*words, cwd=tmp_path, TAU_BENCH_PATH=str(TAU))
        recorded = gem_ma(*words, cwd=tmp_path)
        assert judged.returncode == recorded.returncode == 0 and not judged.stderr
        assert recorded.stderr.startswith("data changed since") and "tau-bench" in recorded.stderr
        assert recorded.stdout.splitlines()[:3] == judged.stdout.splitlines()[:3]


def test_a_manifest_of_a_stranger_breaks_no_reader(tmp_path: Path) -> None:
    written(tmp_path, seat_dot_py=FIRST)
    command = run("seat.py:play", "first_legal")
    assert gem_ma(*command, cwd=tmp_path).returncode == 0
    file = tmp_path / "run/manifest.json"
    manifest = json.loads(file.read_text())
    os.mkfifo(tmp_path / "pipe")
    odd = {"code": {"pipe": "0", "\0": "0", "/dev/zero": "0"}, "later": 7, "unknown": "x"}
    for files in (7, [], odd):
        file.write_text(json.dumps({**manifest, "files": files}))
        done = gem_ma("show", "run", cwd=tmp_path)
        assert done.returncode == 0 and done.stderr.count("\n") <= 1
        assert gem_ma(*command, cwd=tmp_path).returncode == 2


def test_code_of_a_notebook_counts_by_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def digests(text: str) -> tuple[dict[str, str], list[str]]:
        main = ModuleType("__main__")
        linecache.cache["<cell>"] = (len(text), None, text.splitlines(True), "<cell>")
        exec(compile(text, "<cell>", "exec"), vars(main))
        monkeypatch.setitem(sys.modules, "__main__", main)
        used = files_used({"agents": {"a": {"behaviour": "__main__:play"}}}, {})
        return used.sources, used.unknown

    cell = "STEP = 1\ndef helper(x): return x + STEP\ndef play(m, legal, rng): return helper(0)\n"
    first, unknown = digests(cell)
    assert set(first) == {"__main__:play"} and not unknown
    assert digests(cell + "unused = 3\n")[0] == first
    for edited in (cell.replace("STEP = 1", "STEP = 2"), cell.replace("x +", "x -")):
        assert digests(edited)[0] != first
    linecache.cache.pop("<cell>")
    main = sys.modules["__main__"]
    exec("def play(m, legal, rng): return 0", vars(main))
    assert files_used({"a": "__main__:play"}, {}).unknown == ["__main__:play"]


def test_what_options_name_is_data_or_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test").mkdir()
    written(
        tmp_path, server_dot_py="import beside\n", beside_dot_py="", words_dot_txt="", test__x=""
    )
    monkeypatch.chdir(tmp_path)
    tools = [{"mcp": {"command": ["python", "server.py"]}}, {"shell": {"folder": "test"}}]
    named = {"scenario": {"split": "test", "words": "words.txt"}, "agents": {"a": {"tools": tools}}}
    facts = files_used(named, {}).facts()
    assert set(facts["code"]) == {"server.py", "beside.py"}
    assert set(facts["data"]) == {"words.txt", "test"}
    # a plain word is no path, whatever lies here
    assert files_used({"scenario": {"split": "test"}}, {}).facts() == {}


def test_code_that_nobody_watched_counts_with_the_files_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of tools is another process; a module may be imported before gem_ma."""
    (tmp_path / "early").mkdir()
    server = "open('shop.json')\nopen('log.txt', 'w')\nfrom early import x\n"
    early = "from . import deep\nfrom .deep import thing\nTEXT = open('prompt.md', 'rb')\n"
    files = {
        "server.py": server,
        "shop.json": "",
        "log.txt": "",
        "prompt.md": "",
        "early/deep.py": "",
    }
    for name, text in {**files, "early/__init__.py": "", "early/x.py": early}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    facts = files_used({"tools": [{"mcp": {"command": ["python", "server.py"]}}]}, {}).facts()
    assert set(facts["code"]) == {"server.py", "early/__init__.py", "early/x.py", "early/deep.py"}
    assert set(facts["later"]) == {"shop.json", "prompt.md"}


def test_a_process_that_imported_code_before_its_edit_refuses_to_play_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, stale_dot_py=FIRST)
    seats = ["agents.player_0=stale.py:play", "agents.player_1=first_legal", "scenario.tasks=1"]
    open_run("dilemma", seats, out="run")
    written(tmp_path, stale_dot_py=LAST)
    with pytest.raises(ConfigError, match=r"stale\.py: edited since this Python has imported it"):
        open_run("dilemma", seats, out="run")
