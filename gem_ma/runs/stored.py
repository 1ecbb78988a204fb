"""A run folder as it is read again: the config that it was made with, who judges its plays, what
they come to. It plays nothing, writes nothing, and runs no code that a folder names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gem_ma import registry
from gem_ma.config.playing import ScenarioSettings
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError, DataError, StoreError
from gem_ma.runs.costs import costs_of, other_models
from gem_ma.runs.open import Opened, world_facts
from gem_ma.runs.store import (
    older_summary,
    read_episodes,
    read_manifest,
    read_settings,
    read_summary,
    read_verdicts,
    rows_by,
    standing_summary,
)
from gem_ma.runs.store.lines import is_as_written, read_places
from gem_ma.runs.store.used import changed_data, changed_rules, differing
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.judge import Judge, repeating
from gem_ma.system.files import damage

Say = Callable[[str], None]


class _CodeOfFolder(ConfigError):
    """A command that reads may not run what a folder names."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What stands behind the episodes of a run folder.

    `config` and `worlds` are None where the scenario may not be asked; then `judge` repeats what
    summary.json says of the plays, and knows nothing where that file says nothing.
    """

    path: Path
    judge: Judge
    config: Config | None = None
    worlds: Worlds | None = None

    def summary(self, *, anew: bool = True) -> dict[str, Any]:
        """The score of all episodes of the folder, computed without a model: the keys of
        summary.json, less `baselines`, which other plays gave. `anew`: each play is judged now;
        else where nobody has judged it. Raises StoreError for damage."""
        rows = rows_by(self.path, self.judge, anew=anew)
        summary = self.judge.summary(rows, lambda: read_episodes(self.path))
        if self.config is None or self.worlds is None:
            return summary
        planned = {"planned": max(self.worlds.count(), summary["episodes"])}
        recorded = read_summary(self.path) or {}
        costs = costs_of(self.config, rows, recorded)
        with damage(self.path / "summary.json"):
            others = other_models(self.config, summary, recorded)
        return {**planned, **summary, **costs, **others}


def open_record(
    path: Path, say: Say, scenario: str | None = None, count: Callable[[], int] | None = None
) -> Recorded:
    """What judges the plays of a run folder: a built-in or installed scenario anew, where rules
    and data are those of the run; else what was said of each play when it was played. One line to
    `say` tells what of the run's code or data is gone or differs, or what nobody has judged.

    A scenario of another kind is code that the folder names, and a command that reads runs none.
    `scenario`: the user names the code that judges, in place of the folder's. `count`: how many
    episodes there are, for whoever has read their file anyway. Raises ConfigError or DataError
    where that cannot be made or has other data, StoreError for damage.
    """
    changed = differing(path)
    if scenario is not None:
        config = recorded_config(path)
        if config.scenario is not None:
            block = config.scenario.model_copy(update={"id": scenario})
            config = config.model_copy(update={"scenario": block})
        worlds = _trusted(config, scenario)
        _check_data(path, worlds)
        if changed:
            say(f"{changed}; the plays are judged by {scenario} as it is now")
        return Recorded(path, worlds.judge, config, worlds)
    try:
        config = recorded_config(path)
        worlds = _trusted(config)
        _check_data(path, worlds)
        if changed:
            say(f"{changed}; the plays of then are shown")
        return Recorded(path, worlds.judge, config, worlds)
    except (ConfigError, DataError, StoreError) as error:
        reason = changed or str(error)
        is_code = isinstance(error, _CodeOfFolder)
    judge, is_whole = _recorded_judge(path, count)
    # what its own code said of every play is the whole answer
    if changed or not (is_code and is_whole):
        say(f"{reason}; the plays are not judged again, what was recorded is shown")
    return Recorded(path, judge)


def _check_data(path: Path, worlds: Worlds) -> None:
    """Raises DataError where rules or data of these worlds are others than those of the run."""
    manifest = read_manifest(path)
    facts = world_facts(worlds)
    if words := changed_rules(manifest, facts) or changed_data(manifest, facts):
        raise DataError(words)


def _recorded_judge(path: Path, count: Callable[[], int] | None) -> tuple[Judge, bool]:
    """The judge that repeats what was said when the plays were played, and whether that is all
    that there is to say of them."""
    manifest = read_manifest(path)
    rows = read_verdicts(path)
    with damage(path / "summary.json"):
        # of fifty thousand lost plays it takes long to read
        is_summed_up = is_as_written(path) or read_summary(path) is not None
        played = len(read_places(path)) if count is None else count()
        if "judged" not in manifest or not rows:  # of an older version
            return Judge.recorded(read_summary(path) or {}, played), not played
    with damage(path / "manifest.json"):
        judge = repeating(rows, manifest["judged"])
        # of a training nobody asks for measures, of an older one nobody was asked for them while
        # it was played
        asked = Judge(judge.success) if manifest.get("command") == "train" else judge
        suffices = asked.rows().suffices
        is_judged = is_summed_up or all(suffices(row) for row in rows.values())
        return judge, is_judged and len(rows) >= played


def run_summary(path: Path, record: Recorded, scenario: str | None = None) -> dict[str, Any]:
    """What all plays of a run come to, for whoever looks at it: summary.json as long as the plays
    do not change, else what their rows say. A `scenario` that the user names judges all anew.
    Raises StoreError."""
    if scenario is not None:
        return record.summary()
    standing = standing_summary(path)
    if standing is not None:
        return standing
    older = older_summary(path) if record.worlds is None else None
    if older is not None and older.get("episodes") == len(read_places(path)):
        return older  # what was judged when it was played
    return record.summary(anew=False)


def record_for_page(
    path: Path,
    say: Say,
    warn: Say,
    scenario: str | None = None,
    count: Callable[[], int] | None = None,
) -> Recorded:
    """`open_record` for a page, which shows what there is: where the record of how the plays came
    out is damaged, one line to `warn` names the file, and nothing is known of success."""
    try:
        return open_record(path, say, scenario, count)
    except StoreError as error:
        warn(str(error))
        return Recorded(path, Judge())


def _trusted(config: Config, named: str | None = None) -> Worlds:
    """The worlds of a recorded config. Raises ConfigError where one that the user has not `named`
    is code of the folder, and where none is called so."""
    blocks = [config.only] if config.scenario is not None else [*config.scenarios.values()]
    if not blocks:
        raise ConfigError("its resolved.yaml names no scenario")
    ids = dict.fromkeys(block.id for block in blocks)
    if named is not None and named not in ids:
        raise ConfigError(f"--scenario {named}: the run has several, {', '.join(ids)}; name one")
    others = [block for block in blocks if block.id != named]
    code = {block.id: words for block in others if (words := _code_in(block))}
    if code:
        (name, words), *rest = code.items()
        # only one can be named
        more = f" (--scenario {name} does)" if named is None and not rest else ""
        raise _CodeOfFolder(
            f"the {words} is code that the run folder names, which reading never runs{more}"
        )
    return _made(config, named or blocks[-1].id)


def _code_in(block: ScenarioSettings) -> str:
    """What of a scenario's settings names code of the folder; "" where nothing does."""
    if not registry.known("scenarios", block.id):
        return f"scenario {block.id!r}"
    strange = (name for name in _wrappers(block) if not registry.known("wrappers", name))
    return next((f"wrapper {name!r}" for name in strange), "")


def _wrappers(block: ScenarioSettings) -> Iterator[str]:
    for entry in block.wrappers:
        yield from [entry] if isinstance(entry, str) else entry


def _made(config: Config, name: str) -> Worlds:
    # exams are not judged again, so that their worlds need not be there
    exams = config.evaluate.model_copy(update={"scenarios": {}})
    try:
        return Opened.of(config.model_copy(update={"evaluate": exams})).worlds
    except (ConfigError, DataError):
        raise
    except Exception as error:
        # options of a stranger's file make a scenario raise what it likes
        fault = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"the scenario {name!r} cannot be made: {fault}") from error


def recorded_config(path: Path) -> Config:
    """The config of a run as resolved.yaml and the manifest have it; nothing that it names is
    looked up. Raises StoreError."""
    try:
        return Config.model_validate(read_settings(path))
    except ValidationError as error:
        # the first is enough: nobody has typed this file
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise StoreError(f"{path / 'resolved.yaml'}: {where}: {fault['msg']}") from None


def changes(stored: Mapping[str, Any], scored: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Dotted key -> [stored, now] of what a run's summary.json says otherwise than a score that
    was computed now. Both are JSON values; a key that a stored one lacks is of a newer version."""
    differences: dict[str, list[Any]] = {}
    for key, before in stored.items():
        if key not in scored:
            continue
        if isinstance(before, Mapping) and isinstance(scored[key], Mapping):
            inner = changes(before, scored[key]).items()
            differences |= {f"{key}.{name}": pair for name, pair in inner}
        elif before != scored[key]:
            differences[key] = [before, scored[key]]
    return differences
