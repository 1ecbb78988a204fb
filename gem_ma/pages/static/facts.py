"""What was run, for the end of a page: scenario, cast, models with their sampling, cost, tokens,
seeds, data, commit, overrides, config.

It reads what a run folder records (manifest.json, resolved.yaml, summary.json) and tells what is
there; an older folder tells less. Keys and addresses of endpoints stay out: a page is made to be
passed on.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gem_ma.config.document import dotted, parted, write
from gem_ma.config.seats import seats_in
from gem_ma.pages.static.page import Html, render, text
from gem_ma.runs.store import read_tags
from gem_ma.scores.columns import COLUMNS, Column

Facts = Mapping[str, Any]
# names of settings that a page never shows: secrets, and where an endpoint is
_HIDDEN = re.compile(
    r"(^|_)(api_?keys?(_env)?|secrets?|passwords?|base_url|address|headers?|cache|token"
    r"|authorization)$",
    re.IGNORECASE,
)
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "stop")
# Keys of a summary that stand elsewhere in the page, beside those of columns. Any other one is told
# as it is.
_ELSEWHERE = {
    *("schema", "planned", "episodes", "ok", "failed", "excluded", "tasks", "ends", "errors"),
    *("returns", "success", "score", "pass_hat_k", "pass_hat_k_intervals", "tries", "worlds"),
    *(
        "measures",
        "labels",
        "lost",
        "baselines",
        "before",
        "after",
        "changes",
        "learned",
        "changed",
    ),
    *("unchanged", "weights", "league", "alarms", "models", "averaged"),
}
_NO_OPTIONS = ("id", "split", "tasks", "weight")  # of a scenario's block
# digests and lists of task ids would push the rest off the page
LONG = 160  # characters of one value
DIGITS = 12  # hex digits of a digest
FEW = 4  # seats that have a line each though they are alike


def facts_block(
    label: str, manifest: Facts, resolved: Facts, summary: Facts, *, folded: bool
) -> Html:
    """A list of facts with the config below it; `folded` where a page shows several runs. ""
    where the folder tells nothing."""
    rows = [row for row in (*_played(manifest, resolved, summary), *_made(manifest)) if row[1]]
    if not rows:
        return Html("")
    # a page is passed on, and a config may name where a server stands
    config = write(_public(dict(resolved))) if resolved else ""
    return render("facts", rows=rows, config=config, folded=folded, label=label)


def lead_of(manifest: Facts, resolved: Facts, summary: Facts) -> Html:
    """What was played and how it ended, in one line below the title."""
    first = [value for _, value in itertools.islice(_played(manifest, resolved, summary), 3)]
    told = " · ".join(value if isinstance(value, Html) else text(value) for value in first if value)
    return Html(f'<p class="hint">{told}</p>') if told else Html("")


def command_of(manifest: Facts, path: object) -> str:
    """How the run is made again."""
    command = manifest.get("command")
    return f"gem-ma {command} {path}/resolved.yaml" if command in ("run", "train") else ""


_SETTINGS = re.compile(r"[A-Z]\w{0,40}\(((?:[^()]|\(\)){0,600})\)")
_NOTHING = ("0", "0.0", "False", "None", "()", "''", "")


# -- what was played -----------------------------------------------------------------------------


def _played(manifest: Facts, resolved: Facts, summary: Facts) -> Iterator[tuple[str, Any]]:
    yield "scenario", _scenario(_mapping(manifest, "scenario"), _mapping(resolved, "scenario"))
    versions = _mapping(manifest, "scenarios")
    several = _mapping(resolved, "scenarios")
    yield (
        "scenarios",
        _lines(
            f"{name}: {_scenario(_mapping(versions, name), _mapping(several, name))}, weight"
            f" {_short(_mapping(several, name).get('weight', 1))}"
            for name in several
        ),
    )
    yield "episodes", _episodes(resolved, summary)
    yield "data", _data(_mapping(manifest, "data"))
    seats = {f"{world} {agent}".lstrip(): seat for world, agent, seat in seats_in(resolved)}
    yield "cast", _lines(_cast(seats))
    weights = _mapping(manifest, "models")
    policies = _mapping(resolved, "policies")
    yield (
        "models",
        _lines(_policy(name, policy, weights.get(name)) for name, policy in policies.items()),
    )
    train = _mapping(resolved, "train")
    # a run that has not ended has no summary: then what its config asks for
    learned = summary.get("learned", train.get("policies"))
    yield "learned", ", ".join(map(str, learned)) if isinstance(learned, list) else ""
    yield "training", _training(train)
    for column in COLUMNS:
        if column.shown in ("row", "page"):
            name = Html(f'<span title="{text(column.tells)}">{text(column.name)}</span>')
            yield name, _lines(_column(column, summary.get(column.key)))
    seeds = _mapping(manifest, "seeds")
    yield "seeds", ", ".join(f"{name} {seed}" for name, seed in seeds.items())
    known = _ELSEWHERE | {column.key for column in COLUMNS}
    for key, value in summary.items():
        # what a later version counts shows up here, without this file knowing it
        if key not in known and value not in (None, {}, [], ""):
            yield key.replace("_", " "), _short(value)


def _made(manifest: Facts) -> Iterator[tuple[str, Any]]:
    overrides = manifest.get("overrides")
    if isinstance(overrides, list):
        yield "overrides", ", ".join(_override(str(one)) for one in overrides) or "none"
    yield "tags", ", ".join(read_tags(manifest))
    git = _mapping(manifest, "git")
    versions = _mapping(manifest, "versions")
    if git.get("commit"):
        changed = ", with changes that are not committed" if git.get("dirty") else ""
        yield "commit", f"{git['commit'][:DIGITS]}{changed}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "begun", manifest.get("created", "")


def _scenario(known: Facts, settings: Facts) -> str:
    name = known.get("id", settings.get("id", ""))
    version = f" version {known['version']}" if "version" in known else ""
    options = _options(
        {
            key: value
            for key, value in settings.items()
            # seats of one scenario of several stand there too; no wrappers are nothing to tell
            if key not in _NO_OPTIONS
            and not (key == "agents" and isinstance(value, dict))
            and (key, value) != ("wrappers", [])
        }
    )
    return f"{name}{version}{f' ({options})' if options else ''}"


def _episodes(resolved: Facts, summary: Facts) -> str:
    settings = _mapping(resolved, "scenario")
    run = _mapping(resolved, "run")
    parts = []
    if "ok" in summary:
        ends = _mapping(summary, "ends")
        parts.append(
            f"{summary['ok']} ok / {summary['failed']} failed / {summary['excluded']} excluded"
        )
        # a failed episode counts as lost; here each stands once
        lost = (_mapping(summary, "lost").get("count") or 0) - summary["failed"]
        parts += [f"{lost} lost"] if lost > 0 else []
        uncut = ("terminated", "failed", "interrupted")
        cut = sum(count for end, count in ends.items() if end not in uncut)
        parts += [f"{cut} cut by a limit"] if cut else []
    if settings.get("split"):
        tasks = settings.get("tasks")
        tries = run.get("episodes_per_task", 1)
        which = f"tasks {_short(tasks)}" if tasks else "all tasks"
        if isinstance(tasks, int):
            which = f"{tasks} tasks"
        # tasks and tries are those of exams here, which the table of scores tells
        trained = _mapping(resolved, "train").get("split")
        each = f", {tries} tries each" if tries != 1 else ""
        if trained:
            parts.append(f"trained on split {trained}, examined on split {settings['split']}")
        else:
            parts.append(f"{which} of split {settings['split']}{each}")
    return "; ".join(parts)


def _data(data: Facts) -> str:
    named = [str(data[key]) for key in ("name", "folder") if data.get(key)]
    if data.get("digest"):
        named.append(f"digest {str(data['digest'])[:DIGITS]}")
    rest = {
        key: _in_words(value)
        for key, value in data.items()
        if key not in ("name", "folder", "digest") and value
    }
    return ", ".join([*named, *([_options(rest)] if rest else [])])


def _in_words(value: Any) -> Any:
    """`sizes Sizes(users=40, repeats=0)`, as a world says its settings, as `sizes users 40`: what
    is 0, false or empty is left out."""
    return _SETTINGS.sub(_settings, value) if isinstance(value, str) else value


def _settings(found: re.Match[str]) -> str:
    parts = (part.partition("=") for part in found[1].split(", "))
    told = [f"{name} {said}" for name, _, said in parts if said not in _NOTHING]
    return ", ".join(told) or "none"


def _cast(seats: Facts) -> Iterator[str]:
    """A line for each seat, and one for many that are alike."""
    named: dict[str, list[str]] = {}
    for agent, seat in seats.items():
        named.setdefault(_seat(seat), []).append(agent)
    for plays, agents in named.items():
        if len(agents) > FEW:
            yield f"{agents[0]} and {len(agents) - 1} more: {plays}"
        else:
            yield from (f"{agent}: {plays}" for agent in agents)


def _seat(seat: object) -> str:
    if not isinstance(seat, dict):
        return _short(seat)
    plays = f"{seat.get('behaviour', '?')}"
    plays += f", policy {seat['policy']}" if seat.get("policy") else ""
    plays += "".join(f", {role} {policy}" for role, policy in _mapping(seat, "policies").items())
    if isinstance(tools := seat.get("tools"), list) and tools:
        named = (next(iter(tool), "") if isinstance(tool, dict) else tool for tool in tools)
        plays += f", tools {', '.join(map(_short, named))}"
    plays += f", memory {_short(seat['memory'])}" if seat.get("memory") else ""
    options = _options(_mapping(seat, "options"))
    return f"{plays} ({options})" if options else plays


def _policy(name: str, policy: object, weights: object) -> str:
    """Model, sampling and whatever else the engine was given; the digest of the weights where
    there are any."""
    if not isinstance(policy, dict):
        return f"{name}: {_short(policy)}"
    rest = {
        key: value
        for key, value in policy.items()
        if key not in ("model", *_SAMPLING) and value is not None and value != {}
    }
    sampling = [
        f"{key.replace('_', ' ')} {_short(policy[key])}"
        for key in _SAMPLING
        if policy.get(key) not in (None, [])
    ]
    digest = weights.get("digest") if isinstance(weights, dict) else None
    words = [
        *sampling,
        *([_options(rest)] if _options(rest) else []),
        *([f"weights {str(digest)[:DIGITS]}"] if digest else []),
    ]
    return f"{name}: {policy.get('model', '?')}, {', '.join(words)}"


def _training(train: Facts) -> str:
    if not train:
        return ""
    estimator = _mapping(train, "estimator").get("name")
    parts = [
        f"{train[key]} {word}"
        for key, word in (("steps", "steps"), ("episodes", "episodes a step"))
        if key in train
    ]
    parts += [f"estimator {estimator}"] if estimator else []
    parts += [f"lr {train['lr']}"] if "lr" in train else []
    return ", ".join(parts)


def _column(column: Column, value: Any) -> Iterator[str]:
    if value in (None, {}):
        return
    try:
        lines = column.lines(value)
    except (AttributeError, KeyError, TypeError):  # of another version
        lines = [("", _short(value))]
    yield from (f"{who}: {words}".removeprefix(": ") for who, words in lines)


# -- words ---------------------------------------------------------------------------------------


def _lines(rows: Iterator[str]) -> Html:
    return Html("<br>".join(text(row) for row in rows))


def _options(options: Facts) -> str:
    return ", ".join(
        f"{key} {_short(value)}" for key, value in options.items() if not _HIDDEN.search(str(key))
    )


def _override(words: str) -> str:
    # the value of a hidden key may hold anything, so nothing of it is shown
    names, _ = parted(words)
    return f"{dotted(names)}=(hidden)" if _HIDDEN.search(names[-1]) else words


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(item) for key, item in value.items() if not _HIDDEN.search(str(key))}
    return [_public(item) for item in value] if isinstance(value, list) else value


def _mapping(whole: Facts, key: str) -> dict[str, Any]:
    found = whole.get(key)
    return found if isinstance(found, dict) else {}


def _short(value: object) -> str:
    words = value
    if not isinstance(words, str):
        # a record of another version may hold anything: `str` of it is better than no page
        words = json.dumps(_public(value), ensure_ascii=False, default=str)
    return words if len(words) <= LONG else f"{words[:LONG]} …"
