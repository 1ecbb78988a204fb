"""No file is opened beside the one room for it, `gem_ma.system.files`: read from the source, with the
reasons of the exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("gem_ma/system/files.py", "gem_ma/system/folders.py")
OPENERS = {
    *(
        "open",
        "fdopen",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "touch",
        "rename",
        "replace_path",
        "truncate",
    ),
    *(
        "safe_open",
        "load_file",
        "save_file",
        "from_pretrained",
        "save_pretrained",
        "memmap",
        "fromfile",
        "tofile",
        "savez",
    ),
    *(
        "mkdir",
        "makedirs",
        "rmtree",
        "copy2",
        "copyfile",
        "copytree",
        "move",
        "symlink_to",
        "link_to",
        "hardlink_to",
    ),
}
OF_MODULES = {  # names that also mean something harmless: only as an attribute of these modules
    *(
        "os.replace",
        "os.rename",
        "os.unlink",
        "os.remove",
        "os.link",
        "os.symlink",
        "shutil.copy",
        "np.load",
        "np.save",
        "torch.load",
        "torch.save",
    ),
    *("tempfile.mkstemp", "tempfile.mkdtemp", "io.open", "json.load", "yaml.load"),
}
SAVED = "writes to a path that is new: `files.place` gives it inside a run folder, a user elsewhere"
ALLOWED: dict[str, dict[str, str]] = {
    "gem_ma/worlds/guest.py": {"open": "/dev/null"},
    "gem_ma/worlds/wordlists.py": {"read_text": "a file of the package"},
    "gem_ma/cli/export.py": {"write_bytes": "a figure that the user names"},
    "gem_ma/cli/new_files.py": {
        "read_text": "templates of the package",
        "open": "a file that the user names, and that is new",
    },
    "gem_ma/engines/vllm/replicas.py": {"open": "servers"},
    "gem_ma/runs/export/model.py": dict.fromkeys(
        ("mkdir", "rmtree", "write_text"), "the folder beside an export's, which is then renamed"
    ),
    "gem_ma/runs/export/frames.py": {
        "mkdir": "the folder beside an export's, which is then renamed"
    },
    "gem_ma/runs/export/tables.py": {"open": "the path beside an export's, which is then renamed"},
    "gem_ma/runs/export/writing.py": dict.fromkeys(
        ("mkdir", "open", "os.replace", "rmtree", "write_bytes", "write_text"),
        "beside the path that the user names for an export, then renamed",
    ),
    "gem_ma/trainers/seat.py": {"open": "an address", "json.load": "an answer of a server"},
    "gem_ma/tools/bash.py": dict.fromkeys(
        ("open", "makedirs", "os.unlink"), "inside the wall: the home of a session"
    ),
    "gem_ma/tools/belt.py": {"open": "a tool"},
    "gem_ma/tools/mcp.py": {"fdopen": "a pipe to a process"},
    "gem_ma/tools/keeper.py": {"open": "/dev/null", "read_text": "/proc"},
    "gem_ma/tools/inside.py": dict.fromkeys(
        ("open", "os.unlink", "rmtree"), "inside the wall: what a call left, and /proc"
    ),
    "gem_ma/tools/sandbox.py": dict.fromkeys(
        ("rmtree", "tempfile.mkdtemp"), "a folder of its own for a worker without a wall"
    ),
    "gem_ma/tools/passages.py": {
        "read_bytes": "texts of a folder that the user names, after a look at their kind"
    },
    "gem_ma/tools/shell.py": {
        "read_bytes": "files of a folder that the user names, after a look at their kind",
        "read_text": "a file of the package",
    },
    "gem_ma/tools/walls.py": {"read_bytes": "code of the package"},
    "gem_ma/tools/search.py": {"from_pretrained": "after `check_named`"},
    "gem_ma/cli/demo.py": {"open": "/dev/null"},
    "gem_ma/cli/list.py": {"read_text": "configs of the package"},
    "gem_ma/cli/main.py": {
        "open": "/dev/null",
        "fdopen": "a traceback in a new temporary file",
        "tempfile.mkstemp": "the same",
    },
    "gem_ma/cli/terminal.py": {"open": "/dev/null"},
    "gem_ma/engines/models/adapter_folder.py": dict.fromkeys(
        ("mkdir", "write_bytes", "write_text"), SAVED
    ),
    "gem_ma/engines/models/loading.py": {
        "from_pretrained": "after `check_folder`, which refuses what is not a regular file"
    },
    "gem_ma/pages/live/site.py": {"mkdir": "the folder of a bundle, as the user names it"},
    "gem_ma/engines/api/reply_cache.py": {"mkdir": "the root of the cache, as the user names it"},
    "gem_ma/engines/small/table.py": {"write_bytes": SAVED},
    "gem_ma/engines/local/tiny.py": dict.fromkeys(("save_pretrained", "write_text"), SAVED),
    "gem_ma/engines/local/packaged.py": {
        "open": "a wheel that the user names, after a look at its kind",
        **dict.fromkeys(("mkdir", "write_bytes", "write_text", "save_pretrained"), SAVED),
    },
    "gem_ma/engines/local/transformers.py": {"save_pretrained": SAVED},
    "gem_ma/training/learner/rows.py": {"open": "the same"},
    "gem_ma/training/processes/ray_workers.py": {"read_bytes": "code of the package"},
    "gem_ma/envs/vector.py": {"move": "a move of an environment"},
    "gem_ma/engines/models/sight.py": {
        "from_pretrained": "after `check_folder`",
        "open": "an image out of bytes in memory",
    },
    "gem_ma/engines/vllm/engine.py": {
        "open": "a backend",
        **dict.fromkeys(
            ("rmtree", "mkdir", "save_file", "shutil.copy"), "weights in a temporary folder"
        ),
    },
    "gem_ma/engines/tinker/engine.py": {
        "open": "a session with a server",
        **dict.fromkeys(("mkdir", "write_text"), SAVED),
    },
    "gem_ma/system/extras.py": {"read_text": "what pip noted beside the package"},
    "gem_ma/runs/open.py": {"open": "RunFolder.open"},
    "gem_ma/runs/store/disk.py": {
        "mkdir": "the root of a run folder",
        "rename": "the whole run folder, put aside",
    },
    "gem_ma/runs/store/tables.py": {
        "open": "an export that the user names, after a look at its kind"
    },
    "gem_ma/testing/fresh.py": {
        "json.load": "a stream of a process",
        "read_text": "the source of the author's own script",
    },
    "gem_ma/training/learner/positions.py": dict.fromkeys(
        ("read_text", "write_text"), "the note of a model that was written a moment ago"
    ),
    "gem_ma/system/used.py": {"read_bytes": "the user's own code, which Python imports"},
    "gem_ma/pages/static/page.py": {"read_text": "assets of the package"},
    "gem_ma/pages/static/report.py": {"mkdir": "the folder that a caller names for a page"},
    "scenarios/service_desk/retail/shop/render.py": dict.fromkeys(
        ("mkdir", "write_text"), "a world that the user writes to a folder of his own"
    ),
    "scenarios/code/judge.py": {"open": "behind the wall: the program that is judged"},
    "scenarios/code/program.py": {"fdopen": "behind the wall: pipes to the judge"},
    "scenarios/code/scenario.py": {"read_text": "files of the package"},
    "scenarios/games/solo.py": {"move": "a move on a board"},
    "scenarios/games/sudoku.py": {"read_text": "boards of the package"},
    "scenarios/questions/scenario.py": {"read_text": "a file of the package"},
    "scenarios/rows.py": {"open": "bytes that `read_named` has read"},
    "scenarios/terminal/kinds_files.py": {"open": "an archive in memory"},
    "scenarios/service_desk/retail/store/source.py": {
        "read_bytes": "data that the user names, after a look at its kind"
    },
}


def openers(source: str) -> Iterator[str]:
    """The calls of a source that open, move or remove something by its path, less functions of
    its own and of the room."""
    tree = ast.parse(source)
    imported = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gem_ma")
    ]
    own = {alias.asname or alias.name for node in imported for alias in node.names}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in OPENERS - own:
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                base = node.func.value
                whole = f"{base.id}.{node.func.attr}" if isinstance(base, ast.Name) else ""
                if node.func.attr in OPENERS or whole in OF_MODULES:
                    yield node.func.attr if node.func.attr in OPENERS else whole


def files() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for room in ("gem_ma", "scenarios", "agents")
        for path in (ROOT / room).rglob("*.py")
    )


@pytest.mark.longest
def test_no_file_is_opened_beside_the_room() -> None:
    found = {
        file: set(openers((ROOT / file).read_text("utf-8")))
        for file in files()
        if file not in ROOMS
    }
    beside = {
        file: sorted(calls - ALLOWED.get(file, {}).keys())
        for file, calls in found.items()
        if calls - ALLOWED.get(file, {}).keys()
    }
    assert not beside, (
        "open what lies in a run folder, a model folder or a cache with gem_ma.system.files; else give"
        f" the reason here: {beside}"
    )


@pytest.mark.long
def test_every_exception_is_still_needed() -> None:
    stale = {
        file: sorted(calls.keys() - set(openers((ROOT / file).read_text("utf-8"))))
        for file, calls in ALLOWED.items()
    }
    assert not {file: calls for file, calls in stale.items() if calls}
