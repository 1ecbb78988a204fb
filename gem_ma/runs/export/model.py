"""A trained policy as a folder that plain transformers or peft loads, with a card that says what it
is: base, world, how it learned, scores before and after, digests. The card holds what the run wrote
down, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.config.document import write
from gem_ma.config.playing import PolicySettings
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.models.adapter_folder import base_of, is_adapter, seed_of
from gem_ma.engines.models.loading import MARK, NOTE, READING, SEEING
from gem_ma.engines.models.model_folder import may_be_on_hub
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.spelling import nearest
from gem_ma.runs.export.writing import whole_or_not
from gem_ma.runs.store import read_manifest, read_resolved, read_settings, read_summary
from gem_ma.runs.store.manifest import EDITED
from gem_ma.runs.store.names import settings_digest
from gem_ma.runs.store.summaries import check_training
from gem_ma.runs.stored import recorded_config
from gem_ma.scores.exams import exam_rows
from gem_ma.system.files import stream
from gem_ma.system.folders import read_named

# engines of `models` in summary.json -> what a hub calls such a model
KINDS = {"transformers": "text-generation", "vision": "image-text-to-text"}
# options of a policy that its weights are opened with. Not `trust_remote_code`: a command that
# reads runs no code that a run folder names.
_OPTIONS = ("dtype", "template", "keep_thinking", "tool_format")


@dataclass(frozen=True, slots=True)
class Trained:
    """A policy that a run has trained, as its folder tells. `model`: the folder of its weights;
    `digest`: what the run says of them, see `Weighs.fingerprint`."""

    run: Path
    policy: str
    kind: str
    model: Path
    digest: str
    config: Config
    summary: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def settings(self) -> PolicySettings:
        """Its part of the config."""
        return self.config.policies[self.policy]

    @property
    def base(self) -> str:
        """The model that it began with: a folder, or a name on a hub."""
        if is_adapter(self.model):
            return base_of(self.model, self.policy)
        return self.settings.model.partition("/")[2]


def trained_policy(run: Path, policy: str | None) -> Trained:
    """The policy of a run that has trained and ended; `policy` may be None where one learned.
    Raises ConfigError where there is none to export, StoreError for damage."""
    manifest = read_manifest(run)
    if manifest.get("command") != "train":
        raise ConfigError(f"{run}: nobody learned in this run; --to model is for a training")
    resolved = read_resolved(run)
    if manifest.get("resolved", settings_digest(resolved)) != settings_digest(resolved):
        raise ConfigError(f"{run / 'resolved.yaml'}: {EDITED}")
    summary = read_summary(run)
    if summary is None:
        raise ConfigError(f"{run}: the training has not ended; type: gem-ma resume {run}")
    check_training(summary, run / "summary.json")
    config = recorded_config(run)
    name = _chosen(run, policy, [*summary["learned"]])
    idle = summary.get("learned_nothing", {}).get(name)
    if idle or name in summary["unchanged"]:
        why = idle or "its weights are those that it began with"
        raise ConfigError(f"{run}: policy {name!r} has learned nothing to export: {why}")
    model = summary.get("models", {}).get(name, {})
    digest = summary.get("weights", {}).get(name)
    if model.get("engine") not in KINDS:
        kind = model.get("engine", "nothing that can be written")
        raise ConfigError(
            f"{run}: policy {name!r} is {kind}, which no other library loads; --to model is for"
            " policies of transformers, vision and vllm"
        )
    if digest is None or name not in config.policies:
        raise ConfigError(f"{run}: an older version kept no digest of {name!r}; train it anew")
    # by the name: a summary may be a stranger's, and its path lead elsewhere
    folder = run / "models" / name
    return Trained(run, name, model["engine"], folder, digest, config, summary, manifest)


def _chosen(run: Path, policy: str | None, learned: list[str]) -> str:
    names = ", ".join(learned)
    if not learned:
        raise ConfigError(f"{run}: no policy learned in this run")
    if policy is None and len(learned) > 1:
        raise ConfigError(f"{run}: {len(learned)} policies learned; name one by --policy: {names}")
    if policy is not None and policy not in learned:
        raise ConfigError(
            f"{run}: no policy {policy!r} learned; there is {names}{nearest(policy, learned)}"
        )
    return learned[0] if policy is None else policy


def export_model(run: Path, out: Path, policy: str | None, *, merged: bool) -> dict[str, Any]:
    """Writes the folder `out`, which may not exist: weights, tokenizer with its chat template,
    generation settings, README.md. `merged`: an adapter's changes in the weights of its base; else
    the adapter alone. Gives `{out, format, policy, kind, weights}`.

    Raises ConfigError where there is nothing to export, DataError where the weights are damaged or
    are not those that the run wrote down.
    """
    trained = trained_policy(run, policy)
    adapts = is_adapter(trained.model)
    if adapts and not merged and seed_of(trained.model):
        raise ConfigError(
            f"{run}: the base of {trained.policy!r} was drawn from a seed and lies in no file, so"
            " its adapter fits nothing that others have; export it with --merged"
        )
    with whole_or_not(out) as part:
        engine = _opened(trained)
        sampling = trained.settings.sampling
        saved = engine.merged() if merged else engine
        shutil.rmtree(part, ignore_errors=True)  # of an export that was killed
        part.mkdir()
        saved.save(part)
        saved.save_voice(part, sampling)
        how = "all weights" if not adapts else "adapter, merged" if merged else "adapter"
        dtype = str(engine.model.dtype).removeprefix("torch.")
        text = "\n".join(_card(trained, how, dtype, part, out.name)) + "\n"
        (part / "README.md").write_text(text, encoding="utf-8")
    told = {"out": str(out), "format": "model", "policy": trained.policy}
    return {**told, "kind": how, "weights": trained.digest}


def _opened(trained: Trained) -> Any:
    """The engine of the exported weights, on the processor. Raises DataError where its weights are
    not those of the run."""
    options = {key: trained.settings.options.get(key) for key in _OPTIONS}
    given = {key: value for key, value in options.items() if value is not None}
    name = f"{trained.kind}/{trained.model}"
    opened = open_engine(trained.policy, name, device="cpu", **given)
    engine: Any = Policy(trained.policy, opened).core
    if engine.fingerprint() != trained.digest:
        raise DataError(
            f"{trained.model}: these are not the weights that the run wrote down at its end"
            f" (summary.json: weights.{trained.policy}), or its base was changed; put them back"
            " from a copy, or train anew"
        )
    return engine


# -- the card ------------------------------------------------------------------------------------


def _card(trained: Trained, how: str, dtype: str, part: Path, name: str) -> Iterator[str]:
    yield "---"
    if may_be_on_hub(trained.base):
        yield f"base_model: {json.dumps(trained.base)}"
    yield f"library_name: {'peft' if how == 'adapter' else 'transformers'}"
    yield f"pipeline_tag: {KINDS[trained.kind]}"
    yield "tags: [gem_ma, reinforcement-learning, multi-agent]\n---\n"
    yield f"# {_plain(trained.policy)} of {_plain(trained.run.resolve().name)}\n"
    yield from _table((), [*_facts(trained, how, dtype)])
    yield "\n## Scores\n"
    yield from _scores(trained)
    yield "\n## Use\n"
    yield from _use(trained, how, dtype, name)
    yield "\n## Digests\n"
    yield from _table(("", "SHA-256"), [*_digests(trained, part)])
    yield "\n## Config\n\nAll settings of the run, those that it did not name included.\n"
    text = write(read_settings(trained.run)).rstrip()
    # longer than any in the text, which is somebody's
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    yield f"{fence}yaml\n{text}\n{fence}"


def _facts(trained: Trained, how: str, dtype: str) -> Iterator[tuple[str, str]]:
    config, name = trained.config, trained.policy
    train = config.train
    worlds = trained.manifest.get("scenarios") or {"": trained.manifest.get("scenario", {})}
    told = [f"{one.get('id')} (version {one.get('version')})" for one in worlds.values()]
    agents = {agent for agent, seat in config.agents.items() if seat.policy == name}
    own = (block.agents.items() for block in config.scenarios.values())
    agents |= {agent for seats in own for agent, seat in seats if seat.policy == name}
    yield "what lies here", f"{how}, {dtype}"
    yield "base", trained.base
    if note := _note(Path(trained.base)):
        yield "of the base", note
    yield "world", ", ".join(told)
    yield "plays", ", ".join(sorted(agents))
    if train is not None:
        special = train.per_policy.get(name)
        own_estimator = (special.estimator or {}) if special else {}
        rate = special.lr if special and special.lr is not None else train.lr
        yield "estimator", str(own_estimator.get("name", train.estimator.name))
        yield "steps", f"{trained.summary['steps']}, of {train.episodes} plays each"
        yield "learning rate", f"{rate:g}"
    others = [other for other in trained.summary["learned"] if other != name]
    yield "learned beside it", ", ".join(others) or "nobody"
    versions = trained.manifest.get("versions") or {}
    git = trained.manifest.get("git") or {}
    commit = f", commit {git['commit']}" if git.get("commit") else ""
    edited = " with changes" if git.get("dirty") else ""
    yield "code", f"gem_ma {versions.get('gem_ma')}{commit}{edited}"
    yield "licence", "none is chosen; that of the base holds for what is made of it"


def _note(base: Path) -> str:
    """What a folder that `gem-ma new model` made says of itself, such as where it is from."""
    try:
        note = json.loads(read_named(base / NOTE))
    except (OSError, ValueError, RecursionError):
        return ""
    told = note if isinstance(note, dict) else {}
    return ", ".join(f"{key} {value}" for key, value in told.items() if key != MARK)


def _scores(trained: Trained) -> Iterator[str]:
    rows = exam_rows(trained.summary)
    if not rows:
        yield "No exam was held (`evaluate.episodes`), so nothing is known of what it can do."
        return
    seed = trained.config.evaluate.seed
    yield (
        f"Exams before the first step and after the last: the same tasks, on seeds from {seed} on,"
        " which no step plays. All who learn play as they were at that time. In brackets 95 %"
        " intervals; `sampled` draws as in training, `greedy` takes the likeliest.\n"
    )
    yield from _table(("score", "before", "after", "after - before", "p (Holm)"), rows)
    if (constrain := trained.settings.options.get("constrain")) is not None:
        yield (
            f"\nIt sampled under `constrain: {constrain}` of gem_ma. Where that bound its answers"
            " to what was allowed, `generate` alone does not, and may score otherwise."
        )


def _use(trained: Trained, how: str, dtype: str, name: str) -> Iterator[str]:
    sees = trained.kind == "vision"
    loader = SEEING if sees else READING
    readers = ("AutoImageProcessor",) * sees + ("AutoTokenizer",)
    folder, base = json.dumps(name), json.dumps(trained.base)
    yield "```python"
    if how == "adapter":
        yield "from peft import PeftModel"
    yield f"from transformers import {', '.join((*readers, loader))}, GenerationConfig\n"
    for reader in readers:
        yield f"{reader[4:].lower()} = {reader}.from_pretrained({folder})"
    if how == "adapter":
        yield f'base = {loader}.from_pretrained({base}, dtype="{dtype}")'
        yield f"model = PeftModel.from_pretrained(base, {folder})"
    else:
        yield f'model = {loader}.from_pretrained({folder}, dtype="{dtype}")'
    yield f"sampling = GenerationConfig.from_pretrained({folder})"
    yield "```\n"
    yield f"In gem_ma: `model: {trained.kind}/{name}`."
    if how == "adapter" and Path(trained.base).exists():
        yield "The base is a folder, so whoever loads the adapter wants that folder too."
    if trained.settings.options.get("template") == "plain":
        yield "It was asked in plain text (`template: plain`), not by the chat template."


def _digests(trained: Trained, part: Path) -> Iterator[tuple[str, str]]:
    began = (trained.manifest.get("models") or {}).get(trained.policy) or {}
    yield "run (`manifest.json`)", _sha256(trained.run / "manifest.json")
    yield "settings of the run", str(trained.manifest.get("resolved"))
    yield "weights at the beginning", str(began.get("digest"))
    yield "weights at the end", trained.digest
    for file in sorted(part.iterdir()):
        yield f"`{file.name}`", _sha256(file)


def _sha256(file: Path) -> str:
    # of all bytes: `files.digest_of` stops in a file of many gigabytes
    with stream(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    rows = [*rows]
    width = len(rows[0])
    yield f"| {' | '.join(head or ('',) * width)} |"
    yield "|---" * width + "|"
    for row in rows:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """A text of the run in one line of Markdown: names may be anything."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
