"""What makes two runs the same run: the settings that change results, and the facts that must
not change under a run."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gem_ma import __version__
from gem_ma.config.seats import key_of
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.spelling import in_quotes

# Settings that may differ between the writers of one folder, because no episode depends on them;
# `*` stands for any name.
FREE_KEYS = (
    "run.concurrency",
    "run.processes",
    "run.zstd",
    "run.max_failed",
    "run.baselines",
    "run.tags",
    "limits",
    "retry",
    "report",
    "train.save_every",
    "train.checkpoints",
    "train.log",
    "policies.*.api_key",
    "policies.*.base_url",
    "policies.*.api_key_env",
    "policies.*.timeout_s",
    "policies.*.attempts",
    "policies.*.wall_s",
    "policies.*.concurrency",
    "policies.*.stream",
    "policies.*.price",
    "policies.*.cache",
)
# Settings that change results and may still differ when a run goes on by `gem-ma resume RUN
# KEY=VALUE`, because what was recorded so far is the same with either value. The manifest keeps
# what changed, in `resumed`; resolved.yaml stays as it was written.
RESUME_KEYS: tuple[str, ...] = ("train.steps",)
# of these, numbers that may only rise: fewer steps than were done are another run
RISES = frozenset({"train.steps"})
# numbers of tasks: the first 10 of 50 are the first 10, so a run may always be asked for more
GROWS = re.compile(r"(scenario|scenarios\.[^.]+)\.tasks")
_FREE = [key.split(".") for key in FREE_KEYS]
CHANGES_SHOWN = 5  # in a message
Names = tuple[str, ...]  # of a setting and of the sections that it stands in


def result_digest(resolved: Mapping[str, Any]) -> str:
    """8 hex digits of the settings that change results: two configs that differ elsewhere share
    a run folder."""
    return hashlib.sha256(
        json.dumps(result_settings(resolved), sort_keys=True).encode()
    ).hexdigest()[:8]


def result_settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of the settings that change results."""
    # a number that may grow is not part of the name, or more tasks would begin anew
    grows = may_grow(resolved)
    return {
        key: value
        for path, value in _flat(plain(resolved)).items()
        if not _is_free(path) and not (GROWS.fullmatch(key := ".".join(path)) and grows)
    }


def may_grow(resolved: Mapping[str, Any]) -> bool:
    """True where more tasks are the same run with more to play: it only plays, and has a number
    of tasks (or all), no list of chosen ones."""
    blocks = _blocks(resolved)
    numbers = all(isinstance(block.get("tasks"), int | None) for block in blocks)
    return not resolved.get("train") and bool(blocks) and numbers


def growing(resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that may grow: none, or the number of tasks of every scenario."""
    several = resolved.get("scenarios") or {}
    keys = [f"scenarios.{name}.tasks" for name in several] or ["scenario.tasks"]
    return tuple(keys) if may_grow(resolved) else ()


def _blocks(resolved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    several = resolved.get("scenarios")
    if not several or not isinstance(several, Mapping):
        several = {"": resolved.get("scenario")}
    return [block for block in several.values() if isinstance(block, Mapping)]


def run_path(stem: str, resolved: Mapping[str, Any], root: Path = Path("runs")) -> Path:
    """`<root>/<stem>-<digest>`: the same config always finds its folder again."""
    # no dot in front: a hidden folder would not be listed
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-") or "run"
    return Path(root) / f"{name}-{result_digest(resolved)}"


def _flat(value: Any, above: Names = ()) -> dict[Names, Any]:
    """Path -> leaf. Lists are leaves; an empty section is one too."""
    if not isinstance(value, dict) or not value:
        return {above: value}
    flat: dict[Names, Any] = {}
    for key, item in value.items():
        flat.update(_flat(item, (*above, str(key))))
    return flat


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {".".join(path): leaf for path, leaf in _flat(dict(settings)).items()}


def _is_free(path: Names) -> bool:
    # name by name: that of a policy may hold a dot, as gpt-4.1
    return any(
        len(free) <= len(path)
        and all(known in ("*", name) for known, name in zip(free, path, strict=False))
        for free in _FREE
    )


def settings_digest(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of all settings of a run, whatever the order of their keys and however they are
    laid out in the file."""
    return hashlib.sha256(json.dumps(plain(resolved), sort_keys=True).encode()).hexdigest()


def resumed_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], allowed: Iterable[str]
) -> dict[str, list[Any]]:
    """Dotted key -> [before, after] of the settings that are `allowed` to change, and do. Fewer
    tasks change nothing: the run keeps what it has."""
    before = _dotted(old)
    after = _dotted(new)
    differ = {
        key: [before.get(key), after.get(key)]
        for key in allowed
        if before.get(key) != after.get(key)
    }
    return {
        key: pair for key, pair in differ.items() if not GROWS.fullmatch(key) or _is_more(*pair)
    }


def rising(keys: Iterable[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the keys whose values may change so."""
    before = _dotted(old)
    after = _dotted(new)
    return tuple(
        key
        for key in keys
        if key not in RISES or not (before.get(key) or 0) > (after.get(key) or 0)
    )


def _is_more(held: int | None, asked: int | None) -> bool:
    """Whether a number of tasks (None: all there are) is more than the one that a run has."""
    return held is not None and (asked is None or asked > held)


def with_changes(resolved: dict[str, Any], resumed: Any) -> dict[str, Any]:
    """The settings that hold now: those of resolved.yaml with what the manifest's `resumed`
    says, oldest first. Raises StoreError for damage."""
    changed: dict[str, Any] = plain(resolved)
    for key, value in recorded_changes(resumed).items():
        *above, last = key.split(".")
        section: Any = changed
        for part in above:
            section = section.get(part) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            raise StoreError(f"manifest.json: resumed: this run has no setting {key!r}")
        section[last] = value
    return changed


def prices_in(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Policy -> its price, of those that have one."""
    policies = (resolved.get("policies") or {}).items()
    return {name: policy["price"] for name, policy in policies if (policy or {}).get("price")}


def recorded_changes(resumed: Any) -> dict[str, Any]:
    """Dotted key -> value of all that the manifest's `resumed` says, the last one of each.
    Raises StoreError where it is none of ours."""
    changes: dict[str, Any] = {}
    for resume in resumed if isinstance(resumed, list) else [resumed] * (resumed is not None):
        changed = resume.get("changed") if isinstance(resume, dict) else None
        if not isinstance(changed, dict) or not all(
            isinstance(pair, list) and len(pair) == 2 for pair in changed.values()
        ):
            raise StoreError(
                "manifest.json: resumed: expected a list of {at, changed: {key: [before, after]}}"
            )
        known = {*RESUME_KEYS, *filter(GROWS.fullmatch, changed)}
        if strange := sorted(set(changed) - known):
            told = f"{strange[0]!r} is not a setting that may change when a run goes on"
            raise StoreError(f"manifest.json: resumed: {told}; it was edited")
        changes |= {key: after for key, (_, after) in changed.items()}
    return changes


def changed_keys(
    old: dict[str, Any], new: dict[str, Any], allowed: Container[str] = ()
) -> list[str]:
    """What differs between two sets of settings and changes results, less the keys that are
    `allowed` to; in words. A setting that one side lacks has its default there: folders of older
    versions go on."""
    # late: most commands that read a folder compare no settings, and this imports pydantic
    from gem_ma.config.settings import NO_DEFAULT, default_of

    before = _flat(_seated(old, new))
    after = _flat(_seated(new, old))
    for path in before.keys() ^ after.keys():
        if (default := default_of(path)) is not NO_DEFAULT:
            (after if path in before else before)[path] = default
    differ = {
        path
        for path in before.keys() | after.keys()
        if before.get(path, NO_DEFAULT) != after.get(path, NO_DEFAULT)
    }
    # asked last: most keys are equal, and the patterns cost
    differ = {path for path in differ if not _is_free(path) and ".".join(path) not in allowed}
    # what is played comes first: it explains the rest most often
    named = sorted(differ, key=lambda path: (path[0] != "scenario", path))[
        : CHANGES_SHOWN if len(differ) > CHANGES_SHOWN + 1 else None
    ]
    told = [
        f"{'.'.join(map(in_quotes, path))} (was {_short(before, path)}, now {_short(after, path)})"
        for path in named
    ]
    return [*told, *[f"and {len(differ) - len(named)} more"] * (len(named) < len(differ))]


def _seated(settings: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The settings with a seat of its own for each agent that the others name and a pattern seats
    here."""
    agents, named = (one.get("agents") or {} for one in (settings, others))
    if not isinstance(agents, dict) or agents.keys() == named.keys():
        return settings
    keys = {name: key_of(name, agents) for name in named if name not in agents}
    seats = {name: agents[key] for name, key in keys.items() if key is not None}
    return {**settings, "agents": {**agents, **seats}}


def _short(values: Mapping[Names, Any], path: Names) -> str:
    if path not in values:
        return "absent"
    return _cut(json.dumps(values[path], ensure_ascii=False))


def _cut(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def fingerprint(fact: Any) -> Any:
    """What of a fact must stay: its digests where it has some, so that data may move to another
    path."""
    if isinstance(fact, dict):
        # a path or a count beside it may change
        if "digest" in fact:
            return fact["digest"]
        return {key: fingerprint(value) for key, value in fact.items()}
    return fact


def differs(old: Any, new: Any) -> str:
    """The digests of two facts in words; of several, those that differ."""
    before = fingerprint(old)
    after = fingerprint(new)
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        )
        before, after = (
            {key: digests[key] for key in keys if key in digests} for digests in (before, after)
        )
    names = [fact.get("name") if isinstance(fact, dict) else None for fact in (old, new)]
    if all(isinstance(text, str) for text in (*names, before, after)):
        # a name tells more than the digest behind it
        return f"was {names[0]} ({before[:12]}), now {names[1]} ({after[:12]})"
    was, now = (_cut(json.dumps(fact, default=str), 100) for fact in (before, after))
    return f"was {was}, now {now}"


def versions() -> dict[str, Any]:

    return {
        "versions": {"gem_ma": __version__, "python": ".".join(map(str, sys.version_info[:3]))},
        "git": _git(Path(__file__).parents[3]),
    }


@cache  # once: what is edited or committed later is not the code that this process runs
def _git(folder: Path) -> dict[str, Any] | None:
    """Commit and dirty flag of the checkout that the code runs from, None for an installed
    package."""
    # asked in another folder, git would look above it, and name a repository of somebody else
    if not (folder / ".git").exists():
        return None

    def ask(*words: str) -> str | None:
        # a hook that the checkout names would be run otherwise
        command = ["git", "-c", "core.fsmonitor=false", *words]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "dirty": bool(ask("status", "--porcelain", "--untracked-files=no"))}


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain values without shared parts, which YAML would write as aliases."""
    # through text, so that what cannot be written fails here and not half-way
    copy = load_json(dump_json(dict(value)))
    return dict(copy)


def finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, (str, int, type(None))):
        return value
    # numpy and torch are not imported for it
    if hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    return None if isinstance(value, float) and not -float("inf") < value < float("inf") else value
