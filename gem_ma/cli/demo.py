"""`gem-ma demo`: retail customer service between two agents, and a language that two agents learn,
with a page about both.

It is nothing but `run` and `train` on shipped configs; every table names the command that makes
it again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gem_ma.cli.run import play
from gem_ma.cli.terminal import columns, emit, emit_json, progress_line
from gem_ma.config.loading import Loaded, load
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.errors import EngineError
from gem_ma.pages.static.figures import Curves
from gem_ma.pages.static.learning import learning_curves
from gem_ma.pages.static.report import PlainTable, Section, write_report
from gem_ma.runs.plans import scenario_of
from gem_ma.runs.store import read_summary, run_path
from gem_ma.scores.groups import interval_text
from gem_ma.scores.stats import wilson

ASSISTANTS = {
    "careful": "retail_scripted",
    "hasty": "retail_transfers_early",
    "do-nothing": "retail_nothing",
}
# the longest training first
LEARNERS = {
    "both": ("speaker", "listener"),
    "speaker only": ("speaker",),
    "listener only": ("listener",),
}
ORDER = ("none", "speaker only", "listener only", "both")  # of the rows
CONFIGS = {"table": "referential_table.yaml", "transformers": "referential.yaml"}
# so few that not even the likeliest answers are right at the start: both columns move
DEMONSTRATIONS = {"table": 384, "transformers": 192}
COLUMNS = (
    "Sampled: answers drawn from the policy. Greedy: its likeliest ones. The start copies a few"
    " plays of players that are often wrong."
)
SCORED = ("planned", "ok", "failed", "excluded", "success", "turns")  # of a summary that is whole
MODEL = Path("models", "referential")  # below the demo's folder
EXAMPLE = """\b
Example:
  gem-ma demo --learn"""


@click.command(epilog=EXAMPLE)
@click.option(
    "--learn",
    "language_model",
    is_flag=True,
    help="Learn with a tiny language model, too (needs the train extra; a minute).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    help="Where the run folders and the page go.",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Retail tasks for each assistant.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    language_model: bool, out: Path, tasks: int, seed: int, as_json: bool, quiet: bool
) -> int:
    """Play, learn and show, offline: the base install is enough, in seconds.

    Retail runs on tau-bench's tasks where TAU_BENCH_PATH names a checkout, else on a world of
    our own. The same command again takes up what is done.
    """
    # trainings that have ended are only read, which needs no torch
    if language_model and not all(map(_finished, _subsets("transformers", out, seed)[1].values())):
        from gem_ma.engines.models.loading import import_stack

        import_stack()  # a missing extra is told before anything is played
    retail, section = _retail(out, tasks, seed, quiet)
    results = {"retail": retail}
    sections = [section]
    if not as_json:
        emit(f"{section.heading}\n{columns(retail['rows'], retail['columns'])}\n")
    for kind in ("table", *(["transformers"] if language_model else [])):
        learned, section = _referential(kind, out, seed, quiet)
        results[f"referential_{kind}"] = learned
        sections.append(section)
        if not as_json:
            emit(f"{section.heading}\n{columns(learned['rows'], learned['columns'])}\n{COLUMNS}\n")
    page = write_report(out=out / "report.html", title="gem_ma demo", sections=sections)
    if as_json:
        emit_json({**results, "report": str(page)})
        return int(retail["exit_code"])
    more = "gem-ma train kuhn_table" if language_model else "gem-ma demo --learn"
    emit(f"transcripts and curves: {page}")
    emit(f"next: gem-ma list scenarios | gem-ma run kuhn_poker | {more}")
    return int(retail["exit_code"])


def _retail(out: Path, tasks: int, seed: int, quiet: bool) -> tuple[dict[str, Any], Section]:
    """Three assistants in front of the same scripted customers."""
    rows = []
    paths = {}
    scenario = None
    code = 0
    for name, behaviour in ASSISTANTS.items():
        # the do-nothing assistant is one of the three
        overrides = (
            f"agents.assistant.behaviour={behaviour}",
            f"run.seed={seed}",
            "run.baselines=false",
        )
        loaded = load("retail_scripted.yaml", overrides)
        scenario = scenario_of(loaded.config, base=loaded.base)
        # our own world has fewer tasks than tau-bench, and asking for more is refused
        there = len(scenario.tasks(loaded.config.only.split))
        wanted = min(tasks, there)
        loaded = load("retail_scripted.yaml", (*overrides, f"scenario.tasks={wanted}"))
        apart = {"tasks": wanted, "data": scenario.provenance().get("digest")}
        paths[name] = _run_path(out, f"retail-{name}", loaded, apart)
        summary = _finished(paths[name], SCORED) or {}
        # done is what was played in full without a failure; all else goes on where it stopped
        if not wanted <= summary.get("ok", 0) == summary.get("planned"):
            # the demo prints one table for all
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                code = max(code, play(loaded, paths[name], quiet=quiet))
            summary = read_summary(paths[name]) or {}
        counts = f"{summary['ok']} / {summary['failed']} / {summary['excluded']}"
        turns = "n/a" if summary["turns"] is None else f"{summary['turns']:.1f}"
        rows.append(
            [name, interval_text(summary["success"]), str(summary["success"]["n"]), turns, counts]
        )
    source = scenario.provenance().get("name", "") if scenario is not None else ""
    heading = f"retail, {source}: three assistants, one scripted customer"
    head = ["assistant", "success (95 % interval)", "judged", "turns", "ok / failed / excluded"]
    made = "\n".join(f"gem-ma run {path}/resolved.yaml" for path in paths.values())
    section = Section(
        heading,
        runs=paths,
        command=made,
        success=scenario.success if scenario else None,
        own_curves=False,
    )
    return {
        "columns": head,
        "rows": rows,
        "runs": {name: str(path) for name, path in paths.items()},
        "exit_code": code,
    }, section


def _referential(kind: str, out: Path, seed: int, quiet: bool) -> tuple[dict[str, Any], Section]:
    """The same warm-started pair, with every subset of it learning."""
    config = CONFIGS[kind]
    overrides, paths = _subsets(kind, out, seed)
    summaries = {
        name: summary for name, path in paths.items() if (summary := _finished(path)) is not None
    }
    left = {name: path for name, path in paths.items() if name not in summaries}
    if left:
        if kind == "transformers":
            _make_model(out)  # one for all: they start from the same weights
        summaries |= _train_all(config, overrides, left, quiet)
    # what stood there before anything was learned is the same in all three trainings
    scores = {"none": summaries["both"]["before"]}
    scores |= {name: summaries[name]["after"] for name in LEARNERS}
    scores = {name: scores[name] for name in ORDER}
    head = [
        "who learns",
        "success, sampled (95 % interval)",
        "success, greedy",
        "ok / failed / excluded",
    ]
    rows = [_score_row(name, score) for name, score in scores.items()]
    engine = "softmax tables" if kind == "table" else "tiny language models"
    made = "\n".join(f"gem-ma train {path}/resolved.yaml" for path in paths.values())
    section = Section(
        f"referential, {engine}: who learns, from the same start (chance 0.0625)",
        "Every pair starts from the same noisy demonstrations (none: as it stood there); a policy"
        " that does not learn stays bit-equal. Evaluation seeds are never trained on.",
        runs={"both": paths["both"]},
        curves=(_success_curves(paths, scores["none"], summaries["both"]["steps"]),),
        tables=(
            PlainTable(head, rows, f"After the last update; none: before the first. {COLUMNS}"),
        ),
        command=made,
        own_curves=False,
    )
    return {
        "columns": head,
        "rows": rows,
        "runs": {name: str(path) for name, path in paths.items()},
        "summaries": summaries,
    }, section


def _score_row(name: str, score: Mapping[str, Any]) -> list[str]:

    sampled = score["sampled"]
    greedy = score["greedy"]
    # the record has the share; its interval needs the count behind it
    low, high = wilson(round(sampled["success"] * sampled["ok"]), sampled["ok"])
    return [
        name,
        f"{sampled['success']:.3f} [{low:.3f}, {high:.3f}]",
        f"{greedy['success']:.3f}",
        f"{sampled['ok']} / {sampled['failed']} / 0",
    ]


def _success_curves(paths: Mapping[str, Path], start: Mapping[str, Any], steps: int) -> Curves:
    """The success in training of each pair, and a level line for the pair that learns nothing."""
    curves = learning_curves(
        {name: [path] for name, path in paths.items()},
        "success",
        "Success in training episodes",
        y_range=(0.0, 1.0),
        y_label="success",
    )
    level = start["sampled"]["success"]
    return replace(
        curves,
        lines={"none": [[(1.0, level), (float(steps), level)]], **curves.lines},
        note="none: the evaluation before learning",
    )


def _subsets(kind: str, out: Path, seed: int) -> tuple[dict[str, tuple[str, ...]], dict[str, Path]]:
    """Who learns -> the overrides of that training, and its run folder."""
    shared = [f"run.seed={seed}", "evaluate.every=null"]  # it shows the first exam and the last
    shared += [
        f"train.warm_start.{name}.episodes={DEMONSTRATIONS[kind]}"
        for name in ("speaker", "listener")
    ]
    if kind == "transformers":
        model = (out / MODEL).resolve()
        shared += [
            f"policies.{name}.model=transformers/{model}" for name in ("speaker", "listener")
        ]
    overrides = {
        name: (*shared, f"train.policies=[{','.join(learned)}]")
        for name, learned in LEARNERS.items()
    }
    return overrides, {
        name: _run_path(out, f"referential-{kind}-{name}", load(CONFIGS[kind], own))
        for name, own in overrides.items()
    }


def _make_model(out: Path) -> None:
    """Makes the tiny model where it is not there yet."""
    if not (out / MODEL / "tokenizer.json").exists():
        make_model(str(out / MODEL), "referential")


def _finished(
    path: Path, keys: Sequence[str] = ("before", "after", "steps")
) -> dict[str, Any] | None:
    """The summary of a run that has ended, None for one that has still to be done."""
    return read_summary(path, tuple(keys)) if (path / "summary.json").is_file() else None


def _run_path(out: Path, stem: str, loaded: Loaded, apart: Mapping[str, Any] | None = None) -> Path:
    """The run folder of one play of the demo: other settings, another number of tasks or other
    data have another one."""
    return run_path(stem, {**loaded.identity(), "demo": dict(apart or {})}, root=out)


def _train_all(
    config: str, overrides: Mapping[str, Sequence[str]], paths: dict[str, Path], quiet: bool
) -> dict[str, Any]:
    """Trains every subset, each in a process of its own, as many at once as there are cores;
    gives their summaries."""
    running: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(max(1, min(len(paths), os.cpu_count() or 1))) as pool:
        try:
            results = pool.map(
                lambda name: _train(config, overrides[name], paths[name], running), paths
            )
            summaries = dict(zip(paths, results, strict=True))
        except BaseException:  # a signal, or one that failed: no training outlives the demo
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
    if not quiet:
        progress_line(f"{config}: {len(paths)} trainings done")
    return summaries


def _train(
    config: str, overrides: Sequence[str], path: Path, running: list[subprocess.Popen[str]]
) -> dict[str, Any]:

    command = [sys.executable, "-m", "gem_ma", "train", config, *overrides]
    command += ["--out", str(path), "--json", "--quiet"]
    # They run side by side. One thread each also keeps the order of every float sum, and so the
    # result, apart from the number of cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        running.append(process)
        # both pipes at once: a full one that nobody reads would stop the training
        out, err = process.communicate()
    if process.returncode:
        raise EngineError(
            f"training into {path} ended with exit code {process.returncode}:"
            f" {err.strip() or 'no message'}"
        )
    return dict(json.loads(out))
