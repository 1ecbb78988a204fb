"""What a run folder is called after, and which folders a command takes up again: settings that say
nothing new change neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import NO_DEFAULT, Config, default_of
from gem_ma.runs.store import result_digest
from gem_ma.runs.store.names import changed_keys

SHIPPED = ("kuhn_league", "retail_scripted")


def leaves(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))


def without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    copy = json.loads(json.dumps(values))
    section = copy
    for part in path[:-1]:
        section = section[part]
    del section[path[-1]]
    return copy


@pytest.mark.parametrize("name", SHIPPED)
def test_a_folder_that_lacks_a_setting_goes_on_under_its_default(name: str) -> None:
    """As folders do that an older version made, before the setting was there."""
    whole = config.load(name, configs_first=True).resolved()
    lacking = 0
    for path in leaves(whole):
        value: Any = whole
        for part in path:
            value = value[part]
        key = ".".join(path)
        if not isinstance(value, dict) and default_of(key) == value:
            older = without(whole, path)
            assert changed_keys(older, whole) == changed_keys(whole, older) == []
            lacking += 1
    assert lacking > 20


@pytest.mark.parametrize("name", SHIPPED)
def test_a_default_that_is_written_out_names_no_other_folder(name: str) -> None:
    terse = config.load(name, configs_first=True)
    spelled = Config.model_validate(terse.config.model_dump(mode="json"))
    identity = spelled.model_dump(mode="json", exclude_defaults=True)
    assert result_digest(identity) == result_digest(terse.identity())
    assert Config.model_validate(identity) == terse.config  # and it says all that matters


@pytest.mark.parametrize("change", ["run.seed=3", "train.credit.truncated=drop", "train.lr=0.5"])
def test_a_setting_that_changes_results_names_another_folder(change: str) -> None:
    before, after = (config.load("referential_table", more) for more in ((), (change,)))
    assert result_digest(before.identity()) != result_digest(after.identity())
    assert [line.partition(" ")[0] for line in changed_keys(before.resolved(), after.resolved())]


@pytest.mark.parametrize(
    "key", ["policies.main.model", "policies.main.device", "train.fork.width", "nothing", "run.odd"]
)
def test_what_must_be_written_and_what_no_section_has_has_no_default(key: str) -> None:
    assert default_of(key) is NO_DEFAULT


def test_a_policy_with_a_dot_in_its_name_is_a_policy_as_any_other() -> None:
    def named(policy: str, **options: Any) -> dict[str, Any]:
        return {"policies": {policy: {"model": "openai/x", **options}}}

    free: dict[str, Any] = {"concurrency": 3, "price": {"input": 1}, "base_url": "http://x/v1"}
    for policy in ("main", "gpt-4.1"):
        assert result_digest(named(policy, **free)) == result_digest(named(policy))
        assert changed_keys(named(policy), named(policy, **free)) == []
        body = {"extra_body": {"price": 2}}  # goes to the server
        assert result_digest(named(policy, **body)) != result_digest(named(policy))
        assert changed_keys(named(policy), named(policy, temperature=0.5))


def test_an_agent_that_a_pattern_seats_differs_from_its_seat_there() -> None:
    all_alike = {"agents": {"*": {"behaviour": "first_legal"}}}
    named = {"agents": {**all_alike["agents"], "bob": {"behaviour": "random_legal"}}}
    told = 'agents.bob.behaviour (was "first_legal", now "random_legal")'
    assert changed_keys(all_alike, named) == [told]
    assert changed_keys(named, all_alike)[0].endswith('(was "random_legal", now "first_legal")')
    # as it is typed, with a dot in it too
    other = {"agents": {**all_alike["agents"], "Ann B.": {"behaviour": "random_legal"}}}
    assert changed_keys(all_alike, other)[0].startswith('agents."Ann B.".behaviour (was')
    same = {"agents": {**all_alike["agents"], "bob": {"behaviour": "first_legal"}}}
    assert changed_keys(all_alike, same) == changed_keys(same, all_alike) == []
